//! Starts a host's programs, on a thread of its own on that host, whose children live in a process
//! namespace. Processes started there cannot outlive the host, even if they have left their session
//! or this process is killed.

use std::{
    io,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc,
    thread::{self, JoinHandle},
};

use farhaul_udp::netns;

/// A program to start, and the channel for the result.
type Order = (Command, mpsc::SyncSender<io::Result<Child>>);

/// The programs of one host. All are killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Programs {
    orders: Option<mpsc::Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

/// The first process, with which all end. It does nothing but wait for the end of its input.
struct Init {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Init {
    fn start() -> io::Result<Self> {
        let mut command = Command::new("cat");
        command
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = netns::start_init(&mut command)?;
        let stdin = child.stdin.take();
        Ok(Self { child, stdin })
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // Ends when all others have; it may have been killed already.
        let _ = self.child.wait();
    }
}

impl Programs {
    /// Starts the thread on the network of the calling thread.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let (orders, inbox) = mpsc::channel::<Order>();
        let (ready, started) = mpsc::sync_channel(1);
        let thread = thread::Builder::new()
            .name(format!("{name}-programs"))
            .spawn(move || {
                let _init = match Init::start() {
                    Ok(init) => init,
                    Err(e) => return drop(ready.send(Err(e))),
                };
                // The receiver is closed if the host could not be built.
                let _ = ready.send(Ok(()));
                for (mut command, answer) in inbox {
                    let child = netns::die_with_this_thread(&mut command).spawn();
                    let _ = answer.send(child);
                }
            })?;
        let programs = Self {
            orders: Some(orders),
            thread: Some(thread),
        };
        started.recv().map_err(gone)??;
        Ok(programs)
    }

    /// Starts a program.
    pub(crate) fn spawn(&self, command: Command) -> io::Result<Child> {
        let (answer, answered) = mpsc::sync_channel(1);
        let orders = self.orders.as_ref();
        let sent = orders.is_some_and(|orders| orders.send((command, answer)).is_ok());
        debug_assert!(sent, "the thread lives as long as the host");
        answered.recv().map_err(gone)?
    }
}

fn gone(_: mpsc::RecvError) -> io::Error {
    io::Error::other("what starts programs has ended")
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

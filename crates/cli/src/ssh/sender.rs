//! Lets a host send to another one; only this machine reaches both by ssh. The host makes a key
//! pair for this copy and says the public one. Once it knows where to send, it copies as if the
//! command had been given there, and reports.

use std::{
    io::{self, BufReader},
    process::{ChildStdin, ChildStdout},
    sync::Arc,
};

use farhaul_haul::PublicKey;

use super::{
    Call, PIPE, Running,
    lines::{Hello, MAGIC, MOST, Order, Report, read_report},
    not_understood, or_install,
};
use crate::{
    app::console::Console,
    exit::{Exit, Failure},
};

/// The sending host. The copy there ends when this is dropped.
pub(crate) struct Sender {
    /// Key of the host.
    pub(crate) key: PublicKey,
    ssh: Running,
    stdout: Option<BufReader<ChildStdout>>,
}

/// Reports of the host.
#[derive(Debug)]
pub(crate) struct Reports(BufReader<ChildStdout>);

impl Sender {
    /// Starts farhaul at `login`.
    pub(crate) fn open(
        call: &Call,
        login: &str,
        console: &Arc<dyn Console>,
    ) -> Result<Self, Failure> {
        or_install(call, login, &**console, |call| {
            Self::start(call, login, console)
        })
    }

    fn start(call: &Call, login: &str, console: &Arc<dyn Console>) -> Result<Self, Failure> {
        let (mut ssh, stdout) = Running::start(call, login, "_cp", console)?;
        let mut stdout = BufReader::with_capacity(PIPE, stdout);
        let hello: Hello = ssh.answer(&mut stdout)?;
        let odd = |_| not_understood(login, &hello.release);
        Ok(Self {
            key: hello.key.parse().map_err(odd)?,
            ssh,
            stdout: Some(stdout),
        })
    }

    /// Orders the copy; returns its reports.
    pub(crate) fn order(&mut self, order: &Order) -> Result<Reports, Failure> {
        let line = serde_json::to_string(order).map_err(|e| Failure::internal(&e))?;
        let line = format!("{MAGIC}{line}");
        if line.len() as u64 >= MOST {
            let text = format!(
                "the names of the sources and the patterns have more than {} KiB, and one command cannot hand over more",
                MOST >> 11
            );
            return Err(Failure::usage(text).fix("copy in parts"));
        }
        let stdout = self.stdout.take();
        let sent = self.ssh.write_line(&line);
        stdout.filter(|_| sent.is_ok()).map(Reports).ok_or_else(|| {
            let text = format!(
                "ssh {} ended before the copy began; its output is above",
                self.ssh.login
            );
            Failure::new(Exit::Ssh, text)
        })
    }

    /// Takes its input, which then is a tunnel's. Without the input the copy there ends.
    pub(crate) const fn take_input(&mut self) -> Option<ChildStdin> {
        self.ssh.stdin.take()
    }

    /// True if the input was not taken.
    pub(crate) const fn has_input(&self) -> bool {
        self.ssh.stdin.is_some()
    }
}

impl Reports {
    /// The next one; none after the last.
    pub(crate) fn next(&mut self) -> io::Result<Option<Report>> {
        read_report(&mut self.0)
    }
}

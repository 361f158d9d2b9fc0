//! How does a copy go on where UDP does not get through? Its datagrams, sealed as ever, are carried by the pipe of the
//! ssh that started the far end. At both ends a socket on the loopback device stands for the other one.
//!
//! - The near end begins with a line, the far end answers with one; after that both send frames: u16 length (big-endian),
//!   datagram.
//! - What the pipe cannot take fills the socket's buffer, and then is lost: to the sessions it is a path like others.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvFlags, recv, sockopt},
};
use serde::{Deserialize, Serialize};

use super::lines::MAGIC;

/// The line with which the near end begins.
const BEGIN: &str = "tunnel";
/// The longest line that is read.
const LINE: u64 = 1 << 10;
/// The longest datagram, which a frame can hold.
const LONGEST: usize = u16::MAX as usize;
/// Bytes that are written at once.
const BATCH: usize = 128 << 10;
/// Wanted of the kernel for datagrams that wait for the pipe.
const WAITING: usize = 4 << 20;
/// How long the far end may take to begin.
const ANSWER: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};
/// How often a thread that waits looks whether it should end.
const LOOK: Duration = Duration::from_millis(20);

/// The line with which the far end answers.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Begun {
    /// Some datagram of the near end, or of anybody, reached its port.
    pub(crate) heard: bool,
}

/// A socket on the loopback device, of which the other end is a session's.
fn socket() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    // As much as is permitted.
    let _limited = sockopt::set_socket_recv_buffer_size(&socket, WAITING);
    socket.set_read_timeout(Some(LOOK))?;
    Ok(socket)
}

/// Datagrams of the socket into the pipe, until that ends or `over`. If the socket has no peer, the first who sends is it.
fn into_pipe(socket: &UdpSocket, mut pipe: impl Write, over: &AtomicBool) -> io::Result<()> {
    let mut frames = vec![0; BATCH + 2 + LONGEST];
    let mut connected = socket.peer_addr().is_ok();
    while !over.load(Relaxed) {
        let got = socket.recv_from(&mut frames[2..]);
        let (len, from) = match got {
            Ok(got) => got,
            Err(e) if is_nothing(&e) => continue,
            Err(e) => return Err(e),
        };
        if !connected {
            socket.connect(from)?;
            connected = true;
        }
        let mut end = frame(&mut frames, 0, len);
        while end < BATCH {
            match recv(socket, &mut frames[end + 2..], RecvFlags::DONTWAIT) {
                Ok((_, len)) => end = frame(&mut frames, end, len),
                Err(Errno::AGAIN) => break,
                Err(e) if is_nothing(&e.into()) => {}
                Err(e) => return Err(e.into()),
            }
        }
        pipe.write_all(&frames[..end])?;
        pipe.flush()?;
    }
    Ok(())
}

/// Completes the frame at `at`, whose datagram is in place; where the next one begins.
fn frame(frames: &mut [u8], at: usize, len: usize) -> usize {
    let len = len.min(LONGEST);
    let [.., high, low] = len.to_be_bytes();
    (frames[at], frames[at + 1]) = (high, low);
    at + 2 + len
}

/// Nothing came in time, or the session behind the socket is gone or not there yet.
fn is_nothing(e: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(
        e.kind(),
        ConnectionRefused | Interrupted | TimedOut | WouldBlock
    )
}

/// Frames of the pipe to the socket's peer, until the pipe ends.
fn out_of_pipe(mut pipe: impl Read, socket: &UdpSocket) -> io::Result<()> {
    let mut datagram = vec![0; LONGEST];
    loop {
        let mut len = [0; 2];
        match pipe.read_exact(&mut len) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(e),
        }
        let datagram = &mut datagram[..usize::from(u16::from_be_bytes(len))];
        pipe.read_exact(datagram)?;
        // What cannot be sent is lost, as anywhere in a network.
        let _lost = socket.send(datagram);
    }
}

/// The near end of a tunnel. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Near {
    /// Where sessions find the far end.
    pub(super) at: SocketAddr,
    pub(super) begun: Begun,
    over: Arc<AtomicBool>,
}

impl Near {
    /// Asks the far end at the other end of these pipes to begin.
    pub(super) fn begin(
        mut to: impl Write + Send + 'static,
        mut from: BufReader<impl Read + AsFd + Send + 'static>,
    ) -> io::Result<Self> {
        writeln!(to, "{MAGIC}{BEGIN}")?;
        to.flush()?;
        // Where the whole network is gone, ssh is silent for long.
        let mut answer = [PollFd::new(from.get_ref(), PollFlags::IN)];
        if from.buffer().is_empty() && poll(&mut answer, Some(&ANSWER))? == 0 {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "ssh is silent, too",
            ));
        }
        let line = line(&mut from)?;
        let begun = line
            .strip_prefix(MAGIC)
            .and_then(|l| serde_json::from_str(l).ok());
        let begun = begun.ok_or_else(|| io::Error::other("the far end did not begin a tunnel"))?;
        let socket = socket()?;
        let at = socket.local_addr()?;
        let over = Arc::new(AtomicBool::new(false));
        let (back, ended) = (socket.try_clone()?, Arc::clone(&over));
        thread::Builder::new()
            .name("tunnel-out".into())
            .spawn(move || {
                // When it ends the session hears no more, and says so.
                let _ended = into_pipe(&socket, to, &ended);
            })?;
        thread::Builder::new()
            .name("tunnel-in".into())
            .spawn(move || {
                let _ended = out_of_pipe(from, &back);
            })?;
        Ok(Self { at, begun, over })
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
    }
}

/// One line without its end, of no more than [`LINE`] bytes.
fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.take(LINE).read_line(&mut line)?;
    Ok(line.trim_end_matches('\n').to_owned())
}

/// The far end: whether a tunnel is asked for, or the near end is gone.
pub(crate) fn is_asked_for(from: &mut impl BufRead) -> bool {
    line(from).is_ok_and(|line| line.strip_prefix(MAGIC) == Some(BEGIN))
}

/// Carries datagrams between the pipes and the server at `port` here, until the near end is gone.
pub(crate) fn serve(
    port: u16,
    begun: &Begun,
    from: impl Read,
    mut to: impl Write + Send + 'static,
) -> io::Result<()> {
    let socket = socket()?;
    socket.connect((Ipv4Addr::LOCALHOST, port))?;
    writeln!(to, "{MAGIC}{}", serde_json::to_string(begun)?)?;
    to.flush()?;
    let over = Arc::new(AtomicBool::new(false));
    let (out, ended) = (socket.try_clone()?, Arc::clone(&over));
    thread::Builder::new()
        .name("tunnel-out".into())
        .spawn(move || {
            // Without ssh nobody is left to be told.
            let _ended = into_pipe(&out, to, &ended);
        })?;
    let ended = out_of_pipe(from, &socket);
    over.store(true, Relaxed);
    ended
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn server() -> (UdpSocket, u16) {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        (socket, port)
    }

    #[test]
    fn datagrams_go_both_ways_whole_and_end_with_the_near_end() {
        let (server, port) = server();
        let (near_in, far_out) = io::pipe().unwrap();
        let (far_in, near_out) = io::pipe().unwrap();
        let far = thread::spawn(move || {
            let mut from = BufReader::new(far_in);
            assert!(is_asked_for(&mut from));
            serve(port, &Begun { heard: true }, from, far_out)
        });
        let near = Near::begin(near_out, BufReader::new(near_in)).unwrap();
        assert!(near.begun.heard);
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        client.connect(near.at).unwrap();
        let mut buffer = vec![0; LONGEST];
        for len in [1, 1_200, 9_000, 60_000] {
            let sent = vec![u8::try_from(len % 251).unwrap(); len];
            client.send(&sent).unwrap();
            let (n, from) = server.recv_from(&mut buffer).unwrap();
            assert!(buffer[..n] == sent[..], "{len}");
            server.send_to(&sent, from).unwrap();
            let n = client.recv(&mut buffer).unwrap();
            assert!(buffer[..n] == sent[..], "{len}");
        }
        drop(near);
        far.join().unwrap().unwrap();
    }

    #[test]
    fn an_end_that_knows_no_tunnels_is_an_error() {
        let (from, mut to) = io::pipe().unwrap();
        writeln!(to, "bash: warning").unwrap();
        assert!(Near::begin(io::sink(), BufReader::new(from)).is_err());
    }

    #[test]
    fn a_silent_far_end_is_not_waited_for() {
        let (from, _to) = io::pipe().unwrap();
        let e = Near::begin(io::sink(), BufReader::new(from)).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::TimedOut);
    }

    proptest! {
        #[test]
        fn any_bytes_are_frames_or_end_in_one(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let (_server, port) = server();
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            socket.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            let mut rest = &bytes[..];
            let whole = loop {
                match rest {
                    [] | [_] => break true,
                    [high, low, after @ ..] if after.len() >= usize::from(u16::from_be_bytes([*high, *low])) => {
                        rest = &after[usize::from(u16::from_be_bytes([*high, *low]))..];
                    }
                    _ => break false,
                }
            };
            prop_assert_eq!(out_of_pipe(&bytes[..], &socket).is_ok(), whole);
        }

        #[test]
        fn any_line_is_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(!is_asked_for(&mut &bytes[..]));
        }
    }
}

//! Carries datagrams where UDP does not get through, as frames in a byte stream: the pipe of an
//! ssh, or a TCP connection. At both ends a socket on the loopback device stands for the other one.
//! To the sessions, which seal their datagrams as ever, the stream is a path like others.
//!
//! - The near end sends the line [`BEGIN`], the far end answers with the same word and an
//!   [`Answer`]. After that both send frames: u16 segment size, u16 length (big-endian), datagrams,
//!   only the last of which may be shorter than a segment.
//! - What the stream cannot take yet fills the socket's buffer, and then is lost: that is the only queue.

mod accept;
mod frame;
mod relays;

use std::{
    io::{self, BufRead, BufWriter, Read, Write},
    net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream, UdpSocket as StdSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use farhaul_udp::{Inbox, Outgoing, ReceiveOutcome, SocketOptions, UdpSocket};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd},
    io::Errno,
};

pub use self::accept::{Unanswered, accept};
use self::frame::{Frame, LONGEST};
pub(crate) use self::relays::Relays;
use crate::{Stop, clock, poller::timespec};

/// The line with which the near end begins, and the first word of the answer.
pub const BEGIN: &str = "farhaul-tunnel/1";
/// The longest line that is read, with its end.
const LINE: usize = 64;
/// The end of a stream whose bytes nobody reads here, where the system reports it.
#[cfg(target_os = "linux")]
const CLOSED: PollFlags = PollFlags::RDHUP;
#[cfg(not(target_os = "linux"))]
const CLOSED: PollFlags = PollFlags::HUP;
/// Bytes that are written at once.
const BATCH: usize = 256 << 10;
/// Wanted of the kernel for datagrams that wait for the stream.
const QUEUE: usize = 4 << 20;
/// Time that bytes under way may take to leave when a tunnel ends.
const LINGER: Duration = Duration::from_secs(1);

/// Waits; a signal ends the wait with nothing ready.
fn polled(fds: &mut [PollFd<'_>], at_most: Option<&Timespec>) -> io::Result<usize> {
    match poll(fds, at_most) {
        Err(Errno::INTR) => Ok(0),
        ready => Ok(ready?),
    }
}

/// First message of the far end of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The tunnel carries datagrams, and some of this peer arrived by UDP, too.
    Heard,
    /// The tunnel carries datagrams; none of this peer arrived by UDP.
    Unheard,
    /// The far end has as many tunnels as it may.
    Busy,
}

impl Answer {
    const ALL: [(Self, &'static str); 3] = [
        (Self::Heard, "heard"),
        (Self::Unheard, "unheard"),
        (Self::Busy, "busy"),
    ];

    /// Some datagram arrived by UDP, or none.
    pub const fn of(heard: bool) -> Self {
        if heard { Self::Heard } else { Self::Unheard }
    }

    fn parse(line: &str) -> Option<Self> {
        let word = line.strip_prefix(BEGIN)?.strip_prefix(' ')?;
        Self::ALL
            .iter()
            .find_map(|(answer, name)| (*name == word).then_some(*answer))
    }

    fn line(self) -> String {
        let name = Self::ALL.iter().find(|(answer, _)| *answer == self);
        format!("{BEGIN} {}\n", name.map_or("", |(_, name)| name))
    }
}

/// The near end of a tunnel. It ends when this is dropped.
#[derive(Debug)]
pub struct Tunnel {
    /// Connected to the relay: what a session sends here arrives at the far end.
    session: StdSocket,
    to: SocketAddr,
    answer: Answer,
    stop: Stop,
    /// Channel on which nothing ever comes; it is disconnected when all has been written.
    written: mpsc::Receiver<()>,
    tcp: Option<TcpStream>,
}

impl Tunnel {
    /// A tunnel through pipes whose other ends are the far end's, which has `within` to answer.
    pub fn through_pipes(
        to: impl Write + AsFd + Send + 'static,
        from: Buffered<impl Read + AsFd + Send + 'static>,
        within: Duration,
    ) -> io::Result<Self> {
        Self::begin(to, from, within, None)
    }

    /// Through a TCP connection to a server that accepts tunnels.
    pub fn through_tcp(to: SocketAddr, within: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&to, within)?;
        stream.set_nodelay(true)?;
        let from = Buffered(io::BufReader::with_capacity(BATCH, stream.try_clone()?));
        Self::begin(stream.try_clone()?, from, within, Some(stream))
    }

    fn begin(
        mut to: impl Write + AsFd + Send + 'static,
        mut from: Buffered<impl Read + AsFd + Send + 'static>,
        within: Duration,
        tcp: Option<TcpStream>,
    ) -> io::Result<Self> {
        to.write_all(format!("{BEGIN}\n").as_bytes())?;
        to.flush()?;
        let line = line_within(&mut from, within)?;
        let answer = Answer::parse(&line)
            .ok_or_else(|| io::Error::other("the far end does not carry datagrams"))?;
        if answer == Answer::Busy {
            return Err(io::Error::other("the far end carries as much as it may"));
        }
        let (session, relay) = pair()?;
        let address = relay.local_addr()?;
        let stop = Stop::new()?;
        let (done, written) = mpsc::channel::<()>();
        let relay = Relay::new(relay)?;
        relay.start(from, to, &stop, done)?;
        Ok(Self {
            session,
            to: address,
            answer,
            stop,
            written,
            tcp,
        })
    }

    /// Answer of the far end.
    pub const fn answer(&self) -> Answer {
        self.answer
    }

    /// The peer of [`Self::socket`].
    pub const fn to(&self) -> SocketAddr {
        self.to
    }

    /// A socket for a session, one after another.
    pub const fn socket(&self) -> &StdSocket {
        &self.session
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.stop.set();
        // The last datagrams let the far end know that a session is over; they need not arrive.
        let _late = self.written.recv_timeout(LINGER);
        if let Some(tcp) = &self.tcp {
            let _closed_already = tcp.shutdown(Shutdown::Both);
        }
    }
}

/// Far end: true if its peer asks for a tunnel.
pub fn is_asked_for(from: &mut impl BufRead) -> bool {
    line(from).is_ok_and(|line| line == BEGIN)
}

/// Carries datagrams between the stream and the listener at `to` until the stream ends.
pub fn serve(
    to: SocketAddr,
    answer: Answer,
    from: impl Read,
    out: impl Write + AsFd + Send + 'static,
) -> io::Result<()> {
    carry(relay_to(to)?, answer, from, out)
}

/// Says that there are as many tunnels as there may be.
fn refuse(mut out: impl Write) -> io::Result<()> {
    out.write_all(Answer::Busy.line().as_bytes())
}

/// Carries datagrams from a socket that is connected to the listener, or to another tunnel.
pub fn carry(
    socket: StdSocket,
    answer: Answer,
    from: impl Read,
    out: impl Write + AsFd + Send + 'static,
) -> io::Result<()> {
    carry_noting(socket, answer, from, out, &Arc::default())
}

/// Flags of what has been carried: something from the stream, and to it.
#[derive(Debug, Default)]
struct Passed {
    came: AtomicBool,
    went: AtomicBool,
}

impl Passed {
    fn is_unanswered(&self) -> bool {
        self.came.load(Relaxed) && !self.went.load(Relaxed)
    }
}

/// Carries datagrams as [`carry`] does, and notes what is carried.
fn carry_noting(
    socket: StdSocket,
    answer: Answer,
    from: impl Read,
    mut out: impl Write + AsFd + Send + 'static,
    passed: &Arc<Passed>,
) -> io::Result<()> {
    out.write_all(answer.line().as_bytes())?;
    out.flush()?;
    let mut relay = Relay::new(socket)?;
    relay.passed = Arc::clone(passed);
    let stop = Stop::new()?;
    let (done, written) = mpsc::channel();
    let back = relay.reversed()?;
    spawn("tunnel-out", {
        let stop = stop.clone();
        move || relay.send_frames(out, &stop, done)
    })?;
    let ended = back.receive_frames(from);
    stop.set();
    let _late = written.recv_timeout(LINGER);
    ended
}

/// The address at which a listener at `at` is reached from this machine.
fn on_this_machine(at: SocketAddr) -> SocketAddr {
    if !at.ip().is_unspecified() {
        return at;
    }
    // A socket of the unspecified IPv6 address takes IPv4, too, unless it is for IPv6 only.
    let v6 = Ipv6Addr::LOCALHOST;
    if at.is_ipv6() && StdSocket::bind((v6, 0)).is_ok() {
        return SocketAddr::new(v6.into(), at.port());
    }
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), at.port())
}

/// A socket that is connected to the listener at `to`.
fn relay_to(to: SocketAddr) -> io::Result<StdSocket> {
    let mut own = to;
    own.set_port(0);
    let socket = StdSocket::bind(own)?;
    socket.connect(to)?;
    Ok(socket)
}

/// Two sockets on the loopback device that hear each other only.
fn pair() -> io::Result<(StdSocket, StdSocket)> {
    let one = StdSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let other = StdSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    one.connect(other.local_addr()?)?;
    other.connect(one.local_addr()?)?;
    Ok((one, other))
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(work)?;
    Ok(())
}

/// One line without its end, of no more than [`LINE`] bytes.
fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.take(LINE as u64).read_line(&mut line)?;
    Ok(line.trim_end_matches('\n').to_owned())
}

/// Reads a line, if all of it arrives in time.
fn line_within<R: Read + AsFd>(from: &mut Buffered<R>, within: Duration) -> io::Result<String> {
    let until = clock::now() + within;
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        if from.0.buffer().is_empty() {
            let left = timespec(until.since(clock::now()));
            let mut arrives = [PollFd::new(from, PollFlags::IN)];
            if polled(&mut arrives, Some(&left))? == 0 {
                if clock::now() < until {
                    continue;
                }
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        let bytes = from.0.fill_buf()?;
        let end = bytes.iter().position(|b| *b == b'\n');
        let n = end.map_or(bytes.len(), |end| end + 1);
        if n == 0 || line.len() + n > LINE {
            return Err(io::Error::other("the far end does not carry datagrams"));
        }
        line.extend_from_slice(&bytes[..n]);
        from.0.consume(n);
    }
    line.pop();
    String::from_utf8(line).map_err(io::Error::other)
}

/// A reader with a buffer whose descriptor is the stream's.
#[derive(Debug)]
pub struct Buffered<R>(pub io::BufReader<R>);

impl<R: Read> Read for Buffered<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl<R: AsFd> AsFd for Buffered<R> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

/// A connected socket, and its peer.
struct Relay {
    socket: UdpSocket,
    to: SocketAddr,
    clone: StdSocket,
    passed: Arc<Passed>,
}

impl Relay {
    fn new(socket: StdSocket) -> io::Result<Self> {
        let to = socket.peer_addr()?;
        let clone = socket.try_clone()?;
        let mut options = SocketOptions::new(socket.local_addr()?);
        options.receive_buffer = QUEUE;
        let mut socket = UdpSocket::adopt(socket, &options)?;
        socket.connect(to)?;
        let passed = Arc::default();
        Ok(Self {
            socket,
            to,
            clone,
            passed,
        })
    }

    /// Another one of the same socket, for the other direction.
    fn reversed(&self) -> io::Result<Self> {
        let passed = Arc::clone(&self.passed);
        Ok(Self {
            passed,
            ..Self::new(self.clone.try_clone()?)?
        })
    }

    /// Carries both ways, each on a thread.
    fn start(
        self,
        from: impl Read + Send + 'static,
        to: impl Write + AsFd + Send + 'static,
        stop: &Stop,
        done: mpsc::Sender<()>,
    ) -> io::Result<()> {
        let back = self.reversed()?;
        let stop = stop.clone();
        spawn("tunnel-out", move || self.send_frames(to, &stop, done))?;
        // When it ends, the session hears no more, and says so.
        spawn("tunnel-in", move || drop(back.receive_frames(from)))
    }

    /// Datagrams of the socket into the stream, until that is closed, or `stop` is set and nothing is left. Drops `done`
    /// at the end.
    fn send_frames(mut self, stream: impl Write + AsFd, stop: &Stop, done: mpsc::Sender<()>) {
        let mut inbox = Inbox::new();
        let mut stream = BufWriter::with_capacity(BATCH, stream);
        loop {
            // What was sent before it was set is still to be received.
            let last = stop.is_set();
            let written = match self.socket.receive(&mut inbox) {
                ReceiveOutcome::Some { .. } => {
                    self.passed.went.store(true, Relaxed);
                    inbox.messages().try_for_each(|message| {
                        frame::write(&mut stream, message.segment, message.bytes)
                    })
                }
                ReceiveOutcome::Empty => {
                    let flushed = stream.flush();
                    if last {
                        break;
                    }
                    flushed.and_then(|()| self.wait(stream.get_ref(), stop))
                }
                // The session behind the socket is gone, or is not there yet.
                ReceiveOutcome::Refused => Ok(()),
                ReceiveOutcome::Failed(e) => Err(e),
            };
            // Nobody is left to be informed.
            if written.is_err() {
                break;
            }
        }
        drop((stream, done));
    }

    /// Waits until there is something to receive, the stream is closed, or `stop` is set.
    fn wait(&self, stream: &impl AsFd, stop: &Stop) -> io::Result<()> {
        let mut waits = [
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::new(stream, CLOSED),
            PollFd::new(stop, PollFlags::IN),
        ];
        polled(&mut waits, None)?;
        if waits[1].revents().is_empty() {
            Ok(())
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    /// Frames of the stream to the socket's peer, until the stream ends.
    fn receive_frames(mut self, mut stream: impl Read) -> io::Result<()> {
        let mut bytes = vec![0; LONGEST].into_boxed_slice();
        while let Some(Frame { segment, len }) = frame::read(&mut stream, &mut bytes)? {
            self.passed.came.store(true, Relaxed);
            // What cannot be sent is lost, as anywhere in a network.
            let _lost = self.socket.send(&Outgoing {
                to: self.to,
                from: None,
                ecn: farhaul_core::datagram::Ecn::NotEct,
                segment,
                bytes: &bytes[..len],
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

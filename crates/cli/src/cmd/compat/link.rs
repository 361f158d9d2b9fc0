//! Drives one transfer of a program with a control connection: TCP for control and UDP for data.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    ops::Range,
    time::Duration,
};

use farhaul_core::{
    datagram::{Ecn, TxBuf},
    time::Instant,
};
use farhaul_io::{Stop, clock};
use farhaul_udp::{Inbox, Outgoing, ReceiveOutcome, SendOutcome, SocketOptions, UdpSocket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::WARNING;
use crate::{
    exit::{Exit, Failure},
    interrupt,
};

/// Messages received in one turn.
const RECEIVES: usize = 64;

pub(super) fn net(what: &str, e: &std::io::Error) -> Failure {
    Failure::new(Exit::NetSetup, format!("{what}: {e}"))
}

pub(super) fn lost(text: impl Into<String>) -> Failure {
    Failure::new(Exit::ConnectionLost, text.into())
}

/// The two connections of a transfer.
pub(super) struct Link<'a> {
    pub(super) tcp: TcpStream,
    pub(super) udp: &'a mut UdpSocket,
    /// Address of this end, as the peer knows it; any port.
    pub(super) local: SocketAddr,
    /// Bytes not sent yet.
    pub(super) out: Vec<u8>,
    /// Time at which the transfer went on last.
    pub(super) last_received: Instant,
    /// Idle time after which a peer is disconnected.
    pub(super) idle_timeout: Duration,
    stop: &'a Stop,
}

impl<'a> Link<'a> {
    pub(super) fn new(
        tcp: TcpStream,
        udp: &'a mut UdpSocket,
        (idle_timeout, stop): (Duration, &'a Stop),
    ) -> Result<Self, Failure> {
        let ready = tcp
            .set_nonblocking(true)
            .and_then(|()| tcp.set_nodelay(true));
        ready.map_err(|e| net("the TCP connection", &e))?;
        let mut local = canonical(
            tcp.local_addr()
                .map_err(|e| net("the TCP connection", &e))?,
        );
        local.set_port(0);
        let (out, last_received) = (Vec::new(), clock::now());
        Ok(Self {
            tcp,
            udp,
            local,
            out,
            last_received,
            idle_timeout,
            stop,
        })
    }

    /// Sends the bytes that are queued for TCP.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        while !self.out.is_empty() {
            match self.tcp.write(&self.out) {
                Ok(n) => drop(self.out.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(lost(format!("the TCP connection broke: {e}"))),
            }
        }
        Ok(())
    }

    /// Reads bytes received over TCP; `None` at its end.
    pub(super) fn read(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let mut bytes = [0; 4 << 10];
        match self.tcp.read(&mut bytes) {
            Ok(0) => Ok(None),
            Ok(n) => Ok(Some(bytes[..n].to_vec())),
            // A peer that leaves with something unread resets the connection.
            Err(e) if e.kind() == ErrorKind::ConnectionReset => Ok(None),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Ok(Some(Vec::new()))
            }
            Err(e) => Err(lost(format!("the TCP connection broke: {e}"))),
        }
    }

    /// Sends the part of `batch` that is `left`, as far as the socket takes it.
    pub(super) fn send(
        &mut self,
        to: SocketAddr,
        batch: &TxBuf,
        left: &mut Range<usize>,
    ) -> Result<(), Failure> {
        if left.start == left.end {
            return Ok(());
        }
        let outgoing = Outgoing {
            to,
            from: Some(self.local.ip()).filter(|ip| ip.is_ipv4() == to.is_ipv4()),
            ecn: Ecn::NotEct,
            segment: batch.segment(),
            bytes: &batch.bytes()[left.clone()],
        };
        match self.udp.send(&outgoing) {
            SendOutcome::Blocked { sent } => left.start += sent,
            // Lost packets are requested again.
            SendOutcome::Sent | SendOutcome::Refused => {
                *left = 0..0;
                // A round has no limit; the idle timeout starts at its end.
                self.last_received = clock::now();
            }
            SendOutcome::TooLarge => {
                let text = format!(
                    "packets of {} bytes exceed the MTU of the interface",
                    batch.segment()
                );
                return Err(Failure::new(Exit::NetSetup, text).fix("make them smaller"));
            }
            SendOutcome::Failed(e) => {
                return Err(lost(format!("datagrams cannot be sent: {e}")));
            }
        }
        Ok(())
    }

    /// Error if a stop was requested, or the idle timeout has expired.
    pub(super) fn go_on(&self) -> Result<(), Failure> {
        if self.stop.is_set() {
            let signal = Exit::Signal(interrupt::signal());
            return Err(Failure::new(signal, "interrupted"));
        }
        if clock::now() >= self.last_received + self.idle_timeout {
            let secs = self.idle_timeout.as_secs();
            return Err(lost(format!("nothing received or sent for {secs} s")));
        }
        Ok(())
    }

    /// Waits for TCP, for the datagrams that are `wanted`, until `wake`, or for the stop.
    pub(super) fn wait(&self, wanted: PollFlags, wake: Option<Instant>) -> Result<(), Failure> {
        self.go_on()?;
        let now = clock::now();
        let idle_timeout = self.last_received + self.idle_timeout;
        let until = wake.map_or(idle_timeout, |wake| wake.min(idle_timeout));
        let time = until.since(now);
        let timeout = Timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        // A peer that does not read is not read from.
        let tcp = if self.out.is_empty() {
            PollFlags::IN
        } else {
            PollFlags::OUT
        };
        let mut fds = [
            PollFd::new(&self.tcp, tcp),
            PollFd::new(&*self.udp, wanted),
            PollFd::new(self.stop, PollFlags::IN),
        ];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(Failure::internal(&e)),
        }
    }

    /// Receives datagrams, up to a bound; whether there are no more.
    pub(super) fn drain(
        &mut self,
        inbox: &mut Inbox,
        mut each: impl FnMut(SocketAddr, &[u8]) -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        for _ in 0..RECEIVES {
            match self.udp.receive(inbox) {
                ReceiveOutcome::Some { .. } => {}
                ReceiveOutcome::Empty => return Ok(true),
                // An ICMP error, which may be forged.
                ReceiveOutcome::Refused | ReceiveOutcome::Failed(_) => continue,
            }
            for message in inbox.messages() {
                let from = canonical(message.from);
                let mut datagrams = message.bytes.chunks(message.segment);
                datagrams.try_for_each(|datagram| each(from, datagram))?;
            }
        }
        Ok(false)
    }
}

/// IPv4 as such, and any other with its scope.
fn canonical(at: SocketAddr) -> SocketAddr {
    match at.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), at.port()),
        IpAddr::V6(_) => at,
    }
}

pub(super) fn socket(at: SocketAddr) -> Result<UdpSocket, Failure> {
    UdpSocket::bind(&SocketOptions::new(at)).map_err(|e| net(&format!("UDP at {at}"), &e))
}

/// Accepts clients.
pub(super) struct Listener {
    tcp: TcpListener,
    /// Address at which it listens.
    pub(super) at: SocketAddr,
}

impl Listener {
    pub(super) fn bind(at: SocketAddr) -> Result<Self, Failure> {
        let tcp = TcpListener::bind(at)
            .map_err(|e| net(&format!("TCP at {at}; choose another with --listen"), &e))?;
        let at = tcp
            .local_addr()
            .and_then(|at| tcp.set_nonblocking(true).map(|()| at));
        let at = at.map_err(|e| net("the listener", &e))?;
        Ok(Self { tcp, at })
    }

    /// Gives each client to `each`, until `stop`.
    pub(super) fn run(&self, stop: &Stop, mut each: impl FnMut(TcpStream, SocketAddr)) {
        errln!("{WARNING}");
        errln!("listening on {}/tcp", self.at);
        while !stop.is_set() {
            let mut fds = [
                PollFd::new(&self.tcp, PollFlags::IN),
                PollFd::new(stop, PollFlags::IN),
            ];
            // Interrupted: it is called again.
            let _ready = poll(&mut fds, None);
            match self.tcp.accept() {
                Ok((tcp, peer)) => each(tcp, canonical(peer)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                // Such as no descriptors: the client stays in the backlog.
                Err(_) => {
                    let pause = Timespec {
                        tv_sec: 0,
                        tv_nsec: 100_000_000,
                    };
                    let _ready = poll(&mut [PollFd::new(stop, PollFlags::IN)], Some(&pause));
                }
            }
        }
    }
}

/// Connects to the program `who` at `to`; the connection, and this end's address.
pub(super) fn connect(to: SocketAddr, who: &str) -> Result<(TcpStream, SocketAddr), Failure> {
    errln!("{WARNING}");
    let tcp = TcpStream::connect_timeout(&to, Duration::from_secs(5)).map_err(|e| {
        Failure::new(
            Exit::ConnectionLost,
            format!("no answer at {to} (TCP): {e}; is {who} running there?"),
        )
    })?;
    let local = tcp
        .local_addr()
        .map_err(|e| net("the TCP connection", &e))?;
    Ok((tcp, local))
}

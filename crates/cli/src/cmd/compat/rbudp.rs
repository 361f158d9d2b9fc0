//! `farhaul compat rbudp`: the `sendfile` and `recvfile` of RBUDP 1.0. One client at a time, as there.

use std::{
    ffi::OsString,
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    ops::Range,
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
    time::Duration,
};

use farhaul_core::{
    codec::DecodeError,
    datagram::{Ecn, TxBuf},
    time::Instant,
    units::Rate,
};
use farhaul_io::{Stop, clock};
use farhaul_protocols::rbudp::{
    Config,
    files::{FileReceiver, FileSender, Got, Heard, MAX_FILE, PORT},
    wire::HEADER,
};
use farhaul_transfer::{
    samples::{Part, Shared, check_name},
    server::Share,
};
use farhaul_udp::{Inbox, Outgoing, ReceiveOutcome, SendOutcome, SocketOptions, UdpSocket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{WARNING, internal, shares};
use crate::{
    cmd::bench::resolve_at,
    exit::{Exit, Failure},
    interrupt, typed,
};

/// Whoever says nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Messages received in one turn.
const RECEIVES: usize = 64;
/// The longest name: it is sent in 256 bytes with a zero at its end.
const NAME_MAX: usize = 255;

/// The programs.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Rbudp {
    /// Serve files to `recvfile`, one client at a time, until told to stop
    Sendfile(Sendfile),
    /// Fetch one file from `sendfile`
    Recvfile(Recvfile),
}

/// `compat rbudp sendfile`.
#[derive(Debug, clap::Args)]
pub(crate) struct Sendfile {
    /// A directory whose files may be fetched, as NAME/FILE
    #[arg(long, value_name = "NAME=PATH[:ro]", required = true)]
    share: Vec<OsString>,
    /// Where to listen: TCP for requests, UDP for data to leave from
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT), value_parser = typed::address)]
    listen: SocketAddr,
    /// The rate of the data, which nothing changes: no more than the path has to itself
    #[arg(long, value_name = "RATE")]
    rate: Rate,
    #[command(flatten)]
    how: How,
}

/// `compat rbudp recvfile`.
#[derive(Debug, clap::Args)]
pub(crate) struct Recvfile {
    /// HOST or HOST:PORT of the server; its data comes to the next port here
    host: String,
    /// The name of the file there
    remote: OsString,
    /// The file to write; replaced once everything is here
    local: PathBuf,
    #[command(flatten)]
    how: How,
}

/// What both ends must be told alike.
#[derive(Debug, clap::Args)]
pub(crate) struct How {
    /// Bytes of data in a packet, the same at both ends
    #[arg(long, value_name = "BYTES", default_value_t = 1_460, value_parser = clap::value_parser!(u32).range(1..=65_000))]
    payload: u32,
}

pub(super) fn run(program: &Rbudp) -> Result<(), Failure> {
    match program {
        Rbudp::Sendfile(args) => args.run(),
        Rbudp::Recvfile(args) => args.run(),
    }
}

fn net(what: &str, e: &std::io::Error) -> Failure {
    Failure::new(Exit::NetSetup, format!("{what}: {e}"))
}

fn lost(text: impl Into<String>) -> Failure {
    Failure::new(Exit::ConnectionLost, text.into())
}

/// The two connections of a transfer.
struct Link<'a> {
    tcp: TcpStream,
    udp: &'a mut UdpSocket,
    /// This end, as the peer knows it.
    local: IpAddr,
    /// Words that have not left.
    out: Vec<u8>,
    /// When it went on last.
    heard: Instant,
    stop: &'a Stop,
}

impl<'a> Link<'a> {
    fn new(tcp: TcpStream, udp: &'a mut UdpSocket, stop: &'a Stop) -> Result<Self, Failure> {
        let ready = tcp
            .set_nonblocking(true)
            .and_then(|()| tcp.set_nodelay(true));
        ready.map_err(|e| net("the TCP connection", &e))?;
        let local = tcp
            .local_addr()
            .map_err(|e| net("the TCP connection", &e))?;
        let (out, heard) = (Vec::new(), clock::now());
        Ok(Self {
            local: local.ip().to_canonical(),
            tcp,
            udp,
            out,
            heard,
            stop,
        })
    }

    /// Sends what waits to leave over TCP.
    fn flush(&mut self) -> Result<(), Failure> {
        while !self.out.is_empty() {
            match self.tcp.write(&self.out) {
                Ok(n) => drop(self.out.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(lost(format!("the TCP connection broke: {e}"))),
            }
        }
        Ok(())
    }

    /// What has come over TCP; `None` at its end.
    fn read(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let mut bytes = [0; 4 << 10];
        match self.tcp.read(&mut bytes) {
            Ok(0) => Ok(None),
            Ok(n) => Ok(Some(bytes[..n].to_vec())),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Ok(Some(Vec::new()))
            }
            Err(e) => Err(lost(format!("the TCP connection broke: {e}"))),
        }
    }

    /// Sends what is `left` of `batch`, as far as the socket takes it.
    fn send(
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
            from: Some(self.local).filter(|ip| ip.is_ipv4() == to.is_ipv4()),
            ecn: Ecn::NotEct,
            segment: batch.segment(),
            bytes: &batch.bytes()[left.clone()],
        };
        match self.udp.send(&outgoing) {
            SendOutcome::Blocked { sent } => left.start += sent,
            // What was lost is asked for again.
            SendOutcome::Sent | SendOutcome::Refused => {
                *left = 0..0;
                // A round takes as long as it takes; silence counts from its end.
                self.heard = clock::now();
            }
            SendOutcome::TooLarge => {
                let text = format!(
                    "packets of {} bytes do not fit the way out",
                    batch.segment()
                );
                return Err(Failure::new(Exit::NetSetup, text).fix("lower --payload at both ends"));
            }
            SendOutcome::Failed(e) => {
                return Err(lost(format!("datagrams cannot be sent: {e}")));
            }
        }
        Ok(())
    }

    /// Nobody asked for the end, and the peer is not silent.
    fn go_on(&self) -> Result<(), Failure> {
        if self.stop.is_set() {
            let signal = Exit::Signal(interrupt::signal());
            return Err(Failure::new(signal, "interrupted"));
        }
        if clock::now() >= self.heard + PATIENCE {
            let secs = PATIENCE.as_secs();
            return Err(lost(format!("nothing heard or sent for {secs} s")));
        }
        Ok(())
    }

    /// Waits for TCP, for the datagrams that are `wanted`, until `wake`, or for the stop.
    fn wait(&self, wanted: PollFlags, wake: Option<Instant>) -> Result<(), Failure> {
        self.go_on()?;
        let now = clock::now();
        let patience = self.heard + PATIENCE;
        let until = wake.map_or(patience, |wake| wake.min(patience));
        let time = until.since(now);
        let timeout = Timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        let mut tcp = PollFlags::IN;
        tcp.set(PollFlags::OUT, !self.out.is_empty());
        let mut fds = [
            PollFd::new(&self.tcp, tcp),
            PollFd::new(&*self.udp, wanted),
            PollFd::new(self.stop, PollFlags::IN),
        ];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(internal(&e.into())),
        }
    }
}

fn socket(at: SocketAddr) -> Result<UdpSocket, Failure> {
    UdpSocket::bind(&SocketOptions::new(at)).map_err(|e| net(&format!("UDP at {at}"), &e))
}

impl Sendfile {
    fn run(&self) -> Result<(), Failure> {
        let shares = shares(&self.share)?;
        let stop = interrupt::stop().map_err(|e| internal(&e))?;
        let listener = TcpListener::bind(self.listen).map_err(|e| {
            net(
                &format!("TCP at {}; choose another with --listen", self.listen),
                &e,
            )
        })?;
        let at = listener
            .local_addr()
            .and_then(|at| listener.set_nonblocking(true).map(|()| at));
        let at = at.map_err(|e| net("the listener", &e))?;
        let mut udp = socket(at)?;
        say!("{WARNING}");
        say!("listening on {at}/tcp");
        while !stop.is_set() {
            let mut fds = [
                PollFd::new(&listener, PollFlags::IN),
                PollFd::new(&stop, PollFlags::IN),
            ];
            // Interrupted, it is asked again.
            let _ready = poll(&mut fds, None);
            let Ok((tcp, mut peer)) = listener.accept() else {
                continue;
            };
            peer = SocketAddr::new(peer.ip().to_canonical(), at.port().wrapping_add(1));
            let link = Link::new(tcp, &mut udp, &stop);
            match link.and_then(|link| self.serve(link, peer, &shares)) {
                Ok(()) => say!("{}: done", peer.ip()),
                Err(_) if stop.is_set() => {}
                Err(failure) => say!("{}: {}", peer.ip(), failure.text),
            }
        }
        Ok(())
    }

    /// Serves one client; its datagrams go to `to`.
    fn serve(&self, mut link: Link<'_>, to: SocketAddr, shares: &[Share]) -> Result<(), Failure> {
        let config = Config {
            rate: self.rate,
            // Gaps of whole microseconds would round it up.
            max_rate: Some(self.rate),
            ..Config::default()
        };
        let mut end = FileSender::new(config, self.how.payload);
        let (mut file, mut batch, mut parked) = (None, TxBuf::default(), 0..0);
        let protocol = |e| {
            Failure::new(
                Exit::Protocol,
                format!("the client broke the protocol: {e}"),
            )
        };
        loop {
            let Some(words) = link.read()? else {
                return if end.is_sending() {
                    Err(lost("the client left early"))
                } else {
                    Ok(())
                };
            };
            // Only what is whole is a sign of life.
            match end.on_control(&words).map_err(protocol)? {
                Heard::Nothing => {}
                Heard::Report => link.heard = clock::now(),
                Heard::Request(name) if name.is_empty() => return Ok(()),
                Heard::Request(name) => {
                    link.heard = clock::now();
                    file = Some(self.offer(&mut end, &name, shares, to)?);
                }
            }
            if parked.is_empty()
                && end.permit(clock::now())
                && let Some(file) = &file
            {
                compose(&mut end, file, self.how.payload, &mut batch)?;
                parked = 0..batch.bytes().len();
            }
            link.send(to, &batch, &mut parked)?;
            if parked.is_empty() {
                end.poll_control(clock::now(), &mut link.out);
            }
            link.flush()?;
            let wanted = if parked.is_empty() {
                PollFlags::empty()
            } else {
                PollFlags::OUT
            };
            let wake = end.wake().filter(|_| parked.is_empty());
            link.go_on()?;
            if wake.is_none_or(|wake| wake > clock::now()) {
                link.wait(wanted, wake)?;
            }
        }
    }

    fn offer(
        &self,
        end: &mut FileSender,
        name: &[u8],
        shares: &[Share],
        to: SocketAddr,
    ) -> Result<Shared, Failure> {
        let shown = farhaul_core::text::shown(name);
        let refused =
            |e: String| Failure::new(Exit::SourceMissing, format!("refused {shown}: {e}"));
        let file = Shared::open(shares, name).map_err(|e| refused(e.to_string()))?;
        if !end.offer(file.size()) {
            return Err(refused(format!(
                "{} bytes are more than RBUDP can count ({MAX_FILE})",
                file.size()
            )));
        }
        say!(
            "{}: {shown}, {} bytes at {}",
            to.ip(),
            file.size(),
            self.rate
        );
        Ok(file)
    }
}

/// Fills `batch` with packets that may leave now.
fn compose(
    end: &mut FileSender,
    file: &Shared,
    payload: u32,
    batch: &mut TxBuf,
) -> Result<(), Failure> {
    let size = HEADER + payload as usize;
    let now = clock::now();
    for _ in 0..batch.begin(size) {
        if !end.permit(now) {
            break;
        }
        let Some((number, offset, len)) = end.next_packet() else {
            break;
        };
        let len = len as usize;
        let segment = &mut batch.next_segment()[..HEADER + len];
        segment[..HEADER].copy_from_slice(&number.to_le_bytes());
        let read = file.read(&mut segment[HEADER..], offset);
        read.map_err(|e| Failure::new(Exit::SourceMissing, e.0))?;
        batch.commit(HEADER + len, HEADER + len);
        if len < payload as usize {
            break;
        }
    }
    Ok(())
}

impl Recvfile {
    fn run(&self) -> Result<(), Failure> {
        let name = self.remote.as_bytes();
        check_name(name, NAME_MAX).map_err(|e| Failure::from(&e))?;
        let to = resolve_at(&self.host, PORT)?;
        let stop = interrupt::stop().map_err(|e| internal(&e))?;
        say!("{WARNING}");
        let part = Part::create(&self.local).map_err(|e| Failure::from(&e))?;
        let tcp = TcpStream::connect_timeout(&to, Duration::from_secs(5)).map_err(|e| {
            Failure::new(
                Exit::ConnectionLost,
                format!("nobody answers at {to} (TCP): {e}; is sendfile running there?"),
            )
        })?;
        let mut local = tcp
            .local_addr()
            .map_err(|e| net("the TCP connection", &e))?;
        local.set_port(to.port().wrapping_add(1));
        let mut udp = socket(local)?;
        udp.connect(to).map_err(|e| net("UDP", &e))?;
        let bytes = self.fetch(Link::new(tcp, &mut udp, &stop)?, &part)?;
        part.keep().map_err(|e| Failure::from(&e))?;
        say!("{}: {bytes} bytes, not verified", self.local.display());
        Ok(())
    }

    /// Fetches the file; its length.
    fn fetch(&self, mut link: Link<'_>, part: &Part) -> Result<u64, Failure> {
        let mut fetch = Fetch {
            end: FileReceiver::new(self.remote.as_bytes(), self.how.payload),
            part,
            inbox: Inbox::new(),
            taken: false,
            misfit: None,
        };
        let broke = |e| {
            let text = format!("the server broke the protocol: {e}");
            Failure::new(Exit::Protocol, text)
        };
        // What is there before anything was asked for belongs to somebody else's file.
        for _ in 0..RECEIVES {
            if !matches!(
                link.udp.receive(&mut fetch.inbox),
                ReceiveOutcome::Some { .. }
            ) {
                break;
            }
        }
        loop {
            fetch.end.poll_control(&mut link.out);
            link.flush()?;
            if fetch.end.is_over() && link.out.is_empty() {
                return Ok(fetch.end.size().unwrap_or(0));
            }
            link.wait(PollFlags::IN, None)?;
            // Packets that came before DONE are looked at before it.
            let words = link.read()?;
            while !fetch.drain(&mut link)? {
                link.go_on()?;
            }
            match words {
                None => {
                    let left = || fetch.end_without_all();
                    return Err(self.mismatch(&fetch).unwrap_or_else(left));
                }
                Some(words) if words.is_empty() => {}
                // Whoever asks again before it was answered makes answers wait without a bound.
                Some(_) if !link.out.is_empty() => {
                    return Err(broke(DecodeError::Malformed(
                        "words before the answer to the last",
                    )));
                }
                Some(words) => {
                    link.heard = clock::now();
                    let said = fetch.end.on_control(clock::now(), &words);
                    said.map_err(|e| self.mismatch(&fetch).unwrap_or_else(|| broke(e)))?;
                }
            }
        }
    }

    /// Nothing fits the file, which has a likely reason.
    fn mismatch(&self, fetch: &Fetch<'_>) -> Option<Failure> {
        let theirs = fetch.misfit.filter(|_| !fetch.taken)?;
        let text = format!(
            "packets of {theirs} bytes do not belong into this file at {} a packet",
            self.how.payload
        );
        let fix = "give both ends the same --payload";
        Some(Failure::new(Exit::Protocol, text).fix(fix))
    }
}

/// A file that is being fetched.
struct Fetch<'a> {
    end: FileReceiver,
    part: &'a Part,
    inbox: Inbox,
    /// Some packet of it came.
    taken: bool,
    /// The length of one that does not fit.
    misfit: Option<usize>,
}

impl Fetch<'_> {
    fn end_without_all(&self) -> Failure {
        match self.end.size() {
            None => Failure::new(
                Exit::SourceMissing,
                "the server ended the connection without a file: it may have none of that name",
            ),
            Some(size) => lost(format!("the server left before all {size} bytes were here")),
        }
    }

    /// Takes datagrams, up to a bound; whether there are no more.
    fn drain(&mut self, link: &mut Link<'_>) -> Result<bool, Failure> {
        for _ in 0..RECEIVES {
            match link.udp.receive(&mut self.inbox) {
                ReceiveOutcome::Some { .. } => {}
                ReceiveOutcome::Empty => return Ok(true),
                // Something on the way complains, or somebody in its name.
                ReceiveOutcome::Refused | ReceiveOutcome::Failed(_) => continue,
            }
            for message in self.inbox.messages() {
                for datagram in message.bytes.chunks(message.segment) {
                    let data = datagram.get(HEADER..).unwrap_or_default();
                    match self.end.on_datagram(datagram) {
                        Ok(Got::New(offset)) => {
                            self.taken = true;
                            link.heard = clock::now();
                            self.part
                                .write(data, offset)
                                .map_err(|e| Failure::from(&e))?;
                        }
                        Ok(Got::Again(offset)) => {
                            if !self
                                .part
                                .holds(data, offset)
                                .map_err(|e| Failure::from(&e))?
                            {
                                return Err(Failure::new(Exit::Protocol, DIFFER));
                            }
                        }
                        Ok(Got::Stale) => {}
                        Err(_) => self.misfit = Some(data.len()),
                    }
                }
            }
        }
        Ok(false)
    }
}

const DIFFER: &str = "two packets of one number differ: a late one of another transfer, or a forged one, was \
                      taken for one of this file; nothing was kept, fetch it again";

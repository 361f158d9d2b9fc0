//! `farhaul compat ttp`: the client and the server of the Tsunami UDP protocol 1.1.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    ops::Range,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, SystemTime},
};

use farhaul_core::{codec::Writer, datagram::TxBuf, text::shown, units::Rate};
use farhaul_io::{Stop, clock, system_rng};
use farhaul_protocols::ttp::{
    files::{Asked, FileClient, FileServer, MAX_LIST, News},
    wire::{CHALLENGE, HEADER, MAX_LINE, PORT, Parameters, Request, SECRET},
};
use farhaul_transfer::{
    read_whole,
    samples::{Part, Shared, check_name},
    server::Share,
};
use farhaul_udp::Inbox;
use rustix::event::PollFlags;

use super::{
    internal,
    link::{Link, Listener, connect, lost, net, socket},
    shares,
};
use crate::{
    cmd::bench::resolve_at,
    exit::{Exit, Failure},
    interrupt, typed,
};

/// Idle time after which a file is abandoned, by the server and by the client.
const IDLE_TIMEOUTS: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(30)];
/// Time for a client to authenticate, and then for its next request.
const GREETING: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_mins(10);
/// Clients at a time, and of them those of one address.
const CLIENTS: [usize; 2] = [16, 4];
/// Files of a list.
const FILES: usize = 10_000;
/// Number of missing names after which a client is disconnected.
const REFUSALS: u32 = 100;
/// Feedback to a server that does not read it.
const UNREAD: usize = 64 << 10;
/// The longest name of a file here, with what is added while it is collected.
const LAST: usize = 240;
/// The slowest a server is of use.
const LEAST: Rate = Rate::from_bps(300_000);

/// The programs.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Ttp {
    /// Serve files, until stopped
    Serve(Serve),
    /// Fetch one file, or all that are listed
    Get(Get),
    /// List the files of a server
    List(List),
}

/// `compat ttp serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// A directory whose files may be fetched, as NAME/FILE
    #[arg(long, value_name = "NAME=PATH[:ro]", required = true)]
    share: Vec<OsString>,
    /// Address to listen on (TCP); data is sent from a separate port for each client
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT), value_parser = typed::address)]
    listen: SocketAddr,
    /// Never send faster to a client, whatever it requests
    #[arg(long, value_name = "RATE")]
    max_rate: Option<Rate>,
    #[command(flatten)]
    secret: Secret,
}

/// `compat ttp get`.
#[derive(Debug, clap::Args)]
pub(crate) struct Get {
    /// HOST or HOST:PORT of the server
    host: String,
    /// Name of the file on the server; '*' for all that it lists
    remote: OsString,
    /// The file to write, replaced once everything is here; or the folder for all, which has none of them
    local: PathBuf,
    /// Bits of blocks per second to request, at most 4.29Gbit
    #[arg(long, value_name = "RATE", default_value = "650Mbit")]
    rate: Rate,
    /// Bytes of a block; one larger than a packet is lost with any of its fragments
    #[arg(long, value_name = "BYTES", default_value_t = 1_466, value_parser = clap::value_parser!(u32).range(64..=65_501))]
    block: u32,
    /// UDP port to receive data on [default: a free one for each file]
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    port: u16,
    #[command(flatten)]
    secret: Secret,
}

/// `compat ttp list`.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// HOST or HOST:PORT of the server
    host: String,
    #[command(flatten)]
    secret: Secret,
}

/// What both ends know.
#[derive(Debug, clap::Args)]
pub(crate) struct Secret {
    /// A file whose first line is the secret [default: the public one]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

impl Secret {
    fn read(&self) -> Result<Vec<u8>, Failure> {
        let Some(path) = &self.secret_file else {
            return Ok(SECRET.to_vec());
        };
        let config = |text: String| Failure::new(Exit::Config, text);
        let text = read_whole(path, 4_096)
            .map_err(|e| config(format!("the secret: {}: {e}", path.display())))?;
        let line = text.split(|b| *b == b'\n').next().unwrap_or_default();
        if line.is_empty() {
            return Err(config(format!(
                "{}: its first line is empty",
                path.display()
            )));
        }
        Ok(line.to_vec())
    }
}

pub(super) fn run(program: &Ttp) -> Result<(), Failure> {
    match program {
        Ttp::Serve(args) => args.run(),
        Ttp::Get(args) => args.run(),
        Ttp::List(args) => args.run(),
    }
}

impl Serve {
    fn run(&self) -> Result<(), Failure> {
        if self.max_rate.is_some_and(|rate| rate < LEAST) {
            return Err(Failure::usage(format!("--max-rate: at least {LEAST}")));
        }
        let shares = shares(&self.share)?;
        let secret = self.secret.read()?;
        let stop = interrupt::stop().map_err(|e| internal(&e))?;
        let listener = Listener::bind(self.listen)?;
        let clients = Clients::default();
        thread::scope(|scope| {
            listener.run(&stop, |tcp, peer| {
                let Some(served) = clients.enter(peer.ip()) else {
                    errln!("{}: sent away: too many clients", peer.ip());
                    return;
                };
                let (shares, secret, stop) = (&shares, &secret, &stop);
                scope.spawn(move || {
                    let _served = served;
                    match self.serve(tcp, peer.ip(), (shares, secret), stop) {
                        Ok(()) => errln!("{}: done", peer.ip()),
                        Err(_) if stop.is_set() => {}
                        Err(failure) => errln!("{}: {}", peer.ip(), failure.text),
                    }
                });
            });
        });
        Ok(())
    }

    /// Serves one client.
    fn serve(
        &self,
        tcp: TcpStream,
        peer: IpAddr,
        (shares, secret): (&[Share], &[u8]),
        stop: &Stop,
    ) -> Result<(), Failure> {
        let at = tcp
            .local_addr()
            .map_err(|e| net("the TCP connection", &e))?;
        let mut udp = socket(SocketAddr::new(at.ip(), 0))?;
        let mut challenge = [0; CHALLENGE];
        system_rng().fill(&mut challenge);
        let limits = (self.max_rate.unwrap_or(Rate::UNLIMITED), IDLE_TIMEOUTS[0]);
        let mut client = Client {
            link: Link::new(tcp, &mut udp, (GREETING, stop))?,
            end: FileServer::new(secret, challenge, limits, epoch()),
            shares,
            file: None,
            to: SocketAddr::new(peer, 0),
            words: Vec::new(),
            parked: 0..0,
            refusals: 0,
        };
        client.run()
    }
}

/// The clients.
#[derive(Default)]
struct Clients(Mutex<Vec<IpAddr>>);

impl Clients {
    /// A client connects, if there is a free slot.
    fn enter(&self, peer: IpAddr) -> Option<Served<'_>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alike = all.iter().filter(|ip| **ip == peer).count();
        if all.len() >= CLIENTS[0] || alike >= CLIENTS[1] {
            return None;
        }
        all.push(peer);
        Some(Served(self, peer))
    }
}

/// One of them, until it is dropped.
struct Served<'a>(&'a Clients, IpAddr);

impl Drop for Served<'_> {
    fn drop(&mut self) {
        let mut all = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = all.iter().position(|ip| *ip == self.1) {
            all.swap_remove(at);
        }
    }
}

/// Seconds since 1970, as far as 32 bits go.
fn epoch() -> u32 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

/// A client that is served.
struct Client<'a> {
    link: Link<'a>,
    end: FileServer,
    shares: &'a [Share],
    file: Option<Shared>,
    /// Where its blocks go.
    to: SocketAddr,
    /// Received and not parsed yet.
    words: Vec<u8>,
    /// What of the last batch has not left.
    parked: Range<usize>,
    /// Requested names that do not exist.
    refusals: u32,
}

impl Client<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        let (mut batch, since) = (TxBuf::default(), clock::now());
        loop {
            // One question at a time, and the next when its answer has left.
            let more = self.link.out.is_empty() && self.receive()?;
            self.end.poll_control(&mut self.link.out);
            self.link.flush()?;
            let now = clock::now();
            if !self.end.is_open() && now >= since + GREETING {
                return Err(lost("it did not authenticate"));
            }
            if self.parked.is_empty() && self.end.permit(now) {
                self.compose(&mut batch)?;
                self.parked = 0..batch.bytes().len();
            }
            self.link.send(self.to, &batch, &mut self.parked)?;
            if self.end.is_sending() && self.end.is_abandoned(now) {
                return Err(lost(format!(
                    "no feedback for {} s: does its data arrive?",
                    IDLE_TIMEOUTS[0].as_secs()
                )));
            }
            let wanted = if self.parked.is_empty() {
                PollFlags::empty()
            } else {
                PollFlags::OUT
            };
            let wake = self.end.wake().filter(|_| self.parked.is_empty());
            self.link.go_on()?;
            match self.link.read()? {
                None if self.end.is_sending() => return Err(lost("the client disconnected early")),
                None => return Ok(()),
                Some(words) if !words.is_empty() => {
                    self.link.last_received = clock::now();
                    self.words.extend(words);
                }
                Some(_) if !more && wake.is_none_or(|wake| wake > clock::now()) => {
                    self.link.wait(wanted, wake)?;
                }
                Some(_) => {}
            }
        }
    }

    /// Receives its messages and answers one request; whether there was one.
    fn receive(&mut self) -> Result<bool, Failure> {
        let broke = |e: &dyn std::fmt::Display| {
            let text = format!("the client broke the protocol: {e}");
            Failure::new(Exit::Protocol, text)
        };
        let words = std::mem::take(&mut self.words);
        let asked = self.end.on_control(clock::now(), &words);
        let Some(question) = asked.map_err(|e| broke(&e))? else {
            return Ok(false);
        };
        self.link.idle_timeout = IDLE;
        match question {
            Asked::File(name) => self.offer(&name)?,
            Asked::Names => {
                let files = listed(self.shares)?;
                self.end.names(files.iter().map(|(name, _)| &name[..]));
            }
            Asked::Directory => {
                let files = listed(self.shares)?;
                let files: Vec<_> = files.iter().map(|(n, size)| (&n[..], *size)).collect();
                self.end.directory(&files);
            }
            Asked::Port(port) => self.to.set_port(port),
            Asked::Stopped => {
                errln!("{}: sent", self.to.ip());
                self.file = None;
                self.parked = 0..0;
            }
            Asked::Denied => {
                self.end.poll_control(&mut self.link.out);
                self.link.flush()?;
                return Err(Failure::new(Exit::Auth, "it does not know the secret"));
            }
        }
        Ok(true)
    }

    fn offer(&mut self, name: &[u8]) -> Result<(), Failure> {
        let text: String = shown(name).chars().take(200).collect();
        match Shared::open(self.shares, name) {
            Ok(file) => {
                errln!("{}: {text}, {} bytes", self.to.ip(), file.size());
                // A port of its own for each file, so that late blocks of one are none of the next.
                *self.link.udp = socket(self.link.local)?;
                self.end.offer(file.size());
                self.file = Some(file);
            }
            Err(e) => {
                errln!("{}: refused {text}: {e}", self.to.ip());
                self.refusals += 1;
                if self.refusals > REFUSALS {
                    return Err(lost("it repeatedly requests files that do not exist"));
                }
                self.end.refuse();
            }
        }
        Ok(())
    }

    /// Fills `batch` with blocks that are due.
    fn compose(&mut self, batch: &mut TxBuf) -> Result<(), Failure> {
        let (header, now) = (HEADER as usize, clock::now());
        let size = header + self.end.block() as usize;
        for _ in 0..batch.begin(size) {
            let Some((block, offset, len)) = self.end.next_block(now) else {
                break;
            };
            let segment = &mut batch.next_segment()[..size];
            let encoded = block.encode(&mut Writer::new(segment));
            encoded.expect("a block holds its header");
            let (data, rest) = segment[header..].split_at_mut(len as usize);
            rest.fill(0);
            if let Some(file) = &self.file {
                let read = file.read(data, offset);
                read.map_err(|e| Failure::new(Exit::SourceMissing, e.0))?;
            }
            batch.commit(size, size);
        }
        Ok(())
    }
}

/// The files that may be fetched and are directly in a share, if a request can carry their names. A list
/// that is not whole would be taken for one.
fn listed(shares: &[Share]) -> Result<Vec<(Vec<u8>, u64)>, Failure> {
    let failed = |text: String| Failure::new(Exit::SourceMissing, text);
    let files = Shared::list(shares, FILES);
    let mut files = files.map_err(|e| failed(format!("the shares cannot be listed: {e}")))?;
    files.retain(|(name, _)| name.len() < MAX_LINE && !name.contains(&b'\n'));
    let bytes: usize = files.iter().map(|(name, _)| name.len() + 22).sum();
    if bytes + 22 > MAX_LIST {
        return Err(failed(
            "the list of names is too long for this protocol".into(),
        ));
    }
    Ok(files)
}

/// The server of a client.
struct Server<'a> {
    link: Link<'a>,
    end: FileClient,
    inbox: Inbox,
    /// Its address, and the source of a file's blocks once that is known.
    at: IpAddr,
    from: Option<SocketAddr>,
    /// The port for blocks; 0: another for each file.
    port: u16,
    /// There were no more datagrams at the last poll.
    drained: bool,
    /// Datagrams that were no block of the file.
    misfits: u64,
}

impl Server<'_> {
    /// Waits for news; blocks are written to `part`.
    fn news(&mut self, part: Option<&Part>) -> Result<News, Failure> {
        let broke = |e| {
            Failure::new(
                Exit::Protocol,
                format!("the server broke the protocol: {e}"),
            )
        };
        let (mut words, mut ended) = (Vec::new(), false);
        loop {
            let now = clock::now();
            let mut news = self.end.on_control(now, &words).map_err(broke)?;
            // What a server does not read is made again.
            if self.link.out.len() < UNREAD {
                self.end.poll_control(now, &mut self.link.out);
            }
            if news.is_none() {
                // A message to the server may end the file.
                news = self.end.on_control(now, &[]).map_err(broke)?;
            }
            if let Some(news) = news {
                let sent = self.send_answers();
                // All of a file was received, whether or not the server is notified.
                return if news == News::Done {
                    Ok(news)
                } else {
                    sent.map(|()| news)
                };
            }
            if ended {
                return Err(lost("the server ended the connection"));
            }
            self.link.flush()?;
            if self.drained {
                self.link.wait(PollFlags::IN, self.end.deadline())?;
            }
            self.link.go_on()?;
            // Feedback is due for datagrams that arrived before the server's messages.
            self.drained = self.take(part)?;
            let now = clock::now();
            if self.end.deadline().is_some_and(|at| at <= now)
                && let Some(reason) = self.end.on_timer(now)
            {
                return Err(lost(reason.to_string()));
            }
            words = self.link.read()?.unwrap_or_else(|| {
                ended = true;
                Vec::new()
            });
            if !words.is_empty() {
                self.link.last_received = now;
            }
        }
    }

    /// Waits until everything was sent to the server.
    fn send_answers(&mut self) -> Result<(), Failure> {
        self.link.flush()?;
        while !self.link.out.is_empty() {
            self.link.wait(PollFlags::empty(), None)?;
            self.link.flush()?;
        }
        Ok(())
    }

    /// Receives datagrams, up to a bound; whether there are no more.
    fn take(&mut self, part: Option<&Part>) -> Result<bool, Failure> {
        let (end, misfits, now) = (&mut self.end, &mut self.misfits, clock::now());
        let (at, source) = (self.at, &mut self.from);
        let (mut place, mut heard) = (Vec::new(), false);
        let drained = self.link.drain(&mut self.inbox, |from, datagram| {
            place.clear();
            let stranger = from.ip() != at || source.is_some_and(|known| known != from);
            if stranger || end.on_datagram(now, datagram, &mut place).is_err() {
                *misfits += 1;
                return Ok(());
            }
            heard = true;
            if !place.is_empty() {
                *source = Some(from);
            }
            for extent in &place {
                let data = &datagram[extent.range()];
                if let Some(part) = part {
                    part.write(data, extent.offset)
                        .map_err(|e| Failure::from(&e))?;
                }
            }
            Ok(())
        });
        if heard {
            self.link.last_received = now;
        }
        drained
    }

    /// Waits until a request can be sent.
    fn ready(&mut self) -> Result<(), Failure> {
        match self.news(None)? {
            News::Ready => Ok(()),
            _ => Err(
                Failure::new(Exit::Auth, "the server does not accept this client").fix(
                    "name the file with its secret by --secret-file; without one both use the public default",
                ),
            ),
        }
    }

    /// Where the next file's blocks are taken: blocks of the file before may still be on their way.
    fn new_port(&mut self) -> Result<(), Failure> {
        if self.port == 0 {
            *self.link.udp = socket(self.link.local)?;
        }
        while !self.link.drain(&mut self.inbox, |_, _| Ok(()))? {
            self.link.go_on()?;
        }
        let at = self.link.udp.local_addr().map_err(|e| net("UDP", &e))?;
        self.end.set_port(at.port());
        self.from = None;
        Ok(())
    }

    /// Fetches `name`, which was asked for, into `local`; its length.
    fn fetch(&mut self, name: &[u8], local: &Path) -> Result<u64, Failure> {
        let part = Part::create(local).map_err(|e| Failure::from(&e))?;
        self.new_port()?;
        let News::File(size) = self.news(None)? else {
            let text = format!("the server has no {}", shown(name));
            return Err(Failure::new(Exit::SourceMissing, text));
        };
        let before = self.misfits;
        self.news(Some(&part)).map_err(|failure| {
            let strangers = self.misfits - before;
            if strangers == 0 {
                return failure;
            }
            let text = format!(
                "{} ({strangers} datagrams were no blocks of it)",
                failure.text
            );
            Failure::new(failure.exit, text)
        })?;
        part.keep().map_err(|e| Failure::from(&e))?;
        errln!("{}: {size} bytes, not verified", local.display());
        Ok(size)
    }
}

/// Connects to the server at `host` and sends the first request, then runs `ask`.
fn with_server<R>(
    host: &str,
    secret: &Secret,
    (wanted, port): (Parameters, u16),
    first: Request<'_>,
    ask: impl FnOnce(&mut Server<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let to = resolve_at(host, PORT)?;
    let secret = secret.read()?;
    let stop = interrupt::stop().map_err(|e| internal(&e))?;
    let (tcp, mut local) = connect(to, "a server")?;
    local.set_port(port);
    let mut udp = socket(local)?;
    let mut server = Server {
        link: Link::new(tcp, &mut udp, (IDLE_TIMEOUTS[1], &stop))?,
        end: FileClient::new(&secret, wanted, IDLE_TIMEOUTS[1]),
        inbox: Inbox::new(),
        at: to.ip().to_canonical(),
        from: None,
        port,
        drained: true,
        misfits: 0,
    };
    server.end.ask(first);
    server.ready()?;
    ask(&mut server)
}

impl Get {
    fn run(&self) -> Result<(), Failure> {
        let name = self.remote.as_bytes();
        check_name(name, MAX_LINE - 1).map_err(|e| Failure::from(&e))?;
        let mut line = Vec::new();
        Request::File(name).encode(&mut line);
        let is_name =
            matches!(Request::decode(&line), Ok(Some((Request::File(same), _))) if same == name);
        if !is_name && name != b"*" {
            return Err(Failure::usage(
                "this is not a valid file name in this protocol",
            ));
        }
        let rate = u32::try_from(self.rate.bps()).unwrap_or(u32::MAX);
        if self.rate.bps() < 200 * u64::from(self.block) {
            return Err(Failure::usage(format!(
                "--rate {}: at least {} for blocks of {} bytes",
                self.rate,
                Rate::from_bps(200 * u64::from(self.block)),
                self.block
            )));
        }
        let wanted = Parameters {
            block_size: self.block,
            rate,
            ..Parameters::default()
        };
        let all = name == b"*";
        let first = if all {
            Request::Names
        } else {
            Request::File(name)
        };
        let wanted = (wanted, self.port);
        with_server(&self.host, &self.secret, wanted, first, |server| {
            if !all {
                return server.fetch(name, &self.local).map(drop);
            }
            let News::Names(names) = server.news(None)? else {
                return Err(Failure::new(Exit::Protocol, "the server gave no list"));
            };
            for (name, local) in self.files(&names)? {
                server.end.ask(Request::File(name));
                server.fetch(name, &local)?;
            }
            Ok(())
        })
    }

    /// Destination of each of the server's files: in the folder, by the last part of its name.
    fn files<'a>(&self, names: &'a [Vec<u8>]) -> Result<Vec<(&'a [u8], PathBuf)>, Failure> {
        if !fs::metadata(&self.local).is_ok_and(|there| there.is_dir()) {
            let text = format!("{} is no folder", self.local.display());
            return Err(Failure::new(Exit::DestError, text).fix("make one for all the files"));
        }
        let refused = |name: &[u8], why: &str| {
            let text = format!("the server lists {}, {why}", shown(name));
            Err(Failure::new(Exit::DestError, text).fix("fetch what you want one by one"))
        };
        if names.len() > FILES {
            return refused(&names[FILES], "one file too many");
        }
        let (mut files, mut known) = (Vec::new(), HashSet::new());
        for name in names {
            let last = name.rsplit(|b| *b == b'/').next().unwrap_or_default();
            if last.is_empty() || last.starts_with(b".") || last.len() > LAST {
                return refused(name, "which is no name here");
            }
            if name.contains(&b'\n') || !known.insert(last) {
                return refused(name, "which cannot be requested, or a duplicate");
            }
            let local = self.local.join(OsStr::from_bytes(last));
            if fs::symlink_metadata(&local).is_ok() {
                return refused(name, "which is in the folder already");
            }
            files.push((&name[..], local));
        }
        Ok(files)
    }
}

impl List {
    fn run(&self) -> Result<(), Failure> {
        let wanted = (Parameters::default(), 0);
        let first = Request::Directory;
        with_server(&self.host, &self.secret, wanted, first, |server| {
            let News::Directory(files) = server.news(None)? else {
                return Err(Failure::new(Exit::Protocol, "the server gave no list"));
            };
            for (name, size) in files {
                crate::out::line(format!("{size:>15} {}", shown(&name)));
            }
            Ok(())
        })
    }
}

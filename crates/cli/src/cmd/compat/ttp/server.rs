//! The end that has the files.

use std::{
    ffi::OsString,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    ops::Range,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, SystemTime},
};

use farhaul_core::{codec::Writer, datagram::TxBuf, text::shown, units::Rate};
use farhaul_io::{Stop, clock, system_rng};
use farhaul_protocols::ttp::{
    files::{Asked, FileServer, MAX_LIST},
    wire::{CHALLENGE, HEADER, MAX_LINE, PORT},
};
use farhaul_transfer::server::Share;
use rustix::event::PollFlags;

use super::{
    super::{
        link::{Link, Listener, lost, net, socket},
        samples::Shared,
        shares,
    },
    FILES, Secret,
};
use crate::{
    exit::{Exit, Failure},
    interrupt, typed,
};

/// Idle time after which a file is abandoned.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Time for a client to authenticate, and then for its next request.
const GREETING: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_mins(10);
/// Clients at a time, and of them those of one address.
const CLIENTS: [usize; 2] = [16, 4];
/// Number of missing names after which a client is disconnected.
const REFUSALS: u32 = 100;
/// The slowest a server is of use.
const LEAST: Rate = Rate::from_bps(300_000);

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

impl Serve {
    pub(super) fn run(&self) -> Result<(), Failure> {
        if self.max_rate.is_some_and(|rate| rate < LEAST) {
            return Err(Failure::usage(format!("--max-rate: at least {LEAST}")));
        }
        let shares = shares(&self.share)?;
        let secret = self.secret.read()?;
        let stop = interrupt::stop()?;
        let listener = Listener::bind(self.listen)?;
        let clients = Clients::default();
        thread::scope(|scope| {
            listener.run(&stop, |tcp, peer| {
                let Some(served) = clients.enter(peer.ip()) else {
                    errln!("{}: sent away: too many clients", peer.ip());
                    return;
                };
                let (shares, secret, stop) = (&shares, &secret, &stop);
                let work = move || {
                    let _served = served;
                    match self.serve(tcp, peer.ip(), (shares, secret), stop) {
                        Ok(()) => errln!("{}: done", peer.ip()),
                        Err(_) if stop.is_set() => {}
                        Err(failure) => errln!("{}: {}", peer.ip(), failure.text),
                    }
                };
                if let Err(e) = thread::Builder::new().spawn_scoped(scope, work) {
                    errln!("{}: sent away: cannot start a thread: {e}", peer.ip());
                }
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
        let limits = (self.max_rate.unwrap_or(Rate::UNLIMITED), IDLE_TIMEOUT);
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
    /// Address to which its blocks go.
    to: SocketAddr,
    /// Received and not parsed yet.
    words: Vec<u8>,
    /// Part of the last batch that has not left.
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
                    IDLE_TIMEOUT.as_secs()
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

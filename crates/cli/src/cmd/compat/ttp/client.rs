//! The end that wants the files.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    fs,
    net::{IpAddr, SocketAddr},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use farhaul_core::{text::shown, units::Rate};
use farhaul_io::clock;
use farhaul_protocols::ttp::{
    files::{FileClient, News},
    wire::{MAX_LINE, PORT, Parameters, Request},
};
use farhaul_udp::Inbox;
use rustix::event::PollFlags;

use super::{
    super::{
        link::{Link, connect, lost, net, socket},
        samples::{Part, check_name},
    },
    FILES, Secret,
};
use crate::{
    cmd::bench::resolve_at,
    exit::{Exit, Failure},
    interrupt,
};

/// Idle time after which a file is abandoned.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Feedback to a server that does not read it.
const UNREAD: usize = 64 << 10;
/// The longest name of a file here, with the suffix that it has while it is collected.
const LAST: usize = 240;

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

/// The server of a client.
struct Server<'a> {
    link: Link<'a>,
    end: FileClient,
    inbox: Inbox,
    /// Address of the server, and the source of a file's blocks once that is known.
    at: IpAddr,
    from: Option<SocketAddr>,
    /// The port for blocks; 0: another for each file.
    port: u16,
    /// True if there were no more datagrams at the last poll.
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

    /// Opens the port where the next file's blocks are taken: blocks of the file before may still
    /// be on their way.
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
    let stop = interrupt::stop()?;
    let (tcp, mut local) = connect(to, "a server")?;
    local.set_port(port);
    let mut udp = socket(local)?;
    let mut server = Server {
        link: Link::new(tcp, &mut udp, (IDLE_TIMEOUT, &stop))?,
        end: FileClient::new(&secret, wanted, IDLE_TIMEOUT),
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
    pub(super) fn run(&self) -> Result<(), Failure> {
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
    pub(super) fn run(&self) -> Result<(), Failure> {
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

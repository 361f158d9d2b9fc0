//! `farhaul compat rbudp`: the `sendfile` and `recvfile` of RBUDP 1.0. One client at a time, as there.

use std::{
    ffi::OsString,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
    time::Duration,
};

use farhaul_core::{codec::DecodeError, datagram::TxBuf, units::Rate};
use farhaul_io::clock;
use farhaul_protocols::rbudp::{
    Config,
    files::{FileReceiver, FileSender, Got, Heard, MAX_FILE, PORT},
    wire::HEADER,
};
use farhaul_transfer::server::Share;
use farhaul_udp::Inbox;
use rustix::event::PollFlags;

use super::{
    link::{Link, Listener, connect, lost, net, socket},
    samples::{Part, Shared, check_name},
    shares,
};
use crate::{
    cmd::bench::resolve_at,
    exit::{Exit, Failure},
    interrupt, typed,
};

/// Idle time after which a peer is disconnected.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest name: it is sent in 256 bytes with a zero at its end.
const NAME_MAX: usize = 255;

/// The programs.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Rbudp {
    /// Serve files to `recvfile`, one client at a time, until stopped
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
    /// Address to listen on: TCP for requests, UDP as source of data
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT), value_parser = typed::address)]
    listen: SocketAddr,
    /// The constant rate of the data: no more than the path can carry exclusively
    #[arg(long, value_name = "RATE")]
    rate: Rate,
    #[command(flatten)]
    how: How,
}

/// `compat rbudp recvfile`.
#[derive(Debug, clap::Args)]
pub(crate) struct Recvfile {
    /// HOST or HOST:PORT of the server; its data is received on the next port here
    host: String,
    /// Name of the file on the server
    remote: OsString,
    /// The file to write; replaced once everything is here
    local: PathBuf,
    #[command(flatten)]
    how: How,
}

/// Options that must be the same at both ends.
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

impl Sendfile {
    fn run(&self) -> Result<(), Failure> {
        let shares = shares(&self.share)?;
        let stop = interrupt::stop()?;
        let listener = Listener::bind(self.listen)?;
        let mut udp = socket(listener.at)?;
        listener.run(&stop, |tcp, peer| {
            let to = SocketAddr::new(peer.ip(), listener.at.port().wrapping_add(1));
            let link = Link::new(tcp, &mut udp, (IDLE_TIMEOUT, &stop));
            match link.and_then(|link| self.serve(link, to, &shares)) {
                Ok(()) => errln!("{}: done", peer.ip()),
                Err(_) if stop.is_set() => {}
                Err(failure) => errln!("{}: {}", peer.ip(), failure.text),
            }
        });
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
                    Err(lost("the client disconnected early"))
                } else {
                    Ok(())
                };
            };
            // Only a whole message is a sign of life.
            match end.on_control(&words).map_err(protocol)? {
                Heard::Nothing => {}
                Heard::Report => link.last_received = clock::now(),
                Heard::Request(name) if name.is_empty() => return Ok(()),
                Heard::Request(name) => {
                    link.last_received = clock::now();
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
        errln!(
            "{}: {shown}, {} bytes at {}",
            to.ip(),
            file.size(),
            self.rate
        );
        Ok(file)
    }
}

/// Fills `batch` with packets that may be sent now.
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
        let stop = interrupt::stop()?;
        let part = Part::create(&self.local).map_err(|e| Failure::from(&e))?;
        let (tcp, mut local) = connect(to, "sendfile")?;
        local.set_port(to.port().wrapping_add(1));
        let mut udp = socket(local)?;
        udp.connect(to).map_err(|e| net("UDP", &e))?;
        let bytes = self.fetch(Link::new(tcp, &mut udp, (IDLE_TIMEOUT, &stop))?, &part)?;
        part.keep().map_err(|e| Failure::from(&e))?;
        errln!("{}: {bytes} bytes, not verified", self.local.display());
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
        // Datagrams received before the request belong to another file.
        link.drain(&mut Inbox::new(), |_, _| Ok(()))?;
        loop {
            fetch.end.poll_control(&mut link.out);
            link.flush()?;
            if fetch.end.is_over() && link.out.is_empty() {
                return Ok(fetch.end.size().unwrap_or(0));
            }
            link.wait(PollFlags::IN, None)?;
            // Packets that arrived before DONE are processed before it.
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
                // A client that repeats requests before the answer could queue answers without a bound.
                Some(_) if !link.out.is_empty() => {
                    return Err(broke(DecodeError::Malformed(
                        "a message before the answer to the last",
                    )));
                }
                Some(words) => {
                    link.last_received = clock::now();
                    let said = fetch.end.on_control(clock::now(), &words);
                    said.map_err(|e| self.mismatch(&fetch).unwrap_or_else(|| broke(e)))?;
                }
            }
        }
    }

    /// Failure for a file that nothing fits, which has a likely reason.
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
    /// True if some packet of it was received.
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
            Some(size) => lost(format!(
                "the server disconnected before all {size} bytes were received"
            )),
        }
    }

    /// Receives datagrams, up to a bound; whether there are no more.
    fn drain(&mut self, link: &mut Link<'_>) -> Result<bool, Failure> {
        let mut news = false;
        let (end, part, taken) = (&mut self.end, self.part, &mut self.taken);
        let misfit = &mut self.misfit;
        let drained = link.drain(&mut self.inbox, |_, datagram| {
            let data = datagram.get(HEADER..).unwrap_or_default();
            match end.on_datagram(datagram) {
                Ok(Got::New(offset)) => {
                    (*taken, news) = (true, true);
                    part.write(data, offset).map_err(|e| Failure::from(&e))?;
                }
                Ok(Got::Again(offset)) => {
                    if !part.holds(data, offset).map_err(|e| Failure::from(&e))? {
                        return Err(Failure::new(Exit::Protocol, DIFFER));
                    }
                }
                Ok(Got::Stale) => {}
                Err(_) => *misfit = Some(data.len()),
            }
            Ok(())
        });
        if news {
            link.last_received = clock::now();
        }
        drained
    }
}

const DIFFER: &str = "two packets of one number differ: one is late from another transfer, or forged; the file \
                      was discarded, fetch it again";

//! Client of a copy: requests paths in the server's shares, and sends or receives.
//!
//! - [`Upload`] lists its files without waiting for the answer to its request: no round trip is lost.

use std::{
    io::{Read, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use farhaul_core::{
    congestion::Sharing,
    protocol::{Event, Session},
    store::{Extent, Sink, Store, StoreError},
    time::Instant,
    units::Rate,
};
use farhaul_io::{App, clock};

use crate::{
    agreed::Agreed,
    brake::{Brake, Control},
    close_reason::{closed_by_server, of_benches},
    decide::Rules,
    endpoint::Endpoint,
    error::{Advice, TransferError},
    filter::Filter,
    host::{Host, Simulated},
    pipe::{PipeReceiver, PipeSender},
    plan::{Planned, Planner},
    progress::Phase,
    receiver::{Base, Look, Receiver},
    requested::{Requested, means_contents},
    scan::{self, Selection, Shard},
    sender::{Planning, Sender},
    summary::Handle,
    wire::{
        Direction, Entry, Existing, Exit, FilterSpec, Kind, Message, Mirror, OLDEST, Ordered,
        Outbox, Place, RequestOptions, path,
    },
};

/// A path in a share of the server. The path may be empty; a trailing slash means "the contents of" at
/// a source and "a directory" at a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Name of the share.
    pub share: String,
    /// Path in it.
    pub path: Vec<u8>,
}

impl Remote {
    fn place(&self) -> Place {
        Place {
            share: self.share.clone().into_bytes(),
            path: self.path.clone(),
        }
    }
}

/// Options of a client's transfer.
#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent options")]
pub struct Options {
    /// Set by another thread to the number of a [`Exit`]: stop now with it, keep what can be continued.
    pub cancel: Arc<AtomicU8>,
    /// Called by worker threads when the session should be polled.
    pub wake: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Distinguishes servers in the names of journals: host and port as typed.
    pub server: String,
    /// True if files reach the disk before they count.
    pub sync: bool,
    /// Selection of files.
    pub filter: Filter,
    /// Paths as bytes, of an upload with one folder: only these below it are sent.
    pub list: Option<Arc<Vec<Vec<u8>>>>,
    /// True if an upload leaves out the file systems that are mounted below its sources.
    pub one_file_system: bool,
    /// Part of an upload that this client sends; others send the rest.
    pub shard: Option<Shard>,
    /// Treatment of files that are already there.
    pub existing: Existing,
    /// True if files of the same size are compared by content, whatever their times.
    pub checksum: bool,
    /// True if the receiver reads what was written again from its disk before it counts.
    pub verify_disk: bool,
    /// Extent to which the destination is made equal to the source.
    pub mirror: Mirror,
    /// The side that sends never sends faster. An upload is paced by its own session's configuration.
    pub max_rate: Option<Rate>,
    /// Share of the link that the side that sends claims. An upload keeps to its own session's
    /// configuration.
    pub sharing: Sharing,
    /// Handle by which other threads slow the transfer down.
    pub control: Option<Arc<Control>>,
    /// Callback of a dry run: nothing is transferred, and it receives what would be.
    pub plan: Option<Plan>,
    /// Paths of a download as they were typed, in the same order, where the server has reported
    /// their kinds. They limit what the server may list.
    pub typed: Option<Vec<Vec<u8>>>,
    /// Decides on the server's public key before anything is sent to it.
    pub check: Option<PeerCheck>,
    /// Number of parallel sessions; without it, as many as pay.
    pub lanes: Option<u32>,
    /// Runs further ones; without it there are none.
    pub open: Option<OpenLane>,
    /// Substitutes for threads and the disk, of tests.
    #[doc(hidden)]
    pub simulated: Option<Simulated>,
}

/// Called with what would be done, entry by entry.
pub type Plan = Arc<dyn Fn(Planned) + Send + Sync>;

/// Runs a further parallel session of a copy, to the same server and with the same key. The
/// function sees to it that the [`Lane`] [is woken](Lane::woken_by).
pub type OpenLane = Arc<dyn Fn(Lane) + Send + Sync>;

/// Returns why a server's public key is not accepted, if it is not.
pub type PeerCheck = Arc<dyn Fn(Option<&[u8]>) -> Result<(), TransferError> + Send + Sync>;

impl Default for Options {
    fn default() -> Self {
        Self {
            cancel: Arc::default(),
            wake: None,
            server: String::new(),
            sync: true,
            filter: Filter::default(),
            list: None,
            one_file_system: false,
            shard: None,
            existing: Existing::default(),
            checksum: false,
            verify_disk: false,
            mirror: Mirror::default(),
            max_rate: None,
            sharing: Sharing::default(),
            control: None,
            plan: None,
            typed: None,
            check: None,
            lanes: None,
            open: None,
            simulated: None,
        }
    }
}

impl Options {
    /// Error with which another thread wants the transfer to end.
    fn cancelled(&self) -> Option<TransferError> {
        let number = self.cancel.load(Ordering::Relaxed);
        let code = Exit::from_number(number).filter(|code| *code != Exit::Ok)?;
        let text = match code {
            Exit::Limit => "the time given by --max-time is over",
            _ => "interrupted",
        };
        let fix = Advice::resume("run the same command again");
        Some(TransferError::new(code, text).fix(fix))
    }

    /// The end of a session that is governed by `sharing` already.
    fn endpoint(&self, put: bool) -> Endpoint {
        let mut endpoint = Endpoint::new(put);
        endpoint.verify_disk = self.verify_disk;
        endpoint.brake = Brake::new(self.sharing);
        if let Some(control) = &self.control {
            endpoint.brake.control = Arc::clone(control);
        }
        endpoint
    }

    fn host(&self) -> Host {
        Host {
            wake: self.wake.clone(),
            simulated: self.simulated.clone(),
        }
    }

    /// Options that concern the receiver of an upload.
    pub fn ordered(&self) -> Result<Ordered, TransferError> {
        Ok(self.request_to_receive(false)?.ordered())
    }

    fn request_to_receive(&self, one_file: bool) -> Result<RequestOptions, TransferError> {
        let mut request = self.request(one_file);
        if self.mirror.delete.is_some() {
            request.spec = self.filter.to_send()?;
        }
        Ok(request)
    }

    fn request(&self, one_file: bool) -> RequestOptions {
        RequestOptions {
            one_file,
            dry: self.plan.is_some(),
            existing: self.existing,
            checksum: self.checksum,
            verify_disk: self.verify_disk,
            pipe: false,
            max_rate: self.max_rate,
            sharing: self.sharing,
            spec: FilterSpec::default(),
            mirror: self.mirror,
        }
    }

    fn selection(&self) -> Selection {
        Selection {
            filter: self.filter.clone(),
            list: self.list.clone(),
            tell: self.plan.is_some(),
            preserve: self.mirror.preserve,
            guarded: true,
            keep: self.mirror.delete.is_some(),
            symlinks: self.mirror.symlinks,
            one_file_system: self.one_file_system,
            shard: None,
        }
    }
}

/// Sends local files.
pub struct Upload(Client);

/// Fetches remote files.
pub struct Download(Client);

/// State that both directions have.
struct Client {
    endpoint: Endpoint,
    request: Message,
    options: Options,
    /// Destination of a download, and limits on what may go there.
    to: Option<(To, Requested)>,
    /// Version and features that both ends have, once they are connected.
    agreed: Option<Agreed>,
    accepted: bool,
    /// Number of parallel sessions that were asked for.
    wanted: Option<u32>,
    out: Outbox,
}

/// Destination of a download.
enum To {
    Path(PathBuf),
    Pipe(Box<dyn Write + Send>),
}

impl Upload {
    /// Looks `sources` up; an error if none can be read. Nothing is sent before the session connects.
    pub fn new(sources: &[PathBuf], to: &Remote, options: Options) -> Result<Self, TransferError> {
        let host = options.host();
        let resolved = scan::resolve(sources, options.mirror.symlinks, &host)?;
        let found = &resolved.0;
        let system = rustix::system::uname();
        let full: Vec<PathBuf> = sources
            .iter()
            .map(|s| std::path::absolute(s).unwrap_or_else(|_| s.clone()))
            .collect();
        let names = full.iter().map(|p| p.as_os_str().as_bytes());
        if options.list.is_some() && (found.len() != 1 || found[0].is_file || sources.len() != 1) {
            let e = TransferError::new(Exit::Usage, "a list needs one source, which is a folder");
            return Err(e.fix("name the folder that the paths in the list are in"));
        }
        let one_file = found.len() == 1 && found[0].is_file && sources.len() == 1;
        let folders: Vec<bool> = found
            .iter()
            .filter(|source| !source.is_file)
            .map(|source| source.name.is_empty())
            .collect();
        options.filter.check_delete(&options.mirror, &folders)?;
        if options.mirror.delete.is_some() && options.list.is_some() {
            let e = TransferError::new(Exit::Usage, "--delete cannot be combined with a list");
            return Err(e.fix("omit --files-from: what it does not list would be deleted"));
        }
        let wanted = options.request_to_receive(one_file)?;
        let request = Message::Request {
            version: OLDEST,
            direction: Direction::Put,
            options: Box::new(wanted),
            tag: match options.shard {
                // Whichever node runs it again continues it.
                Some(shard) => path::tag(format!("shard {shard}").as_bytes(), names),
                None => path::tag(
                    b"",
                    std::iter::once(system.nodename().to_bytes()).chain(names),
                ),
            },
            places: vec![to.place()],
        };
        let mut endpoint = options.endpoint(true);
        let progress = Arc::clone(endpoint.handle.progress());
        let names = full.iter().map(|p| p.as_os_str().as_bytes());
        let copy = |shard: Shard| path::tag(format!("{} shards", shard.count()).as_bytes(), names);
        let selection = Selection {
            shard: options.shard.map(|shard| (shard, copy(shard))),
            ..options.selection()
        };
        let plan = options.plan.clone().map(|sink| Planning::new(Some(sink)));
        let sender = Sender::new(resolved, selection, progress, plan, &host);
        endpoint.play(sender.map_err(|e| TransferError::no_thread(&e))?);
        Ok(Self(Client::new(endpoint, request, None, options)))
    }

    /// Sends what `input` gives until its end, as one file to the path `to`; nothing is read before the server has accepted
    /// it. The file has the permissions `mode` and the time of now.
    pub fn pipe(
        input: Box<dyn Read + Send>,
        mode: u16,
        to: &Remote,
        options: Options,
    ) -> Result<Self, TransferError> {
        let name = path::split(&to.path).1;
        if name.is_empty() || path::refusal(name).is_some() {
            let text = format!(
                "the destination '{}' ends in no name of a file",
                path::show(&to.path)
            );
            let fix = "what comes through a pipe has no name: give one at the end of the destination, or with --name";
            return Err(TransferError::new(Exit::Usage, text).fix(fix));
        }
        let now = clock::since_1970();
        let entry = Entry {
            mode: mode & 0o777,
            mtime: i64::try_from(now.as_secs()).unwrap_or_default(),
            mtime_nanos: now.subsec_nanos(),
            ..Entry::named(Kind::File, name.to_vec())
        };
        let system = rustix::system::uname();
        let request = Message::Request {
            version: OLDEST,
            direction: Direction::Put,
            options: Box::new(RequestOptions {
                pipe: true,
                ..options.request(true)
            }),
            tag: path::tag(b"", [system.nodename().to_bytes(), b"-"]),
            places: vec![to.place()],
        };
        let mut endpoint = options.endpoint(true);
        let progress = Arc::clone(endpoint.handle.progress());
        endpoint.play(PipeSender::new(input, entry, progress, &options.host()));
        Ok(Self(Client::new(endpoint, request, None, options)))
    }

    /// Makes a handle for other threads.
    pub fn handle(&self) -> Handle {
        self.0.endpoint.handle.clone()
    }
}

impl Download {
    /// Fetches all of `from`, at least one, to the local path `to`. The destination is examined
    /// when the server has reported what it sends. An error if there are too many sources, or if
    /// the filter is too long to be sent.
    pub fn new(from: &[Remote], to: &Path, options: Options) -> Result<Self, TransferError> {
        if from.is_empty() {
            return Err(TransferError::new(Exit::Usage, "no source was named"));
        }
        let places: Vec<Place> = from.iter().map(Remote::place).collect();
        check_places(&places)?;
        let mut wanted = options.request(false);
        wanted.spec = options.filter.to_send()?;
        let here = std::path::absolute(to).unwrap_or_else(|_| to.to_path_buf());
        let parts = places.iter().flat_map(|p| [&p.share[..], &p.path]);
        let parts = std::iter::once(options.server.as_bytes()).chain(parts);
        let tag = path::tag(b"", parts.chain([here.as_os_str().as_bytes()]));
        let typed = options.typed.as_ref().filter(|t| t.len() == from.len());
        let typed: Vec<&[u8]> = match typed {
            Some(typed) => typed.iter().map(Vec::as_slice).collect(),
            None => from.iter().map(|remote| &remote.path[..]).collect(),
        };
        let folders: Vec<bool> = typed.iter().map(|typed| means_contents(typed)).collect();
        options.filter.check_delete(&options.mirror, &folders)?;
        let requested = Requested::of(&options.server, typed, options.filter.clone());
        let request = Message::Request {
            version: OLDEST,
            direction: Direction::Get,
            options: Box::new(wanted),
            tag,
            places,
        };
        Ok(Self::of(
            request,
            (To::Path(to.to_path_buf()), requested),
            options,
        ))
    }

    /// Writes the one file `from` to `output`, in order. That it was right is known at the end only.
    pub fn pipe(
        output: Box<dyn Write + Send>,
        from: &Remote,
        options: Options,
    ) -> Result<Self, TransferError> {
        let typed = options.typed.as_ref().and_then(|typed| typed.first());
        let typed = typed.map_or(&from.path[..], |typed| typed);
        if means_contents(typed) {
            return Err(no_single_file(typed));
        }
        let place = from.place();
        check_places(std::slice::from_ref(&place))?;
        let requested = Requested::of(&options.server, [typed], Filter::default());
        let parts = [options.server.as_bytes(), &place.share, &place.path, b"-"];
        let request = Message::Request {
            version: OLDEST,
            direction: Direction::Get,
            options: Box::new(options.request(false)),
            tag: path::tag(b"", parts),
            places: vec![place],
        };
        Ok(Self::of(request, (To::Pipe(output), requested), options))
    }

    fn of(request: Message, to: (To, Requested), options: Options) -> Self {
        let endpoint = options.endpoint(false);
        Self(Client::new(endpoint, request, Some(to), options))
    }

    /// Makes a handle for other threads.
    pub fn handle(&self) -> Handle {
        self.0.endpoint.handle.clone()
    }
}

impl Client {
    fn new(
        endpoint: Endpoint,
        request: Message,
        to: Option<(To, Requested)>,
        options: Options,
    ) -> Self {
        Self {
            endpoint,
            request,
            options,
            to,
            agreed: None,
            accepted: false,
            wanted: None,
            out: Outbox::default(),
        }
    }

    fn messages(&mut self, session: &mut dyn Session) -> Result<(), TransferError> {
        while let Some(message) = self.endpoint.next(session)? {
            match message {
                Message::Accepted { version, one_file }
                    if !self.accepted && self.agreed.is_some_and(|a| a.version == version) =>
                {
                    self.accepted = true;
                    self.endpoint.handle.progress().set_phase(Phase::Moving);
                    match self.to.take() {
                        None => self.endpoint.accepted()?,
                        Some((To::Path(to), requested)) => {
                            self.receive(&to, requested.with_reply(one_file)?, one_file)?;
                        }
                        Some((To::Pipe(output), requested)) => {
                            self.receive_into(output, requested.with_reply(one_file)?, one_file)?;
                        }
                    }
                }
                Message::Accepted { version, .. } if !self.accepted => {
                    return Err(TransferError::protocol(format!(
                        "the server accepted version {version}, which was not requested"
                    )));
                }
                Message::Refused { code, text, fix } if !self.accepted => {
                    return Err(TransferError::refused(code, &text, &fix));
                }
                Message::Lanes { token, lanes } => self.open_lanes(&token, lanes)?,
                other if self.accepted => self.endpoint.handle(other)?,
                _ => {
                    return Err(TransferError::protocol(
                        "the server did not answer the request",
                    ));
                }
            }
        }
        Ok(())
    }

    fn receive_into(
        &mut self,
        output: Box<dyn Write + Send>,
        requested: Requested,
        one_file: bool,
    ) -> Result<(), TransferError> {
        if !one_file {
            let Message::Request { places, .. } = &self.request else {
                return Err(TransferError::new(Exit::Internal, "no request was made"));
            };
            return Err(no_single_file(places.first().map_or(b"", |p| &p.path)));
        }
        let progress = Arc::clone(self.endpoint.handle.progress());
        let pipe = PipeReceiver::new(output, requested, progress, &self.options.host());
        self.endpoint
            .play(pipe.map_err(|e| TransferError::no_thread(&e))?);
        Ok(())
    }

    /// Settles what both ends have; an error if they cannot do what the request needs.
    fn receive(
        &mut self,
        to: &Path,
        requested: Requested,
        one_file: bool,
    ) -> Result<(), TransferError> {
        if one_file {
            let filter = &self.options.filter;
            filter.check_delete(&self.options.mirror, &[])?;
        }
        let Message::Request { tag, .. } = &self.request else {
            return Err(TransferError::new(Exit::Internal, "no request was made"));
        };
        let rules = Rules {
            sync: self.options.sync,
            ..Rules::of(&self.options.request(one_file))
        };
        let progress = Arc::clone(self.endpoint.handle.progress());
        let filter = self.options.filter.clone();
        if let Some(sink) = self.options.plan.clone() {
            let look = Look::local(to, one_file)?;
            let planner = Planner::new(look, *tag, rules, requested, progress, Some(sink))?;
            self.endpoint.play(planner.excluding(filter));
            return Ok(());
        }
        let host = self.options.host();
        let mut base = Base::local(to, one_file)?;
        base.dir = host.own(base.dir).map_err(|e| {
            TransferError::new(Exit::DestError, format!("cannot open the destination: {e}"))
        })?;
        let receiver = Receiver::new(base, *tag, rules, requested, progress, &host)?;
        self.endpoint.play(receiver.excluding(filter));
        Ok(())
    }

    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        self.endpoint.at(now);
        match event {
            Event::Connected { peer_key } => {
                let check = self.options.check.as_ref();
                if let Some(Err(e)) = check.map(|check| check(peer_key.as_deref())) {
                    return self.endpoint.fail(e, session);
                }
                if let Err(e) = self.agree(session) {
                    return self.endpoint.fail(e, session);
                }
                let mut out = Outbox::default();
                out.push(&self.request);
                out.flush(session);
                self.endpoint.handle.progress().set_phase(Phase::Waiting);
            }
            Event::Readable => {
                if let Err(e) = self.messages(session) {
                    self.endpoint.fail(e, session);
                }
            }
            Event::Delivered => {}
            Event::Closed(reason) => {
                let declares = !session.peer_app().is_empty();
                self.endpoint
                    .closed(&closed_by_server(&of_benches(reason, declares)));
            }
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        self.endpoint.at(now);
        if session.is_closed() || self.endpoint.handle.progress().phase() == Phase::Done {
            return;
        }
        if let Some(e) = self.options.cancelled() {
            self.endpoint.fail(e, session);
            return;
        }
        if self.endpoint.handle.progress().phase() != Phase::Connecting {
            self.ask_for_lanes();
            self.out.flush(session);
            self.endpoint.poll(session);
            if self.endpoint.holds()
                && let Err(e) = self.messages(session)
            {
                self.endpoint.fail(e, session);
                return;
            }
        }
        self.endpoint.close_if_over(session);
    }
}

/// Error for a source that a pipe has no place for.
fn no_single_file(path: &[u8]) -> TransferError {
    let name = if path.is_empty() {
        "the whole share".into()
    } else {
        path::show(path)
    };
    let text =
        format!("{name} is a folder, and only a single file can be written to the standard output");
    TransferError::new(Exit::Usage, text).fix("name one file, or copy to a folder")
}

macro_rules! is_an_app {
    ($name:ident) => {
        impl Store for $name {
            fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
                self.0.endpoint.fill(extents, batch)
            }

            fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
                self.0.endpoint.place(extents, batch)
            }

            fn sink(&self) -> Sink {
                self.0.endpoint.sink()
            }
        }

        impl App for $name {
            fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
                self.0.on_event(now, event, session);
            }

            fn poll(&mut self, now: Instant, session: &mut dyn Session) {
                self.0.poll(now, session);
            }

            fn next_wake(&self) -> Option<Instant> {
                self.0.endpoint.next_wake()
            }
        }
    };
}

is_an_app!(Upload);
is_an_app!(Download);

mod agree;
mod lanes;
mod probe;
mod question;
mod reads;
use agree::check_places;
pub use lanes::Lane;
pub use probe::{Answer, Answered, Lent, Probe, offers_probes};
pub use question::{Found, Listed, MOST_READ, Question};
pub use reads::{Reader, Reads};

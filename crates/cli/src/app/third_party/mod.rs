//! Copies between two other hosts. ssh starts farhaul on the host that has the files. That host
//! sends them to the other as if the command had been given there. This machine makes both known to
//! each other, and prints what it reports.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStrExt as _,
    sync::{
        Arc,
        mpsc::{self, Receiver as Queue},
    },
    thread,
    time::Duration,
};

use farhaul_core::{text, time::Instant};
use farhaul_io::{Stop, clock};
use farhaul_transfer::{
    Progress, TransferError,
    client::{Options, Remote},
};
use serde_json::Value;

mod relay;

use self::relay::Here;
use super::{
    console::{Console, Level},
    copy,
};
use crate::{
    child,
    connect::Family,
    exit::{Exit, Failure},
    interrupt,
    place::{Far, Place, Server},
    ssh::{
        Bridge, Call, Order, Receiver, Report, Said,
        sender::{Reports, Sender},
        to_hex,
    },
    ticket::Ticket,
};

/// Reports that wait to be printed.
const WAITING: usize = 64;

/// A copy from one host to another.
pub(crate) struct ThirdParty {
    from: Server,
    sources: Vec<Remote>,
    to: Far,
}

/// Request of such a copy.
pub(crate) struct Request {
    /// Flags of `farhaul cp` for the sending host, which copies as they say.
    pub(crate) flags: Vec<OsString>,
    /// Options of the transfer that the flags stand for.
    pub(crate) options: Options,
    pub(crate) call: Call,
    /// Family of the addresses that a relay uses.
    pub(crate) family: Family,
    /// Time that an address may take to answer a relay by UDP; zero if that is not to be tried.
    pub(crate) udp_timeout: Duration,
    /// True if the output of the host is one object.
    pub(crate) for_programs: bool,
    /// True if each file that was sent is named.
    pub(crate) names_files: bool,
}

/// Event during a copy between two hosts.
enum Event {
    Said(Said),
    /// A chunk for the relay.
    Chunk(Vec<u8>),
    /// Nothing more is to come.
    Over,
    Interrupted,
}

impl ThirdParty {
    /// Plans a copy between hosts, if all of these places are on other machines.
    pub(crate) fn of(places: &[Place]) -> Result<Option<Self>, Failure> {
        let far = |place: &Place| match place {
            Place::Far(far) => Some(far.clone()),
            Place::Local(_) | Place::Pipe => None,
        };
        let all: Option<Vec<Far>> = places.iter().map(far).collect();
        let Some((to, from)) = all.as_ref().and_then(|all| all.split_last()) else {
            return Ok(None);
        };
        let (from, sources) = copy::of_one_server(from.to_vec())?;
        if from.login.is_none() {
            let text = format!(
                "{from} is a server, which sends to whoever fetches; only a host of ssh ([user@]host:path) can send to another"
            );
            let fix = format!("run the command on the host of {to}, or copy to this machine first");
            return Err(Failure::usage(text).fix(fix));
        }
        if to.server.login.is_none() && to.server.right.is_none() {
            let text = format!("{to} is on a server, to which {from} is not known");
            let fix = "give a ticket for the place (`farhaul ticket new`) as the destination, or [user@]host:path";
            return Err(Failure::usage(text).fix(fix));
        }
        Ok(Some(Self {
            from,
            sources,
            to: to.clone(),
        }))
    }

    /// Copies; the object that the sending host reports, which is null without one.
    pub(crate) fn run(
        self,
        request: &Request,
        console: &Arc<dyn Console>,
    ) -> Result<Value, Failure> {
        let ordered = request.options.ordered().map_err(|e| Failure::from(&e))?;
        let call = &request.call;
        let from = self.from.login.unwrap_or(self.from.host);
        let mut sender = Sender::open(call, &from, console)?;
        let Far { server, remote } = self.to;
        let (to, bridge) = match (server.login, server.right) {
            (Some(login), _) => {
                let (path, key) = (&remote.path, sender.key);
                let bridge = Bridge::open_for(call, &login, path, &ordered, key, console)?;
                let to = Receiver::Ssh {
                    login,
                    hosts: bridge.hosts.clone(),
                    port: bridge.port,
                    key: bridge.key.to_string(),
                    path: bridge
                        .paths
                        .first()
                        .map(|path| to_hex(path))
                        .unwrap_or_default(),
                };
                (to, Some(bridge))
            }
            (None, right) => {
                let right = right.ok_or_else(|| Failure::usage("no ticket"))?;
                let (host, port) = (server.host, server.port);
                let ticket = Ticket {
                    host,
                    port,
                    remote,
                    right,
                };
                (Receiver::Ticket(ticket.text()?), None)
            }
        };
        let reports = sender.order(&Order {
            called: from.clone(),
            flags: request
                .flags
                .iter()
                .map(|flag| to_hex(flag.as_bytes()))
                .collect(),
            sources: self
                .sources
                .iter()
                .map(|source| to_hex(&source.path))
                .collect(),
            to,
        })?;
        let here = Here::new(request, sender, bridge, &**console);
        Watched::of(request, &**console).until_the_end(&from, here, reports)
    }
}

/// Output here of the copy.
struct Watched<'a> {
    request: &'a Request,
    console: &'a dyn Console,
    progress: Arc<Progress>,
    shown: Option<Box<dyn Send>>,
    /// The object of `--json`, as far as it has come; or the last line of the output.
    output: String,
}

impl<'a> Watched<'a> {
    fn of(request: &'a Request, console: &'a dyn Console) -> Self {
        Self {
            request,
            console,
            progress: Arc::default(),
            shown: None,
            output: String::new(),
        }
    }

    /// Shows the reports, until the host says how the copy ended or cannot any more.
    fn until_the_end(
        mut self,
        from: &str,
        mut here: Here<'_>,
        reports: Reports,
    ) -> Result<Value, Failure> {
        let (events, mut queue) = mpsc::sync_channel(WAITING);
        let interrupted = events.clone();
        let stop = self.console.stop_and(move || {
            // If nobody hears it, the copy is over.
            let _over = interrupted.send(Event::Interrupted);
        })?;
        thread::Builder::new()
            .name("reports".into())
            .spawn(move || read(reports, &events))
            .map_err(|e| TransferError::no_thread(&e))?;
        let mut until = None;
        let end = loop {
            match next(&mut queue, until) {
                Event::Said(Said::End { code, text }) => break Some((code, text)),
                Event::Said(said) => self.show(said),
                Event::Chunk(chunk) => here.carry(&chunk, &stop),
                Event::Interrupted => {
                    here.hang_up();
                    until = Some(clock::now() + child::EXIT_TIMEOUT);
                }
                Event::Over => break None,
            }
        };
        self.shown = None;
        // Both ends learn of it before the end is printed.
        drop(here);
        let object = serde_json::from_str(&self.output).ok();
        // A last line without its end, as of a host that was cut off.
        if !self.request.for_programs && !self.output.is_empty() {
            self.console.line(&text::plain(&self.output));
        }
        match (ended(from, end, &stop), object) {
            (Ok(()), object) => Ok(object.unwrap_or_default()),
            // What ends by an interrupt here says so itself.
            (Err(failure), Some(object)) if until.is_none() => Err(failure.with_object(object)),
            (Err(failure), _) => Err(failure),
        }
    }

    fn show(&mut self, said: Said) {
        match said {
            Said::Event(event) => {
                copy::events::replay(&event, &self.progress);
                if self.console.wants_events() {
                    self.console.event(&event);
                }
                let is_sent =
                    event["type"] == "file" && event["sent"] == true && event["ok"] == true;
                if self.request.names_files && is_sent {
                    self.shown = None;
                    let path = event["path"].as_str().unwrap_or_default();
                    self.console.line(&text::shown(path.as_bytes()));
                }
                if self.shown.is_none() {
                    self.shown = self.console.watch(&self.progress);
                }
            }
            Said::Out(text) => {
                self.output += &text;
                if !self.request.for_programs {
                    self.shown = None;
                    self.print_lines();
                }
            }
            Said::Err(text) => {
                self.shown = None;
                self.console.message(Level::Important, &text);
            }
            Said::End { .. } => {}
        }
    }
}

impl Watched<'_> {
    /// Prints the lines that are whole, without what would steer a terminal.
    fn print_lines(&mut self) {
        let whole = self.output.rfind('\n').map_or(0, |end| end + 1);
        for line in self.output.drain(..whole).as_str().lines() {
            self.console.line(&text::plain(line));
        }
    }
}

fn ended(from: &str, end: Option<(u8, String)>, stop: &Stop) -> Result<(), Failure> {
    Err(match end {
        Some((0, _)) => return Ok(()),
        Some((code, text)) => {
            let exit = match Exit::of_process(code).unwrap_or(Exit::Internal) {
                Exit::Signal(_) if stop.is_set() => Exit::Signal(interrupt::signal()),
                exit => exit,
            };
            let text = if text.is_empty() {
                text
            } else {
                format!("{from}: {text}")
            };
            Failure::new(exit, text)
        }
        None if stop.is_set() => {
            let text = "interrupted before the copy was over";
            Failure::new(Exit::Signal(interrupt::signal()), text)
                .fix("run the same command again to continue")
        }
        None => {
            let text = format!("ssh {from} ended before the copy there did");
            Failure::new(Exit::ConnectionLost, text).fix("run the same command again to continue")
        }
    })
}

/// Next event; nothing more once `until` is over.
fn next(queue: &mut Queue<Event>, until: Option<Instant>) -> Event {
    let event = match until {
        None => queue.recv().ok(),
        Some(until) => match until.since(clock::now()) {
            left if left.is_zero() => None,
            left => queue.recv_timeout(left).ok(),
        },
    };
    event.unwrap_or(Event::Over)
}

fn read(mut reports: Reports, events: &mpsc::SyncSender<Event>) {
    // However it ends, nothing more is reported.
    while let Ok(Some(report)) = reports.next() {
        let event = match report {
            Report::Said(said) => Event::Said(said),
            Report::Chunk(chunk) => Event::Chunk(chunk),
        };
        if events.send(event).is_err() {
            return;
        }
    }
    let _nobody_waits = events.send(Event::Over);
}

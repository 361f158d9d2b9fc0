//! How is a page read while runs are being made? On this machine only, from a browser that asks every 2 s
//! whether the results have changed, and then replaces what it shows.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr, TcpListener},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use farhaul_core::time::Instant;
use farhaul_io::{Stop, clock};
use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
};

use super::{
    Page, WIDE, html,
    http::{Connection, Request, Response, wait},
};
use crate::plot;

/// Connections at a time; more wait in the listener's queue.
const WORKERS: usize = 16;
/// Before the next attempt, when there is no descriptor or memory for a connection.
const BACK_OFF: Duration = Duration::from_millis(200);
/// While results come, the page is not made more often: that would cost the runs processor time.
const REFRESH: Duration = Duration::from_secs(5);
/// The results cannot be shown.
const FAILED: &str = "500 Internal Server Error";
/// What the page runs in a browser.
const SCRIPT: &str = include_str!("html/live.js");

/// Results, from which a page is made.
pub trait Source: Sync {
    /// Differs when the page would; cheap, as every reader asks for it every 2 s.
    fn version(&self) -> io::Result<String>;

    /// The page of the results as they are, or in words why there is none.
    fn page(&self) -> Result<Page, String>;
}

/// Listens on this machine.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    refresh: Duration,
}

impl Server {
    /// Refuses an address that others can reach: pages are for the user of this machine.
    pub fn bind(listen: SocketAddr) -> io::Result<Self> {
        if !listen.ip().is_loopback() {
            let text = format!("{listen} can be reached from other machines: use 127.0.0.1:PORT");
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        let listener = TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            refresh: REFRESH,
        })
    }

    /// A page is made again after this time at the earliest.
    #[must_use]
    pub const fn refreshed_every(mut self, time: Duration) -> Self {
        self.refresh = time;
        self
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop` is set.
    pub fn run(&self, source: &impl Source, stop: &Stop) -> io::Result<()> {
        let site = Site {
            source,
            refresh: self.refresh,
            made: Mutex::default(),
        };
        let failed = Stop::new()?;
        let work = || {
            let ended = self.work(&site, stop, &failed);
            if ended.is_err() {
                failed.set();
            }
            ended
        };
        thread::scope(|scope| {
            let mut workers = Vec::new();
            for _ in 0..WORKERS {
                match thread::Builder::new().spawn_scoped(scope, work) {
                    Ok(worker) => workers.push(worker),
                    Err(e) => {
                        failed.set();
                        return Err(e);
                    }
                }
            }
            workers.into_iter().try_for_each(|worker| {
                let ended = worker.join();
                ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })
    }

    fn work<S: Source>(&self, site: &Site<'_, S>, stop: &Stop, failed: &Stop) -> io::Result<()> {
        let end = |stop| PollFd::new(stop, PollFlags::IN);
        loop {
            let asked = PollFd::new(&self.listener, PollFlags::IN);
            wait([end(stop), end(failed), asked], None)?;
            if stop.is_set() || failed.is_set() {
                return Ok(());
            }
            match self.listener.accept() {
                Ok((stream, _)) => {
                    // A browser that has gone, or does not take its answer, is told nothing.
                    let _gone = Connection::new(stream, stop).and_then(|c| site.serve(c));
                }
                Err(e) if of_one_connection(&e) => {}
                Err(e) if scarce(&e) => {
                    wait([end(stop), end(failed)], Some(clock::now() + BACK_OFF))?;
                }
                Err(e) => return Err(e),
            }
        }
    }
}

/// Another worker has taken the connection, or it has been closed.
fn of_one_connection(error: &io::Error) -> bool {
    let kinds = [
        ErrorKind::WouldBlock,
        ErrorKind::Interrupted,
        ErrorKind::ConnectionAborted,
    ];
    kinds.contains(&error.kind())
}

/// There is no descriptor or memory now.
fn scarce(error: &io::Error) -> bool {
    let errors = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|e| errors.contains(&e))
}

/// A page and what it was made of.
struct Made {
    version: String,
    page: Page,
    html: String,
    at: Instant,
}

/// What can be asked for.
struct Site<'a, S> {
    source: &'a S,
    refresh: Duration,
    /// The last one, used while its version is the source's.
    made: Mutex<Option<Arc<Made>>>,
}

impl<S: Source> Site<'_, S> {
    fn serve(&self, mut connection: Connection<'_>) -> io::Result<()> {
        match connection.request()? {
            Ok(request) => {
                let response = self.response(&request);
                connection.answer(&response, request.method != "HEAD")
            }
            Err(refusal) => connection.answer(&refusal, true),
        }
    }

    fn response(&self, request: &Request) -> Response {
        if !of_this_machine(&request.host) {
            let text = "ask for localhost or 127.0.0.1";
            return Response::text("421 Misdirected Request", text);
        }
        if !matches!(request.method.as_str(), "GET" | "HEAD") {
            return Response::text("405 Method Not Allowed", "GET or HEAD");
        }
        match request.path.as_str() {
            "/" => self.page(),
            "/version" => match self.version() {
                Ok(version) => Response::new("200 OK", "text/plain; charset=utf-8", version),
                Err(e) => Response::text(FAILED, &e.to_string()),
            },
            "/live.js" => Response::new("200 OK", "text/javascript; charset=utf-8", SCRIPT),
            path => match path.strip_prefix("/figures/") {
                Some(name) => self.figure(name),
                None => not_found(),
            },
        }
    }

    /// That of the page as long as it is not made again.
    fn version(&self) -> io::Result<String> {
        // While a page is made, nobody waits for it here.
        let kept = self.made.try_lock().ok();
        let fresh = kept.as_ref().and_then(|kept| kept.as_ref());
        match fresh.filter(|made| self.fresh(made)) {
            Some(made) => Ok(made.version.clone()),
            None => self.source.version(),
        }
    }

    fn fresh(&self, made: &Made) -> bool {
        clock::now().since(made.at) < self.refresh
    }

    /// The version is read first, so that results which come meanwhile change it.
    fn made(&self) -> Result<Arc<Made>, String> {
        let mut kept = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = kept.as_ref().filter(|made| self.fresh(made)) {
            return Ok(Arc::clone(made));
        }
        let version = self.source.version().map_err(|e| e.to_string())?;
        if let Some(made) = kept.as_ref().filter(|made| made.version == version) {
            return Ok(Arc::clone(made));
        }
        let page = self.source.page()?;
        let made = Arc::new(Made {
            html: html::live(&page, &version),
            version,
            page,
            at: clock::now(),
        });
        *kept = Some(Arc::clone(&made));
        Ok(made)
    }

    fn page(&self) -> Response {
        let kind = "text/html; charset=utf-8";
        match self.made() {
            Ok(made) => Response::new("200 OK", kind, made.html.as_str()),
            Err(why) => Response::new(FAILED, kind, html::failure(&why)),
        }
    }

    /// `ID.svg` or `ID.png`.
    fn figure(&self, name: &str) -> Response {
        let made = match self.made() {
            Ok(made) => made,
            Err(why) => return Response::text(FAILED, &why),
        };
        let mut figures = made.page.sections.iter().flat_map(|s| &s.figures);
        let Some((id, ending)) = name.rsplit_once('.') else {
            return not_found();
        };
        let Some(figure) = figures.find(|f| f.id == id) else {
            return not_found();
        };
        let drawn = match ending {
            "svg" => plot::svg(&figure.chart, WIDE).map(|svg| ("image/svg+xml", svg.into_bytes())),
            "png" => plot::png(&figure.chart, WIDE).map(|png| ("image/png", png)),
            _ => return not_found(),
        };
        match drawn {
            Ok((kind, bytes)) => Response::new("200 OK", kind, bytes),
            Err(e) => Response::text(FAILED, &e.to_string()),
        }
    }
}

fn not_found() -> Response {
    Response::text("404 Not Found", "there is no such page")
}

/// Whether a `Host` field names this machine itself. A name that was made to lead here would let the pages of
/// another site read this one; the port is free, for one that is forwarded.
fn of_this_machine(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port),
        _ => (host, "0"),
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let address = address.parse::<IpAddr>();
    port.parse::<u16>().is_ok()
        && (name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|ip| ip.is_loopback()))
}

//! Serves a page while runs are being made, on this machine only. A browser asks every 2 s whether
//! the results have changed, and then replaces what it shows.

use std::{
    io::{self, ErrorKind},
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use farhaul_core::time::Instant;
use farhaul_io::{Stop, clock};

use super::{Page, WIDE, html};
use crate::plot;
use farhaul_measure::http::{self, Request, Response, Site, of_this_machine};

/// Connections at a time; more wait in the listener's queue.
const WORKERS: usize = 16;
/// Least time between pages while results come: making one costs the runs processor time.
const REFRESH: Duration = Duration::from_secs(5);
/// The results cannot be shown.
const FAILED: &str = "500 Internal Server Error";
/// Script of the page in a browser.
const SCRIPT: &str = include_str!("html/live.js");

/// Results, from which a page is made.
pub trait Source: Sync {
    /// Differs when the page would; cheap, as every reader asks for it every 2 s.
    fn version(&self) -> io::Result<String>;

    /// The page of the results as they are, or in words why there is none.
    fn page(&self) -> Result<Page, String>;
}

/// A listener on this machine.
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

    /// Address at which the server listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop` is set.
    pub fn run(&self, source: &impl Source, stop: &Stop) -> io::Result<()> {
        let site = Pages {
            source,
            refresh: self.refresh,
            made: Mutex::default(),
        };
        http::serve(&self.listener, &site, WORKERS, stop)
    }
}

/// A page and its sources.
struct Made {
    version: String,
    page: Page,
    html: String,
    at: Instant,
}

/// Pages that can be asked for.
struct Pages<'a, S> {
    source: &'a S,
    refresh: Duration,
    /// The last one, used while its version is the source's.
    made: Mutex<Option<Arc<Made>>>,
}

impl<S: Source> Site for Pages<'_, S> {
    fn answer(&self, request: &Request) -> Response {
        if !of_this_machine(&request.host) {
            let text = "ask for localhost or 127.0.0.1";
            return Response::text("421 Misdirected Request", text);
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
}

impl<S: Source> Pages<'_, S> {
    /// Version of the page as long as it is not made again.
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

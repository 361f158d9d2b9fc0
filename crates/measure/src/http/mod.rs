//! Serves a site to programs that speak HTTP, by a few threads, each with one connection at a time.
//! The site decides on the answer.

mod connection;

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, TcpListener},
    thread,
    time::Duration,
};

use farhaul_io::{Stop, clock};
use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
};

use connection::{Connection, wait};
pub use connection::{Request, Response};

/// Pause before the next attempt, when there is no descriptor or memory for a connection.
const BACK_OFF: Duration = Duration::from_millis(200);

/// A site that is served.
pub trait Site: Sync {
    /// The answer to a request, by GET or HEAD.
    fn answer(&self, request: &Request) -> Response;
}

/// Answers on `listener`, which must not block, until `stop` is set; `workers` connections at a time, more wait in
/// its queue.
pub fn serve(
    listener: &TcpListener,
    site: &impl Site,
    workers: usize,
    stop: &Stop,
) -> io::Result<()> {
    let failed = Stop::new()?;
    let run = || {
        let ended = work(listener, site, stop, &failed);
        if ended.is_err() {
            failed.set();
        }
        ended
    };
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..workers {
            match thread::Builder::new().spawn_scoped(scope, run) {
                Ok(thread) => threads.push(thread),
                Err(e) => {
                    failed.set();
                    return Err(e);
                }
            }
        }
        threads.into_iter().try_for_each(|thread| {
            let ended = thread.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

fn work(listener: &TcpListener, site: &impl Site, stop: &Stop, failed: &Stop) -> io::Result<()> {
    let end = |stop| PollFd::new(stop, PollFlags::IN);
    loop {
        let asked = PollFd::new(listener, PollFlags::IN);
        wait([end(stop), end(failed), asked], None)?;
        if stop.is_set() || failed.is_set() {
            return Ok(());
        }
        match listener.accept() {
            Ok((stream, _)) => {
                // A client that has gone, or does not take the answer, gets none.
                let _gone = Connection::new(stream, stop).and_then(|c| talk(c, site));
            }
            Err(e) if of_one_connection(&e) => {}
            Err(e) if scarce(&e) => {
                wait([end(stop), end(failed)], Some(clock::now() + BACK_OFF))?;
            }
            Err(e) => return Err(e),
        }
    }
}

fn talk(mut connection: Connection<'_>, site: &impl Site) -> io::Result<()> {
    match connection.request()? {
        Ok(request) if matches!(request.method.as_str(), "GET" | "HEAD") => {
            connection.answer(&site.answer(&request), request.method != "HEAD")
        }
        Ok(_) => {
            let refusal = Response::text("405 Method Not Allowed", "GET or HEAD");
            connection.answer(&refusal, true)
        }
        Err(refusal) => connection.answer(&refusal, true),
    }
}

/// True if another worker has taken the connection, or it has been closed.
fn of_one_connection(error: &io::Error) -> bool {
    let kinds = [
        ErrorKind::WouldBlock,
        ErrorKind::Interrupted,
        ErrorKind::ConnectionAborted,
    ];
    kinds.contains(&error.kind())
}

/// True if there is no descriptor or memory now.
fn scarce(error: &io::Error) -> bool {
    let errors = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|e| errors.contains(&e))
}

/// True if a `Host` field names this machine itself. A name that was made to lead here would let
/// the pages of another site read this one. The port is free, for one that is forwarded.
pub fn of_this_machine(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port),
        _ => (host, "0"),
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let address = address.parse::<IpAddr>();
    port.parse::<u16>().is_ok()
        && (name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|ip| ip.is_loopback()))
}

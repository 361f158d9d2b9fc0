//! Runs a bench on real sockets: one thread per parallel session, each a shard with one session.
//! The caller's thread collects their reports.

use std::{
    collections::VecDeque,
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    thread,
    time::Duration,
};

use farhaul_core::{
    protocol::{CloseReason, Protocol},
    units::Rate,
};
use farhaul_io::{App, Buffers, ShardError, Stop, Unsent, Waker, client, server};

use super::{
    Bounds, Client, Interval, Lane, LawTime, Mark, News, Report, Sample, Served, Server, Spec,
    message::Datagrams,
};
use crate::stopwatch::Stopwatch;

/// Destination of a bench, and its sockets.
#[derive(Clone, Debug)]
pub struct Target {
    /// The server.
    pub to: SocketAddr,
    /// Name of the protocol, for the report.
    pub protocol: String,
    /// Name of the congestion law, for the report.
    pub cc: String,
    /// Buffers of the sockets.
    pub buffers: Buffers,
    /// Ends the run early when set.
    pub stop: Option<Stop>,
    /// Wraps the law of every session.
    pub stopwatch: Option<Stopwatch>,
    /// Wraps the application of every session, which has to reach the bench's server first.
    pub wrap: Option<Wrap>,
}

/// Function that wraps the client of a parallel session into the app that runs it.
#[derive(Clone)]
pub struct Wrap(pub Arc<dyn Fn(Client) -> Box<dyn App> + Send + Sync>);

impl fmt::Debug for Wrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wrap")
    }
}

/// Reason why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The socket or the thread around it failed.
    #[error(transparent)]
    Shard(#[from] ShardError),
    /// Nothing listens there.
    #[error("nothing listens at {0}: is `farhaul bench serve` running there, and the port open?")]
    Refused(SocketAddr),
    /// There was no answer, and this is why datagrams could not be sent last.
    #[error("datagrams cannot be sent: {0:?}")]
    Unsent(Unsent),
    /// The session ended before there was a result.
    #[error("{0}")]
    Closed(CloseReason),
    /// The thread of a session did not start.
    #[error("no thread for a lane: {0}")]
    Thread(std::io::Error),
    /// A session ended without a result.
    #[error("a lane ended without a result")]
    Silent,
}

/// Progress of a bench.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// Every session is connected; how long the slowest took.
    Connected(Duration),
    /// All sessions passed the end of an interval.
    Interval(Span),
    /// A sending session of this end, at the end of an interval.
    Sample {
        /// Index of the parallel session.
        lane: u32,
        /// Sample of the session.
        sample: Sample,
    },
}

/// Arrivals of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Beginning of the interval, counted from the client's first act.
    pub from: Duration,
    /// End of the interval.
    pub to: Duration,
    /// Bytes that arrived within.
    pub bytes: u64,
    /// Datagrams within, in a test at a constant rate.
    pub datagrams: Option<Datagrams>,
}

impl Span {
    /// Rate at which the bytes arrived.
    pub fn rate(&self) -> Rate {
        Rate::of(self.bytes, self.to.saturating_sub(self.from))
    }
}

/// Runs `spec` against `target`; `make` makes a protocol per session, `tell` is called with the
/// progress.
pub fn run(
    target: &Target,
    spec: &Spec,
    make: &mut dyn FnMut() -> Box<dyn Protocol>,
    tell: &mut dyn FnMut(Progress),
) -> Result<Report, BenchError> {
    super::payload::prepare();
    let stop = match &target.stop {
        Some(stop) => stop.clone(),
        None => Stop::new().map_err(BenchError::Thread)?,
    };
    let (send, news) = channel();
    let mut threads = Vec::new();
    for lane in 0..spec.lanes {
        let client = Client::new(*spec, lane, send.clone(), Some(stop.clone()))
            .on_transfer_server(target.wrap.is_some());
        let app = match &target.wrap {
            Some(Wrap(wrap)) => wrap(client),
            None => Box::new(client),
        };
        let mut options = client::Options::new(target.to);
        options.buffers = target.buffers;
        options.stop = Some(stop.clone());
        let protocol = make();
        let body = move || drive(&options, protocol, app);
        let thread = thread::Builder::new().name(format!("lane-{lane}"));
        threads.push(thread.spawn(body).map_err(BenchError::Thread)?);
    }
    drop(send);
    let mut intervals = Vec::new();
    let mut heard = |progress| {
        if let Progress::Interval(span) = progress {
            intervals.push(Interval {
                from: span.from.as_secs_f64(),
                to: span.to.as_secs_f64(),
                goodput_bits_per_second: span.rate().as_f64(),
            });
        }
        tell(progress);
    };
    let gathered = gather(&news, spec.lanes, &stop, &mut heard);
    let mut warnings = Vec::new();
    for thread in threads {
        match thread.join() {
            // All sessions take the same way.
            Ok(ended) => warnings = ended?.into_iter().collect(),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    let (protocol, cc) = (&target.protocol, &target.cc);
    let mut report = Report::new(protocol, cc, spec.reverse, spec.omit, &gathered?);
    report.intervals = intervals;
    report.warnings = warnings;
    report.law = target.stopwatch.as_ref().map(|watch| {
        let (seconds, cpu) = (watch.spent().as_secs_f64(), report.sender.cpu_seconds);
        LawTime {
            calls: watch.calls(),
            seconds,
            share_of_cpu: if cpu > 0.0 { seconds / cpu } else { 0.0 },
        }
    });
    Ok(report)
}

/// Thread of one session; answers what the kernel refused it.
fn drive(
    options: &client::Options,
    protocol: Box<dyn Protocol>,
    app: Box<dyn App>,
) -> Result<Option<String>, BenchError> {
    let waker = Waker::new().map_err(BenchError::Thread)?;
    let outcome = client::run(options, protocol, app, &waker)?;
    if outcome.refused {
        return Err(BenchError::Refused(options.to));
    }
    if let (CloseReason::NoAnswer, Some(unsent)) = (&outcome.reason, outcome.host.unsent) {
        return Err(BenchError::Unsent(unsent));
    }
    Ok(outcome.host.refusal())
}

/// Listens to the sessions until each has ended; one that fails stops the others.
fn gather(
    news: &Receiver<(u32, News)>,
    lanes: u32,
    stop: &Stop,
    tell: &mut dyn FnMut(Progress),
) -> Result<Vec<Lane>, BenchError> {
    let mut marks = Marks::new(lanes);
    let (mut connected, mut slowest) = (0, Duration::ZERO);
    let mut finished = Vec::new();
    let mut failure = None;
    for (lane, news) in news {
        match news {
            News::Connected(took) => {
                connected += 1;
                slowest = slowest.max(took);
                if connected == lanes {
                    tell(Progress::Connected(slowest));
                }
            }
            News::Mark(mark) => {
                if let Some(interval) = marks.add(lane, mark) {
                    tell(interval);
                }
            }
            News::Sample(sample) => tell(Progress::Sample { lane, sample }),
            News::Finished(lane) => finished.push(*lane),
            News::Failed(reason) => {
                failure.get_or_insert(BenchError::Closed(reason));
                stop.set();
            }
        }
    }
    match failure {
        Some(failure) => Err(failure),
        None if finished.len() as u64 == u64::from(lanes) => Ok(finished),
        None => Err(BenchError::Silent),
    }
}

/// Puts the marks of the parallel sessions together.
struct Marks {
    /// Marks of each session that not every session has matched yet.
    waiting: Vec<VecDeque<Mark>>,
    last: Mark,
}

impl Marks {
    fn new(lanes: u32) -> Self {
        Self {
            waiting: (0..lanes).map(|_| VecDeque::new()).collect(),
            last: Mark::default(),
        }
    }

    /// Interval that ends where every session has now been.
    fn add(&mut self, lane: u32, mark: Mark) -> Option<Progress> {
        let lane = usize::try_from(lane).ok()?;
        self.waiting.get_mut(lane)?.push_back(mark);
        if self.waiting.iter().any(VecDeque::is_empty) {
            return None;
        }
        let mut now = Mark::default();
        for mark in self.waiting.iter_mut().filter_map(VecDeque::pop_front) {
            now.at = now.at.max(mark.at);
            now.bytes = now.bytes.saturating_add(mark.bytes);
            let sum = now.datagrams.unwrap_or_default();
            now.datagrams = mark.datagrams.map(|more| sum.and(more));
        }
        let last = std::mem::replace(&mut self.last, now);
        let before = last.datagrams.unwrap_or_default();
        Some(Progress::Interval(Span {
            from: Duration::from_nanos(last.at),
            to: Duration::from_nanos(now.at),
            bytes: now.bytes.saturating_sub(last.bytes),
            datagrams: now.datagrams.map(|all| all.since(before)),
        }))
    }
}

/// Serves benches at `listen` until `stop` is set or, if `clients` are counted, as many have been
/// served. `tell` is called with the address where it listens, then with the client of each session that begins or ends.
pub fn serve(
    listen: impl Into<server::Options>,
    protocol: Box<dyn Protocol>,
    bounds: Bounds,
    clients: Option<u64>,
    stop: &Stop,
    tell: &mut (dyn FnMut(SocketAddr, Served) + Send),
) -> Result<(), BenchError> {
    super::payload::prepare();
    let (send, served) = channel();
    let factory = move |peer, _: &Waker| -> Box<dyn App> {
        let send = send.clone();
        // A closed channel is no reason to stop serving.
        let tell = move |served| {
            let _ = send.send((peer, served));
        };
        Box::new(Server::new(bounds, tell))
    };
    let listener = server::Listener::bind(listen, protocol, factory)?;
    tell(listener.local_addr()?, Served::Listening);
    thread::scope(|scope| {
        let count = thread::Builder::new().name("count".into());
        count
            .spawn_scoped(scope, move || {
                hear(&served, clients, tell);
                if clients.is_some() {
                    stop.set();
                }
            })
            .map_err(BenchError::Thread)?;
        listener.run(stop)?;
        Ok(())
    })
}

/// Tells of sessions until none can come, or until as many `clients` have been served, one after the other: each
/// ends with its last session.
fn hear(
    served: &Receiver<(SocketAddr, Served)>,
    mut clients: Option<u64>,
    tell: &mut dyn FnMut(SocketAddr, Served),
) {
    let mut lanes_left = None;
    while clients != Some(0)
        && let Ok((peer, served)) = served.recv()
    {
        tell(peer, served);
        match served {
            Served::Began(request) => {
                lanes_left.get_or_insert(request.lanes);
            }
            Served::Listening => {}
            Served::Ended { .. } => {
                lanes_left = lanes_left.map(|n: u32| n.saturating_sub(1));
                if lanes_left == Some(0) {
                    lanes_left = None;
                    clients = clients.map(|n| n.saturating_sub(1));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Limit, Request};

    #[test]
    fn an_interval_ends_when_every_lane_has_been_there() {
        let mut marks = Marks::new(2);
        let mark = |at, bytes| Mark {
            at,
            bytes,
            datagrams: None,
        };
        assert_eq!(marks.add(0, mark(10, 100)), None);
        assert_eq!(marks.add(0, mark(20, 300)), None);
        let interval = |from, to, bytes| {
            let (from, to) = (Duration::from_nanos(from), Duration::from_nanos(to));
            Some(Progress::Interval(Span {
                from,
                to,
                bytes,
                datagrams: None,
            }))
        };
        assert_eq!(marks.add(1, mark(11, 50)), interval(0, 11, 150));
        assert_eq!(marks.add(1, mark(20, 60)), interval(11, 20, 210));
        assert_eq!(marks.add(7, mark(20, 60)), None);
    }

    #[test]
    fn a_client_goes_with_its_last_lane() {
        let (send, served) = channel();
        let peer = ([127, 0, 0, 1], 1).into();
        let request = Request {
            reverse: false,
            limit: Limit::Bytes(1),
            lanes: 2,
            lane: 0,
            constant: None,
        };
        for _ in 0..2 {
            send.send((peer, Served::Began(request))).unwrap();
        }
        for _ in 0..3 {
            let ended = Served::Ended {
                bytes: 1,
                took: Duration::ZERO,
                whole: true,
            };
            send.send((peer, ended)).unwrap();
        }
        let mut told = 0;
        hear(&served, Some(1), &mut |_, _| told += 1);
        assert_eq!((told, served.try_iter().count()), (4, 1));
        hear(&served, Some(0), &mut |_, _| told += 1);
        assert_eq!(told, 4);
    }
}

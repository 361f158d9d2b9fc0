//! Describes a simulation as plain data: links and the ways over them, flows and cross traffic with
//! their times, a duration and a seed.

use std::time::Duration;

use farhaul_core::{datagram::MAX_SEGMENTS, time::Instant, units::Rate};
use farhaul_link::{ConfigError, PathConfig};

use crate::disk::DiskConfig;

/// One run of the simulator.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Link 0, from clients to servers, for every flow without a route.
    pub forward: PathConfig,
    /// Link 1, from servers to clients, for every flow without a route.
    pub back: PathConfig,
    /// Further links, numbered from 2. A link is one direction of one hop; a host's interface is one.
    pub links: Vec<PathConfig>,
    /// Ways over several links.
    pub routes: Vec<Route>,
    /// The flows.
    pub flows: Vec<FlowConfig>,
    /// Traffic that does not listen.
    pub cross: Vec<CrossConfig>,
    /// Bytes that every packet takes on every link beyond its IP length: 38 on Ethernet (preamble,
    /// header, check sequence, gap).
    pub framing: u32,
    /// Virtual time simulated at most; the run ends earlier when every flow is over.
    pub duration: Duration,
    /// All randomness is derived from it.
    pub seed: u64,
    /// Between the points of the time series; zero for none.
    pub interval: Duration,
    /// Interval of queue samples, for mean and percentiles; zero for none.
    pub queue_interval: Duration,
    /// Longest distance on arrival at which segments of one batch are still handed over together,
    /// as by a receiver's offload. Zero hands over every datagram alone.
    pub coalesce: Duration,
    /// The MTU of the hosts' own interfaces, given to the client; the path's may be smaller.
    pub interface_mtu: Option<u32>,
    /// Segments a host may hand over at once; 1 is a host without segmentation offload.
    pub max_segments: usize,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            forward: PathConfig::default(),
            back: PathConfig::default(),
            links: Vec::new(),
            routes: Vec::new(),
            cross: Vec::new(),
            framing: 0,
            queue_interval: Duration::ZERO,
            coalesce: Duration::from_millis(1),
            flows: vec![FlowConfig::default()],
            duration: Duration::from_secs(10),
            seed: 1,
            interval: Duration::from_millis(100),
            interface_mtu: None,
            max_segments: MAX_SEGMENTS,
        }
    }
}

/// One client that sends to one server.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowConfig {
    /// Time at which the client connects.
    pub start: Duration,
    /// Time at which the client closes, finished or not.
    pub stop: Option<Duration>,
    /// Bytes that the flow sends before it closes; endless if not given.
    pub bytes: Option<u64>,
    /// Bytes of each of the client's writes, no two of which share a packet; as much as fits each
    /// packet if not given.
    pub write: Option<u64>,
    /// One-way delay of this flow on top of the path's, in each direction.
    pub extra_delay: Duration,
    /// The disk behind the receiver; it accepts everything at once if not given.
    pub disk: Option<DiskConfig>,
    /// Index into [`Scenario::routes`]; over links 0 and 1 if not given.
    pub route: Option<usize>,
}

/// The links that a flow's packets cross, by number and in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Links from the client to the server.
    pub forward: Vec<usize>,
    /// Links from the server to the client.
    pub back: Vec<usize>,
}

/// Unresponsive datagrams at a constant rate while on.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossConfig {
    /// The links crossed, by number and in order.
    pub links: Vec<usize>,
    /// Rate while on, counted in IP packets.
    pub rate: Rate,
    /// Length of every packet, with its IP header.
    pub packet: u32,
    /// Time at which the traffic begins.
    pub start: Duration,
    /// Time at which the traffic ends; with the run if not given.
    pub stop: Option<Duration>,
    /// Durations of bursts and pauses; always on if not given.
    pub bursts: Option<Bursts>,
    /// Every gap between packets is uniform in `1 - jitter ..= 1 + jitter` of its mean, 0 to 1.
    pub jitter: f64,
}

/// A source that is now on, now off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// Time for which a burst sends.
    pub on: Duration,
    /// Length of the pause.
    pub off: Duration,
    /// True if both are means of exponential distributions, rather than constant.
    pub random: bool,
}

/// Reason why a scenario could not be run to its end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The path towards the servers.
    #[error("forward path: {0}")]
    Forward(ConfigError),
    /// The path back.
    #[error("path back: {0}")]
    Back(ConfigError),
    /// A further link.
    #[error("link {link}: {error}")]
    Link {
        /// Number of the link.
        link: usize,
        /// Mistake in the link's configuration.
        error: ConfigError,
    },
    /// A way over no link, or over one that does not exist.
    #[error("{what} {index} crosses no link, or one that is not there")]
    Route {
        /// `route` or `cross traffic`.
        what: &'static str,
        /// Index of the route.
        index: usize,
    },
    /// Cross traffic that could never be sent.
    #[error("cross traffic {cross}: {problem}")]
    Cross {
        /// Index of the cross traffic.
        cross: usize,
        /// Mistake in the cross traffic.
        problem: &'static str,
    },
    /// There is nothing to simulate.
    #[error("a scenario needs at least one flow, and at most {0}")]
    Flows(usize),
    /// A flow that could never do anything.
    #[error("flow {flow}: {problem}")]
    Flow {
        /// Index of the flow.
        flow: usize,
        /// Mistake in the flow.
        problem: &'static str,
    },
    /// On a path that takes no time a session that nothing else slows down sends without end.
    #[error(
        "flow {flow}: with this rate and no round-trip time its packets take no time, and their number is \
         unlimited: such a rate needs a round-trip time, or a sender limited by a rate of its own"
    )]
    Instant {
        /// Index of the flow.
        flow: usize,
    },
    /// The run was stopped by its caller; see [`run_until`](crate::run_until).
    #[error("stopped at {at}")]
    Stopped {
        /// Time of the stop.
        at: Instant,
    },
    /// A session keeps sending or requesting turns while time does not advance.
    #[error("flow {flow}: the {side} never becomes idle at {at}")]
    Livelock {
        /// Index of the flow.
        flow: usize,
        /// `client` or `server`.
        side: &'static str,
        /// Time of the livelock.
        at: Instant,
    },
}

/// Rate at which a packet takes less than the nanosecond of virtual time, or a few of them.
const INSTANT: Rate = Rate::gbit(10_000);
/// The most flows in a scenario.
const MAX_FLOWS: usize = 10_000;

impl Scenario {
    /// One endless flow over `path` in both directions, between hosts whose interfaces have its MTU.
    #[must_use]
    pub fn over(path: PathConfig) -> Self {
        Self {
            interface_mtu: path.mtu,
            back: path.clone(),
            forward: path,
            ..Self::default()
        }
    }

    /// The configuration of link `number`.
    pub fn link(&self, number: usize) -> Option<&PathConfig> {
        match number {
            0 => Some(&self.forward),
            1 => Some(&self.back),
            _ => self.links.get(number - 2),
        }
    }

    /// Count of links.
    pub const fn link_count(&self) -> usize {
        2 + self.links.len()
    }

    /// The links of a flow, there and back.
    pub fn ways(&self, flow: &FlowConfig) -> [&[usize]; 2] {
        match flow.route.and_then(|r| self.routes.get(r)) {
            Some(route) => [&route.forward, &route.back],
            None => [&[0], &[1]],
        }
    }

    /// True if packets of the flow `index` take no time, as far as its links are known to begin with.
    pub(crate) fn is_instant(&self, index: usize) -> bool {
        let Some(flow) = self.flows.get(index) else {
            return false;
        };
        let takes_none = |link: &usize| {
            self.link(*link)
                .is_none_or(|c| c.rate >= INSTANT && c.delay.is_zero())
        };
        flow.extra_delay.is_zero() && self.ways(flow)[0].iter().all(takes_none)
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        self.forward.validate().map_err(Error::Forward)?;
        self.back.validate().map_err(Error::Back)?;
        for (i, config) in self.links.iter().enumerate() {
            let link = i + 2;
            config
                .validate()
                .map_err(|error| Error::Link { link, error })?;
        }
        let exists = |links: &[usize]| {
            !links.is_empty() && links.iter().all(|link| *link < self.link_count())
        };
        for (index, route) in self.routes.iter().enumerate() {
            if !exists(&route.forward) || !exists(&route.back) {
                let what = "route";
                return Err(Error::Route { what, index });
            }
        }
        self.validate_cross(exists)?;
        self.validate_flows()
    }

    fn validate_cross(&self, exists: impl Fn(&[usize]) -> bool) -> Result<(), Error> {
        for (cross, config) in self.cross.iter().enumerate() {
            if !exists(&config.links) {
                let what = "cross traffic";
                return Err(Error::Route { what, index: cross });
            }
            let problem = if config.rate == Rate::ZERO || config.rate == Rate::UNLIMITED {
                "its rate must be more than zero and less than unlimited"
            } else if config.packet < crate::network::HEADERS {
                "its packets cannot be shorter than their headers of 28 bytes"
            } else if config.stop.is_some_and(|stop| stop <= config.start) {
                "it stops before it starts"
            } else if config.bursts.is_some_and(|b| b.on.is_zero()) {
                "it is never on"
            } else if !(0.0..=1.0).contains(&config.jitter) {
                "its jitter is a share from 0 to 1"
            } else {
                continue;
            };
            return Err(Error::Cross { cross, problem });
        }
        Ok(())
    }

    fn validate_flows(&self) -> Result<(), Error> {
        if self.flows.is_empty() || self.flows.len() > MAX_FLOWS {
            return Err(Error::Flows(MAX_FLOWS));
        }
        for (flow, config) in self.flows.iter().enumerate() {
            let problem = if config.bytes == Some(0) {
                "it has nothing to send; give at least one byte"
            } else if config.write == Some(0) {
                "its writes have no bytes; give at least one"
            } else if config.stop.is_some_and(|stop| stop <= config.start) {
                "it stops before it starts"
            } else if config.route.is_some_and(|r| r >= self.routes.len()) {
                "its route is not there"
            } else {
                continue;
            };
            return Err(Error::Flow { flow, problem });
        }
        Ok(())
    }
}

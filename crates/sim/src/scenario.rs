//! What is simulated? Plain data: a path each way, flows with their times, a duration and a seed.

use std::time::Duration;

use farhaul_core::{datagram::MAX_SEGMENTS, time::Instant};
use farhaul_link::{ConfigError, PathConfig};

/// One run of the simulator.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// From clients to servers; shared by all flows.
    pub forward: PathConfig,
    /// From servers to clients; shared by all flows.
    pub back: PathConfig,
    /// Who sends what, when.
    pub flows: Vec<FlowConfig>,
    /// Virtual time simulated at most; the run ends earlier when every flow is over.
    pub duration: Duration,
    /// All randomness comes from it.
    pub seed: u64,
    /// Between the points of the time series; zero for none.
    pub interval: Duration,
    /// The MTU of the hosts' own interfaces, told to the client; the path's may be smaller.
    pub interface_mtu: Option<u32>,
    /// Segments a host may hand over at once; 1 is a host without segmentation offload.
    pub max_segments: usize,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            forward: PathConfig::default(),
            back: PathConfig::default(),
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
    /// When the client connects.
    pub start: Duration,
    /// When the client closes, finished or not.
    pub stop: Option<Duration>,
    /// How much it sends before it closes; endless if not said.
    pub bytes: Option<u64>,
    /// One-way delay of this flow on top of the path's, in each direction.
    pub extra_delay: Duration,
}

/// Why a scenario could not be run to its end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The path towards the servers.
    #[error("forward path: {0}")]
    Forward(ConfigError),
    /// The path back.
    #[error("path back: {0}")]
    Back(ConfigError),
    /// Nothing to simulate.
    #[error("a scenario needs at least one flow, and at most {0}")]
    Flows(usize),
    /// A flow that could never do anything.
    #[error("flow {flow}: {problem}")]
    Flow {
        /// Index of the flow.
        flow: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A session keeps sending or asking for turns while time stands still.
    #[error("flow {flow}: the {side} never comes to rest at {at}")]
    Livelock {
        /// Index of the flow.
        flow: usize,
        /// `client` or `server`.
        side: &'static str,
        /// When.
        at: Instant,
    },
}

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

    pub(crate) fn validate(&self) -> Result<(), Error> {
        self.forward.validate().map_err(Error::Forward)?;
        self.back.validate().map_err(Error::Back)?;
        if self.flows.is_empty() || self.flows.len() > MAX_FLOWS {
            return Err(Error::Flows(MAX_FLOWS));
        }
        for (flow, config) in self.flows.iter().enumerate() {
            let problem = if config.bytes == Some(0) {
                "it has nothing to send; give at least one byte"
            } else if config.stop.is_some_and(|stop| stop <= config.start) {
                "it stops before it starts"
            } else {
                continue;
            };
            return Err(Error::Flow { flow, problem });
        }
        Ok(())
    }
}

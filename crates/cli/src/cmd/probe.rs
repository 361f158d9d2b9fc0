//! `farhaul _probe`: the two ends of a measurement of the emulator that uses none of its counters, for the
//! study `calibration`.

use std::{
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use farhaul_core::{
    time::nanos,
    units::{Rate, Size},
};
use farhaul_lab::probe::{self, Expected, Mode, Paced, Plan, ProbeError, Stream};
use farhaul_link::{Reorder, duration, share};

use crate::{
    exit::{Exit, Failure},
    out,
    typed::{address, whole},
};

/// Arguments.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// Record what arrives for clients, one after the other
    Serve {
        /// Listening address
        #[arg(value_parser = address)]
        listen: SocketAddr,
        /// End after so many clients
        #[arg(long, value_name = "N", value_parser = whole(1..=1_000_000))]
        clients: Option<u64>,
    },
    /// Measure, and print one JSON object
    Send {
        /// The server
        #[arg(value_parser = address)]
        to: SocketAddr,
        #[command(subcommand)]
        mode: Box<Measure>,
    },
}

/// Measurements.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Measure {
    /// Paced packets: delay error, loss, order, copies
    Paced {
        #[command(flatten)]
        network: Network,
        /// Number of packets
        #[arg(long, value_name = "N", default_value_t = 2_000)]
        packets: u64,
        /// One in this time
        #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = duration)]
        every: Duration,
    },
    /// A stream of 105 % of the rate of the link: what arrives
    Rate {
        #[command(flatten)]
        network: Network,
        #[command(flatten)]
        stream: Streamed,
    },
    /// Bursts into an idle queue: its limit
    Queue {
        #[command(flatten)]
        network: Network,
        /// The queue's limit, as 18MB or 64packets (of --size)
        #[arg(long, value_name = "SIZE")]
        queue: String,
        /// Number of bursts
        #[arg(long, value_name = "N", default_value_t = 5)]
        repeat: u64,
        /// One packet per system call
        #[arg(long)]
        single: bool,
    },
    /// A full link: delay error of paced packets, and the rate
    Full {
        #[command(flatten)]
        network: Network,
        #[command(flatten)]
        stream: Streamed,
        /// One paced packet in this time
        #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = duration)]
        every: Duration,
    },
}

/// Configuration of the network.
#[derive(Debug, clap::Args)]
pub(crate) struct Network {
    /// Bytes per packet, with IP and UDP headers
    #[arg(long, value_name = "BYTES", default_value_t = 1_000)]
    size: u32,
    /// One-way delay
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = duration)]
    delay: Duration,
    /// Rate of the slowest link; without it, its service time counts as delay error
    #[arg(long, value_name = "RATE")]
    link_rate: Option<Rate>,
    /// Mean loss
    #[arg(long, value_name = "SHARE", value_parser = share)]
    loss: Option<f64>,
    /// Packets per burst of losses
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    burst: f64,
    /// Share held back, and by how much, as in 1%,2ms
    #[arg(long, value_name = "SHARE,TIME")]
    reorder: Option<Reorder>,
    /// Share delivered twice
    #[arg(long, value_name = "SHARE", value_parser = share)]
    duplicate: Option<f64>,
}

/// A stream.
#[derive(Debug, clap::Args)]
pub(crate) struct Streamed {
    /// Duration of the stream
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration)]
    time: Duration,
    /// One packet per system call
    #[arg(long)]
    single: bool,
    /// The queue's limit, as 18MB or 64packets (of --size); half of it is filled
    #[arg(long, value_name = "SIZE", default_value = "18MB")]
    queue: String,
}

impl Streamed {
    fn stream(&self, size: u32) -> Result<Stream, Failure> {
        Ok(Stream {
            time: self.time,
            gso: !self.single,
            limit: limit(&self.queue, size)?,
        })
    }
}

impl Measure {
    fn plan(&self) -> Result<Plan, Failure> {
        let (network, mode) = match self {
            Self::Paced {
                network,
                packets,
                every,
            } => {
                let (packets, every) = (*packets, *every);
                (network, Mode::Paced(Paced { packets, every }))
            }
            Self::Rate { network, stream } => (network, Mode::Rate(stream.stream(network.size)?)),
            Self::Queue {
                network,
                queue,
                repeat,
                single,
            } => {
                let limit = limit(queue, network.size)?;
                let (repeat, gso) = (*repeat, !single);
                (network, Mode::Queue { limit, repeat, gso })
            }
            Self::Full {
                network,
                stream,
                every,
            } => {
                let mode = Mode::Full {
                    stream: stream.stream(network.size)?,
                    every: *every,
                };
                (network, mode)
            }
        };
        if !(1.0..=1e6).contains(&network.burst) {
            return Err(Failure::usage(format!(
                "--burst {}: give 1 (independent losses) or more packets",
                network.burst
            )));
        }
        let size = network.size;
        let expected = network.expected();
        Ok(Plan {
            mode,
            size,
            expected,
        })
    }
}

impl Network {
    fn expected(&self) -> Expected {
        Expected {
            delay_ns: nanos(self.delay),
            link_rate: self.link_rate.map_or(0, Rate::bps),
            loss: self.loss,
            burst: self.burst,
            reorder: self.reorder.map(|reorder| reorder.share),
            reorder_by_ns: self.reorder.map_or(0, |reorder| nanos(reorder.by)),
            duplicate: self.duplicate,
        }
    }
}

/// Bytes of a queue as written.
fn limit(text: &str, size: u32) -> Result<u64, Failure> {
    let wrong = |why: String| Failure::usage(format!("--queue {text}: {why}"));
    if let Some(count) = text.strip_suffix("packets") {
        let count: u32 = count
            .parse()
            .map_err(|_| wrong("write a whole number, as in 64packets".into()))?;
        return Ok(u64::from(count) * u64::from(size));
    }
    let size: Size = text.parse().map_err(|e| wrong(format!("{e}")))?;
    Ok(size.bytes())
}

/// Runs one end.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args {
        Args::Serve { listen, clients } => {
            let listener = TcpListener::bind(listen).map_err(|e| {
                let text = format!("cannot listen at {listen}: {e}");
                Failure::new(Exit::NetSetup, text)
                    .fix("choose an address of this host and a free port")
            })?;
            probe::serve(&listener, clients, |e| errln!("farhaul: {e}")).map_err(failure)
        }
        Args::Send { to, mode } => {
            let report = probe::send(to, &mode.plan()?).map_err(failure)?;
            out::json(&report);
            Ok(())
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "a mapping for map_err")]
fn failure(error: ProbeError) -> Failure {
    let text = error.to_string();
    match error {
        ProbeError::Usage(_) => Failure::usage(text),
        ProbeError::NoServer(to, _) => Failure::new(Exit::ConnectionLost, text)
            .fix(format!("start 'farhaul _probe serve {to}' there")),
        ProbeError::NoProbe(_) => Failure::new(Exit::Protocol, text)
            .fix("check the port, and run the same version at both ends"),
        ProbeError::NothingArrived(_) => Failure::new(Exit::UdpBlocked, text)
            .fix("check that UDP passes, and that --size is at most the MTU"),
        _ => Failure::new(Exit::ConnectionLost, text),
    }
}

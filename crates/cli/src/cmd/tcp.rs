//! `farhaul _tcp`: the two ends of a TCP blast, for commands that compare with it.

use std::{
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use farhaul_core::time::nanos;
use farhaul_measure::{bench::Limit, tcp};

use crate::{
    exit::{Exit, Failure},
    out,
    typed::{bare_seconds, size},
};

/// Arguments.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// Take one connection and count
    Serve {
        /// Listening address
        listen: SocketAddr,
    },
    /// Write for a time, or so many bytes
    Blast {
        /// Server's address
        to: SocketAddr,
        /// The kernel's congestion law
        law: String,
        /// Duration, connecting included
        #[arg(long, value_name = "TIME", value_parser = bare_seconds, conflicts_with = "bytes", required_unless_present = "bytes")]
        time: Option<Duration>,
        /// Amount to write instead
        #[arg(long, value_name = "SIZE", value_parser = size)]
        bytes: Option<u64>,
        /// Between the parts of the series; 0 for none
        #[arg(long, value_name = "TIME", default_value = "0", value_parser = bare_seconds)]
        interval: Duration,
        /// Longest packet, with its IP header; the interface's by default
        #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..=65_521))]
        mtu: Option<u32>,
    },
}

/// Runs one end.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let failed = |e: tcp::TcpError| Failure::new(Exit::ConnectionLost, e.to_string());
    match args {
        Args::Serve { listen } => {
            let listener = TcpListener::bind(listen)
                .map_err(|e| Failure::new(Exit::NetSetup, format!("{listen}: {e}")))?;
            tcp::serve(&listener, 1).map_err(failed)
        }
        Args::Blast {
            to,
            law,
            time,
            bytes,
            interval,
            mtu,
        } => {
            let time = Limit::Nanos(nanos(time.unwrap_or_default()));
            let how = tcp::Blast {
                law,
                limit: bytes.map_or(time, Limit::Bytes),
                interval,
                mtu,
            };
            let report = tcp::blast(to, &how).map_err(failed)?;
            out::json(&report);
            Ok(())
        }
    }
}

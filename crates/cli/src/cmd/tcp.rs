//! `farhaul _tcp`: the two ends of a TCP blast, for commands that compare with it.

use std::{
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use farhaul_lab::tcp;

use crate::{
    exit::{Exit, Failure},
    out,
};

/// Arguments.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// Take one connection and count
    Serve {
        /// Where
        listen: SocketAddr,
    },
    /// Write for so many seconds
    Blast {
        /// Where to
        to: SocketAddr,
        /// The kernel's congestion law
        law: String,
        /// Seconds
        seconds: u64,
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
        Args::Blast { to, law, seconds } => {
            let report = tcp::blast(to, &law, Duration::from_secs(seconds)).map_err(failed)?;
            out::json(&report);
            Ok(())
        }
    }
}

//! `farhaul _delay`: round trips of one packet by the kernel's UDP or TCP, for runs that measure the end systems.

use std::{io, net::SocketAddr, time::Duration};

use farhaul_measure::delay::{self, Trips};

use crate::{
    exit::{Exit, Failure},
    out,
    typed::bare_seconds,
};

/// Arguments.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// Send every packet of one client back
    Serve {
        transport: Transport,
        /// Listening address
        listen: SocketAddr,
        #[command(flatten)]
        packet: Packet,
    },
    /// Send packets, one after the other
    Ask {
        transport: Transport,
        /// Server's address
        to: SocketAddr,
        #[command(flatten)]
        packet: Packet,
        /// Number of packets
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        count: u32,
        /// Longest duration
        #[arg(long, value_name = "TIME", value_parser = bare_seconds)]
        time: Duration,
    },
}

/// Transport of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Transport {
    Udp,
    Tcp,
}

/// Length of a packet.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Packet {
    /// Bytes of a packet, with its IP header
    #[arg(long = "packet", value_name = "BYTES", default_value_t = 1_500, value_parser = clap::value_parser!(u32).range(64..=65_521))]
    bytes: u32,
}

/// Runs one end.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let failed =
        |at: SocketAddr| move |e: io::Error| Failure::new(Exit::NetSetup, format!("{at}: {e}"));
    let trips = |transport, packet: Packet, count| Trips {
        tcp: transport == Transport::Tcp,
        packet: packet.bytes,
        count,
    };
    match *args {
        Args::Serve {
            transport,
            listen,
            packet,
        } => delay::serve(listen, trips(transport, packet, 1)).map_err(failed(listen)),
        Args::Ask {
            transport,
            to,
            packet,
            count,
            time,
        } => {
            let found = delay::ask(to, trips(transport, packet, count), time);
            out::json(&found.map_err(failed(to))?);
            Ok(())
        }
    }
}

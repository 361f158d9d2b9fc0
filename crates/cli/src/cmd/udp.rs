//! `farhaul _udp`: datagrams at a fixed rate, and who counts them, for runs with cross traffic.

use std::{io, net::SocketAddr, time::Duration};

use farhaul_core::units::Rate;
use farhaul_measure::udp::{self, Setting};

use crate::{
    exit::{Exit, Failure},
    out,
    typed::bare_seconds,
};

/// Arguments.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// Count what one sender sends
    Serve {
        /// Listening address
        listen: SocketAddr,
        /// Between the parts of the series; 0 for none
        #[arg(long, value_name = "TIME", default_value = "0", value_parser = bare_seconds)]
        interval: Duration,
        #[command(flatten)]
        socket: Socket,
    },
    /// Send for a time
    Blast {
        /// Server's address
        to: SocketAddr,
        /// Of IP packets
        #[arg(long, value_name = "RATE")]
        rate: Rate,
        /// Bytes of a packet, with its IP header
        #[arg(long, value_name = "BYTES", default_value_t = 1_500, value_parser = clap::value_parser!(u32).range(64..=65_521))]
        packet: u32,
        /// Duration
        #[arg(long, value_name = "TIME", value_parser = bare_seconds)]
        time: Duration,
        /// Look for the highest rate, not above RATE, at which less than this share is lost
        #[arg(long, value_name = "SHARE", value_parser = share)]
        loss: Option<f64>,
        /// Packets longer than the MTU leave as fragments
        #[arg(long)]
        fragments: bool,
        #[command(flatten)]
        socket: Socket,
    },
}

/// Options of the socket.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Socket {
    /// Bytes of its buffer; the program's own if not given
    #[arg(long, value_name = "BYTES")]
    buffer: Option<usize>,
    /// One packet in each call of the kernel
    #[arg(long)]
    plain: bool,
}

impl From<Socket> for Setting {
    fn from(socket: Socket) -> Self {
        Self {
            buffer: socket.buffer,
            plain: socket.plain,
            fragments: false,
        }
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share < 1.0 => Ok(share),
        _ => Err("a share is a number above 0 and below 1, as 0.001".into()),
    }
}

/// Runs one end.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let failed =
        |at: SocketAddr| move |e: io::Error| Failure::new(Exit::NetSetup, format!("{at}: {e}"));
    match *args {
        Args::Serve {
            listen,
            interval,
            socket,
        } => {
            out::json(&udp::serve(listen, interval, socket.into()).map_err(failed(listen))?);
        }
        Args::Blast {
            to,
            rate,
            packet,
            time,
            loss,
            fragments,
            socket,
        } => {
            let setting = Setting {
                fragments,
                ..socket.into()
            };
            let sent = match loss {
                Some(limit) => udp::highest(to, (rate, limit), packet, time, setting),
                None => udp::blast(to, rate, packet, time, setting),
            };
            out::json(&sent.map_err(failed(to))?);
        }
    }
    Ok(())
}

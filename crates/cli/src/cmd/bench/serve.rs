//! The end of a bench that waits.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use farhaul_core::{
    congestion::Sharing,
    units::{Rate, Size},
};
use farhaul_measure::bench::{self, Bounds, Limit, Request, Served};
use farhaul_measure::registry;
use serde_json::{Value, json};

use super::{How, failure, kernel, usage};
use crate::{
    app::console::Console,
    exit::{Exit, Failure},
    out,
    place::PORT,
    typed::{duration, listen},
    when,
};

/// The waiting end.
#[derive(Debug, clap::Args)]
pub(super) struct Serve {
    /// Address to listen on
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), PORT), value_parser = listen)]
    listen: SocketAddr,
    /// End after one client
    #[arg(short = '1', long)]
    one_off: bool,
    /// Allowed clients: a public key (repeatable), or "any"
    #[arg(long, value_name = "KEY|any", default_value = "any")]
    allow: Vec<String>,
    /// Largest share of a link that clients may use
    #[arg(long, value_name = "low|fair|high", default_value_t)]
    max_policy: Sharing,
    /// Longest run that a client may request, as in 1h
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    max_time: Duration,
    /// Serve the kernel's TCP too, on the TCP port of the same number, to anybody
    #[arg(long)]
    tcp: bool,
    #[command(flatten)]
    how: How,
}

impl Serve {
    pub(super) fn run(&self, console: &dyn Console) -> Result<(), Failure> {
        self.served(console)?;
        if self.how.json {
            out::json(&object());
        }
        Ok(())
    }

    pub(super) fn served(&self, console: &dyn Console) -> Result<(), Failure> {
        if self.tcp && console.is_inside() {
            return Err(Failure::usage(
                "--tcp serves until its process ends: run `farhaul bench serve --tcp`",
            ));
        }
        let entry = registry::protocol(&self.how.protocol).map_err(usage)?;
        let mut choice = self.how.choice(console)?;
        if !self.allow.iter().any(|a| a == "any") {
            choice.peers.clone_from(&self.allow);
        }
        let protocol = entry.server(&choice).map_err(usage)?;
        let bounds = Bounds {
            time: self.max_time,
            sharing: self.max_policy,
            constant: self.max_policy != Sharing::Low,
            ..Bounds::default()
        };
        let stop = console.stop()?;
        let clients = self.one_off.then_some(1);
        let mut kernel = Ok(());
        let silent = self.how.json || console.is_inside();
        let mut tell = |at: SocketAddr, served| {
            if let Some(text) = said(served).filter(|_| !silent) {
                errln!("{} {at} {text}", when::now());
            }
            if served != Served::Listening {
                return;
            }
            // Only now is the number of the port known.
            if self.tcp {
                kernel = kernel::serve(at, self.max_time);
                if kernel.is_err() {
                    stop.set();
                    return;
                }
            }
            let at_once = json!({ "type": "listening", "address": at.to_string() });
            if console.is_inside() {
                console.event(&at_once);
            } else {
                errln!("bench server at {at} with {}", entry.descriptor.name);
            }
        };
        let served = bench::serve(self.listen, protocol, bounds, clients, &stop, &mut tell);
        served.map_err(|e| {
            let mut failure = failure::served(&e);
            if failure.exit == Exit::NetSetup {
                failure.text += "; choose another address with --listen";
            }
            failure
        })?;
        kernel
    }
}

/// The object of `--json`.
pub(super) fn object() -> Value {
    json!({ "schema": "farhaul.bench.serve/1", "ok": true })
}

/// Shortest time from which a rate is computed.
const TURN: Duration = Duration::from_millis(1);

/// Task or result of a session, in words; nothing where another session of the client said it.
fn said(served: Served) -> Option<String> {
    match served {
        Served::Listening => None,
        Served::Began(request) => (request.lane == 0).then(|| asked(request)),
        Served::Ended {
            bytes, took, whole, ..
        } => {
            let (size, rate) = (Size::from_bytes(bytes), Rate::of(bytes, took.max(TURN)));
            let how = if whole { "" } else { ", broken off" };
            Some(format!(
                "{size} in {:.2} s, {rate}{how}",
                took.as_secs_f64()
            ))
        }
    }
}

fn asked(request: Request) -> String {
    let does = if request.reverse { "receives" } else { "sends" };
    let limit = match request.limit {
        Limit::Nanos(n) => format!("for {:?}", Duration::from_nanos(n)),
        Limit::Bytes(bytes) => Size::from_bytes(bytes).to_string(),
    };
    let constant = request
        .constant
        .map(|rate| format!(" at a constant {rate}"));
    let lanes = (request.lanes > 1).then(|| format!(" in each of {} sessions", request.lanes));
    format!(
        "{does} {limit}{}{}",
        constant.unwrap_or_default(),
        lanes.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_told_once_for_each_client() {
        let mut request = Request {
            reverse: false,
            limit: Limit::Nanos(10_000_000_000),
            lanes: 2,
            lane: 0,
            constant: Some(Rate::mbit(100)),
        };
        let text = said(Served::Began(request)).expect("the first");
        assert_eq!(
            text,
            "sends for 10s at a constant 100.0 Mbit/s in each of 2 sessions"
        );
        request.lane = 1;
        assert_eq!(said(Served::Began(request)), None);
        let ended = Served::Ended {
            bytes: 1 << 20,
            took: Duration::from_secs(1),
            whole: false,
        };
        assert_eq!(
            said(ended).expect("each"),
            "1.0 MiB in 1.00 s, 8.4 Mbit/s, broken off"
        );
    }
}

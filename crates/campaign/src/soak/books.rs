//! Runs sessions that are long in packets and short in virtual time. Keys change thousands of
//! times, and packet numbers pass 2^32 although the wire carries 32 bits of them.

use std::{io, ops::Range, time::Duration};

use farhaul_core::{protocol::Protocol, rng::Rng};
use farhaul_haul::{Haul, HaulConfig};
use farhaul_testkit::{Fate, Pair, Side};

use crate::{Scale, report::Report};

const UPDATES: u64 = 10_000;
/// Datagrams encrypted before the keys change.
const EVERY: u64 = 16;
const DATAGRAM: u32 = 1_472;
/// Distance below 2^32 at which numbers begin.
const BELOW: u64 = 20_000;
const LONGEST: Duration = Duration::from_hours(1);

/// Keys that change, over a path that loses and reorders.
pub(super) fn updates(scale: &Scale, report: &mut Report) {
    let config = |seed: u8| HaulConfig {
        key_update_after: EVERY,
        ..config(seed)
    };
    let run = pair(scale.seed, config, 0).and_then(|mut pair| {
        // The keys wait for round trips, too, so how much it takes depends on the path.
        let (mut sent, part) = (0, UPDATES * EVERY * u64::from(DATAGRAM) / 4);
        while key_updates(&mut pair, Side::Client) < UPDATES && sent < 40 * part {
            pair = transfer(pair, &[Side::Client], sent..sent + part)?;
            sent += part;
        }
        Ok((pair, sent))
    });
    match run {
        Ok((mut pair, sent)) => {
            let [client, server] = [Side::Client, Side::Server].map(|s| key_updates(&mut pair, s));
            report.figure(
                "key updates",
                format!("{client} and {server}, {} MB arrived", sent / 1_000_000),
            );
            if client < UPDATES || client.abs_diff(server) > 1 {
                report.fault(format!(
                    "{client} and {server} key updates, {UPDATES} are owed"
                ));
            }
        }
        Err(error) => report.fault(format!("key updates: {error}")),
    }
    report.ran();
}

/// Packet numbers that pass 2^32 in both directions.
pub(super) fn numbers(scale: &Scale, report: &mut Report) {
    let bytes = BELOW * 3 * u64::from(DATAGRAM);
    let first = (1 << 32) - BELOW;
    let run = pair(scale.seed, config, first)
        .and_then(|pair| transfer(pair, &[Side::Client, Side::Server], 0..bytes));
    match run {
        Ok(mut pair) => {
            for side in [Side::Client, Side::Server] {
                let sent = pair.node(side).session().stats().datagrams_sent;
                report.figure(
                    "packet numbers",
                    format!("{side:?}: {first} to about {}", first + sent),
                );
                if sent <= BELOW * 2 {
                    report.fault(format!("{side:?} sent {sent} datagrams only"));
                }
            }
        }
        Err(error) => report.fault(format!("packet numbers: {error}")),
    }
    report.ran();
}

fn key_updates(pair: &mut Pair, side: Side) -> u64 {
    let session = &pair.node(side).session;
    session.as_ref().map_or(0, |(_, s)| s.stats().key_updates)
}

fn config(seed: u8) -> HaulConfig {
    HaulConfig {
        law: "fixed:rate=20Mbit".into(),
        max_datagram: DATAGRAM,
        ..HaulConfig::new([seed; 32])
    }
}

/// A client and a server whose packet numbers begin at `first`. The path between them loses one
/// datagram in a hundred and delays as many.
fn pair(seed: u64, config: impl Fn(u8) -> HaulConfig, first: u64) -> io::Result<Pair> {
    let mut client = Haul::client(config(1)).map_err(io::Error::other)?;
    let mut server = Haul::server(config(2)).map_err(io::Error::other)?;
    client.number_from(first);
    server.number_from(first);
    let (client, server): (Box<dyn Protocol>, Box<dyn Protocol>) =
        (Box::new(client), Box::new(server));
    let mut rng = Rng::new(seed).fork("path");
    let mut pair =
        Pair::new(client, server, Duration::from_millis(1), seed).with_script(move |_| {
            match rng.below(100) {
                0 => Fate::Drop,
                1 => Fate::Late(Duration::from_micros(300)),
                _ => Fate::Deliver,
            }
        });
    pair.connect(Some(1_500));
    Ok(pair)
}

/// Sends these bytes from each of the sides; the content is checked as it arrives.
fn transfer(mut pair: Pair, from: &[Side], bytes: Range<u64>) -> io::Result<Pair> {
    let connected = |pair: &mut Pair| pair.client.connected() && pair.server.connected();
    let failed = |pair: &Pair, what: &str| io::Error::other(format!("{what}: {pair:?}"));
    if !pair.run(LONGEST, connected) {
        return Err(failed(&pair, "not connected"));
    }
    for side in from {
        let session = pair.node(*side).session();
        session.send(0, bytes.start, bytes.end - bytes.start);
    }
    let arrived = |pair: &mut Pair| {
        from.iter()
            .all(|side| pair.node(side.other()).store.has(0, bytes.end))
    };
    if pair.run(LONGEST, arrived) {
        Ok(pair)
    } else {
        Err(failed(&pair, "not arrived"))
    }
}

//! Examines the way to a server, and why it is not reached.

use std::net::SocketAddr;

use farhaul_core::protocol::CloseReason;
use farhaul_haul::{Haul, PublicKey};
use farhaul_io::tunnel::Answer;
use farhaul_measure::{
    doctor::{Finding, Grade},
    visit::{Idle, Visit, VisitError, visit_by},
};
use serde_json::{Value, json};

use super::{Args, capacity::Capacity, far_disk, report::Report, share, target::Target};
use crate::{
    app::console::Console,
    connect::{Attempt, Carrier, Visitor, udp_or_tunnel},
    exit::{Exit, Failure},
    keys::Known,
    reach::{Unreached, other_key, unopened},
    wait::Wait,
};

/// Name of findings about the server's key.
const KEY: &str = "server's key";

/// Visits the server.
pub(super) fn examine(
    args: &Args,
    target: &mut Target,
    report: &mut Report,
    console: &dyn Console,
) {
    let wait = (!args.json).then(|| Wait::for_answer(&target.typed));
    let visited = target.identity(args, console).and_then(|identity| {
        let reached = reach(target, args, &target.visitor(&identity, args, console))?;
        Ok((identity, reached))
    });
    drop(wait);
    let (identity, reached) = match visited {
        Ok(visited) => visited,
        Err(failure) => {
            report.fail("reached", failure);
            report.path = json!({ "host": target.typed, "address": target.to().to_string() });
            return;
        }
    };
    let Reached { visit, to, around } = reached;
    target.addresses = vec![to];
    let key = visit.peer_key.as_deref().and_then(|k| k.try_into().ok());
    let key = key.map(PublicKey::from_bytes);
    report.add(match &around {
        None => arrived(&target.typed, to, &visit),
        Some(around) => around.finding(&target.typed, to, &visit),
    });
    if let Some(key) = key
        && !is_the_known_one(key, target, report, console)
    {
        // Nothing is measured with, or sent to, somebody else.
        report.path = object(&target.typed, to, &visit, Some(key));
        return;
    }
    report.add(sealed(&visit));
    if around.is_none() {
        report.add(mtu(&visit));
    }
    report.add(rtt(&visit));
    if let Some(idle) = &visit.idle {
        report.add(jitter(idle));
    }
    report.path = object(&target.typed, to, &visit, key);
    let carrier = around
        .as_ref()
        .map_or(Carrier::Udp, |around| around.carrier);
    report.path["carrier"] = carrier.name().into();
    if around.is_some() {
        // What a stream carries says nothing of the path of datagrams.
        return;
    }
    report.add(offloads(&visit));
    let visitor = target.visitor(&identity, args, console);
    // What a ticket is for is not listed.
    if let (Some(share), None) = (target.share.as_deref(), target.server_key())
        && !share::examine(target, share, &visitor, report)
    {
        return;
    }
    if !args.time.is_zero() {
        let capacity = Capacity {
            target,
            visitor: &visitor,
            time: args.time,
        };
        capacity.examine(&visit, report);
    }
    if let Some(share) = target.share.as_deref().filter(|_| args.disk.is_some())
        && report.failure.is_none()
    {
        far_disk::examine(target, share, &visitor, report);
    }
}

/// Reports whose key it is; false if it is another one than `cp` would accept.
fn is_the_known_one(
    key: PublicKey,
    target: &Target,
    report: &mut Report,
    console: &dyn Console,
) -> bool {
    let found = known(target, console).map(|accepted| server_key(&accepted, target, key));
    let other = matches!(found, Ok(Err(_)));
    match found {
        Ok(Ok(finding)) => report.add(finding),
        Ok(Err(failure)) => report.fail(KEY, failure),
        Err(e) => report.add(Finding::new(KEY, Grade::Fair, e.text)),
    }
    !other
}

/// Way in which the server was reached.
struct Reached {
    visit: Visit,
    to: SocketAddr,
    around: Option<Around>,
}

/// A way around blocked UDP.
struct Around {
    carrier: Carrier,
    /// True if datagrams arrived there.
    heard: bool,
}

impl Around {
    fn finding(&self, name: &str, to: SocketAddr, visit: &Visit) -> Finding {
        let direction = if self.heard {
            "from there to here"
        } else {
            "from here to there"
        };
        let (way, port) = (self.carrier.way(), to.port());
        let text = format!(
            "{name} {way} in {:.1} ms; UDP {direction} is blocked (port {port}): copies go {way}, \
             which may be slower",
            ms(visit.connected)
        );
        Finding::new("reached", Grade::Fair, text).fix(format!(
            "open port {port}/udp both ways in every firewall between"
        ))
    }
}

/// Tries UDP at one address after the other, or a way around it where that is blocked.
fn reach(target: &Target, args: &Args, visitor: &Visitor<'_>) -> Result<Reached, Failure> {
    let visit = |by: &Attempt<'_>| {
        // A tunnel's own address says nothing to people.
        let to = match by {
            Attempt::At(to) => *to,
            Attempt::Through(_) => target.to(),
        };
        let haul = Haul::client(visitor.config(by)).map_err(|e| Failure::internal(&e))?;
        let stop = visitor.console.stop()?;
        let socket = by.socket().map_err(|e| Failure::internal(&e))?;
        let visit = visit_by(by.to(), socket, Box::new(haul), Some(stop.clone()));
        let visit = visit.map_err(|e| failure(&e, to, visitor.identity.public()))?;
        Ok((visit, to))
    };
    let found = udp_or_tunnel(
        &target.addresses,
        target.bridge(),
        &args.blocked.ways()?,
        visit,
    )?;
    let ((visit, to), tunnel) = found;
    let around = tunnel.map(|(tunnel, carrier)| Around {
        carrier,
        heard: tunnel.answer() == Answer::Heard,
    });
    Ok(Reached { visit, to, around })
}

/// The keys that `cp` would accept for it.
fn known(target: &Target, console: &dyn Console) -> Result<Vec<PublicKey>, Failure> {
    if let Some(key) = target.server_key() {
        return Ok(vec![key]);
    }
    let known = Known::load(console)?;
    Ok(known.of(&target.name))
}

fn failure(error: &VisitError, to: SocketAddr, own: PublicKey) -> Failure {
    let port = to.port();
    let unreached = match error {
        VisitError::Refused(_) => Some(Unreached::Refused),
        VisitError::Unsent(why) => Unreached::of(&CloseReason::NoAnswer, false, Some(*why)),
        VisitError::Closed(reason) => Unreached::of(reason, false, None),
        _ => None,
    };
    if let Some(unreached) = unreached {
        let failure = unreached.failure("`farhaul serve` or `farhaul bench serve`", to);
        let more = match unreached {
            Unreached::Silent => format!(
                " (there: ufw allow {port}/udp; or: nft add rule inet filter input udp dport {port} accept)"
            ),
            Unreached::Refused => " (HOST:PORT names another)".into(),
            Unreached::Unfinished
            | Unreached::NoWay(_)
            | Unreached::TooLong { .. }
            | Unreached::Rejected => String::new(),
        };
        let fix = format!("{}{more}", failure.fix);
        return failure.fix(fix);
    }
    match error {
        VisitError::Closed(CloseReason::Auth(_) | CloseReason::Denied(_)) => Failure::new(
            Exit::Auth,
            format!(
                "{to} is reached, but does not accept your key {own}: start `farhaul serve` there with --allow {own}"
            ),
        ),
        VisitError::Closed(CloseReason::Version(text)) => {
            Failure::new(Exit::Version, format!("{to} is reached, but: {text}"))
        }
        VisitError::Closed(CloseReason::Local { .. }) => Failure::interrupted(),
        VisitError::Closed(CloseReason::Peer { code, text })
            if *code == u32::from(Exit::Busy.number()) =>
        {
            Failure::new(Exit::Busy, format!("{to}: {text}"))
                .fix("run the same command again later")
        }
        VisitError::Shard(e) => Failure::from(unopened(e)),
        other => Failure::new(Exit::ConnectionLost, format!("{to}: {other}")),
    }
}

fn ms(d: std::time::Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

fn arrived(name: &str, to: SocketAddr, visit: &Visit) -> Finding {
    let text = format!("{name} ({to}/udp) in {:.1} ms", ms(visit.connected));
    Finding::new("reached", Grade::Good, text)
}

/// Finding about the server's key. A server is known as it was named to `cp`: by host and port as
/// typed.
fn server_key(accepted: &[PublicKey], target: &Target, key: PublicKey) -> Result<Finding, Failure> {
    let name = &target.name;
    let good = |text: String| Ok(Finding::new(KEY, Grade::Good, text));
    if target.key_by_ssh() == Some(key) {
        return good("made for this visit, and exchanged through ssh".into());
    }
    if accepted.contains(&key) {
        return good(format!("known: {key}"));
    }
    if accepted.is_empty() {
        return good(format!("not known as {name}: {key}; `cp` would ask"));
    }
    let (text, fix) = other_key(name, target.server_key().is_some(), key);
    Err(Failure::new(Exit::Auth, text).fix(fix))
}

fn sealed(visit: &Visit) -> Finding {
    if visit.sealed {
        Finding::new(
            "sealed",
            Grade::Good,
            "TLS 1.3; every datagram is authenticated",
        )
    } else {
        Finding::new("sealed", Grade::Fair, "no: datagrams travel in clear")
    }
}

fn mtu(visit: &Visit) -> Finding {
    let found = visit.path_mtu;
    match visit.interface_mtu {
        // A path need not carry more than 64 KiB.
        Some(ours) if ours <= 9_216 && found < ours => {
            let text = format!(
                "{found} bytes get through, the interface allows {ours}: the path has a smaller MTU; costs only \
                 processor time"
            );
            Finding::new("path MTU", Grade::Fair, text)
        }
        _ => Finding::new("path MTU", Grade::Good, format!("{found} bytes")),
    }
}

fn rtt(visit: &Visit) -> Finding {
    if visit.stats.rtt_min.is_none() {
        let text = "unknown: no probe was answered; try again";
        return Finding::new("round trip", Grade::Fair, text);
    }
    let show =
        |d: Option<std::time::Duration>| d.map_or_else(|| "?".into(), |d| format!("{:.2}", ms(d)));
    let text = format!(
        "{} ms at least, {} ms smoothed",
        show(visit.stats.rtt_min),
        show(visit.stats.rtt_smoothed)
    );
    Finding::new("round trip", Grade::Good, text)
}

fn jitter(idle: &Idle) -> Finding {
    let text = format!(
        "{:.2} ms: the 95th percentile of {} round trips over the shortest (RFC 5481); median {:.2} ms, longest {:.2}",
        ms(idle.jitter()),
        idle.samples,
        ms(idle.median),
        ms(idle.max)
    );
    Finding::new("jitter", Grade::Good, text)
}

fn offloads(visit: &Visit) -> Finding {
    let c = visit.capabilities;
    let all = [
        (c.gso, "gso"),
        (c.gro, "gro"),
        (c.ecn, "ecn"),
        (c.dont_fragment, "no fragments"),
    ];
    let names = |there: bool| {
        let names = all.iter().filter(|(has, _)| *has == there).map(|(_, n)| *n);
        names.collect::<Vec<_>>().join(", ")
    };
    let missing = names(false);
    if missing.is_empty() {
        Finding::new("on this path", Grade::Good, names(true))
    } else {
        let text = format!("{}; not: {missing}", names(true));
        Finding::new("on this path", Grade::Fair, text)
    }
}

fn object(name: &str, to: SocketAddr, visit: &Visit, key: Option<PublicKey>) -> Value {
    let c = visit.capabilities;
    json!({
        "host": name,
        "address": to.to_string(),
        "connected_ms": ms(visit.connected),
        "key": key.map(|k| k.to_string()),
        "sealed": visit.sealed,
        "path_mtu_bytes": visit.path_mtu,
        "interface_mtu_bytes": visit.interface_mtu,
        "datagram_bytes": visit.stats.datagram_size,
        "rtt_ms": {
            "min": visit.stats.rtt_min.map(ms),
            "smoothed": visit.stats.rtt_smoothed.map(ms),
            "samples": visit.idle.map(|idle| idle.samples),
            "median": visit.idle.map(|idle| ms(idle.median)),
            "p95": visit.idle.map(|idle| ms(idle.p95)),
            "max": visit.idle.map(|idle| ms(idle.max)),
        },
        "jitter_ms": visit.idle.map(|idle| ms(idle.jitter())),
        "offloads": { "gso": c.gso, "gro": c.gro, "ecn": c.ecn, "dont_fragment": c.dont_fragment },
    })
}

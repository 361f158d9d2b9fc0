//! `farhaul doctor`: is this machine fit, is the way to a server, and if not, which line mends it?

use std::net::SocketAddr;

use farhaul_core::protocol::CloseReason;
use farhaul_haul::PublicKey;
use farhaul_lab::{
    doctor::{self, Finding, Grade},
    host::Host,
    registry::{self, Choice},
    visit::{Visit, VisitError, visit},
};
use serde_json::{Value, json};

use crate::{
    cmd::{bench::resolve, key},
    exit::{Exit, Failure},
    interrupt,
    keys::{self, Known},
    out,
    reach::Unreached,
    wait::Wait,
};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also try the way to HOST or HOST:PORT, where `farhaul serve` or `farhaul bench serve` runs
    host: Option<String>,
    /// This user's key file
    #[arg(short = 'i', long, value_name = "FILE")]
    identity: Option<std::path::PathBuf>,
    /// Print one JSON object
    #[arg(long, short = 'J')]
    json: bool,
}

/// Tests and reports. A machine that could be better is not a failure; one that cannot work is.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let to = args.host.as_deref().map(resolve).transpose()?;
    let host = Host::read();
    let mut findings = doctor::examine(&host);
    if !args.json {
        out::line(format!("{host}\n"));
        findings.iter().for_each(print);
    }
    let way = match (&args.host, to) {
        (Some(name), Some(to)) => Some(examine(args, name, to)),
        _ => None,
    };
    let mut way_object = Value::Null;
    let mut failure = None;
    if let Some(way) = way {
        if !args.json {
            out::line("");
            way.findings.iter().for_each(print);
        }
        way_object = way.object;
        failure = way.failure;
        findings.extend(way.findings);
    }
    if failure.is_none() && findings.iter().any(|f| f.grade == Grade::Bad) {
        let text = "something does not work at all: see the lines that begin with BAD";
        failure = Some(Failure::new(Exit::NetSetup, text));
    }
    let mut object = json!({
        "schema": "farhaul.doctor/1",
        "ok": failure.is_none(),
        "host": host,
        "findings": findings,
        "path": way_object,
    });
    if let Some(failure) = failure {
        object["error"] = json!(failure.text);
        object["exit"] = failure.exit.object();
        return Err(failure.with_object(object));
    }
    if args.json {
        out::json(&object);
    } else {
        let notes = findings.iter().filter(|f| f.grade > Grade::Good).count();
        out::line(match notes {
            0 => "\nnothing to fix".to_string(),
            1 => "\n1 thing could be better".to_string(),
            n => format!("\n{n} things could be better"),
        });
    }
    Ok(())
}

fn print(finding: &Finding) {
    let sign = match finding.grade {
        Grade::Good => "ok  ",
        Grade::Fair => "note",
        Grade::Bad => "BAD ",
    };
    out::line(format!("{sign} {:<15} {}", finding.name, finding.text));
    if let Some(fix) = &finding.fix {
        out::line(format!("     {:<15} fix: {fix}", ""));
    }
}

/// What was found on the way to a server.
struct Way {
    findings: Vec<Finding>,
    object: Value,
    failure: Option<Failure>,
}

fn examine(args: &Args, name: &str, to: SocketAddr) -> Way {
    let wait = (!args.json).then(|| Wait::for_answer(name));
    let visited = attempt(args, to);
    drop(wait);
    match visited {
        Ok((visit, known)) => {
            let key = visit.peer_key.as_deref().and_then(|k| k.try_into().ok());
            let key = key.map(PublicKey::from_bytes);
            let mut findings = vec![reached(name, to, &visit)];
            findings.extend(key.map(|key| server_key(&known, &key::with_port(name), to, key)));
            findings.extend([sealed(&visit), mtu(&visit), rtt(&visit), offloads(&visit)]);
            Way {
                object: object(name, to, &visit, key),
                findings,
                failure: None,
            }
        }
        Err(failure) => Way {
            findings: vec![Finding::new("reached", Grade::Bad, failure.text.clone())],
            object: json!({ "host": name, "address": to.to_string() }),
            failure: Some(failure),
        },
    }
}

fn attempt(args: &Args, to: SocketAddr) -> Result<(Visit, Known), Failure> {
    let identity = keys::identity(args.identity.as_deref())?;
    let known = Known::load()?;
    let choice = Choice {
        identity: Some(identity.seed().to_vec()),
        ..Choice::default()
    };
    let unmade = |e: registry::ChoiceError| Failure::new(Exit::Internal, e.to_string());
    let entry = registry::protocol("haul").map_err(unmade)?;
    let protocol = entry.client(&choice).map_err(unmade)?;
    let stop = interrupt::stop().map_err(|e| Failure::new(Exit::Internal, e.to_string()))?;
    let visit = visit(to, protocol, Some(stop)).map_err(|e| failure(&e, to, identity.public()))?;
    Ok((visit, known))
}

fn failure(error: &VisitError, to: SocketAddr, own: PublicKey) -> Failure {
    let port = to.port();
    let unreached = match error {
        VisitError::Refused(_) => Some(Unreached::Refused),
        VisitError::Closed(reason) => Unreached::of(reason, false, None),
        _ => None,
    };
    if let Some(unreached) = unreached {
        let mut failure = unreached.failure("`farhaul serve` or `farhaul bench serve`", to);
        let more = match unreached {
            Unreached::Silent => format!(
                " (there: ufw allow {port}/udp; or: nft add rule inet filter input udp dport {port} accept)"
            ),
            Unreached::Refused => " (HOST:PORT names another)".into(),
            Unreached::Unfinished | Unreached::NoWay(_) => String::new(),
        };
        failure.text += &more;
        return failure;
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
        VisitError::Closed(CloseReason::Local { .. }) => {
            Failure::new(Exit::Signal(interrupt::signal()), "interrupted")
        }
        VisitError::Shard(e) => Failure::new(Exit::NetSetup, e.to_string()),
        other => Failure::new(Exit::ConnectionLost, format!("{to}: {other}")),
    }
}

fn ms(d: std::time::Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

fn reached(name: &str, to: SocketAddr, visit: &Visit) -> Finding {
    let text = format!("{name} ({to}/udp) in {:.1} ms", ms(visit.connected));
    Finding::new("reached", Grade::Good, text)
}

/// A server is known as it was named to `cp`: by host and port, or by address and port.
fn server_key(known: &Known, name: &str, to: SocketAddr, key: PublicKey) -> Finding {
    let mut accepted = known.of(name);
    accepted.extend(known.of(&to.to_string()));
    if accepted.contains(&key) {
        return Finding::new("server's key", Grade::Good, format!("known: {key}"));
    }
    if accepted.is_empty() {
        let text = format!("not known as {name}: {key}; `cp` would ask");
        return Finding::new("server's key", Grade::Good, text);
    }
    let text = format!("NOT the one that was accepted for {name}: {key}");
    Finding::new("server's key", Grade::Fair, text).fix(format!(
        "farhaul key trust {name} {key}   (if its owner confirms it)"
    ))
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
        },
        "offloads": { "gso": c.gso, "gro": c.gro, "ecn": c.ecn, "dont_fragment": c.dont_fragment },
    })
}

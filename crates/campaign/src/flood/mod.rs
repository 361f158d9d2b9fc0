//! Measures how a server serves while strangers flood it. A good client copies at 1 Gbit/s and
//! others open sessions, once in peace and once under each attack. Compared with peace in the same
//! run are the good client's rate and the time that new handshakes take. So are the server's memory
//! and what it sends to strangers.
//!
//! All of it is in a network namespace of this process's own. Its loopback network has 2^24
//! addresses: the attackers' 2^16 are real ones of it.

mod attack;
mod honest;

use std::{
    fs, io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use crate::{
    Scale,
    program::{Server, Usage, cp, forget_peak, pause, timed, write_file},
    report::Report,
};
use attack::{Attacker, Traffic, Weapon};

/// Datagrams a second of an attack, and handshakes a second of one.
const DATAGRAMS: u64 = 100_000;
const HANDSHAKES: u64 = 1_000;
/// Divisor of the gate's attacks of datagrams.
const GATE: u64 = 4;
/// The good client's rate.
const RATE: &str = "1Gbit";
const MEMORY: u64 = 64 << 20;
const AMPLIFICATION: f64 = 3.0;
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(1);
/// Time that an attack lasts before the copy begins.
const HEAD_START: Duration = Duration::from_millis(500);

/// One attack, and the least of its rate in peace that the good client keeps.
const ATTACKS: [(Weapon, u64, f64); 5] = [
    (Weapon::Garbage, DATAGRAMS, 0.95),
    (Weapon::Hellos, DATAGRAMS, 0.80),
    // Two datagrams each.
    (Weapon::FirstFlights, DATAGRAMS / 2, 0.80),
    (Weapon::HalfOpen, HANDSHAKES, 0.80),
    (Weapon::Initials, DATAGRAMS, 0.80),
];

/// Observations of one copy.
struct Seen {
    copied: Duration,
    /// Times of honest handshakes, in order.
    handshakes: Vec<Duration>,
    failed: u64,
    traffic: Traffic,
    growth: u64,
    /// The server's CPU time.
    cpu: Duration,
}

/// Runs the part.
pub(crate) fn run(scale: &Scale) -> Report {
    let mut report = Report::new("flood");
    if let Err(error) = farhaul_udp::netns::become_administrator()
        .and_then(|()| farhaul_udp::netns::enter_new_network())
    {
        report.skip(format!("no network namespace: {error}"));
        return report;
    }
    for round in 0..scale.runs(1, 5) {
        if let Err(error) = rounds(scale, scale.seed + round, &mut report) {
            report.fault(format!("round {round}: {error}"));
        }
    }
    report
}

fn rounds(scale: &Scale, seed: u64, report: &mut Report) -> io::Result<()> {
    let tmp = tempfile::tempdir_in("/dev/shm")?;
    let dir = tmp.path();
    let len: u64 = if scale.full { 2 << 30 } else { 160 << 20 };
    write_file(&dir.join("big"), len)?;
    fs::create_dir(dir.join("share"))?;
    let share = format!("s={}:rw", dir.join("share").display());
    let server = if scale.planted {
        crate::faulty::serve(dir, &["--half-open", "1000000", "--share", &share])?
    } else {
        Server::serve(dir, &[share])?
    };
    // The first copy warms up.
    observe(dir, &server, None, seed)?;
    let before = observe(dir, &server, None, seed)?;
    add_figures(report, "in peace", &before, None);
    let mut under = Vec::new();
    for (weapon, rate, floor) in ATTACKS {
        // A program that is compiled for the gate is slower; the bound on half-open handshakes has to be reached.
        let is_whole = scale.full || matches!(weapon, Weapon::HalfOpen);
        let attack = (weapon, if is_whole { rate } else { rate / GATE });
        let seen = observe(dir, &server, Some(attack), seed)?;
        under.push((attack, floor, seen));
    }
    let after = observe(dir, &server, None, seed)?;
    add_figures(report, "in peace again", &after, None);
    let peace = (before.copied + after.copied) / 2;
    for (attack, floor, seen) in under {
        let mut faults = verdict(report, attack, floor, &seen, peace);
        if !faults.is_empty() {
            // Others use this machine, too: a fault shows again.
            let peace = observe(dir, &server, None, seed)?.copied;
            let again = observe(dir, &server, Some(attack), seed)?;
            faults = verdict(report, attack, floor, &again, peace);
        }
        for fault in faults {
            report.fault(format!("{:?}, seed {seed}: {fault}", attack.0));
        }
        report.ran();
    }
    let (took, said) = server.end(crate::program::EXIT_TIMEOUT)?;
    if took.is_none() {
        report.fault("the server did not end after SIGTERM");
    }
    for line in said.iter().filter(|line| line.contains("warning")) {
        report.figure("server said", line);
    }
    Ok(())
}

/// One copy, with or without an attack on the way.
fn observe(
    dir: &Path,
    server: &Server,
    attack: Option<(Weapon, u64)>,
    seed: u64,
) -> io::Result<Seen> {
    let id = server.program.id();
    let stop = AtomicBool::new(false);
    let attacker = attack
        .map(|(weapon, rate)| Attacker::new(weapon, rate, server.address(), seed))
        .transpose()?;
    forget_peak(id)?;
    let before = Usage::of(id)?;
    let (copied, traffic, honest) = thread::scope(|scope| {
        let attack = attacker.map(|attacker| scope.spawn(|| attacker.run(&stop)));
        let honest = scope.spawn(|| honest::open_sessions(server.address(), &stop));
        pause(HEAD_START);
        let copied = copy(dir, server);
        stop.store(true, Relaxed);
        let died = |_| io::Error::other("a thread panicked");
        let traffic = match attack {
            Some(attack) => attack.join().map_err(died)??,
            None => Traffic::default(),
        };
        Ok::<_, io::Error>((copied?, traffic, honest.join().map_err(died)??))
    })?;
    let after = Usage::of(id)?;
    let (mut handshakes, failed) = honest;
    handshakes.sort_unstable();
    Ok(Seen {
        copied,
        handshakes,
        failed,
        traffic,
        growth: after.peak.saturating_sub(before.resident),
        cpu: after.cpu.saturating_sub(before.cpu),
    })
}

fn copy(dir: &Path, server: &Server) -> io::Result<Duration> {
    let to = format!("{}::s/copy", server.address());
    let from = dir.join("big");
    let mut command = cp(dir)?;
    command
        .args(["--max-rate", RATE])
        .args([&from, Path::new(&to)]);
    let took = timed(&mut command, Duration::from_mins(2))?;
    fs::remove_file(dir.join("share/copy"))?;
    Ok(took)
}

/// The slowest of a hundred.
fn p99(sorted: &[Duration]) -> Duration {
    let at = (sorted.len() * 99).div_ceil(100);
    sorted
        .get(at.saturating_sub(1))
        .copied()
        .unwrap_or_default()
}

fn add_figures(report: &mut Report, name: &str, seen: &Seen, kept: Option<f64>) {
    let mut line = format!("copy {:.2} s", seen.copied.as_secs_f64());
    if let Some(kept) = kept {
        let traffic = &seen.traffic;
        let attack = format!(
            " ({:.1} % of the rate in peace), {:.0} datagrams/s sent, {:.0} handshakes/s begun, {} answers, amplification {:.2}",
            100.0 * kept,
            traffic.rate(),
            traffic.handshakes(),
            traffic.answers,
            traffic.amplification()
        );
        line.push_str(&attack);
    }
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    let honest = format!(
        ", {} handshakes: median {:.1} ms, p99 {:.1} ms, {} failed; memory +{:.1} MiB, CPU {:.2} s",
        seen.handshakes.len(),
        ms(seen
            .handshakes
            .get(seen.handshakes.len() / 2)
            .copied()
            .unwrap_or_default()),
        ms(p99(&seen.handshakes)),
        seen.failed,
        mebibytes(seen.growth),
        seen.cpu.as_secs_f64(),
    );
    line.push_str(&honest);
    report.figure(name, line);
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Reports the results of an attack, and violations.
fn verdict(
    report: &mut Report,
    (weapon, _): (Weapon, u64),
    floor: f64,
    seen: &Seen,
    peace: Duration,
) -> Vec<String> {
    let kept = peace.as_secs_f64() / seen.copied.as_secs_f64();
    add_figures(report, &format!("{weapon:?}"), seen, Some(kept));
    let mut faults = Vec::new();
    if kept < floor {
        faults.push(format!(
            "the good client kept {:.1} % of its rate, {:.0} % are owed",
            100.0 * kept,
            100.0 * floor
        ));
    }
    let slowest = p99(&seen.handshakes);
    if slowest > HANDSHAKE_LIMIT || seen.failed > 0 || seen.handshakes.is_empty() {
        faults.push(format!(
            "new handshakes take {slowest:?} (p99), {} of {} failed",
            seen.failed,
            seen.handshakes.len() as u64 + seen.failed
        ));
    }
    if seen.growth > MEMORY {
        let grown = mebibytes(seen.growth);
        faults.push(format!("the server's memory grew by {grown:.1} MiB"));
    }
    let amplification = seen.traffic.amplification();
    if amplification > AMPLIFICATION {
        faults.push(format!("{amplification:.2} bytes answered for each"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_of_a_hundred_is_taken() {
        let ms: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(p99(&ms), Duration::from_millis(198));
        assert_eq!(p99(&ms[..50]), Duration::from_millis(50));
        assert_eq!(p99(&[]), Duration::ZERO);
    }
}

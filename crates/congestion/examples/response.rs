//! Prints how fast each window law is when packets are lost at random, the table of
//! `docs/laws/README.md`. The table has Mbit/s at an rtt of 100 ms with payloads of 8948 bytes on a
//! path that is never full. Beside them is the value of the law's response function, where it has
//! one.

#[path = "../tests/all/path/mod.rs"]
mod path;

use std::{
    error::Error,
    io::{Write, stdout},
};

use farhaul_congestion::lookup;
use farhaul_core::{rng::Rng, units::Rate};
use path::ScriptedPath;

const LAWS: [&str; 13] = [
    "reno",
    "cubic",
    "cubic-2.6.25",
    "bic",
    "hstcp",
    "scalable",
    "htcp",
    "westwood",
    "illinois",
    "vegas",
    "compound",
    "fast",
    "ledbat",
];
const LOSS: [f64; 5] = [1e-2, 1e-3, 1e-4, 1e-5, 1e-6];
const RTT_MS: u64 = 100;
const PAYLOAD: u32 = 8_948;

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = stdout().lock();
    writeln!(out, "| law | 1e-2 | 1e-3 | 1e-4 | 1e-5 | 1e-6 |")?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    for law in LAWS {
        write!(out, "| {law} |")?;
        for p in LOSS {
            write!(out, " {}", figure(measured(law, p)?))?;
            match oracle(law, p) {
                Some(packets) => write!(out, " ({}) |", figure(packets * mbit_per_packet()))?,
                None => write!(out, " |")?,
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Three digits at most.
fn figure(mbit: f64) -> String {
    if mbit < 99.5 {
        format!("{mbit:.1}")
    } else {
        let unit = 10_f64.powf(mbit.log10().floor() - 2.0);
        format!("{:.0}", (mbit / unit).round() * unit)
    }
}

/// Mbit/s of a window of one packet.
fn mbit_per_packet() -> f64 {
    f64::from(PAYLOAD) * 8.0 / (f64::from(u32::try_from(RTT_MS).unwrap_or(u32::MAX)) * 1e3)
}

/// The mean window, in packets, that the law's response function gives.
fn oracle(law: &str, p: f64) -> Option<f64> {
    let reno = (1.5 / p).sqrt();
    match law {
        "reno" => Some(reno),
        "cubic" => Some(reno.max(1.054 * (0.1 / p).powf(0.75))),
        "hstcp" => Some(if p >= 1e-3 {
            reno
        } else {
            0.12 / p.powf(0.835)
        }),
        "scalable" => Some(reno.max(0.075 / p)),
        "compound" => Some(reno.max(0.255 / p.powf(0.8))),
        "illinois" => Some(8.66 / p.sqrt()),
        _ => None,
    }
}

/// Mbit/s over 300 losses, after 60.
fn measured(spec: &str, p: f64) -> Result<f64, Box<dyn Error>> {
    let mut path = ScriptedPath::new(RTT_MS, PAYLOAD, 10);
    let mut law = lookup(spec)?.make();
    let mut rng = Rng::new(1);
    path.start(law.as_mut());
    while path.window(law.as_ref()) < 50.0 {
        path.round(law.as_mut());
    }
    path.loss(law.as_mut(), true);
    let (mut since, mut packets_before) = (path.now, 0);
    let (mut losses, mut cut) = (0, true);
    while losses < 360 {
        let before = path.packets();
        path.round(law.as_mut());
        let none = (1.0 - p).powf(float(path.packets() - before));
        let lost = rng.unit() >= none;
        // What is lost in the round after a cut was sent before it.
        cut = lost && !cut;
        if cut {
            path.loss(law.as_mut(), true);
            losses += 1;
            if losses == 60 {
                (since, packets_before) = (path.now, path.packets());
            }
        }
    }
    let bytes = (path.packets() - packets_before) * u64::from(PAYLOAD);
    Ok(Rate::of(bytes, path.now.since(since)).as_f64() / 1e6)
}

#[expect(clippy::cast_precision_loss, reason = "windows are below 2^52 packets")]
const fn float(packets: u64) -> f64 {
    packets as f64
}

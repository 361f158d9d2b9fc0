//! Do RBUDP and Tsunami reach on real sockets what is required of them? `cargo xtask blast-bench` measures their programs
//! (`farhaul compat`: whole commands, from the start to the file's name) beside what the original ones reached,
//! and their sessions (`farhaul bench`) beside the rate that is requested, over the emulator at MTU 9000.
//! A requirement that is missed ends it with an error; a run in which the emulator was late is marked.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Outcome,
    emulated::{Emulated, median, number, object, succeed},
};

/// Of a core per Gbit/s, per cent: the best that is published.
const CPU: f64 = 9.2;
/// Of the rate requested.
const SHARE: f64 = 0.9;

/// A whole command: who, how many MiB, path, rate requested, Gbit/s of the original program (measured on two cores
/// over this emulator), and how many times that is required.
type Whole = (
    &'static str,
    u64,
    &'static str,
    &'static str,
    &'static str,
    f64,
    f64,
);
const WHOLE: [Whole; 6] = [
    ("rbudp", 512, "0ms", "0%", "8Gbit", 2.39, 1.5),
    ("rbudp", 512, "50ms", "0.1%", "8Gbit", 2.77, 1.5),
    ("rbudp", 512, "100ms", "1%", "5Gbit", 1.57, 1.5),
    ("ttp", 1_024, "0ms", "0%", "4Gbit", 1.55, 1.3),
    ("ttp", 1_024, "50ms", "0.1%", "4Gbit", 1.76, 1.3),
    ("ttp", 1_024, "100ms", "1%", "2Gbit", 1.12, 1.3),
];
/// A session at 0 ms and 0 %: which, and Gbit/s requested. Each file of Tsunami begins with a ramp, so that the best
/// half second counts.
const SESSIONS: [(&str, f64); 5] = [
    ("rbudp-best:rate=2Gbit", 2.0),
    ("rbudp-best:rate=5Gbit", 5.0),
    ("rbudp-best:rate=8Gbit", 8.0),
    ("ttp:rate=2Gbit,mtu=9000", 2.0),
    ("ttp:rate=4.29Gbit,mtu=9000", 4.29),
];

/// `cargo xtask blast-bench [RUNS]`.
pub(crate) fn run(root: &Path, args: &[&str]) -> Outcome {
    let runs = match args {
        [] => 3,
        [runs] => runs
            .parse()
            .ok()
            .filter(|n| *n > 0)
            .ok_or(vec![format!("{runs}: give the number of runs of each row")])?,
        _ => return Err(vec!["usage: cargo xtask blast-bench [RUNS]".into()]),
    };
    let missed = Emulated::build(root, "blast-bench").and_then(|path| {
        let scratch = scratch(&path)?;
        let missed = measure(&path, &scratch, runs);
        let failed = |e: io::Error| format!("{}: {e}", scratch.display());
        fs::remove_dir_all(&scratch).map_err(failed).and(missed)
    });
    let missed = missed.map_err(|text| vec![text])?;
    if missed.is_empty() {
        Ok(())
    } else {
        Err(missed)
    }
}

/// Prints each row; returns the requirements that are missed.
#[expect(clippy::print_stdout, reason = "the table is the result")]
fn measure(path: &Emulated, scratch: &Path, runs: usize) -> Result<Vec<String>, String> {
    let mut missed = Vec::new();
    println!(
        "| program | RTT | loss | requested | Gbit/s, median of {runs} | original | required | late |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for whole in WHOLE {
        let (who, mib, rtt, loss, asked, original, times) = whole;
        let source = source(scratch, mib)?;
        let (mut all, mut late) = (Vec::new(), 0);
        for _ in 0..runs {
            let (gbps, was_late) = command(path, &whole, &source)?;
            all.push(gbps);
            late += usize::from(was_late);
        }
        let (gbps, required) = (median(all), original * times);
        println!(
            "| compat {who} | {rtt} | {loss} | {asked} | {gbps:.2} | {original} | {required:.2} | {late} |"
        );
        if gbps < required {
            missed.push(format!(
                "compat {who} at {rtt}, {loss}: {gbps:.2} of {required:.2} Gbit/s"
            ));
        }
    }
    println!(
        "\n| session | requested | best half second, Gbit/s | CPU %/Gbps, sender / receiver | late |"
    );
    println!("|---|--:|--:|--:|--:|");
    for (protocol, asked) in SESSIONS {
        let mut figures = [const { Vec::new() }; 3];
        let mut late = 0;
        for _ in 0..runs {
            let (of_run, was_late) = session(path, protocol)?;
            late += usize::from(was_late);
            figures
                .iter_mut()
                .zip(of_run)
                .for_each(|(all, figure)| all.push(figure));
        }
        let [gbps, sender, receiver] = figures.map(median);
        println!("| {protocol} | {asked} | {gbps:.2} | {sender:.1} / {receiver:.1} | {late} |");
        if gbps < SHARE * asked || sender.max(receiver) >= CPU {
            missed.push(format!(
                "{protocol}: {gbps:.2} Gbit/s at {sender:.1} / {receiver:.1} % of a core per Gbit/s"
            ));
        }
    }
    Ok(missed)
}

/// A new folder for the files, in memory if there is such a place.
fn scratch(path: &Emulated) -> Result<PathBuf, String> {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() {
        memory
    } else {
        &path.folder
    };
    let folder = place.join(format!("farhaul-blast-bench-{}", std::process::id()));
    let created = fs::create_dir(&folder);
    created.map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(folder)
}

/// A file of so many MiB of random bytes.
fn source(folder: &Path, mib: u64) -> Result<PathBuf, String> {
    let file = folder.join(format!("{mib}.bin"));
    let failed = |e: io::Error| format!("{}: {e}", file.display());
    if fs::metadata(&file).map(|m| m.len()).ok() != Some(mib << 20) {
        let random = File::open("/dev/urandom").map_err(failed)?;
        let mut copy = File::create(&file).map_err(failed)?;
        io::copy(&mut random.take(mib << 20), &mut copy).map_err(failed)?;
    }
    Ok(file)
}

/// Gbit/s of a whole command, whose file is compared; and whether the emulator was late.
fn command(path: &Emulated, whole: &Whole, source: &Path) -> Result<(f64, bool), String> {
    let (who, mib, rtt, loss, asked, ..) = *whole;
    let farhaul = path.farhaul.display();
    let folder = source.parent().unwrap_or(source);
    let (share, copy) = (folder.display(), folder.join("copy"));
    let at = copy.display();
    let (far, near) = if who == "rbudp" {
        (
            format!(
                "sendfile --listen 10.99.0.2:38000 --share d={share}:ro --rate {asked} --payload 8800"
            ),
            format!("recvfile 10.99.0.2 d/{mib}.bin {at} --payload 8800"),
        )
    } else {
        (
            format!("serve --listen 10.99.0.2:46224 --share d={share}:ro"),
            format!("get 10.99.0.2 d/{mib}.bin {at} --rate {asked} --block 8966"),
        )
    };
    // Only a far end that does not listen yet is tried again.
    let near = format!(
        "for i in $(seq 50); do s=$(date +%s%N); if e=$({farhaul} compat {who} {near} 2>&1); then \
         echo $(($(date +%s%N) - s)); exit; fi; case $e in *'nobody answers'*) ;; *) break;; esac; done; \
         echo \"$e\" >&2; exit 1"
    );
    let far = format!("{farhaul} compat {who} {far}");
    let (out, late) = path.run(rtt, loss, &far, &near)?;
    succeed(Command::new("cmp").arg(source).arg(&copy))?;
    fs::remove_file(&copy).map_err(|e| format!("{}: {e}", copy.display()))?;
    let text = String::from_utf8_lossy(&out);
    let micros: Option<u32> = text.lines().last().and_then(|line| {
        let micros: u64 = line.trim().parse::<u64>().ok()? / 1_000;
        u32::try_from(micros).ok()
    });
    let micros = micros.ok_or_else(|| format!("no time in {text:?}"))?;
    let mib = u32::try_from(mib).map_err(|e| e.to_string())?;
    Ok((f64::from(mib) * 1_048.576 * 8.0 / f64::from(micros), late))
}

/// Gbit/s of the best half second, per cent of a core per Gbit/s of both ends, and whether the emulator was late.
fn session(path: &Emulated, protocol: &str) -> Result<([f64; 3], bool), String> {
    let farhaul = path.farhaul.display();
    let far = format!("{farhaul} bench serve --protocol {protocol} --one-off");
    let near = format!("{farhaul} bench 10.99.0.2 --protocol {protocol} -t 5 -i 0.5 -J");
    let (report, late) = path.run("0ms", "0%", &far, &near)?;
    let report = object(&report)?;
    let cpu = |side: &str| number(&report[side]["cpu_percent_per_gbps"], side);
    let seconds = report["intervals"].as_array().cloned().unwrap_or_default();
    let rates = seconds
        .iter()
        .filter_map(|second| second["goodput_bits_per_second"].as_f64());
    let best = rates.fold(0.0, f64::max) / 1e9;
    Ok(([best, cpu("sender")?, cpu("receiver")?], late))
}

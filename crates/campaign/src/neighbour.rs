//! One session on a file system that hangs, beside healthy ones. They copy at a rate, beside one
//! that reads from another share, once while that share is well and once while it hangs. Each must
//! keep its rate. Then the server gets SIGTERM while the session still hangs.

use std::{fs, io, path::Path, thread, time::Duration};

use farhaul_udp::{hang::Hang, netns};

use crate::{
    Scale,
    program::{Program, Server, cp, pause, timed, write_file},
    report::Report,
};

const HEALTHY: usize = 15;
/// The least of its rate that a healthy session keeps.
const KEPT: f64 = 0.95;
/// Time for the server to end after SIGTERM.
const END: Duration = Duration::from_secs(5);
/// The rate of each session, and its bytes: five seconds in the gate, eight in the documented campaign.
const RATE: &str = "12Mbit";
const GATE: u64 = 7_500_000;
const FULL: u64 = 12_000_000;

/// Runs the part.
pub(crate) fn run(scale: &Scale) -> Report {
    let mut report = Report::new("neighbour");
    for round in 0..scale.runs(1, 20) {
        let mut found = once(scale, &mut report);
        if found.as_ref().is_ok_and(|faults| !faults.is_empty()) {
            // Others use this machine, too: a fault shows again.
            found = once(scale, &mut report);
        }
        match found {
            Ok(faults) => {
                for fault in faults {
                    report.fault(format!("round {round}: {fault}"));
                }
                report.ran();
            }
            Err(Trouble::Impossible(why)) => {
                report.skip(why);
                return report;
            }
            Err(Trouble::Failed(error)) => report.fault(format!("round {round}: {error}")),
        }
    }
    report
}

enum Trouble {
    /// The machine does not allow what the part needs.
    Impossible(String),
    Failed(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// One round; what must not be.
fn once(scale: &Scale, report: &mut Report) -> Result<Vec<String>, Trouble> {
    let impossible = |what: &str, error: io::Error| Trouble::Impossible(format!("{what}: {error}"));
    netns::own_mounts().map_err(|e| impossible("no mount namespace", e))?;
    let tmp = tempfile::tempdir_in("/dev/shm")?;
    let dir = tmp.path();
    let (well, ill) = (dir.join("well"), dir.join("ill"));
    fs::create_dir(&well)?;
    fs::create_dir(&ill)?;
    netns::mount_memory(&ill).map_err(|e| impossible("no file system in memory", e))?;
    let bytes = if scale.full { FULL } else { GATE };
    write_file(&dir.join("file"), bytes)?;
    write_file(&ill.join("file"), bytes)?;
    let shares = [
        format!("well={}:rw", well.display()),
        format!("ill={}:ro", ill.display()),
    ];
    let mut server = if scale.planted {
        let planted = ["--one-thread", "--share", &shares[0], "--share", &shares[1]];
        crate::faulty::serve(dir, &planted)?
    } else {
        Server::serve(dir, &shares)?
    };
    let mut neighbour = Program::start(&mut fetch(dir, &server, "before")?)?;
    let peace = healthy(dir, &server)?;
    if neighbour.ends_within(END)?.is_none_or(|s| !s.success()) {
        return Err(
            io::Error::other("the neighbour's copy failed although its share was well").into(),
        );
    }
    let hang =
        Hang::of_mount(&ill).map_err(|e| impossible("no permission events (fanotify)", e))?;
    let mut neighbour = Program::start(&mut fetch(dir, &server, "meanwhile")?)?;
    // So that it has reached the share when the others begin.
    pause(Duration::from_millis(500));
    let beside = healthy(dir, &server)?;
    if neighbour.ends_within(Duration::ZERO)?.is_some() {
        return Err(io::Error::other("the neighbour's copy ended although its share hung").into());
    }
    let ended = server.program.terminate(END * 2)?;
    drop(hang);
    Ok(verdict(report, &peace, &beside, ended))
}

/// The neighbour's copy, from its share.
fn fetch(dir: &Path, server: &Server, name: &str) -> io::Result<std::process::Command> {
    let mut command = cp(dir)?;
    command
        .arg(format!("{}::ill/file", server.address()))
        .arg(dir.join(name));
    Ok(command)
}

/// Copies by all healthy sessions at a time; how long each took, in seconds, in order.
fn healthy(dir: &Path, server: &Server) -> io::Result<Vec<f64>> {
    let mut took = thread::scope(|scope| {
        let copies = (0..HEALTHY).map(|i| {
            let mut command = cp(dir)?;
            let to = format!("{}::well/{i}", server.address());
            command
                .args(["--max-rate", RATE])
                .arg(dir.join("file"))
                .arg(to);
            Ok(scope.spawn(move || timed(&mut command, Duration::from_mins(1))))
        });
        let copies = copies.collect::<io::Result<Vec<_>>>()?;
        let died = |_| io::Error::other("a thread panicked");
        copies
            .into_iter()
            .map(|copy| Ok(copy.join().map_err(died)??.as_secs_f64()))
            .collect::<io::Result<Vec<_>>>()
    })?;
    for i in 0..HEALTHY {
        fs::remove_file(dir.join("well").join(i.to_string()))?;
    }
    took.sort_by(f64::total_cmp);
    Ok(took)
}

fn verdict(
    report: &mut Report,
    peace: &[f64],
    beside: &[f64],
    ended: Option<Duration>,
) -> Vec<String> {
    let mut faults = Vec::new();
    let first = |times: &[f64]| times.first().copied().unwrap_or(f64::INFINITY);
    let last = |times: &[f64]| times.last().copied().unwrap_or(f64::INFINITY);
    // Sessions are alike: the slowest is compared with the slowest, and so on.
    let kept = peace
        .iter()
        .zip(beside)
        .map(|(peace, beside)| peace / beside);
    let kept = kept.fold(f64::INFINITY, f64::min);
    report.figure(
        "healthy sessions",
        format!(
            "{HEALTHY} at {RATE}; beside a healthy neighbour {:.2} to {:.2} s, beside a hung one {:.2} to {:.2} s: each keeps {:.1} %",
            first(peace),
            last(peace),
            first(beside),
            last(beside),
            100.0 * kept
        ),
    );
    if kept < KEPT {
        let percent = 100.0 * kept;
        faults.push(format!(
            "a healthy session kept {percent:.1} % of its rate beside a hung one"
        ));
    }
    match ended {
        Some(took) => {
            let seconds = took.as_secs_f64();
            report.figure("end after SIGTERM", format!("{seconds:.2} s"));
            if took > END {
                faults.push(format!("the server took {took:?} to end"));
            }
        }
        None => faults.push("the server did not end after SIGTERM".into()),
    }
    faults
}

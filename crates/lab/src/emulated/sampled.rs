//! Samples the processor time that a program has used, from the kernel's accounts of its threads,
//! which count nanoseconds, while it runs.

use std::{collections::BTreeMap, fs};

use farhaul_core::time::Instant;

/// The processor time of a process and of what it started, over time.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    /// Processor time of every thread seen so far, ns; a thread that has ended keeps what it had.
    threads: BTreeMap<(u32, u32), u64>,
    points: Vec<(Instant, u64)>,
}

impl Sampled {
    /// Notes the time that `process` has used until `now`; nothing if the kernel does not report
    /// it, or the process is gone.
    pub(super) fn note(&mut self, process: u32, now: Instant) {
        if self.visit(process) {
            self.points.push((now, self.threads.values().sum()));
        }
    }

    fn visit(&mut self, process: u32) -> bool {
        let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else {
            return false;
        };
        let mut any = false;
        for task in tasks.filter_map(Result::ok) {
            let name = task.file_name();
            let Some(thread) = name.to_str().and_then(|n| n.parse::<u32>().ok()) else {
                continue;
            };
            // It may end at this very moment.
            let used = fs::read_to_string(task.path().join("schedstat"));
            if let Some(used) = used.ok().as_deref().and_then(on_processor) {
                self.threads.insert((process, thread), used);
                any = true;
            }
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|n| n.parse().ok()) {
                self.visit(child);
            }
        }
        any
    }

    /// Seconds since `begun`, and of processor time until then.
    pub(super) fn points(&self, begun: Instant) -> Vec<(f64, f64)> {
        #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
        let point =
            |(at, used): &(Instant, u64)| (at.since(begun).as_secs_f64(), *used as f64 / 1e9);
        self.points.iter().map(point).collect()
    }
}

/// The first field is the time on a processor, ns.
fn on_processor(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::CommandExt as _,
        process::{Command, Stdio},
    };

    use farhaul_io::clock;

    use super::*;

    #[test]
    fn a_process_that_works_is_seen_to_and_one_that_has_ended_is_not() {
        let mut sampled = Sampled::default();
        let begun = clock::now();
        // Its child works as well.
        let mut child = Command::new("sh")
            .args(["-c", "(while :; do :; done) & wait"])
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let used = |sampled: &Sampled| sampled.points(begun).last().map_or(0.0, |p| p.1);
        while used(&sampled) < 0.02 {
            sampled.note(child.id(), clock::now());
        }
        let points = sampled.points(begun);
        assert!(points.is_sorted(), "neither time runs backwards");
        end(&mut child);
        sampled.note(child.id(), clock::now());
        assert_eq!(sampled.points(begun), points);
    }

    fn end(child: &mut std::process::Child) {
        let pid = rustix::process::Pid::from_child(child);
        rustix::process::kill_process_group(pid, rustix::process::Signal::KILL).unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn time_on_a_processor_is_the_first_field() {
        assert_eq!(on_processor("173623141 9039231 497\n"), Some(173_623_141));
        assert_eq!(on_processor(""), None);
    }
}

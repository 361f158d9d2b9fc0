//! Reports events while a copy runs, objects of `--json-stream`: `start`, then
//! `progress` a few times a second while something changes. `file` follows for each file that is
//! over, and `scan` once all files are known. `silent` and `answering` say that the other end no
//! longer answers and that it does again. `retry` comes before another attempt, which begins with
//! `start` again. A reader that is slow delays nothing but the events. The last line is the
//! summary, which is printed elsewhere.

use std::{
    io,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use farhaul_core::{stats::Why, time::Instant, units::Rate};
use farhaul_io::clock;
use farhaul_transfer::{FileOver, Phase, Progress, Reported};
use serde_json::{Value, json};

use crate::{
    app::{console::Console, json::put_path},
    silence::{PeerState, Silences},
    when,
};

/// Time between two looks.
const TICK: Duration = Duration::from_millis(250);

/// The events that `explain` has something to say about.
#[cfg(test)]
pub(crate) const EVENTS: [&str; 4] = [SILENT, ANSWERING, FILES_MISSED, RETRY];
const SILENT: &str = "silent";
const ANSWERING: &str = "answering";
const FILES_MISSED: &str = "files_missed";
pub(super) const RETRY: &str = "retry";

/// A thread that reports; it ends when this is dropped.
pub(super) struct Events {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Events {
    /// Starts to report of `progress`.
    pub(super) fn start(progress: Arc<Progress>, console: Arc<dyn Console>) -> io::Result<Self> {
        progress.watch_files();
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("events".into())
            .spawn(move || {
                let mut stream = Stream::new(clock::now());
                let tell = |event: &Value| console.event(event);
                tell(&stream.event("start", clock::now()));
                while stopped.recv_timeout(TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
                    stream.look(&progress, clock::now()).iter().for_each(tell);
                }
                stream.look(&progress, clock::now()).iter().for_each(tell);
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it spoils nothing else.
            let _printed = thread.join();
        }
    }
}

/// Figures that were printed before.
struct Stream {
    began: Instant,
    looked: Instant,
    done: u64,
    shown: Value,
    scanned: bool,
    silences: Silences,
}

impl Stream {
    fn new(began: Instant) -> Self {
        Self {
            began,
            looked: began,
            done: 0,
            shown: Value::Null,
            scanned: false,
            silences: Silences::default(),
        }
    }

    /// Files that are over, and the number of those that were too many for a slow reader.
    fn files(&self, progress: &Progress, now: Instant) -> Vec<Value> {
        let (files, missed) = progress.take_files();
        let of_file = |file: FileOver| {
            let mut event = self.event("file", now);
            put_path(&mut event, "path", &file.path);
            event["bytes"] = file.bytes.into();
            event["ok"] = file.ok.into();
            event["sent"] = file.sent.into();
            event
        };
        let mut events: Vec<_> = files.into_iter().map(of_file).collect();
        if missed > 0 {
            let mut event = self.event(FILES_MISSED, now);
            event["files"] = missed.into();
            events.push(event);
        }
        events
    }

    /// The other end fell silent, or answers again.
    fn silence(&mut self, progress: &Progress, now: Instant) -> Option<Value> {
        let (kind, lasts) = match self.silences.look(progress)? {
            PeerState::Silent(lasts) => (SILENT, lasts),
            PeerState::Answering(lasts) => (ANSWERING, lasts),
        };
        let mut event = self.event(kind, now);
        event["silent_s"] = lasts.as_secs_f64().into();
        Some(event)
    }

    fn event(&self, kind: &str, now: Instant) -> Value {
        json!({
            "type": kind,
            "time": when::now(),
            "elapsed_s": now.since(self.began).as_secs_f64(),
        })
    }

    /// Events for what has changed.
    fn look(&mut self, progress: &Progress, now: Instant) -> Vec<Value> {
        let done = progress.bytes_done();
        let figures = json!({
            "phase": progress.phase().name(),
            "bytes_done": done,
            "bytes_resumed": progress.bytes_resumed(),
            "bytes_total": progress.bytes_total(),
            "files_done": progress.files_done(),
            "files_total": progress.files_total(),
            "limited_by": progress.hold().map(Why::name),
        });
        let mut events = self.files(progress, now);
        events.extend(self.silence(progress, now));
        if progress.is_scanned() && !self.scanned {
            self.scanned = true;
            let mut event = self.event("scan", now);
            event["bytes_total"] = figures["bytes_total"].clone();
            event["files_total"] = figures["files_total"].clone();
            events.push(event);
        }
        if figures != self.shown {
            let rate = Rate::of(done.saturating_sub(self.done), now.since(self.looked));
            let mut event = self.event("progress", now);
            if let (Some(event), Some(figures)) = (event.as_object_mut(), figures.as_object()) {
                event.extend(figures.clone());
            }
            // Over no time there is none.
            event["goodput_bps"] = match rate {
                Rate::UNLIMITED => Value::Null,
                rate => rate.as_f64().into(),
            };
            events.push(event);
            self.shown = figures;
        }
        (self.looked, self.done) = (now, done);
        events
    }
}

/// Makes `progress` what an event of another machine's copy says. What it does not say stays.
pub(crate) fn replay(event: &Value, progress: &Progress) {
    let number = |name: &str| event[name].as_u64();
    match event["type"].as_str() {
        Some("scan") => progress.scan_done(),
        Some("progress") => progress.set_reported(&Reported {
            phase: event["phase"].as_str().and_then(Phase::named),
            done: number("bytes_done"),
            resumed: number("bytes_resumed"),
            total: number("bytes_total"),
            files_done: number("files_done"),
            files_total: number("files_total"),
            hold: Why::HOLDS
                .into_iter()
                .find(|why| event["limited_by"] == why.name()),
        }),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_replayed_is_what_was_printed() {
        let progress = Progress::default();
        let reported = Reported {
            phase: Some(Phase::Moving),
            done: Some(5),
            resumed: Some(6),
            total: Some(20),
            files_done: Some(1),
            files_total: Some(3),
            hold: Some(Why::Peer),
        };
        progress.set_reported(&reported);
        progress.scan_done();
        let again = Progress::default();
        let events = Stream::new(Instant::EPOCH).look(&progress, Instant::EPOCH);
        for event in &events {
            replay(event, &again);
        }
        let events_of = |p| {
            let events = Stream::new(Instant::EPOCH).look(p, Instant::EPOCH);
            let figures = events.into_iter().map(|mut event| {
                event["time"].take();
                event
            });
            figures.collect::<Vec<_>>()
        };
        assert_eq!(events_of(&again), events_of(&progress));
        assert_eq!(again.phase(), Phase::Moving);
        for odd in [
            json!(7),
            json!({"type": "progress", "bytes_done": "x"}),
            json!({"type": []}),
        ] {
            replay(&odd, &again);
        }
        assert_eq!(again.bytes_done(), 5, "what it does not say stays");
    }

    #[test]
    fn what_does_not_change_is_printed_once() {
        let (progress, mut now) = (Progress::default(), Instant::EPOCH);
        let mut stream = Stream::new(now);
        let first = stream.look(&progress, now);
        assert_eq!(first.len(), 1);
        assert_eq!(
            (&first[0]["type"], &first[0]["goodput_bps"]),
            (&"progress".into(), &Value::Null)
        );
        now += TICK;
        assert!(stream.look(&progress, now).is_empty());
        assert_eq!(stream.event("x", now)["elapsed_s"], 0.25);
    }
}

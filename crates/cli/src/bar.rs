//! How does a person see a transfer go? One line on stderr while it is a terminal, redrawn a few times
//! a second from shared counters by a thread of its own; nothing otherwise.

use std::{
    io::IsTerminal,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use console::Term;
use farhaul_core::{
    stats::Why,
    units::{Rate, Size},
};
use farhaul_transfer::{Phase, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How progress is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Style {
    /// A bar on a terminal, nothing elsewhere.
    #[default]
    #[value(alias = "bar")]
    Auto,
    /// A line every ten seconds.
    Line,
    /// Nothing.
    None,
}

/// Between two lines.
const PAUSE: Duration = Duration::from_secs(10);
/// Columns of the bar.
const BAR: usize = 16;
/// Between two drawings.
const TICK: Duration = Duration::from_millis(125);
/// Drawings that a rate is averaged over.
const WINDOW: usize = 24;

/// A line being drawn; dropping it clears the line.
pub(crate) struct Bar {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Bar {
    /// Starts to draw.
    pub(crate) fn start(progress: Arc<Progress>, style: Style) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let (stop, stopped) = mpsc::channel();
        let thread = match style {
            Style::Line => Some(lines(progress, stopped)),
            Style::Auto if terminal => Some(bar(progress, stopped)),
            Style::Auto | Style::None => None,
        };
        Self {
            stop: thread.is_some().then_some(stop),
            thread: thread.and_then(std::io::Result::ok),
        }
    }
}

type Drawer = std::io::Result<thread::JoinHandle<()>>;

fn lines(progress: Arc<Progress>, stopped: mpsc::Receiver<()>) -> Drawer {
    thread::Builder::new().name("lines".into()).spawn(move || {
        let mut before = 0;
        while stopped.recv_timeout(PAUSE) == Err(mpsc::RecvTimeoutError::Timeout) {
            let marks = [before, progress.bytes_done()];
            before = marks[1];
            errln!("{}", line(&progress, &marks, PAUSE, usize::MAX));
        }
    })
}

fn bar(progress: Arc<Progress>, stopped: mpsc::Receiver<()>) -> Drawer {
    thread::Builder::new().name("bar".into()).spawn(move || {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let template = format!("{{bar:{BAR}}} {{percent:>3}}%  {{msg}}");
        let style = ProgressStyle::with_template(&template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let mut marks = Vec::new();
        while stopped.recv_timeout(TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
            marks.push(progress.bytes_done());
            if marks.len() > WINDOW {
                marks.remove(0);
            }
            bar.set_length(progress.bytes_total());
            bar.set_position(progress.bytes_done() + progress.bytes_resumed());
            // The terminal may have got another size.
            let columns = columns().saturating_sub(BAR + 7);
            bar.set_message(line(&progress, &marks, TICK, columns));
        }
        bar.finish_and_clear();
    })
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It ends at once now that the channel is gone; a panic in it spoils nothing else.
            let _drawn = thread.join();
        }
    }
}

/// Bytes, rate, remaining time, files, and what limits it, as far as they fit into so many columns, in this order.
fn line(progress: &Progress, marks: &[u64], apart: Duration, columns: usize) -> String {
    let (done, total) = (
        progress.bytes_done() + progress.bytes_resumed(),
        progress.bytes_total(),
    );
    let sure = if progress.is_scanned() { "" } else { ">=" };
    let mut parts = vec![format!(
        "{} of {sure}{}",
        Size::from_bytes(done),
        Size::from_bytes(total)
    )];
    match progress.phase() {
        Phase::Moving | Phase::Finishing => {}
        other => parts.push(other.name().into()),
    }
    if let (Some(first), Some(last)) = (marks.first(), marks.last())
        && last > first
    {
        let span = apart * u32::try_from(marks.len() - 1).unwrap_or(1).max(1);
        let rate = Rate::of(last - first, span);
        parts.push(format!("{}/s", Size::from_bytes(rate.bps() / 8)));
        if progress.is_scanned() {
            let left = rate.time_for(total.saturating_sub(done));
            parts.push(format!("ETA {}", clock(left)));
        }
        parts.push(format!("({rate})"));
    }
    if progress.files_total() > 1 {
        let (done, total) = (progress.files_done(), progress.files_total());
        parts.push(format!("{done} of {sure}{total} files"));
    }
    let limit = match progress.hold() {
        Some(Why::Pacing | Why::Window) => Some("network"),
        Some(Why::Peer) => Some("peer"),
        Some(Why::Application) => Some("files"),
        _ => None,
    };
    parts.extend(limit.map(|l| format!("limit: {l}")));
    if progress.retries() > 0 {
        parts.push(format!("{} repaired", progress.retries()));
    }
    fitted(&parts, columns)
}

/// Columns of the terminal now, but those in which a terminal shows `^C`: if it broke the line there, what was
/// above could not be cleared.
pub(crate) fn columns() -> usize {
    usize::from(Term::stderr().size().1).saturating_sub(4)
}

/// The first part, and of the others those for which there is space.
fn fitted(parts: &[String], columns: usize) -> String {
    let mut line = String::new();
    for part in parts {
        let gap = if line.is_empty() { "" } else { "  " };
        if line.is_empty() || line.len() + gap.len() + part.len() <= columns {
            line.push_str(gap);
            line.push_str(part);
        }
    }
    line.chars().take(columns).collect()
}

/// `1:02:03` or `2:03`.
pub(crate) fn clock(d: Duration) -> String {
    let s = d.as_secs();
    let (h, m, s) = (s / 3600, s / 60 % 60, s % 60);
    if h > 0 {
        format!("{h}:{m:02}:{s:02}")
    } else {
        format!("{m}:{s:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_what_is_known() {
        let progress = Progress::default();
        let all = usize::MAX;
        assert_eq!(line(&progress, &[], TICK, all), "0 B of >=0 B  connecting");
        let text = line(&progress, &[0, 12_500_000], TICK, all);
        assert!(text.contains("(800.0 Mbit/s)"), "{text}");
        for columns in [20, 36, 56, 76] {
            let text = line(&progress, &[0, 12_500_000], TICK, columns);
            assert!(text.len() <= columns, "{columns}: {text}");
        }
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
        assert_eq!(clock(Duration::from_secs(63)), "1:03");
    }
}

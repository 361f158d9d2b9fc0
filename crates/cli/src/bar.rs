//! Progress for people: one line on stderr while it is a terminal, nothing otherwise. A thread of
//! its own redraws the line a few times a second from shared counters.

use std::{
    env,
    ffi::OsStr,
    io::IsTerminal,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use console::{Term, measure_text_width, truncate_str};
use farhaul_core::{
    stats::Why,
    text,
    units::{Rate, Size},
};
use farhaul_transfer::{Phase, Progress};

use crate::{interrupt::asks_for_progress, out, silence::Silences};

/// Style of the progress display.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Style {
    /// A bar on a terminal, lines on a dumb one (TERM=dumb), nothing elsewhere.
    #[default]
    #[value(alias = "bar")]
    Auto,
    /// A line every ten seconds.
    Line,
    /// No progress.
    None,
}

/// Time between two looks, where nothing is drawn.
const LOOK: Duration = Duration::from_millis(500);
/// Looks from one line to the next, which is ten seconds.
const LOOKS: u32 = 20;
/// Columns of the bar.
const BAR: usize = 16;
/// Columns; fewer are not worth a bar.
const NARROW: usize = 60;
/// Time between two drawings.
const TICK: Duration = Duration::from_millis(125);
/// Columns; fewer are not worth a name.
const SHORTEST_NAME: usize = 10;
/// Drawings that a rate is averaged over.
const WINDOW: usize = 24;

/// Files that are named on stdout once they are in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// No names.
    Hidden,
    /// Files whose content was sent.
    Sent,
}

impl Names {
    /// Names the files that are over since the last call.
    fn print(self, progress: &Progress, clear: impl FnOnce()) {
        if self == Self::Hidden {
            return;
        }
        let (files, missed) = progress.take_files();
        let sent = files.iter().filter(|file| file.sent && file.ok);
        let names: Vec<_> = sent.map(|file| text::shown(&file.path)).collect();
        if names.is_empty() && missed == 0 {
            return;
        }
        clear();
        names.into_iter().for_each(out::line);
        if missed > 0 {
            errln!(
                "and {missed} more files, which arrived faster than their names could be printed"
            );
        }
    }
}

/// A line being drawn; dropping it clears the line.
pub(crate) struct Bar {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Bar {
    /// Starts to draw.
    pub(crate) fn start(progress: Arc<Progress>, style: Style, names: Names) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let (stop, stopped) = mpsc::channel();
        let thread = match style {
            Style::Auto if can_redraw() => bar(progress, stopped, names),
            _ => lines(progress, stopped, style, terminal, names),
        };
        Self {
            stop: thread.is_ok().then_some(stop),
            thread: thread.ok(),
        }
    }
}

/// True if stderr is a terminal that can clear a line.
pub(crate) fn can_redraw() -> bool {
    std::io::stderr().is_terminal() && !is_dumb(env::var_os("TERM").as_deref())
}

fn is_dumb(term: Option<&OsStr>) -> bool {
    term.is_some_and(|term| term == "dumb")
}

type Drawer = std::io::Result<thread::JoinHandle<()>>;

/// Silences of the other end as they begin and end, progress in between where that is the style, and when SIGUSR1 asks
/// for it.
fn lines(
    progress: Arc<Progress>,
    stopped: mpsc::Receiver<()>,
    style: Style,
    terminal: bool,
    names: Names,
) -> Drawer {
    let shows = style == Style::Line || style == Style::Auto && terminal;
    if shows || names == Names::Sent {
        progress.watch_files();
    }
    thread::Builder::new().name("lines".into()).spawn(move || {
        let (mut marks, mut silences) = ([0; 2], Silences::default());
        let mut last = [0; 2];
        for tick in 1_u32.. {
            if stopped.recv_timeout(LOOK) != Err(mpsc::RecvTimeoutError::Timeout) {
                break;
            }
            names.print(&progress, || {});
            last = [last[1], progress.bytes_done()];
            let silence = silences.text(&progress);
            if let Some(text) = silence.filter(|_| style != Style::None) {
                errln!("farhaul: {text}");
            }
            if asks_for_progress() {
                errln!("{}", line(&progress, &last, LOOK, usize::MAX));
            }
            if shows && tick.is_multiple_of(LOOKS) {
                marks = [marks[1], progress.bytes_done()];
                errln!("{}", line(&progress, &marks, LOOK * LOOKS, usize::MAX));
            }
        }
        names.print(&progress, || {});
    })
}

fn bar(progress: Arc<Progress>, stopped: mpsc::Receiver<()>, names: Names) -> Drawer {
    progress.watch_files();
    thread::Builder::new().name("bar".into()).spawn(move || {
        let screen = Screen::default();
        let (mut marks, mut silences) = (Vec::new(), Silences::default());
        while stopped.recv_timeout(TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
            marks.push(progress.bytes_done());
            if marks.len() > WINDOW {
                marks.remove(0);
            }
            names.print(&progress, || screen.clear());
            if let Some(text) = silences.text(&progress) {
                screen.clear();
                errln!("farhaul: {text}");
            }
            if asks_for_progress() {
                screen.clear();
                errln!("{}", line(&progress, &marks, TICK, usize::MAX));
            }
            screen.show(&shown(&progress, &marks, screen.columns()));
        }
        names.print(&progress, || screen.clear());
        screen.clear();
    })
}

/// Line of the bar and the figures, in so many columns. Where there are few, numbers are worth more
/// than a drawing.
fn shown(progress: &Progress, marks: &[u64], columns: usize) -> String {
    let Some(drawn) = blocks(progress) else {
        return line(progress, marks, TICK, columns);
    };
    let share = if columns < NARROW {
        drawn.trim_start_matches(['\u{2588}', '\u{2591}', ' '])
    } else {
        &drawn
    };
    let left = columns.saturating_sub(measure_text_width(share) + 2);
    format!("{share}  {}", line(progress, marks, TICK, left))
}

/// The share that is done, drawn and in percent; none as long as nobody knows of how much. All of it is done at the end
/// only.
fn blocks(progress: &Progress) -> Option<String> {
    if !progress.is_scanned() {
        return None;
    }
    let (done, total) = if progress.bytes_total() > 0 {
        (
            progress.bytes_done() + progress.bytes_resumed(),
            progress.bytes_total(),
        )
    } else {
        (progress.files_done(), progress.files_total())
    };
    let (done, total) = (u128::from(done), u128::from(total).max(1));
    let part = |of: usize| usize::try_from(done * of as u128 / total).map_or(of, |n| n.min(of));
    let full = part(BAR);
    let (full, rest) = ("\u{2588}".repeat(full), "\u{2591}".repeat(BAR - full));
    let most = if progress.phase() == Phase::Done {
        100
    } else {
        99
    };
    Some(format!("{full}{rest} {:>3}%", part(100).min(most)))
}

/// The last line of stderr, which is a terminal.
pub(crate) struct Screen(Term);

impl Default for Screen {
    fn default() -> Self {
        Self(Term::stderr())
    }
}

impl Screen {
    /// Columns of the terminal now, but those in which it shows `^C`: if it broke the line there, what was above could
    /// not be cleared.
    pub(crate) fn columns(&self) -> usize {
        usize::from(self.0.size().1).saturating_sub(4)
    }

    /// Replaces the line.
    pub(crate) fn show(&self, text: &str) {
        let text = truncate_str(text, self.columns(), "");
        // A terminal that cannot be written is not reported.
        let _ignored = self.0.write_str(&format!("{CLEAR}{}", text::plain(&text)));
    }

    /// Makes room for the next output.
    pub(crate) fn clear(&self) {
        let _ignored = self.0.write_str(CLEAR);
    }
}

/// Moves to the first column, and clears the line.
const CLEAR: &str = "\r\x1b[2K";

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
    let so_far = Size::from_bytes(done);
    let mut parts = vec![if progress.is_scanned() {
        format!("{so_far} of {}", Size::from_bytes(total))
    } else {
        format!("{so_far} so far")
    }];
    if let Some(silent) = progress.silent() {
        parts.push(format!("no answer for {} s", silent.as_secs()));
    }
    match progress.phase() {
        Phase::Waiting => parts.push("waiting for the other end to begin".into()),
        Phase::Moving if progress.bytes_done() == 0 && progress.bytes_compared() > 0 => {
            let compared = progress.bytes_compared().min(total);
            parts.push(format!("{} compared", Size::from_bytes(compared)));
        }
        Phase::Moving if !progress.is_scanned() => parts.push("listing".into()),
        Phase::Moving => {}
        other => parts.push(other.name().into()),
    }
    let moved = marks
        .last()
        .zip(marks.first())
        .map_or(0, |(last, first)| last.saturating_sub(*first));
    let span = apart * u32::try_from(marks.len()).map_or(1, |looks| looks.saturating_sub(1).max(1));
    let rate = Rate::of(moved, span);
    if moved > 0 {
        parts.push(format!("{}/s", Size::from_bytes(rate.bps() / 8)));
        if progress.is_scanned() {
            let left = rate.time_for(total.saturating_sub(done));
            parts.push(format!("ETA {}", clock(left)));
        }
        parts.push(format!("({rate})"));
    }
    if progress.files_total() > 1 {
        let (done, total) = (progress.files_done(), progress.files_total());
        parts.push(if progress.is_scanned() {
            format!("{done} of {total} files")
        } else {
            format!("{done} files")
        });
    }
    let limit = match progress.hold() {
        Some(Why::Pacing) if progress.max_rate().is_some_and(|most| rate.is_near(most)) => {
            Some("--max-rate")
        }
        Some(Why::Pacing | Why::Window) => Some("network"),
        Some(Why::Peer) => Some("peer"),
        Some(Why::Application) => Some("application"),
        _ => None,
    };
    parts.extend(limit.map(|l| format!("limit: {l}")));
    if progress.retries() > 0 {
        parts.push(format!("{} repaired", progress.retries()));
    }
    let mut line = fitted(&parts, columns);
    let name = text::shown(&progress.current());
    let left = columns.saturating_sub(measure_text_width(&line) + 2);
    if !name.is_empty() && left >= SHORTEST_NAME {
        line.push_str("  ");
        line.push_str(&end_of(&name, left));
    }
    line
}

/// Fits a path into so many columns: the end of it if it is longer.
fn end_of(path: &str, columns: usize) -> String {
    if measure_text_width(path) <= columns {
        return path.to_owned();
    }
    let mut from = path.len();
    for (at, _) in path.char_indices().rev() {
        if measure_text_width(&path[at..]) + 3 > columns {
            break;
        }
        from = at;
    }
    format!("...{}", &path[from..])
}

/// Parts for which there is space; none is cut.
fn fitted(parts: &[String], columns: usize) -> String {
    let mut line = String::new();
    for part in parts {
        let gap = if line.is_empty() { "" } else { "  " };
        if line.len() + gap.len() + part.len() <= columns {
            line.push_str(gap);
            line.push_str(part);
        }
    }
    line
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
    use farhaul_transfer::Reported;

    use super::*;

    #[test]
    fn the_bar_is_as_long_as_what_is_done() {
        let progress = Progress::default();
        assert_eq!(blocks(&progress), None, "of how much is not known");
        progress.scan_done();
        let drawn = |full: usize, percent: &str| {
            let (full, rest) = ("\u{2588}".repeat(full), "\u{2591}".repeat(BAR - full));
            Some(format!("{full}{rest} {percent}"))
        };
        assert_eq!(blocks(&progress), drawn(0, "  0%"));
        let mut reported = Reported {
            phase: Some(Phase::Finishing),
            done: Some(50),
            resumed: Some(50),
            total: Some(200),
            files_total: Some(2),
            ..Reported::default()
        };
        progress.set_reported(&reported);
        assert_eq!(blocks(&progress), drawn(BAR / 2, " 50%"));
        reported.done = Some(150);
        progress.set_reported(&reported);
        assert_eq!(blocks(&progress), drawn(BAR, " 99%"), "not over yet");
        reported.phase = Some(Phase::Done);
        progress.set_reported(&reported);
        assert_eq!(blocks(&progress), drawn(BAR, "100%"));
    }

    #[test]
    fn a_dumb_terminal_is_known_by_its_name() {
        assert!(is_dumb(Some("dumb".as_ref())));
        assert!(!is_dumb(Some("xterm".as_ref())) && !is_dumb(None));
    }

    #[test]
    fn the_end_of_a_long_name_is_shown_where_it_fits() {
        assert_eq!(end_of("run7/a.csv", 10), "run7/a.csv");
        assert_eq!(end_of("run7/results.csv", 10), "...lts.csv");
        // Each takes two columns.
        assert_eq!(end_of("\u{6570}\u{636e}\u{6570}\u{636e}", 8).len(), 12);
        assert_eq!(
            end_of("\u{6570}\u{636e}\u{6570}\u{636e}", 7),
            "...\u{6570}\u{636e}"
        );
    }

    #[test]
    fn where_there_is_little_space_numbers_are_whole() {
        let progress = Progress::default();
        let marks = [0, 12_500_000];
        for (columns, expected) in [(10, "0 B so far"), (24, "0 B so far  connecting")] {
            assert_eq!(shown(&progress, &marks, columns), expected);
        }
        progress.scan_done();
        for (columns, expected) in [
            (10, "0%  "),
            (24, "0%  0 B of 0 B"),
            (36, "0%  0 B of 0 B  connecting"),
        ] {
            assert_eq!(shown(&progress, &[], columns), expected);
        }
        assert!(shown(&progress, &marks, 80).contains('\u{2591}'));
    }

    #[test]
    fn a_line_has_what_is_known() {
        let progress = Progress::default();
        let all = usize::MAX;
        assert_eq!(line(&progress, &[], TICK, all), "0 B so far  connecting");
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

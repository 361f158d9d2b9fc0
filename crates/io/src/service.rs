//! Threads that a server needs as long as it lives. One that panics is reported and begins again.

use std::{io, thread, time::Duration};

use crate::slot::caught;

/// Time before a thread that panicked begins again, so that one that panics at once takes no processor.
const PAUSE: Duration = Duration::from_millis(200);

/// Starts a thread that runs `work` until it returns. `report` gets a line for each panic.
pub fn spawn(
    name: &'static str,
    report: impl Fn(&str) + Send + 'static,
    mut work: impl FnMut() + Send + 'static,
) -> io::Result<()> {
    let run = move || {
        while let Err(why) = caught(&mut work) {
            report(&format!(
                "the thread '{name}' failed and begins again: {why}"
            ));
            thread::park_timeout(PAUSE);
        }
    };
    thread::Builder::new().name(name.into()).spawn(run)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_that_panics_is_reported_and_begins_again() {
        let (say, said) = mpsc::channel();
        let (done, ended) = mpsc::channel();
        let mut turns = 0;
        let work = move || {
            turns += 1;
            assert!(turns > 2, "turn {turns}");
            done.send(turns).expect("somebody waits");
        };
        let report = move |line: &str| say.send(line.to_owned()).expect("somebody waits");
        spawn("service", report, work).expect("a thread");
        assert_eq!(ended.recv().expect("it ends"), 3);
        let lines: Vec<_> = said.iter().collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("'service'") && lines[0].ends_with("turn 1"));
    }
}

//! Shows waiting on a terminal: a task of more than a second has a line on stderr that goes when it
//! is over.

use std::{sync::mpsc, thread, time::Duration};

use crate::bar::{Screen, can_redraw};

/// Time that nobody hears about: shorter waits are not shown.
const SOON: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(250);

/// A line that is shown from the second second on; dropping it clears it.
pub(crate) struct Wait {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Wait {
    /// Begins to wait for what `text` says, given the time waited, unless nobody looks.
    pub(crate) fn start(text: impl Fn(Duration) -> String + Send + 'static) -> Self {
        let (stop, stopped) = mpsc::channel();
        let shown = can_redraw();
        let draw = move || draw(&text, &stopped);
        let thread = shown.then(|| thread::Builder::new().name("wait".into()).spawn(draw));
        Self {
            // Without a thread the work is done all the same.
            thread: thread.and_then(std::io::Result::ok),
            stop: Some(stop),
        }
    }

    /// Begins to wait for an answer from `who`.
    pub(crate) fn for_answer(who: impl std::fmt::Display) -> Self {
        let who = who.to_string();
        Self::start(move |time| format!("waiting for an answer from {who}, {} s", time.as_secs()))
    }
}

fn draw(text: &dyn Fn(Duration) -> String, stopped: &mpsc::Receiver<()>) {
    let going_on = |time| stopped.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Timeout);
    if !going_on(SOON) {
        return;
    }
    let screen = Screen::default();
    let mut waited = SOON;
    loop {
        screen.show(&text(waited));
        if !going_on(TICK) {
            break;
        }
        waited += TICK;
    }
    screen.clear();
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It ends at once now that the channel is gone; a panic in it spoils nothing else.
            let _drawn = thread.join();
        }
    }
}

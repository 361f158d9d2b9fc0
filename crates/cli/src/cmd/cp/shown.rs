//! Filter between a copy and the program around it: its flags decide what people and programs see.

use std::{
    ffi::OsStr,
    io::{self, IsTerminal as _},
    sync::Arc,
};

use farhaul_transfer::Progress;
use serde_json::Value;

use super::Args;
use crate::{
    app::console::{Answer, Cancel, Console, Level},
    bar::{Bar, Names, Style},
};

/// The program around a copy, which gets what the flags do not hide.
pub(super) struct Shown {
    around: Arc<dyn Console>,
    least: Level,
    /// True if events are wanted whatever is around.
    pub(super) stream: bool,
    pub(super) json: bool,
    pub(super) details: bool,
    names: Names,
    style: Style,
}

impl Shown {
    pub(super) fn of(args: &Args, around: &Arc<dyn Console>) -> Arc<Self> {
        let to_terminal =
            args.paths.last().is_some_and(|to| to == OsStr::new("-")) && io::stdout().is_terminal();
        Arc::new(Self {
            around: Arc::clone(around),
            least: match (args.quiet, args.for_programs()) {
                (true, _) => Level::Important,
                (false, true) => Level::Warning,
                (false, false) => Level::Notice,
            },
            stream: args.json_stream,
            json: args.json,
            details: args.verbose && !args.dry_run,
            // Who takes events learns of files so.
            names: if around.wants_events() {
                Names::Hidden
            } else {
                args.names()
            },
            // None where other output has its place.
            style: if to_terminal {
                Style::None
            } else {
                args.style()
            },
        })
    }
}

impl Console for Shown {
    fn event(&self, event: &Value) {
        self.around.event(event);
    }

    fn wants_events(&self) -> bool {
        self.stream || self.around.wants_events()
    }

    fn message(&self, level: Level, text: &str) {
        if level >= self.least {
            self.around.message(level, text);
        }
    }

    fn line(&self, text: &str) {
        self.around.line(text);
    }

    fn watch(&self, progress: &Arc<Progress>) -> Option<Box<dyn Send>> {
        let progress = Arc::clone(progress);
        Some(Box::new(Bar::start(progress, self.style, self.names)))
    }

    fn ask(&self, question: &str) -> Answer {
        self.around.ask(question)
    }

    fn cancel(&self) -> Option<&Cancel> {
        self.around.cancel()
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, sync::Mutex};

    use super::*;

    /// Keeps what it hears.
    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Console for Heard {
        fn wants_events(&self) -> bool {
            false
        }

        fn message(&self, _level: Level, text: &str) {
            self.0.lock().unwrap().push(text.into());
        }

        fn cancel(&self) -> Option<&Cancel> {
            None
        }
    }

    #[test]
    fn flags_hide_what_is_less_and_want_events() {
        for (flags, heard, events) in [
            (&[][..], "notice warning important", false),
            (&["--json"], "warning important", false),
            (&["--json-stream"], "warning important", true),
            (&["--quiet"], "important", false),
            (&["--json-stream", "--quiet"], "important", true),
        ] {
            let flags: Vec<OsString> = flags.iter().map(OsString::from).collect();
            let around = Arc::new(Heard::default());
            let program: Arc<dyn Console> = Arc::<Heard>::clone(&around);
            let shown = Shown::of(&Args::of_sender(&flags).unwrap(), &program);
            shown.message(Level::Notice, "notice");
            shown.message(Level::Warning, "warning");
            shown.message(Level::Important, "important");
            assert_eq!(around.0.lock().unwrap().join(" "), heard, "{flags:?}");
            assert_eq!(shown.wants_events(), events, "{flags:?}");
        }
    }
}

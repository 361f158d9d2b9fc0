//! What did a part find? Figures, and violations: one line of JSON for the record, text for
//! people, and an exit code for the gate.

use std::process::ExitCode;

/// The most faults that are printed.
const SHOWN: usize = 20;

/// What one part found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    part: &'static str,
    runs: u64,
    figures: Vec<(String, String)>,
    faults: Vec<String>,
    skipped: Option<String>,
}

impl Report {
    pub(crate) fn new(part: &'static str) -> Self {
        Self {
            part,
            ..Self::default()
        }
    }

    /// A run is over.
    pub(crate) const fn ran(&mut self) {
        self.runs += 1;
    }

    /// A figure for the record.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "figures are made where they are printed"
    )]
    pub(crate) fn figure(&mut self, name: impl Into<String>, value: impl ToString) {
        self.figures.push((name.into(), value.to_string()));
    }

    /// A violation; `how` describes how to reproduce it.
    pub(crate) fn fault(&mut self, how: impl Into<String>) {
        self.faults.push(how.into());
    }

    /// This machine does not let the part run.
    pub(crate) fn skip(&mut self, why: impl Into<String>) {
        self.skipped = Some(why.into());
    }

    /// Prints the findings. Without faults the part passed; with one planted it passed only if it found
    /// some.
    pub(crate) fn conclude(&self, planted: bool) -> ExitCode {
        if let Some(why) = &self.skipped {
            say(&format!("campaign {}: skipped: {why}", self.part));
            return ExitCode::SUCCESS;
        }
        for (name, value) in &self.figures {
            say(&format!("{}: {name} {value}", self.part));
        }
        for fault in self.faults.iter().take(SHOWN) {
            say(&format!("campaign {}: FAULT {fault}", self.part));
        }
        say(&format!(
            "campaign {}: {} runs, {} faults{}",
            self.part,
            self.runs,
            self.faults.len(),
            if planted { " (one was planted)" } else { "" }
        ));
        ExitCode::from(u8::from(self.faults.is_empty() == planted))
    }
}

/// One line on stdout; a closed pipe is not worth a panic.
pub(crate) fn say(line: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    let _closed = writeln!(out, "{line}").and_then(|()| out.flush());
}

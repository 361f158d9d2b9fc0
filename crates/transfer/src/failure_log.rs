//! Files that failed, and what they make of the whole transfer.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::{
    error::{Advice, TransferError},
    quota,
    wire::{Exit, Tally, path::LINK_ADVICE},
};

/// Failures and warnings kept with their text; more are only counted.
const KEPT: usize = 1000;
/// Bytes of these texts.
const KEPT_TEXT: usize = 2 << 20;

/// Words for the effect of the same command once the cause is gone.
const CONTINUES: &str = ": it continues";

/// Endings of causes that know better than their code what to do.
const OWN_ADVICE: [&str; 5] = [
    LINK_ADVICE,
    "choose another name",
    "have it removed there",
    "copy it by itself to another name",
    "copy its content to a file first",
];

/// A file that did not arrive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Reason, as the exit code's name.
    #[serde(serialize_with = "by_name")]
    pub code: Exit,
    /// Path and cause.
    pub text: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn by_name<S: Serializer>(code: &Exit, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(code.name())
}

/// Failures and warnings of one transfer.
#[derive(Debug, Default)]
pub(crate) struct FailureLog {
    counts: BTreeMap<Exit, u64>,
    /// Number of failures that are links which a share does not take.
    links: u64,
    /// Number of failures that the same command cannot cure.
    settled: u64,
    /// Bytes of text kept.
    kept: usize,
    pub(crate) failures: Vec<Failure>,
    pub(crate) warnings: Vec<String>,
    /// Files that would have been sent, of a plan.
    pub(crate) planned: u64,
}

impl FailureLog {
    /// Notes a failure; `Exit::Ok` makes it a warning.
    pub(crate) fn add(&mut self, code: Exit, text: String) {
        let count = if code == Exit::Ok {
            self.warnings.len()
        } else {
            *self.counts.entry(code).or_default() += 1;
            let advice = own_advice(&text).map(|(_, advice)| advice);
            self.settled += u64::from(advice.is_some());
            self.links += u64::from(advice == Some(LINK_ADVICE));
            self.failures.len()
        };
        if count >= KEPT || self.kept + text.len() > KEPT_TEXT {
            return;
        }
        self.kept += text.len();
        if code == Exit::Ok {
            self.warnings.push(text);
        } else {
            self.failures.push(Failure { code, text });
        }
    }

    /// True if nothing failed but links that a share does not take, whose names stay there.
    pub(crate) fn is_clean(&self) -> bool {
        let total: u64 = self.counts.values().sum();
        total == self.links
    }

    /// True if some file failed so.
    pub(crate) fn has(&self, code: Exit) -> bool {
        self.counts.contains_key(&code)
    }

    /// Sums up the failures: the one code they share, with a verification failure or a full disk
    /// before all; `None` if there are none.
    pub(crate) fn verdict(&self, tally: &Tally) -> Option<TransferError> {
        let total: u64 = self.counts.values().sum();
        let (&first, _) = self.counts.first_key_value()?;
        let urgent = [Exit::VerifyFailed, Exit::NoSpace]
            .into_iter()
            .find(|c| self.counts.contains_key(c));
        let arrived = tally.files_ok + tally.files_skipped + self.planned;
        let common = if self.counts.len() == 1 {
            first
        } else {
            Exit::Partial
        };
        let code = match urgent.unwrap_or(common) {
            Exit::SourceMissing if arrived > 0 => Exit::Partial,
            code => code,
        };
        let cause = self
            .failures
            .iter()
            .find(|f| f.code == code)
            .or(self.failures.first());
        let cause = cause.map_or("", |f| f.text.as_str());
        let text = if total == 1 {
            cause.to_string()
        } else {
            format!(
                "{total} of {} files failed; first: {cause}",
                total + arrived
            )
        };
        if let Some((text, own)) = own_advice(&text) {
            let settled = self.settled == total;
            let e = TransferError::new(code, text).fix(own);
            return Some(TransferError { settled, ..e });
        }
        let fix = match code {
            Exit::NoSpace if text.contains(quota::NEVER) => {
                "have the quota raised there, or send less".into()
            }
            Exit::NoSpace => Advice::again("free some space, then run the same command again")
                .with_end(CONTINUES),
            Exit::VerifyFailed => {
                "the content was saved beside the target as '.bad'; check disk and memory of both machines".into()
            }
            Exit::SourceChanged => Advice::again("run the same command again when the files are at rest"),
            Exit::Limit => "see with -n what would be deleted, then give a higher limit".into(),
            Exit::Locked => "wait for the other run to end".into(),
            _ => Advice::again("fix the cause and run the same command again").with_end(CONTINUES),
        };
        Some(TransferError::new(code, text).fix(fix))
    }
}

/// Splits a text into its cause and the advice of its own. Running the same command again would not
/// help then.
fn own_advice(text: &str) -> Option<(&str, &'static str)> {
    OWN_ADVICE.into_iter().find_map(|advice| {
        let cause = text.strip_suffix(advice)?;
        Some((
            cause
                .strip_suffix(": ")
                .or_else(|| cause.strip_suffix("; "))?,
            advice,
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_telling_code_wins() {
        let mut log = FailureLog::default();
        let tally = Tally {
            deleted: 0,
            files_ok: 3,
            ..Tally::default()
        };
        log.add(Exit::Ok, "link skipped".into());
        assert_eq!(log.verdict(&tally), None);
        log.add(Exit::SourceChanged, "a".into());
        assert_eq!(log.verdict(&tally).unwrap().code, Exit::SourceChanged);
        log.add(Exit::Partial, "b".into());
        assert_eq!(log.verdict(&tally).unwrap().code, Exit::Partial);
        log.add(Exit::VerifyFailed, "c".into());
        let e = log.verdict(&tally).unwrap();
        assert_eq!(e.code, Exit::VerifyFailed);
        assert_eq!(e.text, "3 of 6 files failed; first: c");
    }

    #[test]
    fn there_is_one_remedy_and_it_fits() {
        let advised = |code, cause: &str| {
            let mut log = FailureLog::default();
            log.add(code, cause.into());
            log.verdict(&Tally::default()).unwrap()
        };
        let e = advised(Exit::DestError, "a: it is there: choose another name");
        assert_eq!(
            (&*e.text, &*e.fix),
            ("a: it is there", "choose another name")
        );
        let e = advised(
            Exit::NoSpace,
            "a: needs 2 KiB, more than the share's quota of 1 KiB",
        );
        assert!(e.fix.starts_with("have the quota raised"), "{}", e.fix);
        let e = advised(Exit::NoSpace, "a: needs 2 KiB, 1 KiB is free");
        assert!(e.fix.starts_with("free some space"), "{}", e.fix);
    }

    #[test]
    fn a_missing_source_is_all_only_if_nothing_else_would_come() {
        let mut log = FailureLog::default();
        log.add(Exit::SourceMissing, "a".into());
        let code = |log: &FailureLog| log.verdict(&Tally::default()).unwrap().code;
        assert_eq!(code(&log), Exit::SourceMissing);
        log.planned = 1;
        assert_eq!(code(&log), Exit::Partial);
    }
}

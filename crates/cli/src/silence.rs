//! Reports that the other end is silent: once when a silence begins, and once when it is over.

use std::time::Duration;

use farhaul_transfer::{Phase, Progress};

/// Notices for people when the other end falls silent, and when it answers again.
#[derive(Debug, Default)]
pub(crate) struct Silences {
    /// The longest of the one that goes on.
    lasted: Option<Duration>,
}

/// Change in the state of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerState {
    /// Nothing was received for so long.
    Silent(Duration),
    /// The other end answers again, after so long.
    Answering(Duration),
}

impl Silences {
    /// Change since the last look, if any.
    pub(crate) fn look(&mut self, progress: &Progress) -> Option<PeerState> {
        match (self.lasted, progress.silent()) {
            (None, Some(lasts)) => {
                self.lasted = Some(lasts);
                Some(PeerState::Silent(lasts))
            }
            (Some(_), Some(lasts)) => {
                self.lasted = Some(lasts);
                None
            }
            // The end of the session is reported by the code that ends it.
            (Some(_), None) if progress.phase() == Phase::Done => None,
            (Some(lasted), None) => {
                self.lasted = None;
                Some(PeerState::Answering(lasted))
            }
            (None, None) => None,
        }
    }

    /// The change in words, if there is one.
    pub(crate) fn text(&mut self, progress: &Progress) -> Option<String> {
        Some(match self.look(progress)? {
            PeerState::Silent(lasts) => format!(
                "the other end has been silent for {} s; the copy waits for it",
                lasts.as_secs()
            ),
            PeerState::Answering(lasted) => format!(
                "the other end answers again, after {} s; the copy goes on",
                lasted.as_secs()
            ),
        })
    }
}

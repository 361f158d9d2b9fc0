//! What was so when a packet left? One record per batch, looked up by packet number.

use std::collections::VecDeque;

use crate::congestion::Facts;

/// The most batches: 8 MiB of them. Batches are large where there are many packets in flight, unless the
/// peer makes it so.
const MOST: usize = 1 << 17;

/// Facts of the batches in flight.
#[derive(Clone, Debug, Default)]
pub struct FactLog {
    /// First packet number after the batch, and its facts; ascending.
    batches: VecDeque<(u64, Facts)>,
}

impl FactLog {
    /// The packets up to `end`, after the last batch, left with `facts`.
    pub fn push(&mut self, end: u64, facts: Facts) {
        if self.batches.len() == MOST {
            self.batches.pop_front();
        }
        self.batches.push_back((end, facts));
    }

    /// Facts of packet `number`, if kept.
    pub fn get(&self, number: u64) -> Option<Facts> {
        // Of what was forgotten the oldest that is kept speaks.
        let at = self.batches.partition_point(|(end, _)| *end <= number);
        self.batches.get(at).map(|(_, facts)| *facts)
    }

    /// Forgets the packets below `first`.
    pub fn trim(&mut self, first: u64) {
        while self.batches.front().is_some_and(|(end, _)| *end <= first) {
            self.batches.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Size;

    #[test]
    fn a_packet_has_the_facts_of_its_batch() {
        let facts = |n| Facts {
            delivered: Size::from_bytes(n),
            ..Facts::default()
        };
        let mut log = FactLog::default();
        log.push(10, facts(1));
        log.push(14, facts(2));
        assert_eq!(log.get(0), Some(facts(1)));
        assert_eq!(log.get(9), Some(facts(1)));
        assert_eq!(log.get(10), Some(facts(2)));
        assert_eq!(log.get(14), None);
        log.trim(10);
        assert_eq!(log.get(12), Some(facts(2)));
        log.trim(14);
        assert_eq!(log.get(12), None);
    }
}

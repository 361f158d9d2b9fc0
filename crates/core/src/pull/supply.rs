//! Chooses the next unit of senders of Tsunami's kind. Requested units go first, in the order
//! requested; else the unit at the cursor. At the end the last unit goes again and again, until the
//! receiver stops the sender. The receiver may set the cursor back. Other messages wait in the same
//! line, so that they take effect in their turn.

use std::collections::VecDeque;

/// Next step of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<M> {
    /// A requested unit: a retransmission.
    Repair(u64),
    /// The unit at the cursor.
    Next(u64),
    /// The last unit; it is repeated.
    Last(u64),
    /// A message.
    Message(M),
}

#[derive(Clone, Copy, Debug)]
enum Asked<M> {
    Unit(u64),
    Message(M),
}

/// The units of a sender.
#[derive(Clone, Debug)]
pub struct Supply<M> {
    units: u64,
    cursor: u64,
    /// Units that have been at the cursor; none beyond was ever sent.
    reached: u64,
    asked: VecDeque<Asked<M>>,
    /// No more are kept waiting.
    most: usize,
}

impl<M> Supply<M> {
    /// `units`, at least one; at most `most` requests wait.
    pub fn new(units: u64, most: usize) -> Self {
        Self {
            units: units.max(1),
            cursor: 0,
            reached: 0,
            asked: VecDeque::new(),
            most,
        }
    }

    /// Units in all.
    pub const fn units(&self) -> u64 {
        self.units
    }

    /// One past the highest unit sent.
    pub const fn reached(&self) -> u64 {
        self.reached
    }

    /// Queues a retransmission; false if the unit was never sent or the queue is full.
    pub fn ask(&mut self, unit: u64) -> bool {
        unit < self.reached && self.queue(Asked::Unit(unit))
    }

    /// Queues a message in order with the requests; false if the queue is full.
    pub fn push_message(&mut self, message: M) -> bool {
        self.queue(Asked::Message(message))
    }

    fn queue(&mut self, asked: Asked<M>) -> bool {
        let room = self.asked.len() < self.most;
        if room {
            self.asked.push_back(asked);
        }
        room
    }

    /// Moves the cursor to `unit`, at most to the end of the units sent.
    pub fn rewind(&mut self, unit: u64) {
        self.cursor = unit.min(self.reached);
    }

    /// Truncates to the units already sent, but at least one.
    pub fn cut(&mut self) {
        self.units = self.units.min(self.reached.max(1));
    }

    /// Takes the next step.
    pub fn step(&mut self) -> Step<M> {
        match self.asked.pop_front() {
            Some(Asked::Message(message)) => return Step::Message(message),
            Some(Asked::Unit(unit)) => return Step::Repair(unit),
            None => {}
        }
        let unit = self.cursor.min(self.units - 1);
        self.cursor = unit + 1;
        self.reached = self.reached.max(self.cursor);
        if self.cursor < self.units {
            Step::Next(unit)
        } else {
            Step::Last(unit)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_asked_for_goes_first_and_the_last_unit_is_repeated() {
        let mut supply = Supply::new(3, 2);
        assert_eq!(supply.step(), Step::Next(0));
        assert!(!supply.ask(1), "never sent");
        assert!(
            supply.ask(0) && supply.push_message('m') && !supply.ask(0),
            "full"
        );
        let steps: Vec<_> = (0..5).map(|_| supply.step()).collect();
        let (last, message) = (Step::Last(2), Step::Message('m'));
        assert_eq!(steps, [Step::Repair(0), message, Step::Next(1), last, last]);
        supply.rewind(1);
        assert_eq!((supply.step(), supply.step()), (Step::Next(1), last));
    }

    proptest! {
        #[test]
        fn equals_a_naive_twin(
            units in 1_u64..30,
            ops in proptest::collection::vec((0_u8..12, 0_u64..40), 0..120),
        ) {
            let (mut supply, mut units) = (Supply::new(units, 8), units);
            let (mut line, mut at, mut sent) = (Vec::new(), 0, Vec::new());
            for (op, n) in ops {
                match op {
                    0..3 => {
                        let may = sent.contains(&n) && line.len() < 8;
                        prop_assert_eq!(supply.ask(n), may);
                        if may {
                            line.push(Step::Repair(n));
                        }
                    }
                    3 => {
                        let may = line.len() < 8;
                        prop_assert_eq!(supply.push_message(n), may);
                        if may {
                            line.push(Step::Message(n));
                        }
                    }
                    4 => {
                        supply.rewind(n);
                        at = n.min(sent.iter().max().map_or(0, |s| s + 1));
                    }
                    5 if n == 0 => {
                        supply.cut();
                        units = units.min(sent.iter().max().map_or(1, |s| s + 1));
                    }
                    _ => {
                        let step = supply.step();
                        if line.is_empty() {
                            at = (at + 1).min(units);
                            sent.push(at - 1);
                            let last = at == units;
                            let expected = if last { Step::Last(at - 1) } else { Step::Next(at - 1) };
                            prop_assert_eq!(step, expected);
                        } else {
                            prop_assert_eq!(step, line.remove(0));
                        }
                    }
                }
                prop_assert_eq!(supply.reached(), sent.iter().max().map_or(0, |s| s + 1));
                prop_assert_eq!(supply.units(), units);
            }
        }
    }
}

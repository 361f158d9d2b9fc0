//! What was sent, under which number, and not acknowledged yet? One record per packet from the oldest
//! unacknowledged number on, found by its number; a packet sent again keeps number and content.

use std::collections::VecDeque;

use farhaul_core::congestion::Facts;

use super::outflow::Piece;

/// What is believed of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    InFlight,
    /// It is to be sent again.
    Lost,
    /// It is beyond a hole that was told, and was not missed.
    Arrived,
}

/// One packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) piece: Piece,
    /// When it left last, and what was known then.
    pub(super) facts: Facts,
    /// Bytes sent up to and including it, when it left first.
    pub(super) bytes_so_far: u64,
    /// UDP payload bytes.
    pub(super) wire: u32,
    pub(super) resent: bool,
    pub(super) state: State,
    /// Its message is given up.
    pub(super) dropped: bool,
}

/// Packets sent and not acknowledged.
#[derive(Debug, Default)]
pub(super) struct Book {
    sent: VecDeque<Sent>,
    first: u64,
}

impl Book {
    /// The first packet will have this number.
    pub(super) fn start(&mut self, first: u64) {
        self.first = first;
        self.sent.clear();
    }

    /// The oldest number that is not acknowledged; the next one if all are.
    pub(super) const fn first(&self) -> u64 {
        self.first
    }

    /// The number of the next new packet.
    pub(super) fn next(&self) -> u64 {
        self.first + self.sent.len() as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    fn index(&self, number: u64) -> usize {
        usize::try_from(number.wrapping_sub(self.first)).unwrap_or(usize::MAX)
    }

    pub(super) fn get(&self, number: u64) -> Option<&Sent> {
        self.sent.get(self.index(number))
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Sent> {
        let index = self.index(number);
        self.sent.get_mut(index)
    }

    /// Appends a new packet.
    pub(super) fn push(&mut self, sent: Sent) {
        self.sent.push_back(sent);
    }

    /// Takes out the oldest packet if its number is below `end`.
    pub(super) fn retire(&mut self, end: u64) -> Option<Sent> {
        if self.first >= end {
            return None;
        }
        let sent = self.sent.pop_front()?;
        self.first += 1;
        Some(sent)
    }
}

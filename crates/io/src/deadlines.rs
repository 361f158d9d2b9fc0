//! Finds the session that is due first, by a tournament tree over slots. Changing a deadline and
//! finding the first cost the logarithm of the slots. Nothing is allocated but for growth, and
//! there are no stale entries to sift.
//!
//! Invariant: every inner node is the smaller of its two children; `FAR_FUTURE` means none.

use farhaul_core::time::Instant;

/// Deadlines by slot.
#[derive(Debug)]
pub(crate) struct Deadlines {
    /// Node 1 is the root, node `n` has children `2n` and `2n + 1`; the second half are the slots.
    nodes: Vec<Instant>,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            nodes: vec![Instant::FAR_FUTURE; 2],
        }
    }
}

impl Deadlines {
    fn slots(&self) -> usize {
        self.nodes.len() / 2
    }

    /// Sets the deadline of `slot`.
    pub(crate) fn set(&mut self, slot: usize, at: Option<Instant>) {
        if slot >= self.slots() {
            self.grow(slot + 1);
        }
        let mut node = self.slots() + slot;
        self.nodes[node] = at.unwrap_or(Instant::FAR_FUTURE);
        while node > 1 {
            node /= 2;
            let first = self.nodes[2 * node].min(self.nodes[2 * node + 1]);
            if self.nodes[node] == first {
                break;
            }
            self.nodes[node] = first;
        }
    }

    fn grow(&mut self, wanted: usize) {
        let old = self.nodes.split_off(self.slots());
        let slots = wanted.next_power_of_two();
        self.nodes = vec![Instant::FAR_FUTURE; 2 * slots];
        self.nodes[slots..slots + old.len()].copy_from_slice(&old);
        for node in (1..slots).rev() {
            self.nodes[node] = self.nodes[2 * node].min(self.nodes[2 * node + 1]);
        }
    }

    /// The earliest deadline.
    pub(crate) fn first(&self) -> Option<Instant> {
        Some(self.nodes[1]).filter(|at| *at != Instant::FAR_FUTURE)
    }

    /// A slot whose deadline has passed, the earliest first.
    pub(crate) fn due(&self, now: Instant) -> Option<usize> {
        let first = self.first().filter(|at| *at <= now)?;
        let mut node = 1;
        while node < self.slots() {
            node *= 2;
            if self.nodes[node] != first {
                node += 1;
            }
        }
        Some(node - self.slots())
    }
}

#[cfg(test)]
mod tests {
    use farhaul_core::rng::Rng;

    use super::*;

    #[test]
    fn agrees_with_a_sorted_list() {
        let mut rng = Rng::new(1);
        let mut tree = Deadlines::default();
        let mut twin = vec![None; 70];
        for _ in 0..10_000 {
            let slot = usize::try_from(rng.below(70)).unwrap();
            let at = rng
                .chance(0.7)
                .then(|| Instant::from_nanos(rng.below(1_000)));
            tree.set(slot, at);
            twin[slot] = at;
            assert_eq!(tree.first(), twin.iter().flatten().min().copied());
            let now = Instant::from_nanos(rng.below(1_000));
            match tree.due(now) {
                Some(slot) => assert!(twin[slot].is_some_and(|at| at <= now)),
                None => assert!(twin.iter().flatten().all(|at| *at > now)),
            }
        }
    }
}

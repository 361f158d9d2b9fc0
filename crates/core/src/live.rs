//! Tracks which ids are in use. An endpoint keeps what it gave to its sessions, and notices a
//! session's end without being called.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use crate::rng::Rng;

/// Ids added, beyond twice those alive, before dead ones are dropped: a session costs the same
/// however many there are.
const SWEEP: usize = 64;

/// Kept by a session as long as it lives.
pub type Alive = Arc<()>;

/// Ids of living sessions, each with a value.
#[derive(Clone, Debug)]
pub struct LiveIds<K, V = ()> {
    ids: BTreeMap<K, (Weak<()>, V)>,
    sweep_at: usize,
}

impl<K, V> Default for LiveIds<K, V> {
    fn default() -> Self {
        Self {
            ids: BTreeMap::new(),
            sweep_at: SWEEP,
        }
    }
}

impl<K: Ord, V> LiveIds<K, V> {
    /// Enters a session, which has this id as long as it keeps the result.
    pub fn enter(&mut self, id: K, value: V) -> Alive {
        if self.ids.len() >= self.sweep_at {
            self.ids.retain(|_, (alive, _)| alive.strong_count() > 0);
            self.sweep_at = 2 * self.ids.len() + SWEEP;
        }
        let alive = Arc::new(());
        self.ids.insert(id, (Arc::downgrade(&alive), value));
        alive
    }

    /// Value kept for the living session with this id.
    pub fn get(&self, id: &K) -> Option<&V> {
        let (alive, value) = self.ids.get(id)?;
        (alive.strong_count() > 0).then_some(value)
    }

    /// True if a session with this id lives.
    pub fn contains(&self, id: &K) -> bool {
        self.get(id).is_some()
    }
}

impl<V> LiveIds<u32, V> {
    /// An id that no living session has; never 0.
    pub fn fresh(&self, rng: &mut Rng) -> u32 {
        loop {
            let id = u32::try_from(rng.next_u64() >> 32).unwrap_or(u32::MAX);
            if id != 0 && !self.contains(&id) {
                return id;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_sessions_that_ended_are_forgotten() {
        let mut live = LiveIds::default();
        let kept = live.enter(7, "kept");
        for id in 100..10_000 {
            drop(live.enter(id, "gone"));
        }
        assert_eq!(live.get(&7), Some(&"kept"));
        assert!(!live.contains(&9_999));
        assert!(live.ids.len() <= 2 * SWEEP + 2);
        drop(kept);
        assert!(!live.contains(&7));
    }
}

//! Which ids are in use? An endpoint remembers what it gave to its sessions, and a session's end is
//! noticed without its saying so.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

/// Those that are gone are forgotten whenever there are twice as many as were alive, and so many more.
const SWEEP: usize = 64;

/// Ids of living sessions.
#[derive(Clone, Debug)]
pub struct LiveIds<K> {
    ids: BTreeMap<K, Weak<()>>,
    sweep_at: usize,
}

impl<K> Default for LiveIds<K> {
    fn default() -> Self {
        Self {
            ids: BTreeMap::new(),
            sweep_at: SWEEP,
        }
    }
}

impl<K: Ord> LiveIds<K> {
    /// A session with this id lives as long as `alive` is kept.
    pub fn insert(&mut self, id: K, alive: &Arc<()>) {
        if self.ids.len() >= self.sweep_at {
            self.ids.retain(|_, weak| weak.strong_count() > 0);
            self.sweep_at = 2 * self.ids.len() + SWEEP;
        }
        self.ids.insert(id, Arc::downgrade(alive));
    }

    /// A session with this id lives.
    pub fn contains(&self, id: &K) -> bool {
        self.ids.get(id).is_some_and(|weak| weak.strong_count() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_sessions_that_ended_are_forgotten() {
        let mut live = LiveIds::default();
        let kept = Arc::new(());
        live.insert(7, &kept);
        for id in 100..10_000 {
            live.insert(id, &Arc::new(()));
        }
        assert!(live.contains(&7) && !live.contains(&9_999));
        assert!(live.ids.len() <= 2 * SWEEP + 2);
    }
}

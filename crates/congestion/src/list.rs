//! A list of things that can be chosen by name, and added to for as long as the process lives.
//! Things found in the list stay where they are.

use std::sync::{PoisonError, RwLock};

/// Things of one kind.
#[derive(Debug)]
pub struct List<T: 'static> {
    first: fn() -> Vec<T>,
    all: RwLock<Option<&'static [T]>>,
}

impl<T: Clone> List<T> {
    /// Begins with what `first` returns, which is called when it is needed.
    pub const fn new(first: fn() -> Vec<T>) -> Self {
        Self {
            first,
            all: RwLock::new(None),
        }
    }

    /// All there are.
    pub fn all(&self) -> &'static [T] {
        if let Some(all) = *self.all.read().unwrap_or_else(PoisonError::into_inner) {
            return all;
        }
        // Created without the lock: it may read other lists.
        let first: &'static [T] = (self.first)().leak();
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.get_or_insert(first)
    }

    /// Adds `one`, unless one of those that are there `is_taken` by it. What it replaces is never freed:
    /// few are added.
    #[must_use]
    pub fn add(&self, one: T, is_taken: impl Fn(&T) -> bool) -> bool {
        self.all();
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let known = all.unwrap_or_default();
        if known.iter().any(is_taken) {
            return false;
        }
        let more: Vec<T> = known.iter().cloned().chain([one]).collect();
        *all = Some(more.leak());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_found_and_nothing_twice() {
        static LIST: List<u32> = List::new(|| vec![1, 2]);
        let before = LIST.all();
        assert!(LIST.add(3, |n| *n == 3) && !LIST.add(3, |n| *n == 3));
        assert_eq!((before, LIST.all()), (&[1, 2][..], &[1, 2, 3][..]));
    }
}

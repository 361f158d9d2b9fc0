//! Usual value of the last few: the median, and the mean of the samples around it. Samples that are
//! far off do not count (the packet-pair filter of Gu and Grossman, Computer Networks 51(7), 2007).

/// The last `N` samples.
#[derive(Clone, Debug)]
pub struct MedianWindow<const N: usize> {
    ring: [u64; N],
    at: usize,
    filled: usize,
}

impl<const N: usize> MedianWindow<N> {
    /// Full of `initial`, or empty.
    pub const fn new(initial: Option<u64>) -> Self {
        let (value, filled) = match initial {
            Some(value) => (value, N),
            None => (0, 0),
        };
        Self {
            ring: [value; N],
            at: 0,
            filled,
        }
    }

    /// Takes a sample; the oldest is forgotten.
    pub const fn push(&mut self, value: u64) {
        self.ring[self.at] = value;
        self.at = (self.at + 1) % N;
        if self.filled < N {
            self.filled += 1;
        }
    }

    /// The upper median.
    pub fn median(&self) -> Option<u64> {
        let mut sorted = self.ring;
        let known = &mut sorted[..self.filled];
        if known.is_empty() {
            return None;
        }
        let middle = known.len() / 2;
        Some(*known.select_nth_unstable(middle).1)
    }

    /// Mean of those within a factor of 8 of the median, and how many they are.
    pub fn mean(&self) -> Option<(u64, usize)> {
        let median = self.median()?;
        let near = |v: &&u64| **v > median / 8 && **v < median.saturating_mul(8);
        let (sum, count) = self.ring[..self.filled]
            .iter()
            .filter(near)
            .fold((0_u64, 0_usize), |(s, n), v| (s.saturating_add(*v), n + 1));
        (count > 0).then(|| (sum / count as u64, count))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equals_a_sorted_list(samples in proptest::collection::vec(1_u64..5_000, 0..40)) {
            let mut window = MedianWindow::<7>::new(None);
            prop_assert_eq!((window.median(), window.mean()), (None, None));
            for end in 0..samples.len() {
                window.push(samples[end]);
                let mut last = samples[(end + 1).saturating_sub(7)..=end].to_vec();
                last.sort_unstable();
                let median = last[last.len() / 2];
                prop_assert_eq!(window.median(), Some(median));
                last.retain(|v| *v > median / 8 && *v < median * 8);
                let sum: u64 = last.iter().sum();
                prop_assert_eq!(window.mean(), Some((sum / last.len() as u64, last.len())));
            }
            let full = MedianWindow::<7>::new(Some(9));
            prop_assert_eq!(full.mean(), Some((9, 7)));
        }
    }
}

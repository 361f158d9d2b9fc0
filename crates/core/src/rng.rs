//! Draws random numbers. In the simulator they come from one seed, forked by name: xoshiro256**
//! (Blackman and Vigna, 2018) seeded through `SplitMix64`. So an added draw in one component does
//! not disturb another, and every run can be repeated. On a network they come from the operating
//! system, handed in by the world. A peer must not foresee them: connection ids, challenges,
//! skipped packet numbers.

use std::fmt;

/// Words fetched from the operating system at a time.
const WORDS: usize = 32;

/// A source of random numbers.
pub struct Rng(Source);

enum Source {
    Seeded([u64; 4]),
    System(Box<System>),
}

struct System {
    fill: fn(&mut [u8]),
    words: [u64; WORDS],
    left: usize,
}

impl System {
    fn next(&mut self) -> u64 {
        if self.left == 0 {
            let mut bytes = [0; 8 * WORDS];
            (self.fill)(&mut bytes);
            let (chunks, _) = bytes.as_chunks::<8>();
            for (word, chunk) in self.words.iter_mut().zip(chunks) {
                *word = u64::from_le_bytes(*chunk);
            }
            self.left = WORDS;
        }
        self.left -= 1;
        // Nobody who reads this memory later shall know it.
        std::mem::take(&mut self.words[self.left])
    }
}

impl Clone for Rng {
    /// Clones the generator. A seeded clone goes on with the same draws, one of the operating
    /// system with draws of its own.
    fn clone(&self) -> Self {
        match &self.0 {
            Source::Seeded(state) => Self(Source::Seeded(*state)),
            Source::System(system) => Self::system(system.fill),
        }
    }
}

impl fmt::Debug for Rng {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Source::Seeded(_) => "Rng(seeded)",
            Source::System(_) => "Rng(system)",
        })
    }
}

impl Rng {
    /// The repeatable generator of `seed`; a reader of some of its draws can compute the others.
    pub fn new(seed: u64) -> Self {
        let mut x = seed;
        Self(Source::Seeded(std::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(x)
        })))
    }

    /// Draws of the operating system, which `fill` fetches; nobody can foresee them.
    pub fn system(fill: fn(&mut [u8])) -> Self {
        Self(Source::System(Box::new(System {
            fill,
            words: [0; WORDS],
            left: 0,
        })))
    }

    /// An independent generator for the component `name`; does not advance `self`.
    #[must_use]
    pub fn fork(&self, name: &str) -> Self {
        let state = match &self.0 {
            Source::Seeded(state) => state,
            Source::System(_) => return self.clone(),
        };
        let label = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        });
        Self::new(state.iter().fold(label, |h, word| mix(h ^ word)))
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        match &mut self.0 {
            Source::Seeded(state) => step(state),
            Source::System(system) => system.next(),
        }
    }

    /// Uniform in [0, 1), 53 bits.
    #[expect(
        clippy::cast_precision_loss,
        reason = "the top 53 bits are exact in an f64"
    )]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && self.unit() < p
    }

    /// Uniform in `0..n`; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Fills `into` with random bytes.
    pub fn fill(&mut self, into: &mut [u8]) {
        for chunk in into.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

fn step(s: &mut [u64; 4]) -> u64 {
    let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
    let t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = s[3].rotate_left(45);
    result
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_draws_and_forks_do_not_disturb() {
        let mut a = Rng::new(7);
        let mut b = Rng::new(7);
        let mut fork = b.fork("loss/forward");
        fork.next_u64();
        assert_eq!(a.next_u64(), b.next_u64());
        assert_ne!(
            Rng::new(7).fork("x").next_u64(),
            Rng::new(7).fork("y").next_u64()
        );
    }

    #[test]
    fn draws_of_the_system_are_used_once() {
        fn count(bytes: &mut [u8]) {
            use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
            static NEXT: AtomicU64 = AtomicU64::new(0);
            for chunk in bytes.chunks_mut(8) {
                chunk.copy_from_slice(&NEXT.fetch_add(1, Relaxed).to_le_bytes());
            }
        }
        let mut rng = Rng::system(count);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let (mut clone, mut fork) = (rng.clone(), rng.fork("x"));
            assert!(seen.insert(rng.next_u64()));
            assert!(seen.insert(clone.next_u64()));
            assert!(seen.insert(fork.next_u64()));
        }
        assert_eq!(format!("{rng:?}"), "Rng(system)");
    }

    #[test]
    fn chance_and_below_are_fair_within_five_sigma() {
        let mut rng = Rng::new(1);
        let hits = (0..1_000_000).filter(|_| rng.chance(0.01)).count();
        assert!((9_500..10_500).contains(&hits), "{hits}");
        let mut seen = [0_u32; 10];
        for _ in 0..100_000 {
            seen[usize::try_from(rng.below(10)).unwrap()] += 1;
        }
        assert!(seen.iter().all(|n| (9_500..10_500).contains(n)), "{seen:?}");
    }
}

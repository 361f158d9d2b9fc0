//! Traces a run, to tell whether another run was the same: a hash over every event's time, kind,
//! target and length.

/// Kind of an event, as far as the trace distinguishes events.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    Start = 1,
    Stop,
    Timer,
    Delivery,
    Batch,
    Drop,
    Hop,
    Cross,
    Control,
}

/// A running hash of everything that happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trace(u64);

impl Trace {
    pub(crate) const fn new() -> Self {
        Self(0x243f_6a88_85a3_08d3)
    }

    #[inline]
    pub(crate) const fn note(&mut self, nanos: u64, mark: Mark, target: u32, len: u32) {
        let what = ((mark as u64) << 60) ^ ((target as u64) << 32) ^ len as u64;
        let mixed = (self.0 ^ nanos).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed.rotate_left(29) ^ what).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.0 = mixed ^ (mixed >> 32);
    }

    pub(crate) const fn hash(self) -> u64 {
        self.0
    }
}

//! Supplies and places payload bytes. Data are addressed by (object, offset), read from their
//! source when sent, again when repaired, and placed where they belong on arrival. So a session
//! keeps no copy of what it sends. Calls are per batch: one per up to 64 segments.

use crate::codec::DecodeError;

/// Identifies a sequence of bytes within a session; the application assigns its meaning.
pub type ObjectId = u32;

/// `len` bytes of `object` from `offset`, found at `at` in the batch's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The object that the bytes belong to.
    pub object: ObjectId,
    /// First byte within the object.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// First byte within the batch's buffer.
    pub at: u32,
}

impl Extent {
    /// `len` bytes found at `at`; an error if no object has them.
    pub fn new(object: ObjectId, offset: u64, len: usize, at: usize) -> Result<Self, DecodeError> {
        const BAD: DecodeError = DecodeError::Malformed("data");
        offset.checked_add(len as u64).ok_or(BAD)?;
        Ok(Self {
            object,
            offset,
            len: u32::try_from(len).map_err(|_| BAD)?,
            at: u32::try_from(at).map_err(|_| BAD)?,
        })
    }

    /// The extent's place in the batch's buffer.
    pub const fn range(&self) -> std::ops::Range<usize> {
        self.at as usize..self.at as usize + self.len as usize
    }

    /// One past the last byte within the object.
    pub const fn end(&self) -> u64 {
        self.offset + self.len as u64
    }
}

/// Free space of a store, and bytes that it has finished with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sink {
    /// Bytes that can be placed now.
    pub free: u64,
    /// Cumulative bytes placed that have since been written or discarded.
    pub drained: u64,
}

impl Sink {
    /// Unlimited space and no queue: the store exerts no back-pressure.
    pub const ENDLESS: Self = Self {
        free: u64::MAX,
        drained: u64::MAX,
    };

    /// True if the store exerts no back-pressure.
    pub const fn is_endless(&self) -> bool {
        self.free == u64::MAX
    }
}

/// Tracks how many of the bytes placed the store has not finished with.
#[derive(Clone, Debug, Default)]
pub struct Backlog {
    /// Bytes written and bytes placed, when the store was seen first.
    origin: Option<(u64, u64)>,
}

impl Backlog {
    /// Bytes queued in the store, of the caller's cumulative `placed` bytes.
    pub fn waiting(&mut self, sink: Sink, placed: u64) -> u64 {
        if sink.is_endless() {
            self.origin = None;
            return 0;
        }
        let (drained, before) = *self.origin.get_or_insert((sink.drained, placed));
        (placed - before).saturating_sub(sink.drained.saturating_sub(drained))
    }
}

/// The application's bytes could not be read or placed; the session closes with this text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

/// The application's side of the data path.
pub trait Store {
    /// Fills each extent's place in `batch` with the object's bytes.
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError>;

    /// Stores each extent's bytes from `batch`. The same bytes may be placed more than once. Must not
    /// block; placing more than is [free](Sink::free) is an error.
    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError>;

    /// Free space and drained bytes. Sessions drop what does not fit, as if it had been lost; haul
    /// advertises it to the sender as credit. On a socket of its own, data that does not fit stays in the
    /// socket buffer. A store that wraps another must forward this call.
    fn sink(&self) -> Sink {
        Sink::ENDLESS
    }
}

/// A store without content: fills nothing, drops everything. For the simulator and for tests of the
/// machinery around it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hollow;

impl Store for Hollow {
    fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        Ok(())
    }

    fn place(&mut self, _: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_what_was_placed_and_not_drained_since_it_was_first_seen() {
        let sink = |drained| Sink { free: 9, drained };
        let mut backlog = Backlog::default();
        assert_eq!(backlog.waiting(Sink::ENDLESS, 500), 0);
        assert_eq!(backlog.waiting(sink(7_000), 600), 0, "seen first");
        assert_eq!(backlog.waiting(sink(7_000), 900), 300);
        assert_eq!(backlog.waiting(sink(7_250), 900), 50);
        assert_eq!(backlog.waiting(sink(7_400), 900), 0, "somebody else's, too");
        assert_eq!(backlog.waiting(Sink::ENDLESS, 900), 0);
        assert_eq!(backlog.waiting(sink(0), 1_000), 0, "seen anew");
    }
}

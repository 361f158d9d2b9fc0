//! Where do payload bytes come from and go to? Data is addressed by (object, offset), read from its
//! source when it is sent, again when it is repaired, and placed where it belongs on arrival; so a
//! session keeps no copy of what it sends. Calls are per batch: one per up to 64 segments.

/// Names one run of bytes within a session; its meaning is the application's.
pub type ObjectId = u32;

/// `len` bytes of `object` from `offset`, found at `at` in the batch's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Which object.
    pub object: ObjectId,
    /// First byte within the object.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// First byte within the batch's buffer.
    pub at: u32,
}

impl Extent {
    /// The extent's place in the batch's buffer.
    pub const fn range(&self) -> std::ops::Range<usize> {
        self.at as usize..self.at as usize + self.len as usize
    }

    /// One past the last byte within the object.
    pub const fn end(&self) -> u64 {
        self.offset + self.len as u64
    }
}

/// What a store can take, and what has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sink {
    /// Bytes that can be placed now.
    pub free: u64,
    /// Bytes that were placed and wait for nothing any more, ever: written, or given up.
    pub drained: u64,
}

impl Sink {
    /// Nothing ever waits: everything can be placed, and all that was has left.
    pub const ENDLESS: Self = Self {
        free: u64::MAX,
        drained: u64::MAX,
    };

    /// Nothing ever waits here.
    pub const fn is_endless(&self) -> bool {
        self.free == u64::MAX
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

    /// Takes each extent's bytes from `batch`. The same bytes may be placed more than once. It never
    /// waits; more than is [free](Sink::free) is an error.
    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError>;

    /// What can be placed now, and what has left. Sessions drop what does not fit as if it had not come; haul
    /// tells the sender, which keeps to what is drained. On a socket of its own what does not fit waits where
    /// it arrived. A store around another has to ask that one.
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

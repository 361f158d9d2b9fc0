//! Holds waiting packets, in buffers of four sizes, allocated when first needed and reused last in,
//! first out. At short delays the same few stay in the cache, at long ones hundreds of megabytes
//! are in use. A buffer is held by every run of segments that still has to leave it.

/// Names a buffer.
pub(crate) type Slot = u32;

/// Buffer sizes: an acknowledgement, an Ethernet frame, a jumbo frame, a train of 64 KiB.
const SIZES: [usize; 4] = [256, 2_048, 10_240, 66_048];
/// Trains are read into, and single packets moved out of, buffers of this size.
const LARGEST: usize = SIZES[3];

#[derive(Debug)]
struct Buffer {
    bytes: Box<[u8]>,
    len: usize,
    holders: u32,
    class: usize,
}

/// All packets of a router.
#[derive(Debug)]
pub(crate) struct Slab {
    buffers: Vec<Buffer>,
    free: [Vec<Slot>; SIZES.len()],
    allocated: u64,
    in_use: u64,
    max_in_use: u64,
    limit: u64,
}

impl Slab {
    /// Holds at most `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            buffers: Vec::new(),
            free: Default::default(),
            allocated: 0,
            in_use: 0,
            max_in_use: 0,
            limit,
        }
    }

    /// Gets the memory for `bytes` of trains from the system now. A page taken at first use costs
    /// more than the packet that it carries, and a burst would be sent late.
    pub(crate) fn prepare(&mut self, bytes: u64) {
        let class = SIZES.len() - 1;
        for _ in 0..bytes.min(self.limit / 2) / LARGEST as u64 {
            let Some(slot) = self.grow(class) else {
                return;
            };
            self.buffers[slot as usize].bytes.fill(1);
            self.free[class].push(slot);
        }
    }

    /// A buffer for a train, with one holder; `None` at the limit.
    pub(crate) fn take_largest(&mut self) -> Option<Slot> {
        self.take(SIZES.len() - 1)
    }

    /// The first `len` bytes of `slot` in the smallest buffer that holds them. The buffer is `slot`
    /// itself if none is smaller (its holder passes to the caller), else a copy. `None` at the
    /// limit.
    pub(crate) fn settle(&mut self, slot: Slot, len: usize) -> Option<Slot> {
        let class = SIZES.iter().position(|size| len <= *size)?;
        if class == SIZES.len() - 1 {
            self.buffers[slot as usize].len = len;
            return Some(slot);
        }
        let small = self.take(class)?;
        let [from, to] = self
            .buffers
            .get_disjoint_mut([slot as usize, small as usize])
            .ok()?;
        to.bytes[..len].copy_from_slice(&from.bytes[..len]);
        to.len = len;
        Some(small)
    }

    /// A copy of `bytes` in the smallest buffer that holds them, with one holder; `None` at the limit
    /// or if they fit none.
    pub(crate) fn store(&mut self, bytes: &[u8]) -> Option<Slot> {
        let class = SIZES.iter().position(|size| bytes.len() <= *size)?;
        let slot = self.take(class)?;
        let buffer = &mut self.buffers[slot as usize];
        buffer.bytes[..bytes.len()].copy_from_slice(bytes);
        buffer.len = bytes.len();
        Some(slot)
    }

    /// The whole buffer, to read a packet into.
    pub(crate) fn room(&mut self, slot: Slot) -> &mut [u8] {
        &mut self.buffers[slot as usize].bytes
    }

    /// The packet in a settled buffer.
    pub(crate) fn packet(&self, slot: Slot) -> &[u8] {
        let buffer = &self.buffers[slot as usize];
        &buffer.bytes[..buffer.len]
    }

    /// The packet in a settled buffer, to change it.
    pub(crate) fn packet_mut(&mut self, slot: Slot) -> &mut [u8] {
        let buffer = &mut self.buffers[slot as usize];
        &mut buffer.bytes[..buffer.len]
    }

    /// Adds a holder.
    pub(crate) fn hold(&mut self, slot: Slot) {
        self.buffers[slot as usize].holders += 1;
    }

    /// Removes a holder; the last one frees the buffer.
    pub(crate) fn release(&mut self, slot: Slot) {
        let buffer = &mut self.buffers[slot as usize];
        buffer.holders -= 1;
        if buffer.holders == 0 {
            self.in_use -= buffer.bytes.len() as u64;
            self.free[buffer.class].push(slot);
        }
    }

    /// Most bytes of buffers that were in use at once.
    pub(crate) const fn max_in_use(&self) -> u64 {
        self.max_in_use
    }

    fn take(&mut self, class: usize) -> Option<Slot> {
        let size = SIZES[class];
        let slot = match self.free[class].pop() {
            Some(slot) => slot,
            None => self.grow(class)?,
        };
        self.buffers[slot as usize].holders = 1;
        self.in_use += size as u64;
        self.max_in_use = self.max_in_use.max(self.in_use);
        Some(slot)
    }

    fn grow(&mut self, class: usize) -> Option<Slot> {
        let size = SIZES[class];
        if self.allocated + size as u64 > self.limit {
            return None;
        }
        let slot = Slot::try_from(self.buffers.len()).ok()?;
        self.allocated += size as u64;
        self.buffers.push(Buffer {
            bytes: vec![0; size].into_boxed_slice(),
            len: 0,
            holders: 0,
            class,
        });
        Some(slot)
    }
}

const _: () = assert!(LARGEST >= 65_535 + farhaul_udp::tun::VnetHeader::LEN);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_freed_last_is_used_first_and_holders_keep_it() {
        let mut slab = Slab::new(1 << 20);
        let a = slab.take_largest().unwrap();
        let b = slab.take_largest().unwrap();
        slab.hold(a);
        slab.release(a);
        slab.release(b);
        assert_eq!(slab.take_largest(), Some(b));
        slab.release(a);
        assert_eq!(slab.take_largest(), Some(a));
        assert_eq!(slab.max_in_use(), 2 * LARGEST as u64);
    }

    #[test]
    fn small_packets_move_to_small_buffers() {
        let mut slab = Slab::new(1 << 20);
        let large = slab.take_largest().unwrap();
        slab.room(large)[..3].copy_from_slice(&[1, 2, 3]);
        let small = slab.settle(large, 3).unwrap();
        assert_ne!(small, large);
        assert_eq!(slab.packet(small), [1, 2, 3]);
        assert_eq!(slab.room(small).len(), 256);
        assert_eq!(slab.settle(large, 60_000), Some(large));
    }

    #[test]
    fn prepared_buffers_are_used_and_counted() {
        let mut slab = Slab::new(10 * LARGEST as u64);
        slab.prepare(u64::MAX);
        assert_eq!(slab.free[3].len(), 5);
        for _ in 0..10 {
            assert!(slab.take_largest().is_some());
        }
        assert_eq!(slab.take_largest(), None);
    }

    #[test]
    fn the_limit_is_kept() {
        let mut slab = Slab::new(100_000);
        let slot = slab.take_largest().unwrap();
        assert_eq!(slab.take_largest(), None);
        slab.release(slot);
        assert!(slab.take_largest().is_some());
    }
}

//! Trains that travel on a link: datagrams of one batch that arrive together. A train keeps only
//! the heads that mean something.
//!
//! Tens of thousands are under way on a long path, most of them with one datagram, and each is
//! touched once per link after all others were. So one datagram's head lies within the train
//! itself, and rare parts are kept elsewhere.

use farhaul_core::{
    datagram::{CongestionHeader, Ecn},
    time::Instant,
};

use super::Segment;

/// The longest head that lies within the train.
const WITHIN: usize = 64;

/// Datagrams that arrive together.
#[derive(Debug)]
pub(crate) struct Train {
    /// Time at which the datagrams reach their next stop.
    pub(super) due: Instant,
    /// End that sent the datagrams, or the number of ends and of the cross traffic.
    pub(super) from: u32,
    /// Links crossed.
    pub(super) hop: u32,
    /// Batch in which the train was sent.
    pub(super) batch: u32,
    /// Bytes from one datagram to the next.
    stride: u32,
    /// Bytes of the last datagram.
    last: u32,
    count: u16,
    /// Bytes of the first head, if that is within.
    solid: u16,
    pub(crate) ecn: Ecn,
    spilt: bool,
    first: [u8; WITHIN],
    /// Kept for the next use.
    spill: Option<Box<Spill>>,
}

/// Heads that have no room within.
#[derive(Debug, Default)]
struct Spill {
    /// Header of all datagrams, with the sum of their feedback.
    header: Option<CongestionHeader>,
    /// True if the first head is here.
    first: bool,
    /// Length of each head here.
    solids: Vec<u16>,
    /// The heads, one after the other.
    heads: Vec<u8>,
}

/// A lone datagram's head on its way from link to link.
pub(super) struct Head {
    within: [u8; WITHIN],
    solid: usize,
    spill: Option<Box<Spill>>,
}

impl Head {
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.spill {
            Some(spill) if spill.first => &spill.heads,
            _ => &self.within[..self.solid],
        }
    }
}

impl Default for Train {
    fn default() -> Self {
        Self {
            due: Instant::EPOCH,
            from: 0,
            hop: 0,
            batch: 0,
            stride: 1,
            last: 0,
            count: 0,
            solid: 0,
            ecn: Ecn::NotEct,
            spilt: false,
            first: [0; WITHIN],
            spill: None,
        }
    }
}

impl Train {
    /// Made empty for segments of `batch`, sent by `from`, `stride` apart.
    pub(super) fn renew(&mut self, from: u32, batch: u32, ecn: Ecn, stride: usize) {
        self.from = from;
        self.hop = 1;
        self.batch = batch;
        self.ecn = ecn;
        self.stride = narrow(stride);
        self.last = 0;
        self.count = 0;
        self.spilt = false;
    }

    /// End that the datagrams are for.
    pub(crate) const fn to(&self) -> u32 {
        self.from ^ 1
    }

    pub(crate) fn count(&self) -> usize {
        usize::from(self.count)
    }

    pub(super) const fn last(&self) -> usize {
        self.last as usize
    }

    /// Bytes from one datagram to the next.
    pub(super) const fn stride(&self) -> usize {
        self.stride as usize
    }

    /// Bytes from the first datagram's begin to the last one's end.
    pub(crate) fn len(&self) -> usize {
        (self.count() - 1) * self.stride() + self.last()
    }

    /// Bytes from one datagram to the next; a lone one has its own length.
    pub(crate) const fn segment(&self) -> usize {
        if self.count == 1 {
            self.last()
        } else {
            self.stride()
        }
    }

    pub(super) fn header(&self) -> Option<CongestionHeader> {
        let spill = self.spill.as_deref().filter(|_| self.spilt)?;
        spill.header
    }

    pub(super) fn set_header(&mut self, header: Option<CongestionHeader>) {
        if header.is_some() || self.spilt {
            self.spill().header = header;
        }
    }

    /// Bytes by which routers change the sender's window for these datagrams.
    pub(crate) fn granted(&self) -> Option<f64> {
        let written = self.header().filter(|header| header.written);
        written.map(|header| header.feedback)
    }

    fn spill(&mut self) -> &mut Spill {
        let spill = self.spill.get_or_insert_default();
        if !self.spilt {
            self.spilt = true;
            spill.header = None;
            spill.first = false;
            spill.solids.clear();
            spill.heads.clear();
        }
        spill
    }

    pub(super) fn push(&mut self, segment: &Segment<'_>) {
        if segment.header.is_some() {
            let spill = self.spill();
            spill.header = match (spill.header, segment.header) {
                (Some(sum), Some(one)) => Some(CongestionHeader {
                    feedback: sum.feedback + one.feedback,
                    ..one
                }),
                (sum, one) => one.or(sum),
            };
        }
        let len = segment.head.len();
        let solid = u16::try_from(len).expect("a solid head is counted in 16 bits");
        if self.count == 0 && len <= WITHIN {
            self.solid = solid;
            self.first[..len].copy_from_slice(segment.head);
        } else {
            let first = self.count == 0;
            let spill = self.spill();
            spill.first |= first;
            spill.solids.push(solid);
            spill.heads.extend_from_slice(segment.head);
        }
        self.last = narrow(segment.len);
        self.count += 1;
    }

    /// Puts the heads in their places; what lies between them is whatever was there.
    pub(crate) fn unpack(&self, into: &mut [u8]) {
        let spill = self.spill.as_deref().filter(|_| self.spilt);
        let mut at = 0;
        if !spill.is_some_and(|spill| spill.first) {
            let len = usize::from(self.solid);
            into[..len].copy_from_slice(&self.first[..len]);
            at = self.stride();
        }
        let Some(spill) = spill else {
            return;
        };
        let mut heads = &spill.heads[..];
        for solid in &spill.solids {
            let (head, rest) = heads.split_at(usize::from(*solid));
            into[at..at + head.len()].copy_from_slice(head);
            at += self.stride();
            heads = rest;
        }
    }

    /// The head of the first datagram, if it lies within.
    pub(super) fn first(&self) -> &[u8] {
        let elsewhere = self.spilt && self.spill.as_deref().is_some_and(|spill| spill.first);
        if elsewhere {
            &[]
        } else {
            &self.first[..usize::from(self.solid)]
        }
    }

    /// The head of a lone datagram, until it is given back.
    pub(super) const fn take_head(&mut self) -> Head {
        Head {
            within: self.first,
            solid: self.solid as usize,
            spill: if self.spilt { self.spill.take() } else { None },
        }
    }

    /// Gives a head back.
    pub(super) fn give_head(&mut self, head: Head) {
        if head.spill.is_some() {
            self.spill = head.spill;
        }
    }
}

fn narrow(len: usize) -> u32 {
    u32::try_from(len).expect("a batch is shorter than 2^32 bytes")
}

//! Receives batches, as messages of up to 64 KiB, several per `recvmmsg`. With GRO each message is
//! a run of equal datagrams of one flow, a stride apart.
//!
//! Invariant: a [`Slot`] is written only from what the kernel reported for it, and only slots of the
//! last call are shown.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    os::fd::AsRawFd,
    ptr,
};

use libc::c_int;

use super::{
    super::{Incoming, ReceiveOutcome, SLOT, Slot, unmapped},
    UdpSocket,
    control::{self, Control},
    size_in_32,
};

/// Slots begin at page borders, as payloads often do in the kernel. Where the kernel copies with
/// one instruction (`rep movsb`; seen on an AMD EPYC), a destination 1 to 31 bytes further into its
/// page than the source costs five times as much. Large vectors begin 16 bytes into a page.
const PAGE: usize = 4_096;
/// Slots offered while messages are long: their buffers stay in the cache.
const FEW: usize = 8;
/// Slots offered while messages are short: fewer system calls.
const MANY: usize = 64;

/// Buffers for one receive call, and what it found. Memory is touched only as far as messages are
/// long and many.
pub struct Inbox {
    bytes: Vec<u8>,
    /// The first slot's place in `bytes`.
    first: usize,
    slots: Vec<Slot>,
    headers: Vec<libc::mmsghdr>,
    data: Vec<libc::iovec>,
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<Control>,
    filled: usize,
    offered: usize,
}

// SAFETY: the raw pointers inside `headers` and `data` are set anew by every receive call, from
// vectors of the same inbox, and are not used between calls.
unsafe impl Send for Inbox {}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox")
            .field("filled", &self.filled)
            .field("offered", &self.offered)
            .finish_non_exhaustive()
    }
}

impl Default for Inbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Inbox {
    /// Empty buffers.
    pub fn new() -> Self {
        // SAFETY: plain C structs for which all zeroes is a valid value.
        let (header, name): (libc::mmsghdr, libc::sockaddr_storage) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let nothing = libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        };
        let bytes = vec![0; SLOT * MANY + PAGE];
        let first = bytes.as_ptr().align_offset(PAGE).min(PAGE);
        Self {
            bytes,
            first,
            slots: vec![Slot::EMPTY; MANY],
            headers: vec![header; MANY],
            data: vec![nothing; MANY],
            names: vec![name; MANY],
            controls: vec![Control::EMPTY; MANY],
            filled: 0,
            offered: FEW,
        }
    }

    /// Messages of the last receive call.
    pub fn messages(&mut self) -> impl Iterator<Item = Incoming<'_>> {
        self.slots[..self.filled]
            .iter()
            .zip(self.bytes[self.first..].chunks_mut(SLOT))
            .filter(|(slot, _)| slot.len > 0)
            .map(|(slot, bytes)| slot.message(bytes))
    }

    /// Points the headers of the slots to offer at their buffers; returns how many.
    fn offer(&mut self) -> libc::c_uint {
        let bytes = self.bytes[self.first..].as_mut_ptr();
        for i in 0..self.offered {
            self.data[i] = libc::iovec {
                // SAFETY: slot `i` of at most `MANY` lies within `bytes`, which has room for them all and
                // for what is left out before the first.
                iov_base: unsafe { bytes.add(i * SLOT) }.cast(),
                iov_len: SLOT,
            };
            let header = &mut self.headers[i].msg_hdr;
            header.msg_name = (&raw mut self.names[i]).cast();
            header.msg_namelen = size_in_32::<libc::sockaddr_storage>();
            header.msg_iov = &raw mut self.data[i];
            header.msg_iovlen = 1;
            header.msg_flags = 0;
            self.controls[i].offer(header);
        }
        libc::c_uint::try_from(self.offered).expect("a few dozen slots")
    }

    /// Addresses of the first `count` slots when they are offered.
    #[cfg(test)]
    pub(super) fn offered_at(&mut self, count: usize) -> Vec<usize> {
        self.offered = count;
        self.offer();
        let offered = self.data[..count].iter();
        offered.map(|slot| slot.iov_base.addr()).collect()
    }

    /// Offers many slots to short messages and few to long ones.
    fn adapt(&mut self, bytes: usize) {
        if self.filled == self.offered {
            self.offered = if bytes / self.filled < SLOT / 16 {
                MANY
            } else {
                FEW
            };
        } else if self.filled < FEW {
            self.offered = FEW;
        }
    }
}

/// The type differs between C libraries.
#[cfg(not(target_env = "musl"))]
const WITHOUT_WAITING: c_int = libc::MSG_DONTWAIT;
#[cfg(target_env = "musl")]
const WITHOUT_WAITING: libc::c_uint = libc::MSG_DONTWAIT.cast_unsigned();

impl UdpSocket {
    /// Receives the messages that are there, as far as `inbox` has room, without waiting.
    pub fn receive(&mut self, inbox: &mut Inbox) -> ReceiveOutcome {
        inbox.filled = 0;
        let offered = inbox.offer();
        self.counters.receive_calls += 1;
        // SAFETY: the first `offered` headers were just pointed at live buffers of `inbox`.
        let status = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                inbox.headers.as_mut_ptr(),
                offered,
                WITHOUT_WAITING,
                ptr::null_mut(),
            )
        };
        let Ok(filled) = usize::try_from(status) else {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN) => ReceiveOutcome::Empty,
                Some(libc::EINTR) => ReceiveOutcome::Some { more: true },
                Some(libc::ECONNREFUSED) => {
                    self.counters.refused += 1;
                    ReceiveOutcome::Refused
                }
                _ => ReceiveOutcome::Failed(error),
            };
        };
        inbox.filled = filled;
        let more = filled == inbox.offered;
        let mut bytes = 0;
        for i in 0..filled {
            bytes += self.read_slot(inbox, i);
        }
        inbox.adapt(bytes);
        ReceiveOutcome::Some { more }
    }

    /// Decodes message `i` of a receive call that filled it; returns its length.
    fn read_slot(&mut self, inbox: &mut Inbox, i: usize) -> usize {
        let header = &inbox.headers[i];
        let slot = &mut inbox.slots[i];
        // SAFETY: the kernel filled this header, and its control buffer is in `inbox`.
        let facts = unsafe { control::facts(&header.msg_hdr) };
        let len = header.msg_len as usize;
        if let Some(total) = facts.overflow {
            self.counters.overflowed += u64::from(total.wrapping_sub(self.overflow_seen));
            self.overflow_seen = total;
        }
        let from = address(&inbox.names[i]);
        slot.len = 0;
        if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            self.counters.truncated += 1;
            return len;
        }
        let Some(from) = from else { return len };
        *slot = Slot {
            from,
            to: facts.to,
            ecn: facts.ecn,
            segment: facts.segment.unwrap_or(len).clamp(1, SLOT),
            arrived: facts.arrived,
            len: len.min(SLOT),
        };
        self.counters.messages_received += 1;
        self.counters.datagrams_received += len.div_ceil(slot.segment).max(1) as u64;
        self.counters.bytes_received += len as u64;
        len
    }
}

/// The address the kernel wrote.
fn address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let raw = ptr::from_ref(name);
    match c_int::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: `sockaddr_storage` is large and aligned enough for every address, and the
            // family says which one it is.
            let v4 = unsafe { &*raw.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*raw.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(unmapped(
                SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into(),
            ))
        }
        _ => None,
    }
}

//! Control messages, which travel beside the payload: the segment size, the ECN mark, the local
//! address and the drop counter.
//!
//! A [`Control`] is an aligned scratch buffer large enough for every message this crate sends or
//! asks for; a foreign or truncated one is skipped.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use farhaul_core::datagram::Ecn;
use libc::c_int;

use super::size_in_32;

/// Bytes for a segment size, marks of both families, packet info and the drop counter.
const ROOM: usize = 160;

/// Storage for the control messages of one message.
#[derive(Clone, Copy)]
pub(super) struct Control {
    words: [u64; ROOM / 8],
    len: usize,
}

impl Control {
    pub(super) const EMPTY: Self = Self {
        words: [0; ROOM / 8],
        len: 0,
    };

    /// Appends one message.
    #[allow(trivial_numeric_casts, reason = "C libraries differ in these types")]
    pub(super) fn push<T: Copy>(&mut self, level: c_int, kind: c_int, value: T) {
        let size = size_in_32::<T>();
        // SAFETY: `CMSG_SPACE` and `CMSG_LEN` only compute.
        let (space, len) = unsafe { (libc::CMSG_SPACE(size), libc::CMSG_LEN(size)) };
        assert!(
            self.len + space as usize <= ROOM,
            "too many control messages"
        );
        // SAFETY: `len` is a sum of `CMSG_SPACE`s, so the header is aligned like the buffer, and
        // header plus value end within it as just asserted.
        unsafe {
            let header = self
                .words
                .as_mut_ptr()
                .byte_add(self.len)
                .cast::<libc::cmsghdr>();
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            (*header).cmsg_len = len as _;
            libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
        }
        self.len += space as usize;
    }

    /// The mark to send with, in the family of the peer.
    pub(super) fn push_mark(&mut self, ecn: Ecn, v4: bool) {
        let (level, kind) = if v4 {
            (libc::IPPROTO_IP, libc::IP_TOS)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
        };
        self.push(level, kind, c_int::from(ecn.bits()));
    }

    /// The local address to send from; `v6` is the socket's family.
    pub(super) fn push_source(&mut self, from: IpAddr, v6: bool) {
        match from {
            IpAddr::V4(ip) if !v6 => {
                let info = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr {
                        s_addr: u32::from_ne_bytes(ip.octets()),
                    },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
            }
            IpAddr::V4(ip) => self.push_source_v6(ip.to_ipv6_mapped()),
            IpAddr::V6(ip) => self.push_source_v6(ip),
        }
    }

    fn push_source_v6(&mut self, ip: Ipv6Addr) {
        let info = libc::in6_pktinfo {
            ipi6_addr: libc::in6_addr {
                s6_addr: ip.octets(),
            },
            ipi6_ifindex: 0,
        };
        self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
    }

    /// Points `header` at the messages pushed.
    #[allow(trivial_numeric_casts, reason = "C libraries differ in these types")]
    pub(super) fn attach(&mut self, header: &mut libc::msghdr) {
        header.msg_control = if self.len == 0 {
            std::ptr::null_mut()
        } else {
            self.words.as_mut_ptr().cast()
        };
        header.msg_controllen = self.len as _;
    }

    /// Offers the whole room to the kernel.
    #[allow(trivial_numeric_casts, reason = "C libraries differ in these types")]
    pub(super) const fn offer(&mut self, header: &mut libc::msghdr) {
        header.msg_control = self.words.as_mut_ptr().cast();
        header.msg_controllen = ROOM as _;
    }
}

/// Control data of a received message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ancillary {
    pub(super) ecn: Ecn,
    pub(super) segment: Option<usize>,
    pub(super) to: Option<IpAddr>,
    pub(super) overflow: Option<u32>,
    pub(super) arrived: Option<SystemTime>,
}

/// Reads the control messages of `header`.
///
/// # Safety
/// `header` must have been filled by a successful receive call whose control buffer is still alive.
pub(super) unsafe fn facts(header: &libc::msghdr) -> Ancillary {
    let mut facts = Ancillary::default();
    // SAFETY: the kernel wrote well-formed messages within `msg_controllen`, per this function's
    // contract; values are read unaligned and only when the message is long enough for them.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(header);
        while !at.is_null() {
            facts.take(&*at, libc::CMSG_DATA(at));
            at = libc::CMSG_NXTHDR(header, at);
        }
    }
    facts
}

impl Ancillary {
    /// # Safety
    /// `data` must be the payload of `header`.
    unsafe fn take(&mut self, header: &libc::cmsghdr, data: *const u8) {
        // SAFETY: forwarded from the caller.
        let int = || unsafe { value::<c_int>(header, data) };
        match (header.cmsg_level, header.cmsg_type) {
            (libc::IPPROTO_UDP, libc::UDP_GRO) => {
                self.segment = int().and_then(|n| usize::try_from(n).ok());
            }
            // The kernel sends one byte here and an int there.
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                // SAFETY: forwarded from the caller.
                let tos = unsafe { value::<u8>(header, data) };
                self.ecn = Ecn::from_bits(tos.unwrap_or(0));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.ecn = Ecn::from_bits(u8::try_from(int().unwrap_or(0) & 3).unwrap_or(0));
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // SAFETY: forwarded from the caller.
                let info = unsafe { value::<libc::in_pktinfo>(header, data) };
                self.to = info.map(|i| Ipv4Addr::from(i.ipi_addr.s_addr.to_ne_bytes()).into());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                // SAFETY: forwarded from the caller.
                let info = unsafe { value::<libc::in6_pktinfo>(header, data) };
                self.to = info.map(|i| Ipv6Addr::from(i.ipi6_addr.s6_addr).to_canonical());
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                // SAFETY: forwarded from the caller.
                self.overflow = unsafe { value::<u32>(header, data) };
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: forwarded from the caller.
                let at = unsafe { value::<libc::timespec>(header, data) };
                self.arrived = at.and_then(since_epoch);
            }
            _ => {}
        }
    }
}

fn since_epoch(at: libc::timespec) -> Option<SystemTime> {
    let seconds = u64::try_from(at.tv_sec).ok()?;
    let since = Duration::new(seconds, u32::try_from(at.tv_nsec).ok()?);
    UNIX_EPOCH.checked_add(since)
}

/// # Safety
/// `data` must be the payload of `header`; any bit pattern must be a valid `T`.
#[allow(
    trivial_numeric_casts,
    clippy::unnecessary_cast,
    reason = "C libraries differ in these types"
)]
unsafe fn value<T: Copy>(header: &libc::cmsghdr, data: *const u8) -> Option<T> {
    // SAFETY: `CMSG_LEN` only computes.
    let needed = unsafe { libc::CMSG_LEN(size_in_32::<T>()) } as usize;
    // SAFETY: the payload holds at least a `T` as just compared.
    (header.cmsg_len as usize >= needed).then(|| unsafe { data.cast::<T>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(control: &mut Control) -> Ancillary {
        // SAFETY: all zeroes is a valid header without messages.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        control.attach(&mut header);
        // SAFETY: `control` holds well-formed messages and is alive.
        unsafe { facts(&header) }
    }

    #[test]
    fn what_is_pushed_is_read() {
        let mut control = Control::EMPTY;
        control.push_mark(Ecn::Ect1, false);
        control.push(libc::IPPROTO_UDP, libc::UDP_GRO, 8_900_i32);
        control.push(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 77_u32);
        control.push_source([192, 0, 2, 1].into(), true);
        let facts = read_back(&mut control);
        assert_eq!(facts.ecn, Ecn::Ect1);
        assert_eq!(facts.segment, Some(8_900));
        assert_eq!(facts.overflow, Some(77));
        assert_eq!(facts.to, Some([192, 0, 2, 1].into()));
    }

    #[test]
    fn short_and_foreign_messages_are_skipped() {
        let mut control = Control::EMPTY;
        control.push(libc::IPPROTO_UDP, libc::UDP_GRO, 1_u8);
        control.push(libc::SOL_SOCKET, libc::SCM_RIGHTS, 1_u64);
        let facts = read_back(&mut control);
        assert_eq!(facts.segment, None);
        assert_eq!(facts.ecn, Ecn::NotEct);
        assert_eq!(read_back(&mut Control::EMPTY.clone()).to, None);
    }
}

//! Gets IP packets out of the kernel and back in, through a TUN device whose packets carry a
//! [`VnetHeader`]. The kernel hands over and takes back up to 64 KiB at once ("segmentation
//! offload"): one system call for dozens of packets.

use std::{
    fs,
    io::{self, IoSlice, Write as _},
    net::{Ipv4Addr, Ipv6Addr},
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{Mode, OFlags},
    net::{AddressFamily, SocketFlags, SocketType},
};

/// Packets that the kernel leaves unsegmented for us, from most to least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// TCP and UDP over IPv4 and IPv6 (Linux 6.2 and later).
    TcpAndUdp,
    /// TCP only.
    Tcp,
    /// None, but checksums are left to us.
    Checksum,
    /// No offload.
    None,
}

impl Offload {
    const STEPS: [Self; 4] = [Self::TcpAndUdp, Self::Tcp, Self::Checksum, Self::None];

    const fn flags(self) -> libc::c_uint {
        const TCP: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
        match self {
            Self::TcpAndUdp => TCP | libc::TUN_F_USO4 | libc::TUN_F_USO6,
            Self::Tcp => TCP,
            Self::Checksum => libc::TUN_F_CSUM,
            Self::None => 0,
        }
    }

    /// A description, for reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TcpAndUdp => "tcp and udp",
            Self::Tcp => "tcp only",
            Self::Checksum => "checksums only",
            Self::None => "none",
        }
    }
}

/// Configuration of a TUN device.
#[derive(Clone, Debug)]
pub struct TunConfig {
    /// The interface's name, at most 15 bytes.
    pub name: &'static str,
    /// MTU of the device, 68..=65521 (the kernel's bounds).
    pub mtu: u32,
    /// IPv4 address of the device and its prefix length.
    pub address: (Ipv4Addr, u8),
    /// IPv6 address of the device and its prefix length; set only if the kernel has IPv6.
    pub address6: Option<(Ipv6Addr, u8)>,
    /// Packets (or super-packets) the kernel holds for us before it drops.
    pub queue_len: u32,
}

/// A TUN device in the network namespace of the thread that opened it; any thread may use it then.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
    offload: Offload,
    /// Setting of the kernel: whether a thread of its own processes what we write.
    threaded: Option<fs::File>,
}

impl Tun {
    /// Opens a device, configures it and brings it up. Fails with `PermissionDenied` without
    /// `CAP_NET_ADMIN` in this thread's network namespace, with `NotFound` without `/dev/net/tun`.
    pub fn open(config: &TunConfig) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
        let mut request = request_for(config.name)?;
        let kind = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_NAPI;
        request.ifr_ifru.ifru_flags = low_bits(kind);
        // SAFETY: TUNSETIFF reads and writes one `ifreq`, which outlives the call.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        let header_len: libc::c_int = VnetHeader::LEN_INT;
        // SAFETY: TUNSETVNETHDRSZ reads one int, which outlives the call.
        check(unsafe {
            libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const header_len)
        })?;
        let offload = set_offload(fd.as_fd())?;
        set_up(config)?;
        // Needs a view of this namespace's devices.
        let threaded = format!("/sys/class/net/{}/threaded", config.name);
        let threaded = fs::OpenOptions::new().write(true).open(threaded).ok();
        Ok(Self {
            fd,
            offload,
            threaded,
        })
    }

    /// Offload that the kernel agreed to.
    pub const fn offload(&self) -> Offload {
        self.offload
    }

    /// From now on a kernel thread takes what we write (threaded NAPI); before, the network stack works
    /// on it within our call. That is the cheaper way where the stack has little to do (UDP): no thread
    /// is woken for each write. Where it has much to do (TCP), the thread does it on another processor.
    /// False if it stays as it is.
    pub fn receive_in_thread(&self) -> bool {
        let threaded = self.threaded.as_ref();
        threaded.is_some_and(|mut file| file.write_all(b"1").is_ok())
    }

    /// One packet with its [`VnetHeader`] in front; `WouldBlock` when there is none.
    pub fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.fd, into)?)
    }

    /// Hands the kernel one packet with its [`VnetHeader`] in front, in pieces.
    pub fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(&self.fd, pieces)?)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The first ten bytes of every packet: `struct virtio_net_hdr` in the machine's byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// True if the checksum field at `csum_start + csum_offset` holds the sum of the pseudo-header
    /// only; the packet counts as verified.
    pub needs_csum: bool,
    /// Kind of train that the packet is.
    pub gso: Gso,
    /// Bytes of headers repeated in every segment, from the IP header on.
    pub hdr_len: u16,
    /// Payload bytes of every segment but the last.
    pub gso_size: u16,
    /// Offset at which the transport header begins.
    pub csum_start: u16,
    /// Offset of the checksum in the transport header.
    pub csum_offset: u16,
}

/// Kind of train that a super-packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gso {
    /// One packet, not a train.
    #[default]
    None,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP datagrams.
    Udp,
    /// A kind this code does not know.
    Other(u8),
}

impl VnetHeader {
    /// Bytes on the device.
    pub const LEN: usize = 10;
    const LEN_INT: libc::c_int = 10;
    const NEEDS_CSUM: u8 = 1;

    /// Reads the header in front of a packet; `None` if there are not enough bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.first_chunk()?;
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Some(Self {
            needs_csum: bytes[0] & Self::NEEDS_CSUM != 0,
            gso: match bytes[1] {
                0 => Gso::None,
                1 => Gso::Tcp4,
                4 => Gso::Tcp6,
                5 => Gso::Udp,
                other => Gso::Other(other),
            },
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
        })
    }

    /// The header's bytes.
    pub fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = u8::from(self.needs_csum) * Self::NEEDS_CSUM;
        bytes[1] = match self.gso {
            Gso::None => 0,
            Gso::Tcp4 => 1,
            Gso::Tcp6 => 4,
            Gso::Udp => 5,
            Gso::Other(other) => other,
        };
        let words = [
            self.hdr_len,
            self.gso_size,
            self.csum_start,
            self.csum_offset,
        ];
        for (place, word) in bytes[2..].chunks_exact_mut(2).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// Requests the most that the kernel allows.
fn set_offload(fd: BorrowedFd<'_>) -> io::Result<Offload> {
    let mut last = io::ErrorKind::Unsupported.into();
    for step in Offload::STEPS {
        let flags = libc::c_ulong::from(step.flags());
        // SAFETY: TUNSETOFFLOAD takes its argument by value.
        match check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, flags) }) {
            Ok(()) => return Ok(step),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Addresses, MTU, queue length, up.
fn set_up(config: &TunConfig) -> io::Result<()> {
    let control = control_socket(AddressFamily::INET)?;
    let mut request = request_for(config.name)?;

    set_mtu(&control, config.name, config.mtu)?;
    // The kernel keeps the queue length in the place of the metric.
    request.ifr_ifru.ifru_metric = signed(config.queue_len)?;
    if set(&control, libc::SIOCSIFTXQLEN, &mut request).is_err() {
        // The call wants the system's administrator, the file only the namespace's. If there is no
        // such file either, the kernel's own length (500) stays.
        let file = format!("/sys/class/net/{}/tx_queue_len", config.name);
        let _ = fs::write(file, config.queue_len.to_string());
    }

    let (address, prefix) = config.address;
    request.ifr_ifru.ifru_addr = socket_address(address);
    set(&control, libc::SIOCSIFADDR, &mut request)?;
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
    request.ifr_ifru.ifru_netmask = socket_address(Ipv4Addr::from_bits(mask));
    set(&control, libc::SIOCSIFNETMASK, &mut request)?;

    bring_up(&control, config.name)?;
    match config.address6 {
        Some(address) => set_address6(config.name, address),
        None => Ok(()),
    }
}

/// Sets the MTU of the interface `name` of this thread's network namespace.
pub(crate) fn set_mtu(control: &OwnedFd, name: &str, mtu: u32) -> io::Result<()> {
    let mut request = request_for(name)?;
    request.ifr_ifru.ifru_mtu = signed(mtu)?;
    set(control, libc::SIOCSIFMTU, &mut request)
}

/// Brings the interface `name` of this thread's network namespace up.
pub(crate) fn bring_up(control: &OwnedFd, name: &str) -> io::Result<()> {
    let mut request = request_for(name)?;
    set(control, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the kernel has just written the flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | low_bits(libc::IFF_UP | libc::IFF_RUNNING);
    set(control, libc::SIOCSIFFLAGS, &mut request)
}

/// A socket to configure interfaces through.
pub(crate) fn control_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(
        family,
        SocketType::DGRAM,
        flags,
        None,
    )?)
}

fn set_address6(name: &str, (address, prefix): (Ipv6Addr, u8)) -> io::Result<()> {
    let Ok(control) = control_socket(AddressFamily::INET6) else {
        return Ok(());
    };
    let mut request = request_for(name)?;
    set(&control, libc::SIOCGIFINDEX, &mut request)?;
    let request = libc::in6_ifreq {
        ifr6_addr: libc::in6_addr {
            s6_addr: address.octets(),
        },
        ifr6_prefixlen: u32::from(prefix),
        // SAFETY: the kernel has just written the index.
        ifr6_ifindex: unsafe { request.ifr_ifru.ifru_ifindex },
    };
    // SAFETY: SIOCSIFADDR on an IPv6 socket reads one `in6_ifreq`, which outlives the call.
    check(unsafe {
        libc::ioctl(
            control.as_raw_fd(),
            code(libc::SIOCSIFADDR),
            &raw const request,
        )
    })
}

fn set(control: &OwnedFd, call: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the SIOC*IF* calls read and write one `ifreq`, which is borrowed for the call.
    check(unsafe { libc::ioctl(control.as_raw_fd(), code(call), std::ptr::from_mut(request)) })
}

/// A call as the C library takes it, which differs between them.
#[cfg(not(target_env = "musl"))]
const fn code(call: libc::c_ulong) -> libc::Ioctl {
    call
}

/// Request code in musl's type.
#[cfg(target_env = "musl")]
#[expect(clippy::cast_possible_truncation, reason = "they have 16 bits")]
const fn code(call: libc::c_ulong) -> libc::Ioctl {
    call as libc::Ioctl
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// An empty request for the interface `name`.
fn request_for(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all fields are integers or unions of integers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = libc::c_char::from_ne_bytes([byte]);
    }
    Ok(request)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "an address family is a small number"
)]
fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    // As in `sockaddr_in`: two bytes of port, then the address.
    let mut data = [0; 14];
    for (place, byte) in data[2..].iter_mut().zip(address.octets()) {
        *place = libc::c_char::from_ne_bytes([byte]);
    }
    libc::sockaddr {
        sa_family: libc::AF_INET as libc::sa_family_t,
        sa_data: data,
    }
}

fn signed(value: u32) -> io::Result<libc::c_int> {
    value
        .try_into()
        .map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Interface flags, which are an int in the headers and a short in `ifreq`.
#[expect(clippy::cast_possible_truncation, reason = "the flags in use are low")]
const fn low_bits(flags: libc::c_int) -> libc::c_short {
    flags as libc::c_short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vnet_header_survives_its_ten_bytes() {
        let header = VnetHeader {
            needs_csum: true,
            gso: Gso::Udp,
            hdr_len: 28,
            gso_size: 8_972,
            csum_start: 20,
            csum_offset: 6,
        };
        assert_eq!(VnetHeader::decode(&header.encode()), Some(header));
        assert_eq!(header.encode()[..2], [1, 5]);
        assert_eq!(VnetHeader::decode(&[0; 9]), None);
        let odd = VnetHeader {
            gso: Gso::Other(0x81),
            ..header
        };
        assert_eq!(VnetHeader::decode(&odd.encode()), Some(odd));
    }

    #[test]
    fn every_kind_and_flag_that_decodes_is_encoded_to_the_same() {
        for (flags, kind) in (0..=255).flat_map(|f| (0..=255).map(move |k| (f, k))) {
            let mut bytes = [flags, kind, 1, 2, 3, 4, 5, 6, 7, 8];
            let header = VnetHeader::decode(&bytes).unwrap();
            // The other flags are not used.
            bytes[0] &= VnetHeader::NEEDS_CSUM;
            assert_eq!(header.encode(), bytes);
        }
    }
}

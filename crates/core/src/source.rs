//! Which addresses are one source? An IPv4 address, or a /64 of IPv6, whose addresses one host may all use.

use std::net::{IpAddr, Ipv6Addr};

/// The source that an address belongs to.
pub fn source(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => {
            let network = u128::from(v6) >> 64 << 64;
            Ipv6Addr::from(network).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

//! Groups addresses into clients by prefix: IPv4 /32, IPv6 /64, whose addresses one host may all
//! use.

use std::net::{IpAddr, Ipv6Addr};

/// The first address of the prefix that `ip` belongs to: IPv4 /32, IPv6 /64. An IPv4 address that is mapped into IPv6 is
/// one of IPv4.
pub fn client_prefix(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => {
            let network = u128::from(v6) >> 64 << 64;
            Ipv6Addr::from(network).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_an_address_of_ipv4_and_64_bits_of_ipv6() {
        for (ip, prefix) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2::", "2001:db8:1:2::"),
            ("2001:db8:1:3::6", "2001:db8:1:3::"),
            ("::1", "::"),
        ] {
            let (ip, prefix): (IpAddr, IpAddr) = (ip.parse().unwrap(), prefix.parse().unwrap());
            assert_eq!(client_prefix(ip), prefix, "{ip}");
        }
    }
}

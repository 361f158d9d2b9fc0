//! Resolves the hosts that users type.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};

use crate::{
    exit::{Exit, Failure},
    place::PORT,
};

/// `HOST`, `HOST:PORT`, `1.2.3.4`, `::1` or `[::1]:PORT`.
pub(crate) fn resolve(host: &str) -> Result<SocketAddr, Failure> {
    resolve_at(host, PORT)
}

/// Resolves a host, with the default port where none is given.
pub(crate) fn resolve_at(host: &str, usual: u16) -> Result<SocketAddr, Failure> {
    let unbracketed = host
        .strip_prefix('[')
        .and_then(|h| h.strip_suffix(']'))
        .unwrap_or(host);
    if let Ok(ip) = unbracketed.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, usual));
    }
    if is_scoped(unbracketed) {
        return look_up(host, unbracketed, usual);
    }
    let named = if host.contains(':') {
        host.to_string()
    } else {
        format!("{host}:{usual}")
    };
    let (name, port) = named.rsplit_once(':').unwrap_or((&named, ""));
    let odd = |c: char| c.is_whitespace() || "/@[]".contains(c);
    let bracketed = name.starts_with('[') && name.ends_with(']');
    if name.is_empty()
        || (!bracketed && (name.contains(odd) || name.contains(':')))
        || port.parse::<u16>().map_or(true, |p| p == 0)
    {
        return Err(Failure::usage(format!(
            "'{host}' is no host: write HOST or HOST:PORT, an IPv6 address with a port as [::1]:{usual}"
        )));
    }
    let inner = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
    look_up(host, inner.unwrap_or(name), port.parse().unwrap_or(usual))
}

/// True for an address with a zone: the name of a device here, which the resolver understands.
fn is_scoped(host: &str) -> bool {
    let address = host.split_once('%').map(|(address, _)| address);
    address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

/// The first address of `name`; `typed` is how people know it.
fn look_up(typed: &str, name: &str, port: u16) -> Result<SocketAddr, Failure> {
    let unknown = |why: String| {
        let text = format!("cannot find '{typed}': {why}; check the name and the resolver");
        Failure::new(Exit::NetSetup, text)
    };
    (name, port)
        .to_socket_addrs()
        .map_err(|e| unknown(e.to_string()))?
        .next()
        .ok_or_else(|| unknown("it has no address".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_with_and_without_a_port() {
        for (text, expected) in [
            ("127.0.0.1", "127.0.0.1:17992"),
            ("127.0.0.1:5", "127.0.0.1:5"),
            ("::1", "[::1]:17992"),
            ("[::1]", "[::1]:17992"),
            ("[::1]:7", "[::1]:7"),
            ("fe80::1%lo", "[fe80::1%1]:17992"),
            ("[fe80::1%lo]", "[fe80::1%1]:17992"),
            ("[fe80::1%lo]:7", "[fe80::1%1]:7"),
        ] {
            assert_eq!(resolve(text).unwrap().to_string(), expected, "{text}");
        }
        assert_eq!(resolve("a.invalid").unwrap_err().exit, Exit::NetSetup);
        for bad in [
            "", " ", ":", "h:99999", "h:0", "[::1", "me@h", "h/x", "::1:x", "h::5", "h::",
        ] {
            assert_eq!(resolve(bad).unwrap_err().exit, Exit::Usage, "{bad}");
        }
    }
}

//! Validates that a client receives at the address from which it sends. The listener gives the
//! client a number made of that address, the minute and a secret, and remembers nothing. The number
//! of libudt's own has no secret and refuses the minute before. Any number does, since clients only
//! echo it.

use std::{net::SocketAddr, time::Duration};

use farhaul_core::{
    cookie,
    time::{Instant, nanos},
};

/// Duration of one epoch; a cookie is good in its own and the next.
const EPOCH: Duration = Duration::from_mins(1);

/// Makes and checks cookies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cookies(cookie::Cookies);

impl Cookies {
    /// Cookies with `key`, or one made up by the system.
    pub(super) fn new(key: Option<[u64; 2]>) -> Self {
        Self(key.map_or_else(cookie::Cookies::default, cookie::Cookies::with_key))
    }

    /// The cookie for a client.
    pub(super) fn give(self, now: Instant, peer: SocketAddr, id: u32) -> u32 {
        let epoch = now.as_nanos() / nanos(EPOCH);
        let whole = self.0.of((epoch, peer, id));
        // 0 means that there is none.
        u32::try_from(whole >> 32).unwrap_or(1).max(1)
    }

    /// True if `cookie` was given to this client in this epoch or the one before.
    pub(super) fn accepts(self, now: Instant, peer: SocketAddr, id: u32, cookie: u32) -> bool {
        let mut epochs = [now, now.earlier_by(EPOCH)].into_iter();
        epochs.any(|at| self.give(at, peer, id) == cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_good_for_its_client_and_the_next_minute_only() {
        let cookies = Cookies::new(None);
        let peer: SocketAddr = "192.0.2.1:9000".parse().unwrap();
        let other: SocketAddr = "192.0.2.1:9001".parse().unwrap();
        let now = Instant::from_nanos(59 * 1_000_000_000);
        let later = |s| now + Duration::from_secs(s);
        let cookie = cookies.give(now, peer, 7);
        assert!(cookies.accepts(now, peer, 7, cookie));
        assert!(
            cookies.accepts(later(2), peer, 7, cookie),
            "the minute turned"
        );
        assert!(cookies.accepts(later(60), peer, 7, cookie));
        assert!(!cookies.accepts(later(61), peer, 7, cookie), "stale");
        assert!(!cookies.accepts(now, other, 7, cookie), "another port");
        assert!(!cookies.accepts(now, peer, 8, cookie), "another socket");
        assert!(
            !Cookies::new(None).accepts(now, peer, 7, cookie),
            "another key"
        );
    }
}

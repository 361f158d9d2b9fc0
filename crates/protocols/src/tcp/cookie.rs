//! How does a listener remember a client without remembering it? It does not: its SYN ACK carries
//! everything the client said, when it said it and a proof of both, and the client says them again
//! until it has heard the listener speak (after SYN cookies, RFC 4987 §3.6, but without squeezing
//! them into 32 bits). No state and no memory is spent on a source that cannot hear.

use std::{
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    time::Duration,
};

use farhaul_core::time::{Instant, nanos};

use super::wire::{Hello, Open};

/// How long a proof is good for.
const LIFETIME: Duration = Duration::from_secs(10);

/// Makes and checks proofs; keyed anew in every process (`SipHash` under a key of the system's).
#[derive(Debug, Default)]
pub(super) struct Cookies {
    key: RandomState,
}

/// What is proven besides the client's words: ids and numbers the listener chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Chosen {
    /// The listener's connection id.
    pub(super) id: u32,
    /// The listener's initial sequence number.
    pub(super) iss: u32,
}

impl Cookies {
    /// The proof that `from` said `hello`, and was told `chosen`.
    pub(super) fn issue(
        &self,
        now: Instant,
        from: SocketAddr,
        (hello, ecn, iss): (Hello, bool, u32),
        chosen: Chosen,
    ) -> Open {
        let mut open = Open {
            hello,
            ecn,
            iss,
            issued: millis(now),
            tag: 0,
        };
        open.tag = self.tag(from, &open, chosen);
        open
    }

    /// How long ago `open` was issued to `from` together with `chosen`; `None` if it was not, or too
    /// long ago.
    pub(super) fn check(
        &self,
        now: Instant,
        from: SocketAddr,
        open: &Open,
        chosen: Chosen,
    ) -> Option<Duration> {
        let age = Duration::from_millis(u64::from(millis(now).wrapping_sub(open.issued)));
        (age <= LIFETIME && open.tag == self.tag(from, open, chosen)).then_some(age)
    }

    fn tag(&self, from: SocketAddr, open: &Open, chosen: Chosen) -> u64 {
        let hello = open.hello;
        let said = (hello.from, hello.mss, hello.shift, hello.sack, open.ecn);
        self.key
            .hash_one((from, said, open.iss, open.issued, chosen))
    }
}

/// ms, modulo 2^32.
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
const fn millis(now: Instant) -> u32 {
    (nanos(now.since(Instant::EPOCH)) / 1_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_good_for_its_address_words_and_time_only() {
        let cookies = Cookies::default();
        let at = |s: u64| Instant::from_nanos(s * 1_000_000_000);
        let from: SocketAddr = "192.0.2.7:4000".parse().unwrap();
        let hello = Hello {
            from: 7,
            mss: 1_472,
            shift: 14,
            sack: true,
        };
        let chosen = Chosen { id: 9, iss: 11 };
        let open = cookies.issue(at(100), from, (hello, false, 5), chosen);
        let check = |now, from, open: Open, chosen| cookies.check(now, from, &open, chosen);
        assert_eq!(
            check(at(105), from, open, chosen),
            Some(Duration::from_secs(5))
        );
        assert_eq!(check(at(111), from, open, chosen), None);
        assert_eq!(check(at(99), from, open, chosen), None);
        let elsewhere = "192.0.2.7:4001".parse().unwrap();
        assert_eq!(check(at(105), elsewhere, open, chosen), None);
        assert_eq!(check(at(105), from, Open { iss: 6, ..open }, chosen), None);
        assert_eq!(check(at(105), from, open, Chosen { id: 8, ..chosen }), None);
        let greedy = Hello {
            mss: 9_000,
            ..hello
        };
        assert_eq!(
            check(
                at(105),
                from,
                Open {
                    hello: greedy,
                    ..open
                },
                chosen
            ),
            None
        );
        assert_eq!(Cookies::default().check(at(105), from, &open, chosen), None);
    }
}

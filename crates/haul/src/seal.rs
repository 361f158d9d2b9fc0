//! Chooses the key that seals or opens a datagram: the current phase's. During a key update also
//! the phase before (for late datagrams) or after (the peer went ahead) has a key. The phase bit
//! and the packet number decide, so that each datagram is tried with one key only.
//!
//! This side starts an update after a number of datagrams, but never before the peer has
//! acknowledged something sealed in this phase. So the two sides are never more than one phase
//! apart.

use crate::{
    crypto::{Key, KeyPair, Ratchet},
    wire::short::{self, Short, expand},
};

/// Reason why a datagram was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drop {
    /// The datagram is not decodable.
    Malformed,
    /// The datagram is not authentic.
    Unauthentic,
}

/// The keys of a session.
pub(crate) struct Seal {
    current: KeyPair,
    next: KeyPair,
    previous: Option<Key>,
    ratchet: Ratchet,
    phase: bool,
    /// Datagrams sealed in this phase.
    sealed: u64,
    update_after: u64,
    /// First packet number sealed in this phase.
    first: Option<u64>,
    /// True if the peer has opened something of this phase.
    confirmed: bool,
    /// Lowest packet number received in this phase.
    lowest: Option<u64>,
    failures: u64,
    updates: u64,
}

impl Seal {
    pub(crate) fn new(keys: KeyPair, mut ratchet: Ratchet, update_after: u64) -> Self {
        let limit = keys.local.confidentiality_limit();
        Self {
            current: keys,
            next: ratchet.next(),
            previous: None,
            ratchet,
            phase: false,
            sealed: 0,
            update_after: update_after.min(limit / 2),
            first: None,
            confirmed: false,
            lowest: None,
            failures: 0,
            updates: 0,
        }
    }

    /// The phase bit of datagrams sealed now; changes the keys if it is time. Ask before writing a
    /// batch.
    pub(crate) fn phase(&mut self) -> bool {
        if self.sealed >= self.update_after && self.confirmed && self.lowest.is_some() {
            self.advance();
        }
        self.phase
    }

    /// Switches to the next keys.
    pub(crate) fn advance(&mut self) {
        let next = std::mem::replace(&mut self.next, self.ratchet.next());
        let old = std::mem::replace(&mut self.current, next);
        self.previous = Some(old.remote);
        self.phase = !self.phase;
        self.sealed = 0;
        self.first = None;
        self.confirmed = false;
        self.lowest = None;
        self.updates += 1;
    }

    /// Seals a whole datagram whose header has this phase.
    pub(crate) fn seal(&mut self, number: u64, datagram: &mut [u8]) {
        self.sealed += 1;
        self.first.get_or_insert(number);
        self.current.local.seal(number, datagram, short::LEN);
    }

    /// The peer has opened packet `number`.
    pub(crate) fn on_acked(&mut self, number: u64) {
        self.confirmed |= self.first.is_some_and(|first| number >= first);
    }

    /// Opens a datagram; its number and the end of its payload.
    pub(crate) fn open(
        &mut self,
        expected: u64,
        datagram: &mut [u8],
    ) -> Result<(u64, usize), Drop> {
        let header = Short::decode(datagram).map_err(|_| Drop::Malformed)?;
        let number = expand(header.number, expected);
        let current = header.phase == self.phase;
        // A peer goes ahead only after it has opened something of this phase, so none that breaks off
        // phase after phase makes this side derive keys for nothing.
        let ahead =
            !current && self.first.is_some() && self.lowest.is_some_and(|lowest| number > lowest);
        let key = if current {
            Some(&self.current.remote)
        } else if ahead {
            Some(&self.next.remote)
        } else {
            self.previous.as_ref()
        };
        let end = key.and_then(|key| key.open(number, datagram, short::LEN));
        let Some(end) = end else {
            self.failures += 1;
            return Err(Drop::Unauthentic);
        };
        if ahead {
            self.advance();
        }
        if current || ahead {
            self.lowest = Some(self.lowest.map_or(number, |lowest| lowest.min(number)));
        }
        Ok((number, end))
    }

    /// True if tags are real: what opens comes from the peer.
    pub(crate) const fn authenticates(&self) -> bool {
        !matches!(self.current.remote, Key::Plain)
    }

    /// True if a key has been used as much as it may: the session must end.
    pub(crate) fn is_spent(&self) -> bool {
        // A batch of headroom.
        self.sealed + 64 > self.current.local.confidentiality_limit()
            || self.failures >= self.current.remote.integrity_limit()
    }

    pub(crate) const fn updates(&self) -> u64 {
        self.updates
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use farhaul_core::codec::Writer;
    use proptest::prelude::*;

    use super::*;
    use crate::handshake::tests::agree;

    fn pair(after: u64) -> (Seal, Seal) {
        let (a, b) = agree();
        (
            Seal::new(a.keys, a.ratchet, after),
            Seal::new(b.keys, b.ratchet, after),
        )
    }

    fn write(seal: &mut Seal, number: u64) -> Vec<u8> {
        let mut bytes = vec![0; 40];
        let phase = seal.phase();
        let low = u32::try_from(number).unwrap();
        Short {
            phase,
            to: 1,
            number: low,
        }
        .encode(&mut Writer::new(&mut bytes))
        .unwrap();
        seal.seal(number, &mut bytes);
        bytes
    }

    #[test]
    fn a_peer_without_acknowledgements_does_not_change_keys_again() {
        let (mut a, mut b) = pair(1);
        let mut datagram = write(&mut a, 0);
        assert!(b.open(0, &mut datagram).is_ok());
        let mut datagram = write(&mut b, 0);
        assert!(a.open(0, &mut datagram).is_ok());
        let (mut number, mut opened) = (1, 0);
        // The liar does not wait for an acknowledgement.
        for _ in 0..100 {
            a.advance();
            let mut datagram = write(&mut a, number);
            opened += u32::from(b.open(number, &mut datagram).is_ok());
            number += 1;
        }
        assert_eq!((opened, b.updates()), (1, 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn phases_stay_together_under_reordering(order in proptest::collection::vec((any::<bool>(), 0_usize..4), 600..1_500)) {
            let (mut a, mut b) = pair(40);
            let (mut ab, mut ba) = (Vec::new(), Vec::new());
            let (mut na, mut nb) = (0, 0);
            for (which, pick) in order {
                let (from, to, n, fly) = if which { (&mut a, &mut b, &mut na, &mut ab) } else { (&mut b, &mut a, &mut nb, &mut ba) };
                fly.push((*n, write(from, *n)));
                *n += 1;
                if fly.len() > 3 {
                    // Nothing is later than a phase is long.
                    let overdue = *n - fly[0].0 > 10;
                    let (_, mut datagram) = fly.remove(if overdue { 0 } else { pick });
                    let opened = to.open(*n, &mut datagram);
                    prop_assert!(opened.is_ok());
                    from.on_acked(opened.unwrap().0);
                }
                prop_assert!(a.updates().abs_diff(b.updates()) <= 1);
            }
            prop_assert!(a.updates() > 2);
        }

        #[test]
        fn any_bytes_never_panic(mut data in proptest::collection::vec(any::<u8>(), 0..60), expected: u64) {
            static KEYS: LazyLock<std::sync::Mutex<Seal>> = LazyLock::new(|| std::sync::Mutex::new(pair(5).0));
            let mut seal = KEYS.lock().unwrap();
            prop_assert!(seal.open(expected >> 2, &mut data).is_err());
        }
    }

    #[test]
    fn every_bit_of_a_datagram_is_authenticated() {
        let (mut a, mut b) = pair(1_000);
        let good = write(&mut a, 7);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(b.open(7, &mut bad).is_err(), "{bit}");
        }
        assert_eq!(b.open(7, &mut good.clone()), Ok((7, 24)));
    }

    #[test]
    fn spent_keys_are_noticed() {
        let (mut a, _) = pair(u64::MAX);
        assert_eq!(a.update_after, 1 << 22);
        a.sealed = (1 << 23) - 64;
        assert!(!a.is_spent());
        a.sealed += 1;
        assert!(a.is_spent());
        a.sealed = 0;
        a.failures = a.current.remote.integrity_limit();
        assert!(a.is_spent());
    }
}

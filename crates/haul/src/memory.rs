//! Remembers what earlier connections to the same peer proved of the path. Parameters are saved for
//! careful resume (RFC 9959), by the peer's key and address. The memory that a stranger could fill
//! is bounded, and one connection at a time resumes from an entry.

use std::{
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use farhaul_core::{congestion::SavedPath, time::Instant};

use crate::identity::PublicKey;

/// The most paths kept; the oldest goes first.
pub const MAX_PATHS: usize = 256;
/// The most of one peer, whatever addresses it has.
const MAX_PER_PEER: usize = 8;
/// Age beyond which an entry is not resumed from.
pub const LIFETIME: Duration = Duration::from_hours(24);

/// Parameters proved of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathEntry {
    /// The peer, or any peer at this address.
    pub peer: Option<PublicKey>,
    /// The peer's address.
    pub address: IpAddr,
    /// Parameters proved.
    pub saved: SavedPath,
    /// UDP payload of a full datagram; 0 if it is not known.
    pub datagram: u32,
    /// Age at the time of the call.
    pub age: Duration,
}

/// Paths of one endpoint, shared by its sessions.
#[derive(Debug, Default)]
pub struct PathMemory(Mutex<Vec<(Instant, PathEntry)>>);

impl PathMemory {
    fn entries(&self) -> MutexGuard<'_, Vec<(Instant, PathEntry)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry, in place of an earlier one of the same path.
    pub fn note(&self, now: Instant, entry: PathEntry) {
        let mut entries = self.entries();
        let same = |known: &PathEntry| known.peer == entry.peer && known.address == entry.address;
        entries.retain(|(_, known)| !same(known));
        let age = |(at, entry): &(Instant, PathEntry)| now.since(*at) + entry.age;
        let of_peer = |i: &usize| entry.peer.is_some() && entries[*i].1.peer == entry.peer;
        let own = (0..entries.len()).filter(of_peer).count();
        let oldest = (0..entries.len())
            .filter(|i| own < MAX_PER_PEER || of_peer(i))
            .max_by_key(|i| age(&entries[*i]));
        if let Some(oldest) = oldest.filter(|_| own >= MAX_PER_PEER || entries.len() >= MAX_PATHS) {
            entries.swap_remove(oldest);
        }
        entries.push((now, entry));
    }

    /// Takes the entry of the path. Until the connection that resumes has noted the result, no
    /// other resumes.
    pub fn take(&self, now: Instant, peer: &PublicKey, address: IpAddr) -> Option<PathEntry> {
        let mut entries = self.entries();
        let at = entries.iter().position(|(_, e)| e.is_of(peer, address))?;
        let (noted, entry) = entries.swap_remove(at);
        Some(entry.aged(now.since(noted))).filter(|entry| entry.age <= LIFETIME)
    }

    /// All that is known, with ages as of `now`.
    pub fn list(&self, now: Instant) -> Vec<PathEntry> {
        let entries = self.entries();
        let aged = entries.iter().map(|(at, entry)| entry.aged(now.since(*at)));
        aged.collect()
    }
}

impl PathEntry {
    /// The entry, older by `by`.
    pub(crate) fn aged(self, by: Duration) -> Self {
        let age = self.age + by;
        Self { age, ..self }
    }

    fn is_of(&self, peer: &PublicKey, address: IpAddr) -> bool {
        self.peer.is_none_or(|known| known == *peer) && self.address == address
    }
}

#[cfg(test)]
mod tests {
    use farhaul_core::units::Rate;

    use super::*;

    fn entry(n: u32, age: Duration) -> PathEntry {
        PathEntry {
            peer: Some(PublicKey::from_bytes([7; 32])),
            address: IpAddr::from(n.to_be_bytes()),
            saved: SavedPath {
                capacity: Rate::mbit(u64::from(n) + 1),
                min_rtt: Duration::from_millis(10),
            },
            datagram: 1_472,
            age,
        }
    }

    #[test]
    fn one_connection_resumes_from_the_newest_note_until_it_is_too_old() {
        let memory = PathMemory::default();
        let now = Instant::EPOCH;
        let (old, new) = (entry(1, LIFETIME), entry(1, Duration::ZERO));
        memory.note(now, old);
        memory.note(now, new);
        let take = |at| memory.take(at, &new.peer.unwrap(), new.address);
        let other = PublicKey::from_bytes([8; 32]);
        assert_eq!(memory.take(now, &other, new.address), None);
        assert_eq!(take(now), Some(new));
        assert_eq!(take(now), None, "it is in use");
        memory.note(now, old);
        assert_eq!(take(now + Duration::from_secs(1)), None, "too old");
        assert!(memory.list(now).is_empty());
    }

    #[test]
    fn it_is_bounded_and_forgets_the_oldest() {
        let memory = PathMemory::default();
        let most = u32::try_from(MAX_PATHS).unwrap();
        for n in 0..=most {
            let age = Duration::from_secs(u64::from(n == 5));
            let mut key = [0; 32];
            key[..4].copy_from_slice(&n.to_be_bytes());
            let peer = Some(PublicKey::from_bytes(key));
            let entry = PathEntry {
                peer,
                ..entry(n, age)
            };
            memory.note(Instant::EPOCH, entry);
        }
        let known = memory.list(Instant::EPOCH + Duration::from_secs(3));
        assert_eq!(known.len(), MAX_PATHS);
        assert!(
            known
                .iter()
                .all(|e| e.address != entry(5, Duration::ZERO).address)
        );
        assert!(known.iter().all(|e| e.age == Duration::from_secs(3)));
    }

    #[test]
    fn one_peer_with_many_addresses_displaces_itself_alone() {
        let memory = PathMemory::default();
        let other = PathEntry {
            peer: Some(PublicKey::from_bytes([8; 32])),
            ..entry(0, Duration::from_mins(1))
        };
        memory.note(Instant::EPOCH, other);
        for n in 1..=100 {
            memory.note(Instant::EPOCH, entry(n, Duration::ZERO));
        }
        let known = memory.list(Instant::EPOCH);
        assert_eq!(known.len(), MAX_PER_PEER + 1);
        assert!(known.contains(&other));
    }
}

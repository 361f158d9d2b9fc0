//! Book of the tickets that a server gave out, and how often they were used. A private file, which
//! `farhaul ticket` and the server both change. Changes are made under a lock, as a whole, and are
//! on the disk before anything follows from them.
//!
//! - It holds public keys: who reads it can check a ticket, not make or use one.
//! - A use is counted before any content moves. The same copy goes on under its use until it has ended well.
//! - Those that are over are kept for a while, so that their holders learn why.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        mpsc::{self, Sender, SyncSender},
    },
    thread,
    time::Duration,
};

use farhaul_core::{text::plain, units::Rate};
use farhaul_haul::PublicKey;
use farhaul_io::clock;
use farhaul_transfer::{
    TransferError,
    server::{Access, Right, Tickets},
};
use serde::{Deserialize, Serialize};

use crate::{
    exit::{Exit, Failure},
    keys, place, read,
};

/// Time for which a ticket is kept that is over, s.
const KEPT: u64 = 30 * 24 * 3_600;

/// A ticket as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// `fh-pub1...`: what the secret in the ticket is the other half of.
    pub(crate) key: String,
    pub(crate) share: String,
    /// Path as bytes.
    pub(crate) path: Vec<u8>,
    pub(crate) mode: String,
    /// Seconds since 1970.
    pub(crate) expires: u64,
    pub(crate) uses: u32,
    /// One for each use.
    pub(crate) used: Vec<Use>,
    pub(crate) max_rate_bps: Option<u64>,
    pub(crate) revoked: bool,
}

/// A use of a ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Use {
    tag: [u8; 8],
    /// True if the copy has ended well.
    done: bool,
}

impl Record {
    /// Name of the ticket in lists.
    pub(crate) fn id(&self) -> &str {
        // After `fh-pub1`, which all have.
        self.key.get(7..15).unwrap_or_default()
    }

    /// Reason that the ticket is of no use any more, at this time.
    pub(crate) fn over(&self, now: u64) -> Option<&'static str> {
        if self.revoked {
            Some("revoked")
        } else if now >= self.expires {
            Some("expired")
        } else if self.used.len() >= self.uses as usize && self.used.iter().all(|u| u.done) {
            Some("used")
        } else {
            None
        }
    }

    fn right(&self) -> Result<Right, TransferError> {
        let unknown = || refusal("the server does not know the mode of the ticket".into());
        Ok(Right {
            share: self.share.clone(),
            path: self.path.clone(),
            access: Access::parse(&self.mode).ok_or_else(unknown)?,
            max_rate: self.max_rate_bps.map(Rate::from_bps),
        })
    }

    /// Takes note of a use; why it cannot be used.
    fn take(&mut self, tag: [u8; 8]) -> Result<bool, TransferError> {
        if self.used.iter().any(|u| u.tag == tag && !u.done) {
            return Ok(false);
        }
        if self.used.len() >= self.uses as usize {
            return Err(self.used_up());
        }
        self.used.push(Use { tag, done: false });
        Ok(true)
    }

    fn used_up(&self) -> TransferError {
        let times = match self.uses {
            1 => "once, as often as it may be".into(),
            n => format!("{n} times, as often as it may be"),
        };
        refusal(format!("the ticket has been used {times}"))
    }
}

fn refusal(text: String) -> TransferError {
    TransferError::new(Exit::Auth, text).fix("ask for a new one")
}

/// The file.
#[derive(Debug)]
pub(crate) struct Book {
    path: PathBuf,
    /// Records that were read last, and when the file was written.
    read: Arc<Mutex<(Option<Stamp>, Vec<Record>)>>,
    /// Asks the thread that reads for handshakes; it has read when the other end of what it is sent is dropped.
    asks: OnceLock<SyncSender<Sender<()>>>,
}

/// Longest wait of a handshake for the file, which may be on a disk that hangs.
const PATIENCE: Duration = Duration::from_millis(100);

/// Changes whenever a file is replaced.
type Stamp = (u64, u64, i64, i64);

impl Book {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            read: Arc::default(),
            asks: OnceLock::new(),
        }
    }

    /// Lets another thread read the file, and waits a moment for that; the last records stay if it
    /// takes longer.
    fn look(&self) -> io::Result<()> {
        let asks = if let Some(asks) = self.asks.get() {
            asks
        } else {
            let reader = self.reader()?;
            self.asks.get_or_init(|| reader)
        };
        let (done, looked) = mpsc::channel();
        // While it hangs nobody waits any more.
        if asks.try_send(done).is_ok() {
            let _over = looked.recv_timeout(PATIENCE);
        }
        Ok(())
    }

    /// Starts the thread that reads, until this is dropped.
    fn reader(&self) -> io::Result<SyncSender<Sender<()>>> {
        let (asks, asked) = mpsc::sync_channel::<Sender<()>>(1);
        let book = Self {
            path: self.path.clone(),
            read: Arc::clone(&self.read),
            asks: OnceLock::new(),
        };
        let read = move || {
            for done in asked {
                // What cannot be read is reported when it is asked for.
                let _reported_later = book.with_records(|_| ());
                drop(done);
            }
        };
        thread::Builder::new().name("tickets".into()).spawn(read)?;
        Ok(asks)
    }

    fn kept(&self) -> MutexGuard<'_, (Option<Stamp>, Vec<Record>)> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Path of the file unless it is named.
    pub(crate) fn default_path() -> Result<PathBuf, Failure> {
        Ok(keys::directory()?.join("tickets.json"))
    }

    /// The file, for messages.
    pub(crate) fn called(&self) -> String {
        place::local(&self.path)
    }

    fn failed(&self, e: &dyn std::fmt::Display) -> Failure {
        Failure::new(Exit::Config, format!("{}: {e}", self.path.display()))
    }

    /// Tickets that are kept.
    pub(crate) fn records(&self) -> Result<Vec<Record>, Failure> {
        self.with_records(<[Record]>::to_vec)
    }

    fn with_records<T>(&self, look: impl FnOnce(&[Record]) -> T) -> Result<T, Failure> {
        let stamp = match fs::metadata(&self.path) {
            Ok(meta) if meta.mode() & 0o077 != 0 => {
                let why = format!(
                    "it may be read by others: chmod 600 {}",
                    self.path.display()
                );
                return Err(self.failed(&why));
            }
            Ok(meta) => Some((meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(self.failed(&e)),
        };
        let known = self.kept().0;
        if known != stamp {
            // Not with the lock held: a disk may hang.
            let text = match stamp {
                Some(_) => read::settings(&self.path).map_err(|e| self.failed(&e))?,
                None => "[]".into(),
            };
            let records = serde_json::from_str(&text).map_err(|e| self.failed(&e))?;
            *self.kept() = (stamp, records);
        }
        Ok(look(&self.kept().1))
    }

    /// Changes them, alone; nothing is changed if `change` fails, nor written if it says so.
    pub(crate) fn change<T, E: From<Failure>>(
        &self,
        change: impl FnOnce(&mut Vec<Record>) -> Result<(T, bool), E>,
    ) -> Result<T, E> {
        let _alone = keys::lock(&self.path)?;
        let mut records = self.records()?;
        let (answer, changed) = change(&mut records)?;
        if changed {
            let now = clock::unix_seconds();
            records.retain(|r| now < r.expires.saturating_add(KEPT));
            let text = serde_json::to_vec_pretty(&records).map_err(|e| self.failed(&e))?;
            if text.len() as u64 > read::SETTINGS {
                let why = "it would become too long to be read: revoke tickets, or give out such with fewer uses";
                return Err(self.failed(&why).into());
            }
            keys::write(&self.path, &text, 0o600)?;
        }
        Ok(answer)
    }

    fn record(&self, key: &[u8]) -> Result<Option<Record>, Failure> {
        let Some(key) = key.try_into().ok().map(PublicKey::from_bytes) else {
            return Ok(None);
        };
        let key = key.to_string();
        self.with_records(|records| records.iter().find(|r| r.key == key).cloned())
    }
}

/// Failure without its path: the peer does not learn where the server keeps what.
struct Hidden(TransferError);

impl From<Failure> for Hidden {
    fn from(e: Failure) -> Self {
        crate::cmd::note("warning", &format!("tickets: {e}"));
        let text = "the server cannot read or write its tickets";
        Self(TransferError::new(Exit::Internal, text).fix("ask its administrator"))
    }
}

impl Book {
    fn change_one<T>(
        &self,
        key: &[u8],
        change: impl FnOnce(&mut Record) -> Result<(T, bool), TransferError>,
    ) -> Result<T, TransferError> {
        let key = key.try_into().ok().map(PublicKey::from_bytes);
        let key = key.map(|key| key.to_string()).unwrap_or_default();
        let changed = self.change(|records| {
            let gone = || Hidden(refusal("the ticket was revoked".into()));
            let record = records.iter_mut().find(|r| r.key == key).ok_or_else(gone)?;
            change(record).map_err(Hidden)
        });
        changed.map_err(|Hidden(e)| e)
    }
}

impl Tickets for Book {
    fn knows(&self, key: &[u8]) -> bool {
        if let Err(e) = self.look() {
            let text =
                format!("tickets are judged by what was read last: no thread to read them: {e}");
            crate::cmd::note("warning", &text);
        }
        let key = key.try_into().map(PublicKey::from_bytes);
        let key = key.map(|key| key.to_string()).unwrap_or_default();
        self.kept().1.iter().any(|record| record.key == key)
    }

    fn right(&self, key: &[u8]) -> Result<Option<Right>, TransferError> {
        let record = self.record(key).map_err(|e| Hidden::from(e).0)?;
        let Some(record) = record else {
            return Ok(None);
        };
        match record.over(clock::unix_seconds()) {
            None => record.right().map(Some),
            Some("expired") => Err(refusal(format!(
                "the ticket expired at {}",
                crate::when::utc(record.expires)
            ))),
            Some("used") => Err(record.used_up()),
            Some(why) => Err(refusal(format!("the ticket was {}", plain(why)))),
        }
    }

    fn begin(&self, key: &[u8], tag: [u8; 8]) -> Result<(), TransferError> {
        self.change_one(key, |record| Ok(((), record.take(tag)?)))
    }

    fn end(&self, key: &[u8], tag: [u8; 8]) -> Result<(), TransferError> {
        self.change_one(key, |record| {
            let of_it = record.used.iter_mut().filter(|u| u.tag == tag);
            of_it.for_each(|u| u.done = true);
            Ok(((), true))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn book(uses: u32, expires: u64) -> (tempfile::TempDir, Book, Vec<u8>) {
        let tmp = tempfile::tempdir().unwrap();
        let book = Book::new(tmp.path().join("tickets.json"));
        let key = PublicKey::from_bytes([5; 32]);
        let record = Record {
            key: key.to_string(),
            share: "s".into(),
            path: b"a".to_vec(),
            mode: "ro".into(),
            expires,
            uses,
            used: Vec::new(),
            max_rate_bps: None,
            revoked: false,
        };
        book.change::<_, Failure>(|records| {
            records.push(record);
            Ok(((), true))
        })
        .unwrap();
        (tmp, book, key.as_bytes().to_vec())
    }

    #[test]
    fn a_use_goes_on_until_it_has_ended_well_and_others_are_counted() {
        let (_tmp, book, key) = book(2, u64::MAX);
        assert!(book.records().is_ok());
        assert!(book.knows(&key) && !book.knows(&[6; 32]));
        book.begin(&key, [1; 8]).unwrap();
        book.begin(&key, [1; 8]).unwrap();
        book.end(&key, [1; 8]).unwrap();
        book.begin(&key, [1; 8]).unwrap();
        let why = book.begin(&key, [2; 8]).unwrap_err();
        assert_eq!(why.code, Exit::Auth);
        assert!(why.text.contains("used 2 times"), "{why}");
        assert!(book.right(&key).unwrap().is_some(), "one is under way");
        book.end(&key, [1; 8]).unwrap();
        assert!(book.right(&key).unwrap_err().text.contains("used 2 times"));
    }

    #[test]
    fn a_handshake_is_judged_by_what_was_read_last_while_the_file_cannot_be_read() {
        let (_tmp, book, key) = book(1, u64::MAX);
        assert!(book.records().is_ok());
        // A reader that hangs: it takes nothing and answers nothing.
        let (asks, _hangs) = mpsc::sync_channel(1);
        book.asks.set(asks).unwrap();
        for _ in 0..1_000 {
            assert!(book.knows(&key) && !book.knows(&[6; 32]));
        }
    }

    #[test]
    fn what_another_process_wrote_is_seen() {
        let (tmp, book, key) = book(1, u64::MAX);
        let other = Book::new(tmp.path().join("tickets.json"));
        // Another thread reads it.
        while !other.knows(&key) {}
        other.begin(&key, [1; 8]).unwrap();
        assert!(book.begin(&key, [2; 8]).is_err());
        let revoke = |records: &mut Vec<Record>| {
            records[0].revoked = true;
            Ok::<_, Failure>(((), true))
        };
        other.change(revoke).unwrap();
        assert!(book.right(&key).unwrap_err().text.contains("revoked"));
    }

    #[test]
    fn an_expired_one_says_when_and_is_forgotten_in_the_end() {
        let (_tmp, book, key) = book(1, clock::unix_seconds());
        let why = book.right(&key).unwrap_err();
        assert!(why.text.starts_with("the ticket expired at 20"), "{why}");
        let touch = |_: &mut Vec<Record>| Ok::<_, Failure>(((), true));
        book.change(touch).unwrap();
        assert_eq!(book.records().unwrap().len(), 1);
        let age = |records: &mut Vec<Record>| {
            records[0].expires -= KEPT + 1;
            Ok::<_, Failure>(((), true))
        };
        book.change(age).unwrap();
        assert!(book.records().unwrap().is_empty());
    }

    #[test]
    fn many_at_once_use_it_as_often_as_it_may_be() {
        let (_tmp, book, key) = book(5, u64::MAX);
        let used = thread::scope(|scope| {
            let threads: Vec<_> = (0..16_u8)
                .map(|n| {
                    let (book, key) = (&book, &key);
                    scope.spawn(move || book.begin(key, [n; 8]).is_ok())
                })
                .collect();
            threads
                .into_iter()
                .map(|t| t.join().unwrap())
                .filter(|ok| *ok)
                .count()
        });
        assert_eq!(used, 5);
    }

    #[test]
    fn a_file_that_others_may_read_or_that_is_broken_is_refused() {
        let (tmp, book, key) = book(1, u64::MAX);
        let path = tmp.path().join("tickets.json");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(book.records().unwrap_err().exit, Exit::Config);
        let why = book.right(&key).unwrap_err();
        assert!(!why.text.contains("tickets.json"), "{why}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "[{").unwrap();
        assert_eq!(book.records().unwrap_err().exit, Exit::Config);
    }
}

//! Lists the names of a folder in the order of their bytes. Only so many are held at a time: the
//! first behind a given one. More are found by reading the folder again. So a folder of any size
//! takes bounded memory.

use rustix::io::Errno;

use crate::disk::File;

/// Names, behind one another: each by itself would take five times as much.
#[derive(Clone, Debug, Default)]
struct Names {
    /// Names, each with a NUL.
    bytes: Vec<u8>,
    starts: Vec<u32>,
}

impl Names {
    fn add(&mut self, name: &[u8]) -> Result<(), Errno> {
        let start = u32::try_from(self.bytes.len()).map_err(|_| Errno::OVERFLOW)?;
        self.starts.push(start);
        self.bytes.extend_from_slice(name);
        self.bytes.push(0);
        Ok(())
    }

    /// Bytes that they take.
    const fn size(&self) -> usize {
        self.bytes.len() + self.starts.len() * size_of::<u32>()
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.starts
            .sort_unstable_by(|a, b| name_at(bytes, *a).cmp(name_at(bytes, *b)));
    }

    fn get(&self, i: usize) -> Option<&[u8]> {
        Some(name_at(&self.bytes, *self.starts.get(i)?))
    }
}

fn name_at(bytes: &[u8], start: u32) -> &[u8] {
    let from = usize::try_from(start).unwrap_or(usize::MAX);
    let rest = bytes.get(from..).unwrap_or_default();
    let end = rest.iter().position(|b| *b == 0);
    &rest[..end.unwrap_or(rest.len())]
}

/// The first names behind `after` in the order of their bytes, which fill the room at least by half, and at least one.
struct First<'a> {
    names: Names,
    after: &'a [u8],
    room: usize,
    /// The first that there was no room for.
    cut: Option<Vec<u8>>,
}

impl First<'_> {
    fn add(&mut self, name: &[u8]) -> Result<(), Errno> {
        if name <= self.after || self.cut.as_deref().is_some_and(|cut| name >= cut) {
            return Ok(());
        }
        self.names.add(name)?;
        while self.names.size() > self.room && self.names.starts.len() > 1 {
            self.shrink()?;
        }
        Ok(())
    }

    /// Keeps the first half, so that each name is moved a few times only.
    fn shrink(&mut self) -> Result<(), Errno> {
        self.names.sort();
        let kept = self.names.starts.len() / 2;
        self.cut = self.names.get(kept).map(<[u8]>::to_vec);
        let mut first = Names::default();
        for i in 0..kept {
            first.add(self.names.get(i).unwrap_or_default())?;
        }
        self.names = first;
        Ok(())
    }
}

/// The names in a folder, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    held: Names,
    next: usize,
    room: usize,
    /// True if there are more names behind those that are held.
    more: bool,
    /// The last name of an earlier pass.
    after: Vec<u8>,
    /// State of the folder at the first pass.
    since: Option<Since>,
    has_changed: bool,
}

/// Bytes of names that a walk holds of the present folder and those around it, but for [`LEAST`] of each.
const ROOM: usize = 16 << 20;
/// Bytes of names that are held of any folder.
const LEAST: usize = 64 << 10;

/// State of a folder's names: the times of its last change. Numbers of inodes are not stable on some file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Since {
    modified: (i64, i128),
    changed: (i64, i128),
}

impl Since {
    fn of(dir: &File) -> Result<Self, Errno> {
        let stat = dir.stat()?;
        Ok(Self {
            modified: (stat.st_mtime, stat.st_mtime_nsec.into()),
            changed: (stat.st_ctime, stat.st_ctime_nsec.into()),
        })
    }
}

impl Cursor {
    /// Opens a folder of a walk that holds so many bytes of names of the folders around it.
    pub(crate) fn within(dir: &File, held: usize) -> Result<Self, Errno> {
        let room = ROOM.saturating_sub(held) / 2;
        Self::behind(dir, b"", room.max(LEAST), None)
    }

    /// Opens a folder behind `after`, with room for so many bytes of names; `since` is the state at an earlier pass.
    pub(crate) fn behind(
        dir: &File,
        after: &[u8],
        room: usize,
        since: Option<Since>,
    ) -> Result<Self, Errno> {
        let mut cursor = Self {
            held: Names::default(),
            next: 0,
            room,
            more: true,
            after: after.to_vec(),
            since,
            has_changed: false,
        };
        cursor.read(dir)?;
        Ok(cursor)
    }

    fn read(&mut self, dir: &File) -> Result<(), Errno> {
        let before = Since::of(dir)?;
        let is_first = self.since.is_none();
        let since = *self.since.get_or_insert(before);
        let mut first = First {
            names: Names::default(),
            after: &self.after,
            room: self.room,
            cut: None,
        };
        dir.each_name(|name| first.add(name))?;
        first.names.sort();
        self.more = first.cut.is_some();
        // One pass that takes all names is as good as it can be.
        let is_only = is_first && !self.more;
        self.has_changed |= !is_only && Since::of(dir)? != since;
        self.held = first.names;
        self.next = 0;
        Ok(())
    }

    /// True if names were added, removed or changed between two passes, so that one may have been missed.
    pub(crate) const fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// State of the folder at the first pass.
    pub(crate) const fn since(&self) -> Option<Since> {
        self.since
    }

    /// Bytes of the names that are held.
    pub(crate) const fn size(&self) -> usize {
        self.held.size()
    }

    /// The next of the names that are held.
    pub(crate) fn held(&mut self) -> Option<&[u8]> {
        let name = self.held.get(self.next);
        self.next += usize::from(name.is_some());
        name
    }

    /// Leaves out the rest.
    pub(crate) fn end(&mut self) {
        self.more = false;
        self.next = self.held.starts.len();
    }

    /// The next name; the folder is read again where those that are held are over.
    pub(crate) fn next(&mut self, dir: &File) -> Result<Option<&[u8]>, Errno> {
        if self.needs_folder() {
            let last = self.next.checked_sub(1).and_then(|i| self.held.get(i));
            self.after = last.unwrap_or(&self.after).to_vec();
            self.read(dir)?;
        }
        Ok(self.held())
    }

    /// True if the next name is not held.
    pub(crate) const fn needs_folder(&self) -> bool {
        self.more && self.next >= self.held.starts.len()
    }

    /// True if there is no further name.
    pub(crate) const fn is_over(&self) -> bool {
        !self.more && self.next >= self.held.starts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confine;

    /// All names by passes with so much room, and the most that was held.
    fn all(dir: &File, room: usize) -> (Vec<Vec<u8>>, usize) {
        let mut cursor = Cursor::behind(dir, b"", room, None).expect("it can be read");
        let (mut names, mut most) = (Vec::new(), 0);
        while let Some(name) = cursor.next(dir).expect("it can be read") {
            names.push(name.to_vec());
            most = most.max(cursor.held.size());
        }
        assert!(cursor.is_over());
        (names, most)
    }

    #[test]
    fn every_name_comes_once_and_in_order_however_little_room_there_is() {
        let tmp = tempfile::tempdir().expect("a folder");
        let mut rng = farhaul_core::rng::Rng::new(7);
        let mut expected = Vec::new();
        for i in 0..500_u64 {
            let long = usize::try_from(rng.next_u64() % 200).expect("small");
            let name = format!("{:x}{}", rng.next_u64() % 97, "y".repeat(long)) + &i.to_string();
            std::fs::write(tmp.path().join(&name), "").expect("ours");
            expected.push(name.into_bytes());
        }
        expected.sort();
        let root = confine::open_root(tmp.path()).expect("a folder");
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
        let dir = confine::open_beneath(&root, b"", flags).expect("a folder");
        for room in [0, 1, 300, 4_000, 50_000, 1 << 20] {
            let (names, most) = all(&dir, room);
            assert_eq!(names, expected, "{room}");
            assert!(
                most <= room.max(260),
                "{most} bytes held with room for {room}"
            );
        }
        let after = &expected[250];
        let mut cursor = Cursor::behind(&dir, after, 900, None).expect("it can be read");
        assert_eq!(
            cursor.next(&dir).expect("it can be read"),
            Some(&expected[251][..])
        );
    }

    #[test]
    fn names_that_come_and_go_meanwhile_do_no_harm() {
        let tmp = tempfile::tempdir().expect("a folder");
        for i in 0..100 {
            std::fs::write(tmp.path().join(format!("{i:03}")), "").expect("ours");
        }
        let root = confine::open_root(tmp.path()).expect("a folder");
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
        let dir = confine::open_beneath(&root, b"", flags).expect("a folder");
        let mut cursor = Cursor::behind(&dir, b"", 80, None).expect("it can be read");
        let mut names = Vec::new();
        while let Some(name) = cursor.next(&dir).expect("it can be read") {
            let name = String::from_utf8(name.to_vec()).expect("digits");
            std::fs::remove_file(tmp.path().join(&name)).expect("ours");
            std::fs::write(tmp.path().join(format!("!{name}")), "").expect("ours");
            names.push(name);
        }
        assert_eq!(names.len(), 100);
        assert!(names.is_sorted());
        assert!(cursor.has_changed(), "a name may have been missed");
        let mut quiet = Cursor::behind(&dir, b"", 80, None).expect("it can be read");
        while quiet.next(&dir).expect("it can be read").is_some() {}
        assert!(!quiet.has_changed());
        // Whoever goes on later learns of what happened meanwhile.
        std::fs::write(tmp.path().join("later"), "").expect("ours");
        let on = Cursor::behind(&dir, b"!050", 1 << 20, quiet.since()).expect("it can be read");
        assert!(on.has_changed());
        let whole = Cursor::behind(&dir, b"", 1 << 20, None).expect("it can be read");
        assert!(!whole.has_changed());
    }
}

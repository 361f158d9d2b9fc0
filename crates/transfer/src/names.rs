//! How are the names of a folder kept? Behind one another, so that a million of them takes little more than
//! their letters: each by itself would take five times as much.

/// The names in a folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// Each with a NUL.
    bytes: Vec<u8>,
    starts: Vec<u32>,
}

impl Names {
    /// Adds a name, which has no NUL; false if there are 4 GiB of them.
    pub(crate) fn add(&mut self, name: &[u8]) -> bool {
        let Ok(start) = u32::try_from(self.bytes.len()) else {
            return false;
        };
        self.starts.push(start);
        self.bytes.extend_from_slice(name);
        self.bytes.push(0);
        true
    }

    /// In the order of their bytes.
    pub(crate) fn sorted(mut self) -> Self {
        let bytes = &self.bytes;
        self.starts
            .sort_unstable_by(|a, b| name_at(bytes, *a).cmp(name_at(bytes, *b)));
        self
    }

    pub(crate) fn get(&self, i: usize) -> Option<&[u8]> {
        Some(name_at(&self.bytes, *self.starts.get(i)?))
    }

    pub(crate) const fn len(&self) -> usize {
        self.starts.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.starts.iter().map(|start| name_at(&self.bytes, *start))
    }
}

fn name_at(bytes: &[u8], start: u32) -> &[u8] {
    let from = usize::try_from(start).unwrap_or(usize::MAX);
    let rest = bytes.get(from..).unwrap_or_default();
    let end = rest.iter().position(|b| *b == 0);
    &rest[..end.unwrap_or(rest.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_back_in_order() {
        let mut names = Names::default();
        for name in [&b"b"[..], b"a b", b"\xff", b"a", b"ab"] {
            assert!(names.add(name));
        }
        assert_eq!(names.get(0), Some(&b"b"[..]));
        let names = names.sorted();
        let all: Vec<_> = names.iter().collect();
        assert_eq!(all, [&b"a"[..], b"a b", b"ab", b"b", b"\xff"]);
        assert_eq!(names.get(4), Some(&b"\xff"[..]));
        assert_eq!(names.get(5), None);
    }
}

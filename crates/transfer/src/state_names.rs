//! Makes the names of files that copies keep beside others; [`Own`](crate::wire::path::Own) recognises them.
//! No message carries such a name.

use crate::wire::path::{JOURNAL, NAME_MAX, PART, STRIPES, Tag, digest, hex};

/// The hidden name beside `name` under which its content is collected by the transfer `id`.
pub(crate) fn part_name(name: &[u8], id: Tag) -> Vec<u8> {
    beside(name, id, PART)
}

/// Name of the file in which several transfers collect stripes.
pub(crate) fn stripes_name(name: &[u8], id: Tag) -> Vec<u8> {
    beside(name, id, STRIPES)
}

fn beside(name: &[u8], id: Tag, end: &[u8]) -> Vec<u8> {
    let tag = hex(&id);
    let room = NAME_MAX - end.len() - tag.len() - 2;
    let mut out = vec![b'.'];
    if name.len() <= room {
        out.extend_from_slice(name);
    } else {
        // Two long names may share their beginning.
        out.extend_from_slice(&name[..room - 17]);
        out.push(b'~');
        out.extend_from_slice(hex(&digest(name)).as_bytes());
    }
    out.push(b'.');
    out.extend_from_slice(tag.as_bytes());
    out.extend_from_slice(end);
    out
}

/// The `n`th name, from 0, under which content that stayed wrong may be kept.
pub(crate) fn bad_name(name: &[u8], n: u32) -> Vec<u8> {
    let end = match n {
        0 => ".bad".into(),
        n => format!(".bad-{n}"),
    };
    let mut out = name[..name.len().min(NAME_MAX - end.len())].to_vec();
    out.extend_from_slice(end.as_bytes());
    out
}

/// The journal of transfer `id`.
pub(crate) fn journal_name(id: Tag) -> Vec<u8> {
    [JOURNAL, hex(&id).as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::path::Own;

    #[test]
    fn temporary_names_fit_and_differ() {
        let a = [vec![b'a'; 254], vec![b'1']].concat();
        let b = [vec![b'a'; 254], vec![b'2']].concat();
        let id = [7; 8];
        assert_ne!(part_name(&a, id), part_name(&b, id));
        for name in [&a[..], &b, b"x"] {
            let part = part_name(name, id);
            assert!(part.len() <= NAME_MAX && Own::of(&part) == Some(Own::Part(id)));
            assert_ne!(part, part_name(name, [8; 8]));
            let stripes = stripes_name(name, id);
            assert!(stripes.len() <= NAME_MAX && Own::of(&stripes) == Some(Own::Stripes(id)));
            assert!(bad_name(name, 0).len() <= NAME_MAX);
            assert!(
                bad_name(name, 12).ends_with(b".bad-12") && bad_name(name, 12).len() <= NAME_MAX
            );
        }
        assert_eq!(Own::of(&journal_name(id)), Some(Own::Journal(id)));
        assert_eq!(Own::of(&journal_name(id)).map(Own::tag), Some(id));
    }
}

//! Hard links that the destination cannot have: each becomes a file of its own with the same content, copied from the one
//! that is there.

use std::io;

use super::{
    commit::{rename, without_part},
    disks::Disks,
    target::Target,
};
use crate::{confine, disk::File, pages::Pages, pool::Stop, sender::extents};

/// Bytes that are copied at a time.
const PIECE: usize = 1 << 20;

/// Gives the target the content of `from`; false if it has that already.
pub(super) fn make(
    from: &File,
    target: &Target,
    disks: Option<&Disks>,
    with: (&mut Pages, &Stop),
) -> io::Result<bool> {
    let (scratch, stop) = with;
    let size = from.stat()?.st_size.cast_unsigned();
    if is_there(from, target, size, (scratch, stop))? {
        return Ok(false);
    }
    let (dir, part) = (&target.dir, &target.part);
    let file = confine::inside(dir, target.closed, || confine::create_anew(dir, part))?;
    let mut copied = || {
        file.set_len(size)?;
        for range in extents(from, size, stop)? {
            each_piece(range.start, range.end, scratch, stop, |at, piece| {
                from.read_exact_at(piece, at)?;
                file.write_all_at(piece, at)?;
                Ok(true)
            })?;
        }
        target.meta.apply(&file)?;
        disks.map_or(Ok(()), |_| stop.sync(|| Ok(file.sync()?)))
    };
    copied().map_err(|e| without_part(&file, target, e))?;
    rename(&file, target, false)?;
    Ok(true)
}

/// True if the target has the size, time and content of `from`.
fn is_there(
    from: &File,
    target: &Target,
    size: u64,
    (scratch, stop): (&mut Pages, &Stop),
) -> io::Result<bool> {
    let id = target.meta.identity(size);
    let Some(there) = confine::stat(&target.dir, &target.name)? else {
        return Ok(false);
    };
    if !id.is_of(&there) {
        return Ok(false);
    }
    let Ok(there) = target.open_to_read(&target.name) else {
        return Ok(false);
    };
    let mut ours = Pages::default();
    each_piece(0, size, scratch, stop, |at, piece| {
        ours.fit(piece.len());
        from.read_exact_at(piece, at)?;
        there.read_exact_at(&mut ours, at)?;
        Ok(piece == &ours[..])
    })
}

/// Calls `act` with a buffer for each piece from `at` to `end`, until one is false.
fn each_piece(
    mut at: u64,
    end: u64,
    scratch: &mut Pages,
    stop: &Stop,
    mut act: impl FnMut(u64, &mut [u8]) -> io::Result<bool>,
) -> io::Result<bool> {
    while at < end {
        stop.check()?;
        let len = usize::try_from(end - at).map_or(PIECE, |left| left.min(PIECE));
        scratch.fit(len);
        if !act(at, scratch)? {
            return Ok(false);
        }
        at += len as u64;
    }
    Ok(true)
}

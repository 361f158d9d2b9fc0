//! A frame of a tunnel: u16 segment size, u16 length (big-endian), and that many bytes. The bytes
//! are datagrams of the segment size, only the last of which may be shorter. It is one message of
//! the kernel's, at either end.

use std::io::{self, Read, Write};

use farhaul_core::datagram::MAX_SEGMENTS;

/// The most bytes of a frame, its head aside.
pub(super) const LONGEST: usize = u16::MAX as usize;

/// Head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Segment length, of 1 to `len` bytes.
    pub(super) segment: usize,
    pub(super) len: usize,
}

/// Writes datagrams that are `segment` bytes apart, as one frame, or as more if they are too many bytes for one.
pub(super) fn write(stream: &mut impl Write, segment: usize, datagrams: &[u8]) -> io::Result<()> {
    let segment = segment.clamp(1, LONGEST);
    let most = (LONGEST / segment).clamp(1, MAX_SEGMENTS) * segment;
    for bytes in datagrams.chunks(most) {
        let short = |n: usize| u16::try_from(n).unwrap_or(u16::MAX).to_be_bytes();
        let [a, b] = short(segment.min(bytes.len()));
        let [c, d] = short(bytes.len());
        stream.write_all(&[a, b, c, d])?;
        stream.write_all(bytes)?;
    }
    Ok(())
}

/// Reads the next frame into `bytes`, which has room for [`LONGEST`]; none at the end of the stream.
pub(super) fn read(stream: &mut impl Read, bytes: &mut [u8]) -> io::Result<Option<Frame>> {
    let mut head = [0; 4];
    let first = loop {
        match stream.read(&mut head[..1]) {
            Ok(n) => break n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    };
    if first == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut head[1..])?;
    let [a, b, c, d] = head;
    let (segment, len) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let (segment, len) = (usize::from(segment), usize::from(len));
    // No more datagrams than the kernel has in one message.
    if segment == 0 || segment > len || len.div_ceil(segment) > MAX_SEGMENTS {
        let text = format!("not a frame: {segment} bytes of {len}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    stream.read_exact(&mut bytes[..len])?;
    Ok(Some(Frame { segment, len }))
}

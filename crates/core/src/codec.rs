//! Reads and writes numbers on the wire: big-endian fixed fields and variable-length integers of 1,
//! 2, 4 or 8 bytes (the two top bits give the length; RFC 9000 §16). Readers never panic, writers
//! never overrun.

/// A datagram that could not be decoded. Small and `Copy`: attackers produce it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes ended inside a field.
    #[error("truncated")]
    Truncated,
    /// A field has a value that is never sent.
    #[error("malformed {0}")]
    Malformed(&'static str),
}

/// Too little room in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room left in the datagram")]
pub struct NoRoom;

/// The largest value a variable-length integer carries.
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// Bytes that `value` takes as a variable-length integer.
pub const fn varint_len(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Takes fields off the front of a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Bytes not yet read.
    #[inline]
    pub const fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// True when everything has been read.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next `n` bytes.
    #[inline]
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self
            .bytes
            .split_at_checked(n)
            .ok_or(DecodeError::Truncated)?;
        self.bytes = tail;
        Ok(head)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, tail) = self
            .bytes
            .split_first_chunk()
            .ok_or(DecodeError::Truncated)?;
        self.bytes = tail;
        Ok(*head)
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[b]| b)
    }

    /// Two bytes, big-endian.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    /// Four bytes, big-endian.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Four bytes each, big-endian.
    #[inline]
    pub fn words<const N: usize>(&mut self) -> Result<[u32; N], DecodeError> {
        let mut words = [0; N];
        for word in &mut words {
            *word = self.u32()?;
        }
        Ok(words)
    }

    /// Eight bytes, big-endian.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_be_bytes)
    }

    /// A variable-length integer.
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let first = *self.bytes.first().ok_or(DecodeError::Truncated)?;
        let bytes = self.take(1 << (first >> 6))?;
        let head = u64::from(first & 0x3f);
        Ok(bytes[1..]
            .iter()
            .fold(head, |value, b| value << 8 | u64::from(*b)))
    }

    /// A variable-length length, then that many bytes.
    pub fn prefixed(&mut self) -> Result<&'a [u8], DecodeError> {
        let n = usize::try_from(self.varint()?).map_err(|_| DecodeError::Truncated)?;
        self.take(n)
    }
}

/// Reads a value with `read` from the start of `bytes`, and returns the value and its length in
/// bytes; none if `bytes` end too early.
pub fn whole<'a, T>(
    bytes: &'a [u8],
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Option<(T, usize)>, DecodeError> {
    let mut r = Reader::new(bytes);
    match read(&mut r) {
        Ok(value) => Ok(Some((value, bytes.len() - r.rest().len()))),
        Err(DecodeError::Truncated) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Puts fields into a fixed buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Writes from the start of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes written.
    #[inline]
    pub const fn len(&self) -> usize {
        self.at
    }

    /// True before the first write.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.at == 0
    }

    /// Bytes that still fit.
    #[inline]
    pub const fn room(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Bytes not yet written, to be filled out of order; the writer's position stays.
    #[inline]
    pub fn unwritten(&mut self) -> &mut [u8] {
        &mut self.bytes[self.at..]
    }

    /// Appends `data`.
    #[inline]
    pub fn put(&mut self, data: &[u8]) -> Result<(), NoRoom> {
        self.reserve(data.len())?.copy_from_slice(data);
        Ok(())
    }

    /// The next `n` bytes, to be filled by the caller.
    #[inline]
    pub fn reserve(&mut self, n: usize) -> Result<&mut [u8], NoRoom> {
        let end = self.at.checked_add(n).ok_or(NoRoom)?;
        let slice = self.bytes.get_mut(self.at..end).ok_or(NoRoom)?;
        self.at = end;
        Ok(slice)
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self, value: u8) -> Result<(), NoRoom> {
        self.put(&[value])
    }

    /// Two bytes, big-endian.
    #[inline]
    pub fn u16(&mut self, value: u16) -> Result<(), NoRoom> {
        self.put(&value.to_be_bytes())
    }

    /// Four bytes, big-endian.
    #[inline]
    pub fn u32(&mut self, value: u32) -> Result<(), NoRoom> {
        self.put(&value.to_be_bytes())
    }

    /// Four bytes each, big-endian.
    #[inline]
    pub fn words(&mut self, values: &[u32]) -> Result<(), NoRoom> {
        values.iter().try_for_each(|value| self.u32(*value))
    }

    /// Eight bytes, big-endian.
    #[inline]
    pub fn u64(&mut self, value: u64) -> Result<(), NoRoom> {
        self.put(&value.to_be_bytes())
    }

    /// A variable-length integer; values above [`VARINT_MAX`] are clamped to it.
    pub fn varint(&mut self, value: u64) -> Result<(), NoRoom> {
        let value = value.min(VARINT_MAX);
        let n = varint_len(value);
        let bytes = value.to_be_bytes();
        let out = self.reserve(n)?;
        out.copy_from_slice(&bytes[8 - n..]);
        out[0] |= match n {
            1 => 0x00,
            2 => 0x40,
            4 => 0x80,
            _ => 0xc0,
        };
        Ok(())
    }

    /// A variable-length length, then `data`.
    pub fn prefixed(&mut self, data: &[u8]) -> Result<(), NoRoom> {
        self.varint(data.len() as u64)?;
        self.put(data)
    }
}

/// The Internet's checksum (RFC 1071): the ones' complement of the ones' complement sum of words of 16 bits, the
/// last one filled up with zeros.
pub fn internet_checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u64;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or_default();
        sum += u64::from(u16::from_be_bytes([pair[0], low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn varints_of_rfc_9000_appendix_a() {
        let vectors: [(&[u8], u64); 4] = [
            (
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c],
                151_288_809_941_952_652,
            ),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ];
        for (bytes, value) in vectors {
            assert_eq!(Reader::new(bytes).varint(), Ok(value));
            let mut out = [0; 8];
            let mut w = Writer::new(&mut out);
            w.varint(value).unwrap();
            let n = w.len();
            assert_eq!(&out[..n], bytes);
        }
    }

    /// RFC 1071 §3 adds these eight bytes up to ddf2.
    #[test]
    fn the_internet_checksum_is_that_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(internet_checksum(&bytes), !0xddf2);
        assert_eq!(internet_checksum(&[0xff]), !0xff00);
        assert_eq!(internet_checksum(&[]), 0xffff);
    }

    #[test]
    fn what_is_not_all_there_is_read_when_it_is() {
        let read = |r: &mut Reader<'_>| match r.u16()? {
            7 => Err(DecodeError::Malformed("seven")),
            word => Ok(word),
        };
        assert_eq!(whole(&[1], read), Ok(None));
        assert_eq!(whole(&[1, 2, 3], read), Ok(Some((258, 2))));
        assert_eq!(whole(&[0, 7], read), Err(DecodeError::Malformed("seven")));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value in 0..=VARINT_MAX, data in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut out = [0; 400];
            let mut w = Writer::new(&mut out);
            w.varint(value).unwrap();
            w.prefixed(&data).unwrap();
            let n = w.len();
            let mut r = Reader::new(&out[..n]);
            prop_assert_eq!(r.varint(), Ok(value));
            prop_assert_eq!(r.prefixed(), Ok(&data[..]));
            prop_assert!(r.is_empty());
        }

        #[test]
        fn any_bytes_are_read_without_panic(data in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut r = Reader::new(&data);
            while r.varint().is_ok() && r.prefixed().is_ok() && r.u16().is_ok() {}
        }
    }
}

//! Wire format of Tsunami. Numbers are big-endian. On TCP go revision, challenge and its answer, a
//! request in a line, parameters and the server's description of the file, and a port. Then goes
//! feedback of twelve bytes each; or lists of names and sizes. In datagrams go a block number, a
//! type and the block.
//!
//! Decoding never panics and allocates nothing; whatever decodes is bounded.
//!
//! Source: Tsunami v1.1 (builds 42 and 43) as read and as seen on the wire; `docs/protocols/ttp.md` §2.

use farhaul_core::codec::{DecodeError, NoRoom, Reader, Writer};
use md5::{Digest, Md5};

/// Protocol revision, which both ends send first.
pub const REVISION: u32 = 0x2006_1025;
/// Port at which a server listens, and at which a client takes datagrams.
pub const PORT: u16 = 46_224;
/// The secret if nobody chose one.
pub const SECRET: &[u8] = b"kitten";
/// Bytes of a challenge.
pub const CHALLENGE: usize = 64;
/// Bytes before a block.
pub const HEADER: u32 = 6;
/// Bytes of [`Parameters`].
pub const PARAMETERS: usize = 20;
/// Bytes of a [`FileInfo`].
pub const FILE_INFO: usize = 20;
/// Bytes of a [`Feedback`].
pub const FEEDBACK: usize = 12;
/// The longest request.
pub const MAX_LINE: usize = 1_024;
/// Error rates in feedback are fractions of this: 100 %.
pub const WHOLE: u32 = 100_000;
/// Messages of a client that has the count of a list, and that has the list.
pub const GOT: [&[u8; 8]; 2] = [b"got size", b"got list"];

/// The answer to a challenge: MD5 of it, combined with the secret over and over.
pub fn answer(challenge: &[u8; CHALLENGE], secret: &[u8]) -> [u8; 16] {
    let mut mixed = *challenge;
    for (byte, key) in mixed.iter_mut().zip(secret.iter().cycle()) {
        *byte ^= key;
    }
    Md5::digest(mixed).into()
}

/// Verdict of a server, in one byte, on an answer or a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// 0.
    Fine,
    /// 1: the answer to the challenge is wrong.
    Denied,
    /// 2: a device is missing.
    NoDevice,
    /// 8: there is no such file.
    NotFound,
    /// 16: no copy could be made.
    NoCopy,
}

impl Verdict {
    /// Reads the verdict.
    pub const fn decode(byte: u8) -> Result<Self, DecodeError> {
        Ok(match byte {
            0 => Self::Fine,
            1 => Self::Denied,
            2 => Self::NoDevice,
            8 => Self::NotFound,
            16 => Self::NoCopy,
            _ => return Err(DecodeError::Malformed("verdict")),
        })
    }

    /// Byte of the verdict.
    pub const fn encode(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Denied => 1,
            Self::NoDevice => 2,
            Self::NotFound => 8,
            Self::NoCopy => 16,
        }
    }
}

/// A client's request line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// A file of this name.
    File(&'a [u8]),
    /// `*`: the names of all files.
    Names,
    /// `!#DIR??`: the names and sizes of all files.
    Directory,
}

impl<'a> Request<'a> {
    /// Appends the request; a name has no line feed and no zero in it.
    pub fn encode(&self, into: &mut Vec<u8>) {
        into.extend(match self {
            Self::File(name) => name,
            Self::Names => &b"*"[..],
            Self::Directory => b"!#DIR??",
        });
        into.push(b'\n');
    }

    /// The first request in `bytes`, which ends with a line feed or a zero, and its length; none if it is
    /// not all there.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        let mut line = bytes.iter().take(MAX_LINE);
        let Some(end) = line.position(|b| matches!(b, b'\n' | 0)) else {
            return match bytes.len() {
                0..MAX_LINE => Ok(None),
                _ => Err(DecodeError::Malformed("length of a request")),
            };
        };
        let request = match &bytes[..end] {
            b"" => return Err(DecodeError::Malformed("request")),
            b"*" => Self::Names,
            b"!#DIR??" => Self::Directory,
            name => Self::File(name),
        };
        Ok(Some((request, end + 1)))
    }
}

/// A ratio of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// Number above the line.
    pub above: u16,
    /// Number below the line.
    pub below: u16,
}

impl Ratio {
    /// Value of the ratio.
    pub fn value(self) -> f64 {
        f64::from(self.above) / f64::from(self.below)
    }
}

/// Transfer parameters that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Bytes of a block.
    pub block_size: u32,
    /// Bits of blocks per second at most.
    pub rate: u32,
    /// More errors than this, of [`WHOLE`], slow the sender down.
    pub error_rate: u32,
    /// Factor by which the sender then lengthens its gap.
    pub slower: Ratio,
    /// Factor by which the sender shortens its gap otherwise.
    pub faster: Ratio,
}

impl Default for Parameters {
    /// The original's, but for the size of blocks, which the original's programs and pages disagree on.
    fn default() -> Self {
        let ratio = |above, below| Ratio { above, below };
        Self {
            block_size: 1_024,
            rate: 650_000_000,
            error_rate: 7_500,
            slower: ratio(25, 24),
            faster: ratio(5, 6),
        }
    }
}

impl Parameters {
    /// Reads the parameters; values out of range are rejected.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let parameters = Self {
            block_size: r.u32()?,
            rate: r.u32()?,
            error_rate: r.u32()?,
            slower: ratio(&mut r)?,
            faster: ratio(&mut r)?,
        };
        let Self {
            block_size,
            rate,
            error_rate,
            slower,
            faster,
        } = parameters;
        if !(1..=65_530).contains(&block_size) || rate == 0 || error_rate >= WHOLE {
            return Err(DecodeError::Malformed("parameters"));
        }
        let steps = [slower.above, slower.below, faster.above, faster.below];
        if steps.contains(&0) || slower.above < slower.below || faster.above > faster.below {
            return Err(DecodeError::Malformed("steps of the rate"));
        }
        Ok(parameters)
    }

    /// Appends the parameters.
    pub fn encode(&self, into: &mut Vec<u8>) {
        for word in [self.block_size, self.rate, self.error_rate] {
            into.extend(word.to_be_bytes());
        }
        for Ratio { above, below } in [self.slower, self.faster] {
            into.extend(above.to_be_bytes());
            into.extend(below.to_be_bytes());
        }
    }
}

fn ratio(r: &mut Reader<'_>) -> Result<Ratio, DecodeError> {
    Ok(Ratio {
        above: r.u16()?,
        below: r.u16()?,
    })
}

/// File information sent by a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Bytes.
    pub size: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks, the last one included.
    pub blocks: u32,
    /// Time at which the transfer began, in seconds since 1970.
    pub epoch: u32,
}

impl FileInfo {
    /// Reads the description; a count of blocks that is not that of the size is refused.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let info = Self {
            size: r.u64()?,
            block_size: r.u32()?,
            blocks: r.u32()?,
            epoch: r.u32()?,
        };
        let blocks = info.size.div_ceil(info.block_size.max(1).into());
        if info.block_size == 0 || blocks != u64::from(info.blocks) {
            return Err(DecodeError::Malformed("number of blocks"));
        }
        Ok(info)
    }

    /// Appends the description.
    pub fn encode(&self, into: &mut Vec<u8>) {
        into.extend(self.size.to_be_bytes());
        for word in [self.block_size, self.blocks, self.epoch] {
            into.extend(word.to_be_bytes());
        }
    }
}

/// Kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `O`: the next.
    Original,
    /// `R`: a retransmission.
    Repair,
    /// `X`: the last.
    Last,
}

/// Header that precedes a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The first is 1.
    pub block: u32,
    /// Reason why the block is sent.
    pub kind: Kind,
}

impl BlockHeader {
    /// Reads the header.
    pub fn decode(datagram: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(datagram);
        let block = r.u32()?;
        let kind = match r.u16()? {
            0x4f => Kind::Original,
            0x52 => Kind::Repair,
            0x58 => Kind::Last,
            _ => return Err(DecodeError::Malformed("type of a block")),
        };
        Ok(Self { block, kind })
    }

    /// Writes the header.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        w.u32(self.block)?;
        w.u16(match self.kind {
            Kind::Original => 0x4f,
            Kind::Repair => 0x52,
            Kind::Last => 0x58,
        })
    }
}

/// Feedback from the client during a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedbackKind {
    /// 0: send the block again.
    Retransmit,
    /// 1: go back to the block.
    Restart,
    /// 2: the file is over.
    Stop,
    /// 3: the error rate.
    ErrorRate,
}

/// Twelve bytes of feedback; what a type has no use for is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// Kind of the feedback.
    pub kind: FeedbackKind,
    /// Block that the feedback is about.
    pub block: u32,
    /// Error rate, of [`WHOLE`].
    pub error_rate: u32,
}

impl Feedback {
    /// Reads the feedback; the two bytes between, which a compiler put there, may be anything.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let kind = match (r.u16()?, r.u16()?) {
            (0, _) => FeedbackKind::Retransmit,
            (1, _) => FeedbackKind::Restart,
            (2, _) => FeedbackKind::Stop,
            (3, _) => FeedbackKind::ErrorRate,
            _ => return Err(DecodeError::Malformed("type of feedback")),
        };
        Ok(Self {
            kind,
            block: r.u32()?,
            error_rate: r.u32()?,
        })
    }

    /// Appends the feedback.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let kind: u16 = match self.kind {
            FeedbackKind::Retransmit => 0,
            FeedbackKind::Restart => 1,
            FeedbackKind::Stop => 2,
            FeedbackKind::ErrorRate => 3,
        };
        into.extend(kind.to_be_bytes());
        into.extend([0; 2]);
        into.extend(self.block.to_be_bytes());
        into.extend(self.error_rate.to_be_bytes());
    }
}

/// Head of a server's list of all names: two numbers of ten bytes, in digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameCount {
    /// Bytes of the names, their zeros included.
    pub bytes: u64,
    /// Names.
    pub names: u64,
}

impl NameCount {
    /// Bytes of both numbers.
    pub const LEN: usize = 20;

    /// Reads the head.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        Ok(Self {
            bytes: digits(r.take(10)?)?,
            names: digits(r.take(10)?)?,
        })
    }

    /// Appends the head; numbers of more than nine digits cannot be written.
    pub fn encode(&self, into: &mut Vec<u8>) {
        for number in [self.bytes, self.names] {
            let mut field = [0; 10];
            let text = number.min(999_999_999).to_string();
            field[..text.len()].copy_from_slice(text.as_bytes());
            into.extend(field);
        }
    }
}

fn digits(field: &[u8]) -> Result<u64, DecodeError> {
    let text = field.split(|b| *b == 0).next().unwrap_or_default();
    let number = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
    number.ok_or(DecodeError::Malformed("number in digits"))
}

/// The strings of a list, each ended by a zero; what follows the last zero is no string.
pub fn strings(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = bytes.iter().rposition(|b| *b == 0);
    let whole = end.map_or(&[][..], |end| &bytes[..end]);
    let mut all = whole.split(|b| *b == 0);
    std::iter::from_fn(move || if end.is_some() { all.next() } else { None })
}

/// Appends a list of names and sizes: their count, then each name and its size, as strings. The client
/// answers with a zero.
pub fn put_directory(into: &mut Vec<u8>, files: &[(&[u8], u64)]) {
    let mut put = |text: &[u8]| {
        into.extend(text);
        into.push(0);
    };
    put(files.len().to_string().as_bytes());
    for (name, size) in files {
        put(name);
        put(size.to_string().as_bytes());
    }
}

/// Count of strings that such a list has, if the first of them is there.
pub fn directory_strings(bytes: &[u8]) -> Result<Option<u64>, DecodeError> {
    let count = strings(bytes).next().map(digits).transpose()?;
    Ok(count.map(|files| files.saturating_mul(2).saturating_add(1)))
}

/// A file of such a list: its name and bytes.
pub type Listed<'a> = (&'a [u8], u64);

/// The files of such a list; none if it is not all there.
pub fn directory(bytes: &[u8]) -> Result<Option<Vec<Listed<'_>>>, DecodeError> {
    let mut all = strings(bytes);
    let Some(count) = all.next() else {
        return Ok(None);
    };
    let (count, mut files) = (digits(count)?, Vec::new());
    while (files.len() as u64) < count {
        let (Some(name), Some(size)) = (all.next(), all.next()) else {
            return Ok(None);
        };
        files.push((name, digits(size)?));
    }
    Ok(Some(files))
}

#[cfg(test)]
mod tests;

//! Lines that the ends of a copy exchange through ssh. One line each way, JSON after [`MAGIC`]:
//! [`Ask`] and [`Answer`]. A host that is to send to another one begins with [`Hello`], is given an
//! [`Order`], and reports by lines of [`Said`]. Members may be added: an end skips those that it
//! does not know, and does without those that the other does not have. The version is raised only
//! for what cannot be said so. Output of a login shell before the answer is skipped, up to [`MOST`]
//! bytes.

use std::{
    io::{self, BufRead, Read as _},
    net::IpAddr,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Beginning of every line of ours.
pub(crate) const WORD: &str = "farhaul-ssh/";
/// Beginning of a line with the version of the rest.
pub(crate) const MAGIC: &str = "farhaul-ssh/2 ";
/// The longest line that is read; as much is read of the far end before its line must have been received.
pub(crate) const MOST: u64 = 64 << 10;

/// The line of the near end.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ask {
    /// The only key to be let in.
    pub(crate) key: String,
    /// True if files are delivered, not fetched.
    pub(crate) put: bool,
    /// Paths as typed, in hex; exactly one if files are delivered.
    pub(crate) paths: Vec<String>,
    /// The UDP ports to try, first and last.
    #[serde(default)]
    pub(crate) ports: Option<(u16, u16)>,
    /// The release of the near end; empty before it was said.
    #[serde(default)]
    pub(crate) release: String,
    /// Options of the copy that was ordered, in hex, where another host than the near end delivers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ordered: Option<String>,
}

/// The line of the far end.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// Port where it listens.
    pub(crate) port: u16,
    /// Key of the server.
    pub(crate) key: String,
    /// The paths in its only share in the same order, in hex.
    pub(crate) paths: Vec<String>,
    /// The address at which ssh reached it.
    pub(crate) address: Option<IpAddr>,
    /// Reason that it cannot, and the exit code.
    pub(crate) refusal: Option<(String, u8)>,
    /// The release of the far end; empty before it was said.
    #[serde(default)]
    pub(crate) release: String,
    /// True if it carries datagrams through ssh on request.
    #[serde(default)]
    pub(crate) tunnel: bool,
}

/// The line of a host that is to send to another one.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Key of the host, made for this copy.
    pub(crate) key: String,
    /// Release of farhaul there.
    #[serde(default)]
    pub(crate) release: String,
}

/// Order for a sending host.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Name that the ordering machine has for the host.
    #[serde(default)]
    pub(crate) called: String,
    /// Flags of `farhaul cp`, in hex; one that it does not know is refused.
    pub(crate) flags: Vec<String>,
    /// Sources to send, as typed, in hex.
    pub(crate) sources: Vec<String>,
    pub(crate) to: Receiver,
}

/// Destination of the copy.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Receiver {
    /// A server that ssh started.
    Ssh {
        /// Login as typed.
        login: String,
        /// Names and addresses to try.
        hosts: Vec<String>,
        port: u16,
        key: String,
        /// Path in its only share, in hex.
        path: String,
    },
    /// The place of a ticket.
    Ticket(String),
}

/// Reports of the sending host, a line each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Said {
    /// Text for the standard output.
    Out(String),
    /// A line for people.
    Err(String),
    /// An event of the copy.
    Event(Value),
    /// The copy is over: its exit code, and why if it failed.
    End { code: u8, text: String },
}

/// The first byte of a chunk of datagrams, which no line begins with; u32 length (big-endian) and so many bytes follow.
pub(crate) const CHUNK: u8 = 0;
/// The most bytes of a chunk.
pub(crate) const MOST_OF_CHUNK: usize = 256 << 10;

/// Result of reading the sending host.
#[derive(Debug, PartialEq)]
pub(crate) enum Report {
    Said(Said),
    /// A part of the stream of a tunnel, to be relayed.
    Chunk(Vec<u8>),
}

/// The release of this program.
pub(crate) const RELEASE: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let digit = |n: u8| char::from_digit(n.into(), 16).unwrap_or('0');
    bytes
        .iter()
        .flat_map(|b| [digit(b >> 4), digit(b & 15)])
        .collect()
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| {
        char::from(b)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    rest.is_empty().then(|| bytes.collect())?
}

pub(crate) fn all_from_hex(texts: &[String]) -> Option<Vec<Vec<u8>>> {
    texts.iter().map(|text| from_hex(text)).collect()
}

/// Output in place of the far end's line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// Nothing of ours.
    Noise(String),
    /// A line of another version.
    Version(String),
}

impl Default for NoAnswer {
    fn default() -> Self {
        Self::Noise(String::new())
    }
}

/// The far end's line, or what was received instead.
pub(crate) fn read_answer<T: DeserializeOwned>(stdout: &mut impl BufRead) -> Result<T, NoAnswer> {
    let mut noise = String::new();
    let mut lines = stdout.take(MOST);
    loop {
        let mut line = Vec::new();
        match lines.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return Err(NoAnswer::Noise(noise)),
            Ok(_) => {}
        }
        let line = String::from_utf8_lossy(&line);
        if let Some(json) = line.strip_prefix(MAGIC) {
            return serde_json::from_str(json).map_err(|e| NoAnswer::Noise(format!("{e}: {json}")));
        }
        if let Some((version, _)) = line.strip_prefix(WORD).and_then(|l| l.split_once(' ')) {
            return Err(NoAnswer::Version(version.chars().take(20).collect()));
        }
        noise += &line;
    }
}

/// Faults of the near end's line.
#[derive(Debug)]
pub(crate) enum Misheard {
    /// The line could not be read.
    Unread(io::Error),
    /// The line is of another version, or of another program.
    Foreign,
    /// The line is not valid in this version.
    Odd(serde_json::Error),
}

/// The near end's line.
pub(crate) fn read_ask<T: DeserializeOwned>(stdin: &mut impl BufRead) -> Result<T, Misheard> {
    let mut line = String::new();
    let read = stdin.take(MOST).read_line(&mut line);
    read.map_err(Misheard::Unread)?;
    let json = line.strip_prefix(MAGIC).ok_or(Misheard::Foreign)?;
    serde_json::from_str(json).map_err(Misheard::Odd)
}

/// The next report of the sending host; none at its end. Lines of kinds that are not known are skipped.
pub(crate) fn read_report(stdout: &mut impl BufRead) -> io::Result<Option<Report>> {
    loop {
        match stdout.fill_buf()?.first() {
            None => return Ok(None),
            Some(&CHUNK) => return read_chunk(stdout).map(|bytes| Some(Report::Chunk(bytes))),
            Some(_) => {}
        }
        let mut line = Vec::new();
        stdout.take(MOST).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Err(if line.len() as u64 == MOST {
                io::ErrorKind::InvalidData.into()
            } else {
                io::ErrorKind::UnexpectedEof.into()
            });
        }
        if let Ok(said) = serde_json::from_slice(&line) {
            return Ok(Some(Report::Said(said)));
        }
    }
}

fn read_chunk(stdout: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut head = [0; 5];
    stdout.read_exact(&mut head)?;
    let [_, len @ ..] = head;
    let len = usize::try_from(u32::from_be_bytes(len)).unwrap_or(usize::MAX);
    if len > MOST_OF_CHUNK {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; len];
    stdout.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_line_by_line_and_bounded() {
        let end = Said::End {
            code: 5,
            text: "a\nb".into(),
        };
        let line = serde_json::to_string(&end).unwrap();
        let said = format!("no JSON\n{{\"newer\":1}}\n{line}\n");
        let chunk = b"\0\0\0\0\x03\n{}";
        let said = [said.as_bytes(), chunk, line.as_bytes(), b"\n"].concat();
        let mut said = &said[..];
        let mut next = || read_report(&mut said).unwrap();
        assert_eq!(next(), Some(Report::Said(end.clone())));
        assert_eq!(next(), Some(Report::Chunk(b"\n{}".to_vec())));
        assert_eq!(next(), Some(Report::Said(end)));
        assert_eq!(next(), None);
        for bad in [
            line.as_bytes(),
            b"\0\0\0",
            b"\0\0\0\0\x03\n{",
            b"\0\xff\0\0\0x",
        ] {
            assert!(read_report(&mut &*bad).is_err(), "{bad:?}");
        }
        let endless = vec![b'x'; 1 << 20];
        assert!(read_report(&mut &endless[..]).is_err());
    }

    #[test]
    fn paths_survive_as_hex() {
        let odd = b"a/\xff\n'b";
        assert_eq!(from_hex(&to_hex(odd)).as_deref(), Some(&odd[..]));
        for bad in ["0", "zz", "0\u{e9}", "+5", "-0"] {
            assert_eq!(from_hex(bad), None, "{bad}");
        }
    }

    #[test]
    fn members_of_other_releases_are_skipped_and_missing_ones_done_without() {
        let newer = r#"{"key":"k","put":true,"paths":[],"release":"9.9.9","shapes":[{"a":[1]}]}"#;
        let ask: Ask = read_ask(&mut format!("{MAGIC}{newer}\n").as_bytes()).unwrap();
        assert_eq!((&ask.release[..], ask.ports), ("9.9.9", None));
        let older = r#"{"port":5,"key":"k","paths":["61"],"address":null,"refusal":null}"#;
        let answer: Answer = read_answer(&mut format!("{MAGIC}{older}\n").as_bytes()).unwrap();
        assert_eq!((&answer.release[..], answer.port), ("", 5));
        let newer = older.replace("null}", r#"null,"release":"9.9.9","lanes":{"n":4}}"#);
        let answer: Answer = read_answer(&mut format!("{MAGIC}{newer}\n").as_bytes()).unwrap();
        assert_eq!(answer.release, "9.9.9");
    }

    #[test]
    fn noise_is_skipped_and_bounded() {
        let answer = Answer {
            port: 5,
            ..Answer::default()
        };
        let json = serde_json::to_string(&answer).unwrap();
        let mut said = b"Welcome!\n\xff\n".to_vec();
        said.extend_from_slice(format!("{MAGIC}{json}\n").as_bytes());
        assert_eq!(read_answer::<Answer>(&mut &said[..]).unwrap().port, 5);
        let noise = |said: &[u8]| match read_answer::<Answer>(&mut &said[..]) {
            Err(NoAnswer::Noise(noise)) => noise,
            other => panic!("{other:?}"),
        };
        assert_eq!(noise(b"no farhaul\n"), "no farhaul\n");
        assert!(noise(&vec![b'x'; 1 << 20]).len() <= 64 << 10);
        assert!(read_answer::<Answer>(&mut format!("{MAGIC}{{}}\n").as_bytes()).is_err());
        let old = read_answer::<Answer>(&mut &b"hello\nfarhaul-ssh/1 {}\n"[..]).unwrap_err();
        assert_eq!(old, NoAnswer::Version("1".into()));
    }
}

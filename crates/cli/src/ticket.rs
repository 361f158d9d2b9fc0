//! Tickets: strings to be passed on that hold a server's address and key, a place in one of its
//! shares, and a secret. The secret proves that its holder may use the place. The server knows of
//! the secret only what can be known of a key pair by its public half.
//!
//! - `fh1` and letters that have a checksum; what was cut off is missed by its length.

use std::{fmt, path::Path};

use farhaul_haul::{PublicKey, letters};
use farhaul_transfer::client::Remote;

use crate::{
    exit::{Exit, Failure},
    place, read,
};

/// Beginning of tickets.
pub(crate) const PREFIX: &str = "fh1";
/// The first byte of this kind of ticket.
const KIND: u8 = 1;
/// Bytes before the texts: kind, length of all, keys, port.
const HEAD: usize = 1 + 2 + 32 + 32 + 2;

/// Right by which its holder is somebody to the server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Right {
    /// The server's key.
    pub(crate) server: PublicKey,
    /// Seed of the key pair that the holder proves to have.
    pub(crate) seed: [u8; 32],
}

impl fmt::Debug for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Right({})", self.server)
    }
}

/// A ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) remote: Remote,
    pub(crate) right: Right,
}

impl Ticket {
    /// Text of the ticket as it is passed on.
    pub(crate) fn text(&self) -> Result<String, Failure> {
        let texts = [
            self.host.as_bytes(),
            self.remote.share.as_bytes(),
            &self.remote.path,
        ];
        let len = HEAD + texts.iter().map(|t| 2 + t.len()).sum::<usize>();
        let long = |_| Failure::usage("the host, share and path are too long for a ticket");
        let mut bytes = vec![KIND];
        bytes.extend(u16::try_from(len).map_err(long)?.to_be_bytes());
        bytes.extend(self.right.server.as_bytes());
        bytes.extend(self.right.seed);
        bytes.extend(self.port.to_be_bytes());
        for text in texts {
            bytes.extend(u16::try_from(text.len()).map_err(long)?.to_be_bytes());
            bytes.extend(text);
        }
        Ok(format!("{PREFIX}{}", letters::encode(&bytes)))
    }

    /// Parses the text that was passed on.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let refused = |why: String| {
            Failure::new(Exit::Auth, format!("the ticket {why}"))
                .fix("paste it again, the whole of it")
        };
        let letters = text.trim().strip_prefix(PREFIX);
        let letters = letters.ok_or_else(|| refused(format!("does not begin with {PREFIX}")))?;
        // What its first letters say of its length is checked by nothing if the end is missing.
        if let Some(missing) = missing(letters) {
            let letters = if missing == 1 {
                "letter is"
            } else {
                "letters are"
            };
            return Err(refused(format!("is cut off: {missing} {letters} missing")));
        }
        let bytes = letters::decode(letters).map_err(|e| {
            refused(match e {
                letters::LettersError::Form => {
                    "has characters that no ticket has, or too many or too few of them".into()
                }
                letters::LettersError::Checksum => {
                    "is mistyped: its checksum does not match".into()
                }
            })
        })?;
        Self::decode(&bytes).ok_or_else(|| {
            let why = "is of a kind that this version of farhaul does not know";
            Failure::new(Exit::Auth, format!("the ticket {why}"))
                .fix("install the server's version")
        })
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, mut rest) = bytes.split_at_checked(HEAD)?;
        let take = |from: usize, to: usize| head.get(from..to);
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u16::from_be_bytes);
        if head[0] != KIND || usize::from(number(take(1, 3)?)?) > bytes.len() {
            return None;
        }
        let mut text = || {
            let (len, more) = rest.split_at_checked(2)?;
            let (text, more) = more.split_at_checked(number(len)?.into())?;
            rest = more;
            Some(text)
        };
        let (host, share, path) = (text()?, text()?, text()?);
        let place = format!(
            "{}::{}",
            in_brackets(str::from_utf8(host).ok()?),
            str::from_utf8(share).ok()?
        );
        // What the texts may be is what could have been typed.
        let place::Place::Far(far) = place::parse(place.as_ref()).ok()? else {
            return None;
        };
        Some(Self {
            host: far.server.host,
            port: number(take(67, 69)?)?,
            remote: Remote {
                share: far.remote.share,
                path: path.to_vec(),
            },
            right: Right {
                server: PublicKey::from_bytes(take(3, 35)?.try_into().ok()?),
                seed: take(35, 67)?.try_into().ok()?,
            },
        })
    }
}

fn in_brackets(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.into()
    }
}

/// Number of letters missing at the end, if any are; none if it cannot be known.
fn missing(letters: &str) -> Option<usize> {
    // The first five letters have the kind and the length.
    let first = letters::leading(letters.get(..8)?)?;
    let [KIND, a, b, ..] = first else {
        return None;
    };
    let whole = letters::length(u16::from_be_bytes([a, b]).into());
    whole.checked_sub(letters.len()).filter(|n| *n > 0)
}

/// The ticket in a file.
pub(crate) fn from_file(path: &Path) -> Result<Ticket, Failure> {
    let text = read::settings(path)
        .map_err(|e| Failure::usage(format!("--ticket-file {}: {e}", path.display())))?;
    Ticket::parse(&text)
}

#[cfg(test)]
mod tests {
    use farhaul_haul::Identity;
    use proptest::prelude::*;

    use super::*;

    fn ticket(path: &str) -> Ticket {
        Ticket {
            host: "far.example.org".into(),
            port: 17_992,
            remote: Remote {
                share: "in".into(),
                path: path.into(),
            },
            right: Right {
                server: Identity::from_seed(&[7; 32]).unwrap().public(),
                seed: [9; 32],
            },
        }
    }

    #[test]
    fn a_ticket_survives_being_passed_on_and_what_is_missing_is_counted() {
        for path in ["", "a", "run 7/x", "ab", "abc", "abcd"] {
            let ticket = ticket(path);
            let text = ticket.text().unwrap();
            assert_eq!(Ticket::parse(&format!(" {text}\n")).unwrap(), ticket);
            for cut in PREFIX.len() + 8..text.len() {
                let why = Ticket::parse(&text[..cut]).unwrap_err();
                assert_eq!(why.exit, Exit::Auth);
                let expected = match text.len() - cut {
                    1 => "cut off: 1 letter is missing".to_string(),
                    n => format!("cut off: {n} letters are missing"),
                };
                assert!(why.text.contains(&expected), "{why}");
            }
            let wrong = text.replacen('9', "8", 1);
            if wrong != text {
                assert!(Ticket::parse(&wrong).is_err());
            }
        }
        let shown = format!("{:?}", ticket(""));
        assert!(!shown.contains("9, 9"), "no secret: {shown}");
    }

    #[test]
    fn one_letter_wrong_is_told_from_one_that_is_missing() {
        let text = ticket("x").text().unwrap();
        let at = text.len() - 20;
        let other = if text.as_bytes()[at] == b'3' {
            "4"
        } else {
            "3"
        };
        let typed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
        let why = Ticket::parse(&typed).unwrap_err();
        assert!(why.text.contains("mistyped"), "{why}");
        assert!(Ticket::parse("fh1").is_err() && Ticket::parse("fh2abc").is_err());
    }

    proptest! {
        #[test]
        fn any_text_never_panics(text in any::<String>(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _refused = Ticket::parse(&text);
            let _refused = Ticket::parse(&format!("{PREFIX}{}", letters::encode(&bytes)));
            let bytes = [&[KIND, 0, 0][..], &bytes].concat();
            let _refused = Ticket::parse(&format!("{PREFIX}{}", letters::encode(&bytes)));
        }
    }
}

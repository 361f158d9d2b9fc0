//! Identities: an ed25519 key pair, kept as its 32-byte seed. The public half is shown as `fh-pub1`
//! and 56 letters: 32 key bytes and a 24-bit checksum in base32, without the letters that look
//! alike.

use std::{fmt, str::FromStr, sync::Arc};

use rustls::{
    Error,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    sign::SigningKey,
};

use crate::{
    crypto::tls,
    letters::{self, LettersError},
};

/// DER of an `AlgorithmIdentifier` for ed25519 in a `SubjectPublicKeyInfo`, up to the key.
const SPKI: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];
/// DER of a PKCS#8 version 1 ed25519 key, up to the seed (RFC 8410 §7).
const PKCS8: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
const PREFIX: &str = "fh-pub1";

/// Reason to refuse a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The bytes are neither 32 seed bytes nor an ed25519 PKCS#8 document.
    #[error("not an ed25519 seed (32 bytes) or PKCS#8 key")]
    Seed,
    /// The text is not of the form `fh-pub1` and 56 letters.
    #[error("not a public key: it should be fh-pub1 and 56 letters and digits")]
    Form,
    /// Mistyped.
    #[error("the public key is mistyped: its checksum does not match")]
    Checksum,
    /// The system has no randomness, or the provider refused the key.
    #[error("the cryptographic provider failed")]
    Provider,
}

/// An ed25519 public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// The key with these 32 bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key with these 32 bytes, if there are as many.
    pub(crate) fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The 32 bytes of the key.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Message for a key that nobody accepts.
    pub(crate) fn not_accepted(self) -> String {
        format!("the peer's key {self} is not one of those accepted")
    }

    pub(crate) fn to_spki(self) -> Vec<u8> {
        [&SPKI[..], &self.0].concat()
    }

    pub(crate) fn from_spki(spki: &[u8]) -> Option<Self> {
        let key = spki.strip_prefix(&SPKI)?;
        Some(Self(key.try_into().ok()?))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", letters::encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let body = text.trim().strip_prefix(PREFIX).ok_or(KeyError::Form)?;
        if body.len() != 56 {
            return Err(KeyError::Form);
        }
        let bytes = letters::decode(body).map_err(|e| match e {
            LettersError::Form => KeyError::Form,
            LettersError::Checksum => KeyError::Checksum,
        })?;
        let key = bytes.first_chunk::<32>().ok_or(KeyError::Form)?;
        Ok(Self(*key))
    }
}

/// An ed25519 key pair.
#[derive(Clone)]
pub struct Identity {
    seed: [u8; 32],
    public: PublicKey,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.public)
    }
}

impl Identity {
    /// A new one, from the system's randomness.
    pub fn generate() -> Result<Self, KeyError> {
        let mut seed = [0; 32];
        tls::provider()
            .secure_random
            .fill(&mut seed)
            .map_err(|_| KeyError::Provider)?;
        Self::from_seed(&seed)
    }

    /// The identity of its seed, or of a PKCS#8 (version 1 or 2) document that contains it.
    pub fn from_seed(bytes: &[u8]) -> Result<Self, KeyError> {
        let seed = if bytes.len() == 32 {
            bytes
        } else {
            let version_one = bytes.strip_prefix(&PKCS8);
            version_one
                .or_else(|| pkcs8_seed(bytes))
                .ok_or(KeyError::Seed)?
        };
        let seed: [u8; 32] = seed.try_into().map_err(|_| KeyError::Seed)?;
        let spki = load(&seed)
            .ok()
            .and_then(|key| key.public_key().map(|spki| spki.to_vec()))
            .ok_or(KeyError::Provider)?;
        let public = PublicKey::from_spki(&spki).ok_or(KeyError::Provider)?;
        Ok(Self { seed, public })
    }

    /// The secret half, which authenticates as this identity.
    pub const fn seed(&self) -> &[u8; 32] {
        &self.seed
    }

    /// The public half.
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    pub(crate) fn signer(&self) -> Result<Arc<dyn SigningKey>, Error> {
        load(&self.seed)
    }
}

/// The seed inside a version 2 document, whose outer length and version differ.
fn pkcs8_seed(bytes: &[u8]) -> Option<&[u8]> {
    let inner = PKCS8.get(5..)?;
    bytes.get(5..)?.strip_prefix(inner)?.get(..32)
}

fn load(seed: &[u8; 32]) -> Result<Arc<dyn SigningKey>, Error> {
    let document = [&PKCS8[..], seed].concat();
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(document));
    tls::provider().key_provider.load_private_key(der)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 8032 §7.1, test 1.
    const SEED: [u8; 32] = [
        0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c,
        0xc4, 0x44, 0x49, 0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae,
        0x7f, 0x60,
    ];

    #[test]
    fn the_public_half_is_that_of_the_standard() {
        let identity = Identity::from_seed(&SEED).unwrap();
        let public = identity.public();
        assert_eq!(public.as_bytes()[..4], [0xd7, 0x5a, 0x98, 0x01]);
        let document = [&PKCS8[..], &SEED].concat();
        assert_eq!(Identity::from_seed(&document).unwrap().public(), public);
        let mut second = document;
        (second[1], second[4]) = (0x51, 0x01);
        second.extend([0x81, 0x21, 0x00]);
        second.extend(public.as_bytes());
        assert_eq!(Identity::from_seed(&second).unwrap().public(), public);
        assert_eq!(Identity::from_seed(&[1; 31]).unwrap_err(), KeyError::Seed);
    }

    #[test]
    fn public_keys_survive_being_typed() {
        let key = Identity::from_seed(&SEED).unwrap().public();
        let text = key.to_string();
        assert_eq!(text.len(), 63);
        assert_eq!(text.parse(), Ok(key));
        assert_eq!(
            text.replacen("fh-pub1", "fh-pub2", 1).parse::<PublicKey>(),
            Err(KeyError::Form)
        );
        assert_eq!(text[..62].parse::<PublicKey>(), Err(KeyError::Form));
        for i in PREFIX.len()..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[i] = if bytes[i] == b'7' { b'8' } else { b'7' };
            let typed = String::from_utf8(bytes).unwrap();
            assert_eq!(typed.parse::<PublicKey>(), Err(KeyError::Checksum), "{i}");
        }
    }

    #[test]
    fn new_identities_differ() {
        let (a, b) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        assert_ne!(a.public(), b.public());
    }

    /// Text that is nearly a key: the prefix, then about as many letters as there should be.
    fn nearly_a_key() -> impl Strategy<Value = String> {
        let letter = prop_oneof![
            9 => prop::sample::select("0123456789abcdefghjkmnpqrstvwxyz".chars().collect::<Vec<_>>()),
            1 => any::<char>(),
        ];
        let body = proptest::collection::vec(letter, 54..59);
        body.prop_map(|letters| PREFIX.chars().chain(letters).collect())
    }

    proptest! {
        #[test]
        fn any_text_never_panics(text in prop_oneof![nearly_a_key(), any::<String>()]) {
            if let Ok(key) = text.parse::<PublicKey>() {
                prop_assert_eq!(key.to_string().parse(), Ok(key));
            }
        }

        #[test]
        fn any_key_survives_being_typed(bytes: [u8; 32], capitals: bool, at: usize, other: char) {
            let key = PublicKey::from_bytes(bytes);
            let shown = key.to_string();
            let (_, body) = shown.split_at(PREFIX.len());
            let typed = if capitals { body.to_uppercase() } else { body.to_string() };
            prop_assert_eq!(format!(" {PREFIX}{typed}\n").parse(), Ok(key));
            // One letter wrong is never another key.
            let at = at % body.len();
            let wrong = format!("{PREFIX}{}{other}{}", &body[..at], &body[at + 1..]);
            if wrong.to_lowercase() != shown {
                prop_assert!(wrong.parse::<PublicKey>().is_err());
            }
        }
    }
}

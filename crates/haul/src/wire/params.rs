//! Parameters that each side declares inside the handshake, authenticated: limits, and the
//! connection ids it uses. Fields are numbered, each with its length; unknown ones are skipped.

use std::time::Duration;

use farhaul_core::codec::{DecodeError, Reader, Writer};

const MAX_DATAGRAM: u64 = 1;
const IDLE: u64 = 2;
const IDS: u64 = 3;
const LAW: u64 = 4;
const APP: u64 = 5;
const VERSIONS: u64 = 6;
const TUNNEL: u64 = 7;
/// The most bytes of a law's name.
pub const MAX_NAME: usize = 32;
/// The most bytes that an application declares.
pub const MAX_APP: usize = 64;
/// The most versions that a side declares.
pub const MAX_VERSIONS: usize = 16;

/// One side's declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Largest UDP payload that the side takes.
    pub max_datagram: u32,
    /// Idle timeout.
    pub idle: Duration,
    /// Connection ids of server and client.
    pub ids: (u32, u32),
    /// The receiving half that its congestion law wants at the other side; at most [`MAX_NAME`] bytes.
    pub law: Option<String>,
    /// Declaration of the application; at most [`MAX_APP`] bytes, empty for nothing.
    pub app: Vec<u8>,
    /// Versions that the side supports, the preferred one first; at most [`MAX_VERSIONS`]. Empty:
    /// the one in use.
    pub versions: Vec<u32>,
    /// True if a byte stream, which controls congestion itself, carries its datagrams.
    pub tunnel: bool,
}

impl Params {
    /// Encodes the parameters.
    ///
    /// # Panics
    /// Never: the fields have fixed sizes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = [0; 256];
        let mut w = Writer::new(&mut bytes);
        let idle = u64::try_from(self.idle.as_millis()).unwrap_or(u64::MAX);
        let written = w
            .varint(MAX_DATAGRAM)
            .and_then(|()| w.prefixed(&self.max_datagram.to_be_bytes()))
            .and_then(|()| w.varint(IDLE))
            .and_then(|()| w.prefixed(&idle.to_be_bytes()))
            .and_then(|()| w.varint(IDS))
            .and_then(|()| w.varint(8))
            .and_then(|()| w.u32(self.ids.0))
            .and_then(|()| w.u32(self.ids.1));
        let written = written.and_then(|()| match &self.law {
            None => Ok(()),
            Some(law) => {
                w.varint(LAW)?;
                w.prefixed(&law.as_bytes()[..law.len().min(MAX_NAME)])
            }
        });
        let written = written.and_then(|()| {
            if self.app.is_empty() {
                return Ok(());
            }
            w.varint(APP)?;
            w.prefixed(&self.app[..self.app.len().min(MAX_APP)])
        });
        let written = written.and_then(|()| {
            let versions = &self.versions[..self.versions.len().min(MAX_VERSIONS)];
            if versions.is_empty() {
                return Ok(());
            }
            w.varint(VERSIONS)?;
            w.varint(4 * versions.len() as u64)?;
            versions.iter().try_for_each(|version| w.u32(*version))
        });
        let written = written.and_then(|()| {
            if !self.tunnel {
                return Ok(());
            }
            w.varint(TUNNEL)?;
            w.varint(0)
        });
        written.expect("29 bytes, a name, what an application declares and 16 versions fit in 256");
        let n = w.len();
        bytes[..n].to_vec()
    }

    /// Decodes parameters; every field must be there once.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        const MISSING: DecodeError = DecodeError::Malformed("parameters");
        let (mut max_datagram, mut idle, mut ids) = (None, None, None);
        let (mut law, mut app, mut versions, mut tunnel) = (None, None, None, None);
        let mut r = Reader::new(bytes);
        while !r.is_empty() {
            let id = r.varint()?;
            let mut field = Reader::new(r.prefixed()?);
            let first = match id {
                MAX_DATAGRAM => max_datagram.replace(field.u32()?).is_none(),
                IDLE => idle.replace(field.u64()?).is_none(),
                IDS => ids.replace((field.u32()?, field.u32()?)).is_none(),
                LAW => law.replace(name(&mut field).ok_or(MISSING)?).is_none(),
                APP => app.replace(declared(&mut field).ok_or(MISSING)?).is_none(),
                VERSIONS => versions.replace(list(&mut field)?).is_none(),
                TUNNEL => tunnel.replace(()).is_none(),
                _ => continue,
            };
            if !first || !field.is_empty() {
                return Err(MISSING);
            }
        }
        Ok(Self {
            max_datagram: max_datagram.ok_or(MISSING)?,
            idle: Duration::from_millis(idle.ok_or(MISSING)?),
            ids: ids.ok_or(MISSING)?,
            law,
            app: app.unwrap_or_default(),
            versions: versions.unwrap_or_default(),
            tunnel: tunnel.is_some(),
        })
    }
}

fn name(field: &mut Reader<'_>) -> Option<String> {
    let bytes = field.take(field.rest().len()).ok()?;
    let text = std::str::from_utf8(bytes).ok()?;
    (bytes.len() <= MAX_NAME).then(|| text.to_owned())
}

fn declared(field: &mut Reader<'_>) -> Option<Vec<u8>> {
    let bytes = field.take(field.rest().len()).ok()?;
    (1..=MAX_APP).contains(&bytes.len()).then(|| bytes.to_vec())
}

fn list(field: &mut Reader<'_>) -> Result<Vec<u32>, DecodeError> {
    let count = field.rest().len() / 4;
    if !(1..=MAX_VERSIONS).contains(&count) {
        return Err(DecodeError::Malformed("versions"));
    }
    (0..count).map(|_| field.u32()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parameters_survive(
            max_datagram: u32, idle in 0_u64..1 << 40, ids: (u32, u32),
            law in proptest::option::of("[a-z]{1,32}"),
            app in proptest::collection::vec(any::<u8>(), 0..=MAX_APP),
            versions in proptest::collection::vec(any::<u32>(), 0..=MAX_VERSIONS),
            tunnel in any::<bool>(),
        ) {
            let params = Params { max_datagram, idle: Duration::from_millis(idle), ids, law, app, versions, tunnel };
            prop_assert_eq!(Params::decode(&params.encode()), Ok(params));
        }

        #[test]
        fn any_bytes_never_panic(data in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Params::decode(&data);
        }
    }
}

//! Authenticates and keys both sides with TLS 1.3 as QUIC uses it (RFC 9001). Both sides have
//! ed25519 raw public keys (RFC 7250) and nothing else: no certificates, names, tickets or early
//! data. Key exchange is hybrid post-quantum where the provider has it.

use std::{io, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    ServerConfig, SignatureScheme,
    client::{
        AlwaysResolvesClientRawPublicKeys, Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{
        CryptoProvider, SupportedKxGroup, WebPkiSupportedAlgorithms,
        verify_tls13_signature_with_raw_key,
    },
    pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime},
    quic::{self, Connection, KeyChange, Keys, PacketKey, Version},
    server::{
        AlwaysResolvesServerRawPublicKeys,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};

use super::{Change, Crypto, Key, KeyPair, Ratchet, Refusal, Side, Suite, cipher};
use crate::{
    config::PeerPolicy,
    identity::{Identity, PublicKey},
};

#[cfg(feature = "aws-lc-rs")]
use rustls::crypto::aws_lc_rs as backend;
#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
use rustls::crypto::ring as backend;

const ALPN: &[u8] = b"farhaul/1";

/// The provider that the crate was built with, ciphers as this machine likes them.
pub(crate) fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: cipher::suites(),
        kx_groups: groups(),
        ..backend::default_provider()
    }
}

#[cfg(feature = "aws-lc-rs")]
fn groups() -> Vec<&'static dyn SupportedKxGroup> {
    use backend::kx_group;
    vec![kx_group::X25519MLKEM768, kx_group::X25519]
}

#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
fn groups() -> Vec<&'static dyn SupportedKxGroup> {
    vec![backend::kx_group::X25519]
}

/// The sealed suite.
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    provider: Arc<CryptoProvider>,
    /// The client's and the server's.
    initial: [Arc<KeyPair>; 2],
}

impl Tls {
    /// Both roles for `identity`, accepting the peers of `policy`.
    pub(crate) fn new(identity: &Identity, policy: &PeerPolicy) -> Result<Self, Error> {
        let provider = Arc::new(provider());
        let spki = CertificateDer::from(identity.public().to_spki());
        let key = Arc::new(CertifiedKey::new(vec![spki], identity.signer()?));
        let verifier = Arc::new(Verifier {
            policy: policy.clone(),
            algorithms: provider.signature_verification_algorithms,
        });
        let versions = &[&rustls::version::TLS13];
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::<Verifier>::clone(&verifier))
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                Arc::clone(&key),
            )));
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.enable_sni = false;
        client.resumption = Resumption::disabled();
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
        server.alpn_protocols = vec![ALPN.to_vec()];
        server.send_tls13_tickets = 0;
        // A client's order stands unless AES would cost this side dearly.
        server.ignore_client_order = !cipher::aes_hardware();
        Ok(Self {
            client: Arc::new(client),
            server: Arc::new(server),
            provider,
            initial: [Side::Client, Side::Server].map(|side| Arc::new(initial_keys(side))),
        })
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        let identity = Identity::from_seed(&[7; 32]).expect("a seed of the right length");
        Self::new(&identity, &PeerPolicy::Any).expect("a valid identity")
    }
}

/// Keys of a secret, always AES-128-GCM as in QUIC.
fn derive(secret: &[u8], side: Side) -> Keys {
    let suite = cipher::aes128().tls13().expect("the suite is of TLS 1.3");
    let algorithm = suite.quic.expect("the suite is one of QUIC's");
    let side = match side {
        Side::Client => rustls::Side::Client,
        Side::Server => rustls::Side::Server,
    };
    Keys::initial(Version::V1, suite, algorithm, secret, side)
}

impl From<Keys> for KeyPair {
    fn from(keys: Keys) -> Self {
        Self {
            local: Key::Tls(keys.local.packet),
            remote: Key::Tls(keys.remote.packet),
        }
    }
}

/// The keys of initial packets: those of the example of RFC 9001 (appendix A.1). QUIC derives them
/// anew for each connection, which everybody can do as well. The derivation costs a server more
/// than all else that it does for a hello.
pub fn initial_keys(side: Side) -> KeyPair {
    derive(b"\x83\x94\xc8\xf0\x3e\x51\x57\x08", side).into()
}

impl Suite for Tls {
    fn initial(&self, side: Side) -> Arc<KeyPair> {
        let [client, server] = &self.initial;
        Arc::clone(if side == Side::Client { client } else { server })
    }

    fn vault(&self) -> Key {
        let mut secret = [0; 32];
        self.provider
            .secure_random
            .fill(&mut secret)
            .expect("the system has randomness");
        let key: Box<dyn PacketKey> = derive(&secret, Side::Server).local.packet;
        // The same key must open what it sealed: AEAD keys have no direction.
        Key::Tls(key)
    }

    fn start(&self, side: Side, params: Vec<u8>) -> Result<Box<dyn Crypto>, Refusal> {
        let connection = match side {
            Side::Client => {
                let name = ServerName::try_from("farhaul").expect("a valid name");
                let config = Arc::clone(&self.client);
                quic::ClientConnection::new(config, Version::V1, name, params)
                    .map(Connection::Client)
            }
            Side::Server => {
                quic::ServerConnection::new(Arc::clone(&self.server), Version::V1, params)
                    .map(Connection::Server)
            }
        };
        let connection = connection.map_err(|e| Refusal::Protocol(e.to_string()))?;
        Ok(Box::new(TlsHandshake { connection }))
    }
}

struct TlsHandshake {
    connection: Connection,
}

impl Crypto for TlsHandshake {
    fn read(&mut self, messages: &[u8]) -> Result<(), Refusal> {
        self.connection.read_hs(messages).map_err(|e| match e {
            Error::InvalidCertificate(CertificateError::Other(why)) => {
                Refusal::Auth(why.to_string())
            }
            Error::InvalidCertificate(_) | Error::NoCertificatesPresented => {
                Refusal::Auth(e.to_string())
            }
            _ => Refusal::Protocol(e.to_string()),
        })
    }

    fn write(&mut self, messages: &mut Vec<u8>) -> Option<Change> {
        match self.connection.write_hs(messages)? {
            KeyChange::Handshake { keys } => Some(Change::Handshake(keys.into())),
            KeyChange::OneRtt { keys, next } => {
                Some(Change::Sealed(keys.into(), Ratchet::Tls(Box::new(next))))
            }
        }
    }

    fn is_done(&self) -> bool {
        !self.connection.is_handshaking()
    }

    fn peer_key(&self) -> Option<Vec<u8>> {
        let spki = self.connection.peer_certificates()?.first()?;
        PublicKey::from_spki(spki).map(|key| key.as_bytes().to_vec())
    }

    fn peer_params(&self) -> Option<&[u8]> {
        self.connection.quic_transport_parameters()
    }
}

#[derive(Debug)]
struct Verifier {
    policy: PeerPolicy,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn check(&self, end_entity: &CertificateDer<'_>) -> Result<(), Error> {
        let key = PublicKey::from_spki(end_entity).ok_or(CertificateError::BadEncoding)?;
        if self.policy.accepts(&key) {
            Ok(())
        } else {
            let why = io::Error::other(key.not_accepted());
            Err(CertificateError::Other(OtherError(Arc::new(why))).into())
        }
    }

    fn signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let spki = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &spki, signature, &self.algorithms)
    }
}

const NO_TLS12: Error = Error::PeerIncompatible(rustls::PeerIncompatible::Tls13RequiredForQuic);

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity)
            .map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(NO_TLS12)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity)
            .map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(NO_TLS12)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

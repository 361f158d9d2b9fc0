//! Two handshakes against each other, without sessions.

use super::*;
use crate::{
    config::PeerPolicy,
    crypto::{plain::Plain, tls::Tls},
    identity::Identity,
    wire::VERSIONS,
};

const NOW: Instant = Instant::EPOCH;

fn limits() -> Params {
    Params {
        max_datagram: 9_216,
        idle: Duration::from_secs(30),
        ids: (0, 0),
        law: None,
        app: Vec::new(),
        versions: VERSIONS.to_vec(),
        tunnel: false,
    }
}

fn suite(seed: u8, plain: bool, peers: PeerPolicy) -> Arc<dyn Suite> {
    let identity = Identity::from_seed(&[seed; 32]).unwrap();
    if plain {
        Arc::new(Plain::new(identity.public(), peers))
    } else {
        Arc::new(Tls::new(&identity, &peers).unwrap())
    }
}

fn client(suite: Arc<dyn Suite>) -> Handshake {
    let ids = Ids {
        local: 10,
        remote: 30,
    };
    let mut client = Handshake::client(suite, ids, limits(), NOW);
    client.open().unwrap();
    client
}

/// A retry as the listener would write it.
fn retry(suite: &dyn Suite, client: u32, server: u32) -> Vec<u8> {
    let mut bytes = vec![0; 200];
    let mut w = Writer::new(&mut bytes);
    let head = Head {
        version: VERSION,
        to: client,
        from: server,
    };
    let kind = Kind::Retry {
        attempt: 0,
        token: &[5; 54],
    };
    long::encode(&mut w, head, &kind).unwrap();
    let n = w.len();
    bytes.truncate(n + TAG);
    suite.initial(Side::Server).local.seal(0, &mut bytes, n);
    bytes
}

fn flight(h: &mut Handshake) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| h.poll(NOW).map(<[u8]>::to_vec)).collect()
}

type Sizes = Vec<Vec<usize>>;

/// Runs a handshake; the sizes of its flights, and both sides.
fn run(plain: bool) -> (Sizes, Handshake, Handshake) {
    let (a, b) = (
        suite(1, plain, PeerPolicy::Any),
        suite(2, plain, PeerPolicy::Any),
    );
    let mut client = client(a);
    let mut sizes = vec![flight(&mut client)];
    let mut retry = retry(&*b, 10, 20);
    assert_eq!(client.on_datagram(NOW, &mut retry), Ok(Progress::Drained));
    let ids = Ids {
        local: 20,
        remote: 10,
    };
    let validation = AddressValidation::Token(Duration::ZERO);
    let mut server = Handshake::server(b, (VERSION, ids), limits(), NOW, validation).unwrap();
    for turn in 0..3 {
        let (from, to) = if turn % 2 == 0 {
            (&mut client, &mut server)
        } else {
            (&mut server, &mut client)
        };
        let datagrams = flight(from);
        for datagram in &datagrams {
            to.on_datagram(NOW, &mut datagram.clone()).unwrap();
        }
        sizes.push(datagrams);
    }
    let sizes = sizes
        .into_iter()
        .map(|f| f.iter().map(Vec::len).collect())
        .collect();
    (sizes, client, server)
}

/// Results of both sides of a sealed handshake.
pub(crate) fn agree() -> (Agreed, Agreed) {
    let (_, mut client, mut server) = run(false);
    let agreed = |h: &mut Handshake| h.agreed().unwrap().unwrap();
    (agreed(&mut client), agreed(&mut server))
}

#[test]
fn both_sides_agree_on_keys_and_know_each_other() {
    let (_, mut client, mut server) = run(false);
    let c = client.agreed().unwrap().unwrap();
    let s = server.agreed().unwrap().unwrap();
    let key = |seed| {
        let identity = Identity::from_seed(&[seed; 32]).unwrap();
        Some(identity.public().as_bytes().to_vec())
    };
    assert_eq!((c.peer_key, s.peer_key), (key(2), key(1)));
    let mut datagram = [7; 40];
    c.keys.local.seal(3, &mut datagram, 9);
    assert_eq!(s.keys.remote.open(3, &mut datagram, 9), Some(24));
    assert_eq!(datagram[..24], [7; 24]);
    let mut datagram = [7; 40];
    let (mut cr, mut sr) = (c.ratchet, s.ratchet);
    sr.next().local.seal(4, &mut datagram, 9);
    assert_eq!(cr.next().remote.open(4, &mut datagram, 9), Some(24));
    assert!(client.agreed().unwrap().is_none(), "given once");
}

#[cfg(feature = "aws-lc-rs")]
#[test]
fn the_plain_twin_has_the_same_flights() {
    let (sealed, ..) = run(false);
    let (plain, mut client, mut server) = run(true);
    assert_eq!(plain, sealed);
    assert!(client.agreed().unwrap().is_some());
    assert!(server.agreed().unwrap().is_some());
}

#[test]
fn versions_are_accepted_only_when_ours_is_not_among_them() {
    let mut client = client(suite(1, true, PeerPolicy::Any));
    let mut answer = |list: &[u8]| {
        let mut bytes = [0; 40];
        let mut w = Writer::new(&mut bytes);
        let head = Head {
            version: 0,
            to: 10,
            from: 1,
        };
        long::encode(&mut w, head, &Kind::Versions { list }).unwrap();
        let n = w.len();
        client.on_datagram(NOW, &mut bytes[..n]).unwrap()
    };
    assert_eq!(answer(&VERSION.to_be_bytes()), Progress::Ignored);
    assert_eq!(answer(&[]), Progress::Ignored);
    assert!(matches!(answer(&[0, 0, 0, 9]), Progress::Version(_)));
}

#[test]
fn a_token_is_taken_once_and_again_when_it_is_not_answered() {
    let b = suite(2, true, PeerPolicy::Any);
    let mut client = client(suite(1, true, PeerPolicy::Any));
    flight(&mut client);
    let told = |client: &mut Handshake, server| {
        let mut retry = retry(&*b, 10, server);
        client.on_datagram(NOW, &mut retry).unwrap();
        client.ids().remote
    };
    assert_eq!(told(&mut client, 20), 20);
    flight(&mut client);
    assert_eq!(told(&mut client, 21), 20, "of a repeated first flight");
    client.on_timeout(NOW + Duration::from_secs(1));
    flight(&mut client);
    assert_eq!(told(&mut client, 22), 22, "the first one led to nothing");
}

#[test]
fn messages_beyond_the_bound_are_refused() {
    let mut inbox = Inbox::default();
    assert!(inbox.insert(MAX_MESSAGES - 1, &[1]).is_ok());
    assert!(inbox.insert(MAX_MESSAGES, &[1]).is_err());
    assert!(inbox.insert(u64::MAX, &[1]).is_err());
    assert!(inbox.ready().is_empty());
}

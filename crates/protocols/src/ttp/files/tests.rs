use std::time::Duration;

use farhaul_core::{codec::Writer, rng::Rng, time::Instant, units::Rate};
use proptest::prelude::*;

use super::*;
use crate::ttp::wire::{CHALLENGE, HEADER, Parameters, Request, SECRET, Verdict, put_directory};

const TIMEOUT: Duration = Duration::from_secs(15);
const STEP: Duration = Duration::from_micros(500);

struct Pair {
    now: Instant,
    server: FileServer,
    client: FileClient,
    rng: Rng,
    loss: f64,
    /// Bytes written, and those that the server has.
    got: Vec<u8>,
    file: Vec<u8>,
    port: Option<u16>,
    stopped: u32,
}

fn wanted(block_size: u32) -> Parameters {
    Parameters {
        block_size,
        rate: 100_000_000,
        ..Parameters::default()
    }
}

fn server(secret: &[u8]) -> FileServer {
    FileServer::new(secret, [7; CHALLENGE], (Rate::UNLIMITED, TIMEOUT), 1)
}

impl Pair {
    fn new(secret: &[u8], block: u32, loss: f64) -> Self {
        Self {
            now: Instant::EPOCH + TIMEOUT,
            server: server(SECRET),
            client: FileClient::new(secret, wanted(block), TIMEOUT),
            rng: Rng::new(3),
            loss,
            got: Vec::new(),
            file: Vec::new(),
            port: None,
            stopped: 0,
        }
    }

    /// Both talk until there is news, if there is any in the next minute.
    fn news(&mut self) -> Option<News> {
        let limit = self.now + Duration::from_mins(1);
        while self.now < limit {
            let mut words = Vec::new();
            self.server.poll_control(&mut words);
            let news = self.client.on_control(self.now, &words).unwrap();
            if news.is_some() {
                return news;
            }
            words.clear();
            self.client.poll_control(self.now, &mut words);
            self.serve(&words);
            self.blocks();
            self.now += STEP;
        }
        None
    }

    fn serve(&mut self, words: &[u8]) {
        let mut asked = self.server.on_control(self.now, words).unwrap();
        while let Some(question) = asked {
            match question {
                Asked::File(name) if name == b"f" => self.server.offer(self.file.len() as u64),
                Asked::File(_) => self.server.refuse(),
                Asked::Names => self.server.names([&b"f"[..], b"g"].into_iter()),
                Asked::Directory => self.server.directory(&[(b"f", 5), (b"g g", 0)]),
                Asked::Port(port) => self.port = Some(port),
                Asked::Stopped => self.stopped += 1,
                Asked::Denied => return,
            }
            asked = self.server.on_control(self.now, &[]).unwrap();
        }
    }

    fn blocks(&mut self) {
        while self.server.permit(self.now) {
            let Some((header, offset, len)) = self.server.next_block(self.now) else {
                return;
            };
            let mut datagram = vec![0xee; (HEADER + self.server.block()) as usize];
            header.encode(&mut Writer::new(&mut datagram)).unwrap();
            let (from, len) = (usize::try_from(offset).unwrap(), len as usize);
            datagram[HEADER as usize..][..len].copy_from_slice(&self.file[from..from + len]);
            if self.rng.chance(self.loss) {
                continue;
            }
            let mut place = Vec::new();
            self.client
                .on_datagram(self.now, &datagram, &mut place)
                .unwrap();
            for extent in place {
                let (at, end) = (usize::try_from(extent.offset).unwrap(), extent.end());
                let end = usize::try_from(end).unwrap();
                self.got.resize(self.got.len().max(end), 0);
                self.got[at..end].copy_from_slice(&datagram[extent.range()]);
            }
        }
    }

    fn fetch(&mut self, len: usize) {
        self.file = (0..len).map(|i| (i * 7 % 251).to_le_bytes()[0]).collect();
        self.got.clear();
        self.client.set_port(4_711);
        self.client.ask(Request::File(b"f"));
        assert_eq!(self.news(), Some(News::File(len as u64)));
        assert_eq!(self.news(), Some(News::Done), "{len}");
        assert_eq!(self.got, self.file);
        assert_eq!(self.port, Some(4_711));
    }
}

/// Read anew with each byte it would be 10^10 of them.
#[test]
fn a_long_list_comes_byte_by_byte() {
    const FILES: usize = 60_000;
    let mut pair = Pair::new(SECRET, 1_000, 0.0);
    assert_eq!(pair.news(), Some(News::Ready));
    pair.client.ask(Request::Directory);
    let mut list = Vec::new();
    put_directory(&mut list, &vec![(&b"a"[..], 7); FILES]);
    let (last, first) = list.split_last().unwrap();
    for byte in first {
        assert_eq!(pair.client.on_control(pair.now, &[*byte]), Ok(None));
    }
    let Ok(Some(News::Directory(files))) = pair.client.on_control(pair.now, &[*last]) else {
        panic!("a list");
    };
    assert_eq!((files.len(), &files[9]), (FILES, &(b"a".to_vec(), 7)));
}

#[test]
fn what_follows_a_list_is_refused() {
    let mut pair = Pair::new(SECRET, 1_000, 0.0);
    assert_eq!(pair.news(), Some(News::Ready));
    pair.client.ask(Request::Directory);
    assert!(pair.client.on_control(pair.now, b"0\0more").is_err());
}

#[test]
fn files_of_any_length_come_one_after_the_other() {
    for loss in [0.0, 0.1] {
        let mut pair = Pair::new(SECRET, 1_000, loss);
        assert_eq!(pair.news(), Some(News::Ready));
        for len in [1, 0, 1_000, 1_001, 500_000] {
            pair.fetch(len);
        }
        assert_eq!(pair.stopped, 5);
    }
}

#[test]
fn lists_and_refusals() {
    let mut pair = Pair::new(SECRET, 1_000, 0.0);
    assert_eq!(pair.news(), Some(News::Ready));
    pair.client.ask(Request::Names);
    let names = vec![b"f".to_vec(), b"g".to_vec()];
    assert_eq!(pair.news(), Some(News::Names(names)));
    pair.client.ask(Request::File(b"none"));
    assert_eq!(pair.news(), Some(News::Refused(Verdict::NotFound)));
    pair.client.ask(Request::Directory);
    let files = vec![(b"f".to_vec(), 5), (b"g g".to_vec(), 0)];
    assert_eq!(pair.news(), Some(News::Directory(files)));
    pair.fetch(10);
}

#[test]
fn the_first_request_leaves_with_the_answer_to_the_challenge() {
    let mut pair = Pair::new(SECRET, 1_000, 0.0);
    pair.client.ask(Request::File(b"f"));
    let (mut words, now) = (Vec::new(), pair.now);
    pair.client.poll_control(now, &mut words);
    assert_eq!(words.len(), 4, "the revision alone");
    words.clear();
    pair.server.poll_control(&mut words);
    pair.server
        .on_control(now, &words)
        .expect("its revision, said back");
    pair.server.poll_control(&mut words);
    assert_eq!(pair.client.on_control(now, &words), Ok(None));
    let mut answer = Vec::new();
    pair.client.poll_control(now, &mut answer);
    assert_eq!(answer.len(), 16 + 2);
    assert!(answer.ends_with(b"f\n"));
    // The verdict is one thing, and the answer to the request another.
    assert_eq!(pair.client.on_control(now, &[0, 0]), Ok(Some(News::Ready)));
    assert_eq!(pair.client.on_control(now, &[]), Ok(None));
    let mut wish = Vec::new();
    pair.client.poll_control(now, &mut wish);
    assert_eq!(wish.len(), crate::ttp::wire::PARAMETERS);
}

#[test]
fn who_does_not_know_the_secret_is_told() {
    let mut pair = Pair::new(b"dog", 1_000, 0.0);
    pair.client.ask(Request::File(b"f"));
    assert_eq!(pair.news(), Some(News::Refused(Verdict::Denied)));
    let more = pair.server.on_control(pair.now, b"f\n");
    assert_eq!(more, Ok(None), "nothing is served any more");
    assert!(pair.port.is_none() && pair.got.is_empty());
}

#[test]
fn a_client_that_says_no_more_is_given_up() {
    let mut pair = Pair::new(SECRET, 1_000, 1.0);
    assert_eq!(pair.news(), Some(News::Ready));
    pair.file = vec![0; 10_000];
    pair.client.ask(Request::File(b"f"));
    assert_eq!(pair.news(), Some(News::File(10_000)));
    assert_eq!(pair.news(), None);
    assert!(pair.server.is_abandoned(pair.now));
    assert!(pair.client.on_timer(pair.now).is_some());
}

#[test]
fn more_blocks_than_can_be_told_apart_are_refused() {
    let mut words = opening();
    words.extend(b"f\n");
    let mut server = server(SECRET);
    let now = Instant::EPOCH;
    assert_eq!(
        server.on_control(now, &words),
        Ok(Some(Asked::File(b"f".to_vec())))
    );
    server.offer(u64::MAX);
    let mut parameters = Vec::new();
    wanted(1_000).encode(&mut parameters);
    assert!(server.on_control(now, &parameters).is_err());
}

/// Bytes of a client until it may ask.
fn opening() -> Vec<u8> {
    let mut words = crate::ttp::wire::REVISION.to_be_bytes().to_vec();
    words.extend(crate::ttp::wire::answer(&[7; CHALLENGE], SECRET));
    words
}

proptest! {
    #[test]
    fn a_lying_peer_ends_in_an_error_or_waits(
        known in 0_usize..4,
        words in proptest::collection::vec(any::<u8>(), 0..200),
        datagram in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let now = Instant::EPOCH;
        let mut server = server(SECRET);
        let mut said = opening();
        said.extend(b"f\n");
        wanted(1_000).encode(&mut said);
        said.truncate([0, 4, 20, 42][known]);
        said.extend(&words);
        let mut rest = &said[..];
        while let Ok(Some(asked)) = server.on_control(now, rest) {
            rest = &[];
            match asked {
                Asked::File(_) => server.offer(words.len() as u64 * 977),
                Asked::Names => server.names([&b"f"[..]].into_iter()),
                Asked::Directory => server.directory(&[]),
                Asked::Port(_) => while server.permit(now) && server.next_block(now).is_some() {},
                Asked::Stopped | Asked::Denied => break,
            }
        }
        let mut client = FileClient::new(SECRET, wanted(20), TIMEOUT);
        let mut opening = crate::ttp::wire::REVISION.to_be_bytes().to_vec();
        opening.extend([7; CHALLENGE]);
        opening.push(0);
        opening.truncate([0, 4, 68, 69][known]);
        let ready = client.on_control(now, &opening);
        if ready == Ok(Some(News::Ready)) {
            let request = [Request::File(b"f"), Request::Names, Request::Directory];
            client.ask(request[words.len() % 3]);
        }
        let mut out = Vec::new();
        let _said = client.on_control(now, &words);
        client.poll_control(now, &mut out);
        let mut place = Vec::new();
        let _fits = client.on_datagram(now, &datagram, &mut place);
        prop_assert!(place.iter().all(|e| e.range().end <= datagram.len()));
    }
}

//! The Tsunami UDP protocol's client and server, each with a peer that sends anything from some
//! step on. Placed bytes lie in the datagram, output and memory stay bounded, and blocks are sent
//! only after a port.

use std::time::Duration;

use farhaul_core::{time::Instant, units::Rate};
use farhaul_protocols::ttp::{
    files::{Asked, FileClient, FileServer, MAX_LIST, News},
    wire::{CHALLENGE, Parameters, REVISION, Request, SECRET, answer},
};

const TIMEOUT: Duration = Duration::from_secs(15);
const STEP: Duration = Duration::from_millis(40);

fn wanted() -> Parameters {
    Parameters {
        block_size: 20,
        rate: 8_000_000,
        ..Parameters::default()
    }
}

fn serve(known: u8, chunks: &[&[u8]]) {
    let mut now = Instant::EPOCH + TIMEOUT;
    let limits = (Rate::UNLIMITED, TIMEOUT);
    let mut server = FileServer::new(SECRET, [7; CHALLENGE], limits, 1);
    let mut opening = REVISION.to_be_bytes().to_vec();
    opening.extend(answer(&[7; CHALLENGE], SECRET));
    opening.extend(b"f\n");
    wanted().encode(&mut opening);
    opening.extend([1, 2]);
    opening.truncate([0, 4, 20, 22, 42, 44][usize::from(known) % 6]);
    let (mut out, mut ported) = (Vec::new(), false);
    for words in std::iter::once(&opening[..]).chain(chunks.iter().copied()) {
        let mut asked = server.on_control(now, words);
        while let Ok(Some(question)) = asked {
            match question {
                Asked::File(_) => server.offer(u64::from(known) * 997),
                Asked::Names => server.names([&b"f"[..], b"g"].into_iter()),
                Asked::Directory => server.directory(&[(b"f", 9)]),
                Asked::Port(_) => ported = true,
                Asked::Stopped => ported = false,
                Asked::Denied => return,
            }
            asked = server.on_control(now, &[]);
        }
        if asked.is_err() {
            return;
        }
        out.clear();
        server.poll_control(&mut out);
        assert!(out.len() < 4_096 + 64 * words.len());
        let mut blocks = 0;
        while server.permit(now) && server.next_block(now).is_some() {
            assert!(ported);
            blocks += 1;
            assert!(blocks < 100_000, "blocks leave at a rate");
        }
        now += STEP;
    }
}

fn fetch(known: u8, chunks: &[&[u8]]) {
    let mut now = Instant::EPOCH + TIMEOUT;
    let mut client = FileClient::new(SECRET, wanted(), TIMEOUT);
    let mut opening = REVISION.to_be_bytes().to_vec();
    opening.extend([7; CHALLENGE]);
    opening.push(0);
    opening.truncate([0, 4, 68, 69][usize::from(known) % 4]);
    let (mut out, mut place) = (Vec::new(), Vec::new());
    for (i, bytes) in std::iter::once(&opening[..]).chain(chunks.iter().copied()).enumerate() {
        if i > 1 && known & 64 != 0 && i % 2 == 0 {
            place.clear();
            let fits = client.on_datagram(now, bytes, &mut place);
            assert!(fits.is_ok() || place.is_empty());
            assert!(place.iter().all(|extent| extent.range().end <= bytes.len()));
        } else {
            match client.on_control(now, bytes) {
                Err(_) => return,
                Ok(Some(News::Ready | News::Done)) => {
                    let request = [Request::File(b"f"), Request::Names, Request::Directory];
                    client.ask(request[usize::from(known >> 2) % 3]);
                }
                Ok(_) => {}
            }
        }
        out.clear();
        client.poll_control(now, &mut out);
        assert!(out.len() < MAX_LIST);
        if client.deadline().is_some_and(|at| at <= now) {
            let _given_up = client.on_timer(now);
        }
        now += STEP;
    }
}

pub(crate) fn run(data: &[u8]) {
    let Some((known, rest)) = data.split_first() else {
        return;
    };
    let chunks: Vec<&[u8]> = rest.split(|b| *b == 0xfe).collect();
    if known & 1 == 0 {
        serve(known >> 1, &chunks);
    } else {
        fetch(known >> 1, &chunks);
    }
}

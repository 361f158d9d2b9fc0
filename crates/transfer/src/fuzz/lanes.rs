//! Plays a peer on a further parallel session, against the copy that it joined. The real end of
//! each of the two sessions takes what the bytes choose; when the first is over, so is the other.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex},
};

use farhaul_core::protocol::Session as _;
use farhaul_io::App;

use super::{Ground, LOOKS, Listed, STEPS, Talk, bytes::Bytes, ended, in_virtual_time};
use crate::{
    client::{Download, Lane, Options, Remote, Upload},
    host::{Simulated, VirtualTime},
    server::{Allow, Policy, Server, Share},
    wire::{Access, BLOCK, Direction, Entry, Kind, Message, OLDEST, testing::said},
};

/// Sessions that are asked for: the first, one that is driven, and one that never comes.
const LANES: u32 = 3;

/// A copy over two sessions, whose peer says and sends what it likes on both.
///
/// # Panics
/// Panics if a property of one session does not hold, or if a parallel session outlives its copy.
pub fn fuzz_lanes(data: &[u8], dir: &Path) -> io::Result<()> {
    let ground = Ground::new(dir)?;
    let mut bytes = Bytes(data);
    let flags = bytes.u8();
    if flags & 2 == 0 {
        served(flags & 1 != 0, &ground, &mut bytes)?;
    } else if flags & 1 == 0 {
        delivered(&ground, &mut bytes)?;
    } else {
        fetched(&ground, &mut bytes)?;
    }
    ground.check()
}

/// Runs against a server, from which the peer fetches or to which it delivers.
fn served(fetches: bool, ground: &Ground<'_>, bytes: &mut Bytes<'_>) -> io::Result<()> {
    ground.fill()?;
    let share = Share::open("rw", &ground.inside, Access::ReadWrite);
    let share = share.map_err(io::Error::other)?;
    let policy = Arc::new(Policy::new(vec![share], Allow::Any, false));
    let (simulated, time) = in_virtual_time();
    let server = || Server::new(Arc::clone(&policy), None).simulated(simulated.clone());
    let (one, other) = (server(), server());
    let handles = [one.handle(), other.handle()];
    let mut first = Talk::new(one, Arc::clone(&time));
    let direction = if fetches {
        Direction::Get
    } else {
        Direction::Put
    };
    first.send(&Message::request(direction, "rw", ""));
    first.send(&Message::WantLanes {
        lanes: LANES,
        chosen: true,
    });
    let token = said(&first.line).iter().find_map(Message::lanes_token);
    let token = token.expect("what is accepted has lanes");
    first.line.written.clear();
    if !fetches {
        first.announce();
    }
    let mut lane = Talk::new(other, time);
    lane.send(&Message::Join { token });
    let both = Both { first, lane };
    both.run(bytes);
    for handle in &handles {
        ended(handle);
    }
    Ok(())
}

/// The real end is a client's that delivers.
fn delivered(ground: &Ground<'_>, bytes: &mut Bytes<'_>) -> io::Result<()> {
    ground.fill()?;
    let (simulated, time) = in_virtual_time();
    let (options, opened) = options(simulated);
    let from = std::slice::from_ref(&ground.inside);
    let client = Upload::new(from, &remote(), options).map_err(io::Error::other)?;
    let handle = client.handle();
    let both = joined(Talk::new(client, Arc::clone(&time)), &opened, time);
    both.run(bytes);
    ended(&handle);
    Ok(())
}

/// The real end is a client's that fetches; what it calls a success is there.
fn fetched(ground: &Ground<'_>, bytes: &mut Bytes<'_>) -> io::Result<()> {
    let (simulated, time) = in_virtual_time();
    let (options, opened) = options(simulated);
    let client = Download::new(&[remote()], &ground.inside, options).map_err(io::Error::other)?;
    let handle = client.handle();
    let mut both = joined(Talk::new(client, Arc::clone(&time)), &opened, time);
    both.first.announce();
    let listed = both.run(bytes);
    if ended(&handle).error.is_none() {
        listed.are_there(&ground.inside);
    }
    Ok(())
}

/// Further parallel sessions of a client.
pub(crate) type Opened = Arc<Mutex<Vec<Lane>>>;

/// Makes the same options with parallel sessions, and the place where those will be.
pub(crate) fn with_lanes(options: Options, lanes: u32) -> (Options, Opened) {
    let opened = Opened::default();
    let to = Arc::clone(&opened);
    let options = Options {
        lanes: Some(lanes),
        open: Some(Arc::new(move |lane| {
            to.lock().expect("nobody panicked").push(lane);
        })),
        ..options
    };
    (options, opened)
}

/// The first further session of a client whose server says, by `send`, that the copy has `lanes`.
pub(crate) fn opened_lane(opened: &Opened, lanes: u32, mut send: impl FnMut(&Message)) -> Lane {
    send(&Message::Accepted {
        version: OLDEST,
        one_file: false,
    });
    let token = [7; 16];
    send(&Message::Lanes { token, lanes });
    let lane = opened.lock().expect("nobody panicked").pop();
    lane.expect("lanes that were asked for are opened")
}

fn options(simulated: Simulated) -> (Options, Opened) {
    let options = Options {
        server: "peer".into(),
        simulated: Some(simulated),
        sync: false,
        ..Options::default()
    };
    with_lanes(options, LANES)
}

fn remote() -> Remote {
    Remote {
        share: "s".into(),
        path: b"d/".to_vec(),
    }
}

/// A client's parallel session that its server has taken.
fn joined<A: App>(mut first: Talk<A>, opened: &Opened, time: Arc<VirtualTime>) -> Both<A, Lane> {
    let lane = opened_lane(opened, LANES, |message| first.send(message));
    let mut lane = Talk::new(lane, time);
    lane.send(&Message::Joined);
    Both { first, lane }
}

/// First and further session of a copy.
struct Both<A, B> {
    first: Talk<A>,
    lane: Talk<B>,
}

impl<A: App, B: App> Both<A, B> {
    /// Runs until the input or the first session ends; returns what was listed on it.
    fn run(mut self, bytes: &mut Bytes<'_>) -> Listed {
        for _ in 0..STEPS {
            if bytes.0.is_empty() || self.first.line.is_closed() {
                break;
            }
            self.lane.listed = self.first.listed.clone();
            if bytes.u8() & 1 == 0 {
                self.lane.step(bytes);
            } else {
                self.first.step(bytes);
            }
            self.meet();
        }
        let mut waits = 0;
        while !self.first.line.is_closed() && waits < LOOKS {
            waits += 1;
            let next = [self.first.app.next_wake(), self.lane.app.next_wake()];
            let Some(next) = next.into_iter().flatten().min() else {
                break;
            };
            self.first.now = self.first.now.max(next);
            self.meet();
        }
        let listed = self.first.end();
        self.meet();
        assert!(self.lane.line.is_closed(), "a lane outlives its copy");
        self.lane.end();
        listed
    }

    /// Brings both ends to the same moment, and hands over what one has for the other.
    fn meet(&mut self) {
        let now = self.first.now.max(self.lane.now);
        (self.first.now, self.lane.now) = (now, now);
        self.lane.turn();
        self.first.turn();
        self.lane.turn();
    }
}

impl<A: App> Talk<A> {
    /// Lists two files that parallel sessions carry.
    fn announce(&mut self) {
        let large = |path, size| Entry::of(Kind::File, path, size);
        let entries = vec![large("a", 2 * BLOCK), large("b", BLOCK + 5)];
        self.listed.add(0, &entries);
        self.send(&Message::Entries { first: 0, entries });
    }
}

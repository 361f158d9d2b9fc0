//! Runs control lanes on real sockets. Each lane is a TCP connection beside the UDP socket, on the
//! same port number at the listener. All lanes of a shard hang on one epoll descriptor, which the
//! shard polls once per turn. Shards without control lanes have none of this.
//!
//! Invariants: nothing blocks. A connection that has not sent its token is read no further than
//! that and has no buffer; at most [`MAX_WAITING`] of those are kept, [`JOIN_TIMEOUT`] long, the
//! oldest goes first. A token joins only datagrams from the address of the connection that sent it.
//! Bytes of a lane are read before the datagrams of the same turn, and passed to the session after
//! them. So a note on the lane of how many datagrams have left has not overtaken them.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read, Write},
    mem::MaybeUninit,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use crate::news::News;
use farhaul_core::{
    control::{PREAMBLE, ROOM, Token, preamble, read_preamble},
    time::Instant,
};
use rustix::{
    event::{
        Timespec,
        epoll::{self, EventData, EventFlags},
    },
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt},
};

/// Connections at a listener that belong to no session yet.
const MAX_WAITING: usize = 64;
/// Longest time that a connection may wait for its session.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Events processed per turn; the rest follows in the next.
const EVENTS: usize = 64;
/// Connections taken per turn.
const ACCEPTS: usize = 16;
/// Bytes read at once, and how often in a turn.
const READ: usize = 16 << 10;
const READS: usize = 8;
/// Longest delay of lane bytes by a continuous stream of datagrams.
const DATAGRAMS_FIRST: Duration = Duration::from_millis(5);
/// Event data of the listener.
const LISTENER: u64 = u64::MAX;

/// State of a connection.
enum State {
    /// The client's, not there yet.
    Connecting { slot: usize },
    /// A connection at a listener: this much of its token was received.
    Greeting { said: [u8; PREAMBLE], len: usize },
    /// A connection at a listener: its datagrams have not been received.
    Waiting(Token),
    /// The connection is a session's.
    Joined { slot: usize },
}

struct Lane {
    stream: TcpStream,
    peer: IpAddr,
    state: State,
    /// Time at which the connection is given up, unless it is a session's.
    until: Instant,
    /// Bytes to leave, from `sent` on.
    out: Vec<u8>,
    sent: usize,
    asked: EventFlags,
    /// Bytes received and not passed on yet, and why there are no more.
    received: Vec<u8>,
    over: Option<String>,
}

/// The control lanes of a shard.
pub(crate) struct Lanes {
    epoll: OwnedFd,
    listener: Option<TcpListener>,
    slots: Vec<Option<Lane>>,
    free: Vec<usize>,
    /// Connections without a session, oldest first.
    waiting: VecDeque<usize>,
    /// Events of the kernel in this turn: whose, and what.
    events: Vec<(u64, EventFlags)>,
    /// Events to be passed on, by lane, and since when.
    news: VecDeque<(usize, News)>,
    since: Instant,
    scratch: Box<[u8]>,
    refused: bool,
}

impl Lanes {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            listener: None,
            slots: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            events: Vec::with_capacity(EVENTS),
            news: VecDeque::new(),
            since: Instant::EPOCH,
            scratch: vec![0; READ].into_boxed_slice(),
            refused: false,
        })
    }

    /// Lanes that peers open at `at`.
    pub(crate) fn listening(at: SocketAddr) -> io::Result<Self> {
        let mut lanes = Self::new()?;
        let listener = TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        let data = EventData::new_u64(LISTENER);
        epoll::add(&lanes.epoll, &listener, data, EventFlags::IN)?;
        lanes.listener = Some(listener);
        Ok(lanes)
    }

    /// Begins to connect to `to` for the session in `slot`; the number of the lane.
    pub(crate) fn connect(
        &mut self,
        to: SocketAddr,
        token: Token,
        slot: usize,
    ) -> io::Result<usize> {
        let family = match to {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            // Loopback refuses at once; it is reported like any other refusal.
            Err(Errno::CONNREFUSED) => self.refused = true,
            Err(error) => return Err(error.into()),
        }
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        let index = self.add(
            stream,
            to.ip(),
            State::Connecting { slot },
            Instant::FAR_FUTURE,
        )?;
        if let Some(lane) = &mut self.slots[index] {
            lane.out.extend(preamble(token));
        }
        Ok(index)
    }

    /// True if the peer's host refused the connection.
    pub(crate) const fn refused(&self) -> bool {
        self.refused
    }

    fn add(
        &mut self,
        stream: TcpStream,
        peer: IpAddr,
        state: State,
        until: Instant,
    ) -> io::Result<usize> {
        let asked = match state {
            State::Connecting { .. } => EventFlags::OUT,
            _ => EventFlags::IN,
        };
        let index = self.free.last().copied().unwrap_or(self.slots.len());
        epoll::add(
            &self.epoll,
            &stream,
            EventData::new_u64(index as u64),
            asked,
        )?;
        if self.free.pop().is_none() {
            self.slots.push(None);
        }
        self.slots[index] = Some(Lane {
            stream,
            peer: peer.to_canonical(),
            state,
            until,
            out: Vec::new(),
            sent: 0,
            asked,
            received: Vec::new(),
            over: None,
        });
        Ok(index)
    }

    /// Ends a lane; what the kernel has taken still leaves.
    pub(crate) fn close(&mut self, index: usize) {
        if let Some(mut lane) = self.slots.get_mut(index).and_then(Option::take) {
            // Closing removes it from the epoll set. What was not read would reset the connection, and
            // with it the last words.
            lane.flush();
            let _empty_or_over = lane.stream.read(&mut self.scratch);
            self.free.push(index);
            self.waiting.retain(|i| *i != index);
        }
    }

    /// Polls for events, without waiting, and reads the bytes there; [`Self::next_news`] returns
    /// them. There is no poll while events wait to be passed on.
    pub(crate) fn poll(&mut self, now: Instant) -> bool {
        if !self.news.is_empty() {
            return true;
        }
        self.give_up(now);
        self.since = now;
        let mut events = std::mem::take(&mut self.events);
        let at_once = Timespec::default();
        let mut buffer = [const { MaybeUninit::uninit() }; EVENTS];
        // Interrupted: they follow in the next turn.
        if let Ok((said, _)) = epoll::wait(&self.epoll, &mut buffer, Some(&at_once)) {
            events.extend(said.iter().map(|event| (event.data.u64(), event.flags)));
        }
        for (whose, flags) in events.drain(..) {
            if whose == LISTENER {
                self.accept(now);
                continue;
            }
            let index = usize::try_from(whose).unwrap_or(usize::MAX);
            let news = self.on_lane(index, flags);
            self.news.push_back((index, news));
        }
        self.events = events;
        !self.news.is_empty()
    }

    /// True if an event has waited for longer than datagrams may be processed first.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        !self.news.is_empty() && now.since(self.since) >= DATAGRAMS_FIRST
    }

    /// The lane on which something happened, and what.
    pub(crate) fn next_news(&mut self) -> Option<(usize, News)> {
        self.news.pop_front()
    }

    /// Time at which the oldest connection without a session is given up.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let oldest = self.waiting.front().and_then(|i| self.slots.get(*i));
        oldest.and_then(Option::as_ref).map(|lane| lane.until)
    }

    fn give_up(&mut self, now: Instant) {
        while self.deadline().is_some_and(|until| until <= now)
            && let Some(index) = self.waiting.pop_front()
        {
            self.close(index);
        }
    }

    fn on_lane(&mut self, index: usize, flags: EventFlags) -> News {
        let Some(Some(lane)) = self.slots.get_mut(index) else {
            return News::Nothing;
        };
        match lane.state {
            State::Connecting { slot } => match lane.connected() {
                Ok(()) => {
                    lane.state = State::Joined { slot };
                    lane.flush();
                    self.ask(index);
                    News::Opened(slot)
                }
                Err(error) => {
                    self.refused |= error.kind() == ErrorKind::ConnectionRefused;
                    News::Over(slot, format!("no control connection (TCP): {error}"))
                }
            },
            State::Greeting { .. } => {
                self.greet(index);
                News::Nothing
            }
            State::Waiting(_) => {
                // It registers no events, so this is its end.
                self.close(index);
                News::Nothing
            }
            State::Joined { slot } => {
                if flags.contains(EventFlags::OUT) {
                    lane.flush();
                }
                let readable = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
                if readable {
                    lane.listen(&mut self.scratch);
                }
                self.ask(index);
                if readable {
                    News::Heard(slot)
                } else {
                    News::Writable(slot)
                }
            }
        }
    }

    /// Takes the connections that are there; too many push out the oldest.
    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS {
            let Some(Ok((stream, from))) = self.listener.as_ref().map(TcpListener::accept) else {
                return;
            };
            if self.waiting.len() >= MAX_WAITING
                && let Some(oldest) = self.waiting.pop_front()
            {
                self.close(oldest);
            }
            let ready = stream
                .set_nonblocking(true)
                .and_then(|()| stream.set_nodelay(true));
            let said = [0; PREAMBLE];
            let state = State::Greeting { said, len: 0 };
            // One that cannot be registered is closed, which its client detects.
            if ready.is_ok()
                && let Ok(index) = self.add(stream, from.ip(), state, now + JOIN_TIMEOUT)
            {
                self.waiting.push_back(index);
            }
        }
    }

    /// Reads the token, and nothing behind it.
    fn greet(&mut self, index: usize) {
        let Some(Some(lane)) = self.slots.get_mut(index) else {
            return;
        };
        let State::Greeting { said, len } = &mut lane.state else {
            return;
        };
        let over = match lane.stream.read(&mut said[*len..]) {
            Ok(0) => true,
            Ok(n) => {
                *len += n;
                false
            }
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        let whole = *len == PREAMBLE;
        match read_preamble(said).filter(|_| whole) {
            Some(token) => {
                lane.state = State::Waiting(token);
                self.ask(index);
            }
            None if over || whole => self.close(index),
            None => {}
        }
    }

    /// The connection from `peer` that sent `token`.
    pub(crate) fn find(&self, token: Token, peer: IpAddr) -> Option<usize> {
        let peer = peer.to_canonical();
        self.waiting.iter().copied().find(|index| {
            let lane = self.slots.get(*index).and_then(Option::as_ref);
            lane.is_some_and(|lane| {
                lane.peer == peer && matches!(lane.state, State::Waiting(said) if said == token)
            })
        })
    }

    /// Gives the lane to the session in `slot`.
    pub(crate) fn entry(&mut self, index: usize, slot: usize) {
        if let Some(Some(lane)) = self.slots.get_mut(index) {
            lane.state = State::Joined { slot };
            self.waiting.retain(|i| *i != index);
            self.ask(index);
        }
    }

    /// Takes the bytes received on the lane, and the reason of its end.
    pub(crate) fn take_received(&mut self, index: usize) -> (Vec<u8>, Option<String>) {
        match self.slots.get_mut(index) {
            Some(Some(lane)) => (std::mem::take(&mut lane.received), lane.over.take()),
            _ => (Vec::new(), None),
        }
    }

    /// Gives back the buffer of received bytes, to be filled again.
    pub(crate) fn give_back(&mut self, index: usize, mut buffer: Vec<u8>) {
        if let Some(Some(lane)) = self.slots.get_mut(index) {
            buffer.clear();
            lane.received = buffer;
        }
    }

    /// Lets `say` append bytes to send, within the free space, and sends them.
    pub(crate) fn fill(&mut self, index: usize, mut say: impl FnMut(usize, &mut Vec<u8>)) {
        let Some(Some(lane)) = self.slots.get_mut(index) else {
            return;
        };
        if !matches!(lane.state, State::Joined { .. }) {
            return;
        }
        loop {
            let before = lane.out.len();
            say(ROOM.saturating_sub(before - lane.sent), &mut lane.out);
            if lane.out.len() == before {
                break;
            }
            lane.flush();
            if !lane.out.is_empty() {
                break;
            }
        }
        self.ask(index);
    }

    /// Registers the events that the lane waits for now.
    fn ask(&mut self, index: usize) {
        let Some(Some(lane)) = self.slots.get_mut(index) else {
            return;
        };
        let mut wanted = EventFlags::empty();
        wanted.set(EventFlags::IN, !matches!(lane.state, State::Waiting(_)));
        wanted.set(EventFlags::OUT, !lane.out.is_empty());
        if wanted != lane.asked {
            lane.asked = wanted;
            let data = EventData::new_u64(index as u64);
            // It fails only for a descriptor that is not in the set, and this one is.
            let _in_the_set = epoll::modify(&self.epoll, &lane.stream, data, wanted);
        }
    }
}

impl Lane {
    /// Reads the bytes that are there, up to a bound.
    fn listen(&mut self, scratch: &mut [u8]) {
        for _ in 0..READS {
            match self.stream.read(scratch) {
                Ok(0) => self.over = Some("the peer closed the control connection (TCP)".into()),
                Ok(n) => {
                    self.received.extend(&scratch[..n]);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.over = Some(format!("the control connection (TCP) broke: {error}"));
                }
            }
            return;
        }
    }

    /// Checks that the lane is connected, after an event.
    fn connected(&self) -> io::Result<()> {
        match sockopt::socket_error(&self.stream)? {
            Ok(()) => self.stream.peer_addr().map(|_| ()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the queued bytes. An error is reported by the next event, and by reading.
    fn flush(&mut self) {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.sent = self.out.len();
                    break;
                }
            }
        }
        self.out.drain(..self.sent);
        self.sent = 0;
    }
}

impl AsFd for Lanes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

//! Moves packets from one host to the other. One thread reads packet trains from two TUN devices,
//! and lets the path of their direction decide on each segment. It keeps neighbouring survivors
//! together as runs, and writes every run to the other device when the run is due.
//!
//! A run leaves when its *last* segment is due, as a network card with receive coalescing would
//! deliver it. A run never spans more than [`MAX_SPAN`](crate::runs::MAX_SPAN), so a slow link
//! still delivers packet by packet. The payload is never copied in between. An unharmed train is
//! written from the buffer it was read into, a run as new headers followed by a slice of that
//! buffer.

use std::{
    io::{self, IoSlice},
    ops::RangeInclusive,
    os::fd::{AsFd as _, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use farhaul_core::{rng::Rng, time::Instant, units::Rate};
use farhaul_link::{Ecn, Path, PathConfig, QueueLimit, Verdict};
use farhaul_udp::tun::Tun;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::Errno,
};

use crate::{
    clock::{Clock, stay_awake, timespec, wake_precisely},
    health::Histogram,
    held::{Held, Run},
    packet::Anatomy,
    report::PortCount,
    runs::Runs,
    slab::{Slab, Slot},
};

/// While trains arrive the router polls at intervals instead of being woken by each: a wake-up costs
/// more than carrying a train. Everything may be late by as much.
const REST: Duration = Duration::from_micros(100);
/// On links up to [`SLOW`] it wakes up when the next run is due, if that is sooner, but rests so long. On
/// faster ones this would cost the router 30 % more of its core and the receiver 20 %.
const SHORT_REST: Duration = Duration::from_micros(30);
const SLOW: Rate = Rate::gbit(2);
/// Trains flow if one of several segments passed within this time.
const BUSY: Duration = Duration::from_millis(2);
/// Trains read from one device before the other gets its turn and due runs are released.
const READS_PER_TURN: u32 = 8;
/// Runs written to one device before the other gets its turn and trains are read.
const WRITES_PER_TURN: u32 = 16;

/// One direction and what went through it.
#[derive(Debug)]
struct Direction {
    path: Path,
    held: Held,
    rng: Rng,
    totals: Totals,
    ports: Vec<PortCount>,
}

/// Packets that one direction delivered, and those that the emulator itself failed to deliver.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Packets written to the receiving host, copies included.
    pub(crate) delivered: u64,
    /// Bytes of these packets with IP headers.
    pub(crate) delivered_bytes: u64,
    /// Packets dropped for the emulator's own reasons.
    pub(crate) own_drops: u64,
    /// Trains read and runs written.
    pub(crate) reads: u64,
    pub(crate) writes: u64,
}

/// The result of a router's life. Direction 0 is near to far, 1 is far to near.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) paths: [Path; 2],
    pub(crate) totals: [Totals; 2],
    pub(crate) ports: [Vec<PortCount>; 2],
    pub(crate) late: Histogram,
    pub(crate) max_held: u64,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) pm_qos: bool,
}

impl Outcome {
    /// Must be called on the thread that did the work.
    pub(crate) fn new(
        paths: [Path; 2],
        totals: [Totals; 2],
        late: &Histogram,
        slab: &Slab,
        clock: Clock,
    ) -> Self {
        Self {
            paths,
            totals,
            ports: [Vec::new(), Vec::new()],
            late: late.clone(),
            max_held: slab.max_in_use(),
            seconds: (clock.now() - Instant::EPOCH).as_secs_f64(),
            cpu_seconds: clock.cpu().as_secs_f64(),
            pm_qos: false,
        }
    }
}

/// A running router; stops when dropped.
#[derive(Debug)]
pub(crate) struct Router {
    stop: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<io::Result<Outcome>>>,
}

impl Router {
    /// Starts routing between `tuns[0]` (near) and `tuns[1]` (far), holding at most `memory` bytes.
    pub(crate) fn start(
        tuns: [Tun; 2],
        paths: [&PathConfig; 2],
        seed: u64,
        memory: u64,
        ports: &[RangeInclusive<u16>],
    ) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(eventfd(0, flags)?);
        let stop = Arc::new(AtomicBool::new(false));
        let rng = Rng::new(seed);
        let [forward, back] = paths;
        let in_flight = in_flight(forward).max(in_flight(back));
        let (ready, prepared) = mpsc::sync_channel(1);
        let mut router = Loop {
            tuns,
            directions: [
                Direction::new(forward, &rng.fork("near to far"), ports),
                Direction::new(back, &rng.fork("far to near"), ports),
            ],
            slab: Slab::new(memory),
            staging: None,
            busy_at: None,
            threaded: [false; 2],
            shortest_rest: shortest_rest(paths),
            late: Histogram::new(),
            pm_qos: false,
            clock: Clock::start(),
            stop: Arc::clone(&stop),
            wake: Arc::clone(&wake),
        };
        let thread = thread::Builder::new()
            .name("wan-router".into())
            .spawn(move || {
                router.slab.prepare(in_flight);
                let _ = ready.send(());
                router.clock = Clock::start();
                router.run().map(|()| router.finish())
            })?;
        // An error here means that the thread has died, which `stop` reports.
        let _ = prepared.recv();
        Ok(Self {
            stop,
            wake,
            thread: Some(thread),
        })
    }

    /// Stops routing; packets on their way are lost.
    pub(crate) fn stop(mut self) -> io::Result<Outcome> {
        self.join()
            .unwrap_or_else(|| Err(io::Error::other("the router was already stopped")))
    }

    fn join(&mut self) -> Option<io::Result<Outcome>> {
        let thread = self.thread.take()?;
        self.stop.store(true, Ordering::Release);
        // The counter cannot overflow: this is the only write it ever gets.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        let panicked = |_| {
            Err(io::Error::other(
                "the router panicked; its message is above",
            ))
        };
        Some(thread.join().unwrap_or_else(panicked))
    }
}

/// Least rest of the router while trains flow.
fn shortest_rest(paths: [&PathConfig; 2]) -> Duration {
    let steps = paths.iter().flat_map(|path| &path.rate_steps);
    let fastest = paths
        .iter()
        .map(|path| path.rate)
        .chain(steps.map(|step| step.to))
        .max();
    if fastest.is_some_and(|rate| rate <= SLOW) {
        SHORT_REST
    } else {
        REST
    }
}

/// Most memory made ready in advance: 10 Gbit/s for 250 ms one way, and some queue.
const MAX_PREPARED: u64 = 640 << 20;

/// Bytes that may be on their way through `path` at once, and three quarters more: buffers are not
/// filled to the last byte.
fn in_flight(path: &PathConfig) -> u64 {
    if path.rate == Rate::UNLIMITED {
        return 0;
    }
    let queued = match path.queue {
        QueueLimit::Bytes(size) => size.bytes(),
        QueueLimit::Time(wait) => path.rate.bytes_in(wait),
    };
    let all = path.rate.bytes_in(path.delay).saturating_add(queued) / 4 * 7;
    all.min(MAX_PREPARED)
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

impl Direction {
    fn new(config: &PathConfig, rng: &Rng, ports: &[RangeInclusive<u16>]) -> Self {
        Self {
            path: Path::new(config, rng),
            held: Held::default(),
            rng: rng.fork("damage"),
            totals: Totals::default(),
            ports: ports.iter().cloned().map(PortCount::new).collect(),
        }
    }
}

/// The state of the router's thread.
struct Loop {
    tuns: [Tun; 2],
    directions: [Direction; 2],
    slab: Slab,
    /// The buffer the next train is read into.
    staging: Option<Slot>,
    /// Time at which a train of several segments last passed.
    busy_at: Option<Instant>,
    /// Toward which device TCP has passed: a kernel thread takes it there.
    threaded: [bool; 2],
    shortest_rest: Duration,
    late: Histogram,
    /// See [`stay_awake`].
    pm_qos: bool,
    clock: Clock,
    stop: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
}

impl Loop {
    fn run(&mut self) -> io::Result<()> {
        wake_precisely();
        let awake = stay_awake();
        self.pm_qos = awake.is_some();
        let mut readable = [true; 2];
        while !self.stop.load(Ordering::Acquire) {
            for (direction, more) in readable.iter_mut().enumerate() {
                if *more {
                    *more = self.take_in(direction)?;
                }
            }
            self.release_due()?;
            if readable == [false; 2] {
                readable = self.wait()?;
            }
        }
        Ok(())
    }

    /// Reads a few trains; answers whether there may be more.
    fn take_in(&mut self, direction: usize) -> io::Result<bool> {
        for _ in 0..READS_PER_TURN {
            let staged = self.staging.take().or_else(|| self.slab.take_largest());
            let Some(slot) = staged else {
                return self.discard(direction);
            };
            let read = self.tuns[direction].read(self.slab.room(slot));
            self.staging = Some(slot);
            match read {
                Ok(len) => self.route(direction, slot, len),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Out of memory: reads one packet into nothing.
    fn discard(&mut self, direction: usize) -> io::Result<bool> {
        match self.tuns[direction].read(&mut [0; 256]) {
            Ok(_) => {
                self.directions[direction].totals.own_drops += 1;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Decides about every segment of the train just read into the staging buffer.
    fn route(&mut self, direction: usize, staged: Slot, len: usize) {
        let now = self.clock.now();
        let Some(anatomy) = Anatomy::of(&self.slab.room(staged)[..len]) else {
            // Not IP: nothing this network carries.
            return;
        };
        if anatomy.segments > 1 {
            self.busy_at = Some(now);
        }
        if anatomy.is_tcp_train() && !std::mem::replace(&mut self.threaded[1 - direction], true) {
            // Where that is refused, this thread does the stack's work, as it does for other traffic.
            let _refused = self.tuns[1 - direction].receive_in_thread();
        }
        let toward = &mut self.directions[direction];
        toward.totals.reads += 1;
        let Some(slot) = self.slab.settle(staged, len) else {
            toward.totals.own_drops += u64::from(anatomy.segments);
            return;
        };
        if slot == staged {
            self.staging = None;
        }
        let Direction {
            path,
            held,
            rng,
            ports,
            ..
        } = toward;
        let ports = anatomy
            .ports(self.slab.packet(slot))
            .filter(|_| !ports.is_empty())
            .and_then(|of| {
                ports
                    .iter_mut()
                    .find(|c| of.iter().any(|p| c.ports.contains(p)))
            });
        let dropped = path.counters().dropped_in_all();
        let mut train = Train {
            anatomy,
            runs: Runs::new(slot, held, &mut self.slab),
            path,
            rng,
        };
        for index in 0..anatomy.segments {
            train.segment(now, index);
        }
        if let Some(count) = ports {
            count.packets += u64::from(anatomy.segments);
            count.bytes += anatomy.run_wire_len(0, anatomy.segments);
            count.dropped += train.path.counters().dropped_in_all() - dropped;
        }
        train.runs.finish();
    }

    fn release_due(&mut self) -> io::Result<()> {
        for direction in 0..2 {
            for _ in 0..WRITES_PER_TURN {
                let now = self.clock.now();
                let Some(run) = self.directions[direction].held.pop_due(now) else {
                    break;
                };
                self.deliver(direction, run, now)?;
            }
        }
        Ok(())
    }

    /// Writes a run to the host at the other end.
    fn deliver(&mut self, direction: usize, run: Run, now: Instant) -> io::Result<()> {
        let totals = &mut self.directions[direction].totals;
        let packet = self.slab.packet(run.slot);
        let Some(anatomy) = Anatomy::of(packet) else {
            return Ok(());
        };
        let out = &self.tuns[1 - direction];
        let whole = run.count == anatomy.segments && !(run.marked && anatomy.segments > 1);
        let written = if whole {
            out.write(&[IoSlice::new(packet)])
        } else {
            let headers = anatomy.headers(packet, run.first, run.count, run.marked);
            let payload = &packet[anatomy.payload(run.first, run.count)];
            out.write(&[IoSlice::new(headers.bytes()), IoSlice::new(payload)])
        };
        let segments = u64::from(run.count);
        if segments > 1 {
            self.busy_at = Some(now);
        }
        match written {
            Ok(_) => {
                totals.writes += 1;
                totals.delivered += segments;
                totals.delivered_bytes += anatomy.run_wire_len(run.first, run.count);
                self.late.record(now - run.due, segments);
            }
            // The device is gone or down: the run cannot go on.
            Err(error) if error.raw_os_error() == Some(Errno::BADFD.raw_os_error()) => {
                return Err(error);
            }
            Err(_) => totals.own_drops += segments,
        }
        self.slab.release(run.slot);
        Ok(())
    }

    /// Sleeps until a device has a train or a run is due; answers which devices have one.
    fn wait(&self) -> io::Result<[bool; 2]> {
        let now = self.clock.now();
        let due = self
            .directions
            .iter()
            .filter_map(|d| d.held.next_due())
            .min();
        if self.busy_at.is_some_and(|at| now - at < BUSY) {
            let rest = due.map_or(REST, |due| (due - now).clamp(self.shortest_rest, REST));
            poll(&mut [], Some(&timespec(rest)))?;
            return Ok([true; 2]);
        }
        let [near, far] = &self.tuns;
        let mut fds = [
            PollFd::new(near, PollFlags::IN),
            PollFd::new(far, PollFlags::IN),
            PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
        ];
        let timeout = due.map(|due| timespec(due - now));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok([0, 1].map(|i| !fds[i].revents().is_empty())),
            Err(error) => Err(error.into()),
        }
    }

    fn finish(&mut self) -> Outcome {
        let paths = [0, 1].map(|i| self.directions[i].path.clone());
        let totals = [0, 1].map(|i| self.directions[i].totals);
        Outcome {
            ports: [0, 1].map(|i| self.directions[i].ports.clone()),
            pm_qos: self.pm_qos,
            ..Outcome::new(paths, totals, &self.late, &self.slab, self.clock)
        }
    }
}

/// A train whose segments are being decided.
struct Train<'a> {
    anatomy: Anatomy,
    runs: Runs<'a>,
    path: &'a mut Path,
    rng: &'a mut Rng,
}

impl Train<'_> {
    fn segment(&mut self, now: Instant, index: u16) {
        let anatomy = self.anatomy;
        let wire_len = anatomy.wire_len(index);
        let (at, again, ecn, corrupt) = match self.path.offer(now, wire_len, anatomy.ecn) {
            Verdict::Pass { at, ecn, corrupt } => (at, None, ecn, corrupt),
            Verdict::Twice {
                at,
                again,
                ecn,
                corrupt,
            } => (at, Some(again), ecn, corrupt),
            Verdict::Drop(_) => return,
        };
        if corrupt {
            if !anatomy.delivers_damage() {
                return;
            }
            anatomy.flip(self.runs.packet_mut(), index, self.rng.next_u64());
        }
        let marked = ecn == Ecn::Ce && anatomy.ecn != Ecn::Ce;
        if marked && anatomy.segments == 1 {
            anatomy.mark(self.runs.packet_mut());
        }
        self.runs.add(index, at, marked);
        if let Some(due) = again {
            self.runs.add_copy(index, due, marked);
        }
    }
}

#[cfg(test)]
mod tests {
    use farhaul_link::Step;

    use super::*;

    #[test]
    fn the_rest_is_short_where_no_link_is_ever_fast() {
        let path = |rate| PathConfig {
            rate,
            ..PathConfig::default()
        };
        let [slow, fast] = [1, 10].map(|gbit| path(Rate::gbit(gbit)));
        assert_eq!(shortest_rest([&slow, &slow]), SHORT_REST);
        assert_eq!(shortest_rest([&slow, &fast]), REST);
        let mut later = slow.clone();
        later.rate_steps.push(Step {
            at: Duration::from_secs(5),
            to: Rate::gbit(10),
        });
        assert_eq!(shortest_rest([&later, &slow]), REST);
    }
}

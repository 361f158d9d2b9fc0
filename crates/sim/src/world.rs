//! Runs a scenario. Events are taken in order; each gives one end a turn, after which the end is
//! drained. Everything that the end sends enters its link, its application gets its events, its
//! timer is set.
//!
//! Invariants: a world sees only [`Protocol`] and [`Session`](farhaul_core::protocol::Session).
//! Time never goes back. A session that does not become idle ends the run with an error, not a
//! hang.

use std::sync::atomic::{AtomicBool, Ordering};

use farhaul_core::{
    app::App,
    datagram::{Ecn, Received, TxBuf},
    protocol::{Event, Protocol},
    rng::Rng,
    time::Instant,
    units::Rate,
};

use crate::{
    cross::Cross,
    disk::Disk,
    end::{End, Outcome},
    flow::Flow,
    lane::{Kind, Stream},
    network::Network,
    observe::{Moment, Observer, Side},
    queue::What,
    report::{LinkReport, SimReport},
    scenario::{Error, Scenario},
    trace::Mark,
};

mod control;

/// Makes the protocols of a flow's client and server, given the flow's index.
pub type Maker<'a> = &'a mut dyn FnMut(usize) -> (Box<dyn Protocol>, Box<dyn Protocol>);

/// Makes the applications of a flow's client and server, given the flow's index.
pub type Apps<'a> = &'a mut dyn FnMut(usize) -> [Box<dyn App>; 2];

/// Turns and batches of one end at one instant beyond which it is held to be stuck.
const MAX_TURNS: u32 = 100_000;
const MAX_BATCHES: u32 = 1 << 16;
/// Events between two looks at whether to stop.
const EVENTS_PER_LOOK: u64 = 1 << 10;
/// The longest delivery: one batch.
const SCRATCH: usize = 1 << 16;

/// Runs `scenario` with protocols made by `make`.
pub fn run(scenario: &Scenario, make: Maker<'_>) -> Result<SimReport, Error> {
    go(scenario, make, (None, None, None))
}

/// Runs `scenario` with applications of one's own: a flow's client is done when its application closes
/// the session. What flows configure of the simulator's own ([`FlowConfig::bytes`] and
/// [`FlowConfig::write`]) means nothing here. Segments are carried with all their bytes.
///
/// [`FlowConfig::bytes`]: crate::FlowConfig::bytes
/// [`FlowConfig::write`]: crate::FlowConfig::write
pub fn run_apps(scenario: &Scenario, make: Maker<'_>, apps: Apps<'_>) -> Result<SimReport, Error> {
    go(scenario, make, (Some(apps), None, None))
}

/// Runs `scenario` with `observer`; the run is the same as without it.
pub fn run_observed(
    scenario: &Scenario,
    make: Maker<'_>,
    observer: &mut dyn Observer,
) -> Result<SimReport, Error> {
    go(scenario, make, (None, Some(observer), None))
}

/// Runs `scenario`, with `observer` if there is one, until its end or, within about a thousand events, until `stop` is
/// set, which is [`Error::Stopped`].
pub fn run_until<'a>(
    scenario: &'a Scenario,
    make: Maker<'_>,
    observer: Option<&'a mut dyn Observer>,
    stop: &'a AtomicBool,
) -> Result<SimReport, Error> {
    go(scenario, make, (None, observer, Some(stop)))
}

/// Optional parts of a run.
type Besides<'a, 'b> = (
    Option<Apps<'b>>,
    Option<&'a mut dyn Observer>,
    Option<&'a AtomicBool>,
);

fn go<'a>(
    scenario: &'a Scenario,
    make: Maker<'_>,
    (apps, observer, stop): Besides<'a, '_>,
) -> Result<SimReport, Error> {
    scenario.validate()?;
    let mut world = World::new(scenario, make, observer);
    world.stop = stop;
    if let Some(apps) = apps {
        world.network.whole = true;
        for flow in 0..scenario.flows.len() {
            for (side, app) in apps(flow).into_iter().enumerate() {
                world.ends[2 * flow + side].sink.app = Some(app);
            }
        }
    }
    world.run()?;
    Ok(world.report())
}

struct World<'a> {
    scenario: &'a Scenario,
    now: Instant,
    end: Instant,
    network: Network<'a>,
    /// Bytes in every link's queue at regular times.
    queue_samples: Vec<Vec<u32>>,
    /// Flow `i` is between ends `2 * i`, the client, and `2 * i + 1`.
    ends: Vec<End>,
    flows: Vec<Flow>,
    /// Bytes written to the control lane of each end, where there is one.
    lanes: Vec<Option<Stream>>,
    running: usize,
    out: TxBuf,
    scratch: Box<[u8]>,
    reply: Vec<u8>,
    events: u64,
    stop: Option<&'a AtomicBool>,
}

impl<'a> World<'a> {
    fn new(
        scenario: &'a Scenario,
        make: Maker<'_>,
        observer: Option<&'a mut dyn Observer>,
    ) -> Self {
        let rng = Rng::new(scenario.seed);
        let mut network = Network::new(scenario, &rng, observer);
        let (mut ends, mut flows, mut lanes) = (Vec::new(), Vec::new(), Vec::new());
        for (i, config) in scenario.flows.iter().enumerate() {
            let (client, server) = make(i);
            if client.measures_spacing() || server.measures_spacing() {
                network.separate(2 * i);
                network.separate(2 * i + 1);
            }
            let index = u32::try_from(i).expect("flows are bounded by the scenario");
            let flow = rng.fork(&format!("flow/{i}"));
            ends.push(End::new(2 * index, client, flow.fork("client")));
            ends.push(End::new(2 * index + 1, server, flow.fork("server")));
            ends[2 * i + 1].sink.disk = config.disk.map(Disk::new);
            let timed = Flow::new(scenario, config);
            let rtt = timed.delays[0] + timed.delays[1];
            for side in 0..2 {
                let has = ends[2 * i + side].has_lane();
                lanes.push(has.then(|| Stream::new(rtt, timed.delays[1 - side])));
            }
            flows.push(timed);
            network
                .queue
                .push(Instant::EPOCH + config.start, What::Start(index));
            if let Some(stop) = config.stop {
                network.queue.push(Instant::EPOCH + stop, What::Stop(index));
            }
        }
        for (interval, what) in [
            (scenario.interval, What::Sample),
            (scenario.queue_interval, What::Look),
        ] {
            if !interval.is_zero() {
                network.queue.push(Instant::EPOCH + interval, what);
            }
        }
        Self {
            scenario,
            now: Instant::EPOCH,
            end: Instant::EPOCH + scenario.duration,
            queue_samples: vec![Vec::new(); network.links.len()],
            network,
            running: flows.len(),
            ends,
            flows,
            lanes,
            out: TxBuf::new(scenario.max_segments),
            scratch: vec![0; SCRATCH].into_boxed_slice(),
            reply: Vec::new(),
            events: 0,
            stop: None,
        }
    }

    fn run(&mut self) -> Result<(), Error> {
        while self.running > 0
            && let Some((at, what)) = self.network.queue.pop()
        {
            if at > self.end {
                break;
            }
            self.now = at;
            self.events += 1;
            if self.events.is_multiple_of(EVENTS_PER_LOOK) && self.is_stopped() {
                return Err(Error::Stopped { at });
            }
            match what {
                What::Train(index) => {
                    if self.network.arrives(at, index) {
                        match self.network.control_in(index) {
                            Some((from, number)) => self.control(index, from, number)?,
                            None => self.deliver(index)?,
                        }
                    }
                }
                What::Timer(e) => self.expire(e)?,
                What::Control(e) => self.resend(e),
                What::Start(flow) => self.start(flow)?,
                What::Stop(flow) => self.stop(flow)?,
                What::Sample => self.sample(),
                What::Look => self.sample_queues(),
                What::Cross(source) => self.network.cross(at, source),
            }
        }
        if self.running > 0 {
            self.now = self.end;
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    fn start(&mut self, flow: u32) -> Result<(), Error> {
        self.network.note(self.now, Mark::Start, flow, 0);
        if self.flows[flow as usize].over.is_some() {
            return Ok(());
        }
        let client = 2 * flow;
        self.ends[client as usize].connect(self.now, self.scenario.interface_mtu);
        self.show(client, Moment::Started);
        if let Some(lane) = &mut self.lanes[client as usize] {
            lane.write_mark(self.now, Kind::Opening);
            self.flush(client);
        }
        self.drain(client)
    }

    fn stop(&mut self, flow: u32) -> Result<(), Error> {
        self.network.note(self.now, Mark::Stop, flow, 0);
        let client = 2 * flow;
        let received = self.ends[client as usize + 1].sink.bytes;
        let flow = &mut self.flows[flow as usize];
        if flow.over.is_none() {
            flow.over = Some(self.now);
            flow.stopped_with = Some(received);
        }
        if let Some(session) = self.ends[client as usize].session() {
            session.close(self.now, 0, "stopped");
        }
        self.drain(client)
    }

    fn deliver(&mut self, index: u32) -> Result<(), Error> {
        let train = self.network.train(index);
        let (e, len) = (train.to(), train.len());
        train.unpack(&mut self.scratch);
        let end = &mut self.ends[e as usize];
        let batch = Received {
            from: end.peer(),
            ecn: train.ecn,
            segment: train.segment(),
            bytes: &mut self.scratch[..len],
            waited: std::time::Duration::ZERO,
            granted: train.granted(),
        };
        self.network.recycle(index);
        self.network.note(self.now, Mark::Delivery, e, len);
        let flow = &mut self.flows[e as usize / 2];
        self.reply.clear();
        match end.on_datagrams(self.now, batch, &mut self.reply) {
            Outcome::Nothing => return Ok(()),
            Outcome::Reply => {
                self.out.begin(self.reply.len());
                self.out.next_segment().copy_from_slice(&self.reply);
                self.out.commit(self.reply.len(), self.reply.len());
                self.network.carry(self.now, e, Ecn::NotEct, &self.out);
                return Ok(());
            }
            Outcome::Session => {}
        }
        let joined = e & 1 == 1 && self.lanes[e as usize].is_some();
        if e & 1 == 1 {
            flow.on_received(self.now, end.sink.bytes);
        }
        if joined {
            // The lane may have had more bytes than the token.
            self.read_lane(e);
        }
        self.drain(e)
    }

    fn expire(&mut self, e: u32) -> Result<(), Error> {
        let end = &mut self.ends[e as usize];
        if end.armed != Some(self.now) {
            return Ok(());
        }
        end.armed = None;
        if end.expire(self.now) {
            self.network.note(self.now, Mark::Timer, e, 0);
            return self.drain(e);
        }
        self.arm(e);
        Ok(())
    }

    /// Brings the end `e` to rest after a turn.
    fn drain(&mut self, e: u32) -> Result<(), Error> {
        let was_closed = self.ends[e as usize].closed.is_some();
        if self.ends[e as usize].sink.app.is_some() {
            self.decide(e, true);
        }
        loop {
            self.transmit(e)?;
            self.pump(e);
            if !self.listen(e) {
                break;
            }
        }
        self.arm(e);
        if self.network.observer.is_some() {
            let stats = self.ends[e as usize].stats();
            self.show(e, Moment::Turn(&stats));
        }
        if !was_closed && self.ends[e as usize].closed.is_some() {
            self.note_closed(e);
        }
        Ok(())
    }

    fn transmit(&mut self, e: u32) -> Result<(), Error> {
        let end = &mut self.ends[e as usize];
        if end.count_turn(self.now) > MAX_TURNS {
            return Err(self.livelock(e));
        }
        for _ in 0..MAX_BATCHES {
            let Some(transmit) = end.transmit(self.now, &mut self.out) else {
                return Ok(());
            };
            let ecn = transmit.ecn;
            self.network.carry(self.now, e, ecn, &self.out);
        }
        Err(self.livelock(e))
    }

    /// Gives the application the session's events, and lets it supply data; true if it called the
    /// session.
    fn listen(&mut self, e: u32) -> bool {
        if self.ends[e as usize].sink.app.is_some() {
            return self.decide(e, false);
        }
        let end = &mut self.ends[e as usize];
        let flow = &mut self.flows[e as usize / 2];
        let client = e & 1 == 0;
        let mut called = false;
        while let Some(event) = end.event() {
            match event {
                Event::Connected { .. } => {
                    if client {
                        flow.connected = Some(self.now);
                    }
                    shown(&mut self.network, self.now, e, Moment::Connected);
                }
                Event::Delivered if client => {
                    if flow.supply.is_spent() && flow.delivered.is_none() {
                        flow.delivered = Some(self.now);
                        shown(&mut self.network, self.now, e, Moment::Delivered);
                        if let Some(session) = end.session() {
                            session.close(self.now, 0, "done");
                            called = true;
                        }
                    }
                }
                Event::Closed(reason) => {
                    shown(
                        &mut self.network,
                        self.now,
                        e,
                        Moment::Closed(&reason.to_string()),
                    );
                    end.closed = Some(reason);
                }
                Event::Readable | Event::Delivered => {}
            }
        }
        if client
            && flow.connected.is_some()
            && flow.over.is_none()
            && end.closed.is_none()
            && let Some(session) = end.session()
        {
            called |= flow.supply.top_up(session);
        }
        called
    }

    /// Settles a turn of an application that is not the simulator's.
    fn decide(&mut self, e: u32, has_turn: bool) -> bool {
        let (now, network) = (self.now, &mut self.network);
        let flow = &mut self.flows[e as usize / 2];
        let mut closed = None;
        let delivered = self.ends[e as usize].decide(now, has_turn, |event| match event {
            Event::Connected { .. } => {
                if e & 1 == 0 {
                    flow.connected = Some(now);
                }
                shown(network, now, e, Moment::Connected);
            }
            Event::Closed(reason) => {
                shown(network, now, e, Moment::Closed(&reason.to_string()));
                closed = Some(reason.clone());
            }
            Event::Delivered => shown(network, now, e, Moment::Delivered),
            Event::Readable => {}
        });
        if closed.is_some() {
            self.ends[e as usize].closed = closed;
        }
        delivered
    }

    fn arm(&mut self, e: u32) {
        let end = &mut self.ends[e as usize];
        if let Some(deadline) = end.rest() {
            let at = deadline.max(self.now);
            if end.armed.is_none_or(|armed| at < armed) {
                end.armed = Some(at);
                self.network.queue.push(at, What::Timer(e));
            }
        }
    }

    /// A flow is over when its client is, and its server if it ever had a session.
    fn note_closed(&mut self, e: u32) {
        let flow = &mut self.flows[e as usize / 2];
        let client = &self.ends[(e & !1) as usize];
        let server = &self.ends[(e | 1) as usize];
        flow.over.get_or_insert(self.now);
        if !flow.finished
            && client.closed.is_some()
            && (server.closed.is_some() || !server.has_session())
        {
            flow.finished = true;
            self.running -= 1;
        }
    }

    /// Reason why an end never rests.
    fn livelock(&self, e: u32) -> Error {
        let flow = e as usize / 2;
        // Whatever arrives in the moment that it is sent makes room for more at once.
        if self.scenario.is_instant(flow) {
            return Error::Instant { flow };
        }
        Error::Livelock {
            flow,
            side: if e & 1 == 0 { "client" } else { "server" },
            at: self.now,
        }
    }

    fn show(&mut self, e: u32, moment: Moment<'_>) {
        shown(&mut self.network, self.now, e, moment);
    }

    fn sample(&mut self) {
        let interval = self.scenario.interval;
        for (i, flow) in self.flows.iter_mut().enumerate() {
            if self.now > flow.start && flow.over.is_none() {
                let received = self.ends[2 * i + 1].sink.bytes;
                let stats = self.ends[2 * i].stats();
                let queue = self.network.links[flow.bottleneck].queued(self.now);
                let dropped = self.network.dropped(2 * i);
                let network = (dropped, queue.bytes());
                flow.sample(self.now, interval, &stats, received, network);
                if let Some(observer) = &mut self.network.observer {
                    observer.on_session(self.now, i, Side::Client, Moment::Sample(&stats));
                }
            }
        }
        for cross in &mut self.network.cross {
            cross.sample(self.now, interval);
        }
        self.network.queue.push(self.now + interval, What::Sample);
    }

    /// Samples every queue.
    fn sample_queues(&mut self) {
        for (link, queue_samples) in self.network.links.iter().zip(&mut self.queue_samples) {
            queue_samples.push(u32::try_from(link.queued(self.now).bytes()).unwrap_or(u32::MAX));
        }
        let next = self.now + self.scenario.queue_interval;
        self.network.queue.push(next, What::Look);
    }

    fn report(mut self) -> SimReport {
        let now = self.now;
        let seconds = now.since(Instant::EPOCH).as_secs_f64();
        let mut ends = self.ends.into_iter();
        let mut flows = Vec::with_capacity(self.flows.len());
        for (i, flow) in self.flows.into_iter().enumerate() {
            if let (Some(client), Some(server)) = (ends.next(), ends.next()) {
                let dropped = [2 * i, 2 * i + 1].map(|from| self.network.dropped(from));
                flows.push(flow.report(now, &client, &server, dropped));
            }
        }
        let scenario = self.scenario;
        let mut link = |number: usize| {
            let rate = scenario.link(number).map_or(Rate::UNLIMITED, |c| c.rate);
            let queue_samples = std::mem::take(&mut self.queue_samples[number]);
            LinkReport::new(
                self.network.links[number].counters(),
                rate,
                seconds,
                queue_samples,
            )
        };
        SimReport {
            seconds,
            seed: scenario.seed,
            packets: self.network.packets,
            events: self.events,
            trace_hash: format!("{:016x}", self.network.trace.hash()),
            forward: link(0),
            back: link(1),
            links: (2..scenario.link_count()).map(link).collect(),
            flows,
            cross: self.network.cross.into_iter().map(Cross::report).collect(),
        }
    }
}

/// Notifies the observer, if there is one.
fn shown(network: &mut Network<'_>, now: Instant, e: u32, moment: Moment<'_>) {
    if let Some(observer) = &mut network.observer {
        let side = if e & 1 == 0 {
            Side::Client
        } else {
            Side::Server
        };
        observer.on_session(now, e as usize / 2, side, moment);
    }
}

//! How does a run go? Events are taken in order; each gives one end a turn, after which the end is
//! drained: everything it sends enters its link, its application hears its events, its timer is set.
//!
//! Invariants: a world sees only [`Protocol`] and [`Session`](farhaul_core::protocol::Session); time
//! never goes back; a session that does not come to rest ends the run with an error, not a hang.

use std::time::Duration;

use farhaul_core::{
    datagram::{Received, TxBuf},
    protocol::{Event, Protocol},
    rng::Rng,
    stats::Stats,
    time::Instant,
};

use crate::{
    app::{Climb, Supply},
    end::{End, Heard},
    network::{Network, Way},
    queue::What,
    report::{FlowReport, LinkReport, Point, SideReport, SimReport, millis, rate, ratio},
    scenario::{Error, FlowConfig, Scenario},
    trace::Mark,
};

/// Makes the protocols of a flow's client and server, given the flow's index.
pub type Maker<'a> = &'a mut dyn FnMut(usize) -> (Box<dyn Protocol>, Box<dyn Protocol>);

/// Turns and batches of one end at one instant beyond which it is held to be stuck.
const MAX_TURNS: u32 = 100_000;
const MAX_BATCHES: u32 = 1 << 16;
/// The longest delivery: one batch.
const SCRATCH: usize = 1 << 16;

/// Runs `scenario` with protocols made by `make`.
pub fn run(scenario: &Scenario, make: Maker<'_>) -> Result<SimReport, Error> {
    scenario.validate()?;
    let mut world = World::new(scenario, make);
    world.run()?;
    Ok(world.report())
}

/// A flow apart from its two ends.
struct Flow {
    config: FlowConfig,
    start: Instant,
    supply: Supply,
    climb: Climb,
    connected: Option<Instant>,
    completed: Option<Instant>,
    delivered: Option<Instant>,
    /// When nothing more was to be expected.
    over: Option<Instant>,
    /// Neither end has anything left to do.
    finished: bool,
    /// What the receiver had when the flow was stopped.
    stopped_with: Option<u64>,
    series: Vec<Point>,
    /// Bytes received and re-sent at the last point of the series.
    sampled: (u64, u64),
}

struct World<'a> {
    scenario: &'a Scenario,
    now: Instant,
    end: Instant,
    network: Network,
    /// Flow `i` is between ends `2 * i`, the client, and `2 * i + 1`.
    ends: Vec<End>,
    flows: Vec<Flow>,
    running: usize,
    out: TxBuf,
    scratch: Box<[u8]>,
    reply: Vec<u8>,
    events: u64,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, make: Maker<'_>) -> Self {
        let rng = Rng::new(scenario.seed);
        let mut network = Network::new(scenario, &rng);
        let (mut ends, mut flows) = (Vec::new(), Vec::new());
        for (i, config) in scenario.flows.iter().enumerate() {
            let (client, server) = make(i);
            let index = u32::try_from(i).expect("flows are bounded by the scenario");
            let flow = rng.fork(&format!("flow/{i}"));
            ends.push(End::new(2 * index, client, flow.fork("client")));
            ends.push(End::new(2 * index + 1, server, flow.fork("server")));
            flows.push(Flow::new(scenario, config));
            network
                .queue
                .push(Instant::EPOCH + config.start, What::Start(index));
            if let Some(stop) = config.stop {
                network.queue.push(Instant::EPOCH + stop, What::Stop(index));
            }
        }
        if !scenario.interval.is_zero() {
            network
                .queue
                .push(Instant::EPOCH + scenario.interval, What::Sample);
        }
        Self {
            scenario,
            now: Instant::EPOCH,
            end: Instant::EPOCH + scenario.duration,
            network,
            running: flows.len(),
            ends,
            flows,
            out: TxBuf::new(scenario.max_segments),
            scratch: vec![0; SCRATCH].into_boxed_slice(),
            reply: Vec::new(),
            events: 0,
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
            match what {
                What::Parcel(index) => self.deliver(index)?,
                What::Timer(e) => self.expire(e)?,
                What::Start(flow) => self.start(flow)?,
                What::Stop(flow) => self.stop(flow)?,
                What::Sample => self.sample(),
            }
        }
        if self.running > 0 {
            self.now = self.end;
        }
        Ok(())
    }

    fn start(&mut self, flow: u32) -> Result<(), Error> {
        self.network.note(self.now, Mark::Start, flow, 0);
        if self.flows[flow as usize].over.is_some() {
            return Ok(());
        }
        let client = 2 * flow;
        self.ends[client as usize].connect(self.now, self.scenario.interface_mtu);
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
        let parcel = self.network.parcel(index);
        let (e, len) = (parcel.to, parcel.len());
        parcel.unpack(&mut self.scratch);
        let end = &mut self.ends[e as usize];
        let batch = Received {
            from: end.peer(),
            ecn: parcel.ecn,
            segment: parcel.segment(),
            bytes: &mut self.scratch[..len],
        };
        self.network.recycle(index);
        self.network.note(self.now, Mark::Delivery, e, len);
        let flow = &mut self.flows[e as usize / 2];
        self.reply.clear();
        match end.hear(self.now, batch, &mut self.reply) {
            Heard::Nothing => return Ok(()),
            Heard::Reply => {
                self.out.begin(self.reply.len());
                self.out.next_segment().copy_from_slice(&self.reply);
                self.out.commit(self.reply.len(), self.reply.len());
                let way = flow.way(e);
                self.network.carry(
                    self.now,
                    way,
                    farhaul_core::datagram::Ecn::NotEct,
                    &self.out,
                );
                return Ok(());
            }
            Heard::Session => {}
        }
        if e & 1 == 1 {
            flow.on_received(self.now, end.sink.bytes);
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
        loop {
            self.transmit(e)?;
            if !self.listen(e) {
                break;
            }
        }
        self.arm(e);
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
        let way = self.flows[e as usize / 2].way(e);
        for _ in 0..MAX_BATCHES {
            let Some(transmit) = end.transmit(self.now, &mut self.out) else {
                return Ok(());
            };
            self.network.carry(self.now, way, transmit.ecn, &self.out);
        }
        Err(self.livelock(e))
    }

    /// The application hears the session's events and keeps it supplied; true if it called it.
    fn listen(&mut self, e: u32) -> bool {
        let end = &mut self.ends[e as usize];
        let flow = &mut self.flows[e as usize / 2];
        let client = e & 1 == 0;
        let mut called = false;
        while let Some(event) = end.event() {
            match event {
                Event::Connected { .. } if client => {
                    flow.connected = Some(self.now);
                }
                Event::Delivered if client => {
                    if flow.supply.is_spent() && flow.delivered.is_none() {
                        flow.delivered = Some(self.now);
                        if let Some(session) = end.session() {
                            session.close(self.now, 0, "done");
                            called = true;
                        }
                    }
                }
                Event::Closed(reason) => end.closed = Some(reason),
                Event::Readable | Event::Connected { .. } | Event::Delivered => {}
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

    fn livelock(&self, e: u32) -> Error {
        Error::Livelock {
            flow: e as usize / 2,
            side: if e & 1 == 0 { "client" } else { "server" },
            at: self.now,
        }
    }

    fn sample(&mut self) {
        let queue = self.network.links[0].queued(self.now).bytes();
        let interval = self.scenario.interval;
        for (i, flow) in self.flows.iter_mut().enumerate() {
            if self.now > flow.start && flow.over.is_none() {
                let received = self.ends[2 * i + 1].sink.bytes;
                flow.sample(
                    self.now,
                    interval,
                    &self.ends[2 * i].stats(),
                    received,
                    queue,
                );
            }
        }
        self.network.queue.push(self.now + interval, What::Sample);
    }

    fn report(self) -> SimReport {
        let now = self.now;
        let mut ends = self.ends.into_iter();
        let mut flows = Vec::with_capacity(self.flows.len());
        for flow in self.flows {
            if let (Some(client), Some(server)) = (ends.next(), ends.next()) {
                flows.push(flow.report(now, &client, &server));
            }
        }
        SimReport {
            seconds: now.since(Instant::EPOCH).as_secs_f64(),
            seed: self.scenario.seed,
            packets: self.network.packets,
            events: self.events,
            trace_hash: format!("{:016x}", self.network.trace.hash()),
            forward: LinkReport::new(self.network.links[0].counters()),
            back: LinkReport::new(self.network.links[1].counters()),
            flows,
        }
    }
}

impl Flow {
    fn new(scenario: &Scenario, config: &FlowConfig) -> Self {
        let start = Instant::EPOCH + config.start;
        let rtt = scenario.forward.delay + scenario.back.delay + 2 * config.extra_delay;
        let share = scenario.forward.rate.bps() / scenario.flows.len() as u64;
        Self {
            config: *config,
            start,
            supply: Supply::new(config.bytes),
            climb: Climb::new(start, rtt, farhaul_core::units::Rate::from_bps(share)),
            connected: None,
            completed: None,
            delivered: None,
            over: None,
            finished: false,
            stopped_with: None,
            series: Vec::new(),
            sampled: (0, 0),
        }
    }

    const fn way(&self, from: u32) -> Way {
        Way {
            from,
            extra_delay: self.config.extra_delay,
        }
    }

    fn on_received(&mut self, now: Instant, total: u64) {
        self.climb.note(now, total);
        if self.completed.is_none() && self.config.bytes.is_some_and(|n| total >= n) {
            self.completed = Some(now);
        }
    }

    fn sample(
        &mut self,
        now: Instant,
        interval: Duration,
        sender: &Stats,
        received: u64,
        queue: u64,
    ) {
        let seconds = now.since(self.start).min(interval).as_secs_f64();
        let (received_before, repaired_before) = self.sampled;
        self.sampled = (received, sender.repaired);
        self.series.push(Point {
            at: now.since(Instant::EPOCH).as_secs_f64(),
            goodput_bits_per_second: rate(received - received_before, seconds),
            repaired: sender.repaired - repaired_before,
            rate_bits_per_second: sender.pacing_rate.as_f64(),
            window: sender.window,
            in_flight: sender.in_flight,
            rtt_ms: sender.rtt_smoothed.map(millis),
            queue,
        });
    }

    fn report(self, now: Instant, client: &End, server: &End) -> FlowReport {
        let since = |at: Instant| at.since(self.start).as_secs_f64();
        let received = self.stopped_with.unwrap_or(server.sink.bytes);
        let seconds = since(self.completed.or(self.over).unwrap_or(now));
        let (sender, receiver) = (client.stats(), server.stats());
        FlowReport {
            start: self.config.start.as_secs_f64(),
            seconds,
            received_bytes: received,
            goodput_bits_per_second: rate(received, seconds),
            connected: self.connected.map(since),
            completed: self.completed.map(since),
            delivered: self.delivered.map(since),
            time_to_90_percent: self.climb.reached.map(|d| d.as_secs_f64()),
            wire_over_goodput: ratio(sender.wire_sent, received),
            feedback_kib_per_gib: ratio(receiver.feedback_sent, received)
                .map(|r| r * f64::from(1 << 20)),
            closed: [&client.closed, &server.closed]
                .map(|reason| reason.as_ref().map(ToString::to_string)),
            sender: SideReport::new(&sender),
            receiver: SideReport::new(&receiver),
            series: self.series,
        }
    }
}

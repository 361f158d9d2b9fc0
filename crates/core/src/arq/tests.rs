//! The two halves against each other over a scripted path in virtual time.

mod feedback;

use std::{cmp::Reverse, collections::BTreeMap, sync::mpsc, time::Duration};

use super::{Content, Permit, Receiver, Report, Sender};
use crate::{
    congestion::{AckEvent, Allowance, CongestionController, LossEvent},
    datagram::Ecn,
    loss::Ranges,
    rng::Rng,
    stats::{Stats, Why},
    time::Instant,
    units::{Rate, Size},
};

struct Fixed(Allowance);

impl CongestionController for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }
    fn on_ack(&mut self, _: &AckEvent) {}
    fn on_loss(&mut self, _: &LossEvent) {}
    fn allowance(&self) -> Allowance {
        self.0
    }
}

const LEN: u32 = 1_000;

enum Flying {
    Data {
        /// Arrival at the host, which may take the data later.
        arrives: Option<Instant>,
        number: u64,
        offset: u64,
        len: u32,
    },
    State {
        settled: u64,
        interval: Duration,
        want: Option<u64>,
    },
    Back(Report),
}

/// Fate of a datagram by direction and time of sending: its delay, or `None` if the path drops the
/// datagram.
type Script<'a> = dyn FnMut(bool, Instant) -> Option<Duration> + 'a;

struct World {
    now: Instant,
    sender: Sender,
    receiver: Receiver,
    placed: Ranges,
    reports: u32,
    /// Delay of the newest packet at the host.
    waits: Duration,
    /// True if the sender waited for room there.
    waited: bool,
}

impl World {
    fn leave(&mut self) -> Vec<(bool, Flying)> {
        let mut out = Vec::new();
        loop {
            let permit = self.sender.permit(self.now);
            self.waited |= permit == Permit::Hold(Why::Peer);
            let Permit::Send { .. } = permit else {
                break;
            };
            let number = self.sender.next_number();
            let Some(piece) = self.sender.next_piece(LEN) else {
                break;
            };
            self.sender.log(self.now, Content::Piece(piece), LEN);
            self.sender.batch_sent(self.now, u64::from(LEN));
            out.push((
                true,
                Flying::Data {
                    arrives: None,
                    number,
                    offset: piece.offset,
                    len: piece.len,
                },
            ));
        }
        if self.sender.state_due() || self.sender.want_due() {
            let want = self.sender.take_want();
            let (settled, interval) = (self.sender.settled(), self.sender.take_state());
            out.push((
                true,
                Flying::State {
                    settled,
                    interval,
                    want,
                },
            ));
        }
        if self
            .receiver
            .feedback_due()
            .is_some_and(|at| at <= self.now)
            && let Some(report) = self.receiver.report(self.now)
        {
            self.reports += 1;
            out.push((false, Flying::Back(report.clone())));
        }
        out
    }

    fn arrive(&mut self, what: Flying) {
        match what {
            Flying::Data {
                arrives,
                number,
                offset,
                len,
            } => {
                let arrived = arrives.unwrap_or(self.now);
                if self
                    .receiver
                    .on_packet(arrived, number, LEN, true, Ecn::NotEct)
                {
                    self.placed.insert(offset..offset + u64::from(len));
                }
            }
            Flying::State {
                settled,
                interval,
                want,
            } => {
                self.receiver.on_state(settled, interval);
                if let Some(from) = want {
                    self.receiver.on_want(self.now, from);
                }
            }
            Flying::Back(report) => self.sender.on_report(self.now, &report).unwrap(),
        }
    }
}

/// Both halves, the path just opened.
fn world() -> World {
    let allowance = Allowance {
        window: Size::from_bytes(2_000_000),
        rate: Rate::mbit(80),
        quantum: Size::from_bytes(10_000),
    };
    let mut w = World {
        now: Instant::EPOCH,
        sender: Sender::new(Box::new(Fixed(allowance)), Rate::UNLIMITED),
        receiver: Receiver::default(),
        placed: Ranges::default(),
        reports: 0,
        waits: Duration::ZERO,
        waited: false,
    };
    w.sender.start(w.now, LEN, Duration::from_millis(40));
    w
}

/// Sends `total` bytes over the script; panics if that takes more than 1,000 virtual seconds.
fn transfer(total: u64, script: &mut Script<'_>) -> World {
    transfer_to(Duration::ZERO, total, script)
}

/// Transfers `total` bytes to a host that takes this long for a packet.
fn transfer_to(takes: Duration, total: u64, script: &mut Script<'_>) -> World {
    let mut w = world();
    let mut free = Instant::EPOCH;
    w.sender.send(1, 0, total);
    let mut flying: BTreeMap<Reverse<(Instant, u64)>, Flying> = BTreeMap::new();
    let mut serial = 0;
    while !w.sender.delivered_all() {
        let out = w.leave();
        for (forward, mut what) in out {
            serial += 1;
            if let Some(delay) = script(forward, w.now) {
                let mut at = w.now + delay;
                if let Flying::Data { arrives, .. } = &mut what
                    && !takes.is_zero()
                {
                    *arrives = Some(at);
                    free = free.max(at) + takes;
                    w.waits = free.since(at);
                    at = free;
                }
                flying.insert(Reverse((at, serial)), what);
            }
        }
        let arrival = flying.last_key_value().map(|(Reverse((at, _)), _)| *at);
        let timer = w.sender.next_timeout().map(|(at, _)| at.max(w.now));
        let feedback = w.receiver.feedback_due().map(|at| at.max(w.now));
        w.now = [arrival, timer, feedback]
            .into_iter()
            .flatten()
            .min()
            .expect("nothing ever happens");
        assert!(w.now < Instant::from_nanos(1_000_000_000_000), "stuck");
        while let Some(entry) = flying.last_entry()
            && entry.key().0.0 <= w.now
        {
            w.arrive(entry.remove());
        }
        if timer.is_some_and(|at| at <= w.now) {
            w.sender.on_timeout(w.now);
        }
    }
    assert_eq!(w.placed.total(), total, "acknowledged but not placed");
    w
}

fn stats(sender: &Sender) -> Stats {
    let mut stats = Stats::default();
    sender.fill_stats(&mut stats);
    stats
}

/// Most bytes of copies of the last packets, of 20 MB sent.
const TAIL: u64 = 320_000;
const DELAY: Duration = Duration::from_millis(20);

#[test]
fn a_clean_path_repairs_nothing_and_measures_itself() {
    let w = transfer(20_000_000, &mut |_, _| Some(DELAY));
    let s = stats(&w.sender);
    assert_eq!((s.packets_lost, s.timeouts, s.episodes), (0, 0, 0));
    assert!(s.repaired <= TAIL, "{} bytes repaired", s.repaired);
    assert_eq!(s.rtt_min, Some(2 * DELAY));
    assert!(w.reports < 500, "{} reports", w.reports);
}

#[test]
fn a_host_that_cannot_keep_up_is_waited_for() {
    // 20 of the 80 Mbit/s that the law sends; its window would have 750 ms of that wait at the host.
    let takes = Duration::from_micros(400);
    let mut now = Instant::EPOCH;
    let w = transfer_to(takes, 20_000_000, &mut |_, at| {
        now = at;
        Some(DELAY)
    });
    let s = stats(&w.sender);
    assert!(w.waited, "nobody waited for the host");
    assert!(w.waits <= Duration::from_millis(60), "{:?}", w.waits);
    assert_eq!((s.packets_lost, s.rtt_min), (0, Some(2 * DELAY)));
    let least = Duration::from_secs(8);
    let took = now.since(Instant::EPOCH);
    assert!(took < least + Duration::from_millis(400), "{took:?}");
    let quick = transfer(20_000_000, &mut |_, _| Some(DELAY));
    assert!(!quick.waited, "a host that keeps up was waited for");
}

#[test]
fn random_loss_both_ways_is_repaired_without_waste() {
    let mut rng = Rng::new(3);
    let w = transfer(20_000_000, &mut |_, _| (!rng.chance(0.02)).then_some(DELAY));
    let s = stats(&w.sender);
    assert!(
        (250_000..600_000 + TAIL).contains(&s.repaired),
        "{}",
        s.repaired
    );
    assert_eq!(s.packets_spurious, 0);
    assert!((1..=s.packets_lost).contains(&s.episodes), "{}", s.episodes);
    assert!(s.retransmits >= s.packets_lost && s.repaired / s.retransmits <= 1_500);
}

#[test]
fn many_lost_reports_in_a_row_are_asked_for() {
    let mut reports = 0;
    let w = transfer(20_000_000, &mut |forward, _| {
        reports += u32::from(!forward);
        (forward || !(20..40).contains(&reports)).then_some(DELAY)
    });
    let s = stats(&w.sender);
    assert!(
        s.repaired <= 20_000 + TAIL,
        "{} bytes repaired that had arrived",
        s.repaired
    );
}

#[test]
fn a_blackout_ends_and_the_transfer_goes_on() {
    let dark = Instant::from_nanos(500_000_000)..Instant::from_nanos(10_500_000_000);
    let w = transfer(20_000_000, &mut |_, now| {
        (!dark.contains(&now)).then_some(DELAY)
    });
    assert!(w.now < Instant::from_nanos(15_000_000_000), "{}", w.now);
    assert!(stats(&w.sender).timeouts > 3);
}

#[test]
fn reordering_is_learnt() {
    // By up to 20 ms: later than the last three intervals.
    for us in [3_000, 20_000] {
        let mut rng = Rng::new(5);
        let w = transfer(20_000_000, &mut |_, _| {
            Some(DELAY + Duration::from_micros(rng.below(us)))
        });
        let s = stats(&w.sender);
        assert!(s.packets_spurious > 0, "the script reorders");
        assert!(
            s.repaired < 1_000_000 + TAIL,
            "{us} us: {} of 20,000,000 bytes sent twice",
            s.repaired
        );
    }
}

#[test]
fn any_loss_that_stops_is_survived() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let until = Instant::from_nanos(rng.below(3_000_000_000));
        let (p, q) = (rng.unit(), rng.unit());
        transfer(300_000, &mut |forward, now| {
            let p = if forward { p } else { q };
            (now >= until || !rng.chance(p)).then_some(DELAY)
        });
    }
}

#[test]
fn feedback_on_packets_never_sent_and_broken_runs_are_refused() {
    let w = transfer(10_000, &mut |_, _| Some(DELAY));
    let mut sender = w.sender;
    let next = sender.next_number();
    let report = |largest, from, runs: &[u64]| Report {
        largest,
        from,
        runs: runs.to_vec(),
        ..Report::default()
    };
    assert!(sender.on_report(w.now, &report(next, next, &[1])).is_err());
    assert!(sender.on_report(w.now, &report(5, 0, &[1])).is_err());
    assert!(sender.on_report(w.now, &report(5, 4, &[1, 0])).is_err());
    assert!(sender.on_report(w.now, &report(5, 0, &[9])).is_err());
}

#[test]
fn a_tail_that_no_longer_fits_a_datagram_is_not_waited_for() {
    let mut w = world();
    w.sender.send(1, 0, 10_000);
    let sent = w.leave();
    assert!(!sent.is_empty());
    let mut sender = w.sender;
    while sender.next_piece(LEN / 2).is_some() {
        sender.log(w.now, Content::Probe, LEN);
    }
    // The datagrams have become smaller: nothing can leave, so nothing is due at once.
    assert!(sender.peek().is_none());
    assert!(!matches!(sender.next_timeout(), Some((_, Why::Pacing))));
}

#[test]
fn the_tail_is_sent_twice_rather_than_waited_for() {
    let mut late = 0;
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let w = transfer(20_000, &mut |forward, _| {
            (!forward || !rng.chance(0.05)).then_some(DELAY)
        });
        let s = stats(&w.sender);
        assert!(s.repaired <= 3 * 20_000 + 20_000, "{}", s.repaired);
        late += u32::from(w.now > Instant::from_nanos(75_000_000));
    }
    // Without copies two in three would have to wait for a repair.
    assert!(late <= 10, "{late} of 200 took more than a round trip");
}

/// A peer that reports every repair as lost has no more copies sent than of any other transfer.
#[test]
fn repairs_that_never_arrive_do_not_make_copies_without_end() {
    let mut w = world();
    w.sender.send(1, 0, 100_000);
    for _ in 0..2_000 {
        w.now += Duration::from_millis(5);
        w.sender.on_timeout(w.now);
        w.leave();
        // Small frames arrive, data never.
        let largest = w.sender.log(w.now, Content::Other, LEN);
        let from = w.sender.settled();
        let missing = largest - from;
        let runs = if missing > 0 {
            vec![1, missing]
        } else {
            vec![1]
        };
        let report = Report {
            from,
            largest,
            runs,
            ..Report::default()
        };
        w.sender.on_report(w.now, &report).expect("it was sent");
    }
    assert!(!w.sender.delivered_all());
    let (repaired, copies) = (stats(&w.sender).repaired, w.sender.copied());
    assert!(repaired > 200_000, "the data is still repaired: {repaired}");
    assert!(copies <= (64 << 10) + u64::from(LEN), "{copies}");
}

/// Lost packets leave room in the window, and a smaller datagram leaves more.
#[test]
fn little_is_sent_into_silence() {
    let mut w = world();
    w.sender.send(1, 0, 100_000_000);
    let mut late = 0;
    while w.now < Instant::EPOCH + Duration::from_secs(20) {
        while let Permit::Send { .. } = w.sender.permit(w.now) {
            let len = if w.sender.backoff() > 0 { LEN / 2 } else { LEN };
            let piece = w.sender.next_piece(len).expect("there is more");
            w.sender.log(w.now, Content::Piece(piece), len);
            w.sender.batch_sent(w.now, u64::from(len));
            late += u32::from(w.now > Instant::EPOCH + Duration::from_secs(10));
        }
        (w.now, _) = w.sender.next_timeout().expect("it goes on");
        w.sender.on_timeout(w.now);
    }
    assert!((10..=100).contains(&late), "{late} in ten seconds");
    // A report ends it, also one that acknowledges nothing.
    w.leave();
    let largest = w.sender.log(w.now, Content::Quiet, LEN);
    let from = w.sender.settled();
    let report = Report {
        from,
        largest,
        runs: vec![1, largest - from],
        ..Report::default()
    };
    assert!(matches!(w.sender.permit(w.now), Permit::Hold(Why::Repair)));
    w.sender.on_report(w.now, &report).expect("it was sent");
    assert!(!matches!(
        w.sender.permit(w.now),
        Permit::Hold(Why::Repair | Why::Peer)
    ));
}

#[test]
fn probes_into_silence_are_over_with_the_first_timeout() {
    let mut w = world();
    for _ in 0..18 {
        w.sender.log(w.now, Content::Probe, LEN);
    }
    let (at, _) = w.sender.next_timeout().expect("silence has an end");
    w.sender.on_timeout(at);
    let results: Vec<_> = std::iter::from_fn(|| w.sender.probe_result()).collect();
    assert_eq!(results.len(), 18);
    assert!(results.iter().all(|(_, acked)| !acked));
    assert_eq!(w.sender.in_flight(), 0);
}

#[test]
fn feedback_that_arrives_last_shows_how_far_it_is() {
    let mut w = world();
    let number = w.sender.log(w.now, Content::Probe, LEN);
    let last = w.sender.log(w.now, Content::Quiet, LEN);
    let arrived = w.now + DELAY;
    for (number, eliciting) in [(number, true), (last, false)] {
        w.receiver
            .on_packet(arrived, number, LEN, eliciting, Ecn::NotEct);
    }
    let report = w
        .receiver
        .report(arrived)
        .expect("something arrived")
        .clone();
    w.sender.on_report(arrived + DELAY, &report).unwrap();
    assert_eq!(stats(&w.sender).rtt_min, Some(DELAY * 2));
    assert_eq!(w.sender.probe_result(), Some((number, true)));
}

/// On a very slow link, where a report is of a packet of data and feedback of ours behind it.
#[test]
fn feedback_that_arrives_last_shows_a_rate_where_nothing_else_does() {
    let mut w = world();
    w.sender.send(1, 0, 100_000);
    let before = w.sender.interval();
    for _ in 0..4 {
        let number = w.sender.next_number();
        let piece = w.sender.next_piece(LEN).expect("there is more");
        w.sender.log(w.now, Content::Piece(piece), LEN);
        let last = w.sender.log(w.now, Content::Quiet, 30);
        let arrived = w.now + DELAY;
        for (number, len, eliciting) in [(number, LEN, true), (last, 30, false)] {
            w.receiver
                .on_packet(arrived, number, len, eliciting, Ecn::NotEct);
        }
        let report = w.receiver.report(arrived).expect("it arrived").clone();
        w.sender.on_report(arrived + DELAY, &report).unwrap();
        w.now += DELAY * 5;
    }
    // Sixteen packets of so slow a path take longer than any interval.
    let longest = Duration::from_millis(25);
    assert!(before < longest);
    assert_eq!(w.sender.interval(), longest);
}

/// The times of arrival come from a clock that may be set.
#[test]
fn the_time_of_arrival_does_not_go_back() {
    let mut receiver = Receiver::default();
    let told = [50, 20, 60].map(|ms| {
        let arrived = Instant::from_nanos(ms * 1_000_000);
        let number = receiver.end();
        receiver.on_packet(arrived, number, LEN, true, Ecn::NotEct);
        let now = Instant::from_nanos(100_000_000);
        receiver.report(now).expect("something arrived").arrived_us
    });
    assert_eq!(told, [50_000, 50_000, 60_000]);
}

#[test]
fn a_report_on_a_skipped_number_ends_the_session() {
    let mut w = world();
    w.sender.log(w.now, Content::Other, LEN);
    w.sender.skip();
    w.sender.log(w.now, Content::Other, LEN);
    let mut report = Report {
        from: 0,
        largest: 2,
        runs: vec![1, 1, 1],
        ..Report::default()
    };
    assert!(w.sender.on_report(w.now, &report).is_ok(), "seen as a hole");
    report.runs = vec![3];
    assert!(w.sender.on_report(w.now, &report).is_err());
}

/// A peer reports the newest packet at once, and the one before it a second later.
#[test]
fn what_is_acknowledged_late_shows_no_round_trip() {
    let mut w = world();
    for _ in 0..2 {
        w.sender.log(w.now, Content::Other, LEN);
    }
    let report = |largest| Report {
        from: largest,
        largest,
        runs: vec![1],
        delay_us: 0,
        ..Report::default()
    };
    w.sender.on_report(w.now + DELAY * 2, &report(1)).unwrap();
    let late = w.now + Duration::from_secs(1);
    w.sender.on_report(late, &report(0)).unwrap();
    let s = stats(&w.sender);
    assert_eq!((s.rtt_samples, s.rtt_latest), (1, Some(DELAY * 2)));
}

/// Tells of the queueing delays that it hears of.
struct Queues(mpsc::Sender<Option<Duration>>);

impl CongestionController for Queues {
    fn name(&self) -> &'static str {
        "queues"
    }
    fn on_ack(&mut self, ack: &AckEvent) {
        self.0.send(ack.queue_delay).expect("the test waits");
    }
    fn on_loss(&mut self, _: &LossEvent) {}
    fn allowance(&self) -> Allowance {
        Allowance {
            window: Size::UNLIMITED,
            rate: Rate::UNLIMITED,
            quantum: Size::from_bytes(1 << 16),
        }
    }
}

/// A peer sets its clock ahead by half an hour.
#[test]
fn no_queueing_delay_is_longer_than_the_round_trip() {
    let (law, queues) = mpsc::channel();
    let mut sender = Sender::new(Box::new(Queues(law)), Rate::UNLIMITED);
    let start = Instant::EPOCH;
    sender.start(start, LEN, DELAY * 2);
    for (number, arrived_us) in [(0, 50_000), (1, 1_800_000_000)] {
        let sent = start + DELAY * number;
        sender.log(sent, Content::Other, LEN);
        let report = Report {
            from: number.into(),
            largest: number.into(),
            runs: vec![1],
            delay_us: 0,
            arrived_us,
            ..Report::default()
        };
        sender.on_report(sent + DELAY * 2, &report).unwrap();
    }
    let heard: Vec<_> = queues.try_iter().collect();
    assert_eq!(heard, [Some(Duration::ZERO), Some(DELAY * 2)]);
}

/// A peer reports the newest packet alone, and never those before it.
#[test]
fn records_are_bounded_whatever_a_peer_leaves_out() {
    let unlimited = Allowance {
        window: Size::UNLIMITED,
        rate: Rate::gbit(100),
        quantum: Size::from_bytes(64_000),
    };
    let mut w = world();
    w.sender = Sender::new(Box::new(Fixed(unlimited)), Rate::UNLIMITED);
    w.sender.start(w.now, LEN, Duration::from_millis(40));
    w.sender.send(1, 0, u64::MAX / 2);
    let mut most = 0;
    for step in 0..2_000 {
        w.now += Duration::from_millis(1);
        for _ in 0..1_000 {
            if !matches!(w.sender.permit(w.now), Permit::Send { .. }) {
                break;
            }
            let piece = w.sender.next_piece(LEN).expect("there is no end");
            w.sender.log(w.now, Content::Piece(piece), LEN);
        }
        if step % 10 == 9 {
            let largest = w.sender.next_number() - 1;
            let report = Report {
                from: largest,
                largest,
                runs: vec![1],
                ..Report::default()
            };
            w.sender.on_report(w.now, &report).expect("it was sent");
        }
        most = most.max(w.sender.next_number() - w.sender.settled());
        w.sender.on_timeout(w.now);
    }
    // Three round trips, half a second, and the reports for which decided records are kept.
    assert!(most < 1_500_000, "{most}");
    assert!(w.sender.settled() > 500_000, "{}", w.sender.settled());
    assert!(stats(&w.sender).packets_lost > 0);
}

/// No peer is heard at all, but small frames go on.
#[test]
fn small_frames_do_not_make_records_grow_for_ever() {
    let mut w = world();
    w.sender.send(1, 0, 1_000);
    let piece = w.sender.next_piece(LEN).unwrap();
    w.sender.log(w.now, Content::Piece(piece), LEN);
    for _ in 0..(1 << 20) + 100_000 {
        w.sender.log(w.now, Content::Quiet, LEN);
    }
    let kept = w.sender.next_number() - w.sender.settled();
    assert!(kept <= 1 << 20, "{kept}");
    assert!(!w.sender.delivered_all(), "the piece is sent again");
    assert!(w.sender.peek().is_some());
}

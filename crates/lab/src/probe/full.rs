//! Tests whether the emulator is on time when the link is full. A stream of exactly the link's rate
//! runs behind a standing queue, so that the link never rests, with paced packets among it. The
//! time at which each of them should arrive follows from the packets that entered before it. The
//! stream's packets that never arrived did not enter.

use std::{cell::RefCell, net::SocketAddr, time::Duration};

use super::{
    FullFigures, ON_TIME_US, Plan, ProbeError, ProbeReport, Stream, clock,
    figures::{DelayFigures, signed},
    link_model::LinkModel,
    send::{Departure, Pace, Session, nanos},
    statistics::ratio,
    stream::Schedule,
    wire::{Arrived, Ask},
};

/// Trains sent for a prompt one, and how long a prompt call may take, ns.
const TRIES: u32 = 50;
const PROMPT: u64 = 60_000;
/// Pause between trains, beside the time they take on the link.
const IDLE: Duration = Duration::from_millis(1);
/// The stream may lose this share of its packets; with more the model does not say what entered.
const MAX_LOST: f64 = 0.01;

/// Packets that left, in order.
#[derive(Clone, Copy, Debug)]
enum Left {
    /// A paced packet.
    Packet(Departure),
    /// A part of the stream.
    Train(Departure),
}

/// Delay errors on the full link.
pub(super) fn measure(
    to: SocketAddr,
    plan: &Plan,
    stream: Stream,
    every: Duration,
) -> Result<ProbeReport, ProbeError> {
    let link = plan.expected.link_rate;
    let schedule = Schedule {
        rate: link,
        bucket: stream.limit / 2,
        time: stream.time,
        size: plan.size.into(),
    };
    let most = stream.time.as_nanos() / every.as_nanos().max(1) + 2;
    let limits = [u64::try_from(most).unwrap_or(u64::MAX), schedule.most()];
    let mut session = Session::open(to, plan, Ask::Arrivals, limits, [false, stream.gso])?;
    let (log, pace) = run(&mut session, plan, &schedule, every)?;
    let ends = [log.first(), log.last()].map(|left| match left {
        Some(Left::Packet(d) | Left::Train(d)) => d.at,
        None => 0,
    });
    let sent = [session.packets.number, session.stream.number];
    let arrived = session.finish(ends[1])?;
    let mut report = plan.report(to, &arrived);
    report.sender = pace.sender(sent[0] + sent[1], plan.size, ends);
    let lost = sent[1].saturating_sub(arrived.stream);
    if ratio(lost, sent[1]) > MAX_LOST {
        report.complaints.push(format!(
            "{lost} of {} packets of the stream were lost: the model does not say when the others are due",
            sent[1]
        ));
    }
    if report.sender.offered_bits_per_second < ratio(link, 1) * 0.99 {
        report.complaints.push(format!(
            "the sender offered {:.3} Gbit/s only: the link was not full",
            report.sender.offered_bits_per_second / 1e9
        ));
    }
    let delay = errors(&log, &arrived, plan);
    report.full = Some(FullFigures {
        lost: sent[0].saturating_sub(arrived.packets),
        on_time: delay.magnitude_p99_us <= ON_TIME_US,
        delay,
    });
    let mut rate = arrived.rate.unwrap_or_default().beside(Some(link));
    rate.packets = arrived.stream;
    rate.lost = lost;
    report.rate = Some(rate);
    Ok(report)
}

/// The first train begins the busy time of the link: when it entered must be known. Single trains leave for an
/// idle link until one is sent without the sender losing its processor within the call.
fn start_idle(session: &mut Session, log: &mut Vec<Left>, plan: &Plan) -> Result<(), ProbeError> {
    for _ in 0..TRIES {
        let departure = session.stream.send(u64::MAX)?;
        log.push(Left::Train(departure));
        if departure.took < PROMPT {
            return Ok(());
        }
        let bits = departure.count * u64::from(plan.size) * 8;
        let drained = Duration::from_secs_f64(ratio(bits, plan.expected.link_rate));
        clock::rest_until(clock::now() + 2 * drained + IDLE);
    }
    Ok(())
}

fn run(
    session: &mut Session,
    plan: &Plan,
    schedule: &Schedule,
    every: Duration,
) -> Result<(Vec<Left>, Pace), ProbeError> {
    let mut log = Vec::new();
    start_idle(session, &mut log, plan)?;
    let log = RefCell::new(log);
    let mut pace = Pace::default();
    let mut due = clock::now() + every;
    let packets = &mut session.packets;
    schedule.send(
        &mut session.stream,
        |now| {
            if now < due {
                return Ok(0);
            }
            let departure = packets.send(1)?;
            pace.late.push(nanos(now.duration_since(due)));
            pace.took.push(signed(departure.took, 0));
            due = (due + every).max(now);
            log.borrow_mut().push(Left::Packet(departure));
            Ok(u64::from(plan.size))
        },
        |departure| log.borrow_mut().push(Left::Train(departure)),
    )?;
    Ok((log.into_inner(), pace))
}

/// Arrivals of the paced packets against a link that carried what arrived.
fn errors(log: &[Left], arrived: &Arrived, plan: &Plan) -> DelayFigures {
    let size = u64::from(plan.size);
    let mut at = vec![
        None;
        arrived
            .packets
            .max(log.len() as u64)
            .try_into()
            .unwrap_or(0)
    ];
    for (number, when) in &arrived.arrivals {
        let place = usize::try_from(*number).ok().and_then(|n| at.get_mut(n));
        if let Some(place) = place {
            // Of two copies the first.
            place.get_or_insert(*when);
        }
    }
    let mut model = LinkModel::new(plan.expected.link_rate, plan.expected.delay_ns, None);
    let mut gaps = Missing(&arrived.gaps);
    let (mut errors, mut one_way) = (Vec::new(), Vec::new());
    for left in log {
        match left {
            Left::Train(train) => {
                let missing = gaps.within(train.first, train.first + train.count);
                let _ = model.offer(train.at, (train.count - missing) * size);
            }
            Left::Packet(packet) => {
                let number = usize::try_from(packet.first).ok();
                let Some(Some(when)) = number.and_then(|n| at.get(n)) else {
                    continue;
                };
                if let Some(due) = model.offer(packet.at, size) {
                    errors.push(signed(*when, due));
                    one_way.push(signed(*when, packet.at));
                }
            }
        }
    }
    DelayFigures::new(errors, one_way, plan.expected.one_way(size))
}

/// Runs of missing numbers in order, asked for in order.
struct Missing<'a>(&'a [(u64, u64)]);

impl Missing<'_> {
    /// Count of missing packets in `from..to`.
    fn within(&mut self, from: u64, to: u64) -> u64 {
        let mut missing = 0;
        while let Some((first, count)) = self.0.first() {
            let end = first + count;
            if *first >= to {
                break;
            }
            missing += end.min(to).saturating_sub((*first).max(from));
            if end > to {
                break;
            }
            self.0 = &self.0[1..];
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Expected, Mode, Paced};

    #[test]
    fn missing_numbers_are_counted_once_across_trains() {
        let mut missing = Missing(&[(3, 4), (20, 1)]);
        let counts = [(0, 5), (5, 10), (10, 20), (20, 30)].map(|(a, b)| missing.within(a, b));
        assert_eq!(counts, [2, 2, 0, 1]);
    }

    #[test]
    fn a_packet_behind_a_train_is_due_after_what_arrived_of_it() {
        // 8 Gbit/s: a byte per ns.
        let plan = Plan {
            mode: Mode::Paced(Paced {
                packets: 1,
                every: Duration::from_millis(1),
            }),
            size: 1_000,
            expected: Expected {
                delay_ns: 7_000,
                link_rate: 8_000_000_000,
                ..Expected::default()
            },
        };
        let departure = |first, count, at| Departure {
            first,
            count,
            at,
            took: 0,
        };
        let log = [
            Left::Train(departure(0, 7, 1_000)),
            Left::Packet(departure(0, 1, 1_500)),
        ];
        let arrived = Arrived {
            packets: 1,
            // 1,000 + 5 packets of the train + itself + the delay, and 2 us late.
            arrivals: vec![(0, 1_000 + 6_000 + 7_000 + 2_000)],
            gaps: vec![(1, 2)],
            ..Arrived::default()
        };
        let found = errors(&log, &arrived, &plan);
        assert_eq!(found.packets, 1);
        assert!((found.max_us - 2.0).abs() < 1e-9, "{found:?}");
    }
}

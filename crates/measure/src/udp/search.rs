//! Searches the highest rate of datagrams at which next to none is lost. The search bisects over
//! short trains, in a bounded number and time, and then confirms the rate by a longer one.

use std::{io, net::SocketAddr, time::Duration};

use farhaul_core::units::Rate;
use farhaul_io::clock;
use farhaul_link::Ecn;
use farhaul_udp::{Inbox, Outgoing, ReceiveOutcome, SendOutcome};
use rustix::event::PollFlags;
use serde::{Deserialize, Serialize};

use super::{ANSWER, ASK, Sender, Sent, Setting, farewell, precise, read_word, wait, word};

/// The lowest rate that is tried is this part of the highest.
const LOWEST: f64 = 1.0 / 1_024.0;
/// Halvings of the logarithm of that: to within 3 %.
const STEPS: u32 = 8;
/// Trains that must lose too much before a rate does: one may have met a pause of the receiver's.
const TRIES: u32 = 2;
/// Longer trains at the rate that was found; after each that loses too much the rate is lowered.
const CONFIRMATIONS: u32 = 5;
const STEP_BACK: f64 = 0.7;
/// Parts of the whole time: of a train of the search, and of a confirmation. All of them together fill it.
const PARTS: [u32; 2] = [32, 12];
/// Questions for a train's count, and the wait for each answer.
const QUESTIONS: u32 = 100;
const PATIENCE: Duration = Duration::from_millis(50);

/// A rate and what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Payload at the receiver.
    pub goodput_bits_per_second: f64,
    /// Share of the datagrams that were lost at it.
    pub loss: f64,
    /// Trains sent until the rate was found.
    pub trains: u32,
}

/// Looks for the highest rate, at most `most`, at which less than the share `limit` of the packets
/// of `packet` bytes is lost, for `time` at most. The receiver is [`serve`](super::serve).
pub fn highest(
    to: SocketAddr,
    (most, limit): (Rate, f64),
    packet: u32,
    time: Duration,
    setting: Setting,
) -> io::Result<Sent> {
    let mut sender = Sender::new(to, packet, setting)?;
    let (mut all, mut number) = (Sent::default(), 0);
    let found = search(most, limit, &mut |rate, long| {
        let train = sender.train(rate, time / PARTS[usize::from(long)])?;
        number += 1;
        all.packets += train.packets;
        all.bytes += train.bytes;
        all.seconds += train.seconds;
        let arrived = sender.arrived(number)?.min(train.packets);
        let bits = precise(arrived * u64::from(sender.segment)) * 8.0;
        Ok(Found {
            goodput_bits_per_second: bits / train.seconds.max(1e-9),
            loss: 1.0 - precise(arrived) / precise(train.packets.max(1)),
            trains: number,
        })
    })?;
    farewell(&mut sender.socket, to, sender.segment)?;
    Ok(Sent {
        found: Some(found),
        ..all
    })
}

/// The search over what `train` finds at a rate, in a short or in a long train.
fn search(
    most: Rate,
    limit: f64,
    train: &mut dyn FnMut(Rate, bool) -> io::Result<Found>,
) -> io::Result<Found> {
    let rate = |share: f64| most.scale(share);
    let mut carries = |share: f64| {
        for _ in 0..TRIES {
            if train(rate(share), false)?.loss < limit {
                return Ok::<_, io::Error>(true);
            }
        }
        Ok(false)
    };
    let mut share = 1.0;
    if !carries(share)? {
        let (mut low, mut high) = (LOWEST, 1.0);
        for _ in 0..STEPS {
            let middle = f64::sqrt(low * high);
            if carries(middle)? {
                low = middle;
            } else {
                high = middle;
            }
        }
        share = low;
    }
    let mut last = Found::default();
    for _ in 0..CONFIRMATIONS {
        last = train(rate(share), true)?;
        if last.loss < limit {
            return Ok(last);
        }
        share *= STEP_BACK;
    }
    let (lost, limit) = (last.loss * 100.0, limit * 100.0);
    Err(io::Error::other(format!(
        "no rate was found at which less than {limit} % is lost: {lost:.2} % at the last one, {}; \
         is the machine idle, and is there a receive buffer for a few packets?",
        rate(share / STEP_BACK)
    )))
}

impl Sender {
    /// Count of packets of train `number`, the last one sent, that have arrived. The question goes
    /// behind them.
    fn arrived(&mut self, number: u32) -> io::Result<u64> {
        let question = word(ASK, number.into(), 0);
        let mut inbox = Inbox::new();
        for _ in 0..QUESTIONS {
            match self.socket.send(&Outgoing {
                to: self.to,
                from: None,
                ecn: Ecn::NotEct,
                segment: question.len(),
                bytes: &question,
            }) {
                SendOutcome::Refused => return Err(io::Error::other("nobody listens there")),
                SendOutcome::Failed(e) => return Err(e),
                _ => {}
            }
            let until = clock::now() + PATIENCE;
            loop {
                match self.socket.receive(&mut inbox) {
                    ReceiveOutcome::Some { .. } => {
                        let words = inbox.messages().filter_map(|m| read_word(m.bytes));
                        let mut own =
                            words.filter(|(kind, n, _)| *kind == ANSWER && *n == u64::from(number));
                        if let Some((_, _, packets)) = own.next() {
                            return Ok(packets);
                        }
                    }
                    ReceiveOutcome::Empty => {
                        let left = until.since(clock::now());
                        if left.is_zero() || !wait(&self.socket, PollFlags::IN, Some(left))? {
                            break;
                        }
                    }
                    ReceiveOutcome::Refused => {
                        return Err(io::Error::other("nobody listens there"));
                    }
                    ReceiveOutcome::Failed(e) => return Err(e),
                }
            }
        }
        Err(io::Error::other(
            "the receiver does not say what has arrived",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that carries `capacity` and drops the rest, and the trains tried on it.
    fn path(capacity: f64) -> (io::Result<Found>, Vec<(u64, bool)>) {
        let mut tried = Vec::new();
        let found = search(Rate::gbit(1), 0.001, &mut |rate, long| {
            tried.push((rate.bps(), long));
            let carried = rate.as_f64().min(capacity);
            Ok(Found {
                goodput_bits_per_second: carried,
                loss: 1.0 - carried / rate.as_f64(),
                trains: u32::try_from(tried.len()).unwrap(),
            })
        });
        (found, tried)
    }

    fn whole(found: io::Result<Found>) -> u64 {
        Rate::from_f64(found.unwrap().goodput_bits_per_second).bps()
    }

    #[test]
    fn the_highest_rate_without_loss_is_found_to_within_three_per_cent() {
        for capacity in [2e6, 55e6, 321e6, 999e6] {
            let (found, tried) = path(capacity);
            let rate = found.unwrap().goodput_bits_per_second;
            assert!(
                rate <= capacity && rate > 0.97 * capacity,
                "{rate} of {capacity}"
            );
            assert!(tried.len() <= 19, "{tried:?}");
        }
        let (found, tried) = path(5e9);
        assert_eq!(whole(found), 1_000_000_000);
        assert_eq!(
            tried,
            [(1_000_000_000, false), (1_000_000_000, true)],
            "it need not be looked for"
        );
    }

    #[test]
    fn all_trains_together_take_no_longer_than_the_time() {
        let short = (1 + STEPS) * TRIES;
        let whole =
            f64::from(short) / f64::from(PARTS[0]) + f64::from(CONFIRMATIONS) / f64::from(PARTS[1]);
        assert!(whole <= 1.0, "{whole}");
    }

    #[test]
    fn one_bad_train_does_not_lower_the_rate_and_what_never_holds_is_an_error() {
        let mut trains = 0;
        let found = search(Rate::mbit(10), 0.001, &mut |rate, _| {
            trains += 1;
            Ok(Found {
                goodput_bits_per_second: rate.as_f64(),
                loss: if trains == 1 { 0.5 } else { 0.0 },
                trains,
            })
        });
        assert_eq!(whole(found), 10_000_000);
        let said = path(1e3).0.unwrap_err().to_string();
        assert!(said.contains("less than 0.1 % is lost"), "{said}");
    }

    #[test]
    fn a_confirmation_that_loses_is_repeated_at_less() {
        let found = search(Rate::mbit(10), 0.001, &mut |rate, long| {
            Ok(Found {
                goodput_bits_per_second: rate.as_f64(),
                loss: if long && rate > Rate::mbit(7) {
                    0.01
                } else {
                    0.0
                },
                trains: 0,
            })
        });
        assert_eq!(whole(found), 7_000_000);
    }
}

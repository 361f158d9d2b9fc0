//! Describes a network on the command line: the flags shared by every command that emulates or
//! simulates one, and their meaning for its two directions.

use std::{path::Path, time::Duration};

use farhaul_core::units::{Rate, Size};
use farhaul_link::{
    Aqm, Jitter, Loss, LossTrace, ParseError, PathConfig, Policer, QueueLimit, Reorder, Step,
    Window, duration, preset, share,
};

use crate::{exit::Failure, read, typed};

/// Round trip of the shortest queue that nobody chose: a machine that emulates one is not punctual to less.
const SHORTEST: Duration = Duration::from_millis(5);
/// Packets of the shortest queue that nobody chose.
const FEWEST: u32 = 10;
/// Longest packet with its IP header, bytes, unless another is chosen: Ethernet's.
pub(crate) const MTU: u32 = 1_500;

/// A network. Both directions are the same unless a flag ends in `-back`.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Network")]
pub(crate) struct PathArgs {
    /// Start from a named path, which the other flags change: lan, metro, transatlantic, transpacific,
    /// wifi, lte, leo, geo, or kachan-2013:RTT,LOSS. wifi, lte and leo change over time
    #[arg(long, value_name = "NAME", value_parser = preset)]
    profile: Option<PathConfig>,
    /// Round-trip time without queueing, half in each direction [default: 0]
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
    rtt: Option<Duration>,
    /// Random loss: 1%, ge:0.1%,8 (bursts: mean, packets per burst), or trace:FILE [default: 0]
    #[arg(long, value_name = "LOSS", value_parser = loss, allow_hyphen_values = true)]
    loss: Option<Loss>,
    /// Loss from far to near [default: as --loss]
    #[arg(long, value_name = "LOSS", value_parser = loss, allow_hyphen_values = true)]
    loss_back: Option<Loss>,
    /// Rate of the bottleneck, or "unlimited" [default: 10Gbit]
    #[arg(long, value_name = "RATE", value_parser = rate_of_link, allow_hyphen_values = true)]
    rate: Option<Rate>,
    /// Rate from far to near [default: as --rate]
    #[arg(long, value_name = "RATE", value_parser = rate_of_link, allow_hyphen_values = true)]
    rate_back: Option<Rate>,
    /// Queue at the bottleneck: 18MB, 50ms, 1000packets or 1bdp [default: 1bdp, with a round trip
    /// of at least 5 ms]
    #[arg(long, value_name = "SIZE|TIME", value_parser = queue, allow_hyphen_values = true)]
    queue: Option<Queue>,
    /// Queue from far to near [default: as --queue]
    #[arg(long, value_name = "SIZE|TIME", value_parser = queue, allow_hyphen_values = true)]
    queue_back: Option<Queue>,
    /// Random extra delay up to TIME; with ",reorder" packets may overtake
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    jitter: Option<Jitter>,
    /// Delay a share of the packets, as in 1%,2ms
    #[arg(long, value_name = "SHARE,TIME", allow_hyphen_values = true)]
    reorder: Option<Reorder>,
    /// Deliver a share of the packets twice
    #[arg(long, value_name = "SHARE", value_parser = share, allow_hyphen_values = true)]
    duplicate: Option<f64>,
    /// Flip a bit in a share of the packets
    #[arg(long, value_name = "SHARE", value_parser = share, allow_hyphen_values = true)]
    corrupt: Option<f64>,
    /// Outages, as in 5s+10s,60s+1s (from, length)
    #[arg(
        long,
        value_name = "FROM+LENGTH",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    blackout: Vec<Window>,
    /// Rates over time, as in 5s:1Gbit,8s:10Gbit
    #[arg(long, value_name = "TIME:RATE", value_delimiter = ',', value_parser = rate_step)]
    rate_steps: Vec<Step<Rate>>,
    /// Round-trip times over time, as in 5s:80ms,8s:20ms
    #[arg(long, value_name = "TIME:RTT", value_delimiter = ',', value_parser = delay_step)]
    delay_steps: Vec<Step<Duration>>,
    /// Drop what exceeds a token bucket, as in 5Gbit,1MB (rate, burst)
    #[arg(long, value_name = "RATE,SIZE", value_parser = policer, allow_hyphen_values = true)]
    policer: Option<Policer>,
    /// Queue management that marks packets: codel or codel:5ms,100ms, red or red:5ms,15ms,10%
    #[arg(long, value_name = "NAME")]
    ecn: Option<Aqm>,
}

impl PathArgs {
    /// Near to far, and far to near.
    pub(crate) fn paths(&self, mtu: u32) -> Result<[PathConfig; 2], Failure> {
        let there = self.path(mtu, self.rate, self.loss.as_ref(), self.queue);
        let back = self.path(
            mtu,
            self.rate_back.or(self.rate),
            self.loss_back.as_ref().or(self.loss.as_ref()),
            self.queue_back.or(self.queue),
        );
        for path in [&there, &back] {
            path.validate()
                .map_err(|error| Failure::usage(error.to_string()))?;
        }
        Ok([there, back])
    }

    fn path(
        &self,
        mtu: u32,
        rate: Option<Rate>,
        loss: Option<&Loss>,
        queue: Option<Queue>,
    ) -> PathConfig {
        let mut path = self.profile.clone().unwrap_or_default();
        path.mtu = Some(mtu);
        // A rate or delay that is given is not one of a profile that changes over time.
        if let Some(rate) = rate {
            path.rate = rate;
            path.rate_steps.clear();
        }
        if let Some(rtt) = self.rtt {
            path.delay = rtt / 2;
            path.delay_steps.clear();
        }
        if let Some(loss) = loss {
            path.loss = loss.clone();
        }
        if let Some(queue) = queue {
            path.queue = queue.limit(path.rate, path.delay * 2, mtu);
        } else if self.profile.is_none() && path.rate != Rate::UNLIMITED {
            let rtt = (path.delay * 2).max(SHORTEST);
            let queue = Queue::Bdp(1.0).limit(path.rate, rtt, FEWEST.saturating_mul(mtu));
            path.queue = queue;
        }
        path.jitter = self.jitter.or(path.jitter);
        path.reorder = self.reorder;
        path.duplicate = self.duplicate.unwrap_or(0.0);
        path.corrupt = self.corrupt.unwrap_or(0.0);
        replace(&mut path.blackouts, &self.blackout);
        replace(&mut path.rate_steps, &self.rate_steps);
        replace(&mut path.delay_steps, &self.delay_steps);
        path.policer = self.policer;
        path.aqm = self.ecn;
        path
    }
}

/// Replaces the profile's values by those that were given.
fn replace<T: Clone>(profile: &mut Vec<T>, given: &[T]) {
    if !given.is_empty() {
        given.clone_into(profile);
    }
}

/// A queue's size as written.
#[derive(Clone, Copy, Debug)]
enum Queue {
    Limit(QueueLimit),
    /// Number of the longest packets.
    Packets(u32),
    /// Multiples of rate times round-trip time.
    Bdp(f64),
}

impl Queue {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a product of positive numbers; a float-to-int `as` saturates"
    )]
    fn limit(self, rate: Rate, rtt: Duration, mtu: u32) -> QueueLimit {
        match self {
            Self::Limit(limit) => limit,
            Self::Packets(n) => QueueLimit::Bytes(Size::from_bytes(u64::from(n) * u64::from(mtu))),
            Self::Bdp(factor) => {
                let bytes = (rate.bytes_in(rtt) as f64 * factor) as u64;
                QueueLimit::Bytes(Size::from_bytes(bytes.max(mtu.into())))
            }
        }
    }
}

fn queue(text: &str) -> Result<Queue, String> {
    let lower = text.to_ascii_lowercase();
    let packets = ["packets", "packet", "pkts", "p"];
    if let Some(count) = packets.iter().find_map(|unit| lower.strip_suffix(unit))
        && count.chars().all(|c| c.is_ascii_digit())
    {
        let count = count.parse().ok().filter(|n| (1..=10_000_000).contains(n));
        return count
            .map(Queue::Packets)
            .ok_or_else(|| format!("'{text}' is not a number of packets such as 1000packets"));
    }
    if let Some(factor) = lower.strip_suffix("bdp") {
        return match factor.parse() {
            Ok(factor) if (0.001..=1000.0).contains(&factor) => Ok(Queue::Bdp(factor)),
            _ => Err(format!(
                "'{text}' is not a multiple such as 1bdp or 0.25bdp"
            )),
        };
    }
    if !text.is_empty() && text != "0" && text.chars().all(|c| c.is_ascii_digit()) {
        return Err(format!(
            "{text} what? a unit is needed: write {text}packets or {text}B"
        ));
    }
    let limit: Result<_, ParseError> = text.parse();
    limit.map(Queue::Limit).map_err(|e| match e {
        ParseError::Malformed(..) => {
            format!("'{text}' is not a queue such as 18MB, 50ms, 1000packets or 1bdp")
        }
        e => e.to_string(),
    })
}

/// A rate of a network.
fn rate_of_link(text: &str) -> Result<Rate, String> {
    refuse_bps(text)?;
    typed::rate(text)
}

/// Refuses tc's `bps`, which are bytes there and bits elsewhere.
fn refuse_bps(text: &str) -> Result<(), String> {
    let number = text.strip_suffix("bps");
    match number.filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        None => Ok(()),
        Some(number) => Err(format!(
            "'{text}' means bytes a second to tc, and bits to others: write {number}bit, or {}B for bytes",
            number.to_uppercase().replace('I', "i")
        )),
    }
}

fn policer(text: &str) -> Result<Policer, String> {
    let rate = text.split_once(',').map(|(rate, _)| rate);
    rate.map_or(Ok(()), refuse_bps)?;
    text.parse().map_err(text_of)
}

fn loss(text: &str) -> Result<Loss, String> {
    let Some(file) = text.strip_prefix("trace:") else {
        return text.parse().map_err(text_of);
    };
    let trace = read::trace(Path::new(file)).map_err(|e| format!("cannot read {file}: {e}"))?;
    LossTrace::parse(&trace).map(Loss::Trace).map_err(text_of)
}

fn rate_step(text: &str) -> Result<Step<Rate>, String> {
    let rate = text.split_once(':').map(|(_, rate)| rate);
    rate.map_or(Ok(()), refuse_bps)?;
    Step::parse(text, str::parse::<Rate>).map_err(text_of)
}

fn delay_step(text: &str) -> Result<Step<Duration>, String> {
    let step = Step::parse(text, duration).map_err(text_of)?;
    Ok(Step {
        to: step.to / 2,
        ..step
    })
}

#[expect(clippy::needless_pass_by_value, reason = "a mapping for map_err")]
fn text_of(error: impl ToString) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str, rate: Rate, rtt: Duration, mtu: u32) -> QueueLimit {
        queue(text).expect("a queue").limit(rate, rtt, mtu)
    }

    #[test]
    fn queues_are_bytes_times_packets_or_products() {
        let (rate, rtt) = (Rate::mbit(100), Duration::from_millis(100));
        let of = |n| QueueLimit::Bytes(Size::from_bytes(n));
        for (text, expected) in [
            ("100p", of(150_000)),
            ("1000packets", of(1_500_000)),
            ("1packet", of(1_500)),
            ("10pkts", of(15_000)),
            ("1BDP", of(1_250_000)),
            ("0.5bdp", of(625_000)),
            ("18MB", of(18_000_000)),
            ("50ms", QueueLimit::Time(Duration::from_millis(50))),
        ] {
            assert_eq!(bytes(text, rate, rtt, 1_500), expected, "{text}");
        }
        for bad in ["", "packets", "0packets", "xbdp", "1bdps", "99999999999p"] {
            let error = queue(bad).expect_err(bad);
            assert!(
                error.contains("1000packets") || error.contains("1bdp"),
                "{error}"
            );
        }
    }

    #[test]
    fn rates_of_tc_are_no_factor_of_eight() {
        for text in ["100mbps", "100Mbps", "8bps"] {
            let number = text.trim_end_matches("bps");
            let steps = format!("5s:{text}");
            let all = [
                rate_of_link(text).map(|_| ()),
                rate_step(&steps).map(|_| ()),
                policer(&format!("{text},1MB")).map(|_| ()),
            ];
            for e in all.map(|result| result.expect_err(text)) {
                assert!(
                    e.contains(&format!("write {number}bit, or {}B", number.to_uppercase())),
                    "{e}"
                );
            }
        }
        let binary = rate_of_link("1mibps").expect_err("bytes to tc");
        assert!(binary.contains("write 1mibit, or 1MiB"), "{binary}");
        for fine in [
            "100mbit",
            "100MBps",
            "unlimited",
            "12.5MB/s",
            "1mibit",
            "1MiB",
        ] {
            assert!(rate_of_link(fine).is_ok(), "{fine}");
        }
    }

    #[test]
    fn a_queue_that_nobody_chose_is_the_paths_product() {
        #[derive(clap::Parser)]
        struct Typed {
            #[command(flatten)]
            path: PathArgs,
        }
        let queue = |line: &str| {
            let typed: Typed = clap::Parser::parse_from(line.split_whitespace());
            let [forward, _] = typed.path.paths(1_500).expect("a path");
            match forward.queue {
                QueueLimit::Bytes(size) => size.bytes(),
                QueueLimit::Time(_) => 0,
            }
        };
        assert_eq!(queue("sim --rate 100Mbit --rtt 100ms"), 1_250_000);
        assert_eq!(queue("sim --rate 1Gbit"), 625_000, "of 5 ms");
        assert_eq!(queue("sim --rate 1Mbit --rtt 10ms"), 15_000, "ten packets");
        assert_eq!(queue("sim --rate 1Mbit --queue 1500B"), 1_500);
    }
}

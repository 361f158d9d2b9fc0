//! Models what a flow of the simulator costs its hosts. A scenario states the model for a protocol:
//! time for each datagram sent and received, and a share of a core throughout. The model gives a
//! figure only: no flow is slower for it.

use std::time::Duration;

use farhaul_sim::SideReport;

use super::{
    measure::exact,
    source::{Fields, Placed, Problem},
};
use farhaul_measure::registry::{self, Choice};

/// Keys of `[[processor]]`.
pub(super) const PROCESSOR: [&str; 4] = ["protocol", "sender", "receiver", "source"];
const END: [&str; 3] = ["sent", "received", "always"];

/// Time that one host spends on a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct End {
    /// Time for each datagram that the end sends.
    sent: Duration,
    /// Time for each datagram that the end receives.
    received: Duration,
    /// A core's share as long as the flow lasts: timers, and waiting in a loop.
    always: f64,
}

/// The hosts of the flows of one protocol.
#[derive(Clone, Debug)]
pub(super) struct Processor {
    /// Name of the protocol, as flows write it.
    pub(super) protocol: Placed<String>,
    pub(super) ends: Ends,
}

/// The sender's, and the receiver's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ends {
    pub(super) sender: End,
    pub(super) receiver: End,
}

impl End {
    fn read(fields: &Fields<'_>, name: &str) -> Result<Self, Problem> {
        let Some(end) = fields.table(name, &END)? else {
            let text = format!("[[processor]] needs {name}, as in {name} = {{ sent = \"9us\" }}");
            return Err(fields.problem(name, text));
        };
        Ok(Self {
            sent: end.duration("sent")?.unwrap_or_default(),
            received: end.duration("received")?.unwrap_or_default(),
            always: end.share("always")?.unwrap_or_default(),
        })
    }

    /// Per cent of a core for each Gbit/s of a flow that carried `bytes` in `seconds`; none if it carried nothing.
    pub(super) fn cost(&self, counts: &SideReport, bytes: u64, seconds: f64) -> Option<f64> {
        let busy = self.sent.as_secs_f64() * exact(counts.datagrams_sent)
            + self.received.as_secs_f64() * exact(counts.datagrams_received)
            + self.always * seconds;
        (bytes > 0).then(|| busy * 100.0 / (exact(bytes) * 8.0 / 1e9))
    }
}

impl Processor {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, Problem> {
        fields.needed("source", "\"28.1 % per Gbit/s, IV A\"")?;
        let protocol = fields.needed("protocol", "\"rwtp\"")?;
        let refused = |error| fields.problem("protocol", error);
        let entry = registry::protocol(&protocol.value).map_err(refused)?;
        entry.client(&Choice::default()).map_err(refused)?;
        Ok(Self {
            protocol,
            ends: Ends {
                sender: End::read(fields, "sender")?,
                receiver: End::read(fields, "receiver")?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{File, Metric, Runs, tests::runs};

    const FILE: &str = r#"name = "hosts"
duration = "2s"
[[link]]
name = "wan"
rate = "20Mbit"
rtt = "10ms"
[[flow]]
name = "one"
protocol = "{protocol}"
[vary]
protocol = ["tcp", "haul"]
[[processor]]
protocol = "tcp"
sender = { sent = "1ms", always = "10%" }
receiver = { always = "25%" }
source = "chosen"
[[expect]]
metric = "receiver_core"
min = 0
"#;

    #[test]
    fn a_packet_sent_or_received_and_the_time_between_cost_what_the_model_says() {
        let end = End {
            sent: Duration::from_micros(10),
            received: Duration::from_micros(5),
            always: 0.1,
        };
        let counts = SideReport {
            datagrams_sent: 50_000,
            datagrams_received: 20_000,
            ..SideReport::default()
        };
        // 0.5 s, 0.1 s and 0.2 s of 2 s, for a Gbit.
        let cost = end.cost(&counts, 125_000_000, 2.0).unwrap();
        assert!((cost - 80.0).abs() < 1e-9, "{cost}");
        assert_eq!(end.cost(&counts, 0, 2.0), None);
    }

    #[test]
    fn only_flows_of_the_protocol_have_a_processor() {
        let file = File::read("hosts.toml", FILE).unwrap();
        let runs = Runs {
            seeds: (1, 1),
            ..runs(1)
        };
        let results = file.run(&runs, &mut |_| {}).unwrap();
        let verdicts = file.summary(&results).verdicts;
        let ours = |case: &str| verdicts.iter().find(|v| v.case == case).unwrap().ours;
        let core = ours("protocol=tcp").unwrap();
        assert!((core - 0.25).abs() < 1e-9, "{core}");
        assert_eq!(ours("protocol=haul"), None);
        assert!(verdicts.iter().all(|v| v.metric == Metric::ReceiverCore));
        let cheaper = FILE.replace("sent = \"1ms\"", "sent = \"2ms\"");
        let other = File::read("hosts.toml", &cheaper).unwrap();
        let same = |i: usize| file.plans[i].fingerprint() == other.plans[i].fingerprint();
        assert_eq!([0, 1].map(same), [false, true]);
    }

    #[test]
    fn a_model_of_nothing_is_refused() {
        let second =
            "[[processor]]\nprotocol = \"tcp\"\nsender = {}\nreceiver = {}\nsource = \"x\"\n";
        for (text, expected) in [
            (
                FILE.replace("protocol = \"tcp\"", "protocol = \"tpc\""),
                "no protocol 'tpc'",
            ),
            (
                FILE.replace("receiver = {", "reciever = {"),
                "did you mean 'receiver'?",
            ),
            (
                FILE.replace("receiver = { always = \"25%\" }\n", ""),
                "[[processor]] needs receiver",
            ),
            (
                FILE.replace("source = \"chosen\"\n", ""),
                "[[processor]] needs source",
            ),
            (format!("{FILE}{second}"), "two [[processor]] of tcp"),
        ] {
            let said = File::read("hosts.toml", &text).unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
        }
    }
}

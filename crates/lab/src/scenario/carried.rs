//! Computes what the links of a flow can carry at most: the rate of the narrowest one without
//! headers, and the share that arrives.

use super::{measure::exact, plan::Plan};

/// IPv4 and UDP.
const HEADERS: u32 = 28;

/// Most that the links on a flow's way carry.
pub(super) struct Carried {
    /// The share of packets that no link loses or damages at random.
    pub(super) survive: f64,
    /// Payload of UDP that arrives, bit/s: at the first rates of the links, and if every packet is as long as it may be.
    pub(super) payload: f64,
}

impl Carried {
    /// Most on the way of the flow with this number; none if a link carries packets without payload
    /// only.
    pub(super) fn of(plan: &Plan, number: usize) -> Option<Self> {
        let scenario = plan.scenario(0);
        let [there, _] = scenario.ways(scenario.flows.get(number)?);
        let (mut survive, mut payload) = (1.0, f64::INFINITY);
        for link in there {
            let link = scenario.link(*link)?;
            survive *= (1.0 - link.loss.mean()) * (1.0 - link.corrupt);
            let mtu = link.mtu.or(scenario.interface_mtu)?;
            let length = exact(mtu.checked_sub(HEADERS)?.into());
            let whole = exact((mtu + scenario.framing).into());
            payload = f64::min(payload, link.rate.as_f64() * length / whole);
        }
        Some(Self {
            survive,
            payload: payload * survive,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{File, Runs, tests::runs};

    fn carried(link: &str) -> (f64, f64) {
        let text = format!(
            "name = \"c\"\nduration = \"1s\"\nmtu = 9000\n\
             [[link]]\nname = \"near\"\nrate = \"20Gbit\"\n{link}\n\
             [[link]]\nname = \"far\"\nrate = \"10Gbit\"\nloss = \"1%\"\n\
             [[flow]]\nname = \"one\"\npath = [\"near\", \"far\"]\n"
        );
        let file = File::read("c.toml", &text).unwrap_or_else(|e| panic!("{e}"));
        let of = Carried::of(&file.plans[0], 0).unwrap();
        (of.survive, of.payload / 1e9)
    }

    #[test]
    fn the_narrowest_link_carries_what_arrives_over_all_of_them() {
        let near = |a: (f64, f64), b: (f64, f64)| {
            assert!(
                (a.0 - b.0).abs() < 1e-9 && (a.1 - b.1).abs() < 1e-9,
                "{a:?}"
            );
        };
        let whole = 10.0 * 8_972.0 / 9_000.0;
        near(carried(""), (0.99, whole * 0.99));
        let both = 0.99 * 0.9 * 0.8;
        near(
            carried("loss = \"10%\"\ncorrupt = \"20%\""),
            (both, whole * both),
        );
        // Only the way to the receiver counts, and bursts by their mean.
        near(carried("back = { loss = \"50%\" }"), (0.99, whole * 0.99));
        near(carried("loss = \"ge:10%,8\""), (0.891, whole * 0.891));
        // 1,472 of 1,500 bytes of 20 Gbit/s are more than that.
        near(carried("mtu = 1500"), (0.99, whole * 0.99));
        near(
            carried("mtu = 576\nrate_steps = [\"1s:1Gbit\"]"),
            (0.99, whole * 0.99),
        );
    }

    const FLOWS: &str = r#"
name = "flows"
duration = "5s"
sample = "20ms"
[[link]]
name = "line"
rate = "20Mbit"
rtt = "20ms"
loss = "2%"
[[flow]]
name = "page"
bytes = "50kB"
count = 2
stagger = "2s"
[[flow]]
name = "long"
"#;

    #[test]
    fn shares_overheads_and_times_are_of_the_same_run() {
        let asked = [
            ("goodput", "long"),
            ("payload_share", "long"),
            ("overhead", "long"),
            ("net_overhead", "long"),
            ("fill_time", "long"),
            ("seconds", "page"),
            ("seconds_mean", "page"),
            ("seconds", "page-1"),
            ("seconds", "page-2"),
            ("seconds_mean", "long"),
        ];
        let expect = asked.map(|(metric, flow)| {
            let least = match metric {
                "goodput" => "\"1Mbit\"",
                "payload_share" => "\"1%\"",
                _ => "0",
            };
            format!("[[expect]]\nmetric = \"{metric}\"\nflow = \"{flow}\"\nmin = {least}\n")
        });
        let file = File::read("f.toml", &format!("{FLOWS}{}", expect.concat()));
        let file = file.unwrap_or_else(|e| panic!("{e}"));
        let one = Runs {
            seeds: (1, 1),
            ..runs(1)
        };
        let verdicts = file.summary(&file.run(&one, &mut |_| {}).unwrap()).verdicts;
        let ours: Vec<Option<f64>> = verdicts.iter().map(|v| v.ours).collect();
        let [
            goodput,
            share,
            overhead,
            net,
            fill,
            longest,
            mean,
            first,
            second,
            endless,
        ] = ours[..]
        else {
            panic!("{ours:?}");
        };
        let carried = 20e6 * 1_472.0 / 1_500.0 * 0.98;
        assert!((share.unwrap() - goodput.unwrap() / carried).abs() < 1e-9);
        assert!((0.5..1.0).contains(&share.unwrap()), "{share:?}");
        assert!((net.unwrap() / overhead.unwrap() - 0.98).abs() < 1e-9);
        assert!((1.0..1.1).contains(&net.unwrap()), "{net:?}");
        // When the window of 48 ms begins that is full: it may reach back to before the first byte.
        assert!((0.001..2.0).contains(&fill.unwrap()), "{fill:?}");
        let (first, second) = (first.unwrap(), second.unwrap());
        assert!((first - second).abs() > 1e-9, "one began later");
        assert!((mean.unwrap() - f64::midpoint(first, second)).abs() < 1e-9);
        assert!((longest.unwrap() - first.max(second)).abs() < 1e-9);
        assert_eq!(endless, Some(f64::INFINITY), "it has no end");
    }
}

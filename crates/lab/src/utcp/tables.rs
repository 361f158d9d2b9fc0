//! The answers as tables in Markdown: what both cost, and their rates over time side by side.

use std::fmt::Write as _;

use super::{Run, both, pairs};

/// Both tables of every place, Table 3 and Fig. 6 of the paper.
pub fn tables(runs: &[Run]) -> String {
    let mut text = String::new();
    costs(&mut text, runs);
    for (kernel, ours) in pairs(runs) {
        rates(&mut text, kernel, ours);
    }
    text
}

/// Over what the kernel costs.
fn ratio(ours: f64, kernel: f64) -> String {
    if kernel > 0.0 {
        format!("{:.2}", ours / kernel)
    } else {
        "-".into()
    }
}

fn costs(text: &mut String, runs: &[Run]) {
    let Some(any) = runs.first() else {
        return;
    };
    let _ = writeln!(
        text,
        "CUBIC on both, {} s a run, a processor of {:.0} MHz. Cost is MHz per Mbit/s, in brackets per cent \
         of a core per Gbit/s; ratios are U-TCP over K-TCP.\n",
        any.question.asked_seconds, any.processor_mhz
    );
    text.push_str(
        "| place | MTU | K-TCP Gbit/s | U-TCP Gbit/s | sender: K-TCP | U-TCP | ratio | receiver: K-TCP | U-TCP \
         | ratio | both: ratio | emulator: K-TCP | U-TCP | machine: K-TCP | U-TCP | ratio | law, % of the sender's CPU |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for (kernel, ours) in pairs(runs) {
        let gbps = |run: &Run| match run.invalid {
            None => format!("{:.2}", run.goodput_bits_per_second / 1e9),
            Some(_) if run.goodput_bits_per_second > 0.0 => {
                format!("({:.2})", run.goodput_bits_per_second / 1e9)
            }
            Some(_) => "failed".into(),
        };
        let cost =
            |end: &super::End| format!("{:.4} ({:.2})", end.mhz_per_mbps, end.cpu_percent_per_gbps);
        let figure =
            |cost: Option<f64>| cost.map_or_else(|| "-".into(), |cost| format!("{cost:.4}"));
        let machines = ours.machine_mhz_per_mbps.zip(kernel.machine_mhz_per_mbps);
        let machines = machines.map_or_else(|| "-".into(), |(ours, kernel)| ratio(ours, kernel));
        let law = ours.law.map_or_else(
            || "-".into(),
            |law| format!("{:.2}", law.share_of_cpu * 100.0),
        );
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {machines} | {law} |",
            ours.question.ground.name(),
            ours.question.mtu,
            gbps(kernel),
            gbps(ours),
            cost(&kernel.sender),
            cost(&ours.sender),
            ratio(ours.sender.mhz_per_mbps, kernel.sender.mhz_per_mbps),
            cost(&kernel.receiver),
            cost(&ours.receiver),
            ratio(ours.receiver.mhz_per_mbps, kernel.receiver.mhz_per_mbps),
            ratio(both(ours), both(kernel)),
            figure(kernel.emulator_mhz_per_mbps),
            figure(ours.emulator_mhz_per_mbps),
            figure(kernel.machine_mhz_per_mbps),
            figure(ours.machine_mhz_per_mbps),
        );
    }
    for run in runs {
        if let Some(why) = &run.invalid {
            let _ = writeln!(
                text,
                "\nNot valid: {}, MTU {}, {:?}: {why}",
                run.question.ground.name(),
                run.question.mtu,
                run.question.system
            );
        }
    }
}

/// Rates and their averages from the beginning.
fn rates(text: &mut String, kernel: &Run, ours: &Run) {
    let _ = writeln!(
        text,
        "\nThroughput over time, {}, MTU {}, Gbit/s (in brackets the average since the beginning):\n\n\
         | s | K-TCP | U-TCP |\n|--:|--:|--:|",
        ours.question.ground.name(),
        ours.question.mtu
    );
    let rows = kernel.intervals.len().max(ours.intervals.len());
    let cells = |run: &Run| {
        let (mut sum, mut time) = (0.0, 0.0);
        let cells = run.intervals.iter().map(|part| {
            let took = (part.to - part.from).max(0.0);
            sum += part.goodput_bits_per_second * took;
            time += took;
            let mean = if time > 0.0 { sum / time } else { 0.0 };
            let rate = part.goodput_bits_per_second;
            (part.to, format!("{:.2} ({:.2})", rate / 1e9, mean / 1e9))
        });
        cells.collect::<Vec<_>>()
    };
    let (kernel, ours) = (cells(kernel), cells(ours));
    for row in 0..rows {
        let at = ours.get(row).or(kernel.get(row)).map_or(0.0, |(at, _)| *at);
        let cell =
            |of: &[(f64, String)]| of.get(row).map_or_else(|| "-".into(), |(_, t)| t.clone());
        let _ = writeln!(text, "| {at:.1} | {} | {} |", cell(&kernel), cell(&ours));
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{System, tests::run},
        *,
    };

    #[test]
    fn costs_and_rates_stand_side_by_side() {
        let runs = [
            run(System::Kernel, 9_000, 0.1),
            run(System::User, 9_000, 0.12),
        ];
        let text = tables(&runs);
        assert!(
            text.contains(
                "| loopback | 9000 | 5.00 | 5.00 | 0.0500 (1.00) | 0.0600 (1.00) | 1.20 |"
            ),
            "{text}"
        );
        assert!(
            text.contains("| 1.20 | 0.2500 | 0.2500 | 0.2000 | 0.2400 | 1.20 | 0.50 |"),
            "{text}"
        );
        assert!(
            text.contains("| 2.0 | 6.00 (5.00) | 6.00 (5.00) |"),
            "{text}"
        );
    }
}

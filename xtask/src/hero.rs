//! The first figure of the README: one file over one path by farhaul and by other copiers, drawn from kept results.

use std::{fmt::Write as _, fs, path::Path};

use serde_json::Value;

use crate::{Outcome, run::print_line};

/// The kept runs, one JSON object a line.
const RUNS: &str = "lab/results/2026-11-25-copiers/runs.jsonl";
/// The figure.
const FIGURE: &str = "docs/img/hero.svg";
/// The path and the files of the bars, as the runs name them.
const CASE: (&str, &str) = ("10 Gbit 200 ms 1 %", "2 GiB");
/// The bytes of these files.
const BYTES: f64 = 2_147_483_648.0;
/// The tools that have a bar.
const TOOLS: [&str; 5] = ["farhaul", "qcp", "rsync", "scp", "rclone"];
/// The seconds after which every command is stopped, less the time that stopping takes.
const STOPPED: f64 = 59.5;
/// Pixels of the longest bar.
const LONGEST: f64 = 380.0;
/// Lines before the bars. The colours follow the reader's scheme.
const HEAD: &str = r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 310" role="img" font-family="system-ui, sans-serif">
<title>One file of 2 GiB over 10 Gbit/s, 200 ms and 1 % loss: Mbit/s of each copier</title>
<style>
text { fill: #1f2328; font-size: 15px } .t { font-size: 19px; font-weight: 600 } .s { fill: #59636e; font-size: 13px }
.n { text-anchor: end } .b { font-weight: 600 } .o { fill: #8c959f } .f { fill: #0969da }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .s { fill: #9198a1 } .o { fill: #6e7681 } .f { fill: #4493f8 } }
</style>
<text class="t" x="16" y="30">One file of 2 GiB over 10 Gbit/s, 200 ms, 1 % loss</text>
<text class="s" x="16" y="52">Mbit/s of the whole command. rsync, scp and rclone use the kernel's BBR. Every command is stopped after 60 s.</text>
"#;
/// Lines after the bars.
const TAIL: &str = r#"<text class="s" x="16" y="292">Emulated path, one run each, 25 November 2026, two cores for both ends and the network.</text>
</svg>
"#;

/// Result of one tool.
struct Bar {
    tool: &'static str,
    /// Bits per second.
    goodput: f64,
    seconds: f64,
    complete: bool,
}

/// Writes the figure.
pub(crate) fn run(root: &Path) -> Outcome {
    let text = fs::read_to_string(root.join(RUNS)).map_err(|e| vec![format!("{RUNS}: {e}")])?;
    let bars = bars(&text).map_err(|complaint| vec![format!("{RUNS}: {complaint}")])?;
    fs::write(root.join(FIGURE), drawing(&bars)).map_err(|e| vec![format!("{FIGURE}: {e}")])?;
    print_line(&format!("hero: {FIGURE}, {} bars", bars.len()));
    Ok(())
}

/// The bars in the order of [`TOOLS`].
fn bars(text: &str) -> Result<Vec<Bar>, String> {
    let runs: Vec<Value> = text
        .lines()
        .map(serde_json::from_str::<Value>)
        .collect::<Result<_, serde_json::Error>>()
        .map_err(|e| e.to_string())?;
    TOOLS
        .into_iter()
        .map(|tool| {
            let of_tool = |run: &&Value| {
                let case = &run["case"];
                case["tool"] == tool && case["path.name"] == CASE.0 && case["files.name"] == CASE.1
            };
            let run = runs
                .iter()
                .rfind(of_tool)
                .ok_or_else(|| format!("no run of {tool}"))?;
            let figure = |name: &str| {
                run["figures"][name]
                    .as_f64()
                    .ok_or_else(|| format!("{tool}: no {name}"))
            };
            Ok(Bar {
                tool,
                goodput: figure("goodput")?,
                seconds: figure("program:seconds")?,
                complete: figure("program:complete_share")? >= 1.0,
            })
        })
        .collect()
}

fn drawing(bars: &[Bar]) -> String {
    let most = bars.iter().map(|bar| bar.goodput).fold(1.0, f64::max);
    let mut drawn = HEAD.to_string();
    let mut y = 76;
    for bar in bars {
        let length = (bar.goodput / most * LONGEST).max(2.0);
        let (ours, weight) = if bar.tool == "farhaul" {
            ("f", " class=\"b\"")
        } else {
            ("o", "")
        };
        let end = 100.0 + length + 8.0;
        let name = bar.tool;
        let base = y + 20;
        let label = label(bar);
        // Writing to a string does not fail.
        let _ = writeln!(
            drawn,
            "<text class=\"n\" x=\"90\" y=\"{base}\">{name}</text>\n\
             <rect class=\"{ours}\" x=\"100\" y=\"{y}\" width=\"{length:.1}\" height=\"28\" rx=\"3\"/>\n\
             <text{weight} x=\"{end:.1}\" y=\"{base}\">{label}</text>"
        );
        y += 40;
    }
    drawn + TAIL
}

/// The rate, and how the command ended.
fn label(bar: &Bar) -> String {
    let rate = thousands(&format!("{:.0}", bar.goodput / 1e6));
    if bar.complete {
        return format!("{rate} Mbit/s: done in {:.1} s", bar.seconds);
    }
    if bar.seconds < STOPPED {
        return format!("{rate} Mbit/s: failed after {:.0} s", bar.seconds);
    }
    let share = bar.goodput * bar.seconds / 8.0 / BYTES * 100.0;
    format!("{rate} Mbit/s: {share:.0} % copied after 60 s")
}

/// Digits in groups of three.
fn thousands(digits: &str) -> String {
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_three() {
        let grouped = ["39", "345", "3745", "1234567"].map(thousands);
        assert_eq!(grouped, ["39", "345", "3,745", "1,234,567"]);
    }

    #[test]
    fn a_label_says_how_the_command_ended() {
        let bar = |goodput, seconds, complete| Bar {
            tool: "rsync",
            goodput,
            seconds,
            complete,
        };
        let said = [
            bar(3.745e9, 4.588, true),
            bar(9.0e7, 10.8, false),
            bar(3.95e7, 60.4, false),
        ];
        assert_eq!(
            said.map(|bar| label(&bar)),
            [
                "3,745 Mbit/s: done in 4.6 s",
                "90 Mbit/s: failed after 11 s",
                "40 Mbit/s: 14 % copied after 60 s"
            ]
        );
    }
}

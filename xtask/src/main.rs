//! Tasks that keep the tree in order: the gate, each of its stages alone, the quick loop, the long forms, releases.
//!
//! Plain `cargo` only: the gate must pass on a machine that has nothing but the toolchain.

mod attacks;
mod built;
mod campaign;
mod ci;
mod circles;
mod deny;
mod dist;
mod fuzz;
mod hero;
mod installs;
mod lab;
mod layers;
mod new;
mod openings;
mod platforms;
mod previous;
mod python;
mod quick;
mod record;
mod results;
mod run;
mod soak;
mod sources;
mod suite;
mod tidy;
mod tools;
mod types;
mod weight;

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use crate::run::Runner;

const USAGE: &str = "\
usage: cargo xtask <task>

  quick [--since REV] checks what changed: style, lints, tests of the changed crates, a few simulations
  ci [--strict] [--record]
                      runs every stage below; --strict also fails for what cannot be checked here,
                      --record keeps the seconds of each stage in xtask/record.csv
  soak [LIST | ITEM]  runs the long forms that the gate leaves out, each once for a state of the engine;
                      keeps results in lab/results/soak.csv

  fmt                 rustfmt, check only
  tidy                sizes, names, links, anchors, quoted results
  layers              which crate may depend on which; which files import each other in circles
  build               everything that the other stages run
  test [ARGS]         tests in groups: those of the gate, or what ARGS choose, which are those of
                      `cargo nextest run`, as -E 'package(farhaul)'
  python              the wheel, installed in a fresh environment and tested; needs Python 3.10 or newer
  versions            copies between today's program and the previous version's, both ways
  clippy              lints, all targets, warnings denied
  platforms           the crates that compile for macOS and Windows, and the socket of those
  doc                 documentation, warnings denied
  lab                 a short form of every study: published numbers beside ours
  fuzz [--seconds N] [TARGET [INPUT]] | fuzz --keep [TARGET]
                      replays the kept inputs of each fuzz target, then draws new ones for 2 s;
                      --keep replaces the kept inputs by the fewest that reach as much
  packages            crates as the registry takes them, the static binary as container and ssh have it, aarch64
  deny                licences, sources, bans and advisories of what is built in, by deny.toml
  campaign, campaign-alone
                      attacks and faults: the parts that depend on no clock, and those that need the machine alone
  alone               tests that measure

  new-law NAME        a congestion law that compiles, is tested and can be chosen
  new-protocol NAME   a protocol with a wire format of its own, and its tests

  dist [FOLDER]       the release, built, installed and used: crates, static binaries, tarballs, Debian packages, RPMs,
                      wheels, bill of materials; into target/packages
  results FOLDER [--quick]  measures the fixed cells into FOLDER below lab/results and quotes them in docs/results.md
  hero                draws docs/img/hero.svg, the README's first figure, from lab/results
";

/// Result of a task: nothing, or every complaint it has.
type Outcome = Result<(), Vec<String>>;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = root();
    let runner = |name| Runner::new(&root, name, Duration::from_hours(24), false);
    let outcome = match args.as_slice() {
        ["ci", rest @ ..]
            if rest
                .iter()
                .all(|word| ["--strict", "--record"].contains(word)) =>
        {
            let how = ci::How {
                strict: rest.contains(&"--strict"),
                record: rest.contains(&"--record"),
            };
            return ci::run(&root, how);
        }
        ["quick", rest @ ..] => quick::run(&mut runner("quick"), rest),
        ["soak", rest @ ..] => soak::run(&mut runner("soak"), rest),
        ["test", rest @ ..] if !rest.is_empty() => ci::test(&mut runner("test"), rest),
        ["new-law", name] => new::law(&root, name),
        ["new-protocol", name] => new::protocol(&root, name),
        ["results", rest @ ..] => results::run(&root, rest),
        ["hero"] => hero::run(&root),
        ["dist", rest @ ..] => dist::run(&mut runner("dist"), rest),
        ["fuzz", rest @ ..] => fuzz::run(&mut runner("fuzz"), rest),
        [name] if let Some(stage) = ci::find(name) => stage.run_one(&root),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(complaints) => {
            for complaint in complaints {
                eprintln!("error: {complaint}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Runs `job` for all `items`, whatever became of those before, and returns every complaint.
fn all<T>(items: &[T], mut job: impl FnMut(&T) -> Outcome) -> Outcome {
    let complaints: Vec<_> = items
        .iter()
        .filter_map(|item| job(item).err())
        .flatten()
        .collect();
    if complaints.is_empty() {
        Ok(())
    } else {
        Err(complaints)
    }
}

/// The workspace's folder: where cargo runs this from, since a build cache may hold a program of another clone.
fn root() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| "./xtask".into());
    let package = Path::new(&package);
    package.parent().unwrap_or(package).to_path_buf()
}

//! How is the tree kept in order? `cargo xtask ci` runs every gate; each gate can be run alone.
//!
//! Plain `cargo` only: the gate must pass on a machine that has nothing but the toolchain.

mod attacks;
mod ci;
mod deny;
mod dist;
mod fuzz;
mod layers;
mod new;
mod previous;
mod python;
mod results;
mod tidy;

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
};

const USAGE: &str = "\
usage: cargo xtask <task>

  ci [--stop-early]   every stage below, in this order
  fmt                 rustfmt, check only
  tidy                what no compiler checks: sizes, names, links, anchors, quoted results
  layers              who may depend on whom
  deny                licences, sources and bans of what is built in, by deny.toml
  clippy              lints, all targets, warnings denied
  doc                 documentation, warnings denied
  test                every crate's tests but the two below
  sim                 the simulator's scenarios, optimised with overflow checks
  cli                 the binary's tests
  versions            copies between today's program and the previous version's, both ways
  python              the wheel, installed in a fresh environment and tested; needs Python 3.10 and its package index
  lab                 the short version of every study: published numbers beside ours
  packages            what `dist` makes, unoptimised: installed and used in fresh roots
  fuzz [--seconds N] [TARGET]
                      each fuzz target runs, 10 s if nothing is said; needs a nightly toolchain,
                      without one they are only compiled

  new-law NAME        a congestion law that compiles, is tested and can be chosen
  new-protocol NAME   a protocol with a wire format of its own, and its tests

  dist [FOLDER]       the static binary, tarball, Debian package, bill of materials; into target/packages
  results FOLDER [--quick]  measures the fixed cells into FOLDER below lab/results and quotes them in README.md
";

/// What a task reports: nothing, or every complaint it has.
type Outcome = Result<(), Vec<String>>;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = root();
    let outcome = match args.as_slice() {
        ["ci", rest @ ..] => return ci::run(&root, rest.contains(&"--stop-early")),
        ["new-law", name] => new::law(&root, name),
        ["new-protocol", name] => new::protocol(&root, name),
        ["results", rest @ ..] => results::run(&root, rest),
        ["dist", rest @ ..] => dist::run(&root, rest),
        ["fuzz", rest @ ..] => fuzz::run(&root, rest),
        [name] if ci::stage(name).is_some() => ci::run_one(&root, name),
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

/// The workspace's folder: where cargo runs this from, since a build cache may hold a program of another clone.
fn root() -> PathBuf {
    let built = env!("CARGO_MANIFEST_DIR").into();
    let here = env::var_os("CARGO_MANIFEST_DIR").unwrap_or(built);
    let here = Path::new(&here);
    here.parent().unwrap_or(here).to_path_buf()
}

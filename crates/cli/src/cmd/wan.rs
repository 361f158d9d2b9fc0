//! How do I try a program on a network I do not have? `wan run` puts it on one of two emulated hosts.

use std::{ffi::OsString, fs, path::PathBuf, process};

use farhaul_emu::{
    WanReport,
    wan::{self, MTU_RANGE, WanConfig, WanError},
};
use serde_json::json;

use crate::{
    cmd::path::PathArgs,
    exit::{Exit, Failure},
};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Run a command on the host "near" (10.99.0.1), beside one on "far" (10.99.0.2).
    Run(Box<Run>),
}

/// Arguments of `wan run`.
#[derive(Debug, clap::Args)]
struct Run {
    #[command(flatten)]
    network: PathArgs,
    /// Longest packet, with its IP header
    #[arg(long, value_name = "BYTES", default_value_t = 9_000, value_parser = mtu, allow_hyphen_values = true)]
    mtu: u32,
    /// Seed of all randomness; the same seed gives the same losses for the same packets
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Shell command to run on the far host meanwhile; it is ended afterwards
    #[arg(long, value_name = "CMD")]
    far: Option<String>,
    /// Report as one JSON object on stderr (or in the file of --report)
    #[arg(long)]
    json: bool,
    /// Write the report to a file instead of stderr
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Command to run on the near host; its exit code becomes ours
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Emulates.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.action {
        Action::Run(run) => run.run(),
    }
}

impl Run {
    fn run(self) -> Result<(), Failure> {
        let [near_to_far, far_to_near] = self.network.paths(self.mtu)?;
        let config = WanConfig {
            near_to_far,
            far_to_near,
            mtu: self.mtu,
            seed: self.seed,
            ..WanConfig::default()
        };
        wan::enter_user_namespace().map_err(failure)?;
        let [program, arguments @ ..] = self.command.as_slice() else {
            return Err(Failure::usage("no command was given: put it after --"));
        };
        let mut near = process::Command::new(program);
        near.args(arguments);
        let far = self.far.as_ref().map(|command| {
            let mut far = process::Command::new("sh");
            far.args(["-c", command]).stdin(process::Stdio::null());
            far
        });
        let finished = wan::run(&config, near, far).map_err(failure)?;
        self.tell(&finished.report, finished.code)?;
        // Both hosts are gone by now, and stdout belongs to the program: nothing is left to say.
        process::exit(finished.code)
    }

    fn tell(&self, report: &WanReport, code: i32) -> Result<(), Failure> {
        let text = if self.json {
            let mut object = json!(report);
            object["ok"] = json!(true);
            object["exit"] = json!({ "code": code });
            object.to_string()
        } else {
            report.to_string()
        };
        let Some(file) = &self.report else {
            eprintln!("{text}");
            return Ok(());
        };
        fs::write(file, text + "\n").map_err(|error| {
            let message = format!("cannot write the report to {}: {error}", file.display());
            Failure::new(Exit::DestError, message)
        })
    }
}

fn mtu(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(mtu) if MTU_RANGE.contains(&mtu) => Ok(mtu),
        _ => Err(format!("give {} to {}", MTU_RANGE.start(), MTU_RANGE.end())),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "a mapping for map_err")]
fn failure(error: WanError) -> Failure {
    match error {
        WanError::Config(_) | WanError::Mtu(_) => Failure::usage(error.to_string()),
        WanError::Setup(_) => Failure::new(
            Exit::NetSetup,
            format!(
                "{error}; run as root, or allow unprivileged user namespaces and load the tun module; \
                 without either, 'farhaul wan relay' emulates one UDP port"
            ),
        ),
        WanError::Spawn { .. } => Failure::new(
            Exit::SourceMissing,
            format!("{error}; is it installed, and spelled right?"),
        ),
        _ => Failure::new(Exit::Internal, error.to_string()),
    }
}

//! `farhaul wan`: tries a program on a network that is not there. `wan run` puts the program on one
//! of two emulated hosts.

use std::{
    ffi::OsString,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use farhaul_emu::{
    Failed,
    calibrate::{self, Calibration},
    relay::{self, RelayConfig},
    wan::{self, Finished, MTU_RANGE, WanConfig, WanError},
};
use farhaul_link::duration;
use serde_json::json;

use crate::{
    cmd::path::{MTU, PathArgs},
    exit::{self, Exit, Failure},
    out,
    typed::{address, seed},
};

/// An emulated path is a new one each time.
const NO_MEMORY: (&str, &str) = ("FARHAUL_CP_PATH_MEMORY", "never");

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Run a command on the emulated host "near" (10.99.0.1), and with --far one on "far" (10.99.0.2)
    Run(Box<Run>),
    /// Emulate the network between clients and one UDP server; needs no privileges.
    Relay(Box<Relay>),
    /// Measure the highest rate that this machine can emulate accurately, and store it.
    Calibrate(Calibrate),
}

/// Arguments of `wan run`.
#[derive(Debug, clap::Args)]
struct Run {
    #[command(flatten)]
    network: PathArgs,
    /// Longest packet, with its IP header
    #[arg(long, value_name = "BYTES", default_value_t = MTU, value_parser = mtu, allow_hyphen_values = true)]
    mtu: u32,
    /// Seed of all randomness; the same seed gives the same losses for the same packets
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    seed: u64,
    /// Shell command for the far host; farhaul ends this command after the near one. If the far command
    /// fails earlier, farhaul exits with its code, unless the near command fails too
    #[arg(long, value_name = "CMD")]
    far: Option<String>,
    /// Report as one JSON object on stderr (or in the file of --report)
    #[arg(long)]
    json: bool,
    /// Write the report to FILE (- for stdout) instead of stderr
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Run above the rate that `wan calibrate` measured, and mark the report
    #[arg(long)]
    i_know: bool,
    /// Command to run on the near host; farhaul exits with its code
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Emulates.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.action {
        Action::Run(run) => run.run(),
        Action::Relay(relay) => relay.run(),
        Action::Calibrate(calibrate) => calibrate.run(),
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
        near.args(arguments).env(NO_MEMORY.0, NO_MEMORY.1);
        let far = self.far.as_ref().map(|command| {
            let mut far = process::Command::new("sh");
            far.args(["-c", command]).stdin(process::Stdio::null());
            far.env(NO_MEMORY.0, NO_MEMORY.1);
            far
        });
        let limited = self.above_ceiling(&config)?;
        let mut finished = wan::run(&config, near, far).map_err(failure)?;
        finished.report.emulator_limited = limited;
        self.print(&finished)?;
        // Both hosts have ended by now, and stdout belongs to the program: nothing more is printed.
        process::exit(code(&finished))
    }

    /// True if the rate is above what this machine was calibrated for; refused unless wanted.
    fn above_ceiling(&self, config: &WanConfig) -> Result<bool, Failure> {
        let Some(calibration) = Calibration::load() else {
            return Ok(false);
        };
        let ceiling = calibration.ceiling(config.mtu);
        let rate = config.near_to_far.rate.max(config.far_to_near.rate);
        if rate <= ceiling {
            return Ok(false);
        }
        if self.i_know {
            return Ok(true);
        }
        Err(Failure::usage(format!(
            "a rate of {rate} is above the {ceiling} that this machine can emulate at mtu {}: choose a lower \
             one, or add --i-know to mark the result",
            config.mtu
        )))
    }

    fn print(&self, finished: &Finished) -> Result<(), Failure> {
        let text = if self.json {
            let mut object = json!(finished.report);
            object["ok"] = json!(finished.far.is_none());
            let exit = match u8::try_from(code(finished)) {
                Ok(0) => Exit::Ok,
                other => Exit::Program(other.unwrap_or(u8::MAX)),
            };
            object["exit"] = exit::object(exit);
            if let Some(failed) = &finished.far {
                object["far"] = json!({ "code": failed.code, "stderr": failed.said });
            }
            object.to_string()
        } else {
            finished.report.to_string()
        };
        if let Some(failed) = finished.far.as_ref().filter(|_| !self.json) {
            errln!("{}", self.far_failed(failed));
        }
        let Some(file) = &self.report else {
            errln!("{text}");
            return Ok(());
        };
        if file == Path::new("-") {
            out::line(text);
            return Ok(());
        }
        fs::write(file, text + "\n").map_err(|error| {
            let message = format!("cannot write the report to {}: {error}", file.display());
            Failure::new(Exit::DestError, message)
        })
    }

    fn far_failed(&self, failed: &Failed) -> String {
        let command = self.far.as_deref().unwrap_or_default();
        let mut text = format!(
            "farhaul: the far program ended with {} before the near one was done: {command}",
            failed.code
        );
        if failed.said.is_empty() {
            text += "; nothing on stderr";
        } else {
            text += "; last lines of stderr:";
        }
        for line in failed.said.lines() {
            text += "\n  ";
            text += line;
        }
        text
    }
}

/// The near program's code; the far one's where only that failed.
fn code(finished: &Finished) -> i32 {
    match &finished.far {
        Some(failed) if finished.code == 0 => failed.code,
        _ => finished.code,
    }
}

/// Arguments of `wan relay`.
#[derive(Debug, clap::Args)]
struct Relay {
    #[command(flatten)]
    network: PathArgs,
    /// Address and port that clients send to
    #[arg(long, value_name = "ADDR", value_parser = address)]
    listen: SocketAddr,
    /// Address and port of the server
    #[arg(long, value_name = "ADDR", value_parser = address)]
    to: SocketAddr,
    /// Longest packet, with its IP header; longer ones are dropped
    #[arg(long, value_name = "BYTES", default_value_t = MTU, value_parser = mtu, allow_hyphen_values = true)]
    mtu: u32,
    /// Seed of all randomness
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    seed: u64,
    /// Report at the end as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

impl Relay {
    fn run(&self) -> Result<(), Failure> {
        if self.listen == self.to {
            return Err(Failure::usage(
                "--listen and --to are the same: --to is where the server listens",
            ));
        }
        let [forward, back] = self.network.paths(self.mtu)?;
        let config = RelayConfig {
            listen: self.listen,
            to: self.to,
            forward,
            back,
            seed: self.seed,
            memory: WanConfig::default().memory,
        };
        let relay = relay::Relay::start(&config).map_err(|error| {
            let text = format!(
                "cannot listen at {}: {error}; choose an address of this machine and a free port",
                self.listen
            );
            Failure::new(Exit::NetSetup, text)
        })?;
        errln!(
            "relaying {} to {} until interrupted",
            relay.local_addr(),
            self.to
        );
        let report = relay
            .until_signal()
            .map_err(|error| Failure::new(Exit::Internal, format!("the relay failed: {error}")))?;
        if self.json {
            let mut object = json!(report);
            object["ok"] = json!(true);
            out::json(&object);
        } else {
            errln!("{report}");
        }
        Ok(())
    }
}

/// Arguments of `wan calibrate`.
#[derive(Debug, clap::Args)]
struct Calibrate {
    /// Duration of each of the four measurements
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration)]
    each: Duration,
    /// Print the result as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

impl Calibrate {
    fn run(&self) -> Result<(), Failure> {
        if !(MIN_EACH..=MAX_EACH).contains(&self.each) {
            return Err(Failure::usage("--each is out of range: 100ms to 60s"));
        }
        wan::enter_user_namespace().map_err(failure)?;
        let calibration = calibrate::measure(self.each).map_err(failure)?;
        let kept = calibration.save();
        if self.json {
            let mut object = json!(calibration);
            object["ok"] = json!(true);
            out::json(&object);
        } else {
            for p in &calibration.points {
                out::line(format_args!(
                    "mtu {}: {:.1} Gbit/s delivered with {:.2} of a core for the router; at half of it \
                     released {:.0}/{:.0} us late (p50/p99); runs up to {:.1} Gbit/s are accepted",
                    p.mtu,
                    p.capacity_bps / 1e9,
                    p.router_cores,
                    p.late_p50_us,
                    p.late_p99_us,
                    p.ceiling_bps / 1e9,
                ));
            }
        }
        match kept {
            Ok(file) => errln!("kept in {}", file.display()),
            Err(error) => errln!("farhaul: not stored for later runs: {error}"),
        }
        Ok(())
    }
}

const MIN_EACH: Duration = Duration::from_millis(100);
const MAX_EACH: Duration = Duration::from_mins(1);

fn mtu(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(mtu) if MTU_RANGE.contains(&mtu) => Ok(mtu),
        _ => Err(format!("give {} to {}", MTU_RANGE.start(), MTU_RANGE.end())),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "a mapping for map_err")]
pub(super) fn failure(error: WanError) -> Failure {
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
        _ => Failure::internal(&error),
    }
}

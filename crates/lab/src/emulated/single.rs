//! Runs this program at both ends of an emulated network ([`EmulatedRun`]). Each run starts a
//! server on the far host and a client on the near one, as separate processes, and reads the
//! client's output.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use farhaul_emu::{
    Host, Service, WanReport,
    wan::{Wan, WanConfig},
};
use farhaul_io::clock;
use farhaul_udp::netns;
use serde_json::Value;
use tempfile::TempDir;

use super::{
    EmulatedRunError,
    relayed::{RelayPath, Relayed},
};
use farhaul_measure::bench::Report;

/// Port of servers on the far host.
const PORT: u16 = 17_992;

/// Result of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    /// Time from the start of the command to its end, s.
    pub seconds: f64,
    /// Bytes of file content.
    pub bytes: u64,
}

impl Copied {
    /// Content per time.
    #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
    pub fn bits_per_second(&self) -> f64 {
        if self.seconds > 0.0 {
            self.bytes as f64 * 8.0 / self.seconds
        } else {
            0.0
        }
    }
}

/// An emulated network and the program that runs on it.
pub struct EmulatedRun {
    ground: Ground,
    program: PathBuf,
    /// Folder with the programs' keys, so that the user's own are not touched.
    config: TempDir,
}

/// Network that carries the packets.
enum Ground {
    /// Two hosts with a router between them.
    Hosts(Box<Wan>),
    /// One UDP port on this host, for want of privileges.
    Relay(Box<Relayed>),
}

impl EmulatedRun {
    /// Builds two hosts; `program` is the farhaul binary.
    pub fn build(network: &WanConfig, program: &Path) -> Result<Self, EmulatedRunError> {
        Self::on(Ground::Hosts(Box::new(Wan::start(network)?)), program)
    }

    /// Runs without privileges: each run goes through a UDP relay on this host. Only our own
    /// protocols can.
    pub fn relayed(network: &WanConfig, program: &Path) -> Result<Self, EmulatedRunError> {
        network.validate()?;
        Self::on(Ground::Relay(Box::new(Relayed::new(network))), program)
    }

    fn on(ground: Ground, program: &Path) -> Result<Self, EmulatedRunError> {
        let config = tempfile::tempdir()
            .map_err(|e| EmulatedRunError::Start("a temporary folder".into(), e))?;
        Ok(Self {
            ground,
            program: program.to_path_buf(),
            config,
        })
    }

    /// Removes the network and returns its report.
    pub fn finish(self) -> Result<WanReport, EmulatedRunError> {
        match self.ground {
            Ground::Hosts(wan) => Ok(wan.finish()?),
            Ground::Relay(relayed) => relayed.finish(),
        }
    }

    /// `farhaul bench` for `seconds` with `more` arguments.
    pub fn bench(&self, seconds: u64, more: &[&str]) -> Result<Report, EmulatedRunError> {
        let server = self.serve(&["bench", "serve", "-1"])?;
        let time = seconds.to_string();
        let args = ["bench", server.address(), "-t", &time, "--json"];
        report(&self.ask(self.own(&[&args[..], more].concat()))?)
    }

    /// The kernel's TCP under `law` for `seconds`, driven by our own blaster.
    pub fn tcp(&self, law: &str, seconds: u64) -> Result<Report, EmulatedRunError> {
        let far = self.far()?;
        let listen = format!("{}:{PORT}", far.address());
        let _server = start(far, self.own(&["_tcp", "serve", &listen]))?;
        let time = seconds.to_string();
        report(&self.ask(self.own(&["_tcp", "blast", &listen, law, "--time", &time]))?)
    }

    /// `farhaul cp` of `from` into the folder `into`, through `farhaul serve`; timed from outside, so
    /// that nothing the program does is left out.
    pub fn copy(&self, from: &[&Path], into: &Path) -> Result<Copied, EmulatedRunError> {
        let share = format!("copy={}:rw", into.display());
        let server = self.serve(&["serve", "--share", &share, "--allow", "any"])?;
        let mut cp = self.own(&["cp", "--json", "--trust-any"]);
        cp.args(from).arg(format!("{}::copy/", server.address()));
        let begin = clock::now();
        let json = self.ask(cp)?;
        let seconds = clock::now().since(begin).as_secs_f64();
        let word: Value = serde_json::from_str(&json)
            .map_err(|e| EmulatedRunError::Word("farhaul cp".into(), e.to_string()))?;
        match word["bytes_payload"].as_u64() {
            Some(bytes) => Ok(Copied { seconds, bytes }),
            None => Err(EmulatedRunError::Word("farhaul cp".into(), json)),
        }
    }

    /// The far host, for what only a host can carry.
    const fn far(&self) -> Result<&Host, EmulatedRunError> {
        match &self.ground {
            Ground::Hosts(wan) => Ok(wan.far()),
            Ground::Relay(_) => Err(EmulatedRunError::NoHosts),
        }
    }

    /// Starts one of our own servers on the far side.
    fn serve(&self, args: &[&str]) -> Result<Server<'_>, EmulatedRunError> {
        let mut command = self.own(args);
        match &self.ground {
            Ground::Hosts(wan) => {
                let address = format!("{}:{PORT}", wan.far().address());
                command.args(["--listen", &address]);
                let service = start(wan.far(), command)?;
                Ok(Server::Hosted(service, address))
            }
            Ground::Relay(relayed) => Ok(Server::Relayed(relayed.serve(command)?)),
        }
    }

    fn own(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .env("XDG_CONFIG_HOME", self.config.path())
            .env("FARHAUL_CP_PATH_MEMORY", "never");
        command
    }

    /// Runs a client to its end; what it wrote to its output.
    fn ask(&self, mut command: Command) -> Result<String, EmulatedRunError> {
        let words = words(&command);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let failed = |e| EmulatedRunError::Start(words.clone(), e);
        let child = match &self.ground {
            Ground::Hosts(wan) => wan.near().spawn(command),
            Ground::Relay(_) => netns::die_with_this_thread(&mut command).spawn(),
        };
        let output = child.and_then(Child::wait_with_output).map_err(failed)?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(said);
        }
        let complaint = String::from_utf8_lossy(&output.stderr);
        let last = complaint.lines().last().map(str::trim).unwrap_or_default();
        let text = match last {
            "" => format!("{} {said}", output.status),
            last => last.to_string(),
        };
        Err(EmulatedRunError::Failed {
            command: words,
            said: text,
            code: output.status.code(),
        })
    }
}

/// A server of ours on the far side; ended when dropped.
enum Server<'a> {
    Hosted(
        #[expect(dead_code, reason = "kept for its end")] Service,
        String,
    ),
    Relayed(RelayPath<'a>),
}

impl Server<'_> {
    /// Address at which clients reach the server.
    fn address(&self) -> &str {
        match self {
            Self::Hosted(_, address) => address,
            Self::Relayed(passage) => passage.address(),
        }
    }
}

fn start(host: &Host, mut command: Command) -> Result<Service, EmulatedRunError> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let words = words(&command);
    Service::start(host, command).map_err(|e| EmulatedRunError::Start(words, e))
}

pub(super) fn words(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let verb = command.get_args().next().unwrap_or_default();
    format!("{name} {}", verb.to_string_lossy())
}

fn report(json: &str) -> Result<Report, EmulatedRunError> {
    serde_json::from_str(json)
        .map_err(|e| EmulatedRunError::Word("farhaul bench".into(), format!("{e}: {json}")))
}

//! Runs programs on a network that is not there. [`Wan::start`] builds the two hosts and the router
//! between them; [`run`] does a whole run with one program on the near host.

use std::{
    io,
    ops::RangeInclusive,
    os::unix::process::ExitStatusExt as _,
    process::{Command, Stdio},
};

use farhaul_link::{ConfigError, PathConfig};
use farhaul_udp::{netns, tun::Offload};

use crate::{
    host::Host,
    process::{Failed, Service, Signals, wait},
    report::WanReport,
    router::Router,
};

/// The network between the two hosts.
#[derive(Clone, Debug)]
pub struct WanConfig {
    /// Path from the near host to the far one.
    pub near_to_far: PathConfig,
    /// Path from the far host to the near one.
    pub far_to_near: PathConfig,
    /// MTU of both hosts' interfaces, 576..=65521.
    pub mtu: u32,
    /// MTU of both hosts' loopback devices, if not the kernel's (65,536).
    pub loopback_mtu: Option<u32>,
    /// Seed of all randomness.
    pub seed: u64,
    /// Most bytes of packets the router holds at once.
    pub memory: u64,
    /// Packets from or to these ports are also counted apart, each under the first range that has one of
    /// its ports.
    pub ports: Vec<RangeInclusive<u16>>,
}

/// The MTUs that both ends accept.
pub const MTU_RANGE: RangeInclusive<u32> = 576..=65_521;

impl WanConfig {
    /// A network with one path in both directions, MTU 9000.
    pub fn symmetric(path: PathConfig) -> Self {
        Self {
            near_to_far: path.clone(),
            far_to_near: path,
            ..Self::default()
        }
    }

    /// Refuses invalid values.
    pub fn validate(&self) -> Result<(), WanError> {
        if !MTU_RANGE.contains(&self.mtu) {
            return Err(WanError::Mtu(self.mtu));
        }
        if let Some(mtu) = self.loopback_mtu.filter(|mtu| !MTU_RANGE.contains(mtu)) {
            return Err(WanError::Mtu(mtu));
        }
        self.near_to_far.validate()?;
        Ok(self.far_to_near.validate()?)
    }

    /// A short description, for reports.
    fn describe(&self) -> String {
        farhaul_link::describe(&self.near_to_far, &self.far_to_near, self.mtu)
    }
}

impl Default for WanConfig {
    fn default() -> Self {
        Self {
            near_to_far: PathConfig::default(),
            far_to_near: PathConfig::default(),
            mtu: 9_000,
            loopback_mtu: None,
            seed: 1,
            memory: 4 << 30,
            ports: Vec::new(),
        }
    }
}

/// Reason why a network could not be built or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WanError {
    /// The paths make no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The MTU is out of range.
    #[error("an mtu of {0} is out of range: 576 to 65521")]
    Mtu(u32),
    /// The kernel refused a namespace or a TUN device.
    #[error("this system does not let us build two hosts: {0}")]
    Setup(#[source] io::Error),
    /// A program could not be started.
    #[error("cannot start '{program}': {cause}")]
    Spawn {
        /// Program that was to be started.
        program: String,
        /// Reason why the program was not started.
        cause: io::Error,
    },
    /// Something failed in mid-run.
    #[error("the emulator failed: {0}")]
    Running(#[source] io::Error),
}

/// Two hosts and the network between them. Everything vanishes when it is dropped.
#[derive(Debug)]
pub struct Wan {
    // Dropped in this order: the router first, so that nothing waits for packets.
    router: Router,
    near: Host,
    far: Host,
    offload: Offload,
    network: String,
    seed: u64,
}

impl Wan {
    /// Builds the hosts and starts the router.
    ///
    /// Needs root, or [`enter_user_namespace`] at the start of the process.
    pub fn start(config: &WanConfig) -> Result<Self, WanError> {
        config.validate()?;
        let (near, near_tun) =
            Host::start("near", 1, config.mtu, config.loopback_mtu).map_err(WanError::Setup)?;
        let (far, far_tun) =
            Host::start("far", 2, config.mtu, config.loopback_mtu).map_err(WanError::Setup)?;
        let offload = near_tun.offload();
        let paths = [&config.near_to_far, &config.far_to_near];
        let tuns = [near_tun, far_tun];
        let router = Router::start(tuns, paths, config.seed, config.memory, &config.ports)
            .map_err(WanError::Setup)?;
        Ok(Self {
            router,
            near,
            far,
            offload,
            network: config.describe(),
            seed: config.seed,
        })
    }

    /// The host at 10.99.0.1.
    pub const fn near(&self) -> &Host {
        &self.near
    }

    /// The host at 10.99.0.2.
    pub const fn far(&self) -> &Host {
        &self.far
    }

    /// Stops the network and reports.
    pub fn finish(self) -> Result<WanReport, WanError> {
        let missed = self.near.interface_drops() + self.far.interface_drops();
        let outcome = self.router.stop().map_err(WanError::Running)?;
        let offload = self.offload.name();
        Ok(WanReport::new(
            &outcome,
            self.network,
            self.seed,
            offload,
            missed,
        ))
    }
}

/// End of a run.
#[derive(Debug)]
pub struct Finished {
    /// Code that the near program returned, 128 + n if it or we were ended by signal n.
    pub code: i32,
    /// The signal that ended the run, if one did.
    pub interrupted: Option<i32>,
    /// Failure of the far program, if it failed while the near one ran.
    pub far: Option<Failed>,
    /// Report of what happened on the network.
    pub report: WanReport,
}

/// Runs `near` on the near host, beside `far` on the far host if there is one. The far program,
/// with everything it started, is ended afterwards.
pub fn run(config: &WanConfig, near: Command, far: Option<Command>) -> Result<Finished, WanError> {
    let mut signals = Signals::catch().map_err(WanError::Running)?;
    let wan = Wan::start(config)?;
    let service = far
        .map(|mut command| {
            let program = name(&command);
            command.stderr(Stdio::piped());
            Service::start(&wan.far, command).map_err(|cause| WanError::Spawn { program, cause })
        })
        .transpose()?;
    let program = name(&near);
    let child = wan
        .near
        .spawn(near)
        .map_err(|cause| WanError::Spawn { program, cause })?;
    let ending = wait(child, &mut signals).map_err(WanError::Running)?;
    let far = service.map(Service::end).transpose();
    let far = far.map_err(WanError::Running)?.flatten();
    let signal = ending.interrupted.or(ending.status.signal());
    Ok(Finished {
        code: signal.map_or_else(|| ending.status.code().unwrap_or(1), |signal| 128 + signal),
        interrupted: ending.interrupted,
        far,
        report: wan.finish()?,
    })
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// Lets this process build networks without being root, where the system allows it. Does nothing for
/// root. Must be called before any thread is started.
pub fn enter_user_namespace() -> Result<(), WanError> {
    netns::become_administrator().map_err(WanError::Setup)
}

//! Command lines of the programs that make a flow: a server at the receiver and a client at the
//! sender.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use farhaul_core::units::Rate;
use farhaul_emu::wan::WanConfig;

use super::{
    Amount, EmulatedRunError, Flow, Program, System, TcpDriver, libudt,
    system::{Sockets, have_iperf3},
};
use farhaul_measure::delay::Trips;

/// The first port of the first flow.
const FIRST_PORT: u16 = 18_000;
/// Ports of each flow: what a program opens besides its own belongs to it too.
pub(super) const PORTS: u16 = 10;
/// The longest packet of libudt, unless another is given.
const UDT_MSS: u32 = 8_972;
/// iperf3 takes intervals from 100 ms to 60 s.
const IPERF3_INTERVALS: [Duration; 2] = [Duration::from_millis(100), Duration::from_mins(1)];

/// Sign that a server can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    /// Something listens at its port.
    Port(u16),
    /// The program has printed this text.
    Text(String),
}

/// The programs of one flow.
#[derive(Debug)]
pub(super) struct Commands {
    pub(super) server: Option<(Command, Ready)>,
    /// Client's command; none once it has been started.
    pub(super) client: Option<Command>,
    /// True if part of the result is printed by the server when it ends, which it does by itself.
    pub(super) server_reports: bool,
    /// Command before the server is started, and after the client's success.
    pub(super) prepare: Option<Command>,
    pub(super) verify: Option<Command>,
    /// Bytes to be sent, if known: `{bytes}`.
    pub(super) bytes: Option<u64>,
    /// Program that drives the kernel's TCP, if the flow is the kernel's.
    pub(super) driver: Option<TcpDriver>,
}

/// Place where flows are run.
pub(super) struct Place<'a> {
    pub(super) network: &'a WanConfig,
    /// The farhaul binary.
    pub(super) program: &'a Path,
    /// A folder in memory, which vanishes with the run.
    pub(super) folder: &'a Path,
}

/// The first port of flow `number`.
pub(super) fn port(number: usize) -> Option<u16> {
    let number = u16::try_from(number).ok()?;
    FIRST_PORT.checked_add(number.checked_mul(PORTS)?)
}

impl Place<'_> {
    /// The programs of `flow`, whose server is at `host` and `port`.
    pub(super) fn commands(
        &self,
        flow: &Flow,
        host: Ipv4Addr,
        port: u16,
    ) -> Result<Commands, EmulatedRunError> {
        let at = SocketAddr::from((host, port)).to_string();
        let made = match &flow.system {
            System::Farhaul { protocol, law } => self.farhaul(flow, protocol, law.as_deref(), &at),
            System::Kernel { law, mtu, driver } => match driver.unwrap_or_else(|| usual(flow)) {
                TcpDriver::Iperf3 => iperf3(flow, law, *mtu, host, port),
                TcpDriver::Blaster => self.blaster(flow, law, *mtu, &at)?,
            },
            System::Libudt { mss, buffer } => {
                let mss = mss.unwrap_or(self.network.mtu.min(UDT_MSS));
                libudt_peer(&libudt::program()?, flow, mss, *buffer, host, port)
            }
            System::Udp {
                rate,
                packet,
                sockets,
                loss,
            } => self.udp(flow, (*rate, *loss), *packet, *sockets, &at)?,
            System::Delay(trips) => self.delay(flow, *trips, &at),
            System::Program(program) => return self.external(flow, program, host, port),
        };
        let (server, client, driver) = made;
        Ok(Commands {
            server: Some((server, Ready::Port(port))),
            client: Some(client),
            server_reports: match flow.system {
                System::Farhaul { .. } | System::Delay(_) => false,
                _ => driver != Some(TcpDriver::Blaster),
            },
            prepare: None,
            verify: None,
            bytes: None,
            driver,
        })
    }

    /// Command of this program with `args`; the program finds no settings of the user's.
    fn own(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command
            .args(args)
            .env("XDG_CONFIG_HOME", self.folder.join("config"))
            .env("FARHAUL_CP_PATH_MEMORY", "never");
        command
    }

    fn farhaul(&self, flow: &Flow, protocol: &str, law: Option<&str>, at: &str) -> Made {
        let longest = format!("{}s", flow.amount.time().as_secs() + 60);
        let how = ["--protocol", protocol];
        let mut server = self.own(&["bench", "serve", "-1", "--listen", at]);
        server.args(how).args(["--max-time", &longest]);
        let mut client = self.own(&["bench", at]);
        client.args(how).args(["-i", &seconds(flow.interval)]);
        // Of that protocol only.
        if protocol.split(':').next() == Some("tcp") {
            client.arg("--law-time");
        }
        if let Some(law) = law {
            server.args(["--cc", law]);
            client.args(["--cc", law]);
        }
        if let Some(rate) = flow.max_rate {
            client.args(["-b", &bits(rate)]);
        }
        match flow.amount {
            Amount::Time(time) => client.args(["-t", &seconds(time)]),
            Amount::Bytes { bytes, .. } => client.args(["-n", &bytes.to_string()]),
        };
        client.arg("--json");
        (server, client, None)
    }

    fn blaster(
        &self,
        flow: &Flow,
        law: &str,
        mtu: Option<u32>,
        at: &str,
    ) -> Result<Made, EmulatedRunError> {
        if flow.max_rate.is_some() {
            let why = "the kernel's TCP is held to a rate by iperf3 only, which is not installed: \
                       apt-get install iperf3";
            return Err(EmulatedRunError::Cannot(why.into()));
        }
        let server = self.own(&["_tcp", "serve", at]);
        let mut client = self.own(&["_tcp", "blast", at, law]);
        match flow.amount {
            Amount::Time(time) => client.args(["--time", &seconds(time)]),
            Amount::Bytes { bytes, .. } => client.args(["--bytes", &bytes.to_string()]),
        };
        client.args(["--interval", &seconds(flow.interval)]);
        if let Some(mtu) = mtu {
            client.args(["--mtu", &mtu.to_string()]);
        }
        Ok((server, client, Some(TcpDriver::Blaster)))
    }

    fn udp(
        &self,
        flow: &Flow,
        (rate, loss): (Rate, Option<f64>),
        packet: u32,
        sockets: Sockets,
        at: &str,
    ) -> Result<Made, EmulatedRunError> {
        let Amount::Time(time) = flow.amount else {
            let why = "udp sends for a time, not a number of bytes: give a duration";
            return Err(EmulatedRunError::Cannot(why.into()));
        };
        let interval = seconds(flow.interval);
        let mut server = self.own(&["_udp", "serve", at, "--interval", &interval]);
        let rate = flow.max_rate.map_or(rate, |most| rate.min(most));
        let mut client = self.own(&["_udp", "blast", at]);
        client.args(["--rate", &bits(rate), "--packet", &packet.to_string()]);
        client.args(["--time", &seconds(time)]);
        if let Some(share) = loss {
            client.args(["--loss", &share.to_string()]);
        }
        if sockets.fragments {
            client.arg("--fragments");
        }
        for (end, size) in [(&mut client, sockets.send), (&mut server, sockets.receive)] {
            if let Some(size) = size {
                end.args(["--buffer", &size.to_string()]);
            }
            if sockets.plain {
                end.arg("--plain");
            }
        }
        Ok((server, client, None))
    }

    fn delay(&self, flow: &Flow, trips: Trips, at: &str) -> Made {
        let transport = if trips.tcp { "tcp" } else { "udp" };
        let longest = seconds(flow.amount.time());
        let mut server = self.own(&["_delay", "serve", transport, at]);
        let (packet, count) = (trips.packet.to_string(), trips.count.to_string());
        let mut client = self.own(&["_delay", "ask", transport, at]);
        for end in [&mut server, &mut client] {
            end.args(["--packet", &packet]);
        }
        client.args(["--count", &count, "--time", &longest]);
        (server, client, None)
    }

    fn external(
        &self,
        flow: &Flow,
        program: &Program,
        host: Ipv4Addr,
        port: u16,
    ) -> Result<Commands, EmulatedRunError> {
        let time = flow.amount.time();
        let link = if flow.reverse {
            &self.network.far_to_near
        } else {
            &self.network.near_to_far
        };
        let rate = flow.max_rate.map_or(link.rate, |most| most.min(link.rate));
        let bytes = bytes_of(flow.amount, rate);
        let peer = program
            .uses("udt_peer")
            .then(libudt::program)
            .transpose()?
            .unwrap_or_default();
        let value = |name: &str| match name {
            "udt_peer" => quoted(&peer.to_string_lossy()),
            "host" => host.to_string(),
            "port" => port.to_string(),
            "seconds" => whole(time).to_string(),
            "bytes" => bytes.to_string(),
            "mtu" => self.network.mtu.to_string(),
            "rate" => rate.bps().to_string(),
            "farhaul" => quoted(&self.program.to_string_lossy()),
            _ => quoted(&self.folder.to_string_lossy()),
        };
        let shell = |command: &str| -> Result<Command, EmulatedRunError> {
            let filled = program.fill(command, &value);
            let mut shell = Command::new("sh");
            shell
                .args([
                    "-c",
                    &filled.map_err(|e| EmulatedRunError::Cannot(e.to_string()))?,
                ])
                .current_dir(self.folder)
                .env("XDG_CONFIG_HOME", self.folder.join("config"))
                .env("FARHAUL_CP_PATH_MEMORY", "never");
            Ok(shell)
        };
        let ready = program.ready.clone().map_or(Ready::Port(port), Ready::Text);
        let optional = |command: &Option<String>| command.as_deref().map(shell).transpose();
        let server = optional(&program.server)?;
        Ok(Commands {
            server: server.map(|server| (server, ready)),
            client: Some(shell(&program.client)?),
            server_reports: program.server_reports(),
            prepare: optional(&program.prepare)?,
            verify: optional(&program.verify)?,
            bytes: Some(bytes),
            driver: None,
        })
    }
}

/// Program that drives the kernel's TCP if nobody named one. iperf3 knows more about the path, but
/// ends when its bytes are written, not when they have arrived.
fn usual(flow: &Flow) -> TcpDriver {
    match flow.amount {
        Amount::Bytes { .. } if flow.max_rate.is_none() => TcpDriver::Blaster,
        _ if have_iperf3() => TcpDriver::Iperf3,
        _ => TcpDriver::Blaster,
    }
}

/// Server, client, and the driver of the kernel's TCP.
type Made = (Command, Command, Option<TcpDriver>);

fn iperf3(flow: &Flow, law: &str, mtu: Option<u32>, host: Ipv4Addr, port: u16) -> Made {
    let (port, host) = (port.to_string(), host.to_string());
    // Without a series too: the client's parts have the round-trip times.
    let interval = match flow.interval {
        Duration::ZERO => Duration::from_secs(1),
        given => given.clamp(IPERF3_INTERVALS[0], IPERF3_INTERVALS[1]),
    };
    let interval = seconds(interval);
    let mut server = Command::new("iperf3");
    server.args(["-s", "-1", "-J", "-p", &port, "-i", &interval]);
    let mut client = Command::new("iperf3");
    client.args(["-c", &host, "-p", &port, "-C", law, "-J", "-i", &interval]);
    match flow.amount {
        Amount::Time(time) => client.args(["-t", &whole(time).to_string()]),
        Amount::Bytes { bytes, .. } => client.args(["-n", &bytes.to_string()]),
    };
    if let Some(mtu) = mtu {
        // Without the headers of IP and TCP.
        client.args(["-M", &mtu.saturating_sub(40).to_string()]);
    }
    if let Some(rate) = flow.max_rate {
        client.args(["--fq-rate", &rate.bps().to_string()]);
    }
    (server, client, Some(TcpDriver::Iperf3))
}

fn libudt_peer(
    peer: &PathBuf,
    flow: &Flow,
    mss: u32,
    buffer: u64,
    host: Ipv4Addr,
    port: u16,
) -> Made {
    let (mss, buffer) = (mss.to_string(), buffer.to_string());
    let interval = flow.interval.as_millis().to_string();
    let peer = |how: &str| {
        let mut command = Command::new(peer);
        command.args(["-m", &mss, "-b", &buffer, "-i", &interval]);
        if let Some(rate) = flow.max_rate {
            command.args(["-r", &(rate.bps() / 8).max(1).to_string()]);
        }
        command.args([how, &host.to_string(), &port.to_string()]);
        command
    };
    let (mut server, mut client) = (peer("listen"), peer("connect"));
    server.arg("sink");
    match flow.amount {
        Amount::Time(time) => client.args(["blast", &seconds(time)]),
        Amount::Bytes { bytes, .. } => client.args(["push", &bytes.to_string()]),
    };
    (server, client, None)
}

/// The rate as the command line takes it.
fn bits(rate: Rate) -> String {
    format!("{}bit", rate.bps())
}

fn seconds(time: Duration) -> String {
    time.as_secs_f64().to_string()
}

/// Rounded up, for programs that take whole seconds.
const fn whole(time: Duration) -> u64 {
    time.as_secs() + (time.subsec_nanos() > 0) as u64
}

/// Bytes to be sent: of a flow that ends by time, as many as the rate allows.
fn bytes_of(amount: Amount, rate: Rate) -> u64 {
    match amount {
        Amount::Bytes { bytes, .. } => bytes,
        Amount::Time(time) => rate.bytes_in(time),
    }
}

/// One word for the shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A command line as it could be typed.
pub(super) fn line(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let words = command.get_args().map(|arg| quoted(&arg.to_string_lossy()));
    let all: Vec<String> = [quoted(&program)].into_iter().chain(words).collect();
    all.join(" ")
}

//! Names the transport that is measured, by its name in a scenario file. It is a protocol of ours,
//! the kernel's TCP under a law, libudt, datagrams at a fixed rate, or a program of the user's.

use std::{fmt, fs, path::Path, process::Command};

use farhaul_congestion::{Kind, Parameter, ParameterError, Values, is_name, nearest};
use farhaul_core::units::{Rate, Size};

use super::{
    libudt,
    program::{Program, ProgramError},
};
use farhaul_measure::delay::Trips;
use farhaul_measure::registry::{self, Choice, ChoiceError};

/// The kernel's congestion laws.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
/// Names possible besides the protocols of ours.
const OTHERS: [&str; 5] = ["kernel:", "libudt", "udp:", "delay:", "program:"];

const KERNEL: &[Parameter] = &[
    Parameter {
        name: "mtu",
        about: "bytes of the longest packet, IP header included; default: the network's",
        kind: Kind::Whole(576, 65_521),
        default: "1500",
    },
    Parameter {
        name: "driver",
        about: "iperf3, our own blaster, or iperf3 where it is installed and the flow ends by time",
        kind: Kind::Choice(&["auto", "iperf3", "blaster"]),
        default: "auto",
    },
];
const LIBUDT: &[Parameter] = &[
    Parameter {
        name: "mss",
        about: "bytes of the longest packet, IP and UDP included; default: 8972, or the network's MTU if less",
        kind: Kind::Whole(100, 65_507),
        default: "8972",
    },
    Parameter {
        name: "buffer",
        about: "of each of the four buffers, and the window, below 2 GiB",
        kind: Kind::Size,
        default: "1000MB",
    },
];
const UDP: &[Parameter] = &[
    Parameter {
        name: "rate",
        about: "of IP packets; needed. With loss, the highest that is tried",
        kind: Kind::Rate,
        default: "1Mbit",
    },
    Parameter {
        name: "packet",
        about: "bytes of a packet, IP header included",
        kind: Kind::Whole(64, 65_521),
        default: "1500",
    },
    Parameter {
        name: "send",
        about: "bytes of the sender's socket buffer, as the kernel counts them",
        kind: Kind::Size,
        default: "8MiB",
    },
    Parameter {
        name: "receive",
        about: "bytes of the receiver's",
        kind: Kind::Size,
        default: "64MiB",
    },
    Parameter {
        name: "offload",
        about: "several packets in one call of the kernel",
        kind: Kind::Flag,
        default: "on",
    },
    Parameter {
        name: "loss",
        about: "if given, the highest rate is looked for at which less than this share is lost",
        kind: Kind::Number(0.000_001, 0.5),
        default: "0.001",
    },
    Parameter {
        name: "fragments",
        about: "packets longer than the MTU leave as fragments",
        kind: Kind::Flag,
        default: "off",
    },
];
const DELAY: &[Parameter] = &[
    Parameter {
        name: "transport",
        about: "of the kernel",
        kind: Kind::Choice(&["udp", "tcp"]),
        default: "udp",
    },
    Parameter {
        name: "packet",
        about: "bytes of the packet, IP header included",
        kind: Kind::Whole(64, 65_521),
        default: "1500",
    },
    Parameter {
        name: "count",
        about: "round trips, one after the other",
        kind: Kind::Whole(1, 1_000_000),
        default: "100",
    },
];

/// Program that drives the kernel's TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpDriver {
    /// The program of that name.
    Iperf3,
    /// `farhaul _tcp`.
    Blaster,
}

/// System that sends and receives.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum System {
    /// A protocol of ours.
    Farhaul {
        /// Protocol with parameters, as `tcp:mtu=1500`.
        protocol: String,
        /// Congestion law; the protocol's own by default.
        law: Option<String>,
    },
    /// The kernel's TCP.
    Kernel {
        /// Law as the kernel names it.
        law: String,
        /// Bytes of the longest packet, if not the network's.
        mtu: Option<u32>,
        /// Program; by default iperf3 where it is installed, and the blaster for a number of bytes.
        driver: Option<TcpDriver>,
    },
    /// UDT by its authors.
    Libudt {
        /// Bytes of the longest packet; by default as the MTU allows.
        mss: Option<u32>,
        /// Bytes of each buffer.
        buffer: u64,
    },
    /// Datagrams without congestion control.
    Udp {
        /// Rate of IP packets.
        rate: Rate,
        /// Bytes of a packet, IP header included.
        packet: u32,
        /// Settings of the sockets.
        sockets: Sockets,
        /// The rate is the highest that is tried, and less than this share is to be lost.
        loss: Option<f64>,
    },
    /// Round trips of one packet by the kernel's UDP or TCP.
    Delay(Trips),
    /// A user's.
    Program(Program),
}

/// Settings of the sockets of datagrams at a fixed rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sockets {
    /// Bytes of the sender's buffer, if not the program's.
    pub send: Option<u64>,
    /// Receive buffer of the receiver's.
    pub receive: Option<u64>,
    /// True for one packet in each call of the kernel.
    pub plain: bool,
    /// True if datagrams longer than the MTU leave as fragments.
    pub fragments: bool,
}

/// Reason why there is no such system.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SystemError {
    /// No system of that name.
    #[error("no protocol '{name}'{hint}; there are: {known}")]
    Unknown {
        /// Name as written.
        name: String,
        /// The nearest.
        hint: String,
        /// All.
        known: String,
    },
    /// A protocol of ours that cannot be so.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// A parameter is wrong.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// The kernel's TCP needs a law.
    #[error("which law of the kernel's? Write kernel:cubic, kernel:bbr or kernel:reno")]
    NoLaw,
    /// The system takes no law.
    #[error("'{0}' takes no law beside it: {1}")]
    Law(String, &'static str),
    /// A needed parameter, or its bounds.
    #[error("{0}")]
    Value(String),
    /// The user's program is wrong.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

impl System {
    /// Parses `protocol`, under `law` if it takes one: a protocol of ours, `kernel:LAW`, `libudt`,
    /// `udp:rate=RATE`, or `program:NAME` of `programs`.
    pub fn parse(
        protocol: &str,
        law: Option<&str>,
        programs: &[Program],
    ) -> Result<Self, SystemError> {
        let (name, settings) = protocol.split_once(':').unwrap_or((protocol, ""));
        let no_law = |why| match law {
            Some(_) => Err(SystemError::Law(protocol.into(), why)),
            None => Ok(()),
        };
        match name.trim() {
            "kernel" => kernel(protocol, settings, law),
            "libudt" => {
                no_law("UDT has its own")?;
                libudt_of(settings)
            }
            "udp" => {
                no_law("datagrams have a rate and no law")?;
                udp(settings)
            }
            "delay" => {
                no_law("one packet at a time has no law")?;
                delay(settings)
            }
            "program" => {
                no_law("write it into the program's commands")?;
                program(settings, programs)
            }
            _ => farhaul(protocol, law, programs),
        }
    }

    /// Reason why this machine cannot run the system, if so, and what to do about it.
    pub fn missing(&self) -> Option<String> {
        match self {
            Self::Kernel { law, driver, .. } => kernel_lacks(law).or_else(|| {
                (*driver == Some(TcpDriver::Iperf3) && !have_iperf3())
                    .then(|| "iperf3 is not installed: apt-get install iperf3".into())
            }),
            Self::Libudt { .. } => libudt::missing(),
            Self::Program(program) => {
                let unknown = program.commands().find_map(not_found).map(|word| {
                    let name = &program.name;
                    format!("program '{name}': '{word}' is not found here: is it installed, and in PATH?")
                });
                unknown.or_else(|| program.uses("udt_peer").then(libudt::missing)?)
            }
            Self::Farhaul { .. } | Self::Udp { .. } | Self::Delay(_) => None,
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Farhaul { protocol, law } => {
                let law = law.as_ref().map(|law| format!(" {law}"));
                write!(f, "{protocol}{}", law.unwrap_or_default())
            }
            Self::Kernel { law, mtu, driver } => {
                write!(f, "kernel:{law}")?;
                if let Some(mtu) = mtu {
                    write!(f, ",mtu={mtu}")?;
                }
                match driver {
                    Some(TcpDriver::Iperf3) => f.write_str(",driver=iperf3"),
                    Some(TcpDriver::Blaster) => f.write_str(",driver=blaster"),
                    None => Ok(()),
                }
            }
            Self::Libudt { mss, buffer } => {
                let mss = mss.map(|mss| format!("mss={mss},"));
                write!(f, "libudt:{}buffer={buffer}", mss.unwrap_or_default())
            }
            Self::Udp {
                rate,
                packet,
                sockets,
                loss,
            } => {
                write!(f, "udp:rate={}bit,packet={packet}", rate.bps())?;
                for (name, size) in [("send", sockets.send), ("receive", sockets.receive)] {
                    if let Some(size) = size {
                        write!(f, ",{name}={size}")?;
                    }
                }
                f.write_str(if sockets.plain { ",offload=off" } else { "" })?;
                if let Some(loss) = loss {
                    write!(f, ",loss={loss}")?;
                }
                f.write_str(if sockets.fragments {
                    ",fragments=on"
                } else {
                    ""
                })
            }
            Self::Delay(trips) => {
                let transport = if trips.tcp { "tcp" } else { "udp" };
                let Trips { packet, count, .. } = trips;
                write!(
                    f,
                    "delay:transport={transport},packet={packet},count={count}"
                )
            }
            Self::Program(program) => write!(f, "program:{}", program.name),
        }
    }
}

fn kernel(protocol: &str, settings: &str, law: Option<&str>) -> Result<System, SystemError> {
    let (first, rest) = settings.split_once(',').unwrap_or((settings, ""));
    let (named, settings) = match first.trim() {
        first if first.is_empty() || is_setting(first) => (None, settings),
        first => (Some(first), rest),
    };
    if let (Some(_), Some(_)) = (named, law) {
        return Err(SystemError::Law(protocol.into(), "it names one already"));
    }
    let law = named.or(law).ok_or(SystemError::NoLaw)?;
    if !is_name(law) {
        return Err(SystemError::Value(format!(
            "'{law}' is no law of the kernel's: as cubic, bbr or reno, without parameters"
        )));
    }
    let values = Values::parse("kernel", KERNEL, settings)?;
    Ok(System::Kernel {
        law: law.into(),
        mtu: values.is_given("mtu").then(|| values.whole("mtu")),
        driver: match values.choice("driver") {
            "iperf3" => Some(TcpDriver::Iperf3),
            "blaster" => Some(TcpDriver::Blaster),
            _ => None,
        },
    })
}

/// True for `name=value`, which no law is.
fn is_setting(text: &str) -> bool {
    text.split_once('=')
        .is_some_and(|(name, _)| is_name(name.trim()))
}

fn libudt_of(settings: &str) -> Result<System, SystemError> {
    let values = Values::parse("libudt", LIBUDT, settings)?;
    let buffer = values.size("buffer");
    // It counts them in an int.
    if !(Size::from_bytes(1 << 16)..Size::from_bytes(1 << 31)).contains(&buffer) {
        return Err(SystemError::Value(format!(
            "libudt: buffer is a size from 64KiB to below 2GiB, not {buffer}"
        )));
    }
    Ok(System::Libudt {
        mss: values.is_given("mss").then(|| values.whole("mss")),
        buffer: buffer.bytes(),
    })
}

fn udp(settings: &str) -> Result<System, SystemError> {
    let values = Values::parse("udp", UDP, settings)?;
    if !values.is_given("rate") {
        let text = "udp: at which rate? Write udp:rate=200Mbit";
        return Err(SystemError::Value(text.into()));
    }
    // The kernel counts them in an int, and doubles them.
    let allowed = Size::from_bytes(1 << 12)..Size::from_bytes(1 << 30);
    let buffer = |name: &str| match values.is_given(name).then(|| values.size(name)) {
        Some(size) if !allowed.contains(&size) => Err(SystemError::Value(format!(
            "udp: {name} is a size from 4KiB to below 1GiB, not {size}"
        ))),
        size => Ok(size.map(Size::bytes)),
    };
    Ok(System::Udp {
        rate: values.rate("rate"),
        packet: values.whole("packet"),
        sockets: Sockets {
            send: buffer("send")?,
            receive: buffer("receive")?,
            plain: !values.flag("offload"),
            fragments: values.flag("fragments"),
        },
        loss: values.is_given("loss").then(|| values.number("loss")),
    })
}

fn delay(settings: &str) -> Result<System, SystemError> {
    let values = Values::parse("delay", DELAY, settings)?;
    Ok(System::Delay(Trips {
        tcp: values.choice("transport") == "tcp",
        packet: values.whole("packet"),
        count: values.whole("count"),
    }))
}

fn program(name: &str, programs: &[Program]) -> Result<System, SystemError> {
    let found = programs.iter().find(|program| program.name == name.trim());
    let Some(program) = found else {
        let names = || programs.iter().map(|program| program.name.as_str());
        return Err(unknown(&format!("program:{name}"), name, names(), || {
            if programs.is_empty() {
                return "none: describe it in a [[program]]".into();
            }
            names().collect::<Vec<_>>().join(", ")
        }));
    };
    program.check()?;
    Ok(System::Program(program.clone()))
}

fn farhaul(protocol: &str, law: Option<&str>, programs: &[Program]) -> Result<System, SystemError> {
    let entry = match registry::protocol(protocol) {
        Err(ChoiceError::Unknown { name, known, .. }) => {
            let own = registry::protocols().iter().map(|p| p.descriptor.name);
            let others = OTHERS.iter().map(|name| name.trim_end_matches(':'));
            return Err(unknown(&name, &name, own.chain(others), || {
                let programs = programs.iter().map(|p| format!(", program:{}", p.name));
                format!(
                    "{known}, kernel:LAW, libudt, udp:rate=RATE, delay:transport=udp{}",
                    programs.collect::<String>()
                )
            }));
        }
        other => other?,
    };
    let choice = Choice {
        law: law.map(Into::into),
        ..Choice::default()
    };
    entry.client(&choice)?;
    Ok(System::Farhaul {
        protocol: protocol.into(),
        law: choice.law,
    })
}

fn unknown<'a>(
    name: &str,
    typed: &str,
    names: impl IntoIterator<Item = &'a str>,
    known: impl FnOnce() -> String,
) -> SystemError {
    let near = nearest(typed, names);
    SystemError::Unknown {
        name: name.into(),
        hint: near.map_or_else(String::new, |near| format!(" (did you mean '{near}'?)")),
        known: known(),
    }
}

/// Reason why the kernel cannot use this law.
fn kernel_lacks(law: &str) -> Option<String> {
    let known = fs::read_to_string(AVAILABLE).unwrap_or_default();
    let known: Vec<&str> = known.split_whitespace().collect();
    (!known.contains(&law)).then(|| {
        let all = known.join(" ");
        format!("this kernel's TCP has no law '{law}' (it has: {all}); as root: modprobe tcp_{law}")
    })
}

/// True if iperf3 is installed.
pub fn have_iperf3() -> bool {
    not_found("iperf3").is_none()
}

/// The program that a shell command starts with, if there is no such program.
pub(super) fn not_found(command: &str) -> Option<&str> {
    let assigned = |word: &&str| word.contains('=') && !word.starts_with('=');
    let word = command.split_whitespace().find(|word| !assigned(word))?;
    // Groups, quotes and placeholders are the shell's to understand.
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./+".contains(c);
    if !word.chars().all(plain) {
        return None;
    }
    let found = Command::new("sh")
        .args(["-c", "command -v -- \"$1\"", "sh", word])
        .output();
    let there = found.is_ok_and(|output| output.status.success()) || Path::new(word).exists();
    (!there).then_some(word)
}

#[cfg(test)]
mod tests;

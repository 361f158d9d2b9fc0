//! Parameters of `--protocol tcp:NAME=VALUE,...`, read once into a [`Config`].

use std::time::Duration;

use farhaul_congestion::{Factory, Kind, Parameter, Values};
use farhaul_core::units::Rate;

use super::profiles::{Growth, PROFILES, Profile, profile};

/// The declared parameters. Those of the receiver override its profile when given.
pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "recovery",
        about: "how losses are found: RFC 8985, RFC 6675, forward acknowledgement, or RFC 6582 without SACK",
        kind: Kind::Choice(&["rack", "rfc6675", "fack", "newreno"]),
        default: "rack",
    },
    Parameter {
        name: "reduction",
        about: "how the window falls in recovery: RFC 9937, one segment per two acknowledgements (Linux before 3.2), or at once",
        kind: Kind::Choice(&["prr", "halving", "none"]),
        default: "prr",
    },
    Parameter {
        name: "pacing",
        about: "on: at the law's rate; off: by acknowledgements alone; auto: on for laws that are a rate",
        kind: Kind::Choice(&["auto", "on", "off"]),
        default: "auto",
    },
    Parameter {
        name: "burst",
        about: "segments handed to the host at once at most; 1 is without segmentation offload",
        kind: Kind::Number(1.0, 64.0),
        default: "64",
    },
    Parameter {
        name: "defer",
        about: "when acknowledgements are due, wait until a whole burst or a third of the window fits, as Linux does for segmentation offload",
        kind: Kind::Flag,
        default: "off",
    },
    Parameter {
        name: "sack_cost",
        about: "ns per segment that the sending host looks at to find news below the highest byte that SACK blocks reported (Linux before 4.15); 0: acknowledgements take no time",
        kind: Kind::Number(0.0, 100_000.0),
        default: "0",
    },
    Parameter {
        name: "rto",
        about: "floor of the retransmission timeout: on its variance (linux) or on the whole (RFC 6298)",
        kind: Kind::Choice(&["linux", "rfc6298"]),
        default: "linux",
    },
    Parameter {
        name: "rto_min",
        about: "that floor in ms",
        kind: Kind::Number(1.0, 10_000.0),
        default: "200",
    },
    Parameter {
        name: "tlp",
        about: "tail loss probes (RFC 8985 section 7); with recovery=rack only",
        kind: Kind::Flag,
        default: "on",
    },
    Parameter {
        name: "undo",
        about: "take back reductions that proved spurious (RFC 3522, RFC 3708)",
        kind: Kind::Flag,
        default: "on",
    },
    Parameter {
        name: "idle_restart",
        about: "slow start after an idle rto (RFC 5681 section 4.1)",
        kind: Kind::Flag,
        default: "on",
    },
    Parameter {
        name: "ecn",
        about: "negotiate marks (RFC 3168)",
        kind: Kind::Flag,
        default: "off",
    },
    Parameter {
        name: "mtu",
        about: "longest packet with its IP header, if the interface takes it",
        kind: Kind::Number(576.0, 65_535.0),
        default: "9000",
    },
    Parameter {
        name: "profile",
        about: "the receiver whose behaviour is followed; docs/protocols/tcp.md has the table",
        kind: Kind::Choice(&[
            "linux",
            "linux-2.6.29",
            "windows-7",
            "windows-vista-sp2",
            "windows-xp-x64",
        ]),
        default: "linux",
    },
    Parameter {
        name: "window",
        about: "receive window; given, it is fixed unless autotune=on makes it the limit",
        kind: Kind::Size,
        default: "1GiB",
    },
    Parameter {
        name: "autotune",
        about: "let the receive window grow with what the application reads",
        kind: Kind::Flag,
        default: "on",
    },
    Parameter {
        name: "delack",
        about: "segments per acknowledgement",
        kind: Kind::Number(1.0, 64.0),
        default: "2",
    },
    Parameter {
        name: "delack_ms",
        about: "the longest an acknowledgement is held back; given, it is not adapted",
        kind: Kind::Number(0.0, 500.0),
        default: "40",
    },
    Parameter {
        name: "quickack",
        about: "segments at the start that are acknowledged each at once",
        kind: Kind::Number(0.0, 1e6),
        default: "16",
    },
    Parameter {
        name: "stretch",
        about: "one acknowledgement for all segments that arrive together, as behind receive offload",
        kind: Kind::Flag,
        default: "on",
    },
];

/// Rule by which losses are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Time (RFC 8985).
    Rack,
    /// Acknowledgements of later data (RFC 6675).
    Sack,
    /// Everything three segments below the highest acknowledged (Mathis and Mahdavi, 1996).
    Fack,
    /// Duplicate acknowledgements alone (RFC 6582).
    NewReno,
}

/// Rule by which the window falls in recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// Proportional rate reduction (RFC 9937).
    #[default]
    Prr,
    /// One segment per two acknowledgements.
    Halving,
    /// Reduction at once.
    None,
}

/// An endpoint's settings.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent settings")]
pub struct Config {
    /// The congestion law.
    pub law: Factory,
    /// Highest rate at which to send.
    pub max_rate: Option<Rate>,
    /// Rule by which losses are found.
    pub recovery: Recovery,
    /// Rule by which the window falls in recovery.
    pub reduction: Reduction,
    /// True to send at the law's rate.
    pub pacing: bool,
    /// Segments handed over at once.
    pub burst: usize,
    /// True to wait for room for a whole burst.
    pub defer: bool,
    /// Time per segment that is looked at for an acknowledgement with SACK blocks.
    pub sack_cost: Duration,
    /// True if the rto's floor is on the whole, not on its variance.
    pub rto_whole: bool,
    /// Floor of the rto.
    pub rto_min: Duration,
    /// True for tail loss probes.
    pub tlp: bool,
    /// True to take back spurious reductions.
    pub undo: bool,
    /// True for slow start after idle time.
    pub idle_restart: bool,
    /// True to negotiate marks.
    pub ecn: bool,
    /// Longest packet with its IP header.
    pub mtu: u32,
    /// The receiver.
    pub receiver: Profile,
}

impl Config {
    /// Settings under `law` as given in `values`, which were parsed by [`PARAMETERS`].
    ///
    /// # Panics
    /// If they were not.
    pub fn new(law: Factory, values: &Values) -> Self {
        let recovery = match values.choice("recovery") {
            "rfc6675" => Recovery::Sack,
            "fack" => Recovery::Fack,
            "newreno" => Recovery::NewReno,
            _ => Recovery::Rack,
        };
        let pacing = match values.choice("pacing") {
            "auto" => law.law().paced,
            word => word == "on",
        };
        Self {
            max_rate: None,
            recovery,
            reduction: match values.choice("reduction") {
                "halving" => Reduction::Halving,
                "none" => Reduction::None,
                _ => Reduction::Prr,
            },
            pacing,
            burst: whole(values, "burst") as usize,
            defer: values.flag("defer") && !pacing,
            sack_cost: Duration::from_secs_f64(values.number("sack_cost") / 1e9),
            rto_whole: values.choice("rto") == "rfc6298",
            rto_min: Duration::from_secs_f64(values.number("rto_min") / 1e3),
            tlp: values.flag("tlp") && recovery == Recovery::Rack,
            undo: values.flag("undo"),
            idle_restart: values.flag("idle_restart"),
            ecn: values.flag("ecn"),
            mtu: whole(values, "mtu"),
            receiver: receiver(values),
            law,
        }
    }

    /// True if SACK is understood.
    pub fn sack(&self) -> bool {
        self.recovery != Recovery::NewReno
    }
}

fn whole(values: &Values, name: &str) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "declared as a small positive number"
    )]
    let whole = values.number(name).round() as u32;
    whole
}

/// The profile with the parameters given besides.
fn receiver(values: &Values) -> Profile {
    let mut p = *profile(values.choice("profile")).unwrap_or(&PROFILES[0]);
    if values.is_given("window") {
        p.window = values.size("window").bytes().clamp(4_096, 1 << 30);
        p.growth = Growth::Fixed;
    }
    if values.is_given("autotune") {
        p.growth = match (values.flag("autotune"), p.growth) {
            (false, _) => Growth::Fixed,
            (true, Growth::Fixed) => Growth::Autotuned,
            (true, growth) => growth,
        };
    }
    if values.is_given("delack") {
        p.ack_every = whole(values, "delack");
    }
    if values.is_given("delack_ms") {
        p.delay_min = Duration::from_secs_f64(values.number("delack_ms") / 1e3);
        p.delay_max = p.delay_min;
    }
    if values.is_given("quickack") {
        p.quick = whole(values, "quickack");
    }
    if values.is_given("stretch") {
        p.stretch = values.flag("stretch");
    }
    p
}

#[cfg(test)]
mod tests {
    use farhaul_congestion::lookup;

    use super::*;

    fn config(settings: &str) -> Config {
        let values = Values::parse("tcp", PARAMETERS, settings).unwrap();
        Config::new(lookup("cubic").unwrap(), &values)
    }

    #[test]
    fn defaults_are_todays_linux() {
        let c = config("");
        assert_eq!(c.receiver, PROFILES[0]);
        assert_eq!((c.recovery, c.pacing, c.tlp), (Recovery::Rack, false, true));
        let values = Values::parse("tcp", PARAMETERS, "").unwrap();
        let p = &PROFILES[0];
        assert_eq!(whole(&values, "delack"), p.ack_every);
        assert_eq!(whole(&values, "quickack"), p.quick);
        assert_eq!(values.size("window").bytes(), p.window);
        assert_eq!(values.flag("stretch"), p.stretch);
        assert_eq!(
            Duration::from_millis(u64::from(whole(&values, "delack_ms"))),
            p.delay_min
        );
    }

    #[test]
    fn what_is_said_overrides_the_profile() {
        let c = config("recovery=newreno,pacing=on,profile=windows-xp-x64,delack=1,window=16MiB");
        assert_eq!(
            (c.recovery, c.pacing, c.tlp),
            (Recovery::NewReno, true, false)
        );
        assert_eq!((c.receiver.ack_every, c.receiver.window), (1, 16 << 20));
        assert!(c.receiver.reads_at.is_some());
        let tuned = config("window=16MiB,autotune=on").receiver;
        assert_eq!((tuned.window, tuned.growth), (16 << 20, Growth::Autotuned));
        assert!(!config("").sack() || config("").recovery != Recovery::NewReno);
    }

    #[test]
    fn what_is_misspelt_is_refused() {
        let error = |settings| {
            let parsed = Values::parse("tcp", PARAMETERS, settings);
            parsed.unwrap_err().to_string()
        };
        assert!(error("recovry=rack").contains("did you mean 'recovery'?"));
        assert_eq!(
            error("recovery=rak"),
            "tcp: recovery is rack or rfc6675 or fack or newreno, not 'rak'"
        );
        assert!(error("window=x").contains("a size such as"));
    }

    #[test]
    fn every_profile_can_be_chosen() {
        let kind = PARAMETERS
            .iter()
            .find(|p| p.name == "profile")
            .unwrap()
            .kind;
        let names: Vec<_> = PROFILES.iter().map(|p| p.name).collect();
        assert_eq!(kind, Kind::Choice(names.leak()));
    }
}

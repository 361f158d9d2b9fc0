//! Descriptor of a congestion law, and the parameters that window laws share.

use farhaul_core::congestion::{CongestionController, ReceiverLaw};

use crate::{
    parameters::{Kind, Parameter, Values},
    slow_start::{Classic, HyStart, Limited},
    window::{Counting, Growth, Windowed},
};

/// A law with what chooses, describes and makes it.
#[derive(Clone, Copy, Debug)]
pub struct Law {
    /// Name by which the law is chosen.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Paper, RFC or document.
    pub citation: &'static str,
    /// Parameters that can be set.
    pub parameters: &'static [Parameter],
    /// True if the law means little unless packets leave at its rate.
    pub paced: bool,
    /// Half of the law at the receiver, known by the law's name, if it has one.
    pub receiver: Option<ReceiverGroup>,
    /// Makes a controller; every parameter has a value.
    pub make: fn(&Values) -> Box<dyn CongestionController>,
}

/// Called once by an endpoint; what it returns makes the receiving half of each of its sessions. Halves that
/// share something, such as what a host can take, share it through that.
pub type ReceiverGroup = fn() -> Box<MakeReceiver>;

/// Makes receiving halves.
pub type MakeReceiver = dyn Fn() -> Box<dyn ReceiverLaw> + Send + Sync;

/// The parameter shared by all window laws.
pub(crate) const START: Parameter = Parameter {
    name: "slow_start",
    about: "how slow start ends: when the rtt rises (hystart, RFC 9406), on a loss (classic), or on a \
            loss after steps of 50 datagrams (limited, RFC 3742)",
    kind: Kind::Choice(&["hystart", "classic", "limited"]),
    default: "hystart",
};

/// The parameter shared by all window laws that lets them count as old senders did.
pub(crate) const COUNTING: Parameter = Parameter {
    name: "counting",
    about: "what makes the window grow: bytes acknowledged, or acknowledgements (Linux before 3.x)",
    kind: Kind::Choice(&["bytes", "acks"]),
    default: "bytes",
};

/// `law` behind the slow start chosen by [`START`], growing according to [`COUNTING`].
pub(crate) fn with_start<G: Growth + 'static>(
    values: &Values,
    law: G,
) -> Box<dyn CongestionController> {
    let counting = counting(values);
    match values.choice(START.name) {
        "classic" => Box::new(Windowed::new(Classic, law).counting(counting)),
        "limited" => Box::new(Windowed::new(Limited, law).counting(counting)),
        _ => Box::new(Windowed::new(HyStart::default(), law).counting(counting)),
    }
}

/// The value of [`COUNTING`].
pub(crate) fn counting(values: &Values) -> Counting {
    match values.choice(COUNTING.name) {
        "acks" => Counting::Acks,
        _ => Counting::Bytes,
    }
}

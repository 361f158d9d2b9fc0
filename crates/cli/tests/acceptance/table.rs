//! Promises about bad input and bad times, with the check of each. A row for each case; a case
//! lives here or in the test that its row names, not in both.

mod arguments;
mod destinations;
mod network;
mod peers;
mod sources;
mod studies;

/// Check of a row, or the reason that there is none.
pub(crate) enum By {
    /// The program ends with this code and these words, in text and with `--json`.
    Refuses(&'static [&'static str], i32, &'static str),
    /// A test: its file in the workspace, and its name.
    Test(&'static str, &'static str),
    /// The program does something else, for this reason.
    Otherwise(&'static str),
}

/// A case, and what checks what happens then.
pub(crate) struct Row(pub(crate) &'static str, pub(crate) &'static [By]);

const HERE: &str = "crates/cli/tests/acceptance/files.rs";
const ENDS: &str = "crates/cli/tests/acceptance/ends.rs";
const MACHINE: &str = "crates/cli/tests/acceptance/machine.rs";
const BAD_INPUT: &str = "crates/cli/tests/acceptance/bad_input.rs";
const WAN: &str = "crates/cli/tests/wan.rs";
const SCENARIOS: &str = "crates/cli/tests/scenarios.rs";
const CP_COPIES: &str = "crates/cli/tests/cp/copies.rs";
const CP_ENDS: &str = "crates/cli/tests/cp/ends.rs";
const CP_FILE_SYSTEMS: &str = "crates/cli/tests/cp/file_systems.rs";
const CP_FAULTS: &str = "crates/cli/tests/cp/faults.rs";
const CP_KILLS: &str = "crates/cli/tests/cp/kills.rs";
const CP_LANES: &str = "crates/cli/tests/cp/lanes.rs";
const CP_LIMITS: &str = "crates/cli/tests/cp/limits.rs";
const CP_LISTS: &str = "crates/cli/tests/cp/lists.rs";
const CP_MANY: &str = "crates/cli/tests/cp/many.rs";
const CP_MESSAGES: &str = "crates/cli/tests/cp/messages.rs";
const CP_MIRROR: &str = "crates/cli/tests/cp/mirror.rs";
const CP_ODD: &str = "crates/cli/tests/cp/odd.rs";
const CP_PIPES: &str = "crates/cli/tests/cp/pipes.rs";
const CP_POLICY: &str = "crates/cli/tests/cp/policy.rs";
const CP_RETRY: &str = "crates/cli/tests/cp/retry.rs";
const CP_SELECTION: &str = "crates/cli/tests/cp/selection.rs";
const CP_SEVERAL: &str = "crates/cli/tests/cp/several.rs";
const CP_SHARDS: &str = "crates/cli/tests/cp/shards.rs";
const CP_SIGNALS: &str = "crates/cli/tests/cp/signals.rs";
const CP_TICKETS: &str = "crates/cli/tests/cp/tickets.rs";
const CP_UNREAD: &str = "crates/cli/tests/cp/unread.rs";
const CP_VERSIONS: &str = "crates/cli/tests/cp/versions.rs";
const CP_WATCHED: &str = "crates/cli/tests/cp/watched.rs";
const BETWEEN: &str = "crates/cli/tests/program/between.rs";
const BLOCKED: &str = "crates/cli/tests/program/blocked.rs";
const DOCTOR: &str = "crates/cli/tests/program/doctor.rs";
const LACKS: &str = "crates/transfer/src/receiver/tests/lacks.rs";
const RECEIVER_MIRROR: &str = "crates/transfer/src/receiver/tests/mirror.rs";
const FIRST_HOUR: &str = "crates/cli/tests/program/first_hour.rs";
const LAB: &str = "crates/cli/tests/program/lab.rs";
const LOCAL: &str = "crates/cli/tests/program/local.rs";
const NAMES: &str = "crates/cli/tests/program/names.rs";
const NETWORK: &str = "crates/cli/tests/program/faults.rs";
const ROAM: &str = "crates/cli/tests/program/roam.rs";
const SSH: &str = "crates/cli/tests/program/ssh.rs";
const STUDY: &str = "crates/cli/tests/program/study.rs";
const EXIT: &str = "crates/cli/src/exit.rs";
const LIVENESS: &str = "crates/haul/tests/all/liveness.rs";
const FILES: &str = "crates/transfer/tests/transfer/files.rs";
const REFUSALS: &str = "crates/transfer/tests/transfer/refusals.rs";
const HOSTILE_CLIENT: &str = "crates/transfer/src/hostile/client.rs";
const MANY: &str = "crates/campaign/src/many.rs";
const SENDER: &str = "crates/transfer/src/sender/tests.rs";
const STUCK: &str = "crates/transfer/src/receiver/tests/stuck.rs";
const TRANSFERS: &str = "crates/campaign/src/transfers.rs";

/// The rows by what they are about.
pub(crate) const ALL: &[(&str, &[Row])] = &[
    ("arguments", arguments::ARGUMENTS),
    ("sources", sources::SOURCES),
    ("destinations", destinations::DESTINATIONS),
    ("content", destinations::CONTENT),
    ("reaching the other end", peers::REACHING),
    ("who may what", peers::RIGHTS),
    ("the network and the ends", network::NETWORKS),
    ("emulator, simulator, laboratory, bench", studies::STUDIES),
    ("codes and output", network::OUTPUT),
];

//! `farhaul bench`: measures how fast a protocol is from memory to memory. Its manners are
//! iperf3's: a server and a client, interval lines, a summary; the receiver's count is the truth.

mod client;
mod failure;
mod host;
mod kernel;
mod serve;
mod shown;

use std::{path::PathBuf, sync::Arc};

use farhaul_core::{congestion::Sharing, units::Rate};
use farhaul_measure::registry::{self, Choice};
use serde_json::Value;

pub(crate) use self::host::resolve;
#[cfg(feature = "lab")]
pub(crate) use self::host::resolve_at;
use self::{client::Client, serve::Serve};
use crate::{app::console::Console, exit::Failure, keys, names::Names, typed};

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    serve: Option<Mode>,
    #[command(flatten)]
    client: Client,
}

#[derive(Debug, clap::Subcommand)]
enum Mode {
    /// Run a server for clients
    Serve(Serve),
}

/// Options of both ends.
#[derive(Debug, clap::Args)]
struct How {
    /// The protocol, as NAME or NAME:PARAMETER=VALUE,...; `farhaul protocols` lists them
    #[arg(long, value_name = "PROTOCOL", default_value = "haul", value_parser = Names::protocols(), hide_possible_values = true)]
    protocol: String,
    /// Congestion control (law), as NAME or NAME:PARAMETER=VALUE,...
    #[arg(long, value_name = "LAW", value_parser = Names::laws(), hide_possible_values = true)]
    cc: Option<String>,
    /// Limit the rate of each session, as iperf3 does [default: unlimited]
    #[arg(long, short = 'b', value_name = "RATE", value_parser = typed::rate, allow_hyphen_values = true)]
    rate: Option<Rate>,
    /// Share of a link that others use too: low (what they leave), fair (as much as each of them)
    /// or high (as much as two, if the server allows it); for haul's own law
    #[arg(long, value_name = "low|fair|high", default_value_t)]
    policy: Sharing,
    /// Key file of this end, instead of a new key each time
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long, short = 'J')]
    json: bool,
}

/// Runs the server or the client, and prints what it measured.
pub(crate) fn run(args: Args, console: &Arc<dyn Console>) -> Result<(), Failure> {
    match args.serve {
        Some(Mode::Serve(serve)) => serve.run(&**console),
        None => {
            let measured = args.client.measured(&**console)?;
            args.client.show(&measured);
            Ok(())
        }
    }
}

/// Runs the server or the client; the object of `--json`.
pub(crate) fn object(args: Args, console: &dyn Console) -> Result<Value, Failure> {
    match args.serve {
        Some(Mode::Serve(serve)) => serve.served(console).map(|()| serve::object()),
        None => Ok(args.client.measured(console)?.object()),
    }
}

impl How {
    /// The limit of the rate, if there is one.
    fn max_rate(&self) -> Option<Rate> {
        self.rate.filter(|rate| *rate != Rate::UNLIMITED)
    }

    /// The law, which is haul's own if it has a policy.
    fn law(&self) -> Result<Option<String>, Failure> {
        if self.policy == Sharing::Fair {
            return Ok(self.cc.clone());
        }
        let other = self.cc.as_deref().is_some_and(|cc| cc != "haul");
        if other || self.protocol.split(':').next() != Some("haul") {
            return Err(Failure::usage(format!(
                "--policy {} is a policy of haul's own law: omit --cc and --protocol, or choose a similar law, \
                 such as --cc ledbat",
                self.policy
            )));
        }
        Ok(Some(format!("haul:policy={}", self.policy)))
    }

    fn choice(&self, console: &dyn Console) -> Result<Choice, Failure> {
        let identity = self
            .identity
            .as_deref()
            .map(|file| keys::identity(Some(file), console));
        Ok(Choice {
            law: self.law()?,
            max_rate: self.max_rate(),
            identity: identity.transpose()?.map(|id| id.seed().to_vec()),
            ..Choice::default()
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "a mapping for map_err")]
fn usage(error: registry::ChoiceError) -> Failure {
    Failure::usage(error.to_string())
}

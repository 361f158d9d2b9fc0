//! Commands of farhaul. Each has its arguments and a `run` in a file of its own.

#[cfg(not(feature = "lab"))]
mod absent;
mod bench;
mod clean;
#[cfg(feature = "lab")]
mod compat;
mod completions;
mod config;
pub(crate) mod cp;
mod delay;
#[cfg(feature = "lab")]
mod demo;
mod doctor;
mod explain;
mod far;
mod key;
#[cfg(feature = "lab")]
mod lab;
mod ls;
mod pages;
#[cfg(feature = "lab")]
mod path;
#[cfg(feature = "lab")]
mod probe;
mod protocols;
mod serve;
#[cfg(feature = "lab")]
mod sim;
mod tcp;
mod ticket;
mod top;
#[cfg(feature = "lab")]
mod tree;
mod udp;
#[cfg(feature = "lab")]
mod wan;

use std::sync::Arc;

use clap::Subcommand;
pub(crate) use ls::read;
use serde_json::Value;
pub(crate) use serve::note;
#[cfg(feature = "lab")]
pub use sim::{Simulation, cells, simulate};

#[cfg(not(feature = "lab"))]
use self::absent::{
    self as compat, self as demo, self as lab, self as probe, self as sim, self as wan,
};
use crate::{app::console::Console, exit::Failure, line::Line};

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show a copy on an emulated long fat network beside the kernel's TCP
    #[cfg_attr(not(feature = "lab"), command(hide = true))]
    Demo(demo::Args),
    /// Copy files to another machine, from one, or between two
    Cp(Box<cp::Args>),
    /// List the shares and files of a server
    Ls(ls::Args),
    /// List or remove what interrupted copies have left
    Clean(clean::Args),
    /// Let peers fetch and deliver files
    Serve(serve::Args),
    /// Make your key, and trust the keys of servers
    Key(key::Args),
    /// Let somebody use one folder without a key, for a while
    Ticket(ticket::Args),
    /// Watch a running server
    Top(top::Args),
    /// Change the sessions of a running server
    Ctl(top::Ctl),
    /// Measure from memory to memory, with flags as in iperf3
    Bench(Box<bench::Args>),
    /// Emulate a network on this machine and run programs on it
    #[cfg_attr(not(feature = "lab"), command(hide = true))]
    Wan(wan::Args),
    /// Simulate a network and the sessions on it in virtual time
    #[cfg_attr(not(feature = "lab"), command(hide = true))]
    Sim(Box<sim::Args>),
    /// Run the experiments of papers, store the results, show and check them
    #[cfg_attr(not(feature = "lab"), command(hide = true))]
    #[cfg_attr(feature = "lab", command(subcommand))]
    Lab(lab::Args),
    /// List the protocols and congestion control laws, with their provenance
    Protocols(protocols::Args),
    /// Test this machine, and print what to change
    Doctor(doctor::Args),
    /// Explain exit codes and reasons of "limited by", and what to do
    Explain(explain::Args),
    /// Interoperate with programs of other systems, in clear text
    #[cfg_attr(feature = "lab", command(subcommand))]
    #[cfg_attr(not(feature = "lab"), command(hide = true))]
    Compat(compat::Args),
    /// Show and check defaults of flags, from files and the environment
    Config(config::Args),
    /// Print the completions for a shell
    Completions(completions::Args),
    /// Write the manual pages
    #[command(name = "_man", hide = true)]
    Man(pages::Args),
    /// The far end of a copy through ssh
    #[command(name = "_serve", hide = true)]
    Far,
    /// The sending host of a copy between two others
    #[command(name = "_cp", hide = true)]
    Ordered,
    /// The kernel's TCP, for comparison
    #[command(name = "_tcp", hide = true, subcommand)]
    Tcp(tcp::Args),
    /// Datagrams without congestion control, for cross traffic
    #[command(name = "_udp", hide = true, subcommand)]
    Udp(udp::Args),
    /// Round trips of one packet
    #[command(name = "_delay", hide = true, subcommand)]
    Delay(delay::Args),
    /// Measure an emulated network from outside
    #[cfg_attr(feature = "lab", command(subcommand))]
    #[command(name = "_probe", hide = true)]
    Probe(probe::Args),
}

/// Runs a command of another program; the object of its `--json`.
pub(crate) fn object(
    command: Command,
    line: &Line,
    console: &Arc<dyn Console>,
) -> Result<Value, Failure> {
    match command {
        Command::Bench(args) => bench::object(*args, &**console),
        Command::Cp(args) => cp::object(&args, console),
        Command::Doctor(args) => doctor::examine(&args, console).map(|(object, _)| object),
        Command::Ls(args) => Ok(ls::list(&args, line, console)?.object()),
        Command::Protocols(args) => protocols::object(&args),
        Command::Serve(args) => serve::run(&args, line, console).map(|()| Value::Null),
        _ => Err(Failure::usage("this command runs in a process of its own")),
    }
}

/// Runs a command.
pub(crate) fn run(
    command: Command,
    line: &Line,
    console: &Arc<dyn Console>,
) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::Cp(args) => cp::run(&args, console),
        Command::Ls(args) => ls::run(&args, line, console),
        Command::Clean(args) => clean::run(&args),
        Command::Serve(args) => serve::run(&args, line, console),
        Command::Key(args) => key::run(args),
        Command::Ticket(args) => ticket::run(args, line),
        Command::Top(args) => top::run(&args),
        Command::Ctl(args) => top::ctl(&args),
        Command::Bench(args) => bench::run(*args, console),
        Command::Wan(args) => wan::run(args),
        Command::Sim(args) => sim::run(&args),
        Command::Lab(args) => lab::run(args),
        Command::Protocols(args) => protocols::run(&args),
        Command::Doctor(args) => doctor::run(&args, console),
        Command::Explain(args) => explain::run(&args),
        Command::Compat(args) => compat::run(&args),
        Command::Config(args) => config::run(&args, line),
        Command::Completions(args) => completions::run(&args, line),
        Command::Man(args) => pages::run(&args, line),
        Command::Far => far::run(),
        Command::Ordered => cp::ordered(),
        Command::Tcp(args) => tcp::run(args),
        Command::Probe(args) => probe::run(args),
        Command::Udp(args) => udp::run(&args),
        Command::Delay(args) => delay::run(&args),
    }
}

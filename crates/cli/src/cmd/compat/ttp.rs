//! `farhaul compat ttp`: the client and the server of the Tsunami UDP protocol 1.1.

mod client;
mod server;

use std::path::PathBuf;

use farhaul_protocols::ttp::wire::SECRET;
use farhaul_transfer::read_whole;

use self::{
    client::{Get, List},
    server::Serve,
};
use crate::exit::{Exit, Failure};

/// Files of a list.
const FILES: usize = 10_000;

/// The programs.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Ttp {
    /// Serve files, until stopped
    Serve(Serve),
    /// Fetch one file, or all that are listed
    Get(Get),
    /// List the files of a server
    List(List),
}

/// Secret that both ends know.
#[derive(Debug, clap::Args)]
pub(crate) struct Secret {
    /// A file whose first line is the secret [default: the public one]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

impl Secret {
    fn read(&self) -> Result<Vec<u8>, Failure> {
        let Some(path) = &self.secret_file else {
            return Ok(SECRET.to_vec());
        };
        let config = |text: String| Failure::new(Exit::Config, text);
        let text = read_whole(path, 4_096)
            .map_err(|e| config(format!("the secret: {}: {e}", path.display())))?;
        let line = text.split(|b| *b == b'\n').next().unwrap_or_default();
        if line.is_empty() {
            return Err(config(format!(
                "{}: its first line is empty",
                path.display()
            )));
        }
        Ok(line.to_vec())
    }
}

pub(super) fn run(program: &Ttp) -> Result<(), Failure> {
    match program {
        Ttp::Serve(args) => args.run(),
        Ttp::Get(args) => args.run(),
        Ttp::List(args) => args.run(),
    }
}

//! A worse server, with a fault that was planted, for the parts to find. The server is like that of
//! `farhaul serve`, in a process of its own.

use std::{io, net::Ipv6Addr, path::Path, path::PathBuf, process::Command, sync::Arc};

use farhaul_haul::{Haul, HaulConfig};
use farhaul_io::{
    App, Stop, Waker,
    server::{Listener, Options},
};
use farhaul_transfer::server::{Access, Allow, Policy, Server as Serve, Share};

use crate::{program::Server, report::say};

/// Faults of the server.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Half-open sessions at a time
    #[arg(long, default_value_t = 512)]
    half_open: usize,
    /// All sessions on one thread
    #[arg(long)]
    one_thread: bool,
    /// Bytes lost with each session
    #[arg(long, default_value_t = 0)]
    leak: usize,
    /// A line on stderr for each session, by the listener's thread
    #[arg(long)]
    chatty: bool,
    /// NAME=PATH:rw or NAME=PATH:ro
    #[arg(long)]
    share: Vec<String>,
}

/// Starts such a server from this program itself.
pub(crate) fn serve(home: &Path, arguments: &[&str]) -> io::Result<Server> {
    Server::start(&mut command(home, arguments)?)
}

/// Command that starts it.
pub(crate) fn command(home: &Path, arguments: &[&str]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("serve").args(arguments).env("HOME", home);
    Ok(command)
}

/// Runs such a server until it is killed.
pub(crate) fn run(args: &Args) -> io::Result<()> {
    let shares = args.share.iter().map(|share| {
        let (name, path) = share.split_once('=').ok_or(io::ErrorKind::InvalidInput)?;
        let (path, access) = path.rsplit_once(':').ok_or(io::ErrorKind::InvalidInput)?;
        let access = Access::parse(access).ok_or(io::ErrorKind::InvalidInput)?;
        Share::open(name, &PathBuf::from(path), access)
    });
    let shares = shares.collect::<io::Result<Vec<_>>>()?;
    let policy = Arc::new(Policy::new(shares, Allow::Any, false));
    let haul = Haul::server(HaulConfig::new([9; 32])).map_err(io::Error::other)?;
    let mut options = Options::new((Ipv6Addr::UNSPECIFIED, 0).into());
    options.max_half_open = args.half_open;
    options.own_threads = !args.one_thread;
    let (leak, chatty) = (args.leak, args.chatty);
    let factory = move |_, waker: &Waker| -> Box<dyn App> {
        if leak > 0 {
            std::mem::forget(std::hint::black_box(vec![1_u8; leak]));
        }
        if chatty {
            // A closed pipe is not worth a panic.
            let _closed = io::Write::write_all(&mut io::stderr(), &[b'.'; 1_000]);
        }
        let waker = waker.clone();
        let wake = Some(Arc::new(move || waker.wake()) as Arc<_>);
        Box::new(Serve::new(Arc::clone(&policy), wake))
    };
    let listener = Listener::bind(options, Box::new(haul), factory).map_err(io::Error::other)?;
    let at = listener.local_addr().map_err(io::Error::other)?;
    let line = format!("listening on {at}/udp\n");
    io::Write::write_all(&mut io::stderr(), line.as_bytes())?;
    let ended = listener.run(&Stop::new()?).map_err(io::Error::other)?;
    say(&format!("{} sessions", ended.accepted));
    Ok(())
}

//! `farhaul _cp`: a copy to another host that a third machine orders through ssh. It makes a key pair for this copy, says
//! the public one, reads one line that says what to do, and copies. What the command would print is reported through ssh;
//! when ssh ends the copy does.

use std::{
    ffi::OsString,
    io,
    os::{fd::AsFd as _, unix::ffi::OsStringExt as _},
    sync::Arc,
    thread,
};

use farhaul_haul::Identity;
use farhaul_io::Stop;
use farhaul_transfer::{TransferError, client::Remote};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use super::{Args, Report, Shown};
use crate::{
    app::{
        console::Console,
        copy::{Job, Ordered},
        far::typed_path,
    },
    cmd::far::heard,
    exit::{Exit, Failure},
    interrupt, out,
    place::{Far, Server},
    ssh::{Hello, MAGIC, Met, Order, RELEASE, Receiver, SHARE, Said, all_from_hex, from_hex},
    terminal::Terminal,
    ticket::Ticket,
};

/// The most bytes of the reason of a failure.
const REASON: usize = 8 << 10;

/// Copies as ordered.
pub(crate) fn ordered() -> Result<(), Failure> {
    let identity = Identity::generate().map_err(|e| Failure::internal(&e))?;
    let hello = Hello {
        key: identity.public().to_string(),
        release: RELEASE.into(),
    };
    let line = serde_json::to_string(&hello).map_err(|e| Failure::internal(&e))?;
    out::line(format!("{MAGIC}{line}"));
    out::report_all();
    let (code, text) = match obey(identity) {
        Ok(()) => (Exit::Ok.number(), String::new()),
        Err(e) => (e.exit.number(), e.text),
    };
    let text = text[..text.floor_char_boundary(REASON)].to_owned();
    out::report(&Said::End { code, text });
    Ok(())
}

fn obey(identity: Identity) -> Result<(), Failure> {
    let order: Order = heard()?;
    let flags = all_from_hex(&order.flags).ok_or_else(malformed)?;
    let flags: Vec<_> = flags.into_iter().map(OsString::from_vec).collect();
    let args = Args::of_sender(&flags)?;
    match copy(&args, order, identity) {
        Ok(report) => report.print(),
        Err(e) => {
            out::failure(&e, args.json, args.json_stream);
            return Err(e);
        }
    }
    Ok(())
}

fn copy(args: &Args, order: Order, own: Identity) -> Result<Report, Failure> {
    let sources = all_from_hex(&order.sources).filter(|sources| !sources.is_empty());
    let sources = sources
        .ok_or_else(malformed)?
        .into_iter()
        .map(|typed| typed_path(&typed));
    let (to, met) = match order.to {
        Receiver::Ticket(ticket) => (Far::from(Ticket::parse(&ticket)?), None),
        Receiver::Ssh {
            login,
            hosts,
            port,
            key,
            path,
        } => {
            let server = Server {
                host: login.clone(),
                port,
                login: Some(login),
                right: None,
            };
            let remote = Remote {
                share: SHARE.into(),
                path: from_hex(&path).ok_or_else(malformed)?,
            };
            let met = Met {
                hosts,
                key: key.parse().map_err(|_| malformed())?,
                identity: own,
            };
            (Far { server, remote }, Some(met))
        }
    };
    let gone = interrupt::stop()?;
    watch(gone.clone()).map_err(|e| TransferError::no_thread(&e))?;
    let called = order.called;
    let near: Arc<dyn Console> = Arc::new(Terminal);
    let shown = Shown::of(args, &near);
    let mut request = args.request(Job::Put(sources.collect(), to), &*shown)?;
    (request.met, request.ordered) = (met, Some(Ordered { gone, called }));
    Report::of(request, shown)
}

/// Sets `gone` when the standard input ends. Nothing of it is read, since it may be a tunnel's.
fn watch(gone: Stop) -> io::Result<()> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let watch = move || {
        let mut ended = [PollFd::new(&input, PollFlags::RDHUP)];
        // Whatever ends it, the machine that ordered this is gone.
        while matches!(poll(&mut ended, None), Err(Errno::INTR)) {}
        gone.set();
    };
    thread::Builder::new()
        .name("near-end".into())
        .spawn(watch)?;
    Ok(())
}

fn malformed() -> Failure {
    Failure::new(Exit::Protocol, "not a message of `farhaul cp`")
}

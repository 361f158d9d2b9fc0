//! `farhaul cp`: files to a server, or from one.

use std::sync::Arc;

use serde_json::Value;

mod args;
mod merge;
mod mirror;
mod ordered;
mod pipe;
mod report;
mod shard;
mod shown;

pub(crate) use args::{Args, Blocked, TICKETS, Through};
pub(crate) use ordered::ordered;
pub(crate) use report::Report;
use shown::Shown;

use crate::{
    app::{
        console::Console,
        copy::{self, DryRun, Job, Request},
        third_party::ThirdParty,
    },
    exit::Failure,
    place::Place,
};

/// Copies, and prints what was done.
pub(crate) fn run(args: &Args, console: &Arc<dyn Console>) -> Result<(), Failure> {
    if args.sharding.merge {
        return merge::run(args);
    }
    copy(args, console)?.print();
    Ok(())
}

/// Copies, or merges reports; the object of `--json`.
pub(crate) fn object(args: &Args, console: &Arc<dyn Console>) -> Result<Value, Failure> {
    if args.sharding.merge {
        return merge::merged(args).map(|(object, _)| object);
    }
    Ok(copy(args, console)?.object())
}

fn copy(args: &Args, console: &Arc<dyn Console>) -> Result<Report, Failure> {
    let shown = Shown::of(args, console);
    let places = places(args, &*shown)?;
    let named_here = |e| copy::or_local(e, &args.paths);
    if let Some(copy) = ThirdParty::of(&places).map_err(named_here)? {
        args.sharding.refuse_between()?;
        let console: Arc<dyn Console> = Arc::<Shown>::clone(&shown);
        let object = copy.run(&args.third_party(&*shown)?, &console)?;
        return Ok(Report::of_object(object, shown));
    }
    Report::of(request(args, places, &*shown)?, shown)
}

/// Lists what a dry run would fetch.
pub(crate) fn list(args: &Args, long: bool, console: &Arc<dyn Console>) -> Result<Report, Failure> {
    let shown = Shown::of(args, console);
    let mut request = request(args, places(args, &*shown)?, &*shown)?;
    request.plan = Some((DryRun::listing(long), args.printed()));
    Report::of(request, shown)
}

fn places(args: &Args, console: &dyn Console) -> Result<Vec<Place>, Failure> {
    args.refuse_needless()?;
    copy::places(&args.paths, args.ticket(console)?.as_ref())
}

/// The request of a copy between this machine and another.
fn request(args: &Args, places: Vec<Place>, console: &dyn Console) -> Result<Request, Failure> {
    let mut job = Job::of(places).map_err(|e| copy::or_local(e, &args.paths))?;
    args.sharding.refuse(&job)?;
    pipe::prepare(args, &mut job, console)?;
    args.request(job, console)
}

//! One copy: a command, its server, the network between them, and the faults of that day.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use farhaul_core::{app::App, rng::Rng, time::Instant};
use farhaul_haul::{Haul, HaulConfig};
use farhaul_transfer::{
    Existing, Handle, Outcome, Simulated, TransferError, VirtualTime,
    client::{Download, Options, Remote, Upload},
    server::{Access, Allow, Policy, Server, Share},
};

use super::{
    disk::{Count, Disk, Faults, Op},
    pick,
    world::{End, Network, World},
};

/// Time by which everybody has ended.
const DEADLINE: Duration = Duration::from_secs(1_000);

/// Files to copy, and their destination.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// True if the client sends.
    pub(crate) put: bool,
    pub(crate) from: PathBuf,
    pub(crate) to: PathBuf,
}

/// Day of a copy: faults of the client's and the server's disk, and when one of them is killed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Day {
    pub(crate) disks: [Faults; 2],
    /// Event at which one of them is killed, and which.
    pub(crate) kill: Option<(u64, usize)>,
    /// True if the receiver's actions are noted.
    pub(crate) noted: bool,
    /// Network in place of one that the seed chooses.
    pub(crate) network: Option<Network>,
    /// Treatment of files that are there.
    pub(crate) existing: Existing,
}

/// Result of a copy.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The result reported, unless the client was killed.
    pub(crate) outcome: Option<Outcome>,
    /// True if the ends did not end.
    pub(crate) hangs: bool,
    /// True if something at the destination had not been synced when the copy was over.
    pub(crate) unsynced: bool,
    pub(crate) trace: u64,
    pub(crate) events: u64,
    /// Calls on the disks, client's and server's.
    pub(crate) calls: [u64; 2],
    pub(crate) injected: u64,
    pub(crate) ops: Vec<Op>,
    /// Files that the receiver's disk counted and did not keep.
    pub(crate) forgotten: Count,
}

impl Ran {
    /// True if success was reported.
    pub(crate) fn is_success(&self) -> bool {
        self.outcome.as_ref().is_some_and(|o| o.error.is_none())
    }

    /// The texts of what failed, and warnings.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        let summaries = self.outcome.iter().map(|o| &o.summary);
        summaries.flat_map(|summary| {
            let failures = summary.failures.iter().map(|f| &f.text);
            failures.chain(&summary.warnings).map(String::as_str)
        })
    }

    /// The result reported.
    pub(crate) fn outcome(&self) -> String {
        match &self.outcome {
            None => "nothing".into(),
            Some(Outcome { error: None, .. }) => "success".into(),
            Some(Outcome {
                error: Some(e),
                summary,
            }) => {
                let failures = summary.failures.iter().map(|f| f.text.clone());
                format!(
                    "{}: {e}; {:?}",
                    e.code.number(),
                    failures.collect::<Vec<_>>()
                )
            }
        }
    }
}

fn network(rng: &mut Rng) -> Network {
    let millis = Duration::from_millis;
    Network {
        delay: *pick(rng, &[millis(1), millis(10), millis(50)]),
        jitter: *pick(rng, &[millis(0), millis(5), millis(30)]),
        loss: *pick(rng, &[0, 1_000, 20_000, 60_000]),
        rate: *pick(rng, &[50_000_000, 200_000_000, 1_000_000_000]),
    }
}

fn haul(server: bool) -> Haul {
    let made = if server {
        Haul::server(HaulConfig::new([2; 32]))
    } else {
        Haul::client(HaulConfig::new([1; 32]))
    };
    made.unwrap_or_else(|e| unreachable!("the configuration is fixed: {e}"))
}

/// A machine's time and disk.
fn machine(rng: &Rng, name: &str, faults: Faults, noted: bool) -> (Arc<VirtualTime>, Arc<Disk>) {
    let time = Arc::new(VirtualTime::default());
    let disk = Disk::new(&time, rng.fork(name), faults, noted);
    (time, Arc::new(disk))
}

fn simulated((time, disk): &(Arc<VirtualTime>, Arc<Disk>)) -> Simulated {
    let disk: Arc<dyn farhaul_transfer::Interposer> = Arc::clone(disk) as _;
    Simulated {
        disk: farhaul_transfer::Disk(Some(disk)),
        time: Arc::clone(time),
    }
}

/// The server's share and the client's path: the contents of one go into the other.
fn share(task: &Task) -> (&Path, Access) {
    if task.put {
        (&task.to, Access::ReadWrite)
    } else {
        (&task.from, Access::Read)
    }
}

/// The command, on its machine.
fn client(
    task: &Task,
    existing: Existing,
    here: Simulated,
) -> Result<(Box<dyn App>, Handle), TransferError> {
    let options = Options {
        simulated: Some(here),
        existing,
        ..Options::default()
    };
    let remote = Remote {
        share: "s".into(),
        path: Vec::new(),
    };
    if task.put {
        let upload = Upload::new(&[task.from.join("")], &remote, options)?;
        let handle = upload.handle();
        return Ok((Box::new(upload), handle));
    }
    let download = Download::new(&[remote], &task.to, options)?;
    let handle = download.handle();
    Ok((Box::new(download), handle))
}

/// Runs a copy to its end.
pub(crate) fn run(task: &Task, day: &Day, seed: u64) -> Result<Ran, String> {
    let mut rng = Rng::new(seed).fork("copy");
    let network = day.network.unwrap_or(network(&mut rng));
    let machines = [
        machine(&rng, "client", day.disks[0], day.noted && !task.put),
        machine(&rng, "server", day.disks[1], day.noted && task.put),
    ];
    let [here, there] = machines.each_ref().map(simulated);
    let (root, access) = share(task);
    let share = Share::open("s", root, access).and_then(|share| share.on(&there.disk));
    let share = share.map_err(|e| format!("the share cannot be opened: {e}"))?;
    let policy = Arc::new(Policy::new(vec![share], Allow::Any, true));
    let server = Server::new(policy, None).simulated(there);
    let (client, handle) = match client(task, day.existing, here) {
        Ok(made) => made,
        Err(e) => return Ok(refused(e, &machines)),
    };
    let [(near, disk), (far, server_disk)] = &machines;
    let ends = [
        End::new(
            0,
            client,
            Box::new(haul(false)),
            (near, disk),
            rng.fork("near"),
        ),
        End::new(
            1,
            Box::new(server),
            Box::new(haul(true)),
            (far, server_disk),
            rng.fork("far"),
        ),
    ];
    let receiver = if task.put { server_disk } else { disk };
    let mut world = World::new(Instant::EPOCH, ends, network, rng.fork("net"));
    world.connect();
    let limit = Instant::EPOCH + DEADLINE;
    let mut said = false;
    while !world.is_over() && world.step(limit) {
        if let Some((at, who)) = day.kill
            && world.events == at
        {
            world.kill(who);
        }
        if let Some(spins) = world.spins() {
            return Err(spins);
        }
        if !said && handle.outcome().is_some_and(|o| o.error.is_none()) {
            said = true;
            receiver.note(Op::Success);
        }
    }
    let outcome = handle.outcome().filter(|_| !disk.is_dead());
    Ok(Ran {
        outcome,
        hangs: !world.is_over(),
        unsynced: receiver.is_unsynced(),
        trace: world.trace(),
        events: world.events,
        calls: [disk.calls().0, server_disk.calls().0],
        injected: disk.calls().1 + server_disk.calls().1,
        ops: receiver.take_ops(),
        forgotten: receiver.forgotten(),
    })
}

/// Result of a command that ends before it connects.
fn refused(e: TransferError, machines: &[(Arc<VirtualTime>, Arc<Disk>); 2]) -> Ran {
    let injected = machines.iter().map(|(_, disk)| disk.calls().1).sum();
    let outcome = Outcome {
        summary: farhaul_transfer::Summary::of_error(true, &e),
        error: Some(e),
    };
    Ran {
        outcome: Some(outcome),
        hangs: false,
        unsynced: false,
        trace: 0,
        events: 0,
        calls: machines.each_ref().map(|(_, disk)| disk.calls().0),
        injected,
        ops: Vec::new(),
        forgotten: Count::default(),
    }
}

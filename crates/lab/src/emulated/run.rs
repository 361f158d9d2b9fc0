//! Runs several flows at once: servers first, until they can be reached; then every client at its
//! time. Programs that hang are ended at their deadlines, and everything is gone afterwards, with
//! the network.

use std::{
    io,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use farhaul_core::time::Instant;
use farhaul_emu::{
    Host, Signals,
    wan::{Wan, WanConfig},
};
use farhaul_io::clock;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use super::{
    EmulatedRunError, Flow, FlowResult, FlowsRun, TcpDriver,
    answer::{self, Counts, Played},
    commands::{self, Commands, Place, Ready},
    process::Process,
    profile,
    quota::Quota,
};
use farhaul_measure::{host, udp::timespec};

/// Pause between looks at a process.
const LOOK: Duration = Duration::from_millis(5);
/// Readings of the processor time in an interval of the series, with which they are not in step.
const SAMPLES: u32 = 5;
/// Least interval of samples.
const FINEST: Duration = Duration::from_millis(10);
/// Longest times that programs may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// A server until it can be reached.
    ready: Duration,
    /// A client beyond its time, and a server after its client.
    grace: Duration,
    /// Time of a program that prepares a flow, or verifies it.
    beside: Duration,
}

const PATIENCE: Patience = Patience {
    ready: Duration::from_secs(10),
    grace: Duration::from_secs(20),
    beside: Duration::from_mins(5),
};

/// Builds the network, runs the flows on it, and removes it. `program` is the farhaul binary. With `cpu` all
/// programs of an end together have that share of one core. A flow that fails is
/// a result; so is a late emulator: see [`FlowsRun::invalid`].
///
/// Ends early, and leaves nothing behind, on SIGINT, SIGTERM and SIGHUP; these are ignored afterwards unless the
/// process catches them elsewhere too.
pub fn run_flows(
    network: &WanConfig,
    flows: &[Flow],
    program: &Path,
    cpu: Option<f64>,
) -> Result<FlowsRun, EmulatedRunError> {
    run_within(network, flows, program, (cpu, PATIENCE))
}

/// Reason why the ends cannot be held to a share of a core on this machine, if so.
pub(crate) fn cannot_bound() -> Option<String> {
    Quota::new("try", 1.0).err()
}

/// Quotas for the near host and the far one.
fn quotas(cpu: Option<f64>) -> Result<Option<[Quota; 2]>, EmulatedRunError> {
    let one = |name, share| Quota::new(name, share).map_err(EmulatedRunError::Cannot);
    cpu.map(|share| Ok([one("near", share)?, one("far", share)?]))
        .transpose()
}

/// Runs flows with other bounds for programs that hang.
pub(super) fn run_within(
    network: &WanConfig,
    flows: &[Flow],
    program: &Path,
    (cpu, patience): (Option<f64>, Patience),
) -> Result<FlowsRun, EmulatedRunError> {
    let folder = memory()?;
    let failed = |e| EmulatedRunError::Start("the flows".into(), e);
    let ports: Option<Vec<u16>> = (0..flows.len()).map(commands::port).collect();
    let too_many = || EmulatedRunError::Cannot(format!("{} flows are too many", flows.len()));
    let ports = ports.ok_or_else(too_many)?;
    let network = WanConfig {
        ports: ports
            .iter()
            .map(|first| *first..=first + commands::PORTS - 1)
            .collect(),
        ..network.clone()
    };
    let mut signals = Signals::catch().map_err(failed)?;
    // Removed last: what runs in them ends with the hosts.
    let quotas = quotas(cpu)?;
    let wan = Wan::start(&network)?;
    let place = Place {
        network: &network,
        program,
        folder: folder.path(),
    };
    let mut running = Vec::new();
    for (flow, port) in flows.iter().zip(&ports) {
        let ends = (&wan, quotas.as_ref());
        running.push(Running::new(&place, ends, flow, *port, patience)?);
    }
    for flow in &mut running {
        let prepare = flow.commands.prepare.take();
        flow.beside("prepare", prepare, &mut signals)?;
        flow.serve(&mut signals)?;
    }
    let (begun, busy) = (clock::now(), host::busy_seconds());
    let interrupted = play(&mut running, begun, &mut signals).map_err(failed)?;
    let busy = host::busy_seconds().zip(busy);
    for flow in &mut running {
        let verify = flow.commands.verify.take().filter(|_| flow.succeeded());
        flow.beside(
            "verify",
            verify.filter(|_| interrupted.is_none()),
            &mut signals,
        )?;
    }
    let running: Vec<Finished> = running.into_iter().map(Running::end).collect();
    // With the hosts everything ends that could still print.
    let wan = wan.finish()?;
    for quota in quotas.iter().flatten() {
        let failed = |e| EmulatedRunError::Start("the end of a control group".into(), e);
        quota.end().map_err(failed)?;
    }
    if let Some(signal) = interrupted {
        return Err(EmulatedRunError::Interrupted(signal));
    }
    let result = |(number, (flow, played)): (usize, (&Flow, Finished))| {
        let alone = flows.len() == 1;
        let counts = Counts::of(&wan, flow.reverse, (!alone).then_some(number));
        let result = answer::result(flow, &played.read(begun), counts);
        profiled(
            flow,
            result,
            [0, 1].map(|end| samples(folder.path(), ports[number], end)),
        )
    };
    let flows_in_order = flows.iter().zip(running).enumerate();
    Ok(FlowsRun {
        flows: flows_in_order.map(result).collect(),
        wan,
        machine_cpu_seconds: busy.map(|(after, before)| after - before),
    })
}

/// Names of both ends in metrics: of the server's, and of the client's.
const ENDS: [&str; 2] = ["receiver", "sender"];

/// File with the samples of an end of the flow at `port`.
fn samples(folder: &Path, port: u16, end: usize) -> PathBuf {
    folder.join(format!("{port}-{}.perf", ENDS[end]))
}

/// `result` with the profile of both ends, if there is to be one; without it the flow has failed.
fn profiled(flow: &Flow, mut result: FlowResult, files: [PathBuf; 2]) -> FlowResult {
    let Some(profile) = flow.profile.as_ref().filter(|_| result.failed.is_none()) else {
        return result;
    };
    for (end, file) in ENDS.iter().zip(files) {
        match profile.read(end, &file) {
            Ok(shares) => result.metrics.extend(shares),
            Err(why) => result.failed = Some(why),
        }
    }
    result
}

/// A folder in memory if there is one.
fn memory() -> Result<tempfile::TempDir, EmulatedRunError> {
    let shm = Path::new("/dev/shm");
    let mut folder = tempfile::Builder::new();
    let folder = folder.prefix("farhaul-flows-");
    let made = if shm.is_dir() {
        folder.tempdir_in(shm)
    } else {
        folder.tempdir()
    };
    made.map_err(|e| EmulatedRunError::Start("a temporary folder".into(), e))
}

/// One flow while it runs.
struct Running<'a> {
    flow: &'a Flow,
    commands: Commands,
    /// Command lines as they could be typed: the server's, the client's.
    lines: Vec<String>,
    /// Hosts on which the client and the server run.
    hosts: [&'a Host; 2],
    /// Quotas that bound the hosts.
    quotas: Option<[&'a Quota; 2]>,
    server: Option<Process>,
    client: Option<Process>,
    /// Programs run before and after them.
    beside: Vec<(&'static str, Process)>,
    patience: Patience,
    /// True if nothing more is started.
    over: bool,
    trouble: Option<String>,
    /// Time at which the processor time of both is to be read.
    next_sample: Instant,
}

/// One flow whose programs have ended; their last output may still be on its way.
struct Finished {
    lines: Vec<String>,
    driver: Option<TcpDriver>,
    bytes: Option<u64>,
    server: Option<Process>,
    client: Option<Process>,
    beside: Vec<(&'static str, Process)>,
    trouble: Option<String>,
}

impl Finished {
    /// Reads the output, once the hosts are gone.
    fn read(self, begun: Instant) -> Played {
        let failed = self.beside.into_iter().find_map(|(what, process)| {
            let ended = process.finish(begun);
            let how = ended.failed?;
            let late = if ended.asked {
                "it took too long, "
            } else {
                ""
            };
            Some(format!("{what} failed: {late}{how}"))
        });
        Played {
            begun,
            commands: self.lines,
            driver: self.driver,
            bytes: self.bytes,
            server: self.server.map(|server| server.finish(begun)),
            client: self.client.map(|client| client.finish(begun)),
            trouble: failed.or(self.trouble),
        }
    }
}

impl<'a> Running<'a> {
    fn new(
        place: &Place<'_>,
        (wan, quotas): (&'a Wan, Option<&'a [Quota; 2]>),
        flow: &'a Flow,
        port: u16,
        patience: Patience,
    ) -> Result<Self, EmulatedRunError> {
        let mut ends = [0, 1];
        if flow.reverse {
            ends.reverse();
        }
        if flow.local {
            ends[0] = ends[1];
        }
        let hosts = ends.map(|end| [wan.near(), wan.far()][end]);
        let mut commands = place.commands(flow, hosts[1].address(), port)?;
        if flow.profile.is_some() {
            let file = |end| samples(place.folder, port, end);
            if let Some((server, _)) = &mut commands.server {
                *server = profile::wrap(server, &file(0));
            }
            commands.client = commands.client.map(|mut c| profile::wrap(&mut c, &file(1)));
            // Its samples are written when it ends, which it does by itself.
            commands.server_reports = true;
        }
        let server = commands.server.as_ref().map(|(server, _)| server);
        let lines = server.into_iter().chain(&commands.client);
        let own = place.program.to_string_lossy();
        Ok(Self {
            flow,
            lines: lines
                .map(|command| commands::line(command).replace(&*own, "farhaul"))
                .collect(),
            commands,
            hosts,
            quotas: quotas.map(|both| ends.map(|end| &both[end])),
            next_sample: Instant::EPOCH,
            server: None,
            client: None,
            beside: Vec::new(),
            patience,
            over: false,
            trouble: None,
        })
    }

    fn fail(&mut self, why: impl FnOnce() -> String) {
        self.over = true;
        self.trouble.get_or_insert_with(why);
    }

    /// Starts `command` at the client's end (0) or the server's (1).
    fn start(&self, end: usize, command: Command, deadline: Instant) -> io::Result<Process> {
        let quota = self.quotas.map(|quotas| quotas[end]);
        Process::start(self.hosts[end], command, quota, deadline)
    }

    /// Between two readings of the processor time; none without a series.
    fn sampling(&self) -> Option<Duration> {
        let interval = self.flow.interval;
        (!interval.is_zero()).then(|| (interval / SAMPLES).max(FINEST))
    }

    /// Runs `command` on the client's host to its end; the flow fails with it.
    fn beside(
        &mut self,
        what: &'static str,
        command: Option<Command>,
        signals: &mut Signals,
    ) -> Result<(), EmulatedRunError> {
        let Some(command) = command else {
            return Ok(());
        };
        let failed = |e| EmulatedRunError::Start(what.into(), e);
        let deadline = clock::now() + self.patience.beside;
        let mut process = Process::start(self.hosts[0], command, None, deadline).map_err(failed)?;
        while process.end().is_none() {
            if let Some(signal) = signals.next() {
                return Err(EmulatedRunError::Interrupted(signal));
            }
            process.ends_within(LOOK);
            process.watch(clock::now()).map_err(failed)?;
        }
        if process.end().is_some_and(|(_, status)| !status.success()) {
            self.fail(|| format!("{what} failed"));
        }
        self.beside.push((what, process));
        Ok(())
    }

    /// True if the client has ended well, and nothing else went wrong.
    fn succeeded(&self) -> bool {
        let ended = self.client.as_ref().and_then(Process::end);
        self.trouble.is_none() && ended.is_some_and(|(_, status)| status.success())
    }

    /// Starts the server and waits until it can be reached.
    fn serve(&mut self, signals: &mut Signals) -> Result<(), EmulatedRunError> {
        let Some((command, ready)) = self.commands.server.take().filter(|_| !self.over) else {
            return Ok(());
        };
        let server = match self.start(1, command, Instant::FAR_FUTURE) {
            Ok(server) => server,
            Err(e) => {
                self.fail(|| format!("the server cannot be started: {e}"));
                return Ok(());
            }
        };
        let server = self.server.insert(server);
        for _ in 0..self.patience.ready.as_millis() / LOOK.as_millis() {
            if let Some(signal) = signals.next() {
                return Err(EmulatedRunError::Interrupted(signal));
            }
            let there = match &ready {
                Ready::Port(port) => self.hosts[1].has_listener(Some(*port)),
                Ready::Text(text) => server.has_printed(text),
            };
            if there {
                return Ok(());
            }
            if server.ends_within(LOOK) {
                self.fail(|| "the server ended before it could be reached".into());
                return Ok(());
            }
        }
        server.end_at(clock::now());
        let took = self.patience.ready;
        self.fail(|| match ready {
            Ready::Port(port) => format!(
                "the server does not listen at port {port} after {took:?}: use {{port}} in its command, or \
                 name with 'ready' what it prints when it can be reached"
            ),
            Ready::Text(text) => format!("the server has not printed '{text}' after {took:?}"),
        });
        Ok(())
    }

    /// Starts the client if it is time, notices ends, and ends what is no longer needed.
    fn step(&mut self, begun: Instant, now: Instant) -> io::Result<()> {
        for process in self.processes() {
            process.watch(now)?;
        }
        if !self.over && self.client.is_none() && now >= begun + self.flow.start {
            self.send(now);
        }
        let server_failed = self.server.as_ref().and_then(Process::end);
        if server_failed.is_some_and(|(_, status)| !status.success()) && !self.over {
            self.fail(|| "the server failed".into());
            if let Some(client) = &mut self.client {
                client.end_at(now);
            }
        }
        if let Some(every) = self.sampling().filter(|_| now >= self.next_sample) {
            for process in self.processes() {
                process.sample(now);
            }
            self.next_sample = now + every;
        }
        let sent = self.client.as_ref().map(|client| client.end().is_some());
        self.over |= sent == Some(true);
        if self.over
            && sent != Some(false)
            && let Some(server) = &mut self.server
        {
            // Its own end has the rest of the result.
            let reports = self.commands.server_reports && self.trouble.is_none();
            let wait = if reports {
                self.patience.grace
            } else {
                Duration::ZERO
            };
            server.end_at(now + wait);
        }
        Ok(())
    }

    fn send(&mut self, now: Instant) {
        let deadline = now + self.flow.amount.time() + self.patience.grace;
        let Some(command) = self.commands.client.take() else {
            return;
        };
        match self.start(0, command, deadline) {
            Ok(mut client) => {
                client.sample(now);
                self.client = Some(client);
            }
            Err(e) => self.fail(|| format!("the client cannot be started: {e}")),
        }
    }

    fn stop(&mut self, now: Instant) {
        self.over = true;
        for process in self.processes() {
            process.end_at(now);
        }
    }

    fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        [&mut self.server, &mut self.client].into_iter().flatten()
    }

    /// Processes that have not ended.
    fn alive(&self) -> impl Iterator<Item = &Process> {
        let all = [&self.server, &self.client].into_iter().flatten();
        all.filter(|process| process.end().is_none())
    }

    /// Time at which there is something to do, if nothing ends before; none if there is nothing any
    /// more.
    fn next(&self, begun: Instant) -> Option<Instant> {
        let start = (!self.over && self.client.is_none()).then(|| begun + self.flow.start);
        let sample = self.sampling().map(|_| self.next_sample);
        let sample = sample.filter(|_| self.alive().next().is_some());
        let due = self.alive().filter_map(Process::next);
        due.chain(start).chain(sample).min()
    }

    fn end(self) -> Finished {
        Finished {
            lines: self.lines,
            driver: self.commands.driver,
            bytes: self.commands.bytes,
            server: self.server,
            client: self.client,
            beside: self.beside,
            trouble: self.trouble,
        }
    }
}

/// Lets all flows run to their ends; the signal that ended them early, if one did.
fn play(
    running: &mut [Running<'_>],
    begun: Instant,
    signals: &mut Signals,
) -> io::Result<Option<i32>> {
    let mut interrupted = None;
    loop {
        let now = clock::now();
        interrupted = interrupted.or_else(|| signals.next());
        for flow in &mut *running {
            if interrupted.is_some() {
                flow.stop(now);
            }
            flow.step(begun, now)?;
        }
        let Some(next) = running.iter().filter_map(|flow| flow.next(begun)).min() else {
            return Ok(interrupted);
        };
        let alive = running.iter().flat_map(Running::alive);
        let mut fds: Vec<_> = alive.map(|p| PollFd::new(p.fd(), PollFlags::IN)).collect();
        // A second one changes nothing: what ignores the first is killed soon.
        if interrupted.is_none() {
            fds.extend(
                signals
                    .inboxes()
                    .map(|inbox| PollFd::new(inbox, PollFlags::IN)),
            );
        }
        match poll(&mut fds, Some(&timespec(next.since(clock::now())))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests;

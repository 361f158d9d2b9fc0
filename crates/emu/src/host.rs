//! A computer at one end of the network. A [`Host`] is a network namespace kept by a thread of its
//! own. Work given to the host, sockets opened by that work and programs that it starts all live
//! there. Programs end with the host, and so does all that they started.

use std::{
    fs, io,
    net::{Ipv4Addr, Ipv6Addr},
    os::unix::fs::PermissionsExt as _,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    process::{Child, Command},
    sync::mpsc,
    thread::{self, JoinHandle},
};

use farhaul_udp::{
    netns,
    tun::{Tun, TunConfig},
};

use crate::programs::Programs;

/// The name of the interface in both hosts.
pub(crate) const INTERFACE: &str = "wan0";
/// Trains the kernel holds for the router: 10 Gbit/s for 50 ms of scheduling trouble.
const QUEUE_LEN: u32 = 1_000;

/// Names of the two hosts.
const NAMES: &str = "10.99.0.1 near\n10.99.0.2 far\n";

/// Kernel parameters of a host: windows for 10 Gbit/s times 400 ms, and no waiting for addresses.
const PARAMETERS: &[(&str, &str)] = &[
    ("net/ipv4/tcp_rmem", "4096 131072 1073741824"),
    ("net/ipv4/tcp_wmem", "4096 131072 1073741824"),
    ("net/ipv4/ping_group_range", "0 2147483647"),
    ("net/ipv6/conf/all/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/router_solicitations", "0"),
    ("net/ipv6/conf/default/addr_gen_mode", "1"),
];

/// Adds the names of both hosts to what programs on this one find in `/etc/hosts`.
fn name_hosts() -> io::Result<()> {
    let place = Path::new("/etc/hosts");
    let own = tempfile::NamedTempFile::new()?;
    // The first line with a name counts.
    let mut names = NAMES.as_bytes().to_vec();
    names.extend(fs::read(place).unwrap_or_default());
    fs::write(own.path(), names)?;
    fs::set_permissions(own.path(), fs::Permissions::from_mode(0o644))?;
    // The mount keeps the file when its name goes.
    netns::mount_file(own.path(), place)
}

type Job = Box<dyn FnOnce() + Send>;

/// One end of the emulated network.
#[derive(Debug)]
pub struct Host {
    address: Ipv4Addr,
    address6: Ipv6Addr,
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    programs: Option<Programs>,
}

impl Host {
    /// Host number `number` of the network 10.99.0.0/24 with its interface.
    pub(crate) fn start(
        name: &'static str,
        number: u8,
        mtu: u32,
        loopback_mtu: Option<u32>,
    ) -> io::Result<(Self, Tun)> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            for job in inbox {
                job();
            }
        })?;
        let mut host = Self {
            address: Ipv4Addr::new(10, 99, 0, number),
            address6: Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, number.into()),
            jobs: Some(jobs),
            thread: Some(thread),
            programs: None,
        };
        let config = TunConfig {
            name: INTERFACE,
            mtu,
            address: (host.address, 24),
            // IPv6 does not exist on links this small (RFC 8200 §5).
            address6: (mtu >= 1_280).then_some((host.address6, 64)),
            queue_len: QUEUE_LEN,
        };
        let (tun, programs) = host.run(move || -> io::Result<_> {
            netns::enter_new_network()?;
            if let Some(mtu) = loopback_mtu {
                netns::set_loopback_mtu(mtu)?;
            }
            // What cannot be set keeps the system's value; the programs then run with that.
            netns::set_parameters(PARAMETERS);
            // Refused in some containers; then `/sys` shows the system's devices, and the hosts have no names.
            let _ = netns::see_own_devices().and_then(|()| name_hosts());
            Ok((Tun::open(&config)?, Programs::start(name)?))
        })?;
        host.programs = Some(programs);
        Ok((host, tun))
    }

    /// IPv4 address of the host.
    pub const fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// IPv6 address of the host; absent on the interface if the MTU is below 1,280.
    pub const fn address6(&self) -> Ipv6Addr {
        self.address6
    }

    /// Runs `job` on this host and waits for its answer. Sockets opened by the job stay on this
    /// host wherever they are used afterwards. A panic of the job is passed on.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, answered) = mpsc::sync_channel(1);
        let job = Box::new(move || {
            let _ = answer.send(catch_unwind(AssertUnwindSafe(job)));
        });
        let sent = self
            .jobs
            .as_ref()
            .is_some_and(|jobs| jobs.send(job).is_ok());
        debug_assert!(sent, "the thread lives as long as the host");
        match answered.recv() {
            Ok(Ok(value)) => value,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => unreachable!("a job answers or panics"),
        }
    }

    /// Starts a program on this host. It is killed when the host is removed, however that happens, with
    /// everything it started.
    pub fn spawn(&self, command: Command) -> io::Result<Child> {
        match &self.programs {
            Some(programs) => programs.spawn(command),
            None => Err(io::Error::other("the host is not yet built")),
        }
    }

    /// Trains that the kernel dropped because the router did not fetch them in time.
    pub(crate) fn interface_drops(&self) -> u64 {
        self.run(|| fs::read_to_string("/proc/thread-self/net/dev"))
            .ok()
            .and_then(|table| sent_drops(&table))
            .unwrap_or(0)
    }

    /// True if any program on this host waits for connections or datagrams, at `port` if that is
    /// given.
    pub fn has_listener(&self, port: Option<u16>) -> bool {
        self.run(move || {
            ["tcp", "tcp6", "udp", "udp6"].iter().any(|table| {
                let path = format!("/proc/thread-self/net/{table}");
                fs::read_to_string(path).is_ok_and(|text| listens(&text, port))
            })
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.programs = None;
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The "dropped when sending" column of our interface in `/proc/net/dev`.
fn sent_drops(table: &str) -> Option<u64> {
    let (_, columns) = table
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == INTERFACE)?;
    columns.split_whitespace().nth(11)?.parse().ok()
}

/// True if a socket in this table of `/proc/net` is bound, at `port` if that is given, and not
/// connected: TCP state 0A, UDP 07.
fn listens(table: &str, port: Option<u16>) -> bool {
    let end = port.map(|port| format!(":{port:04X}")).unwrap_or_default();
    table.lines().skip(1).any(|line| {
        let mut columns = line.split_whitespace().skip(1);
        let here = columns.next().is_some_and(|local| local.ends_with(&end));
        here && matches!(columns.nth(1), Some("0A" | "07"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_tables_are_read() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  \
                     wan0: 0 1 2 3 4 5 6 7 8 9 10 42 12 13 14 15\n";
        assert_eq!(sent_drops(table), Some(42));
        assert_eq!(sent_drops("lo: 0\n"), None);
        let head = "  sl  local_address rem_address   st tx_queue\n";
        assert!(!listens(head, None));
        let bound = format!("{head}   0: 00000000:1451 00000000:0000 0A 0\n");
        let ports = [None, Some(0x1451), Some(0x451), Some(9)];
        assert_eq!(
            ports.map(|port| listens(&bound, port)),
            [true, true, false, false]
        );
        let connected = format!("{head}   0: 0100007F:1451 0100007F:9 01 0\n");
        assert!(!listens(&connected, None));
    }
}

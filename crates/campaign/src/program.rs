//! Programs outside this process: a server and its clients, with what the kernel knows of them:
//! memory, threads, descriptors, CPU time.

use std::{
    fs,
    io::{self, BufRead as _, BufReader},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread::{self, JoinHandle},
    time::Duration,
};

use farhaul_core::time::Instant;
use farhaul_io::clock;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    pipe::fcntl_setpipe_size,
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};

/// Time that a program may take to end after the request.
const GRACE: Duration = Duration::from_mins(1);

/// Sleeps, as a sender at a fixed rate does.
pub(crate) fn pause(time: Duration) {
    // A signal ends it early, and the caller looks at the clock.
    let _early = poll(&mut [], Some(&timespec(time)));
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// The `farhaul` that was built with this program.
pub(crate) fn farhaul() -> io::Result<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name("farhaul");
    if beside.is_file() {
        return Ok(beside);
    }
    let text = format!(
        "{} is not there: build it with the same profile, cargo build -p farhaul",
        beside.display()
    );
    Err(io::Error::new(io::ErrorKind::NotFound, text))
}

/// A process that is killed when this is dropped.
pub(crate) struct Program(Child);

impl Program {
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        command.stdin(Stdio::null()).spawn().map(Self)
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Exit status, if it ended within `time`.
    pub(crate) fn ends_within(&mut self, time: Duration) -> io::Result<Option<ExitStatus>> {
        let ended = pidfd_open(Pid::from_child(&self.0), PidfdFlags::empty())?;
        let until = clock::now() + time;
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(Some(status));
            }
            let now = clock::now();
            if now >= until {
                return Ok(None);
            }
            let mut fds = [PollFd::new(&ended, PollFlags::IN)];
            // Interrupted, it is asked again.
            let _early = poll(&mut fds, Some(&timespec(until.since(now))));
        }
    }

    /// Terminates it; how long that took, or nothing if it had to be killed.
    pub(crate) fn terminate(&mut self, timeout: Duration) -> io::Result<Option<Duration>> {
        let asked = clock::now();
        kill_process(Pid::from_child(&self.0), Signal::TERM)?;
        let ended = self.ends_within(timeout)?;
        Ok(ended.map(|_| clock::now().since(asked)))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended before.
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// A server that listens.
pub(crate) struct Server {
    pub(crate) program: Program,
    pub(crate) port: u16,
    said: Option<JoinHandle<Vec<String>>>,
}

impl Server {
    /// Starts `command`, which prints its address on stderr.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        let mut program = Program::start(command.stderr(Stdio::piped()))?;
        let stderr = program.0.stderr.take();
        let mut lines = BufReader::new(stderr.ok_or(io::ErrorKind::BrokenPipe)?).lines();
        let mut said = Vec::new();
        let port = loop {
            let Some(line) = lines.next().transpose()? else {
                let text = format!("the server does not listen: {}", said.join("; "));
                return Err(io::Error::other(text));
            };
            let mut heads = ["listening on ", "bench server at "].into_iter();
            if let Some(at) = heads.find_map(|head| line.strip_prefix(head)) {
                let at = at.split(['/', ' ']).next().and_then(|at| at.parse().ok());
                let at: SocketAddr = at.ok_or(io::ErrorKind::InvalidData)?;
                break at.port();
            }
            said.push(line);
        };
        let drain = thread::Builder::new().name("stderr".into());
        let said = drain.spawn(move || {
            said.extend(lines.map_while(Result::ok));
            said
        })?;
        Ok(Self {
            program,
            port,
            said: Some(said),
        })
    }

    /// `farhaul serve` with `shares` on every address of this network.
    pub(crate) fn serve(home: &Path, shares: &[String]) -> io::Result<Self> {
        Self::serve_at(home, shares, 0)
    }

    /// Starts the server at a port.
    pub(crate) fn serve_at(home: &Path, shares: &[String], port: u16) -> io::Result<Self> {
        Self::start(&mut Self::command(home, shares, port)?)
    }

    /// Command that starts it.
    pub(crate) fn command(home: &Path, shares: &[String], port: u16) -> io::Result<Command> {
        let mut command = Command::new(farhaul()?);
        command
            .arg("serve")
            // Sessions that hang are not waited for.
            .args(["--drain", "0s"])
            .args(shares.iter().flat_map(|share| ["--share", share]));
        command.args(["--allow", "any", "--listen", &format!("[::]:{port}")]);
        command.env("HOME", home);
        Ok(command)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Ends it; how long that took, nothing if it had to be killed, and its output.
    pub(crate) fn end(mut self, timeout: Duration) -> io::Result<(Option<Duration>, Vec<String>)> {
        let took = self.program.terminate(timeout)?;
        let said = self.said.take();
        drop(self.program);
        let said = said.and_then(|said| said.join().ok()).unwrap_or_default();
        Ok((took, said))
    }
}

/// A server whose log nobody reads behind the line with its address: a pipe of one page.
pub(crate) struct Quiet {
    pub(crate) program: Program,
    port: u16,
    _log: BufReader<ChildStderr>,
}

impl Quiet {
    pub(crate) fn start(mut command: Command) -> io::Result<Self> {
        let mut program = Program::start(command.stderr(Stdio::piped()))?;
        let log = program.0.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        fcntl_setpipe_size(&log, 4_096)?;
        let mut log = BufReader::with_capacity(1, log);
        let mut line = String::new();
        let at = loop {
            line.clear();
            if log.read_line(&mut line)? == 0 {
                return Err(io::Error::other("the server does not listen"));
            }
            if let Some(at) = line.strip_prefix("listening on ") {
                let at = at.split(['/', ' ']).next().and_then(|at| at.parse().ok());
                let at: SocketAddr = at.ok_or(io::ErrorKind::InvalidData)?;
                break at;
            }
        };
        Ok(Self {
            program,
            port: at.port(),
            _log: log,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

/// A port at which a socket can be opened again after it was closed. The port is outside the range
/// from which the kernel gives ports to others meanwhile, and given once by this process.
pub(crate) fn lasting_port() -> io::Result<u16> {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 10_000;
    const SPAN: u32 = 22_000;
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")?;
    let mut ends = range.split_whitespace().map(str::parse::<u16>);
    let (Some(Ok(low)), Some(Ok(high))) = (ends.next(), ends.next()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    // Another campaign on this machine begins elsewhere.
    let start = std::process::id().wrapping_mul(97) % SPAN;
    loop {
        let given = GIVEN.fetch_add(1, Relaxed);
        let port = u16::try_from(FIRST + (start + given) % SPAN).unwrap_or(u16::MAX);
        if given >= SPAN {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        if (low..=high).contains(&port) {
            continue;
        }
        match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)) {
            Ok(_free) => return Ok(port),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            Err(e) => return Err(e),
        }
    }
}

/// The kernel's data on a process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Resident memory now, and the most since [`forget_peak`], bytes.
    pub(crate) resident: u64,
    pub(crate) peak: u64,
    pub(crate) threads: u64,
    pub(crate) descriptors: u64,
    /// CPU time of all its threads.
    pub(crate) cpu: Duration,
}

impl Usage {
    pub(crate) fn of(process: u32) -> io::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|line| line.split_whitespace().next());
            word.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0)
        };
        let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
        let after_name = stat.rsplit(") ").next().unwrap_or_default();
        let ticks = after_name.split(' ').skip(11).take(2);
        let ticks: u64 = ticks.filter_map(|n| n.parse::<u64>().ok()).sum();
        Ok(Self {
            resident: field("VmRSS:") << 10,
            peak: field("VmHWM:") << 10,
            threads: field("Threads:"),
            descriptors: fs::read_dir(format!("/proc/{process}/fd"))?.count() as u64,
            cpu: Duration::from_millis(1_000 * ticks / rustix::param::clock_ticks_per_second()),
        })
    }
}

/// Restarts the count of the peak of a process's memory.
pub(crate) fn forget_peak(process: u32) -> io::Result<()> {
    fs::write(format!("/proc/{process}/clear_refs"), "5")
}

/// A quiet `farhaul cp` that trusts every server.
pub(crate) fn cp(home: &Path) -> io::Result<Command> {
    let mut command = Command::new(farhaul()?);
    command
        .args(["cp", "--trust-any", "--quiet", "--no-sync"])
        .env("HOME", home)
        .stdout(Stdio::null());
    Ok(command)
}

/// Runs `command` to its end; how long it took if it succeeded within `timeout`.
pub(crate) fn timed(command: &mut Command, timeout: Duration) -> io::Result<Duration> {
    let began: Instant = clock::now();
    let mut program = Program::start(command)?;
    match program.ends_within(timeout)? {
        Some(status) if status.success() => Ok(clock::now().since(began)),
        Some(status) => Err(io::Error::other(format!("a copy ended with {status}"))),
        None => Err(io::Error::other(format!(
            "a copy did not end within {} s",
            timeout.as_secs()
        ))),
    }
}

/// The default timeout of [`Server::end`].
pub(crate) const EXIT_TIMEOUT: Duration = GRACE;

/// The contents of a folder, as its name is typed.
pub(crate) fn trailing(folder: &Path) -> PathBuf {
    folder.join("")
}

/// Signals a process that may have ended.
pub(crate) fn signal(process: u32, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    match pid.map(|pid| kill_process(pid, signal)) {
        // It has ended by itself meanwhile.
        Some(Err(rustix::io::Errno::SRCH)) | None => Ok(()),
        Some(done) => Ok(done?),
    }
}

/// A file of `len` bytes that do not repeat.
pub(crate) fn write_file(path: &Path, len: u64) -> io::Result<()> {
    use std::io::Write as _;
    let mut rng = farhaul_core::rng::Rng::new(len);
    let mut file = io::BufWriter::with_capacity(1 << 20, fs::File::create(path)?);
    for _ in 0..len.div_ceil(8) {
        file.write_all(&rng.next_u64().to_le_bytes())?;
    }
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.set_len(len)
}

/// A folder for the runs of `part`: of this machine's memory where that is possible, since copies are many and short.
pub(crate) fn folder(part: &str) -> io::Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    };
    tempfile::Builder::new()
        .prefix(&format!("farhaul-{part}-"))
        .tempdir_in(place)
}

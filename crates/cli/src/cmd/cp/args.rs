//! The flags of `farhaul cp`, and their meaning for a transfer.

use std::{
    env,
    ffi::OsString,
    io::{self, Read as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use farhaul_core::{congestion::Sharing, units::Size};
use farhaul_transfer::{Existing, Filter, MOST_LANES, client::Options};

mod rules;
mod words;

use self::rules::{Patterns, Rules};
use super::{mirror::Mirroring, shard::ShardArgs};
use crate::{
    app::{
        console::{Console, Level},
        copy::{DryRun, Job, Printed, Request, has_ticket},
    },
    bar::{Names, Style},
    connect::{Family, Ways},
    exit::Failure,
    given::{self, Given},
    paths::{self, Place},
    place, read, ssh,
    ticket::{self, Ticket},
    timetable::Timetable,
    typed,
};

const PLACES: &str = "Sources and destination. A place elsewhere is [user@]host:path through ssh, or a server's \
    host[:port]::share/path. A source that ends in / means its contents; - is the standard input or output. A ticket \
    (fh1...) is a place, too";

pub(crate) const TICKETS: &str = "File with the ticket of the places ticket: and ticket:PATH; FARHAUL_TICKET holds the ticket itself";

const SSH: &str = "Program for ssh; also FARHAUL_SSH [default: ssh]";
const REMOTE: &str =
    "Program for farhaul on the far end; also FARHAUL_REMOTE_BIN [default: farhaul]";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "farhaul cp [OPTIONS] <SRC>... <DST>\n       farhaul cp --merge <REPORT>..."
)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Args {
    // The first, since those that follow take what is theirs.
    #[command(flatten)]
    pub(super) given: Given<Self>,
    /// Sources and destination
    #[arg(required = true, value_names = ["SRC", "DST"], num_args = 1.., help = PLACES)]
    pub(super) paths: Vec<OsString>,
    /// Folders are always copied with their contents
    #[arg(short, long, hide_short_help = true)]
    recursive: bool,
    /// Change nothing; print what would change, with -v also what would stay
    #[arg(short = 'n', long)]
    pub(super) dry_run: bool,
    /// Limit the rate; or rates by time of day, as in '08:00 500Mbit 19:00 off'
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub(super) max_rate: Option<Timetable>,
    /// Share of a link that others use too: low (what they leave), fair (as much as each of them),
    /// high (as much as two; a server must allow it)
    #[arg(long, value_name = "low|fair|high", default_value_t)]
    pub(super) policy: Sharing,
    #[arg(long, value_name = "FILE|auto|never", value_parser = Place::parse, default_value = "auto", hide_short_help = true, help = paths::HELP)]
    pub(super) path_memory: Place,
    /// Parallel sessions, one core each; all of them take the share of one flow [default: 1; from 4
    /// GiB half of the cores, at most 8]
    #[arg(short = 'P', long, value_name = "N", value_parser = lanes, allow_hyphen_values = true)]
    lanes: Option<u32>,
    /// Stop after TIME, as in 2h; the same command continues the copy
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub(super) max_time: Option<Duration>,
    /// Try again after a lost connection, until TIME passes without progress [default: off; alone: 1h]
    ///
    /// Repeats the copy when the connection is lost, the server is busy, or this host has no
    /// network. Once the server has answered, silence counts as a lost connection. Pauses double
    /// from a second to a minute. Any progress starts TIME again.
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1h",
        value_parser = typed::duration
    )]
    pub(super) retry: Option<Duration>,
    /// Silence of the far end after which the session is lost, 1s or more [default: 30s]; shorter
    /// in tests
    #[arg(long, value_name = "TIME", value_parser = time, hide = true)]
    pub(super) idle: Option<Duration>,
    /// Your key file; through ssh, the key file that ssh uses
    #[arg(short = 'i', long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    #[arg(long, value_name = "FILE", help = TICKETS)]
    ticket_file: Option<PathBuf>,
    /// Accept any key of an unknown server; a known server must show its known key
    #[arg(long)]
    pub(crate) trust_any: bool,
    /// Use IPv4 only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use IPv6 only
    #[arg(short = '6', long)]
    ipv6: bool,
    /// When fetching, do not wait for the disk; a crash soon after may lose files of a complete
    /// copy. A server has its own --no-sync
    #[arg(long)]
    no_sync: bool,
    /// Read each file again from the receiver's disk before it counts; by default the receiver
    /// verifies what arrived
    #[arg(long)]
    verify_disk: bool,
    /// Show progress as a bar on terminals (auto), as a line every ten seconds, or not at all
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(super) progress: Style,
    /// Name for the standard input (the source -) in the destination folder
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<OsString>,
    /// Print errors only
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Name each file that is sent, and print more at the end
    #[arg(short, long, conflicts_with = "quiet", overrides_with = "verbose")]
    pub(super) verbose: bool,
    /// Print one JSON object on stdout
    #[arg(long, short = 'J')]
    pub(crate) json: bool,
    /// Print one JSON object per event on stdout, a line each; the last one is the object of --json
    #[arg(long, conflicts_with = "json")]
    pub(super) json_stream: bool,
    /// Not needed; farhaul measures it
    #[arg(long, hide = true)]
    rtt: Option<String>,
    /// Not needed; farhaul measures it
    #[arg(long, hide = true)]
    bandwidth: Option<String>,
    /// Not needed; farhaul measures it
    #[arg(long, hide = true)]
    window: Option<String>,
    // Their headings hold for all that follows.
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    there: There,
    #[command(flatten)]
    mirror: Mirroring,
    #[command(flatten)]
    pub(super) sharding: ShardArgs,
    #[command(flatten)]
    ssh: Through,
    #[command(flatten)]
    pub(crate) blocked: Blocked,
}

/// Selection of files.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Which files")]
struct Which {
    #[command(flatten)]
    patterns: Patterns,
    /// Exclude smaller files
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    min_size: Option<Size>,
    /// Exclude larger files
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    max_size: Option<Size>,
    /// Send only the paths listed in FILE (- for stdin), relative to the one source; listed folders
    /// go without their contents
    #[arg(long, value_name = "FILE")]
    files_from: Option<PathBuf>,
    /// Do not enter other file systems that are mounted below the sources; only to send, and not with
    /// --delete
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// End the paths of --files-from at NUL, as find -print0 writes them
    #[arg(short = '0', long, alias = "from0", requires = "files_from")]
    null: bool,
}

/// Existing files.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What is there already")]
struct There {
    /// Skip files whose name exists at the destination
    #[arg(long, visible_alias = "no-clobber", conflicts_with = "update")]
    ignore_existing: bool,
    /// Skip files that are newer at the destination
    #[arg(short, long)]
    update: bool,
    /// Compare content where sizes are equal; by default equal size and time mean unchanged
    #[arg(short, long)]
    checksum: bool,
}

/// Flags for calling ssh.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Through ssh")]
pub(crate) struct Through {
    #[arg(long, alias = "rsh", short_alias = 'e', value_name = "PROGRAM", help = SSH)]
    ssh: Option<OsString>,
    /// Configuration file of ssh (its -F) instead of ~/.ssh/config
    #[arg(short = 'F', long, value_name = "FILE")]
    ssh_config: Option<PathBuf>,
    /// Option of ssh (its -o), any number of times
    #[arg(short = 'o', long, value_name = "OPTION")]
    ssh_option: Vec<String>,
    #[arg(long, value_name = "PROGRAM", help = REMOTE)]
    remote_bin: Option<String>,
    /// Copy farhaul to ~/.local/bin there if it is missing or too old; asks first, unless =yes
    #[arg(
        long,
        value_name = "yes",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "ask",
        hide_possible_values = true
    )]
    install_remote: Option<ssh::Consent>,
    /// UDP ports to try at the far end: 20000, or 20000-20010 [default: 17992-18055]
    #[arg(long, value_name = "PORT[-PORT]", value_parser = ports)]
    remote_port: Option<(u16, u16)>,
}

/// Networks that block UDP.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Where UDP is blocked")]
pub(crate) struct Blocked {
    /// Continue through ssh, or over TCP to a server with --tcp (auto); or fail (never)
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    fallback: Fallback,
    /// Time for each address of the far end to answer by UDP, with its unit; 0 skips UDP
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = typed::duration, allow_hyphen_values = true)]
    pub(crate) udp_timeout: Duration,
    /// TCP port of a server with --tcp [default: the number of its UDP port]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    tcp_port: Option<u16>,
}

impl Blocked {
    /// The ways that may be tried.
    pub(crate) fn ways(&self) -> Result<Ways, Failure> {
        let ways = Ways {
            udp_timeout: self.udp_timeout,
            falls_back: self.fallback == Fallback::Auto,
            tcp_port: self.tcp_port,
        };
        if ways.udp_timeout.is_zero() && !ways.falls_back {
            let text = "--udp-timeout 0 with --fallback never leaves no way to the far end";
            return Err(Failure::usage(text).fix("leave one of them out"));
        }
        Ok(ways)
    }
}

/// Treatment of blocked UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Fallback {
    /// Go on through ssh or TCP, with a warning
    Auto,
    /// Fail (16)
    Never,
}

fn time(text: &str) -> Result<Duration, String> {
    let time = farhaul_link::duration(text).map_err(|e| e.to_string())?;
    if time.is_zero() {
        return Err("give a time greater than zero".into());
    }
    Ok(time)
}

fn lanes(text: &str) -> Result<u32, String> {
    let lanes = text.parse().ok().filter(|n| (1..=MOST_LANES).contains(n));
    lanes.ok_or_else(|| {
        // That of scp, as it was meant.
        let port = text.parse().ok().filter(|port: &u16| *port > 0);
        let port = port.unwrap_or(22);
        format!("give 1 to {MOST_LANES} lanes; ssh's port is -o Port={port}")
    })
}

fn ports(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.parse::<u16>().ok().filter(|p| *p > 0);
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last => Ok((first, last)),
        (Some(first), Some(last)) => Err(format!("{first} is above {last}: write {last}-{first}")),
        _ => Err("write a port or a range of them, as in 20000-20010".into()),
    }
}

/// Flags that mean nothing where one end is a pipe.
const NOT_FOR_PIPES: &[&str] = &[
    "dry-run",
    "min-size",
    "max-size",
    "files-from",
    "one-file-system",
    "ignore-existing",
    "update",
    "checksum",
    "no-sync",
    "archive",
    "preserve",
    "links",
    "copy-links",
    "hard-links",
    "xattrs",
    "acls",
    "numeric-ids",
    "delete",
    "whole-file",
];

impl Args {
    /// Refuses what other programs need and this one does not, and what leaves no way.
    pub(super) fn refuse_needless(&self) -> Result<(), Failure> {
        self.blocked.ways()?;
        if self.paths.len() < 2 {
            let text = "name at least one source, and the destination last";
            let fix = self.swallowed().map_or_else(
                || "write farhaul cp SRC... DST".to_owned(),
                |flag| format!("{flag} took the next word as its value: leave {flag} out if rsync's is meant"),
            );
            return Err(Failure::usage(text).fix(fix));
        }
        if let Some(program) = &self.ssh.ssh
            && program.as_bytes().contains(&b' ')
            && !Path::new(program).exists()
        {
            let text = format!("there is no program '{}'", program.display());
            let fix = "write --ssh PROGRAM, and each of its options with -o, as in -o Port=2222";
            return Err(Failure::usage(text).fix(fix));
        }
        let needless = [
            ("--rtt", &self.rtt),
            ("--bandwidth", &self.bandwidth),
            ("--window", &self.window),
        ];
        match needless.iter().find(|(_, v)| v.is_some()) {
            Some((flag, _)) => Err(Failure::usage(format!(
                "{flag} is not needed: farhaul measures it"
            ))),
            None => Ok(()),
        }
    }

    /// A flag that was given and means nothing where one end is a pipe, which is `put` into a file or written.
    pub(super) fn means_nothing_beside_a_pipe(&self, put: bool) -> Option<String> {
        self.given.first(|flag| {
            NOT_FOR_PIPES.contains(&flag)
                || given::has::<Patterns>(flag)
                || !put && matches!(flag, "verify-disk" | "backup")
        })
    }

    /// A flag without a value in rsync that has one here, if it was given.
    fn swallowed(&self) -> Option<&'static str> {
        let given = [
            ("-i", self.identity.is_some()),
            ("-o", !self.ssh.ssh_option.is_empty()),
            ("-F", self.ssh.ssh_config.is_some()),
        ];
        given
            .into_iter()
            .find_map(|(flag, given)| given.then_some(flag))
    }

    /// Lines of a plan that are printed.
    pub(super) const fn printed(&self) -> Printed {
        if self.for_programs() {
            Printed::AtTheEnd
        } else if self.quiet {
            Printed::Nothing
        } else if self.verbose {
            Printed::All
        } else {
            Printed::Changes
        }
    }

    /// Files that are named as they arrive.
    pub(super) const fn names(&self) -> Names {
        if !self.verbose || self.for_programs() || self.dry_run {
            Names::Hidden
        } else {
            Names::Sent
        }
    }

    /// Style of the progress display.
    pub(super) const fn style(&self) -> Style {
        if self.quiet || self.for_programs() || self.dry_run {
            Style::None
        } else {
            self.progress
        }
    }

    /// True if a program reads stdout.
    pub(super) const fn for_programs(&self) -> bool {
        self.json || self.json_stream
    }

    /// The ticket that `ticket:` stands for, if there is one.
    pub(super) fn ticket(&self, console: &dyn Console) -> Result<Option<Ticket>, Failure> {
        let ticket = match (&self.ticket_file, env::var_os("FARHAUL_TICKET")) {
            (Some(file), _) => Some(ticket::from_file(file)?),
            (None, Some(text)) => Some(Ticket::parse(&text.to_string_lossy())?),
            (None, None) => None,
        };
        let used = has_ticket(&self.paths);
        if self.ticket_file.is_some() && !used {
            let text = "--ticket-file: no source or destination is the ticket";
            return Err(Failure::usage(text).fix(
                "write ticket: for it, or ticket:PATH for what is below its place, as in `farhaul cp --ticket-file FILE ticket: here/`",
            ));
        }
        if self
            .paths
            .iter()
            .any(|p| place::as_ticket(p.as_bytes()).is_some())
        {
            console.message(
                Level::Warning,
                "hint: others on this machine can read a ticket on a command line: use --ticket-file or FARHAUL_TICKET",
            );
        }
        Ok(ticket.filter(|_| used))
    }

    /// The request of a copy by these flags.
    pub(super) fn request(&self, job: Job, console: &dyn Console) -> Result<Request, Failure> {
        let options = self.options(job.is_put(), console)?;
        let mut request = Request::of(job, options);
        self.sharding.refuse_mirror(&request.options.mirror)?;
        request.call = self.call();
        request.family = self.family();
        request.ways = self.blocked.ways()?;
        request.identity.clone_from(&self.identity);
        request.trust_any = self.trust_any;
        request.path_memory = self.path_memory.clone();
        request.max_rate.clone_from(&self.max_rate);
        request.max_time = self.max_time;
        request.retry = self.retry.unwrap_or_default();
        request.idle = self.idle;
        request.plan = self.dry_run.then(|| (DryRun::default(), self.printed()));
        Ok(request)
    }

    /// Options that are the same for every attempt.
    pub(super) fn options(&self, put: bool, console: &dyn Console) -> Result<Options, Failure> {
        if !put && self.which.files_from.is_some() {
            return Err(Failure::usage(
                "--files-from is for sending: to fetch, name each path, or a folder with --include",
            ));
        }
        let mirror = self.mirror.mirror()?;
        self.which.refuse_mounts(put, mirror.delete.is_some())?;
        let existing = if self.there.ignore_existing {
            Existing::Keep
        } else if self.there.update {
            Existing::KeepNewer
        } else {
            Existing::Replace
        };
        let rules = self.which.rules(&self.paths, console)?;
        Ok(Options {
            sync: !self.no_sync,
            filter: self.which.filter(&rules)?,
            list: self.which.list()?.map(Arc::new),
            one_file_system: self.which.one_file_system,
            shard: self.sharding.shard,
            existing,
            checksum: self.there.checksum,
            verify_disk: self.verify_disk,
            mirror,
            max_rate: self.max_rate.as_ref().and_then(Timetable::always),
            sharing: self.policy,
            lanes: self.lanes,
            ..Options::default()
        })
    }

    /// Family of addresses that count.
    pub(crate) const fn family(&self) -> Family {
        Family::of(self.ipv4, self.ipv6)
    }

    /// Call of ssh with these flags.
    pub(crate) fn call(&self) -> ssh::Call {
        self.ssh.call(self.identity.as_deref(), self.family())
    }
}

impl Through {
    /// Call of ssh, with this key file, and to addresses of this family.
    pub(crate) fn call(&self, identity: Option<&Path>, family: Family) -> ssh::Call {
        let mut flags: Vec<OsString> = Vec::new();
        if let Some(file) = &self.ssh_config {
            flags.extend(["-F".into(), file.clone().into()]);
        }
        if let Some(file) = identity {
            flags.extend(["-i".into(), file.into()]);
        }
        for option in &self.ssh_option {
            flags.extend(["-o".into(), option.into()]);
        }
        flags.extend(family.flag().map(Into::into));
        ssh::Call::new(
            self.ssh.clone(),
            flags,
            self.remote_bin.clone(),
            self.remote_port,
            self.install_remote,
        )
    }
}

impl Which {
    /// The rules of the patterns, for places of which the last is the destination.
    fn rules(&self, places: &[OsString], console: &dyn Console) -> Result<Rules, Failure> {
        let mut rules = self.patterns.rules()?;
        let sources = places.split_last().map_or(&[][..], |(_, sources)| sources);
        for source in sources {
            rules.hint_of_source(source.as_bytes());
        }
        for hint in &rules.hints {
            console.message(Level::Warning, &format!("hint: {hint}"));
        }
        Ok(rules)
    }

    /// Refuses `-x` where it cannot be kept.
    fn refuse_mounts(&self, put: bool, deletes: bool) -> Result<(), Failure> {
        let (why, fix) = if !self.one_file_system {
            return Ok(());
        } else if !put {
            (
                "is for sending",
                "to fetch, write --exclude for what is mounted there",
            )
        } else if deletes {
            (
                "would let --delete remove what is mounted here and copied there",
                "write --exclude for each mounted folder instead",
            )
        } else if self.files_from.is_some() {
            ("does not look at listed paths", "leave it out")
        } else {
            return Ok(());
        };
        Err(Failure::usage(format!("--one-file-system {why}")).fix(fix))
    }

    fn filter(&self, rules: &Rules) -> Result<Filter, Failure> {
        let sizes = (
            self.min_size.map(Size::bytes),
            self.max_size.map(Size::bytes),
        );
        let (exclude, include) = rules.lines();
        Filter::new(&exclude, &include, sizes).map_err(|e| Failure::usage(e.text).fix(e.fix))
    }

    /// The paths of `--files-from`, as bytes.
    fn list(&self) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        let Some(file) = &self.files_from else {
            return Ok(None);
        };
        let from_stdin = file == Path::new("-");
        let read = if from_stdin {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
        } else {
            read::list(file)
        };
        let name = String::from_utf8_lossy(file.as_os_str().as_bytes());
        let bytes = read.map_err(|e| Failure::usage(format!("--files-from {name}: {e}")))?;
        if let Some((why, fix)) = ends_otherwise(&bytes, self.null) {
            return Err(Failure::usage(format!("--files-from {name}: {why}")).fix(fix));
        }
        if from_stdin && bytes.is_empty() && read::is_closed(io::stdin()) {
            let text = format!("--files-from {name}: stdin is closed: no list comes from there");
            return Err(Failure::usage(text).fix("write the list to it, or name a file"));
        }
        let paths = if self.null {
            bytes.split(|b| *b == 0).collect()
        } else {
            lines(&bytes)
        };
        let paths = paths.into_iter().filter(|path| !path.is_empty()).map(plain);
        Ok(Some(paths.filter(|path| !path.is_empty()).collect()))
    }
}

/// Reason that paths of this list end in something else than is given, with the flag to write. A
/// line may have a NUL in it: such a name cannot be, among others.
fn ends_otherwise(list: &[u8], in_nul: bool) -> Option<(&'static str, &'static str)> {
    let has = |byte| list.contains(&byte);
    if !in_nul && has(0) && (list.ends_with(&[0]) || !has(b'\n')) {
        return Some(("its paths end in NUL, not in newlines", "add -0"));
    }
    let in_newline = in_nul && !has(0) && list.ends_with(b"\n");
    in_newline.then_some((
        "its paths end in newlines, not in NUL",
        "omit -0, or end each in NUL, as find -print0 does",
    ))
}

/// A path as `find` and shells print it, without its empty and `.` components; an absolute one stays absolute.
fn plain(path: &[u8]) -> Vec<u8> {
    let parts = path.split(|b| *b == b'/');
    let parts: Vec<_> = parts.filter(|part| !matches!(*part, b"" | b".")).collect();
    let mut plain = parts.join(&b'/');
    if path.starts_with(b"/") {
        plain.insert(0, b'/');
    }
    plain
}

/// The lines of a list, without the mark of UTF-8 at its start and, where each line has one, the carriage return at its end.
fn lines(list: &[u8]) -> Vec<&[u8]> {
    let list = list.strip_prefix(b"\xef\xbb\xbf").unwrap_or(list);
    let lines: Vec<_> = list.split(|b| *b == b'\n').collect();
    let mut written = lines.iter().filter(|line| !line.is_empty());
    if !written.all(|line| line.ends_with(b"\r")) {
        return lines;
    }
    let bare = lines
        .into_iter()
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    bare.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_one_or_a_range() {
        assert_eq!(ports("5"), Ok((5, 5)));
        assert_eq!(ports("5-7"), Ok((5, 7)));
        for bad in ["", "0", "7-5", "x", "5-", "70000", "1-2-3"] {
            assert!(ports(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn lists_are_those_of_other_systems_too() {
        let texts: [&[u8]; 5] = [
            b"a\nb\n",
            b"a\r\nb\r\n",
            b"\xef\xbb\xbfa\r\nb\r",
            b"a\n\nb",
            b"\r\na\r\nb\r\n",
        ];
        for text in texts {
            let found: Vec<_> = lines(text)
                .into_iter()
                .filter(|line| !line.is_empty())
                .collect();
            assert_eq!(found, [b"a", b"b"], "{text:?}");
        }
        assert_eq!(
            lines(b"a\r\nb\n"),
            [&b"a\r"[..], b"b", b""],
            "a name may end so"
        );
    }

    #[test]
    fn what_find_prints_is_a_path() {
        for (printed, path) in [
            ("./a/b", "a/b"),
            ("././a/", "a"),
            (".", ""),
            ("./", ""),
            ("/abs", "/abs"),
            ("../x", "../x"),
            ("a b ", "a b "),
            (".//a", "a"),
            ("d//x", "d/x"),
            ("d/./x/.", "d/x"),
            ("//abs//x", "/abs/x"),
            ("d/../x", "d/../x"),
        ] {
            assert_eq!(plain(printed.as_bytes()), path.as_bytes(), "{printed}");
        }
    }
}

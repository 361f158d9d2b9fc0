//! Flags of rsync, scp, iperf3 and netem, and what to write here instead.

/// Spellings, and what to do about them.
pub(super) type Row = (&'static [&'static str], &'static str);

/// Flags that ask for compression.
pub(super) const COMPRESS: &[&str] = &["-z", "-C", "--compress"];

/// Flags without a value that are accepted, and change nothing: what they ask for happens anyway. Why that is so.
pub(super) const ANYWAY: &[Row] = &[
    (&["-S", "--sparse"], "holes remain holes"),
    (
        &["-t", "--times", "-p", "--perms"],
        "modes and times are always preserved; owners with -a or --preserve",
    ),
    (&["--partial"], "interrupted copies always resume"),
    (
        &[
            "--mkpath",
            "--human-readable",
            "-s",
            "--protect-args",
            "--secluded-args",
        ],
        "folders are made, sizes have units, and no shell reads names there",
    ),
    (COMPRESS, "content is not compressed, and a warning says so"),
];

pub(super) const CP: &[Row] = &[
    (
        &["-l"],
        "write --max-rate with a unit, as in --max-rate 100Mbit; symbolic links are kept: omit it",
    ),
    (
        &[
            "--compress-level",
            "--zc",
            "--compress-choice",
            "--skip-compress",
            "--no-compress",
        ],
        "content is not compressed: omit it",
    ),
    (
        &["--bwlimit"],
        "write --max-rate with a unit, as in --max-rate 100Mbit; numbers of rsync are taken, too",
    ),
    (
        &["--port"],
        "ssh's port is -o Port=22, a server's follows its name, as in host:17992::share/path; interrupted copies always resume",
    ),
    (
        &[
            "--partial-dir",
            "--append",
            "--append-verify",
            "--inplace",
            "--resume",
            "--continue",
        ],
        "interrupted copies always resume: omit it",
    ),
    (
        &[
            "--del",
            "--delete-before",
            "--delete-during",
            "--delete-delay",
            "--delete-after",
        ],
        "write --delete: it deletes once everything is in place",
    ),
    (
        &["--remove-source-files"],
        "nothing is ever deleted at the source",
    ),
    (&["--suffix"], "write --backup=SUFFIX"),
    (
        &["--backup-dir"],
        "backups stay beside the file: write --backup=SUFFIX",
    ),
    (
        &["--link-dest", "--copy-dest", "--compare-dest"],
        "copy into one folder: what is the same there is not sent, and --backup=SUFFIX keeps what is replaced",
    ),
    (
        &["-I", "--ignore-times", "--size-only"],
        "files of the same size and time are taken as unchanged; --checksum compares contents",
    ),
    (
        &["-f", "--filter"],
        "write --exclude GLOB for '- GLOB' and --include GLOB for '+ GLOB', in the same order; --exclude-from reads lines of rsync",
    ),
    (
        &["--cvs-exclude"],
        "write --exclude GLOB for each name, as in --exclude .git/ --exclude '*.o'",
    ),
    (
        &["--no-perms", "--no-times"],
        "modes and times are always preserved: omit it",
    ),
    (
        &["--no-owner", "--no-group", "--no-o", "--no-g", "--no-p"],
        "owner and group are preserved only with -a or --preserve: write --preserve=links,xattr,acl in place of -a",
    ),
    (
        &["--force"],
        "only --delete replaces a folder by a file: else remove the folder there first",
    ),
    (
        &["--log-file"],
        "write -v > FILE 2>&1, or --json-stream > FILE for programs",
    ),
    (&["-R", "--relative"], "write --files-from FILE"),
    (
        &["--existing"],
        "list the names there with farhaul ls -R PLACE, and write --files-from FILE with those to update",
    ),
    (
        &["-D", "--devices", "--specials", "--copy-devices", "--no-D"],
        "devices, pipes and sockets are never copied: omit it",
    ),
    (
        &["--no-links", "--no-l", "--safe-links"],
        "write --links=skip, which copies no symbolic link",
    ),
    (
        &["-k", "--copy-dirlinks", "--copy-unsafe-links"],
        "write --links=follow, which follows every link",
    ),
    (
        &["--info"],
        "the bar shows the total; in a log write --progress line",
    ),
    (
        &["--chown"],
        "farhaul gives files no other owner: write chown there afterwards",
    ),
    (
        &["--owner", "-g", "--group"],
        "write --preserve=ownership, which root at the destination can do",
    ),
    (
        &["-E", "--executability", "--chmod"],
        "permissions are those of the source: omit it",
    ),
    (
        &["--stats", "--itemize-changes"],
        "write -v, or -n to see what would be done",
    ),
    (&["--list-only"], "write farhaul ls PLACE"),
    (
        &["--timeout"],
        "30 s of silence end a copy, and the same command continues: omit it",
    ),
    (&["--contimeout"], "write --udp-timeout TIME"),
    (
        &["--stop-after", "--stop-at", "--time-limit"],
        "write --max-time TIME",
    ),
    (
        &["--password-file", "--early-input"],
        "a server knows its users by keys (farhaul key gen) or tickets (farhaul ticket new)",
    ),
    (
        &["--fsync"],
        "received files are on the disk before they count: omit it",
    ),
    (
        &[
            "--ignore-errors",
            "--ignore-missing-args",
            "--delete-missing-args",
        ],
        "what fails is named, the rest is copied (5), and nothing is deleted then: omit it",
    ),
    (
        &["-d", "--dirs", "--no-r", "--no-recursive", "--old-dirs"],
        "write --files-from FILE, whose folders go without their contents",
    ),
    (
        &["-U", "--atimes", "-N", "--crtimes", "--open-noatime"],
        "times of access and creation are not preserved: omit it",
    ),
    (
        &[
            "--preallocate",
            "--block-size",
            "--checksum-choice",
            "--cc",
            "--no-whole-file",
        ],
        "farhaul decides this itself: omit it",
    ),
    (
        &[
            "--usermap",
            "--groupmap",
            "--copy-as",
            "--super",
            "--fake-super",
        ],
        "write --preserve=ownership, as root at the destination",
    ),
    (&["-B"], "write -o BatchMode=yes"),
    (
        &["-3"],
        "a copy between two hosts goes from one to the other, or else through here: omit it",
    ),
    (
        &["-T"],
        "farhaul, not scp, runs there, and partial files stay beside their names: omit it",
    ),
    (&["--rsync-path"], "write --remote-bin PROGRAM"),
    (
        &["-m", "--prune-empty-dirs"],
        "--include without --exclude makes no empty folder; else remove them with find -type d -empty -delete",
    ),
    (
        &["-K", "--keep-dirlinks"],
        "a link at the destination is not followed: remove the link there first",
    ),
    (
        &["--out-format"],
        "-v prints names, and --json-stream an object for each file",
    ),
    (
        &["-O", "--omit-dir-times", "--omit-link-times"],
        "times that the destination cannot keep cost one warning, and no error: omit it",
    ),
    (
        &["--modify-window", "-@"],
        "times are compared as finely as the destination keeps them: omit it",
    ),
    (
        &["--temp-dir"],
        "a file gets its name once all of its content is there, and partial ones stay for the next run: omit it",
    ),
    (
        &["--delay-updates"],
        "each file gets its name once all of its content is there, not all files at the end: omit it",
    ),
    (
        &["--fuzzy", "-y"],
        "no file of another name is looked for, but what arrived is not sent again: omit it",
    ),
    (
        &["--no-H", "--no-X", "--no-A"],
        "write --preserve=LIST with what to preserve, in place of -a",
    ),
    (
        &["--write-batch", "--read-batch", "--only-write-batch"],
        "there are no batches: copy to each destination",
    ),
    (
        &["-M", "--remote-option"],
        "the far end follows this command line: omit it",
    ),
    (
        &[
            "--old-args",
            "--trust-sender",
            "--no-motd",
            "--8-bit-output",
            "--blocking-io",
            "--outbuf",
            "--stderr",
            "--msgs2stderr",
            "--debug",
            "--max-alloc",
            "--sockopts",
            "--address",
            "--iconv",
            "--munge-links",
            "--inc-recursive",
            "--no-inc-recursive",
            "--no-implied-dirs",
            "--checksum-seed",
            "--no-v",
            "--no-delete",
        ],
        "farhaul has nothing of the kind: omit it",
    ),
];

pub(super) const BENCH: &[Row] = &[
    (
        &["-c", "--client"],
        "it needs a host: write farhaul bench HOST",
    ),
    (
        &["-p", "--port"],
        "write -p PORT, or the port behind the address of --listen",
    ),
    (
        &["-C", "--congestion"],
        "it needs a law: write -C LAW; `farhaul protocols` lists them",
    ),
    (&["-v", "--version"], "write farhaul --version"),
    (
        &["--sctp", "-X", "--xbind", "--nstreams"],
        "there is no SCTP: omit it",
    ),
    (
        &[
            "--dont-fragment",
            "--udp-counters-64bit",
            "--repeating-payload",
            "--cntl-ka",
        ],
        "it is always so: omit it",
    ),
    (&["--fq-rate", "--pacing-timer"], "write --rate RATE"),
    (
        &["-m", "--mptcp", "--skip-rx-copy", "--gsro"],
        "there is nothing of the kind: omit it",
    ),
    (
        &[
            "--username",
            "--rsa-public-key-path",
            "--rsa-private-key-path",
            "--authorized-users-path",
        ],
        "write --identity FILE here, and --allow KEY at `farhaul bench serve`",
    ),
    (
        &["-F", "--file", "--diskfile"],
        "bench measures memory to memory: farhaul cp measures with files",
    ),
    (
        &["--idle-timeout", "--server-bitrate-limit"],
        "write --max-time TIME or --rate RATE",
    ),
    (
        &[
            "-w",
            "--window",
            "-l",
            "--length",
            "-N",
            "--no-delay",
            "-Z",
            "--zerocopy",
            "-M",
            "--set-mss",
        ],
        "farhaul determines this itself: omit it",
    ),
    (
        &["-4", "-6", "--version4", "--version6"],
        "write the address itself",
    ),
    (&["--parallel"], "write --lanes"),
    (&["--num"], "write --bytes"),
    (
        &["-T", "--title", "--extra-data"],
        "the output has no title: omit it",
    ),
    (
        &["-V", "--verbose", "-f", "--format", "--get-server-output"],
        "the result has both ends and rates with units, and --json has bit/s: omit it",
    ),
    (
        &["--logfile", "--timestamps", "--forceflush"],
        "write the output to a file with > FILE; intervals begin with their times",
    ),
    (&["-k", "--blockcount"], "write -n SIZE"),
    (
        &["-S", "--tos", "--dscp", "-L", "--flowlabel"],
        "farhaul sets the marks of its packets itself: omit it",
    ),
    (
        &["-B", "--bind", "--bind-dev", "--cport"],
        "the route chooses this end's address and a free port: omit it",
    ),
    (
        &["-A", "--affinity"],
        "write taskset -c CPU farhaul bench HOST",
    ),
    (
        &["--connect-timeout", "--rcv-timeout", "--snd-timeout"],
        "a server that does not answer ends the run after seconds: omit it",
    ),
    (
        &["-D", "--daemon", "-I", "--pidfile"],
        "write farhaul bench serve & or a unit of systemd",
    ),
];

/// Words of netem and tc.
pub(super) const NETWORK: &[Row] = &[
    (
        &["--delay", "--latency", "delay"],
        "write --rtt: a delay of 100ms on one interface is --rtt 100ms, on both --rtt 200ms",
    ),
    (
        &["--limit", "limit"],
        "write --queue with packets, bytes, a time or the path's product, as in 1000packets, 18MB, 50ms or 1bdp",
    ),
    (&["--bw", "--bandwidth", "rate"], "write --rate RATE"),
    (
        &[
            "--aqm",
            "--codel",
            "--fq_codel",
            "--red",
            "--qdisc",
            "fq_codel",
            "codel",
            "red",
        ],
        "write --ecn codel or --ecn red",
    ),
    (&["--dup", "duplicate"], "write --duplicate SHARE"),
    (
        &["--gap", "--slot", "--burst", "--buffer", "--tbf", "tbf"],
        "write --reorder SHARE,TIME, or --policer RATE,SIZE",
    ),
    (
        &["-t", "--time", "--duration"],
        "write --secs N in sim; wan run lasts as long as its command",
    ),
    (
        &["netem"],
        "write its parameters as flags, such as --rtt and --loss",
    ),
    (&["loss"], "write --loss SHARE"),
    (
        &["--gemodel", "--state", "gemodel"],
        "losses in bursts are --loss ge:MEAN,PACKETS, as in ge:1%,8",
    ),
    (
        &[
            "--distribution",
            "--correlation",
            "--loss-correlation",
            "distribution",
        ],
        "--jitter is uniform and not correlated; --loss trace:FILE repeats recorded losses",
    ),
    (
        &["dev", "--dev", "--interface"],
        "wan makes two hosts with interfaces of their own, and changes no existing one: omit it",
    ),
];

/// Other programs, and words of theirs, that are typed as commands.
pub(super) const COMMANDS: &[Row] = &[
    (
        &[
            "rsync", "scp", "sftp", "copy", "get", "put", "push", "pull", "sync", "mirror",
            "upload", "download",
        ],
        "write farhaul cp, with places and flags as of scp and rsync",
    ),
    (
        &["iperf", "iperf3", "netperf", "speedtest", "measure"],
        "write farhaul bench, with the flags of iperf3",
    ),
    (
        &["netem", "tc", "mahimahi", "emulate"],
        "write farhaul wan run --rtt TIME --rate RATE -- COMMAND",
    ),
    (&["simulate", "ns3"], "write farhaul sim"),
    (
        &["server", "daemon", "listen", "rsyncd", "sshd"],
        "write farhaul serve, or farhaul bench serve to measure",
    ),
    (
        &["ping", "mtr", "traceroute", "test", "check"],
        "write farhaul doctor HOST",
    ),
    (&["dir", "list"], "write farhaul ls HOST::SHARE"),
    (&["keygen", "ssh-keygen"], "write farhaul key gen"),
    (&["version"], "write farhaul --version"),
];

/// Flags of ls.
pub(super) const LS: &[Row] = &[
    (
        &["-a", "--all", "-A", "--almost-all", "-1", "--color"],
        "all names are listed, one on a line: omit it",
    ),
    (
        &["-t", "-S", "-r", "--reverse", "--sort", "-X", "-U"],
        "names are sorted; write --json for a program that sorts otherwise",
    ),
    (
        &["--human-readable", "-s", "--size"],
        "write -l, which shows sizes with units",
    ),
    (
        &["-d", "--directory", "-p", "--classify"],
        "write -l, which shows the kind of each name",
    ),
];

/// Commands of tc behind `wan`.
pub(super) const TC: &[&str] = &[
    "change", "add", "del", "delete", "replace", "set", "show", "ls", "qdisc", "up", "down",
];

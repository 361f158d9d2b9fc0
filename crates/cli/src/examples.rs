//! Examples, one per command, shown at the end of its help and parsed by a test, so that none of
//! them lies about a flag.

use clap::Command;

/// A command, and a line that can be typed.
const EXAMPLES: [(&[&str], &str); 45] = [
    (&["demo"], "farhaul demo ~/dataset"),
    (&["cp"], "farhaul cp run7/ me@far.example.org:/scratch/"),
    (&["ls"], "farhaul ls far::scratch/run7"),
    (&["clean"], "farhaul clean /srv/in --delete"),
    (&["explain"], "farhaul explain 17"),
    (
        &["serve"],
        "farhaul serve --share scratch=/scratch:rw --allow any",
    ),
    (&["key", "gen"], "farhaul key gen"),
    (&["key", "show"], "farhaul key show"),
    (
        &["key", "trust"],
        "farhaul key trust far:17992 fh-pub1gdndcyt2567c44qmjkqf4q1mdpyxypp771evvgjg28jav29bbt1yceqa",
    ),
    (&["key", "untrust"], "farhaul key untrust far:17992"),
    (&["key", "list"], "farhaul key list"),
    (
        &["ticket", "new"],
        "farhaul ticket new --config /etc/farhaul/serve.toml --share data/run7 --ttl 24h --uses 1",
    ),
    (&["ticket", "list"], "farhaul ticket list --json"),
    (&["ticket", "revoke"], "farhaul ticket revoke gdndcyt2"),
    (&["top"], "farhaul top --json"),
    (&["ctl", "rate"], "farhaul ctl rate 3 500Mbit"),
    (&["ctl", "pause"], "farhaul ctl pause all"),
    (&["ctl", "resume"], "farhaul ctl resume all"),
    (&["bench"], "farhaul bench far -t 60 -R --json"),
    (
        &["bench", "serve"],
        "farhaul bench serve --listen 0.0.0.0:17992",
    ),
    (
        &["compat", "rbudp", "sendfile"],
        "farhaul compat rbudp sendfile --share data=/srv/data:ro --rate 5Gbit --payload 8800",
    ),
    (
        &["compat", "rbudp", "recvfile"],
        "farhaul compat rbudp recvfile far data/run7.tar run7.tar --payload 8800",
    ),
    (
        &["compat", "ttp", "serve"],
        "farhaul compat ttp serve --share data=/srv/data:ro --max-rate 1Gbit",
    ),
    (
        &["compat", "ttp", "get"],
        "farhaul compat ttp get far data/run7.tar run7.tar --rate 2Gbit --block 8966",
    ),
    (&["compat", "ttp", "list"], "farhaul compat ttp list far"),
    (
        &["compat", "udt4", "sendfile"],
        "farhaul compat udt4 sendfile --share data=/srv/data:ro --listen 0.0.0.0:9000",
    ),
    (
        &["compat", "udt4", "recvfile"],
        "farhaul compat udt4 recvfile far:9000 data/run7.tar run7.tar",
    ),
    (
        &["compat", "udt4", "server"],
        "farhaul compat udt4 server --one-off",
    ),
    (
        &["compat", "udt4", "client"],
        "farhaul compat udt4 client far:9000 -t 30 --json",
    ),
    (
        &["wan", "run"],
        "farhaul wan run --rtt 100ms --loss 1% --far 'iperf3 -s -1' -- iperf3 -c 10.99.0.2",
    ),
    (
        &["wan", "relay"],
        "farhaul wan relay --listen 127.0.0.1:9000 --to 127.0.0.1:17992 --rtt 100ms --loss 1%",
    ),
    (&["wan", "calibrate"], "farhaul wan calibrate --each 5s"),
    (
        &["sim"],
        "farhaul sim --rtt 400ms --loss 2% --rate 10Gbit --secs 180",
    ),
    (
        &["sim", "run"],
        "farhaul sim run lab/scenarios/two-flows.toml",
    ),
    (&["lab", "list"], "farhaul lab list"),
    (&["lab", "run"], "farhaul lab run kachan-2014 --quick"),
    (
        &["lab", "report"],
        "farhaul lab report kachan-2014 --quick --csv",
    ),
    (
        &["lab", "check"],
        "farhaul lab check kachan-2014 --quick --new",
    ),
    (&["lab", "open"], "farhaul lab open kachan-2014 --quick"),
    (&["protocols"], "farhaul protocols haul cubic"),
    (&["doctor"], "farhaul doctor far.example.org"),
    (&["config", "show"], "farhaul config show"),
    (&["config", "check"], "farhaul config check farhaul.toml"),
    (&["config", "path"], "farhaul config path"),
    (&["completions"], "farhaul completions bash"),
];

/// The definition with the examples in its help.
pub(crate) fn shown(definition: Command) -> Command {
    EXAMPLES
        .iter()
        .fold(definition, |d, (path, line)| with(d, path, line))
}

fn with(command: Command, path: &[&str], line: &str) -> Command {
    match path {
        [first, rest @ ..] if command.find_subcommand(first).is_some() => {
            command.mut_subcommand(first, |below| with(below, rest, line))
        }
        // A removed command: the test fails.
        [_, ..] => command,
        [] => command.after_help(format!("Example: {line}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of a line with single quotes.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quoted = false;
        for c in line.chars() {
            match (c, words.last_mut()) {
                ('\'', _) => quoted = !quoted,
                (' ', _) if !quoted => words.push(String::new()),
                (_, Some(word)) => word.push(c),
                (_, None) => {}
            }
        }
        words
    }

    #[test]
    fn every_example_can_be_typed() {
        for (path, line) in EXAMPLES {
            let words = words(line);
            assert_eq!(words[1..=path.len()], *path, "{line}");
            let parsed = crate::definition().try_get_matches_from(&words);
            assert!(parsed.is_ok(), "{line}: {parsed:?}");
        }
    }

    /// Lines of code blocks that are ours, without their prompt, comment or explanation.
    fn typed(page: &str) -> Vec<String> {
        let mut inside = false;
        let mut found = Vec::new();
        for line in page.lines() {
            if line.starts_with("```") {
                inside = !inside;
            }
            let line = line
                .trim_start_matches("near$ ")
                .trim_start_matches("far$  ");
            let line = line.split(" # ").next().unwrap_or_default();
            let line = line.split("     ").next().unwrap_or_default().trim();
            if inside && line.starts_with("farhaul ") {
                found.push(line.to_string());
            }
        }
        found
    }

    #[test]
    fn what_the_documents_show_can_be_typed() {
        let pages = [
            include_str!("../../../README.md"),
            include_str!("../../../docs/using.md"),
            include_str!("../../../docs/serving.md"),
        ];
        for page in pages {
            let lines = typed(page);
            assert!(lines.len() >= 4, "{lines:?}");
            for line in lines {
                let parsed = crate::definition().try_get_matches_from(words(&line));
                assert!(parsed.is_ok(), "{line}: {parsed:?}");
            }
        }
    }

    #[test]
    fn every_command_has_an_example() {
        let definition = crate::definition();
        let mut commands = vec![(Vec::new(), &definition)];
        while let Some((path, command)) = commands.pop() {
            let below: Vec<_> = command
                .get_subcommands()
                .filter(|c| !c.is_hide_set())
                .collect();
            let leaf = below.is_empty() && !path.is_empty();
            let shown = command.get_after_help().map(ToString::to_string);
            let fine = !leaf || shown.is_some_and(|h| h.contains("Example"));
            assert!(fine, "{path:?} has no example");
            for command in below {
                let mut path = path.clone();
                path.push(command.get_name());
                commands.push((path, command));
            }
        }
    }
}

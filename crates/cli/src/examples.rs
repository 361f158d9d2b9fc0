//! Examples, one per command, shown at the end of its help and parsed by a test, so that none of
//! them lies about a flag.

use clap::Command;

/// Lines that can be typed; the first words of each are its command.
const EXAMPLES: [&str; 45] = [
    "farhaul demo ~/dataset",
    "farhaul cp run7/ me@far.example.org:/scratch/",
    "farhaul ls far::scratch/run7",
    "farhaul clean /srv/in --delete",
    "farhaul explain 17",
    "farhaul serve --share scratch=/scratch:rw --allow any",
    "farhaul key gen",
    "farhaul key show",
    "farhaul key trust far:17992 fh-pub1gdndcyt2567c44qmjkqf4q1mdpyxypp771evvgjg28jav29bbt1yceqa",
    "farhaul key untrust far:17992",
    "farhaul key list",
    "farhaul ticket new --config /etc/farhaul/serve.toml --share data/run7 --ttl 24h --uses 1",
    "farhaul ticket list --json",
    "farhaul ticket revoke gdndcyt2",
    "farhaul top --json",
    "farhaul ctl rate 3 500Mbit",
    "farhaul ctl pause all",
    "farhaul ctl resume all",
    "farhaul bench far -t 60 -R --json",
    "farhaul bench serve --listen 0.0.0.0:17992",
    "farhaul compat rbudp sendfile --share data=/srv/data:ro --rate 5Gbit --payload 8800",
    "farhaul compat rbudp recvfile far data/run7.tar run7.tar --payload 8800",
    "farhaul compat ttp serve --share data=/srv/data:ro --max-rate 1Gbit",
    "farhaul compat ttp get far data/run7.tar run7.tar --rate 2Gbit --block 8966",
    "farhaul compat ttp list far",
    "farhaul compat udt4 sendfile --share data=/srv/data:ro --listen 0.0.0.0:9000",
    "farhaul compat udt4 recvfile far:9000 data/run7.tar run7.tar",
    "farhaul compat udt4 server --one-off",
    "farhaul compat udt4 client far:9000 -t 30 --json",
    "farhaul wan run --rtt 100ms --loss 1% --far 'iperf3 -s -1' -- iperf3 -c 10.99.0.2",
    "farhaul wan relay --listen 127.0.0.1:9000 --to 127.0.0.1:17992 --rtt 100ms --loss 1%",
    "farhaul wan calibrate --each 5s",
    "farhaul sim --rtt 400ms --loss 2% --rate 10Gbit --secs 180",
    "farhaul sim run lab/scenarios/two-flows.toml",
    "farhaul lab list",
    "farhaul lab run kachan-2014 --quick",
    "farhaul lab report kachan-2014 --quick --csv",
    "farhaul lab check kachan-2014 --quick --new",
    "farhaul lab open kachan-2014 --quick",
    "farhaul protocols haul cubic",
    "farhaul doctor far.example.org",
    "farhaul config show",
    "farhaul config check farhaul.toml",
    "farhaul config path",
    "farhaul completions bash",
];

/// The definition with the examples in its help.
pub(crate) fn shown(definition: Command) -> Command {
    EXAMPLES.iter().fold(definition, |definition, line| {
        let words: Vec<_> = line.split(' ').skip(1).collect();
        with(definition, &words, line)
    })
}

fn with(command: Command, words: &[&str], line: &str) -> Command {
    match words {
        [first, rest @ ..] if command.find_subcommand(first).is_some() => {
            command.mut_subcommand(first, |below| with(below, rest, line))
        }
        _ => command.after_help(format!("Example: {line}")),
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
        for line in EXAMPLES {
            let parsed = crate::definition().try_get_matches_from(words(line));
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

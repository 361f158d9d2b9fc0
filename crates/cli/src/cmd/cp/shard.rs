//! Selects the part of a copy that this node sends, when several send one data set together.

use farhaul_transfer::{Mirror, Shard};

use crate::{app::copy::Job, exit::Failure};

/// Parts of a copy.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sharding")]
pub(super) struct ShardArgs {
    /// Send part I of N, from 1/N to N/N; the parts have about equal bytes
    #[arg(long, value_name = "I/N", value_parser = shard, allow_hyphen_values = true)]
    pub(super) shard: Option<Shard>,
    /// Read the reports (--json) of all shards and name those to run again
    #[arg(long, conflicts_with_all = ["shard", "dry_run", "json_stream"])]
    pub(super) merge: bool,
}

fn shard(text: &str) -> Result<Shard, String> {
    let numbers = text.split_once('/');
    let numbers = numbers.and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    let Some((index, count)) = numbers else {
        return Err("write a number and how many there are, as in 1/4".into());
    };
    let most = Shard::MOST;
    Shard::new(index, count).ok_or_else(|| match count {
        0 => "give a count of 1 or more, as in 1/4".into(),
        _ if count > most => format!("give {most} shards at most"),
        _ => format!("shards are counted from 1: write 1/{count} to {count}/{count}"),
    })
}

const WHERE: &str = "run the shards on nodes that have the files, with a server at the destination";

impl ShardArgs {
    /// Refuses copies that this machine does not list.
    pub(super) fn refuse(&self, job: &Job) -> Result<(), Failure> {
        let text = match job {
            _ if self.shard.is_none() => return Ok(()),
            Job::Put(..) => return Ok(()),
            Job::Get(..) | Job::GetPipe(_) => {
                "--shard divides what is sent from here, and here it is fetched"
            }
            Job::PutPipe(_) => {
                let text = "--shard divides files, and what comes through a pipe is not divided";
                return Err(Failure::usage(text).fix("omit --shard, or name files and folders"));
            }
        };
        Err(Failure::usage(text).fix(WHERE))
    }

    /// Refuses copies between two other hosts.
    pub(super) fn refuse_between(&self) -> Result<(), Failure> {
        if self.shard.is_none() {
            return Ok(());
        }
        let text = "--shard divides what is sent from here, and here another host sends";
        Err(Failure::usage(text).fix(WHERE))
    }

    /// Refuses flags that depend on all that is copied, since one shard has only a part.
    pub(super) fn refuse_mirror(&self, mirror: &Mirror) -> Result<(), Failure> {
        if self.shard.is_none() {
            return Ok(());
        }
        if mirror.delete.is_some() {
            let text = "--delete with --shard would delete what other shards send";
            let fix = "copy with --shard, then once with --delete and without --shard: what is there is not sent again";
            return Err(Failure::usage(text).fix(fix));
        }
        if mirror.preserve.links {
            let text = "hard links with --shard: the names of one file may be in different shards";
            let fix = "write --preserve=ownership,xattr,acl in place of -a, or omit -H";
            return Err(Failure::usage(text).fix(fix));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_counted_from_one() {
        assert_eq!(shard("1/1"), Ok(Shard::new(1, 1).unwrap()));
        assert_eq!(shard("4/4").unwrap().to_string(), "4/4");
        for (bad, hint) in [
            ("0/4", "1/4 to 4/4"),
            ("5/4", "1/4 to 4/4"),
            ("1/0", "1 or more"),
            ("1/10001", "10000 shards at most"),
            ("x", "as in 1/4"),
            ("1/", "as in 1/4"),
            ("-1/4", "as in 1/4"),
            ("1/2/3", "as in 1/4"),
            ("99999999999/4", "as in 1/4"),
        ] {
            let why = shard(bad).unwrap_err();
            assert!(why.contains(hint), "{bad}: {why}");
        }
    }
}

//! Reports what part of a copy this node sends, when several send one data set together.

use std::path::{Path, absolute};

use farhaul_core::units::Size;
use farhaul_transfer::{Shard, Summary};
use serde_json::{Value, json};

use super::Job;
use crate::place;

/// Line for people.
pub(super) fn line(shard: Option<Shard>, summary: &Summary) -> Option<String> {
    let (shard, partition) = (shard?, summary.partition.as_ref()?);
    let (own, whole) = (partition.own, partition.whole);
    let divided = match partition.divided {
        0 => String::new(),
        1 => "; one file is divided".into(),
        files => format!("; {files} files are divided"),
    };
    Some(format!(
        "shard {shard}: {} of {} files, {} of {}{divided}",
        own.files,
        whole.files,
        Size::from_bytes(own.bytes),
        Size::from_bytes(whole.bytes)
    ))
}

/// Object for programs, and for `--merge`; fields that are unknown before everything was listed
/// are null.
pub(super) fn object(shard: Shard, summary: &Summary, job: &Job, to: &str) -> Value {
    let sources: Vec<_> = match job {
        Job::Put(sources, _) => sources.iter().map(|path| named(path)).collect(),
        _ => Vec::new(),
    };
    // Fields that are unknown before everything was listed are null.
    let partition = summary.partition.as_ref();
    json!({
        "index": shard.index(),
        "count": shard.count(),
        "sources": sources,
        "destination": to,
        "listing": partition.map(|partition| partition.listing.as_str()),
        "own": partition.map(|partition| partition.own),
        "whole": partition.map(|partition| partition.whole),
        "divided": partition.map(|partition| partition.divided),
        "stripes": partition.map(|_| &summary.stripes),
    })
}

/// A source by the name that it has from any folder.
fn named(path: &Path) -> String {
    let full = absolute(path);
    place::local(full.as_deref().unwrap_or(path))
}

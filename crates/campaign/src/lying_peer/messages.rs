//! Sends any messages to the ends of a copy: real clients and servers on a real folder, in virtual
//! time. The messages of the far end, in either direction, are drawn at random, sometimes around a
//! valid course.

use std::{io, path::Path};

use farhaul_core::rng::Rng;
use farhaul_transfer::{fuzz_grants, fuzz_receiver, fuzz_sender, fuzz_server};

use super::{ALLOCATED, HEAP, Most};

type Role = fn(&[u8], &Path) -> io::Result<()>;

const ROLES: [Role; 4] = [fuzz_receiver, fuzz_sender, fuzz_server, fuzz_grants];
/// Lists a file, sends it and its digest, ends, and receives *finished*.
const HONEST: [u8; 16] = [0, 0, 0, 2, 0, 3, 0, 0, 6, 0, 0, 7, 0, 16, 8, 4];

/// One seed, of the role whose turn it is.
pub(super) fn run(seed: u64, dir: &Path, most: &mut Most) -> Result<(), String> {
    let role = ROLES[usize::try_from(seed).unwrap_or_default() % ROLES.len()];
    let said = said(&mut Rng::new(seed).fork("messages"));
    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    role(&said, dir).map_err(|e| e.to_string())?;
    let memory = ALLOCATED.peak_usage().saturating_sub(before);
    most.messages = most.messages.max(memory);
    if memory > HEAP {
        return Err(format!("{memory} bytes of memory for an end of a copy"));
    }
    Ok(())
}

fn said(rng: &mut Rng) -> Vec<u8> {
    let any = |rng: &mut Rng| rng.next_u64().to_le_bytes()[0];
    // Small numbers are kinds of messages, and files that were listed.
    let small = rng.chance(0.5);
    let mut said = vec![any(rng)];
    if rng.chance(0.5) {
        said.extend((0..rng.below(4)).map(|_| any(rng) % 8));
        said.extend(HONEST);
        for _ in 0..rng.below(4) {
            let at = usize::try_from(rng.below(said.len() as u64)).unwrap_or_default();
            said[at] = any(rng);
        }
    }
    let more = rng.below(600);
    said.extend((0..more).map(|_| if small { any(rng) % 24 } else { any(rng) }));
    said
}

//! Hashes that distinguish things by a short name. Texts have FNV-1a of 64 bits, as nobody tries to
//! make two alike; the running program is hashed by its bytes.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::LazyLock,
};

/// FNV-1a, 64 bits.
pub(crate) fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The running program.
const PROGRAM: &str = "/proc/self/exe";

/// Names the running program, or the module of another program that this is part of: another after every change of it.
/// Empty if its file cannot be read, and then no stored run is taken for one of this program.
pub fn build() -> &'static str {
    static BUILD: LazyLock<String> = LazyLock::new(|| {
        let read = || {
            let mut hash = blake3::Hasher::new();
            hash.update_reader(File::open(own_file()?)?)?;
            io::Result::Ok(hash.finalize().to_hex()[..16].to_string())
        };
        read().unwrap_or_default()
    });
    &BUILD
}

/// The file that this code was loaded from: the program's, also when it was replaced since, or a library's.
fn own_file() -> io::Result<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let here = build as *const () as usize;
    let of_program = || PathBuf::from(PROGRAM);
    let Some(path) = maps.lines().find_map(|line| mapped_at(line, here)) else {
        return Ok(of_program());
    };
    let own = fs::read_link(PROGRAM)?;
    Ok(if own == path { of_program() } else { path })
}

/// The file of a line of `/proc/self/maps`, if `address` is in it.
fn mapped_at(line: &str, address: usize) -> Option<PathBuf> {
    let (range, rest) = line.split_once(' ')?;
    let (from, to) = range.split_once('-')?;
    let bound = |text: &str| usize::from_str_radix(text, 16).ok();
    let within = (bound(from)?..bound(to)?).contains(&address);
    let path = rest.find('/').map(|at| &rest[at..])?;
    within.then(|| Path::new(path).to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_their_definition() {
        // The test vectors of FNV's authors.
        assert_eq!(fnv(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv("foobar"), 0x8594_4171_f739_67e8);
        let own = std::env::current_exe().unwrap();
        let whole = blake3::hash(&fs::read(own).unwrap()).to_hex();
        assert_eq!(build(), &whole[..16]);
    }

    #[test]
    fn the_mapping_with_an_address_has_a_file() {
        let line = "7f00a000-7f00c000 r-xp 00001000 08:02 173521   /opt/a b/_farhaul.abi3.so";
        let at = |address| mapped_at(line, address);
        assert_eq!(
            at(0x7f00_bfff),
            Some(PathBuf::from("/opt/a b/_farhaul.abi3.so"))
        );
        assert_eq!(at(0x7f00_c000), None);
        assert_eq!(
            mapped_at("7f00a000-7f00c000 rw-p 0 00:00 0 ", 0x7f00_a000),
            None
        );
        assert_eq!(own_file().unwrap(), PathBuf::from(PROGRAM));
    }
}

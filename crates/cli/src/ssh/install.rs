//! Installs farhaul on a host that has none, or another version. The copy goes through ssh, as this
//! very program. The program has to be one file that runs by itself, and the host of the same kind.
//! The program gets its name in ~/.local/bin once it is whole and was tried there.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _},
    process::Stdio,
};

use farhaul_core::{text, units::Size};
use rustix::system::uname;

use super::{Call, lines::MOST, lines::RELEASE};
use crate::{
    app::console::{Answer, Console, Level},
    child,
    exit::{Exit, Failure},
    wait::Wait,
};

/// Consent to copy farhaul to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Consent {
    /// If the person at the terminal says so.
    Ask,
    /// Always.
    Yes,
}

/// Place where farhaul is then, for the shell there.
pub(super) const PLACE: &str = "\"$HOME/.local/bin/farhaul\"";
/// Beginning of the lines of ours.
const WORD: &str = "farhaul-install: ";
/// Path of this program, whatever became of its file.
const OWN: &str = "/proc/self/exe";

/// Script that looks before anything is done. No `'` is in the scripts, for they are quoted by it.
const LOOK: &str = "d=$HOME/.local/bin; echo \"farhaul-install: kind $(uname -sm)\"; \
    if test -e \"$d/farhaul\"; then echo \"farhaul-install: there $(\"$d/farhaul\" --version 2>&1 </dev/null | head -n 1)\"; fi";
/// Script that reads the program; `$n` is its length. A program that is not whole, or does not run,
/// never gets the name.
const PUT: &str = "d=$HOME/.local/bin; test ! -d \"$d/farhaul\" || { echo \"$d/farhaul is a folder\" >&2; exit 1; }; mkdir -p \"$d\" && t=$(mktemp \"$d/.farhaul.XXXXXX\") || exit 1; \
    trap \"rm -f \\\"\\$t\\\"\" 0; trap \"exit 1\" 1 2 15; \
    cat > \"$t\" && test \"$(wc -c < \"$t\")\" -eq \"$n\" && chmod 755 \"$t\" && v=$(\"$t\" --version </dev/null) && \
    mv -f \"$t\" \"$d/farhaul\" && echo \"farhaul-install: done $v\"";

/// Opens by `open`. If that fails for the lack of a farhaul there that it can talk to, and one may
/// be copied, copies it and opens again.
pub(super) fn or_install<T>(
    call: &Call,
    login: &str,
    console: &dyn Console,
    open: impl Fn(&Call) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let e = match open(call) {
        Err(e)
            if call.install.is_some() && matches!(e.exit, Exit::RemoteMissing | Exit::Version) =>
        {
            e
        }
        ended => return ended,
    };
    let state = match e.exit {
        Exit::RemoteMissing => "is not installed there",
        _ => "there is a version with which this one cannot talk",
    };
    let refused = |why: String| {
        let text = format!("{login}: farhaul {state}, and this one cannot be copied there: {why}");
        Failure::new(e.exit, text)
    };
    if call.is_named {
        return Err(refused("--remote-bin names another one".into()));
    }
    let mut own = File::open(OWN).map_err(|e| refused(format!("{OWN}: {e}")))?;
    is_static(&mut own).map_err(|why| {
        refused(format!(
            "this farhaul {why}; a packaged one is a static binary"
        ))
    })?;
    let local = uname();
    let kind = [local.sysname(), local.machine()]
        .map(|word| word.to_string_lossy().into_owned())
        .join(" ");
    let there = look(call, login).map_err(&refused)?;
    there.check(&kind).map_err(&refused)?;
    consent_to(call, login, console, &e, &there).map_err(&refused)?;
    let version = put(call, login, own).map_err(&refused)?;
    let text = format!("farhaul: installed {version} as ~/.local/bin/farhaul on {login}");
    console.message(Level::Important, &text);
    open(&call.installed())
}

/// The host as it was found.
#[derive(Debug, Default, PartialEq, Eq)]
struct There {
    /// System and machine.
    kind: String,
    /// Version that the program in the place reports.
    version: Option<String>,
}

impl There {
    /// Refuses one on which a program of this `kind` does not run.
    fn check(&self, kind: &str) -> Result<(), String> {
        if self.kind == kind {
            return Ok(());
        }
        let theirs = text::plain(&self.kind);
        Err(format!(
            "that host is {theirs}, and this program is for {kind}"
        ))
    }

    /// Text about the program that is replaced.
    fn replaced(&self) -> String {
        let Some(version) = &self.version else {
            return String::new();
        };
        let shown: String = text::plain(version).chars().take(40).collect();
        match number(version).zip(number(RELEASE)) {
            Some((theirs, ours)) if theirs > ours => {
                format!(", in place of the NEWER one there ({shown})")
            }
            _ => format!(", in place of the one there ({shown})"),
        }
    }
}

/// `farhaul 1.2.3` or `1.2.3`, to be compared.
fn number(version: &str) -> Option<[u64; 3]> {
    let last = version.split(' ').next_back()?;
    let plain = last.split(['-', '+']).next()?;
    let numbers: Option<Vec<u64>> = plain.split('.').map(|n| n.parse().ok()).collect();
    numbers?.try_into().ok()
}

fn look(call: &Call, login: &str) -> Result<There, String> {
    let lines = said(call, login, LOOK, Stdio::null())?;
    let find = |word: &str| {
        lines.iter().find_map(|line| {
            line.strip_prefix(word)?
                .strip_prefix(' ')
                .map(str::to_owned)
        })
    };
    Ok(There {
        kind: find("kind").ok_or("ssh did not say what that host is")?,
        version: find("there"),
    })
}

/// Copies it; the version that it says it is there.
fn put(call: &Call, login: &str, mut program: File) -> Result<String, String> {
    let size = program
        .metadata()
        .and_then(|m| program.rewind().map(|()| m.len()));
    let size = size.map_err(|e| e.to_string())?;
    let host = login.to_owned();
    let _wait = Wait::start(move |time| {
        format!(
            "copying {} to {host}, {} s",
            Size::from_bytes(size),
            time.as_secs()
        )
    });
    let lines = said(call, login, &format!("n={size}; {PUT}"), program.into())?;
    let version = lines.iter().find_map(|line| line.strip_prefix("done "));
    version.map(text::plain).ok_or_else(|| {
        "what was copied does not run there, or there is no space; the output of ssh is above"
            .into()
    })
}

/// Lines that a script printed that was run by a plain shell there.
fn said(call: &Call, login: &str, script: &str, input: Stdio) -> Result<Vec<String>, String> {
    let mut command = call.to(&[], login);
    command
        .arg(format!("exec sh -c '{script}'"))
        .stdin(input)
        .stdout(Stdio::piped());
    let mut ssh = child::start(&mut command).map_err(|e| e.to_string())?;
    let mut output = Vec::new();
    let read = ssh
        .stdout
        .take()
        .map(|out| out.take(MOST).read_to_end(&mut output));
    child::end(&mut ssh).map_err(|e| e.to_string())?;
    if let Some(Err(e)) = read {
        return Err(e.to_string());
    }
    let output = String::from_utf8_lossy(&output);
    Ok(output
        .lines()
        .filter_map(|line| line.strip_prefix(WORD))
        .map(str::to_owned)
        .collect())
}

/// Asks, unless that was done; an error says why not.
fn consent_to(
    call: &Call,
    login: &str,
    console: &dyn Console,
    why: &Failure,
    there: &There,
) -> Result<(), String> {
    let what = format!(
        "farhaul {RELEASE} as ~/.local/bin/farhaul on {login}{}",
        there.replaced()
    );
    if console.is_inside() {
        return Err(
            "this program is not farhaul, which could be installed there: run the command `farhaul cp --install-remote`"
                .into(),
        );
    }
    if call.install == Some(Consent::Yes) {
        console.message(Level::Important, &format!("farhaul: installing {what}"));
        return Ok(());
    }
    let question = format!("{}\nInstall {what}?", text::plain(&why.text));
    match console.ask(&question) {
        Answer::Yes => Ok(()),
        Answer::NotAsked => Err(
            "nobody can be asked where there is no terminal; --install-remote=yes does not ask"
                .into(),
        ),
        Answer::No | Answer::Interrupted | Answer::HungUp => Err("that was not agreed to".into()),
    }
}

/// Error unless an ELF program (System V ABI, chapters 4 and 5) runs by itself: it names no
/// interpreter.
fn is_static(program: &mut File) -> Result<(), String> {
    const INTERPRETER: [u8; 4] = 3_u32.to_ne_bytes();
    let odd = |_| "is not an ELF program that could be read".to_owned();
    let mut head = [0; 64];
    program.read_exact(&mut head).map_err(odd)?;
    let class = if cfg!(target_pointer_width = "64") {
        2
    } else {
        1
    };
    if head[..5] != [0x7f, b'E', b'L', b'F', class] || class != 2 {
        return Err("is not a 64-bit ELF program".into());
    }
    let short = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
    let mut at = [0; 8];
    at.copy_from_slice(&head[32..40]);
    let (size, count) = (u64::from(short(54)), u64::from(short(56)));
    for i in 0..count {
        let entry = u64::from_ne_bytes(at).saturating_add(i * size);
        let mut kind = [0; 4];
        program
            .seek(io::SeekFrom::Start(entry))
            .and_then(|_| program.read_exact(&mut kind))
            .map_err(odd)?;
        if kind == INTERPRETER {
            return Err("needs libraries of this system".into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

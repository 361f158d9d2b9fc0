//! Runs a command inside another program. The program gives the words and gets what `--json` would
//! print, or why there is nothing. Commands, flags, defaults and failures are the same.
//!
//! - A command that runs so belongs to the thread that called it. The command handles no signals,
//!   asks nothing, prints nothing on stdout and ends no process. Its messages meanwhile go to its
//!   [`Tell`].
//! - [`Cancel`] ends it as the first interrupt ends the command.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    env,
    ffi::OsString,
    fmt, io, mem,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use clap::FromArgMatches as _;
use farhaul_io::Stop;
use farhaul_transfer::Code;
use serde_json::{Value, json};

use crate::{Cli, cmd, config, exit::Failure, habit};
pub use farhaul_transfer::{
    Change, TransferError,
    client::{Found, Listed, MOST_READ, Question, Reads, Remote},
};

#[cfg(feature = "lab")]
pub use crate::cmd::{Simulation, cells, simulate};
pub use crate::exit::{ExitRow, Failed, exits};

/// Called with every event of a command, as `--json-stream` prints them, from any thread; must not
/// wait long. Text for people has the type `message`.
pub type Tell = Arc<dyn Fn(&Value) + Send + Sync>;

/// The commands that can be run so.
pub const COMMANDS: [&str; 6] = ["bench", "cp", "doctor", "ls", "protocols", "serve"];

/// Ends the commands that were started with it, those that are started later included.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Cancelled>);

#[derive(Default)]
struct Cancelled {
    set: AtomicBool,
    /// Actions that end a command, by number.
    ends: Mutex<BTreeMap<u64, End>>,
}

type End = Arc<dyn Fn() + Send + Sync>;

impl Cancelled {
    fn ends(&self) -> MutexGuard<'_, BTreeMap<u64, End>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cancel {
    /// Makes one that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the running command.
    pub fn cancel(&self) {
        // In this order: actions added meanwhile look at it afterwards.
        self.0.set.store(true, SeqCst);
        // None is called with the lock held: it may wait, or be over by then.
        let ends: Vec<End> = self.0.ends().values().cloned().collect();
        for end in ends {
            end();
        }
    }

    /// True if it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.set.load(SeqCst)
    }

    /// Calls `end` on cancellation, at once if that was before; never again once the result is
    /// dropped.
    pub(crate) fn and(&self, end: impl Fn() + Send + Sync + 'static) -> Ends {
        let end: End = Arc::new(end);
        let mut ends = self.0.ends();
        let key = ends.last_key_value().map_or(0, |(key, _)| key + 1);
        ends.insert(key, Arc::clone(&end));
        drop(ends);
        if self.is_cancelled() {
            end();
        }
        Ends(Arc::clone(&self.0), key)
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancel").field(&self.is_cancelled()).finish()
    }
}

/// Registration of an action that a [`Cancel`] ends.
pub(crate) struct Ends(Arc<Cancelled>, u64);

impl Drop for Ends {
    fn drop(&mut self) {
        let ended = self.0.ends().remove(&self.1);
        drop(ended);
    }
}

/// A command that this thread runs for another program.
struct Call {
    words: Vec<OsString>,
    /// Switches that are off, whatever is configured.
    off: Vec<String>,
    cancel: Cancel,
    ends: Vec<Ends>,
    tell: Tell,
    /// Output of the command: an object, or the text of one.
    object: Option<Value>,
    text: Vec<u8>,
}

thread_local! {
    static CALL: RefCell<Option<Call>> = const { RefCell::new(None) };
}

/// A flag of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Name without dashes before it, as `max-rate`.
    pub name: String,
    /// True if the flag takes a value, and if it may go without one.
    pub value: (bool, bool),
    /// True if the flag may be given several times.
    pub repeated: bool,
    /// Values that there are, if they are few.
    pub choices: Vec<String>,
    /// True if help leaves the flag out.
    pub hidden: bool,
}

/// Flags of the command that these words are, as `bench` and `serve`; none if there is no such command.
pub fn flags(words: &[String]) -> Vec<Flag> {
    let mut definition = crate::definition();
    definition.build();
    let below = |command: &clap::Command, word: &String| command.find_subcommand(word).cloned();
    let found = words
        .iter()
        .try_fold(definition, |at, word| below(&at, word));
    let flag = |arg: &clap::Arg| {
        let values = arg.get_num_args().unwrap_or_default();
        // Of a list of words in one value none is the value.
        let is_list = arg.get_value_delimiter().is_some();
        let choices = arg.get_possible_values();
        let choices = choices.iter().filter(|_| !is_list);
        Some(Flag {
            name: arg.get_long()?.into(),
            value: (values.takes_values(), values.min_values() == 0),
            repeated: matches!(arg.get_action(), clap::ArgAction::Append),
            choices: choices.map(|c| c.get_name().into()).collect(),
            hidden: arg.is_hide_set(),
        })
    };
    let all = found.iter().flat_map(clap::Command::get_arguments);
    all.filter_map(flag).collect()
}

/// Runs the command `words`, the first one of [`COMMANDS`], on this thread; returns what its
/// `--json` would print. Of servers that is nothing: they run until they are cancelled. A switch
/// that is configured is off if it is given as `--delete=false`.
///
/// # Errors
/// As the command fails. Copies from and to pipes are refused: the standard input and output are this program's.
pub fn run(words: &[OsString], cancel: &Cancel, tell: Tell) -> Result<Value, Failed> {
    run_as(words, cancel, tell, cmd::run)
}

/// Runs the session of `reads` with the server of the place that the words of an `ls` name, by its flags, until it is closed.
/// Its answers end with it.
///
/// # Errors
/// As the command fails.
pub fn read(
    words: &[OsString],
    cancel: &Cancel,
    tell: Tell,
    reads: &Reads,
) -> Result<Value, Failed> {
    let ended = run_as(words, cancel, tell, |command| match command {
        cmd::Command::Ls(args) => cmd::read(&args, reads),
        _ => Err(Failure::usage("a session that reads has the flags of ls")),
    });
    reads.end(match &ended {
        Ok(_) => TransferError::new(Code::ConnectionLost, "the session was closed"),
        Err(failed) => {
            let code = Code::from_number(failed.exit.code).unwrap_or(Code::Internal);
            TransferError::new(code, failed.text.as_str()).fix(failed.fix.as_str())
        }
    });
    ended
}

fn run_as(
    words: &[OsString],
    cancel: &Cancel,
    tell: Tell,
    act: impl FnOnce(cmd::Command) -> Result<(), Failure>,
) -> Result<Value, Failed> {
    let (words, off) = without_those_off(words);
    let call = Call {
        words,
        off,
        cancel: cancel.clone(),
        ends: Vec::new(),
        tell,
        object: None,
        text: Vec::new(),
    };
    let within = Within::enter(call);
    let ended = command().and_then(act);
    let (object, text) =
        in_call(|call| (call.object.take(), mem::take(&mut call.text))).unwrap_or_default();
    drop(within);
    match ended {
        Ok(()) => Ok(object
            .or_else(|| serde_json::from_slice(&text).ok())
            .unwrap_or(Value::Null)),
        Err(failure) => Err(failure.into()),
    }
}

/// The words of the program, and the switches that they say are off.
fn without_those_off(words: &[OsString]) -> (Vec<OsString>, Vec<String>) {
    let definition = crate::definition();
    let mut command = &definition;
    let (mut kept, mut off) = (vec![OsString::from("farhaul")], Vec::new());
    let mut flags = true;
    for word in words {
        flags &= word != "--";
        let text = word.to_str().filter(|_| flags).unwrap_or_default();
        if let Some(below) = command.find_subcommand(text) {
            command = below;
        }
        let name = text
            .strip_prefix("--")
            .and_then(|t| t.strip_suffix("=false"));
        match name.filter(|name| config::has_switch(command, name)) {
            Some(name) => off.push(name.to_string()),
            None => kept.push(word.clone()),
        }
    }
    (kept, off)
}

/// The command that the words of this call are.
fn command() -> Result<cmd::Command, Failure> {
    let words = words();
    let name = words
        .get(1)
        .and_then(|word| word.to_str())
        .unwrap_or_default();
    if !COMMANDS.contains(&name) {
        let known = COMMANDS.join(", ");
        let text = format!("'{name}' cannot be run inside another program; there are: {known}");
        return Err(Failure::usage(text));
    }
    let of_flag = |word: &[u8]| word.starts_with(b"--") && word.ends_with(b"=-");
    let is_pipe = |word: &OsString| word == "-" || of_flag(word.as_encoded_bytes());
    if name == "cp" && words.iter().any(is_pipe) {
        let text = "- is the standard input or output, which belongs to this program";
        return Err(Failure::usage(text).fix("name a file, or run the command `farhaul cp`"));
    }
    let parsed = crate::matches_of(crate::with_defaults()?);
    match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => Ok(cli.command),
        Err(e) => Err(Failure::usage(
            habit::advice(&e).unwrap_or_else(|| crate::plain(&e.to_string())),
        )),
    }
}

/// The command of this thread, in place of the one before; no longer when it is dropped, also by a panic.
struct Within(Option<Call>);

impl Within {
    fn enter(call: Call) -> Self {
        Self(CALL.replace(Some(call)))
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        CALL.set(self.0.take());
    }
}

fn in_call<T>(of: impl FnOnce(&mut Call) -> T) -> Option<T> {
    CALL.with_borrow_mut(|call| call.as_mut().map(of))
}

/// True if this thread runs a command for another program.
pub(crate) fn is_inside() -> bool {
    in_call(|_| ()).is_some()
}

/// Words of the command line, where they are not the process's.
static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Sets the words of the command line, once.
pub(crate) fn set_words(words: Vec<OsString>) {
    let _set = WORDS.set(words);
}

/// The words of the command: those it was called with, or the command line's.
pub(crate) fn words() -> Vec<OsString> {
    let of_line = || {
        let words = WORDS.get().cloned();
        words.unwrap_or_else(|| env::args_os().collect())
    };
    in_call(|call| call.words.clone()).unwrap_or_else(of_line)
}

/// A program that runs this command line.
pub(crate) fn program() -> io::Result<PathBuf> {
    match WORDS.get().and_then(|words| words.first()) {
        Some(program) => Ok(program.into()),
        None => env::current_exe(),
    }
}

/// True if the switch is off in this call, whatever is configured.
pub(crate) fn is_off(switch: &str) -> bool {
    in_call(|call| call.off.iter().any(|off| off == switch)).unwrap_or_default()
}

/// A [`Stop`] that is set, and `act` called, when the command is cancelled; none in a process of its own.
pub(crate) fn stop_and(act: impl Fn() + Send + Sync + 'static) -> Option<io::Result<Stop>> {
    // Not within the borrow: `act` may be called at once.
    let cancel = in_call(|call| call.cancel.clone())?;
    let stop = match Stop::new() {
        Ok(stop) => stop,
        Err(e) => return Some(Err(e)),
    };
    let asked = stop.clone();
    let ends = cancel.and(move || {
        asked.set();
        act();
    });
    in_call(|call| call.ends.push(ends));
    Some(Ok(stop))
}

/// Calls `act` when the command is cancelled, as long as the result lives; nothing in a process of
/// its own.
pub(crate) fn when_cancelled(act: impl Fn() + Send + Sync + 'static) -> Option<Ends> {
    let cancel = in_call(|call| call.cancel.clone())?;
    Some(cancel.and(act))
}

/// True if the command was cancelled.
pub(crate) fn is_cancelled() -> bool {
    in_call(|call| call.cancel.is_cancelled()).unwrap_or_default()
}

/// Receiver of events.
pub(crate) fn teller() -> Option<Tell> {
    in_call(|call| Arc::clone(&call.tell))
}

/// Hands an event over; false if nobody wants it.
pub(crate) fn tell(event: &Value) -> bool {
    teller().is_some_and(|tell| {
        tell(event);
        true
    })
}

/// Takes what would be written on stderr; false in a process of its own.
pub(crate) fn said(text: &str) -> bool {
    is_inside() && tell(&json!({ "type": "message", "text": text }))
}

/// Takes the object that would be printed; false in a process of its own.
pub(crate) fn printed(object: Value) -> bool {
    in_call(|call| call.object = Some(object)).is_some()
}

/// Takes what would be written on stdout; false in a process of its own.
pub(crate) fn wrote(bytes: &[u8]) -> bool {
    in_call(|call| call.text.extend_from_slice(bytes)).is_some()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    fn run_words(words: &[&str]) -> Result<Value, Failed> {
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        run(&words, &Cancel::new(), Arc::new(|_| {}))
    }

    #[test]
    fn a_command_gives_what_it_would_print() {
        let object = run_words(&["protocols", "--json"]).unwrap();
        assert_eq!(object["ok"], true, "{object}");
        assert!(!is_inside());
    }

    #[test]
    fn what_is_wrong_has_its_code() {
        for (words, code, text) in [
            (&["cp", "a"][..], 2, "destination"),
            (&["cp", "--nosuch", "a", "b"], 2, "--nosuch"),
            (&["cp", "-", "h::s/x"], 2, "standard input"),
            (
                &["cp", "--files-from=-", "a", "h::s/x"],
                2,
                "standard input",
            ),
            (&["cp", "--nosuch=false", "a", "b"], 2, "--nosuch"),
            (&["wan"], 2, "cannot be run inside"),
            (&[], 2, "cannot be run inside"),
            (&["cp", "/nonexistent", "h::s/x"], 3, "/nonexistent"),
        ] {
            let failed = run_words(words).unwrap_err();
            assert_eq!(failed.exit.code, code, "{words:?}: {}", failed.text);
            assert!(failed.text.contains(text), "{words:?}: {}", failed.text);
        }
    }

    #[test]
    fn switches_may_be_off() {
        let of = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(Into::into).collect();
            let (kept, off) = without_those_off(&words);
            (kept.len() - 1, off.join(" "))
        };
        assert_eq!(
            of(&["cp", "--delete=false", "a", "b"]),
            (3, "delete".into())
        );
        assert_eq!(of(&["bench", "serve", "--json=false"]), (2, "json".into()));
        assert_eq!(of(&["cp", "--backup=false", "--", "--delete=false"]).0, 4);
    }

    #[test]
    fn what_was_cancelled_before_ends_at_once_and_what_is_over_is_left_alone() {
        let cancel = Cancel::new();
        let count = Arc::new(AtomicU32::new(0));
        let counted = || {
            let count = Arc::clone(&count);
            move || {
                count.fetch_add(1, SeqCst);
            }
        };
        let over = cancel.and(counted());
        let runs = cancel.and(counted());
        drop(over);
        cancel.cancel();
        assert_eq!(count.load(SeqCst), 1);
        let late = cancel.and(counted());
        assert_eq!(count.load(SeqCst), 2);
        drop((runs, late));
        assert!(cancel.is_cancelled());
    }
}

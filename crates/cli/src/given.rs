//! Flags that were typed or configured, kept as text beside what they mean: another command line is made of them, and
//! some are refused by name.

use std::{ffi::OsString, marker::PhantomData};

use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches, parser::ValueSource};

/// Flags of the arguments `A`, in the order of the definition.
#[derive(Debug)]
pub(crate) struct Given<A> {
    flags: Vec<Flag>,
    of: PhantomData<A>,
}

#[derive(Debug)]
struct Flag {
    /// Name without dashes.
    name: String,
    /// None of a switch.
    values: Vec<OsString>,
    /// True if it was typed, not configured.
    typed: bool,
    /// True of the flag's own default.
    usual: bool,
}

impl<A> Given<A> {
    fn unusual(&self) -> impl Iterator<Item = &Flag> {
        self.flags.iter().filter(|flag| !flag.usual)
    }

    /// The first flag that is `wanted` and differs from its own default, with its dashes.
    pub(crate) fn first(&self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let first = self.unusual().find(|flag| wanted(&flag.name));
        first.map(|flag| format!("--{}", flag.name))
    }

    /// The first flag that was typed and is `wanted`, with its dashes.
    pub(crate) fn first_typed(&self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let mut typed = self.flags.iter().filter(|flag| flag.typed);
        let first = typed.find(|flag| wanted(&flag.name));
        first.map(|flag| format!("--{}", flag.name))
    }

    /// The flags that are `wanted` as they would be typed, but those that have their own defaults. Values may look like flags.
    pub(crate) fn words(&self, wanted: impl Fn(&str) -> bool) -> Vec<OsString> {
        let wanted = self.unusual().filter(|flag| wanted(&flag.name));
        wanted
            .flat_map(|flag| words(&flag.name, &flag.values))
            .collect()
    }
}

/// True if the arguments `A` have a flag of this name.
pub(crate) fn has<A: Args>(flag: &str) -> bool {
    let definition = A::augment_args(Command::new(""));
    definition
        .get_arguments()
        .any(|arg| arg.get_long() == Some(flag))
}

/// A flag with each of its values, or alone.
pub(crate) fn words(flag: &str, values: &[OsString]) -> Vec<OsString> {
    if values.is_empty() {
        return vec![format!("--{flag}").into()];
    }
    let word = |value| {
        let mut word = OsString::from(format!("--{flag}="));
        word.push(value);
        word
    };
    values.iter().map(word).collect()
}

impl<A: Args> FromArgMatches for Given<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let definition = A::augment_args(Command::new(""));
        let given = definition.get_arguments().filter_map(|arg| {
            let (name, id) = (arg.get_long()?.to_owned(), arg.get_id().as_str());
            let values: Vec<OsString> = match arg.get_action() {
                ArgAction::SetTrue if matches.get_flag(id) => Vec::new(),
                ArgAction::SetTrue => return None,
                _ => matches.get_raw(id)?.map(Into::into).collect(),
            };
            let typed = matches.value_source(id) == Some(ValueSource::CommandLine);
            Some(Flag {
                name,
                usual: !values.is_empty() && values == arg.get_default_values(),
                values,
                typed,
            })
        });
        Ok(Self {
            flags: given.collect(),
            of: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// No arguments of its own.
impl<A: Args> Args for Given<A> {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

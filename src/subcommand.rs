//! A subcommand as a row of a table: its description and its function. Also options such as `--explain`, which trace nothing.
//!
//! The help, the manual page, the completion and the refusal of options read the rows. The tables are in `commands`. Only `main`
//! names them and passes them on, since functions in them, such as that of `help`, need the table.

use crate::Failure;
use crate::cli::Cli;
use crate::console::Messages;
use clap::{ArgMatches, Command, FromArgMatches};

/// A subcommand.
pub struct Subcommand {
    /// Name on the command line.
    pub name: &'static str,
    /// Its line in `cudatrace -h`: notation and purpose. Without one, the last line of the list has the name.
    pub summary: Option<(&'static str, &'static str)>,
    /// Purpose, the first line of its help, and its text in the manual page.
    pub about: &'static str,
    /// Notation of its command line.
    pub usage: &'static str,
    /// Examples and notes at the end of its help.
    pub examples: &'static str,
    /// Largest number of words after it.
    pub most_words: usize,
    /// Ids of the common options that it accepts, in addition to those that every subcommand accepts.
    pub options: &'static [&'static str],
    /// Ids of common options that it accepts without a line in its help.
    pub hidden_options: &'static [&'static str],
    /// Adds the options that only it has: `RecordOptions::augment_args`.
    pub own_options: fn(Command) -> Command,
    /// Candidates of the completion for a word after it.
    pub complete: fn(&str) -> Vec<String>,
    /// Function of the subcommand, which returns the exit status.
    pub run: fn(&Invocation) -> Result<u8, Failure>,
}

impl Subcommand {
    /// A subcommand that accepts neither words nor options. Rows name what they have in addition.
    pub const fn new(
        name: &'static str,
        about: &'static str,
        usage: &'static str,
        run: fn(&Invocation) -> Result<u8, Failure>,
    ) -> Subcommand {
        Subcommand {
            name,
            summary: None,
            about,
            usage,
            examples: "",
            most_words: 0,
            options: &[],
            hidden_options: &[],
            own_options: |command| command,
            complete: |_| Vec::new(),
            run,
        }
    }
}

/// All subcommands, in the order of `cudatrace -h`.
#[derive(Copy, Clone)]
pub struct Subcommands(pub &'static [Subcommand]);

impl Subcommands {
    /// The subcommand of this name.
    pub fn find(self, name: &str) -> Option<&'static Subcommand> {
        self.0.iter().find(|subcommand| subcommand.name == name)
    }

    /// All subcommands, sorted by name.
    pub fn sorted(self) -> Vec<&'static Subcommand> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|subcommand| subcommand.name);
        all
    }

    /// Their names, sorted.
    pub fn names(self) -> Vec<&'static str> {
        self.sorted().iter().map(|subcommand| subcommand.name).collect()
    }
}

/// An option that prints something in place of a trace: `--explain`.
pub struct Listing {
    /// Id of the option.
    pub option: &'static str,
    /// Largest number of words.
    pub most_words: usize,
    /// Ids of the options that may be combined with it.
    pub options: &'static [&'static str],
    /// Whether the command line requests it.
    pub is_requested: fn(&Cli) -> bool,
    /// Function of the option, which returns the exit status.
    pub run: fn(&Invocation) -> Result<u8, Failure>,
}

/// A parsed command line with everything that carries it out.
pub struct Invocation<'a> {
    /// The options that all command lines have.
    pub cli: &'a Cli,
    /// The options as clap has parsed them.
    pub matches: &'a ArgMatches,
    /// The subcommand, if the first word is one.
    pub subcommand: Option<&'static Subcommand>,
    /// All subcommands.
    pub subcommands: Subcommands,
    /// Printer of messages.
    pub messages: &'a Messages,
}

impl Invocation<'_> {
    /// The words after the subcommand.
    pub fn words(&self) -> &[String] {
        self.cli.words.get(1..).unwrap_or_default()
    }

    /// The options that only this subcommand has.
    pub fn own_options<O: FromArgMatches>(&self) -> Result<O, Failure> {
        O::from_arg_matches(self.matches).map_err(Failure::wrong)
    }
}

//! Refuses words and options without effect: ignoring them would change the meaning of the command line.

use super::definition::{accepted, command, is_without_effect};
use super::plain;
use crate::bundled;
use crate::cli::Cli;
use crate::subcommand::{Listing, Subcommand};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use lang::expand::options::{OptionValue, instead_of_limit};

/// Notation of a command to trace.
const COMMAND: &str = "-- COMMAND";

/// Refuses options and words that a subcommand does not accept.
pub fn of_subcommand(
    subcommand: &Subcommand,
    given: &[OptionValue],
    matches: &ArgMatches,
    command: &Command,
) -> Result<(), clap::Error> {
    let name = subcommand.name;
    let accepted = accepted(subcommand, command);
    let other = others(command, matches, |id| accepted.contains(id)).next();
    let unknown = given.first().map(|given| format!("--{}", given.name));
    if let Some(wrong) = unknown.or_else(|| other.map(written)) {
        let longs =
            command.get_arguments().filter(|arg| accepted.contains(arg.get_id())).filter_map(Arg::get_long);
        let long = wrong.trim_start_matches('-');
        let near = lang::diagnostics::suggest::similar(long, longs);
        let way_out = match (instead_of_limit(long), near.first()) {
            (Some(instead), _) => format!("{instead}; "),
            (None, Some(near)) => format!("did you mean `--{near}`? "),
            (None, None) => String::new(),
        };
        let message = match wrong == COMMAND {
            true => format!("`{name}` takes no `{COMMAND}`: `cudatrace {name} --help` shows what it takes"),
            false => {
                format!(
                    "`{name}` has no option `{wrong}`: {way_out}`cudatrace {name} --help` lists its options"
                )
            }
        };
        return Err(plain(ErrorKind::UnknownArgument, &message));
    }
    let words = matches.get_many::<String>("words").into_iter().flatten();
    match words.skip(1).nth(subcommand.most_words) {
        Some(word) => Err(superfluous(name, word)),
        None => Ok(()),
    }
}

fn superfluous(name: &str, word: &str) -> clap::Error {
    let way_out = match bundled::find(word) {
        Some(_) if name == "repl" => format!("`cudatrace -i {word}` runs the script with a prompt"),
        Some(_) => format!("`cudatrace help {word}` shows help on the script"),
        None => format!("`cudatrace {name} --help` shows what it takes"),
    };
    plain(ErrorKind::UnknownArgument, &format!("unexpected argument `{word}` after `{name}`: {way_out}"))
}

/// Options that are always accepted: they do not change what is printed, and command lines for bpftrace have them.
const WITH_ALL: &[&str] = &[
    "words",
    "color",
    "quiet",
    "verbose",
    "no_warnings",
    "allow_unsafe",
    "buffering",
    "read_errors",
    "no_feature",
];

/// Refuses options that cannot be combined with `-l`, `--explain` and so on, and superfluous words.
pub fn of_listing(cli: &Cli, matches: &ArgMatches, listings: &[Listing]) -> Result<(), clap::Error> {
    let command = command(None);
    let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let Some(listing) = listings.iter().find(|listing| is_given(listing.option)) else { return Ok(()) };
    let takes = |id: &clap::Id| {
        let name = id.as_str();
        name == listing.option
            || listing.options.contains(&name)
            || WITH_ALL.contains(&name)
            || is_without_effect(id)
    };
    let name = command.get_arguments().find(|arg| arg.get_id() == listing.option).map(written);
    let name = name.unwrap_or_default();
    if let Some(other) = others(&command, matches, takes).next() {
        let message = format!("`{name}` traces nothing, and does not go with `{}`", written(other));
        return Err(plain(ErrorKind::ArgumentConflict, &message));
    }
    match cli.words.get(listing.most_words) {
        Some(word) => Err(plain(
            ErrorKind::UnknownArgument,
            &format!(
                "unexpected argument `{word}`: `{name}` takes {}",
                match listing.most_words {
                    0 => "no further words".into(),
                    most => format!("{most} word"),
                }
            ),
        )),
        None => Ok(()),
    }
}

/// The options of the command line that are not accepted.
fn others<'c>(
    command: &'c Command,
    matches: &'c ArgMatches,
    takes: impl Fn(&clap::Id) -> bool + 'c,
) -> impl Iterator<Item = &'c Arg> {
    let is_given = |arg: &&Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    command.get_arguments().filter(is_given).filter(move |arg| !takes(arg.get_id()))
}

/// `-p`, `--wait`, or [`COMMAND`].
fn written(arg: &Arg) -> String {
    match (arg.get_short(), arg.get_long()) {
        (Some(short), _) => format!("-{short}"),
        (None, Some(long)) => format!("--{long}"),
        (None, None) => COMMAND.into(),
    }
}

/// Refuses options of tracing without another option that they require.
pub fn idle(cli: &Cli) -> Result<(), clap::Error> {
    let (has_script, has_command) = (cli.has_script(), cli.starts_command());
    // At the prompt, a command and the traced processes can be given later.
    let is_trace = has_script && !cli.interactive;
    let exports = !cli.export.is_empty();
    let (command, export) = ("a command: `-- COMMAND`", "an export: `--export KIND=DEST`");
    let needs = [
        ("--user", is_trace && cli.user.is_some() && !has_command, command),
        (
            "--no-children",
            is_trace && cli.no_children && !has_command && cli.pids.is_empty(),
            "-p or a command",
        ),
        ("--rotate", cli.rotate.is_some() && !exports, export),
        ("--trace-per", cli.trace_per.is_some() && !exports, "an export: `--export otlp=URL`"),
        ("--fail-on-loss", cli.fail_on_loss && !exports, export),
        ("--check", cli.check && !has_script, SCRIPT),
        ("--dry-run", cli.dry_run && !has_script, SCRIPT),
        ("--emit", cli.emit.is_some() && !has_script, SCRIPT),
        ("--test", cli.test.is_some() && !has_script, SCRIPT),
        ("--bench", cli.bench.is_some() && !has_script, SCRIPT),
    ];
    match needs.iter().find(|(_, is_idle, _)| *is_idle) {
        Some((option, _, needed)) => {
            Err(plain(ErrorKind::MissingRequiredArgument, &format!("`{option}` needs {needed}")))
        }
        None => Ok(()),
    }
}

const SCRIPT: &str = "a script: `-e 'PROGRAM'`, a file, or one of `cudatrace scripts`";

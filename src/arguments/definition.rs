//! The options of cudatrace for clap: the common ones, those of bpftrace without effect, and those of one subcommand.

use crate::cli::Cli;
use crate::subcommand::{Subcommand, Subcommands};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, Id};

/// Command lines to begin with, at the end of `cudatrace -h`.
const BEGINNINGS: &str = "\
Where to begin:
  cudatrace -- python3 train.py                what does it do with CUDA?
  cudatrace launchgap sync -p 4242             why is it slow? then Ctrl-C
  cudatrace memleak --interval=10 -p 4242      what is not freed?
  cudatrace -e 'uprobe:libcuda:cuMem* { @[func] = count() }' -p 4242
Without root, probes run in the traced program itself, as with --in-process.

More: `cudatrace --help`; of a script or subcommand: `cudatrace NAME --help`.";

/// Command lines with explanations, at the end of `cudatrace --help`.
const EXAMPLES: &str = "\
Examples:
  cudatrace -- python3 train.py
      what a program does with CUDA: the script `summary`
  cudatrace launchgap sync -p 4242
      why a running process is slow: two scripts in one trace, until Ctrl-C
  cudatrace -e 'uprobe:libcuda:cuMem* { @[func] = count() }'
      count the calls of each memory function, of every process, until Ctrl-C
  cudatrace -e 'uretprobe:libcuda:cuMemAlloc { printf(\"%d bytes: %s\\n\", args.bytesize, retval) }' -- python3 train.py
      sizes and results of a program's allocations
  cudatrace record -- python3 train.py, then cudatrace report, or cudatrace report --html trace.html
      every call of a program, and a page to look through them
  cudatrace
      a prompt: clauses are attached as they are typed, `:help` lists the commands
  cudatrace -l alloc
      attach points by a part of their names; with -v the parameters of functions
  cudatrace help cuLaunchKernel
      help on a function, a built-in, a probe or a constant";

const EXIT_STATUS: &str = "\
Exit status: that of exit(n); else with -c or -- the program's own; 1 for a wrong script, 255 when loading fails,
3 instead of 0 when results are incomplete: a process was not traced, returns were ignored, or memory was damaged.";

/// An option of bpftrace without effect here.
pub struct WithoutEffect {
    name: &'static str,
    short: Option<char>,
    valued: bool,
    why: &'static str,
}

const fn without_effect(name: &'static str, valued: bool, why: &'static str) -> WithoutEffect {
    WithoutEffect { name, short: None, valued, why }
}

const HEADERS: &str = "headers are not read; definitions of CUDA's and the kernel's headers are built in";

/// Options that are accepted with a note, so that command lines for bpftrace work.
pub const WITHOUT_EFFECT: &[WithoutEffect] = &[
    WithoutEffect { name: "I", short: Some('I'), valued: true, why: HEADERS },
    without_effect("include", true, HEADERS),
    WithoutEffect {
        name: "btf",
        short: Some('b'),
        valued: false,
        why: "the kernel's BTF is read where a script needs it",
    },
    without_effect("dwarf-pid", true, "stacks of all processes are walked by their unwind tables"),
    without_effect("emit-llvm", true, "there is no LLVM; `-d ir` and `-d bpf` show what a script becomes"),
    without_effect("traceable-functions", true, "functions of the kernel are not probed"),
    without_effect("usdt-file-activation", false, "markers are always switched on through their files"),
    without_effect("verify-llvm-ir", false, "there is no LLVM; the compiler checks its own stages"),
];

impl WithoutEffect {
    fn arg(&self) -> Arg {
        let action = if self.valued { ArgAction::Append } else { ArgAction::Count };
        let arg = Arg::new(self.name).short(self.short).hide(true).action(action);
        if self.name.len() > 1 { arg.long(self.name) } else { arg }
    }

    /// The note, if the command line has the option.
    pub fn note(&self, matches: &ArgMatches) -> Option<String> {
        let given = matches.value_source(self.name) == Some(ValueSource::CommandLine);
        let dashes = if self.name.len() > 1 { "--" } else { "-" };
        given.then(|| format!("`{dashes}{}` has no effect: {}", self.name, self.why))
    }
}

/// Options that every subcommand accepts.
const OF_ALL: [&str; 5] = ["words", "color", "quiet", "verbose", "no_warnings"];

/// Options of cudatrace, including those of a subcommand.
pub fn command(subcommand: Option<&Subcommand>) -> Command {
    let common = Cli::command().args(WITHOUT_EFFECT.iter().map(WithoutEffect::arg));
    let mut command = match subcommand {
        Some(subcommand) => (subcommand.own_options)(common),
        None => common,
    };
    command.build();
    command
}

/// Adds examples and the list of subcommands to the end of the help.
pub fn with_subcommands(command: Command, subcommands: Subcommands) -> Command {
    let names = subcommands.names().join(", ");
    let names = format!("Subcommands: {names}; `cudatrace help NAME` is about one.");
    command
        .after_help(format!("{}\n{BEGINNINGS}", list(subcommands)))
        .after_long_help(format!("{EXAMPLES}\n\n{names}\n\n{EXIT_STATUS}"))
}

/// The subcommands with their summaries. The last line has the names of those without one.
fn list(subcommands: Subcommands) -> String {
    let summaries = subcommands.0.iter().filter_map(|subcommand| subcommand.summary);
    let mut rows: Vec<(String, String)> =
        summaries.map(|(notation, purpose)| (notation.into(), purpose.into())).collect();
    let others = subcommands.0.iter().filter(|subcommand| subcommand.summary.is_none());
    let others: Vec<&str> = others.map(|subcommand| subcommand.name).collect();
    if let Some(first) = others.first() {
        rows.push((others.join(", "), format!("see `cudatrace help {first}` and so on")));
    }
    let width = rows.iter().map(|(notation, _)| notation.len()).max().unwrap_or(0);
    let line = |(notation, purpose): &(String, String)| format!("  {notation:<width$}  {purpose}\n");
    format!("Subcommands:\n{}", rows.iter().map(line).collect::<String>())
}

/// Whether an option is one of bpftrace without effect here.
pub fn is_without_effect(id: &Id) -> bool {
    WITHOUT_EFFECT.iter().any(|option| id == option.name)
}

/// The options that a subcommand accepts: its own, and some of the common ones.
pub fn accepted(subcommand: &Subcommand, command: &Command) -> Vec<Id> {
    let common = self::command(None);
    let is_accepted = |id: &Id| {
        let lists = [&OF_ALL[..], subcommand.options, subcommand.hidden_options];
        !has(&common, id) || lists.iter().any(|list| list.contains(&id.as_str()))
    };
    command.get_arguments().map(|arg| arg.get_id().clone()).filter(is_accepted).collect()
}

/// The help of a subcommand: its own options, and the common ones that it accepts.
pub fn help(subcommand: &Subcommand) -> Command {
    let common = command(None);
    let is_shown = |id: &Id| !has(&common, id) || subcommand.options.contains(&id.as_str()) || id == "help";
    command(Some(subcommand))
        .about(subcommand.about)
        .override_usage(subcommand.usage)
        .after_help(subcommand.examples)
        .after_long_help(subcommand.examples)
        .mut_args(|arg| if is_shown(arg.get_id()) { arg.hide_short_help(false) } else { arg.hide(true) })
}

fn has(command: &Command, id: &Id) -> bool {
    command.get_arguments().any(|arg| arg.get_id() == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::SUBCOMMANDS;

    #[test]
    fn a_subcommand_has_the_options_that_it_takes() {
        let text = |name| help(SUBCOMMANDS.find(name).unwrap()).render_help().to_string();
        let record = text("record");
        for option in ["--kernel", "--out", "--pid", "--export", "--rotate", "[COMMAND]..."] {
            assert!(record.contains(option), "{option}: {record}");
        }
        assert!(!record.contains("--execute") && !record.contains("[SCRIPT]"), "{record}");
        let report = text("report");
        assert!(
            report.contains("Usage: cudatrace report [FILE...]") && !report.contains("--pid"),
            "{report}"
        );
    }
}

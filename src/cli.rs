//! Definition of the command line without the options of single subcommands, and classification of its words.

use crate::bundled;
use crate::console::{Color, MessageKinds, Messages};
use crate::export::file::FileOwner;
use crate::export::kinds;
use clap::{ArgAction, Parser, ValueEnum};
use lang::expand::options::OptionValue;
use std::ffi::OsString;
use std::path::PathBuf;

const USAGE: &str = "\
cudatrace SCRIPT... [-p PID | -- COMMAND...]    scripts by name, or files
       cudatrace -e PROGRAM [-p PID | -- COMMAND...]   the script itself
       cudatrace [-p PID | -- COMMAND...]              the script `summary`; without a target, a prompt
       cudatrace SUBCOMMAND ...";

/// A scriptable tracer for CUDA.
#[derive(Debug, Parser)]
#[command(name = "cudatrace", disable_version_flag = true, override_usage = USAGE)]
pub struct Cli {
    /// Scripts by name, files of scripts, or `-` for standard input; then positional parameters, and the scripts' own options
    /// (`--name=value`; `cudatrace SCRIPT --help` lists them)
    #[arg(value_name = "SCRIPT", hide_short_help = true)]
    pub words: Vec<String>,

    /// The script itself
    #[arg(short = 'e', long = "execute", value_name = "PROGRAM")]
    pub programs: Vec<String>,

    /// The last one of -e: it alone runs, as in bpftrace.
    #[arg(skip)]
    pub execute: Option<String>,

    /// A prompt after a script: type clauses and commands while it runs
    #[arg(short = 'i', long)]
    pub interactive: bool,

    /// Trace this command (one string, quoted as for a shell)
    #[arg(
        short = 'c',
        long = "command",
        alias = "cmd",
        value_name = "COMMAND",
        conflicts_with = "argv",
        overrides_with = "command",
        hide_short_help = true
    )]
    pub command: Option<String>,

    /// Trace this process and its children; may be given several times
    ///
    /// The trace ends with the last of them, or with the command if there is one.
    #[arg(short = 'p', long = "pid", value_name = "PID", value_parser = parse_pid, allow_negative_numbers = true)]
    pub pids: Vec<u32>,

    /// Trace only the processes of -p and the command, not their children
    #[arg(long, hide_short_help = true)]
    pub no_children: bool,

    /// Run the script in the traced processes: fast probes, and no rights are needed
    ///
    /// Works for a command and for -p on x86-64. The functions are patched, with a jump to generated code. A script that needs the
    /// kernel (its stacks, tracepoints, timers of samples) runs there instead, if that is permitted. Where the kernel lets this user load
    /// no programs, scripts run in the processes without this option, too.
    #[arg(long)]
    pub in_process: bool,

    /// Run the script in the kernel, or say why that cannot be
    #[arg(long, hide_short_help = true, conflicts_with = "in_process")]
    pub in_kernel: bool,

    /// The user who has called sudo.
    #[arg(skip)]
    pub sudoer: Option<String>,

    /// Variables that the command has in addition to those of this process.
    #[arg(skip)]
    pub environment: Vec<(OsString, OsString)>,

    /// Why scripts run in the traced processes although nobody has asked for it.
    #[arg(skip)]
    pub why_in_process: Option<String>,

    /// Wait for libraries that are not loaded yet (default with -p or a command)
    #[arg(long, hide_short_help = true)]
    pub wait: bool,

    /// Trace this command
    #[arg(last = true, value_name = "COMMAND", hide_short_help = true)]
    pub argv: Vec<OsString>,

    /// List attach points: `alloc`, `uprobe:libcuda:cuMem*`; with -v their parameters
    ///
    /// Followed by a part of a name or a pattern, which ignores case if it is in lower case, or by a script. With -e the script's
    /// probes are listed, with -p those of the processes.
    #[arg(short = 'l', long = "list")]
    pub list: bool,

    /// Output format
    #[arg(
        short = 'f',
        long = "format",
        value_name = "FORMAT",
        default_value = "text",
        overrides_with = "format"
    )]
    pub format: Format,

    /// Write the output to a file
    #[arg(short = 'o', long = "output", value_name = "FILE", overrides_with = "output")]
    pub output: Option<PathBuf>,

    /// Export events and maps: jsonl=FILE, otlp=URL ...; `--export help` lists the kinds
    ///
    /// May be given several times.
    #[arg(long, value_name = "KIND=DEST", value_parser = kinds::parse)]
    pub export: Vec<kinds::ExportRequest>,

    /// Begin another file after this size, for exports to files: 512MiB, 1GiB
    #[arg(long, value_name = "SIZE", value_parser = kinds::rotate, hide_short_help = true)]
    pub rotate: Option<u64>,

    /// When `--export otlp` begins another trace for a process: after this time (10s, 500ms), at an `event("NAME")` of the script
    /// (event:NAME), or never (process)
    #[arg(long, value_name = "TIME|event:NAME|process", value_parser = crate::export::otlp::traces::parse, hide_short_help = true)]
    pub trace_per: Option<report::export::otlp::traces::Per>,

    /// Exit with status 3 instead of 0 if an export does not have all records
    #[arg(long, hide_short_help = true)]
    pub fail_on_loss: bool,

    /// Print no messages except errors
    #[arg(short = 'q', long, overrides_with = "quiet")]
    pub quiet: bool,

    /// Print no warnings about the script, and none of its warnf()
    #[arg(long, hide_short_help = true)]
    pub no_warnings: bool,

    /// Show which files are used and why, and how long each step takes
    #[arg(short = 'v', long, overrides_with = "verbose")]
    pub verbose: bool,

    /// Print the version
    #[arg(short = 'V', long)]
    pub version: bool,

    /// Print a stage of the compiler and continue; may be given several times
    #[arg(short = 'd', long = "debug", value_name = "STAGE", value_delimiter = ',', hide_short_help = true)]
    pub debug: Vec<Stage>,

    /// Explain the code of a message, such as E0105; `list` shows all codes
    #[arg(long, value_name = "CODE", hide_short_help = true)]
    pub explain: Option<String>,

    /// Stop before loading, needs no rights; with fmt: only list unformatted files
    #[arg(long, hide_short_help = true, conflicts_with = "interactive")]
    pub check: bool,

    /// Run only the `test:NAME` probes of the script, or those that match a pattern
    #[arg(long, value_name = "NAMES", num_args = 0..=1, require_equals = true, default_missing_value = "*", hide_short_help = true,
          conflicts_with_all = ["bench", "pids", "command", "argv", "interactive", "export"])]
    pub test: Option<String>,

    /// Measure only the `bench:NAME` probes of the script, or those that match a pattern
    #[arg(long, value_name = "NAMES", num_args = 0..=1, require_equals = true, default_missing_value = "*", hide_short_help = true,
          conflicts_with_all = ["pids", "command", "argv", "interactive", "export"])]
    pub bench: Option<String>,

    /// Attach, and stop before anything runs
    #[arg(long, hide_short_help = true, conflicts_with = "interactive")]
    pub dry_run: bool,

    /// Write the BPF object to a file and stop; with several scripts one file each, x.NAME.o
    #[arg(long, alias = "emit-elf", value_name = "FILE", hide_short_help = true)]
    pub emit: Option<PathBuf>,

    /// As bpftrace's: output is always written as soon as nothing more waits to be printed
    #[arg(short = 'B', value_name = "MODE", value_parser = ["line", "full", "none"], hide = true)]
    pub buffering: Option<String>,

    /// As bpftrace's: reads that fail are always reported
    #[arg(short = 'k', long = "warnings", action = ArgAction::Count, hide = true)]
    pub read_errors: u8,

    /// As bpftrace's: `--test`, `--bench` or `--fmt` by another name
    #[arg(long, value_name = "MODE", hide = true)]
    pub mode: Option<BpftraceMode>,

    /// As bpftrace's: print the script formatted
    #[arg(long = "fmt", hide = true)]
    pub print_formatted: bool,

    /// Attach only probes whose name matches this regular expression
    #[arg(long, value_name = "REGEX", value_parser = parse_regex)]
    pub probe_filter: Option<String>,

    /// As bpftrace's: the same as `doctor`
    #[arg(long, hide = true)]
    pub info: bool,

    /// Allow functions that change the traced system
    #[arg(long = "unsafe", hide_short_help = true)]
    pub allow_unsafe: bool,

    /// Run the command as this user; under sudo it runs as you, with your environment, unless this is `root`
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,

    /// Use this file for a library name: `--lib libcuda=/opt/driver/libcuda.so.1`
    #[arg(long = "lib", value_name = "NAME=PATH", value_parser = parse_lib, hide_short_help = true)]
    pub libs: Vec<(String, PathBuf)>,

    /// Search debug information of stripped files in this folder too
    #[arg(long, value_name = "FOLDER", hide_short_help = true)]
    pub debuginfo: Vec<PathBuf>,

    /// Disable a kernel feature: uprobe_multi, uprobe_session, bpf_loop, percpu_lookup, private_stack (for tests)
    #[arg(long, value_name = "FEATURE", value_delimiter = ',', action = ArgAction::Append, hide_short_help = true)]
    pub no_feature: Vec<String>,

    /// Colour messages
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_short_help = true)]
    pub color: Color,

    /// Names of the subcommands, which no script on the command line has.
    #[arg(skip)]
    pub subcommands: Vec<&'static str>,

    /// Notes on options of bpftrace without effect here.
    #[arg(skip)]
    pub without_effect: Vec<String>,

    /// Warnings of files of options that do not exist.
    #[arg(skip)]
    pub missing_files: Vec<String>,

    /// Options of the script, separated from the command line by `arguments`.
    #[arg(skip)]
    pub given: Vec<OptionValue>,

    /// Options of the script without a value, each with the index of the word that follows: `--top 3`.
    #[arg(skip)]
    pub loose: Vec<(usize, usize)>,

    /// True if `--help` follows a script, and requests the script's help.
    #[arg(skip)]
    pub script_help: bool,
}

impl Cli {
    /// The printer of messages that the command line specifies.
    pub fn messages(&self) -> Messages {
        let Cli { color, quiet, no_warnings, verbose, .. } = *self;
        Messages::new(
            color,
            MessageKinds { notes: !quiet, warnings: !quiet && !no_warnings, details: verbose },
        )
    }

    /// Whether there is a script, by its name or its text.
    pub fn has_script(&self) -> bool {
        self.execute.is_some() || !self.words.is_empty()
    }

    /// Whether processes to trace are named, or a command.
    pub fn has_target(&self) -> bool {
        !self.pids.is_empty() || self.starts_command()
    }

    /// Whether there is a command to start.
    pub fn starts_command(&self) -> bool {
        self.command.is_some() || !self.argv.is_empty()
    }

    /// Selects the last of several programs, and records a note that the others do not run.
    pub fn choose_program(&mut self) {
        self.execute = self.programs.pop();
        if !self.programs.is_empty() {
            self.without_effect.push(
                "of several `-e` only the last one runs, as in bpftrace: put the others into files, `cudatrace a.ct b.ct` runs all"
                    .into(),
            );
        }
    }

    /// Classifies a word as a subcommand, an embedded script, or a file; a word that looks like a path is always a
    /// file.
    pub fn classify<'w>(&self, word: &'w str) -> Word<'w> {
        if word == "-" || word.contains('/') || word.ends_with(".ct") || word.ends_with(".bt") {
            return Word::File(word);
        }
        match bundled::find(word) {
            _ if self.subcommands.contains(&word) => Word::Subcommand,
            Some(_) => Word::Embedded(word),
            None => Word::File(word),
        }
    }

    /// Options for all exports.
    pub fn export_options(&self) -> kinds::ExportOptions {
        let owner = self.user.as_deref().or(self.sudoer.as_deref()).and_then(FileOwner::named);
        kinds::ExportOptions { rotate: self.rotate, trace_per: self.trace_per.clone(), owner }
    }

    /// The clauses of a script that run.
    pub fn run(&self) -> lang::Run {
        use lang::hir::TestKind;
        match (&self.test, &self.bench) {
            (Some(names), _) => lang::Run::Tests { kind: TestKind::Test, names: names.clone() },
            (None, Some(names)) => lang::Run::Tests { kind: TestKind::Bench, names: names.clone() },
            (None, None) if self.check => lang::Run::Everything,
            (None, None) => lang::Run::Traces,
        }
    }
}

/// Formats of `-f`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people, as bpftrace prints.
    Text,
    /// One JSON object per line.
    Json,
}

/// Modes of bpftrace's `--mode`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum BpftraceMode {
    /// `--test`
    Test,
    /// `--bench`
    Bench,
    /// `--fmt`
    Format,
}

/// Stages that `-d` prints.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    /// The script as parsed.
    #[value(alias = "parse")]
    Ast,
    /// Resolved and typed.
    #[value(alias = "types")]
    Hir,
    /// As lowered.
    #[value(alias = "codegen")]
    Ir,
    /// After optimisation.
    #[value(alias = "codegen-opt")]
    Opt,
    /// Instructions, with the script's lines and their number.
    #[value(alias = "dis")]
    Bpf,
    /// The description of the object for the reader.
    Manifest,
    /// All of these.
    All,
    /// Output of libbpf and the verifier in bpftrace: here they print when they refuse a program.
    #[value(hide = true, alias = "libbpf")]
    Verifier,
}

/// Meaning of a word of the command line.
#[derive(Debug, PartialEq, Eq)]
pub enum Word<'a> {
    /// `doctor`
    Subcommand,
    /// An embedded script.
    Embedded(&'a str),
    /// A script file; `-` is standard input.
    File(&'a str),
}

fn parse_pid(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|&pid| pid > 0).ok_or_else(|| match text.contains(',') {
        true => format!("each process follows its own -p: `-p {}`", text.replace(',', " -p ")),
        false if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            "expected the number of a process, from 1 on: `pgrep -f NAME` prints those of programs".into()
        }
        false => format!("expected the number of a process: `pgrep {}` prints it", shell_words::quote(text)),
    })
}

fn parse_regex(text: &str) -> Result<String, String> {
    regex::Regex::new(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn parse_lib(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.into(), path.into())),
        _ => Err("expected NAME=PATH, as in `libcuda=/opt/driver/libcuda.so.1`".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_word_is_a_subcommand_then_a_script_then_a_file() {
        // `kernels` is also the name of an embedded script.
        let cli = Cli { subcommands: vec!["doctor", "kernels"], ..Cli::parse_from(["cudatrace"]) };
        assert_eq!(cli.classify("doctor"), Word::Subcommand);
        assert_eq!(cli.classify("kernels"), Word::Subcommand);
        assert_eq!(cli.classify("latency"), Word::Embedded("latency"));
        assert_eq!(cli.classify("latency.ct"), Word::File("latency.ct"));
        assert_eq!(cli.classify("./latency"), Word::File("./latency"));
        assert_eq!(cli.classify("other"), Word::File("other"));
        assert_eq!(cli.classify("-"), Word::File("-"));
    }
}

//! `cudatrace SCRIPT --help`: the purpose of a script, its options, and the description of its output from its header. Also the help
//! of subcommands.

use crate::cli::{self, Cli, Subcommand};
use crate::console::Messages;
use crate::script::Script;
use crate::{arguments, bundled, script, terminal};
use anyhow::{Result, bail};
use lang::expand::options;
use lang::expand::options::ScriptOption;
use lang::{Diagnostics, Source};
use std::io::Write;

/// Prints the help of the script on the command line; for a subcommand its own help.
pub fn run(cli: &Cli, messages: &Messages) -> Result<u8> {
    let word = cli.words.first().filter(|_| cli.execute.is_none());
    if let Some(subcommand) = word.and_then(|word| cli::subcommand(word)) {
        of_subcommand(subcommand).print_help()?;
        return Ok(0);
    }
    let scripts = script::load_all(cli, messages)?;
    let named = scripts.len() - usize::from(cli.execute.is_some());
    let words = cli.words.iter().take(named).map(String::as_str).chain(["-e PROGRAM"]);
    let helps: Result<Vec<String>> =
        scripts.iter().zip(words).map(|(script, word)| of_script(script, word, messages)).collect();
    std::io::stdout().lock().write_all(helps?.join("\n").as_bytes())?;
    Ok(0)
}

/// The help of an embedded script.
pub fn of_embedded(embedded: &bundled::BundledScript, messages: &Messages) -> Result<String> {
    let script = Script::alone(Source::new(embedded.name, embedded.text), &[]);
    of_script(&script, embedded.name, messages)
}

fn of_script(script: &Script, word: &str, messages: &Messages) -> Result<String> {
    let mut diags = Diagnostics::default();
    let Some(ast) = lang::parse(&script.source, &script.params, &mut diags) else {
        messages.diagnostics(&diags, &script.source);
        bail!("the script cannot be read");
    };
    let (examples, notes) = bundled::header(&script.source.text);
    let mut text = options(word, bundled::summary(&script.source.text), &options::known(&ast));
    if !examples.is_empty() {
        text += &format!("\nExamples:\n  {}\n", examples.join("\n  "));
    }
    if !notes.is_empty() {
        text += &format!("\n{}\n", terminal::wrap(&notes.join(" "), width(), 0));
    }
    Ok(text)
}

/// Width of the text; longer lines are hard to read.
fn width() -> usize {
    terminal::columns().min(100)
}

fn options(script: &str, summary: &str, options: &[ScriptOption]) -> String {
    let summary = terminal::wrap(summary, width(), 0);
    let mut out = if summary.is_empty() { String::new() } else { format!("{summary}\n\n") };
    let forms: Vec<String> = options.iter().map(|option| format!(" [{}]", option.form())).collect();
    out += &format!("Usage: cudatrace {script}{} [cudatrace's options] [-- COMMAND]\n", forms.concat());
    if options.is_empty() {
        return out + "\nThe script has no options of its own.\n";
    }
    out += "\nOptions of the script:\n";
    let width = options.iter().map(|option| option.form().len()).max().unwrap_or(0);
    for option in options {
        let default = option.default_text().map_or(String::new(), |default| format!(" [default: {default}]"));
        let line = format!("  {:<width$}  {}{default}", option.form(), option.help.as_deref().unwrap_or(""));
        out += line.trim_end();
        out.push('\n');
    }
    out
}

/// Help of a subcommand: description, usage, common options that it accepts, and examples.
struct Help {
    about: &'static str,
    usage: &'static str,
    /// Largest number of words.
    words: usize,
    options: &'static [&'static str],
    examples: &'static str,
}

fn help(subcommand: Subcommand) -> Help {
    match subcommand {
        Subcommand::Completion => Help {
            about: "Prints a completion script for bash, zsh or fish",
            usage: "cudatrace completion bash|zsh|fish",
            words: 1,
            options: &["argv"],
            examples: "In ~/.bashrc: source <(cudatrace completion bash)\nIn ~/.config/fish/config.fish: cudatrace completion fish | source",
        },
        Subcommand::Doctor => Help {
            about: "Shows features and limitations of this machine: kernel, rights, driver, libraries, Python",
            usage: "cudatrace doctor [-f json]",
            words: 0,
            options: &["format"],
            examples: "",
        },
        Subcommand::Fmt => Help {
            about: "Formats scripts in place; `-` is standard input, and goes to standard output",
            usage: "cudatrace fmt [--check] [--diff] FILE...",
            words: usize::MAX,
            options: &["check"],
            examples: "",
        },
        Subcommand::Help => Help {
            about: "Shows help on a function, built-in, probe, constant, script, subcommand or message code",
            usage: "cudatrace help WORD...",
            words: usize::MAX,
            options: &[],
            examples: "Examples:\n  cudatrace help cuLaunchKernel\n  cudatrace help cuda:alloc hist CUDA_ERROR_NOT_READY\n  cudatrace help functions probes",
        },
        Subcommand::Man => Help {
            about: "Prints the manual page",
            usage: "cudatrace man | man -l -",
            words: 0,
            options: &[],
            examples: "",
        },
        Subcommand::Scripts => Help {
            about: "Lists the bundled scripts",
            usage: "cudatrace scripts",
            words: 0,
            options: &[],
            examples: "`cudatrace NAME --help` shows the question that a script answers, and its options.",
        },
        Subcommand::Record => Help {
            about: "Records every driver and runtime call, and prints a summary",
            usage: "cudatrace record [OPTIONS] [-p PID | -- COMMAND...]",
            words: usize::MAX,
            options: &[
                "pids",
                "in_process",
                "no_children",
                "command",
                "wait",
                "export",
                "rotate",
                "trace_per",
                "fail_on_loss",
                "quiet",
                "verbose",
                "user",
                "libs",
                "argv",
            ],
            examples: "Examples:\n  cudatrace record -- python3 train.py\n  cudatrace record --kernel -p 4242\n  \
                       cudatrace record --export perfetto=trace.pftrace -- python3 train.py\n\
                       Then: cudatrace report --html trace.html",
        },
        Subcommand::Report => Help {
            about: "Prints tables, the slowest calls and a timeline of a recording or `jsonl` export; converts it to other formats",
            usage: "cudatrace report [FILE...] [--html PAGE] [--open] [-f json | --csv TABLE] [--chrome FILE] [--perfetto FILE] [--folded FILE] [--otlp URL]",
            words: usize::MAX,
            options: &["quiet", "format", "export", "trace_per"],
            examples: "Without a file, the newest recording in `traces`. `-` is standard input as a recording, and standard output as a file.",
        },
    }
}

/// All subcommands with their descriptions.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    cli::subcommands().filter_map(|name| Some((name, help(cli::subcommand(name)?).about)))
}

/// Options that every subcommand accepts.
const OF_ALL: [&str; 5] = ["words", "color", "quiet", "verbose", "no_warnings"];
/// Options of tracing for tests, which are not in the help of `record`.
const OF_RECORD: [&str; 7] = ["check", "dry_run", "debug", "emit", "no_feature", "output", "no_children"];

/// The options that a subcommand accepts: its own, and some of the common ones.
pub fn takes(subcommand: Subcommand, command: &clap::Command) -> Vec<clap::Id> {
    let of_all = arguments::command(None);
    let is_taken = |id: &clap::Id| {
        let is_own = of_all.get_arguments().all(|arg| arg.get_id() != id);
        let id = id.as_str();
        let is_recorded = subcommand == Subcommand::Record && OF_RECORD.contains(&id);
        is_own || is_recorded || OF_ALL.contains(&id) || help(subcommand).options.contains(&id)
    };
    command.get_arguments().map(|arg| arg.get_id().clone()).filter(is_taken).collect()
}

/// Largest number of words after a subcommand.
pub fn most_words(subcommand: Subcommand) -> usize {
    help(subcommand).words
}

/// The help of a subcommand: its own options, and the common ones that it accepts.
pub fn of_subcommand(subcommand: Subcommand) -> clap::Command {
    let Help { about, usage, options, examples, .. } = help(subcommand);
    let command = arguments::command(Some(subcommand));
    let of_all = arguments::command(None);
    let is_others = |id: &clap::Id| {
        of_all.get_arguments().any(|arg| arg.get_id() == id)
            && !options.contains(&id.as_str())
            && id != "help"
    };
    command
        .about(about)
        .override_usage(usage)
        .after_help(examples)
        .after_long_help(examples)
        .mut_args(|arg| if is_others(arg.get_id()) { arg.hide(true) } else { arg.hide_short_help(false) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subcommand_has_the_options_that_it_takes() {
        let text = |subcommand| of_subcommand(subcommand).render_help().to_string();
        let record = text(Subcommand::Record);
        for option in ["--kernel", "--out", "--pid", "--export", "--rotate", "[COMMAND]..."] {
            assert!(record.contains(option), "{option}: {record}");
        }
        assert!(!record.contains("--execute") && !record.contains("[SCRIPT]"), "{record}");
        let report = text(Subcommand::Report);
        assert!(
            report.contains("Usage: cudatrace report [FILE...]") && !report.contains("--pid"),
            "{report}"
        );
    }
}

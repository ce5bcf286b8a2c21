//! `cudatrace fmt FILE...`: formats scripts in place; `-` formats standard input to standard output. `--check` and `--diff` write nothing.

use crate::Failure;
use crate::cli::Cli;
use crate::console::Messages;
use crate::script::NO_FILE;
use crate::subcommand::{Listing, Subcommand};
use anyhow::{Context, Result, bail};
use clap::Args;
use lang::syntax::format;
use lang::{Diagnostics, Source};
use std::io::{Read, Write};

/// `cudatrace fmt`
pub const SUBCOMMAND: Subcommand = Subcommand {
    most_words: usize::MAX,
    options: &["check"],
    own_options: FmtOptions::augment_args,
    ..Subcommand::new(
        "fmt",
        "Formats scripts in place; `-` is standard input, and goes to standard output",
        "cudatrace fmt [--check] [--diff] FILE...",
        |invocation| {
            let mode = FmtMode::of(invocation.cli, &invocation.own_options()?);
            run(invocation.words(), mode, invocation.messages).map_err(Failure::wrong)
        },
    )
};

/// `--fmt`, as bpftrace's
pub const LISTING: Listing = Listing {
    option: "print_formatted",
    most_words: 1,
    options: &["programs", "output", "mode"],
    is_requested: |cli| cli.print_formatted,
    run: |invocation| print(invocation.cli, invocation.messages).map_err(Failure::wrong),
};

/// Options that only `fmt` has.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of fmt")]
struct FmtOptions {
    /// Print what would change, and change nothing
    #[arg(long)]
    diff: bool,
}

/// Treatment of a script that is not formatted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum FmtMode {
    /// Write the formatted script.
    Write,
    /// Report the first line that differs.
    Check,
    /// Print the changes.
    Diff,
}

impl FmtMode {
    fn of(cli: &Cli, options: &FmtOptions) -> FmtMode {
        match (options.diff, cli.check) {
            (true, _) => FmtMode::Diff,
            (false, true) => FmtMode::Check,
            (false, false) => FmtMode::Write,
        }
    }
}

/// Formats each of `files`. The status is 1 if one has errors, or if one is not formatted and not written.
fn run(files: &[String], mode: FmtMode, messages: &Messages) -> Result<u8> {
    if files.is_empty() {
        bail!("no script to format: give files, or `-` for standard input");
    }
    let mut status = 0;
    for file in files {
        let source = read(file)?;
        match formatted(&source, messages) {
            None => status = 1,
            Some(text) if mode == FmtMode::Write => write(file, &source, &text)?,
            Some(text) if source.text == text => {}
            Some(text) => {
                status = 1;
                print!(
                    "{}",
                    if mode == FmtMode::Check { first(&source, &text) } else { diff(&source, &text) }
                );
            }
        }
    }
    Ok(status)
}

/// Prints the script of the command line, formatted, to standard output or the file of `-o`.
fn print(cli: &Cli, messages: &Messages) -> Result<u8> {
    let source = match (&cli.execute, cli.words.first()) {
        (Some(text), _) => Source::new(NO_FILE, text.as_str()),
        (None, Some(file)) => read(file)?,
        (None, None) => bail!("no script to format: give -e 'PROGRAM' or a file"),
    };
    let Some(text) = formatted(&source, messages) else { return Ok(1) };
    match &cli.output {
        Some(path) => {
            std::fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))?
        }
        None => std::io::stdout().write_all(text.as_bytes()).context("standard output")?,
    }
    Ok(0)
}

fn read(file: &str) -> Result<Source> {
    if file != "-" {
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read script `{file}`"))?;
        return Ok(Source::new(file, text));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("standard input")?;
    Ok(Source::new(NO_FILE, text))
}

fn formatted(source: &Source, messages: &Messages) -> Option<String> {
    let mut diags = Diagnostics::default();
    let result = lang::format(source, &mut diags);
    match result {
        Err(format::Failure::Wrong) => messages.diagnostics(&diags, source),
        Err(format::Failure::Unknown) => {
            messages.warning(&format!(
                "{}: left as it is: the formatter does not know a form in it",
                source.name
            ));
        }
        Ok(_) => {}
    }
    result.ok()
}

/// Reports the first line that is not formatted.
fn first(source: &Source, text: &str) -> String {
    let same = source.text.lines().zip(text.lines()).take_while(|(is, should)| is == should).count();
    format!("{}:{}: not formatted\n", source.name, same + 1)
}

/// The changes by formatting, as a patch with one hunk from the first to the last line that differs.
fn diff(source: &Source, text: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (source.text.lines().collect(), text.lines().collect());
    let before = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let rest = old[before..].iter().rev().zip(new[before..].iter().rev());
    let after = rest.take_while(|(old, new)| old == new).count();
    let (removed, added) = (&old[before..old.len() - after], &new[before..new.len() - after]);
    let name = &source.name;
    let lines =
        |sign: char, lines: &[&str]| lines.iter().map(|line| format!("{sign}{line}\n")).collect::<String>();
    format!(
        "--- {name}\n+++ {name}\n@@ -{start},{} +{start},{} @@\n{}{}",
        removed.len(),
        added.len(),
        lines('-', removed),
        lines('+', added),
        start = before + 1,
    )
}

fn write(file: &str, source: &Source, text: &str) -> Result<()> {
    match file {
        "-" => std::io::stdout().write_all(text.as_bytes()).context("standard output"),
        _ if source.text == text => Ok(()),
        _ => std::fs::write(file, text).with_context(|| format!("cannot write `{file}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    #[test]
    fn looks_formats_and_is_content() {
        let messages = Cli::parse_from(["cudatrace", "-q"]).messages();
        let path = std::env::temp_dir().join(format!("cudatrace-fmt-{}.ct", std::process::id()));
        let files = [path.to_string_lossy().into_owned()];
        std::fs::write(&path, "BEGIN{print( 1 )}").unwrap();
        let statuses = [FmtMode::Check, FmtMode::Diff, FmtMode::Write, FmtMode::Check]
            .map(|mode| run(&files, mode, &messages).unwrap());
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let source = Source::new("x.ct", "// c\nBEGIN{print( 1 )}\n// d\n");
        let patch = "--- x.ct\n+++ x.ct\n@@ -2,1 +2,1 @@\n-BEGIN{print( 1 )}\n+BEGIN { print(1) }\n";
        assert_eq!(diff(&source, "// c\nBEGIN { print(1) }\n// d\n"), patch);
        assert_eq!((statuses, text.as_str()), ([1, 1, 0, 0], "BEGIN { print(1) }\n"));
    }
}

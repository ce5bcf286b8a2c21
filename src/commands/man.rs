//! `cudatrace man`: the manual page, from the definitions of the command line, and the pages of the embedded scripts, from their headers.

use super::completion;
use super::script_help::{description, notation};
use crate::Failure;
use crate::arguments::definition;
use crate::bundled::{self, BundledScript, SCRIPTS};
use crate::commands::SUBCOMMANDS;
use crate::subcommand::{Invocation, Subcommand, Subcommands};
use anyhow::{Context, Result};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use lang::diagnostics::suggest::similar;
use lang::diagnostics::wording::did_you_mean;
use std::io::Write;

/// `cudatrace man`
pub const SUBCOMMAND: Subcommand = Subcommand {
    examples: "For example: cudatrace man lines | man -l -",
    most_words: 1,
    complete: |word| completion::beginning(word, SCRIPTS.iter().map(|script| script.name.to_owned())),
    ..Subcommand::new(
        "man",
        "Prints the manual page, or that of a script",
        "cudatrace man [SCRIPT] | man -l -",
        |invocation| run(invocation).map_err(Failure::wrong),
    )
};

/// Prints a page as roff.
fn run(invocation: &Invocation) -> Result<u8> {
    let page = match invocation.words() {
        [] => page(invocation.subcommands)?,
        [name, ..] => script_page(bundled::find(name).with_context(|| unknown(name))?)?,
    };
    std::io::stdout().write_all(page.as_bytes())?;
    Ok(0)
}

fn page(subcommands: Subcommands) -> Result<String> {
    let mut out = Vec::new();
    let command = definition::with_subcommands(definition::command(None), subcommands);
    let command = command.version(env!("CARGO_PKG_VERSION")).mut_args(|arg| arg.hide_short_help(false));
    Man::new(command).section("1").render(&mut out)?;
    let mut sections = Roff::new();
    sections.control("SH", ["SUBCOMMANDS"]);
    for subcommand in subcommands.sorted() {
        define(&mut sections, subcommand.name, subcommand.about);
    }
    sections.control("SH", ["SCRIPTS"]);
    sections.text([roman("Each has a page of its own: "), bold("cudatrace man NAME | man -l -"), roman(".")]);
    for script in SCRIPTS {
        define(&mut sections, script.name, script.summary());
    }
    sections.to_writer(&mut out)?;
    Ok(String::from_utf8(out)?)
}

/// The page `cudatrace-NAME(1)`.
fn script_page(script: &BundledScript) -> Result<String> {
    let (name, question) = (script.name, script.summary());
    let options = script.options();
    let (examples, notes) = bundled::header(script.text);
    let version = concat!("cudatrace ", env!("CARGO_PKG_VERSION"));
    let title = format!("cudatrace-{name}");
    let mut page = Roff::new();
    page.control("TH", [title.as_str(), "1", "", version]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{title} - {question}"))]);
    page.control("SH", ["SYNOPSIS"]);
    page.text([bold(format!("cudatrace {name}")), roman(notation(&options))]);
    if !notes.is_empty() {
        page.control("SH", ["DESCRIPTION"]);
        page.text([roman(notes.join(" "))]);
    }
    if !options.is_empty() {
        page.control("SH", ["OPTIONS"]);
    }
    for option in &options {
        define(&mut page, &option.form(), &description(option));
    }
    page.control("SH", ["EXAMPLES"]);
    page.control("nf", []);
    examples.iter().for_each(|example| _ = page.text([roman(*example)]));
    page.control("fi", []);
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("cudatrace"), roman("(1)")]);
    let mut out = Vec::new();
    page.to_writer(&mut out)?;
    Ok(String::from_utf8(out)?)
}

/// The error for a name that no script has.
fn unknown(name: &str) -> String {
    if SUBCOMMANDS.find(name).is_some() {
        return format!("`{name}` has no page of its own: `cudatrace {name} --help`, and `cudatrace man`");
    }
    let near = similar(name, SCRIPTS.iter().map(|script| script.name));
    let near = did_you_mean(near.get(..1).unwrap_or_default()).pop();
    format!("no script `{name}`: {}", near.as_deref().unwrap_or("`cudatrace scripts` lists them"))
}

/// A term and its description.
fn define(page: &mut Roff, term: &str, description: &str) {
    page.control("TP", []);
    page.text([bold(term)]);
    page.text([roman(description)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::SUBCOMMANDS;

    #[test]
    fn the_page_has_its_name_and_version() {
        let page = page(SUBCOMMANDS).expect("a page");
        let title = format!(".TH cudatrace 1  \"cudatrace {}\" ", env!("CARGO_PKG_VERSION"));
        assert!(page.lines().any(|line| line == title), "{}", page.lines().take(5).collect::<String>());
        assert!(page.contains("SUBCOMMANDS") && page.contains("SCRIPTS"));
    }

    #[test]
    fn each_script_has_a_page_with_its_question_options_and_examples() {
        for script in SCRIPTS {
            let page = script_page(script).expect("a page");
            let has = |text: &str| page.contains(text);
            assert!(has(&format!("cudatrace\\-{} \\- ", script.name)) && has("EXAMPLES"), "{page}");
        }
        let lines = script_page(bundled::find("lines").expect("a script")).expect("a page");
        for part in [
            "For which lines of Python",
            "\\-\\-top=N",
            "[default: 30]",
            "lines to print",
            "cudatrace lines \\-\\- python3",
        ] {
            assert!(lines.contains(part), "{part}: {lines}");
        }
    }

    /// A wheel that pip builds from the source distribution has the page, too.
    #[test]
    fn the_page_of_the_wheel_is_this_one() {
        let file = "packaging/cudatrace.data/data/share/man/man1/cudatrace.1";
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        golden_files::compare([(file, page(SUBCOMMANDS).expect("a page"))]);
    }
}

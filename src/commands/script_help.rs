//! `cudatrace SCRIPT --help`: what a script answers, and its own options.

use crate::cli::{self, Cli, Word};
use crate::messages::Messages;
use crate::script::Script;
use crate::{arguments, embedded, script};
use anyhow::{Result, bail};
use lang::Diagnostics;
use lang::forms::getopt::{self, Known};
use std::io::Write;

/// Prints the help of the script that the command line names; of a subcommand, ours.
pub fn run(cli: &Cli, messages: &Messages) -> Result<u8> {
    let word = cli.words.first().filter(|_| cli.execute.is_none());
    if let Some(Word::Subcommand(subcommand)) =
        word.map(|word| cli::classify(word, |name| embedded::find(name).is_some()))
    {
        arguments::command(Some(subcommand)).print_help()?;
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

fn of_script(script: &Script, word: &str, messages: &Messages) -> Result<String> {
    let mut diags = Diagnostics::default();
    let Some(ast) = lang::parse::parse(&script.source, &script.params, &mut diags) else {
        messages.diagnostics(&diags, &script.source);
        bail!("the script cannot be read");
    };
    Ok(text(word, embedded::summary(&script.source.text), &getopt::known(&ast)))
}

fn text(script: &str, summary: &str, options: &[Known]) -> String {
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

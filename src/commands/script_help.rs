//! `cudatrace SCRIPT --help`: the purpose of a script, its options, and the description of its output from its header.

use crate::arguments::definition;
use crate::console::Messages;
use crate::script::Script;
use crate::subcommand::Invocation;
use crate::{Failure, bundled, script, terminal};
use anyhow::{Result, bail};
use lang::expand::options;
use lang::expand::options::ScriptOption;
use lang::{Diagnostics, Source};
use std::io::Write;

/// Prints the help of the script on the command line; for a subcommand its own help.
pub fn run(invocation: &Invocation) -> Result<u8, Failure> {
    print(invocation).map_err(Failure::wrong)
}

fn print(invocation: &Invocation) -> Result<u8> {
    let Invocation { cli, messages, .. } = *invocation;
    if let Some(subcommand) = invocation.subcommand {
        definition::help(subcommand).print_help()?;
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

/// Notation of the command line after the name of a script.
pub fn notation(options: &[ScriptOption]) -> String {
    let forms: String = options.iter().map(|option| format!(" [{}]", option.form())).collect();
    format!("{forms} [cudatrace's options] [-- COMMAND]")
}

/// The help on an option, with its default.
pub fn description(option: &ScriptOption) -> String {
    let default = option.default_text().map_or(String::new(), |default| format!(" [default: {default}]"));
    format!("{}{default}", option.help.as_deref().unwrap_or(""))
}

/// Width of the text; longer lines are hard to read.
fn width() -> usize {
    terminal::columns().min(100)
}

fn options(script: &str, summary: &str, options: &[ScriptOption]) -> String {
    let summary = terminal::wrap(summary, width(), 0);
    let mut out = if summary.is_empty() { String::new() } else { format!("{summary}\n\n") };
    out += &format!("Usage: cudatrace {script}{}\n", notation(options));
    if options.is_empty() {
        return out + "\nThe script has no options of its own.\n";
    }
    out += "\nOptions of the script:\n";
    let width = options.iter().map(|option| option.form().len()).max().unwrap_or(0);
    for option in options {
        let line = format!("  {:<width$}  {}", option.form(), description(option));
        out += line.trim_end();
        out.push('\n');
    }
    out
}

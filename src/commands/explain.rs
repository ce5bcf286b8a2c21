//! `cudatrace --explain E0105`: the rule of a code, a script that breaks it, and the corrected script.

use crate::subcommand::Listing;
use crate::{Failure, terminal};
use anyhow::{Result, anyhow};
use lang::diagnostics::Code;
use lang::diagnostics::codes;
use std::io::Write;

/// `--explain`
pub const LISTING: Listing = Listing {
    option: "explain",
    most_words: 0,
    options: &[],
    is_requested: |cli| cli.explain.is_some(),
    run: |invocation| run(invocation.cli.explain.as_deref().unwrap_or_default()).map_err(Failure::wrong),
};

/// Prints the explanation of a code, or with `list` all codes.
fn run(code: &str) -> Result<u8> {
    let text = if code == "list" { list() } else { on(code).ok_or_else(|| anyhow!(unknown(code)))? };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(0)
}

/// The explanation of `E0105`, `e0105` or `105`; a number may be that of an error and of a warning.
pub fn on(code: &str) -> Option<String> {
    let number: Option<u32> = code.parse().ok();
    let named = match number {
        Some(number) => vec![format!("E{number:04}"), format!("W{number:04}")],
        None => vec![code.to_owned()],
    };
    let found: Vec<String> = named.iter().filter_map(|code| codes::find(code)).map(text).collect();
    (!found.is_empty()).then(|| found.join("\n"))
}

fn list() -> String {
    let all = codes::TABLES.iter().copied().flatten();
    all.map(|code| format!("{}  {}\n", code.code, code.title)).collect()
}

fn unknown(code: &str) -> String {
    let known = codes::TABLES.iter().copied().flatten().map(|known| known.code);
    let near = lang::diagnostics::suggest::similar(code, known);
    let near: Vec<String> = near.iter().map(|code| format!("`{code}`")).collect();
    match near.is_empty() {
        true => format!(
            "no code `{code}`: messages show theirs in brackets, as in `error[E0105]`; `--explain list` has all"
        ),
        false => format!("no code `{code}`; near it are {}", near.join(", ")),
    }
}

fn text(code: &Code) -> String {
    let kind = if code.code.starts_with('W') { "warning" } else { "error" };
    let Code { code, title, explanation, example, repaired } = code;
    let (explanation, example, repaired) = (
        terminal::wrap(explanation, terminal::columns().min(100), 0) + "\n",
        indent(example),
        indent(repaired),
    );
    format!(
        "{kind}[{code}]: {title}\n\n{explanation}\nFound in:\n\n{example}\nWritten so it is accepted:\n\n{repaired}"
    )
}

fn indent(script: &str) -> String {
    script.lines().map(|line| format!("    {line}\n")).collect()
}

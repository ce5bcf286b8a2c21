//! `cudatrace fmt FILE...`: formats scripts where they lie; `-` is standard input to standard output, `--check` only looks.

use crate::messages::Messages;
use anyhow::{Context, Result, bail};
use lang::fmt::{Failure, format};
use lang::{Diagnostics, Source};
use std::io::{Read, Write};

/// Formats each of `files`. The status is 1 if one has mistakes, or with `check` if one is not formatted.
///
/// # Errors
/// No file is given, or one cannot be read or written.
pub fn run(files: &[String], check: bool, messages: &Messages) -> Result<u8> {
    if files.is_empty() {
        bail!("no script to format: give files, or `-` for standard input");
    }
    let mut status = 0;
    for file in files {
        let source = read(file)?;
        match formatted(&source, messages) {
            None => status = 1,
            Some(text) if check => status |= u8::from(differs(&source, &text)),
            Some(text) => write(file, &source, &text)?,
        }
    }
    Ok(status)
}

fn read(file: &str) -> Result<Source> {
    if file != "-" {
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read script `{file}`"))?;
        return Ok(Source::new(file, text));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("standard input")?;
    Ok(Source::new("stdin", text))
}

fn formatted(source: &Source, messages: &Messages) -> Option<String> {
    let mut diags = Diagnostics::default();
    let result = format(source, &mut diags);
    match result {
        Err(Failure::Wrong) => messages.diagnostics(&diags, source),
        Err(Failure::Unknown) => {
            messages.warning(&format!(
                "{}: left as it is: the formatter does not know a form in it",
                source.name
            ));
        }
        Ok(_) => {}
    }
    result.ok()
}

/// Says where a script is not formatted.
fn differs(source: &Source, text: &str) -> bool {
    if source.text == text {
        return false;
    }
    let same = source.text.lines().zip(text.lines()).take_while(|(is, should)| is == should).count();
    println!("{}:{}: not formatted", source.name, same + 1);
    true
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
        let messages = Messages::new(&Cli::parse_from(["cudatrace", "-q"]));
        let path = std::env::temp_dir().join(format!("cudatrace-fmt-{}.ct", std::process::id()));
        let files = [path.to_string_lossy().into_owned()];
        std::fs::write(&path, "BEGIN{print( 1 )}").unwrap();
        let statuses = [true, false, true].map(|check| run(&files, check, &messages).unwrap());
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((statuses, text.as_str()), ([1, 0, 0], "BEGIN { print(1) }\n"));
    }
}

//! `cudatrace completion bash`, `zsh`, `fish`: the shells' completion scripts, and the candidates that these query.
//!
//! ```text
//! complete -o default -o nospace -C 'cudatrace completion line --' cudatrace
//! ```
//!
//! Bash passes the line and the word that it would replace, which is the text after the last `:` outside of quotes. Scripts and
//! patterns are completed as at the prompt.

use crate::cli::{self, Cli};
use crate::commands::script_help;
use crate::export::kinds::KINDS;
use crate::repl::complete::{self, Facts};
use crate::{arguments, bundled, script};
use anyhow::{Result, bail};
use clap::{Arg, Parser};
use host::{Machine, Scope, process};
use lang::diagnostics::codes;
use std::ffi::OsString;
use std::io::Write;
use std::sync::{Arc, Mutex};

/// Fish passes the text before the cursor, not the line; it replaces a word as a whole.
const FISH: &str =
    "complete -c cudatrace -a '(env COMP_LINE=(commandline -cp) cudatrace completion words)'\n";
const BASH: &str = "complete -o default -o nospace -C 'cudatrace completion line --' cudatrace\n";

/// Prints the completion code of a shell, or the candidates for a line.
pub fn run(words: &[String], after_dashes: &[OsString]) -> Result<u8> {
    let text = match words {
        [shell] if shell == "bash" => BASH.to_owned(),
        [shell] if shell == "zsh" => format!("autoload -U +X bashcompinit && bashcompinit\n{BASH}"),
        [shell] if shell == "fish" => FISH.to_owned(),
        [words] if words == "words" => {
            let line = typed();
            answer(&line, split(&line).last().map_or("", String::as_str))
        }
        [line] if line == "line" => {
            let replaced = after_dashes.get(1).map(|word| word.to_string_lossy()).unwrap_or_default();
            answer(&typed(), &replaced)
        }
        _ => bail!(
            "write `source <(cudatrace completion bash)`, or `zsh`, into what your shell reads at its start; for fish \
             `cudatrace completion fish | source`"
        ),
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(0)
}

/// The line before the cursor, from bash's variables.
fn typed() -> String {
    let line = std::env::var("COMP_LINE").unwrap_or_default();
    let end = std::env::var("COMP_POINT").ok().and_then(|end| end.parse().ok()).unwrap_or(line.len());
    line.get(..end).unwrap_or(&line).to_owned()
}

/// The candidates for the text that bash replaces, one per line.
fn answer(line: &str, replaced: &str) -> String {
    let words = split(line);
    let Some((word, before)) = words.split_last() else { return String::new() };
    let Some(kept) = word.strip_suffix(replaced) else { return String::new() };
    let mut found = candidates(before, word);
    // Bash closes the quotes after a single candidate, but a script continues.
    if let ([only], true) = (&found[..], is_script(before)) {
        found.push(format!("{only} ..."));
    }
    let rest = found.iter().filter_map(|candidate| candidate.strip_prefix(kept));
    rest.map(|candidate| format!("{candidate}\n")).collect()
}

fn is_script(before: &[String]) -> bool {
    before.last().is_some_and(|option| ["-e", "--execute"].contains(&option.as_str()))
}

/// Candidates for a word after the given words.
fn candidates(before: &[String], word: &str) -> Vec<String> {
    let previous = before.last().map_or("", String::as_str);
    let subcommand = before.get(1).and_then(|word| cli::subcommand(word));
    let command = arguments::command(subcommand);
    let option = command.get_arguments().find(|arg| is_called(arg, previous));
    if before.iter().any(|word| word == "--") {
        return Vec::new();
    }
    if is_script(before) || ["-l", "--list"].contains(&previous) {
        return after_prompt(word, "");
    }
    if previous == "--explain" {
        let all = codes::TABLES.iter().copied().flatten().map(|code| format!("{} ", code.code));
        return beginning(word, all);
    }
    if previous == "--export" {
        return beginning(word, KINDS.iter().map(|kind| format!("{}=", kind.name)));
    }
    if ["-p", "--pid"].contains(&previous) {
        return beginning(word, processes().map(|pid| format!("{pid} ")));
    }
    if let Some(option) = option.filter(|option| option.get_action().takes_values()) {
        let values = option.get_possible_values();
        return beginning(word, values.iter().map(|value| format!("{} ", value.get_name())));
    }
    if word.starts_with('-') {
        let taken = subcommand.map(|subcommand| script_help::takes(subcommand, &command));
        let is_taken = |arg: &&Arg| taken.as_ref().is_none_or(|taken| taken.contains(arg.get_id()));
        let shown = command.get_arguments().filter(|arg| !arg.is_hide_set()).filter(is_taken);
        let ours = shown.filter_map(Arg::get_long).map(|long| format!("--{long} "));
        return beginning(word, of_scripts(before).chain(ours));
    }
    match before {
        [_] => {
            let scripts = bundled::SCRIPTS.iter().map(|script| script.name);
            beginning(word, scripts.chain(cli::subcommands()).map(|name| format!("{name} ")))
        }
        [_, help] if help == "help" => after_prompt(word, ":help "),
        [_, completion] if completion == "completion" => {
            beginning(word, ["bash ", "fish ", "zsh "].map(String::from))
        }
        _ => Vec::new(),
    }
}

/// Options of the scripts among the words.
fn of_scripts(before: &[String]) -> impl Iterator<Item = String> {
    let cli = Cli { words: before.get(1..).unwrap_or_default().to_vec(), ..Cli::parse_from(["cudatrace"]) };
    let known = if cli::subcommand(cli.words.first().map_or("", String::as_str)).is_some() {
        Vec::new()
    } else {
        script::options(&cli)
    };
    known.into_iter().map(|option| match option.takes_value() {
        true => format!("--{}=", option.name),
        false => format!("--{} ", option.name),
    })
}

/// Processes that have CUDA mapped; if there are none, all processes that may be inspected.
fn processes() -> impl Iterator<Item = u32> {
    let has_cuda = |pid: &u32| {
        let is_cuda = |path: &std::path::Path| path.to_string_lossy().contains("/libcuda");
        process::mappings(*pid).iter().any(|mapping| mapping.name.path().is_some_and(is_cuda))
    };
    let all = process::all_pids();
    let of_cuda: Vec<u32> = all.iter().copied().filter(has_cuda).collect();
    if of_cuda.is_empty() { all } else { of_cuda }.into_iter()
}

fn is_called(arg: &Arg, word: &str) -> bool {
    let long = word.strip_prefix("--").filter(|name| !name.is_empty());
    let short = word.strip_prefix('-').filter(|name| name.len() == 1).and_then(|name| name.chars().next());
    arg.get_long().is_some_and(|name| Some(name) == long) || short.is_some() && arg.get_short() == short
}

fn beginning(word: &str, all: impl IntoIterator<Item = String>) -> Vec<String> {
    all.into_iter().filter(|candidate| candidate.starts_with(word)).collect()
}

/// Candidates from the prompt's completion, with their prefix.
fn after_prompt(word: &str, prompt: &str) -> Vec<String> {
    let machine = Machine::new(Scope::default()).with_kernel(&crate::kernel_catalog::RunningKernel);
    let facts = Facts { catalog: Arc::new(machine), maps: Arc::new(Mutex::default()) };
    let typed = format!("{prompt}{word}");
    let (start, found) = complete::complete(&typed, &facts);
    let Some(kept) = typed[..start].strip_prefix(prompt) else { return Vec::new() };
    found.into_iter().map(|candidate| format!("{kept}{candidate}")).collect()
}

/// Splits a line like a shell, without quotes and backslashes; the quotes of the last word may be open.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(letters.next()),
            (None, ' ' | '\t') => words.extend(word.take()),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.push(word.unwrap_or_default());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_a_shell_does() {
        for (line, words) in [
            ("cudatrace ", &["cudatrace", ""][..]),
            ("cudatrace  -e 'uprobe:a b", &["cudatrace", "-e", "uprobe:a b"]),
            (r#"x "a \" b"c\ d e"#, &["x", "a \" bc d", "e"]),
            ("x '' '\\'", &["x", "", "\\"]),
        ] {
            assert_eq!(split(line), words, "{line}");
        }
    }

    #[test]
    fn bash_replaces_the_text_after_the_last_colon() {
        assert_eq!(answer("cudatrace -l cuda:memc", "memc"), "memcpy\n");
        assert_eq!(answer("cudatrace -e 'cuda:memc", "cuda:memc"), "cuda:memcpy\ncuda:memcpy ...\n");
        assert_eq!(answer("cudatrace mem\\le", "else"), "");
    }

    #[test]
    fn each_place_has_its_candidates() {
        let of = |line: &str| {
            let words = split(line);
            let (word, before) = words.split_last().expect("a word");
            candidates(before, word)
        };
        assert_eq!(of("cudatrace late"), ["latency "]);
        assert_eq!(of("cudatrace --expo"), ["--export "]);
        assert_eq!(of("cudatrace record --ker"), ["--kernel "]);
        assert_eq!(of("cudatrace doctor --fo"), ["--format "]);
        assert!(of("cudatrace doctor --exp").is_empty() && of("cudatrace report --pi").is_empty());
        assert_eq!(of("cudatrace kernels --to"), ["--top="]);
        assert_eq!(of("cudatrace calls --m"), ["--min-us=", "--match="]);
        assert_eq!(of("cudatrace memleak --fl"), ["--flame "]);
        assert_eq!(of("cudatrace record --export js"), ["jsonl="]);
        assert!(!of("cudatrace kernels -p ").is_empty());
        assert_eq!(of("cudatrace -f j"), ["json "]);
        assert_eq!(of("cudatrace --explain E020"), (1..10).map(|n| format!("E020{n} ")).collect::<Vec<_>>());
        assert_eq!(of("cudatrace -e 'uretp"), ["uretprobe:"]);
        assert_eq!(of("cudatrace -l cuda:memc"), ["cuda:memcpy"]);
        assert_eq!(of("cudatrace -e 'BEGIN { print(strer"), ["BEGIN { print(strerror("]);
        assert_eq!(of("cudatrace help cuMemcpyHtoDAs")[0], "cuMemcpyHtoDAsync");
        assert!(of("cudatrace latency -p 3 -- ./pr").is_empty() && of("cudatrace x.ct y").is_empty());
    }
}

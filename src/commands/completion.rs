//! `cudatrace completion bash`, `zsh`, `fish`: the shells' completion scripts, and the candidates that these query.
//!
//! ```text
//! complete -o default -o nospace -C 'cudatrace completion line --' cudatrace
//! ```
//!
//! Bash passes the line and the word that it would replace, which is the text after the last `:` outside of quotes. Scripts and
//! patterns are completed as at the prompt.

use crate::Failure;
use crate::arguments::definition;
use crate::cli::{Cli, Word};
use crate::export::kinds::KINDS;
use crate::repl::complete::{self, Facts};
use crate::subcommand::{Invocation, Subcommand, Subcommands};
use crate::{bundled, script};
use anyhow::{Result, bail};
use clap::{Arg, Parser};
use host::{Machine, Scope};
use lang::diagnostics::codes;
use linux::proc;
use std::io::Write;
use std::sync::{Arc, Mutex};

/// `cudatrace completion`
pub const SUBCOMMAND: Subcommand = Subcommand {
    examples: "In ~/.bashrc: source <(cudatrace completion bash)\nIn ~/.config/fish/config.fish: cudatrace completion fish | source",
    most_words: 1,
    options: &["argv"],
    complete: |word| beginning(word, ["bash ", "fish ", "zsh "].map(String::from)),
    ..Subcommand::new(
        "completion",
        "Prints a completion script for bash, zsh or fish",
        "cudatrace completion bash|zsh|fish",
        |invocation| run(invocation).map_err(Failure::wrong),
    )
};

/// Fish passes the text before the cursor, not the line; it replaces a word as a whole.
const FISH: &str =
    "complete -c cudatrace -a '(env COMP_LINE=(commandline -cp) cudatrace completion words)'\n";
const BASH: &str = "complete -o default -o nospace -C 'cudatrace completion line --' cudatrace\n";

/// Prints the completion code of a shell, or the candidates for a line.
fn run(invocation: &Invocation) -> Result<u8> {
    let text = match invocation.words() {
        [shell] if shell == "bash" => BASH.to_owned(),
        [shell] if shell == "zsh" => format!("autoload -U +X bashcompinit && bashcompinit\n{BASH}"),
        [shell] if shell == "fish" => FISH.to_owned(),
        [words] if words == "words" => {
            let line = typed();
            answer(&line, split(&line).last().map_or("", String::as_str), invocation.subcommands)
        }
        [line] if line == "line" => {
            let replaced = invocation.cli.argv.get(1).map(|word| word.to_string_lossy()).unwrap_or_default();
            answer(&typed(), &replaced, invocation.subcommands)
        }
        words => bail!(
            "{}write `source <(cudatrace completion bash)`, or `zsh`, into what your shell reads at its start; for fish \
             `cudatrace completion fish | source`",
            words.first().map_or_else(String::new, |shell| format!("no completion for `{shell}`: "))
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
fn answer(line: &str, replaced: &str, subcommands: Subcommands) -> String {
    let words = split(line);
    let Some((word, before)) = words.split_last() else { return String::new() };
    let Some(kept) = word.strip_suffix(replaced) else { return String::new() };
    let mut found = candidates(before, word, subcommands);
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
fn candidates(before: &[String], word: &str, subcommands: Subcommands) -> Vec<String> {
    let previous = before.last().map_or("", String::as_str);
    let subcommand = before.get(1).and_then(|word| subcommands.find(word));
    let command = definition::command(subcommand);
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
        let accepted = subcommand.map(|subcommand| definition::accepted(subcommand, &command));
        let is_accepted =
            |arg: &&Arg| accepted.as_ref().is_none_or(|accepted| accepted.contains(arg.get_id()));
        let shown = command.get_arguments().filter(|arg| !arg.is_hide_set()).filter(is_accepted);
        let ours = shown.filter_map(Arg::get_long).map(|long| format!("--{long} "));
        return beginning(word, of_scripts(before, subcommands).chain(ours));
    }
    match (before, subcommand) {
        ([_], _) => {
            let scripts = bundled::SCRIPTS.iter().map(|script| script.name);
            beginning(word, scripts.chain(subcommands.names()).map(|name| format!("{name} ")))
        }
        ([_, _], Some(subcommand)) => (subcommand.complete)(word),
        _ => Vec::new(),
    }
}

/// Options of the scripts among the words.
fn of_scripts(before: &[String], subcommands: Subcommands) -> impl Iterator<Item = String> {
    let words = before.get(1..).unwrap_or_default().to_vec();
    let cli = Cli { words, subcommands: subcommands.names(), ..Cli::parse_from(["cudatrace"]) };
    let is_subcommand = |word: &String| cli.classify(word) == Word::Subcommand;
    let known = if cli.words.first().is_some_and(is_subcommand) { Vec::new() } else { script::options(&cli) };
    known.into_iter().map(|option| match option.takes_value() {
        true => format!("--{}=", option.name),
        false => format!("--{} ", option.name),
    })
}

/// Processes that have CUDA mapped; if there are none, all processes that may be inspected.
fn processes() -> impl Iterator<Item = u32> {
    let has_cuda = |pid: &u32| {
        let is_cuda = |path: &std::path::Path| path.to_string_lossy().contains("/libcuda");
        proc::mappings(*pid).iter().any(|mapping| mapping.name.path().is_some_and(is_cuda))
    };
    let all = proc::all_pids();
    let of_cuda: Vec<u32> = all.iter().copied().filter(has_cuda).collect();
    if of_cuda.is_empty() { all } else { of_cuda }.into_iter()
}

fn is_called(arg: &Arg, word: &str) -> bool {
    let long = word.strip_prefix("--").filter(|name| !name.is_empty());
    let short = word.strip_prefix('-').filter(|name| name.len() == 1).and_then(|name| name.chars().next());
    arg.get_long().is_some_and(|name| Some(name) == long) || short.is_some() && arg.get_short() == short
}

/// The candidates that begin with a word.
pub fn beginning(word: &str, all: impl IntoIterator<Item = String>) -> Vec<String> {
    all.into_iter().filter(|candidate| candidate.starts_with(word)).collect()
}

/// Candidates from the prompt's completion, with their prefix.
pub fn after_prompt(word: &str, prompt: &str) -> Vec<String> {
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
    use crate::commands::SUBCOMMANDS;

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
        assert_eq!(answer("cudatrace -l cuda:memc", "memc", SUBCOMMANDS), "memcpy\n");
        assert_eq!(
            answer("cudatrace -e 'cuda:memc", "cuda:memc", SUBCOMMANDS),
            "cuda:memcpy\ncuda:memcpy ...\n"
        );
        assert_eq!(answer("cudatrace mem\\le", "else", SUBCOMMANDS), "");
    }

    #[test]
    fn each_place_has_its_candidates() {
        let of = |line: &str| {
            let words = split(line);
            let (word, before) = words.split_last().expect("a word");
            candidates(before, word, SUBCOMMANDS)
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

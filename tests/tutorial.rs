//! The tutorial: each of its commands, run as it stands there, prints what is shown there. Numbers may differ, and `[...]` stands for any lines.

mod common;

use common::{can_trace, examples};
use regex::Regex;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// A command, and the lines that it prints.
struct Step {
    command: String,
    lines: Vec<String>,
}

/// The steps of all blocks of a page that are a terminal's.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in page.split("```console\n").skip(1) {
        let (block, _) = block.split_once("```").expect("its end");
        for line in block.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step { command: command.to_owned(), lines: vec![] }),
                (None, Some(step)) => step.lines.push(line.to_owned()),
                (None, None) => panic!("a block begins with a command: {line}"),
            }
        }
    }
    steps
}

/// A line without numbers, their units, the widths of columns and of bars.
fn masked(line: &str) -> String {
    static NUMBER: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\d+(\.\d+)?( (ns|us|ms|s|B|KiB|MiB|GiB)\b)?").expect("an expression"));
    static BAR: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\|@* *\|").expect("an expression"));
    let line = BAR.replace_all(line, "|");
    NUMBER.replace_all(&line, "#").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether the printed lines are those that are shown.
fn is_shown(shown: &[String], printed: &[String]) -> bool {
    match shown {
        [] => printed.is_empty(),
        [any, rest @ ..] if any == "[...]" => {
            (0..=printed.len()).any(|from| is_shown(rest, &printed[from..]))
        }
        [first, rest @ ..] => printed.first() == Some(first) && is_shown(rest, &printed[1..]),
    }
}

fn without_empty_lines<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    lines.map(masked).filter(|line| !line.is_empty()).collect()
}

#[test]
fn each_command_of_the_tutorial_prints_what_it_shows() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(examples().parent().expect("a folder"), folder.path().join("examples"))
        .expect("a link");
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_cudatrace")).parent().expect("a folder").to_owned();
    let path = std::env::join_paths([binary, "/usr/bin".into(), "/bin".into()]).expect("a path");
    let steps = steps(include_str!("../docs/tutorial.md"));
    assert!(steps.len() > 8, "the tutorial has {} commands", steps.len());
    for Step { command, lines } in steps {
        let output = Command::new("sh")
            .args(["-c", &format!("{command} 2>&1")])
            .current_dir(&folder)
            .env("PATH", &path)
            .stdin(Stdio::null())
            .output()
            .expect("a shell");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let (shown, printed) =
            (without_empty_lines(lines.iter().map(String::as_str)), without_empty_lines(said.lines()));
        assert!(is_shown(&shown, &printed), "{command}\n{said}\n--- as\n{printed:#?}\n--- shown\n{shown:#?}");
    }
}

#[test]
fn any_lines_may_be_left_out() {
    let lines = |text: &str| without_empty_lines(text.lines());
    assert!(is_shown(&lines("a 5\n[...]\nb"), &lines("a  17 us\nx\ny\nb")));
    assert!(is_shown(&lines("a\n[...]"), &lines("a")));
    assert!(!is_shown(&lines("a\n[...]\nb"), &lines("a\nx")));
    assert!(!is_shown(&lines("a"), &lines("a\nb")));
}

//! The tutorial: each of its commands, run as it stands there, prints what is shown there. Numbers may differ, rows of a table may have another
//! order (that of their times), and `[...]` stands for any lines.

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

/// Whether the printed lines are those that are shown; empty ones only end tables.
fn is_shown(shown: &[String], printed: &[String]) -> bool {
    match (shown, printed) {
        ([empty, shown @ ..], printed) if empty.is_empty() => is_shown(shown, printed),
        (shown, [empty, printed @ ..]) if empty.is_empty() => is_shown(shown, printed),
        ([], printed) => printed.is_empty(),
        ([any, rest @ ..], printed) if any == ANY => {
            (0..=printed.len()).any(|from| is_shown(rest, &printed[from..]))
        }
        ([head, shown @ ..], [same, printed @ ..]) if head == same && is_head(head) => {
            let end = shown.iter().position(|line| line.is_empty() || line == ANY).unwrap_or(shown.len());
            let (rows, shown) = shown.split_at(end);
            without(rows, printed).is_some_and(|printed| is_shown(shown, &printed))
        }
        ([first, shown @ ..], [same, printed @ ..]) => first == same && is_shown(shown, printed),
        _ => false,
    }
}

const ANY: &str = "[...]";

/// Whether a line is the head of a table: words in capitals.
fn is_head(line: &str) -> bool {
    line.split(' ').count() > 1
        && line.contains(|letter: char| letter.is_ascii_uppercase())
        && !line.contains(|letter: char| letter.is_ascii_lowercase() || letter == '#')
}

/// Printed lines but for these rows of the table that they begin with, which may have another order; none if a row is not there.
fn without(rows: &[String], printed: &[String]) -> Option<Vec<String>> {
    let mut left = printed.to_vec();
    for row in rows {
        let at = left.iter().take_while(|line| !line.is_empty()).position(|line| line == row)?;
        left.remove(at);
    }
    Some(left)
}

fn all_masked<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    lines.map(masked).collect()
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
        let (shown, printed) = (all_masked(lines.iter().map(String::as_str)), all_masked(said.lines()));
        assert!(is_shown(&shown, &printed), "{command}\n{said}\n--- as\n{printed:#?}\n--- shown\n{shown:#?}");
    }
}

#[test]
fn any_lines_may_be_left_out() {
    let lines = |text: &str| all_masked(text.lines());
    assert!(is_shown(&lines("a 5\n[...]\nb"), &lines("a  17 us\nx\ny\nb")));
    assert!(is_shown(&lines("a\n[...]"), &lines("a")));
    assert!(!is_shown(&lines("a\n[...]\nb"), &lines("a\nx")));
    assert!(!is_shown(&lines("a"), &lines("a\nb")));
}

#[test]
fn rows_may_have_another_order() {
    let lines = |text: &str| all_masked(text.lines());
    let printed = "SHARE %  WHAT\n 60  b\n 40  a\n\nend";
    assert!(is_shown(&lines("SHARE %  WHAT\n 50  a\n 50  b\n\nend"), &lines(printed)));
    assert!(is_shown(
        &lines("SHARE %  WHAT\n 50  a\n[...]\nend"),
        &lines("SHARE %  WHAT\n 60  b\n 40  a\nend")
    ));
    assert!(!is_shown(&lines("SHARE %  WHAT\n 50  a\n\nend"), &lines(printed)));
    assert!(!is_shown(&lines("SHARE %  WHAT\n 50  a\n 50  a\n\nend"), &lines(printed)));
    assert!(!is_shown(&lines("end\nSHARE %  WHAT\n 50  a\n 50  b"), &lines(printed)));
}

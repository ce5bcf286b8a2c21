//! Callbacks of the line editor: whether the input is complete, completion, colours.

use super::commands;
use super::complete::{self, Facts};
use super::resize::Rows;
use crate::terminal::{columns, rows};
use anstyle::{AnsiColor, Style};
use lang::builtins::table;
use lang::syntax::parse::tokens;
use lang::syntax::parse::tokens::Kind;
use rustyline::completion::{Completer, FilenameCompleter, Pair, longest_common_prefix};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::{Hint, Hinter};
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Context, Result};
use std::borrow::Cow;
use unicode_width::UnicodeWidthStr;

/// Text before the line.
pub const PROMPT: &str = "cudatrace> ";

/// Callbacks of the line editor.
pub struct Helper {
    /// Sources of completion.
    pub facts: Facts,
    /// True if colours are enabled.
    pub color: bool,
    /// Rows on the screen.
    pub rows: Rows,
}

impl rustyline::Helper for Helper {}

/// Hint in an empty continuation line, which has no prompt.
pub struct ContinuationHint;

impl Hint for ContinuationHint {
    fn display(&self) -> &str {
        "... (an empty line ends it)"
    }

    /// The hint is not text to insert.
    fn completion(&self) -> Option<&str> {
        None
    }
}

impl Hinter for Helper {
    type Hint = ContinuationHint;

    /// Called before the editor shows a line.
    fn hint(&self, line: &str, cursor: usize, _: &Context<'_>) -> Option<ContinuationHint> {
        self.rows.show(PROMPT, line, cursor);
        (cursor == line.len() && is_last_line_empty(line)).then_some(ContinuationHint)
    }
}

/// Whether the last of several lines is empty except for its indentation.
fn is_last_line_empty(text: &str) -> bool {
    text.rsplit_once('\n').is_some_and(|(_, last)| last.trim().is_empty())
}

impl Validator for Helper {
    /// An empty line submits the text, complete or not.
    fn validate(&self, context: &mut ValidationContext) -> Result<ValidationResult> {
        let text = context.input();
        let sent = is_complete(text) || is_last_line_empty(text);
        Ok(if sent { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Completer for Helper {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, context: &Context) -> Result<(usize, Vec<Pair>)> {
        if complete::wants_file(&line[..at]) {
            let (start, found) = FilenameCompleter::new().complete(line, at, context)?;
            return Ok((start, fitting(found, columns(), rows())));
        }
        let (start, found) = complete::complete(&line[..at], &self.facts);
        let pair =
            |text: String| Pair { display: text.trim_end_matches(['(', ' ']).into(), replacement: text };
        Ok((start, fitting(found.into_iter().map(pair).collect(), columns(), rows())))
    }
}

/// The candidates that fit on the screen; the last entry counts the others, and completes their common prefix.
/// Longer lists would use the line editor's pager, which ignores Ctrl-C and consumes input.
fn fitting(mut candidates: Vec<Pair>, columns: usize, rows: usize) -> Vec<Pair> {
    const GAP: usize = 2;
    let widest = candidates.iter().map(|pair| pair.display.width()).max().unwrap_or(0).max(MORE_WIDTH);
    let room = (columns / (widest + GAP)).max(1) * rows.saturating_sub(1).max(1);
    if candidates.len() <= room {
        return candidates;
    }
    let common = longest_common_prefix(&candidates).unwrap_or_default().to_owned();
    let more = format!("... {} more", candidates.len() - (room - 1));
    candidates.truncate(room - 1);
    candidates.push(Pair { display: more, replacement: common });
    candidates
}

/// Width of the longest `... 12345 more` in columns.
const MORE_WIDTH: usize = 14;

const PROMPT_STYLE: Style = AnsiColor::Green.on_default().bold();
const HINT: Style = Style::new().dimmed();
const COMMAND: Style = AnsiColor::Magenta.on_default().bold();
const PROBE: Style = AnsiColor::Cyan.on_default();
const BUILTIN: Style = AnsiColor::Blue.on_default();
const MAP: Style = AnsiColor::Yellow.on_default();
const STRING: Style = AnsiColor::Green.on_default();

impl Highlighter for Helper {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        if !self.color {
            return Cow::Borrowed(line);
        }
        Cow::Owned(colored(line))
    }

    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        if self.color {
            Cow::Owned(format!("{PROMPT_STYLE}{prompt}{PROMPT_STYLE:#}"))
        } else {
            Cow::Borrowed(prompt)
        }
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        if self.color { Cow::Owned(format!("{HINT}{hint}{HINT:#}")) } else { Cow::Borrowed(hint) }
    }

    fn highlight_candidate<'c>(&self, candidate: &'c str, _: CompletionType) -> Cow<'c, str> {
        Cow::Borrowed(candidate)
    }

    /// The whole line is redrawn when it changes: terminals do not rewrap text that was written in parts.
    fn highlight_char(&self, _: &str, _: usize, kind: CmdKind) -> bool {
        kind != CmdKind::MoveCursor
    }
}

fn colored(line: &str) -> String {
    if let Some(command) = commands::split(line) {
        let rest = &line[line.find(command.0).map_or(0, |at| at + command.0.len())..];
        return format!("{COMMAND}{}{COMMAND:#}{rest}", &line[..line.len() - rest.len()]);
    }
    let (mut text, mut at) = (String::new(), 0);
    for token in tokens::tokens(line, 0) {
        let word = &line[token.start..token.end];
        text += &line[at..token.start];
        let style = style(token.kind, word);
        text += &format!("{style}{word}{style:#}");
        at = token.end;
    }
    text + &line[at..]
}

fn style(kind: Kind, word: &str) -> Style {
    match kind {
        Kind::Probe => PROBE,
        Kind::Str | Kind::OpenStr => STRING,
        Kind::Word if word.starts_with('@') => MAP,
        Kind::Word if complete::HOOKS.contains(&word) => PROBE,
        Kind::Word if table::find(word).is_some() => BUILTIN,
        _ => Style::new(),
    }
}

/// Whether the text is complete: no open bracket or comment, and no clause without its body.
pub fn is_complete(text: &str) -> bool {
    if commands::split(text).is_some() {
        return true;
    }
    let tokens: Vec<tokens::Token> = tokens::tokens(text, 0).collect();
    let word = |token: &tokens::Token| &text[token.start..token.end];
    if tokens::is_left_open(text) || tokens.iter().any(|token| token.kind == Kind::OpenComment) {
        return false;
    }
    let last_body = tokens.iter().rposition(|token| ["}", ">"].contains(&word(token)));
    let head = &tokens[last_body.map_or(0, |at| at + 1)..];
    !head.first().is_some_and(|token| token.kind == Kind::Probe || is_hook(word(token)))
}

fn is_hook(word: &str) -> bool {
    ["BEGIN", "END"].iter().any(|hook| hook.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_candidates_fits_the_screen() {
        let candidates = |count: usize| -> Vec<Pair> {
            let named = |number| format!("cuMem{number}");
            (0..count).map(named).map(|name| Pair { display: name.clone(), replacement: name }).collect()
        };
        assert_eq!(fitting(candidates(9), 80, 4).len(), 9);
        let listed = fitting(candidates(200), 80, 4);
        assert_eq!(listed.len(), 15, "five columns in three rows");
        assert_eq!(listed[14].display, "... 186 more");
        assert_eq!(longest_common_prefix(&listed), Some("cuMem"));
        assert_eq!(fitting(candidates(3), 5, 1).len(), 1);
    }

    #[test]
    fn colours_change_no_text() {
        for line in
            ["uprobe:libcuda:cuInit { @a[pid] = count(); printf(\"é\") } // c", ":show @a", "é \"open"]
        {
            let colored = colored(line);
            let styles = [COMMAND, PROBE, BUILTIN, MAP, STRING].into_iter();
            let codes = styles.flat_map(|style| [format!("{style}"), format!("{style:#}")]);
            assert_eq!(codes.fold(colored.clone(), |text, code| text.replace(&code, "")), line);
            assert_ne!(colored, line);
        }
    }

    #[test]
    fn open_input_continues() {
        for open in [
            "BEGIN {",
            "BEGIN",
            "uprobe:libcuda:cuInit",
            "uprobe:a:b { print(1)",
            "uprobe:a:b { print((1)",
            "/* c",
            "END /1 == 1/",
        ] {
            assert!(!is_complete(open), "{open}");
        }
    }

    #[test]
    fn closed_clauses_and_other_input_are_complete() {
        for closed in [
            "",
            "help",
            ":list",
            ":run ./a {",
            "BEGIN { }",
            "uprobe:a:b < @ = count() >",
            "#define A 1",
            "BEGIN { } }",
            "BEGIN { print((1); }",
            "// uprobe:a:b",
            "config = { max_map_keys = 3 }",
        ] {
            assert!(is_complete(closed), "{closed}");
        }
    }
}

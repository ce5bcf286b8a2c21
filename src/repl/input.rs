//! Input of the user: from the line editor at a terminal, or line by line from a pipe. Each is read by a thread of its own, which
//! wakes the session through a file descriptor.

use super::complete::Facts;
use super::edit::{Helper, PROMPT, is_complete};
use super::inputs::{Input, InputSender, Inputs, connect};
use super::resize::Rows;
use anyhow::Result;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{
    Cmd, ColorMode, CompletionType, Config, Editor, Event, EventHandler, KeyEvent, Modifiers, Movement,
};
use std::io::{self, BufRead};
use std::path::PathBuf;
use std::sync::mpsc::channel;

const HISTORY_LINES: usize = 5000;

/// A line editor with history and completion.
pub type LineEditor = Editor<Helper, FileHistory>;

/// Creates the editor for a terminal.
pub fn editor(facts: Facts, color: bool) -> Result<LineEditor> {
    let config = Config::builder()
        .max_history_size(HISTORY_LINES)?
        .history_ignore_dups(true)?
        .history_ignore_space(true)
        .completion_type(CompletionType::List)
        // The list fits on the screen, so it needs no question and no pager.
        .completion_prompt_limit(usize::MAX)
        // The highlighter decides about colours; this setting enables it.
        .color_mode(ColorMode::Forced)
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(Helper { facts, color, rows: Rows::default() }));
    editor.bind_sequence(KeyEvent::ctrl('C'), EventHandler::Conditional(Box::new(ClearOrInterrupt)));
    editor.bind_sequence(
        KeyEvent::new('\r', Modifiers::NONE),
        EventHandler::Conditional(Box::new(ContinueLine)),
    );
    if let Some(path) = history_path() {
        // The first session has no history.
        let _ = editor.load_history(&path);
    }
    Ok(editor)
}

/// Enter inserts an indented line if the text is incomplete.
struct ContinueLine;

impl rustyline::ConditionalEventHandler for ContinueLine {
    fn handle(
        &self,
        _: &Event,
        _: rustyline::RepeatCount,
        _: bool,
        context: &rustyline::EventContext,
    ) -> Option<Cmd> {
        let is_at_end = context.pos() == context.line().len();
        let indent = continued(context.line()).filter(|_| is_at_end)?;
        Some(Cmd::Insert(1, format!("\n{indent}")))
    }
}

const INDENT: &str = "    ";

/// The indentation of the line after this text; `None` if the text is complete, or ends with an empty line, which
/// submits it.
fn continued(text: &str) -> Option<String> {
    let is_sent = is_complete(text) || text.rsplit_once('\n').is_some_and(|(_, last)| last.trim().is_empty());
    let count = |brackets: [char; 3]| text.matches(brackets).count();
    let depth = count(['{', '(', '[']).saturating_sub(count(['}', ')', ']']));
    (!is_sent).then(|| INDENT.repeat(depth.max(1)))
}

/// Ctrl-C discards the current text; with an empty line it interrupts the session.
struct ClearOrInterrupt;

impl rustyline::ConditionalEventHandler for ClearOrInterrupt {
    fn handle(
        &self,
        _: &Event,
        _: rustyline::RepeatCount,
        _: bool,
        context: &rustyline::EventContext,
    ) -> Option<Cmd> {
        Some(if context.line().is_empty() { Cmd::Interrupt } else { Cmd::Kill(Movement::WholeBuffer) })
    }
}

/// Reads from the terminal until Ctrl-D.
pub fn from_terminal(editor: LineEditor) -> io::Result<Inputs> {
    let (typed, inputs) = connect(None)?;
    std::thread::spawn(move || edit(editor, &typed));
    Ok(inputs)
}

fn edit(mut editor: LineEditor, typed: &InputSender) {
    let history = history_path();
    loop {
        match editor.readline(PROMPT) {
            Ok(text) => {
                if editor.add_history_entry(text.as_str()).unwrap_or(false)
                    && let Some(path) = &history
                {
                    // The history still works if it cannot be saved.
                    let _ = editor.append_history(path);
                }
                typed.send(Input::Text(text));
            }
            Err(ReadlineError::Interrupted) => typed.send(Input::Interrupt),
            Err(_) => break,
        }
    }
    drop(editor);
    typed.send(Input::End);
}

/// `~/.local/state/cudatrace/history`, according to XDG; creates its folder.
fn history_path() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = variable("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let folder = state.or_else(|| Some(variable("HOME")?.join(".local/state")))?.join("cudatrace");
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder.join("history"))
}

/// Reads standard input to its end, one clause or command at a time.
pub fn from_pipe() -> io::Result<Inputs> {
    let (next, done) = channel();
    let (typed, inputs) = connect(Some(next))?;
    std::thread::spawn(move || {
        let mut text = String::new();
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            text += &line;
            text.push('\n');
            if is_complete(&text) {
                typed.send(Input::Text(std::mem::take(&mut text)));
                // The session has ended, so the remaining input is ignored.
                if done.recv().is_err() {
                    return;
                }
            }
        }
        if !text.trim().is_empty() {
            typed.send(Input::Text(text));
            let _ = done.recv();
        }
        typed.send(Input::End);
    });
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continued_input_is_indented() {
        assert_eq!(continued("BEGIN {").as_deref(), Some("    "));
        assert_eq!(continued("uprobe:libcuda:cuInit").as_deref(), Some("    "));
        assert_eq!(continued("BEGIN {\n    if (1) {").as_deref(), Some("        "));
        assert_eq!(continued("BEGIN { }"), None);
        assert_eq!(continued("BEGIN {\n    "), None, "an empty line sends what is there");
    }
}

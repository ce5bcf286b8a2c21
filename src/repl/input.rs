//! Input of the user: from the line editor at a terminal, or line by line from a pipe. Each is read by a thread of its own, which
//! wakes the session through a file descriptor.

use super::commands;
use super::complete::Facts;
use super::edit::Helper;
use super::resize::Rows;
use anyhow::Result;
use lang::syntax::parse::tokens;
use lang::syntax::parse::tokens::Kind;
use rustix::event::{EventfdFlags, eventfd};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{
    Cmd, ColorMode, CompletionType, Config, Editor, Event, EventHandler, KeyEvent, Modifiers, Movement,
};
use std::io::{self, BufRead};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Text before the line.
pub const PROMPT: &str = "cudatrace> ";
const HISTORY_LINES: usize = 5000;

/// Input of the user.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// A clause, a command, or several of them.
    Text(String),
    /// Ctrl-C on an empty line.
    Interrupt,
    /// Ctrl-D, or the end of the pipe.
    End,
}

/// The session's end of the channel.
pub struct Inputs {
    typed: Receiver<Input>,
    wake: Arc<OwnedFd>,
    /// A pipe waits for the end of the last command; a terminal does not.
    next: Option<Sender<()>>,
}

impl Inputs {
    /// Descriptor that is readable when there is input.
    pub fn fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    /// The next input.
    pub fn take(&self) -> Option<Input> {
        // An eventfd in semaphore mode counts down by one.
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        self.typed.try_recv().ok()
    }

    /// Marks the last input as processed.
    pub fn done(&self) {
        if let Some(next) = &self.next {
            let _ = next.send(());
        }
    }
}

/// The input thread's end of the channel.
struct Typed {
    typed: Sender<Input>,
    wake: Arc<OwnedFd>,
}

impl Typed {
    fn send(&self, input: Input) {
        let _ = self.typed.send(input);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

fn connect(next: Option<Sender<()>>) -> io::Result<(Typed, Inputs)> {
    let wake =
        Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE)?);
    let (sender, receiver) = channel();
    Ok((Typed { typed: sender, wake: Arc::clone(&wake) }, Inputs { typed: receiver, wake, next }))
}

/// A line editor with history and completion.
pub type LineEditor = Editor<Helper, FileHistory>;

/// Creates the editor for a terminal.
///
/// # Errors
/// The terminal does not support editing.
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
    editor.bind_sequence(KeyEvent::new('\r', Modifiers::NONE), EventHandler::Conditional(Box::new(Continue)));
    if let Some(path) = history_path() {
        // The first session has no history.
        let _ = editor.load_history(&path);
    }
    Ok(editor)
}

/// Enter inserts an indented line if the text is incomplete.
struct Continue;

impl rustyline::ConditionalEventHandler for Continue {
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
///
/// # Errors
/// No descriptor is available.
pub fn from_terminal(editor: LineEditor) -> io::Result<Inputs> {
    let (typed, inputs) = connect(None)?;
    std::thread::spawn(move || edit(editor, &typed));
    Ok(inputs)
}

fn edit(mut editor: LineEditor, typed: &Typed) {
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
///
/// # Errors
/// No descriptor is available.
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

/// Whether the text is complete: no open bracket or comment, and no clause without its body.
pub fn is_complete(text: &str) -> bool {
    if commands::split(text).is_some() {
        return true;
    }
    let tokens: Vec<tokens::Token> = tokens::tokens(text, 0).collect();
    let word = |token: &tokens::Token| &text[token.start..token.end];
    let is_open = tokens::unmatched(text).is_some_and(|token| ["{", "(", "["].contains(&word(&token)));
    if is_open || tokens.iter().any(|token| token.kind == Kind::OpenComment) {
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
    fn what_is_open_continues() {
        for open in
            ["BEGIN {", "BEGIN", "uprobe:libcuda:cuInit", "uprobe:a:b { print((1)", "/* c", "END /1 == 1/"]
        {
            assert!(!is_complete(open), "{open}");
        }
    }

    #[test]
    fn what_continues_is_indented() {
        assert_eq!(continued("BEGIN {").as_deref(), Some("    "));
        assert_eq!(continued("uprobe:libcuda:cuInit").as_deref(), Some("    "));
        assert_eq!(continued("BEGIN {\n    if (1) {").as_deref(), Some("        "));
        assert_eq!(continued("BEGIN { }"), None);
        assert_eq!(continued("BEGIN {\n    "), None, "an empty line sends what is there");
    }

    #[test]
    fn what_is_closed_or_no_clause_is_complete() {
        for closed in [
            "",
            "help",
            ":list",
            ":run ./a {",
            "BEGIN { }",
            "uprobe:a:b < @ = count() >",
            "#define A 1",
            "BEGIN { } }",
            "// uprobe:a:b",
            "config = { max_map_keys = 3 }",
        ] {
            assert!(is_complete(closed), "{closed}");
        }
    }
}

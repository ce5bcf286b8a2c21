//! Keeps the input intact when the width of the terminal changes.
//!
//! A terminal re-wraps the line; the line editor clears the rows of the old width, and so leaves some of the text, or removes some of
//! the output above it. Before it clears, it requests a hint: at that point we erase the old text and place the cursor where
//! the editor expects it.
//!
//! ```text
//! 60 columns   cudatrace> uprobe:libc:malloc { @ = count() }      1 row: the editor clears 1
//! 30 columns   cudatrace> uprobe:libc:malloc                      2 rows now
//!               { @ = count() }
//! ```

use crate::terminal::columns;
use std::cell::RefCell;
use std::env;
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// State of the rows that the editor has filled.
#[derive(Default)]
pub struct Rows {
    known: RefCell<Option<ShownLine>>,
}

/// The line that the editor showed last.
struct ShownLine {
    columns: usize,
    line: String,
}

/// Row and column relative to the start of the prompt.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct CellPosition {
    row: usize,
    column: usize,
}

impl Rows {
    /// Called before the editor shows a line with the cursor at a byte of it.
    pub fn show(&self, prompt: &str, line: &str, cursor: usize) {
        let columns = columns();
        let known = self.known.replace(Some(ShownLine { columns, line: line.to_owned() }));
        let Some(known) = known.filter(|known| known.line == line && known.columns != columns) else {
            return;
        };
        let whole = format!("{prompt}{line}");
        let before = &whole[..prompt.len() + cursor];
        if let Some(moves) = moves([before, &whole], known.columns, columns).filter(|_| wraps_anew()) {
            let mut out = io::stdout();
            // Errors of the terminal are handled elsewhere.
            let _ = out.write_all(moves.as_bytes()).and_then(|()| out.flush());
        }
    }
}

/// The escape sequence that clears the text and moves the cursor to its position at the old width; `None` if the
/// editor will not clear the old text.
fn moves([before, whole]: [&str; 2], old: usize, new: usize) -> Option<String> {
    let (cursor, end) = (place(before, old), place(whole, old));
    if end.row == 0 && end.column < new {
        return None;
    }
    // After a text that fills its last row, the editor begins a new row, which stays at any width.
    let filled = end.column == 0 && end.row > 0 && !whole.ends_with('\n') && before.len() == whole.len();
    let now = place(before, new);
    let row = now.row + usize::from(filled && now.column > 0);
    let up = |rows: usize| if rows > 0 { format!("\x1b[{rows}A") } else { String::new() };
    let erased = format!("{}\r\x1b[J", up(row));
    // Newlines make room at the end of the screen; moving the cursor down does not.
    Some(format!("{erased}{}{}", "\n".repeat(end.row), up(end.row - cursor.row)))
}

/// The end position of a text that begins at the left edge, as the editor computes it.
fn place(text: &str, columns: usize) -> CellPosition {
    let mut at = CellPosition { row: 0, column: 0 };
    let mut utf8 = [0; 4];
    for c in text.chars() {
        let width = match c {
            '\n' => {
                at = CellPosition { row: at.row + 1, column: 0 };
                continue;
            }
            '\t' => TAB - at.column % TAB,
            c => c.encode_utf8(&mut utf8).width(),
        };
        at.column += width;
        if at.column > columns {
            at = CellPosition { row: at.row + 1, column: width };
        }
    }
    if at.column == columns { CellPosition { row: at.row + 1, column: 0 } } else { at }
}

/// Width of a tab in the editor.
const TAB: usize = 8;

/// Whether the terminal rewraps lines. Most terminals do; xterm, the console and `screen` truncate lines or leave
/// them unchanged.
fn wraps_anew() -> bool {
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    let term = env::var("TERM").unwrap_or_default();
    is_set("TMUX") || !(is_set("XTERM_VERSION") || term == "linux" || term.starts_with("screen"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_wraps_at_the_edge() {
        let at = |text: &str, columns| {
            let CellPosition { row, column } = place(text, columns);
            (row, column)
        };
        assert_eq!(at("abc", 4), (0, 3));
        assert_eq!(at("abcd", 4), (1, 0));
        assert_eq!(at("abcde", 4), (1, 1));
        assert_eq!(at("ab\ncd", 4), (1, 2));
        assert_eq!(at("日本語", 4), (1, 2));
        assert_eq!(at("abc日", 4), (1, 2), "a wide character does not lie on both sides of the edge");
    }

    #[test]
    fn the_text_is_erased_at_the_new_width_and_the_cursor_is_placed_as_at_the_old_one() {
        let text = "x".repeat(50);
        let whole = [text.as_str(), text.as_str()];
        assert_eq!(moves(whole, 100, 80), None, "it fits: the editor does nothing");
        assert_eq!(moves(whole, 100, 20).as_deref(), Some("\x1b[2A\r\x1b[J"));
        assert_eq!(moves(whole, 20, 100).as_deref(), Some("\r\x1b[J\n\n"));
        assert_eq!(
            moves(whole, 25, 100).as_deref(),
            Some("\x1b[1A\r\x1b[J\n\n"),
            "the cursor stands below it"
        );
        assert_eq!(moves([&text[..5], &text], 20, 10).as_deref(), Some("\r\x1b[J\n\n\x1b[2A"));
    }
}

//! The size of the terminal, and wrapping of text.

use rustix::termios::{Winsize, tcgetwinsize};

/// Width of standard output in columns: that of the terminal, otherwise COLUMNS, otherwise 80.
pub fn columns() -> usize {
    known_columns().unwrap_or(80)
}

/// Width of standard output in columns: that of the terminal, otherwise COLUMNS.
pub fn known_columns() -> Option<usize> {
    length(|size| size.ws_col, "COLUMNS")
}

/// Height of standard output in rows: that of the terminal, otherwise LINES, otherwise 24.
pub fn rows() -> usize {
    length(|size| size.ws_row, "LINES").unwrap_or(24)
}

fn length(side: fn(Winsize) -> u16, variable: &str) -> Option<usize> {
    let of_terminal = tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(side(size)));
    let set = || std::env::var(variable).ok()?.parse().ok();
    of_terminal.filter(|length| *length > 0).or_else(|| set().filter(|length| *length > 0))
}

/// Wraps a text to lines of at most `width` columns; lines after the first are indented by `indent` blanks.
pub fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let used = if lines.len() == 1 { 0 } else { indent };
        let line = lines.last_mut().expect("one from the start");
        match line.is_empty() {
            true => line.push_str(word),
            false if used + line.chars().count() + 1 + word.chars().count() <= width => {
                *line += &format!(" {word}")
            }
            false => lines.push(word.to_owned()),
        }
    }
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

/// A name in a column of this width, and its description, wrapped to the width of standard output.
pub fn entry(name: &str, width: usize, doc: &str) -> String {
    entry_within(columns(), name, width, doc)
}

fn entry_within(columns: usize, name: &str, width: usize, doc: &str) -> String {
    const GAP: usize = 2;
    let indent = GAP + width + GAP;
    // A longer name has a line of its own.
    let begin = match name.chars().count() > width {
        true => format!("  {name}\n{}", " ".repeat(indent)),
        false => format!("  {name:<width$}  "),
    };
    let doc = wrap(doc, columns.saturating_sub(indent).max(20), 0);
    format!("{begin}{}\n", doc.replace('\n', &format!("\n{}", " ".repeat(indent))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_wrapped_whole() {
        assert_eq!(wrap("a few words here", 20, 2), "a few words here");
        assert_eq!(wrap("a few words here", 11, 2), "a few words\n  here");
        assert_eq!(wrap("incomprehensible", 4, 2), "incomprehensible");
    }

    #[test]
    fn descriptions_are_wrapped_beside_their_names() {
        let entry = |name| entry_within(30, name, 4, "a few words, and some more");
        assert_eq!(entry("name"), "  name  a few words, and some\n        more\n");
        assert_eq!(entry("longer"), "  longer\n        a few words, and some\n        more\n");
    }
}

//! Error recovery: continues at the next statement, in the body of a clause whose head is wrong, or at the next item.
//!
//! The broken part is overwritten with blanks and the item is parsed again. Spans stay valid and the grammar needs no rules for
//! mistakes. The blanked part is chosen so that the rest is not an error as a consequence:
//!
//! ```text
//! BEGIN { $x = ; if $y = = 2 { print(1.5) } else { } }
//! BEGIN {                    { print(1.5) }      { } }
//! ```

use crate::syntax::parse::mistake::Mistake;
use crate::syntax::parse::tokens::statement_start;
use std::ops::Range;

use super::tokens::{Kind, Token, begins_item, next, starts_line, tokens};
use crate::syntax::parse::foreign_syntax::FOREIGN;

/// Statements whose body follows in braces: without their head the body is a block.
const HEADS: &[&str] = &["if", "else", "elsif", "elif", "elseif", "while", "for", "foreach", "unroll"];

/// Statements that are removed with their body.
const WHOLE: &[&str] = &["do", "switch"];

/// Items whose braces do not contain statements.
const NO_CLAUSE: &[&str] = &["config", "let", "metric", "import", "struct", "union", "enum", "typedef"];

/// The position to continue after an error in the item at `at`: before the next line that begins an item, or after
/// a `}` that closes all brackets and is followed by an item or the end.
pub(super) fn next_item(text: &str, at: usize) -> usize {
    let mut depth = 0usize;
    let mut last = at;
    for token in tokens(text, at) {
        if token.start > at && starts_line(text, token.start) && begins_item(text, token) {
            return token.start;
        }
        if depth == 0 && text[at..last].ends_with('}') && begins_item(text, token) {
            return token.start;
        }
        match &text[token.start..token.end] {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        last = token.end;
    }
    text.len()
}

/// Whether the text after a repaired item at `at` looks like another item: it begins a line with a word.
pub(super) fn rest_is_an_item(item: &str, at: usize) -> bool {
    next(item, at)
        .is_some_and(|token| matches!(token.kind, Kind::Word | Kind::Probe) && starts_line(item, token.start))
}

/// Removes an error from the item's text, whose length does not change. False if nothing is left to parse.
pub(super) fn repair(item: &mut String, mistake: Mistake) -> bool {
    if mistake.separator && separate(item, mistake.at) {
        return true;
    }
    match statement_start(item, mistake.at) {
        Some(start) => leave_out_statement(item, start, mistake.at),
        None => leave_out_head(item, mistake.at),
    }
}

/// Replaces the blank before the statement at `at` by a `;`.
fn separate(item: &mut String, at: usize) -> bool {
    let Some(token) = next(item, at) else { return false };
    let Some(before) = tokens(item, 0).take_while(|before| before.start < token.start).last() else {
        return false;
    };
    let blank = item[before.end..].starts_with([' ', '\t', '\n', '\r']);
    if !blank || !begins_statement(item, token) {
        return false;
    }
    item.replace_range(before.end..before.end + 1, ";");
    true
}

fn begins_statement(item: &str, token: Token) -> bool {
    let word = &item[token.start..token.end];
    let call = || next(item, token.end).is_some_and(|then| item[then.start..].starts_with('('));
    let known = ["if", "while", "for", "unroll", "let", "return", "break", "continue"];
    token.kind == Kind::Word && (word.starts_with(['$', '@']) || known.contains(&word) || call())
}

/// Blanks the statement from `start` on, or only its head if a body follows.
fn leave_out_statement(item: &mut String, start: usize, at: usize) -> bool {
    let mut end = statement_end(item, start, at);
    // An `if` without braces ends before its `else`.
    while let Some(token) = next(item, end).filter(|token| &item[token.start..token.end] == "else")
        && !item[..end].ends_with('}')
        && !item[end..].starts_with('{')
    {
        end = statement_end(item, token.start, token.start);
    }
    if item[end..].starts_with('{')
        && let Some(orphan) = orphan(item, end)
    {
        blank(item, orphan);
    }
    blank(item, start..end)
}

/// The end of the broken statement: after its `;`, before the enclosing `}`, before its own body, or before a line
/// that looks like the next statement.
fn statement_end(item: &str, start: usize, at: usize) -> usize {
    let mut depth = 0usize;
    let first = next(item, start).map_or("", |token| &item[token.start..token.end]);
    let head = HEADS.contains(&first);
    let mut parens = 0i32;
    for token in tokens(item, start) {
        if token.start >= at && new_line(item, start, token) {
            return token.start;
        }
        if token.kind == Kind::OpenStr {
            return token.end;
        }
        match &item[token.start..token.end] {
            "{" if depth == 0 && !WHOLE.contains(&first) && (head || parens <= 0 && token.start > at) => {
                return token.start;
            }
            "{" => depth += 1,
            "}" if depth == 0 => return token.start,
            "}" => depth -= 1,
            ";" if depth == 0 && !(head && parens > 0) => return token.end,
            "(" | "[" => parens += 1,
            ")" | "]" => parens -= 1,
            _ => {}
        }
    }
    item.len()
}

/// Whether the token begins a line, and a statement with balanced brackets.
fn new_line(item: &str, start: usize, token: Token) -> bool {
    token.start > start
        && starts_line(item, token.start)
        && begins_statement(item, token)
        && item[start..token.start].contains(|c: char| !c.is_whitespace())
        && balanced(item, token.start)
}

/// Whether the brackets from `at` to the next `;` or `}` are balanced.
fn balanced(item: &str, at: usize) -> bool {
    let mut depth = 0i32;
    for token in tokens(item, at) {
        match &item[token.start..token.end] {
            "(" | "[" => depth += 1,
            ")" | "]" => depth -= 1,
            ";" | "{" | "}" => break,
            _ => {}
        }
        if depth < 0 {
            return false;
        }
    }
    depth == 0
}

/// The `else` after the block at `open`, whose `if` was removed.
fn orphan(item: &str, open: usize) -> Option<Range<usize>> {
    let mut depth = 0usize;
    let mut all = tokens(item, open);
    for token in all.by_ref() {
        match &item[token.start..token.end] {
            "{" => depth += 1,
            "}" if depth == 1 => break,
            "}" => depth -= 1,
            _ => {}
        }
    }
    all.next().filter(|token| &item[token.start..token.end] == "else").map(|token| token.start..token.end)
}

/// Replaces the head of a clause by the shortest valid one.
fn leave_out_head(item: &mut String, at: usize) -> bool {
    let Some(first) = next(item, 0) else { return false };
    let word = &item[first.start..first.end];
    let clause = !NO_CLAUSE.contains(&word) && !FOREIGN.iter().any(|(name, _)| *name == word);
    let after_separator = |start: usize| item[..start].ends_with([' ', '\t', '\n', '/', '"']);
    let opens = |token: &Token| {
        token.start >= at && &item[token.start..token.end] == "{" && after_separator(token.start)
    };
    let body = tokens(item, 0).find(opens).map(|token| token.start);
    let Some(body) = body.filter(|&body| clause && body > first.start) else { return false };
    let changed = blank(item, first.start..body);
    item.replace_range(first.start..first.start + 1, "x");
    changed
}

/// Overwrites a range with blanks; newlines stay. False if it was blank before.
fn blank(item: &mut String, range: Range<usize>) -> bool {
    let old = &item[range.clone()];
    let some = old.contains(|c: char| !c.is_whitespace());
    let new: String = old.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
    item.replace_range(range, &new);
    some
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_next_clause() {
        let text = "BEGIN { print(1 }\nEND { }";
        assert_eq!(&text[next_item(text, 0)..], "END { }");
        let text = "BEGIN { if x { y } z) } END { }";
        assert_eq!(&text[next_item(text, 0)..], "END { }");
        let text = "BEGIN { if x { \nuprobe:a:b { }";
        assert_eq!(&text[next_item(text, 0)..], "uprobe:a:b { }");
    }

    /// The tokens that remain after repair; the error is at `^`.
    fn repaired(text: &str, separator: bool) -> String {
        let at = text.find('^').unwrap();
        let mut item = text.replace('^', "");
        let (length, lines) = (item.len(), item.lines().count());
        assert!(repair(&mut item, Mistake { at, separator }), "{text}");
        assert_eq!((item.len(), item.lines().count()), (length, lines), "{text}");
        item.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn leaves_out_what_is_broken_and_no_more() {
        for (text, left) in [
            ("B { $x = ^; y }", "B { y }"),
            ("B { y; $x = ^ }", "B { y; }"),
            ("B { if $y = ^= 2 { z } w }", "B { { z } w }"),
            ("B { if $y = ^= 2 { z } else if 1 { } w }", "B { { z } if 1 { } w }"),
            ("B { print(1\n^print(2); }", "B { print(2); }"),
            ("B { print(1\n^$x); y }", "B { y }"),
            ("B { if x ^a(1); else b(2); y }", "B { y }"),
            ("B { if x ^a(1); else if z { b } y }", "B { { b } y }"),
            ("B { for (i^ = 0; i < 3; i++) { y } }", "B { { y } }"),
            ("B { a; { $x = ^; b } }", "B { a; { b } }"),
            ("B < a; $x = ^; b >", "B < a; b >"),
            ("u:a: ^/pid/ { b }", "x { b }"),
            ("u:a:b /(pid^ / { b }", "x { b }"),
        ] {
            assert_eq!(repaired(text, false), left, "{text}");
        }
        assert_eq!(repaired("B { a(1) ^b(2) }", true), "B { a(1);b(2) }");
        assert_eq!(repaired("B { a // c\n^b(2) }", true), "B { a;// c b(2) }");
    }
}

//! Rules for blanks and line breaks, by token, in tables. The default between two tokens is a blank.

use super::tokens::Token;
use crate::syntax::parse::grammar::Rule;

/// Tokens without a blank before them.
const TIGHT_BEFORE: &[&str] = &[")", "]", ",", ";", ".", "->", ".."];

/// Tokens without a blank after them.
const TIGHT_BEHIND: &[&str] = &["(", "[", ".", "->", ".."];

/// Keywords before a parenthesis that are not functions.
const SPACED: &[&str] = &["if", "else", "while", "for", "unroll", "return", "in", "let", "comptime"];

/// Tokens that would merge without a blank: `- -x`, `& &x`.
const MERGING: &[(&str, char)] = &[("-", '-'), ("&", '&'), ("+", '+')];

/// Whether there is a blank between two tokens on a line.
pub(super) fn blank_between(before: &Token, token: &Token) -> bool {
    if MERGING.iter().any(|(mark, next)| before.text == *mark && token.text.starts_with(*next)) {
        return true;
    }
    if before.opens && token.closes {
        return true;
    }
    let tight = token.glued_before
        || before.glued_behind
        || TIGHT_BEFORE.contains(&token.text)
        || TIGHT_BEHIND.contains(&before.text)
        || token.text == "(" && takes_arguments(before)
        || token.text == "[" && takes_position(before)
        || token.text == ":" && before.text == "?"
        // `char *name`
        || before.rule == Some(Rule::stars) && is_name(token);
    !tight
}

/// Whether a line break of the source between two tokens is kept.
pub(super) fn may_break(before: &Token, token: &Token) -> bool {
    blank_between(before, token) || matches!(before.text, "(" | "[") || matches!(token.text, ")" | "]")
}

fn takes_arguments(before: &Token) -> bool {
    is_name(before) && !SPACED.contains(&before.text)
}

fn takes_position(before: &Token) -> bool {
    is_name(before) || matches!(before.text, ")" | "]") || before.rule == Some(Rule::string)
}

fn is_name(token: &Token) -> bool {
    token.text.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '@')
}

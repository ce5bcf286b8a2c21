//! Rules for blanks and line breaks, by token, in tables. The default between two tokens is a blank.

use super::tokens::Token;
use crate::syntax::parse::Rule;

/// No blank before these.
const TIGHT_BEFORE: &[&str] = &[")", "]", ",", ";", ".", "->", ".."];

/// No blank behind these.
const TIGHT_BEHIND: &[&str] = &["(", "[", ".", "->", ".."];

/// Words before a parenthesis that are no functions.
const SPACED: &[&str] = &["if", "else", "while", "for", "unroll", "return", "in", "let"];

/// Marks that would become another one side by side: `- -x`, `& &x`.
const MERGING: &[(&str, char)] = &[("-", '-'), ("&", '&'), ("+", '+')];

/// Whether a blank stands between two words on a line.
pub fn blank_between(before: &Token, token: &Token) -> bool {
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

/// Whether a line end of the source between two words is kept.
pub fn may_break(before: &Token, token: &Token) -> bool {
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

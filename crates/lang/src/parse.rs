//! Text to AST: a pest grammar reads, `build` turns its pairs into nodes, `explain` words what went wrong.
//!
//! Positional parameters are replaced here: `$1` is a number if it looks so, else a string; an unset one is 0.
//! Not here: whether names exist, types, what a provider wants of its parts.
//!
//! After a mistake the parser goes on at the next clause, so that one run reports all of them. Time is linear in the
//! length of the script, and nesting is limited rather than the stack exhausted.

mod build;
mod explain;
mod literal;
mod tokens;

use pest::Parser as _;
use pest::error::{ErrorVariant, InputLocation};

use crate::ast::{Expr, ExprKind, Item, Script, UnaryOp};
use crate::diagnostic::Diagnostics;
use crate::span::{Source, Span};
use build::Builder;

/// The grammar; pest derives the rules.
mod grammar {
    #![allow(missing_docs)]
    #[derive(pest_derive::Parser)]
    #[grammar = "grammar.pest"]
    pub(super) struct Grammar;
}

use grammar::{Grammar, Rule};
type Pair<'a> = pest::iterators::Pair<'a, Rule>;
type PestError = Box<pest::error::Error<Rule>>;

/// Clauses with mistakes that are reported; a text with more is hardly a script.
const MAX_BROKEN_ITEMS: usize = 20;

/// Levels of nesting, over brackets, operators, branches and blocks together. Each later stage walks the tree by
/// recursion and relies on it.
pub const MAX_DEPTH: usize = 250;

/// A word of the command line as a number: `20`, `-3`, `0x1f`, `10ms`.
pub fn word_as_number(text: &str, span: Span) -> Option<ExprKind> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let kind = digits.starts_with(|c: char| c.is_ascii_digit()).then(|| literal::number(digits).ok())??;
    let expr = Box::new(Expr { kind: kind.clone(), span });
    Some(if digits == text { kind } else { ExprKind::Unary { op: UnaryOp::Neg, expr } })
}

/// Reads a script; `params` are the words that `$1`, `$2` ... stand for. `None` if `diags` got an error.
pub fn parse(src: &Source, params: &[String], diags: &mut Diagnostics) -> Option<Script> {
    let errors_before = diags.list.len();
    let mut builder = Builder::new(params, diags);
    let mut items = Vec::new();
    let mut at = 0;
    for _ in 0..MAX_BROKEN_ITEMS {
        at = read_items(&src.text, at, &mut builder, &mut items);
        if at == src.text.len() {
            break;
        }
        at = read_mistake(&src.text, at, items.last(), builder.diags);
    }
    let mut new = diags.list[errors_before..].iter();
    (!new.any(|d| d.severity == crate::Severity::Error)).then_some(Script { items })
}

/// Reads items from `at` on, as many as are right, and returns where they end; the length of the text when all were.
fn read_items(text: &str, at: usize, builder: &mut Builder, items: &mut Vec<Item>) -> usize {
    let rest = tokens::skip_space(text, at);
    let pairs = match Grammar::parse(Rule::items, &text[rest..]) {
        Ok(pairs) => pairs,
        Err(error) => {
            let place = rest + position(&error);
            build::too_deep(Span::new(place, next_char(text, place)), builder.diags);
            return text.len();
        }
    };
    let mut end = rest;
    builder.base = rest;
    for pair in pairs.flat_map(Pair::into_inner) {
        end = rest + pair.as_span().end();
        items.extend(builder.item(pair));
    }
    tokens::skip_space(text, end)
}

/// Reports what is wrong with the item at `at`, and returns where the next one begins.
fn read_mistake(text: &str, at: usize, before: Option<&Item>, diags: &mut Diagnostics) -> usize {
    let end = tokens::recover(text, at);
    if !explain::closed_early(text, at, before, diags) {
        let error = Grammar::parse(Rule::item_alone, &text[at..end]).err().map(Box::new);
        explain::explain(text, at..end, error, diags);
    }
    end
}

fn position(error: &pest::error::Error<Rule>) -> usize {
    match error.location {
        InputLocation::Pos(at) | InputLocation::Span((at, _)) => at,
    }
}

/// What pest expected at the furthest place it came to.
fn expected(error: &pest::error::Error<Rule>) -> &[Rule] {
    match &error.variant {
        ErrorVariant::ParsingError { positives, .. } => positives,
        ErrorVariant::CustomError { .. } => &[],
    }
}

fn next_char(text: &str, at: usize) -> usize {
    at + text.get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8)
}

#[cfg(test)]
mod tests;

//! Text to syntax tree: a pest grammar parses, `build` converts its pairs to nodes, `errors` writes the messages.
//!
//! Positional parameters are substituted here: `$1` is a number if it looks like one, else a string; an unset one is 0.
//! Not here: whether names exist, types, the parts of a probe.
//!
//! After a mistake the parser continues at the next statement or clause (`recover`), so that one run reports all of them.
//! Time is linear in the length of the script. Nesting is limited, so that the stack cannot overflow.

mod build;
mod condition;
pub(crate) mod conditionals;
mod depth;
mod errors;
mod foreign_syntax;
pub(crate) mod grammar;
mod headers;
mod literal;
mod mistake;
mod recover;
pub mod tokens;
mod types;

use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::source::span::{Source, Span};
use crate::syntax::FindBuiltin;
use crate::syntax::ast::{Expr, ExprKind, Item, Script, UnaryOp};
use build::Builder;
use grammar::{Pair, Rule, expected, position};
use mistake::BrokenItem;

pub(crate) use literal::whole_number;

/// Largest number of items with errors that are reported.
const MAX_BROKEN_ITEMS: usize = 200;

/// Largest number of errors per item; each requires parsing it again.
const MAX_MISTAKES: usize = 20;

/// Parses a word of the command line as a number: `20`, `-3`, `0x1f`, `10ms`.
pub fn word_as_number(text: &str, span: Span) -> Option<ExprKind> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let kind = digits.starts_with(|c: char| c.is_ascii_digit()).then(|| literal::number(digits).ok())??;
    let expr = Box::new(Expr { kind: kind.clone(), span });
    Some(if digits == text { kind } else { ExprKind::Unary { op: UnaryOp::Neg, expr } })
}

/// Codes of errors in values, which do not affect the structure of the script.
const OF_VALUES: &[&str] = &["E0004", "E0005", "E0006", "E0009"];

/// Parses a script even if values in it are invalid, so that later stages can report further errors. `None` if its
/// structure is invalid.
pub fn parse_form(
    src: &Source,
    params: &[String],
    builtins: FindBuiltin,
    diags: &mut Diagnostics,
) -> Option<Script> {
    let (script, new) = read(src, params, builtins, diags);
    (!new.iter().any(|d| d.severity == crate::Severity::Error && !OF_VALUES.contains(&d.code)))
        .then_some(script)
}

/// Parses a script; `params` are the values of `$1`, `$2` ... `None` if there were errors.
pub fn parse(
    src: &Source,
    params: &[String],
    builtins: FindBuiltin,
    diags: &mut Diagnostics,
) -> Option<Script> {
    let (script, new) = read(src, params, builtins, diags);
    (!new.iter().any(|d| d.severity == crate::Severity::Error)).then_some(script)
}

/// The valid part of a script, and its diagnostics.
fn read<'d>(
    src: &Source,
    params: &[String],
    builtins: FindBuiltin,
    diags: &'d mut Diagnostics,
) -> (Script, &'d [Diagnostic]) {
    let errors_before = diags.list.len();
    // Imported files come before the importing ones.
    let files = (0..src.files().len()).rev();
    let items = files.flat_map(|file| parse_file(src, file, params, builtins, diags)).collect();
    let new = &mut diags.list[errors_before..];
    new.sort_by_key(|diag| diag.span.start);
    (Script { items, ..Script::default() }, new)
}

/// The items of one file of the source.
pub(crate) fn parse_file(
    src: &Source,
    file: usize,
    params: &[String],
    builtins: FindBuiltin,
    diags: &mut Diagnostics,
) -> Vec<Item> {
    let (start, end) = (src.files()[file].start, src.files()[file].end);
    let text = &conditionals::apply(&src.text[..end], start, src.kernel(), diags);
    let items = depth::with_room(text, || read_all(text, start, params, builtins, diags));
    if file > 0 {
        refuse_settings(&items, diags);
    }
    items
}

/// The items from `at` on; items with errors are reported and omitted.
fn read_all(
    text: &str,
    mut at: usize,
    params: &[String],
    builtins: FindBuiltin,
    diags: &mut Diagnostics,
) -> Vec<Item> {
    let mut items = Vec::new();
    if depth::is_too_deep(text, tokens::skip_space(text, at), diags) {
        return items;
    }
    let mut builder = Builder::new(params, builtins, diags);
    for _ in 0..MAX_BROKEN_ITEMS {
        if at == text.len() {
            break;
        }
        at = read_items(text, at, &mut builder, &mut items);
        if at < text.len() {
            at = read_mistakes(text, at, items.last(), &mut builder);
        }
    }
    items
}

/// Refuses settings in an imported script, since they apply to the whole run.
fn refuse_settings(items: &[Item], diags: &mut Diagnostics) {
    let entries = items.iter().filter_map(|item| match item {
        Item::Config(entries) => entries.first(),
        _ => None,
    });
    for entry in entries {
        diags
            .error("E0037", entry.key.span, "an imported script cannot have settings")
            .help("settings apply to the whole run: write them in the script that imports this one");
    }
}

/// Parses valid items from `at` on, and returns the offset after them; the length of the text if all are valid.
fn read_items(text: &str, at: usize, builder: &mut Builder, items: &mut Vec<Item>) -> usize {
    let rest = tokens::skip_space(text, at);
    let Ok(pairs) = depth::parse(Rule::items, &text[rest..]) else {
        unreachable!("bug: no items are items, too");
    };
    let mut end = rest;
    builder.base = rest;
    for pair in pairs.flat_map(Pair::into_inner) {
        end = rest + pair.as_span().end();
        items.extend(builder.item(pair));
    }
    tokens::skip_space(text, end)
}

/// Reports the errors of the item at `at`, and returns the offset of the next one.
fn read_mistakes(text: &str, at: usize, before: Option<&Item>, builder: &mut Builder) -> usize {
    let end = recover::next_item(text, at);
    if errors::closed_early(text, at, before, builder.diags) {
        return end;
    }
    let mut broken =
        BrokenItem { item: text[at..end].to_owned(), base: at, last: end == text.len(), swallowed: false };
    for _ in 0..MAX_MISTAKES {
        let error = match depth::parse(Rule::item_alone, &broken.item) {
            Ok(rest) => {
                read_rest(rest, at, builder);
                break;
            }
            Err(error) if expected(&error) == [Rule::EOI] => {
                let rest = position(&error);
                return if recover::rest_is_an_item(&broken.item, rest) { at + rest } else { end };
            }
            Err(error) => error,
        };
        let mistake = errors::explain(&mut broken, &error, builder.builtins, builder.diags);
        if !mistake.is_some_and(|mistake| recover::repair(&mut broken.item, mistake)) {
            break;
        }
    }
    end
}

/// Reports errors other than syntax errors in the rest of an item.
fn read_rest(rest: pest::iterators::Pairs<Rule>, base: usize, builder: &mut Builder) {
    builder.base = base;
    for pair in rest.flat_map(Pair::into_inner) {
        builder.item(pair);
    }
}

/// The parse tree of a script's items; `None` if there is a syntax error.
pub(crate) fn items(text: &str) -> Option<Vec<Pair<'_>>> {
    if depth::is_too_deep(text, 0, &mut Diagnostics::default()) {
        return None;
    }
    let items = depth::parse(Rule::items, text).ok()?.next()?;
    let complete = tokens::skip_space(text, items.as_span().end()) == text.len();
    complete.then(|| items.into_inner().filter(|pair| pair.as_rule() != Rule::EOI).collect())
}

/// Length of the token at the start of `text`.
pub(crate) fn word_length(text: &str) -> usize {
    tokens::next(text, 0).map_or(text.len(), |token| token.end)
}

#[cfg(test)]
mod tests;

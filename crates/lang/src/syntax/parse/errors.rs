//! Messages for syntax errors: "expected X, found Y", in terms of the language.
//!
//! Pest reports the furthest position that it reached, and the rules that it tried there. Causes elsewhere (an unterminated
//! string, comment or bracket) are checked first, since they make pest's position meaningless.

use super::foreign_syntax;
use super::grammar::{Rule, expected, position};
use super::tokens::{self, Kind, Token};
use crate::diagnostics::Diagnostics;
use crate::source::span::Span;
use crate::syntax::FindBuiltin;
use crate::syntax::ast::Item;
use crate::syntax::parse::foreign_syntax::FOREIGN;
use crate::syntax::parse::mistake::{BrokenItem, Mistake};
use crate::syntax::parse::tokens::statement_start;

/// Reports why an item cannot be parsed, and returns the part to remove from it; `None` if the rest cannot give
/// further diagnostics.
pub(crate) fn explain(
    broken: &mut BrokenItem,
    error: &pest::error::Error<Rule>,
    builtins: FindBuiltin,
    diags: &mut Diagnostics,
) -> Option<Mistake> {
    let (item, base, at) = (broken.item.as_str(), broken.base, position(error));
    if foreign(item, base, diags) {
        return None;
    }
    if let Some(token) = open_text(item, base, at, diags) {
        broken.swallowed = true;
        return (token.kind == Kind::OpenStr).then_some(Mistake { at: token.start, separator: false });
    }
    let found = tokens::next(item, at);
    if found.is_none() && (broken.swallowed || open_bracket(broken, diags)) {
        return None;
    }
    let expectation = expectation(expected(error));
    if let Some(open) = found.and_then(|found| open_in_statement(item, found, &expectation)) {
        not_closed(
            &item[open.start..open.end],
            Span::new(base + open.start, base + open.end),
            "the statement ends",
            diags,
        );
        return Some(Mistake { at, separator: false });
    }
    let end = if broken.last { "the end of the script" } else { "the next clause" };
    let shown = found.map_or_else(|| end.to_owned(), |token| describe(item, token));
    let span =
        found.map_or_else(|| last_char(item, base), |token| Span::new(base + token.start, base + token.end));
    let diag = diags.error("E0001", span, format!("expected {expectation}, found {shown}"));
    let advice = match found {
        None if in_comment(item, at) => Some(COMMENT),
        _ => foreign_syntax::advice(item, at, &expectation, builtins),
    };
    advice.map(|help| diag.help(help));
    // A quote that was meant for the shell begins a string without end.
    broken.swallowed |= shown == r"`\`";
    found.map(|_| Mistake { at, separator: advice == Some(foreign_syntax::SEPARATED) })
}

const COMMENT: &str = "`//` begins a comment: the rest of its line is ignored";

/// Whether the line that ends at `at` has a brace in a comment.
fn in_comment(item: &str, at: usize) -> bool {
    let line = item[..at].trim_end().rsplit('\n').next().unwrap_or_default();
    line.split_once("//").is_some_and(|(_, comment)| comment.contains(['{', '}']))
}

/// Reports text after a body in angle brackets, if most likely a comparison has closed the body. False otherwise.
pub(crate) fn closed_early(text: &str, at: usize, before: Option<&Item>, diags: &mut Diagnostics) -> bool {
    let Some(Item::Clause(clause)) = before else { return false };
    let end = clause.body.span.end as usize;
    let angle = text.get(..end).is_some_and(|body| body.ends_with('>'));
    let begins = tokens::next(text, at).is_some_and(|token| tokens::begins_item(text, token));
    if !angle || begins || tokens::skip_space(text, end) != at {
        return false;
    }
    diags
        .error(
            "E0013",
            Span::new(end - 1, end),
            "this `>` closes the body, and the text after it is not a probe",
        )
        .label("outside parentheses `>` closes a `< >` body")
        .help("put the comparison in parentheses, or write the body in braces");
    true
}

fn foreign(item: &str, base: usize, diags: &mut Diagnostics) -> bool {
    let Some(token) = tokens::next(item, 0) else { return false };
    let word = &item[token.start..token.end];
    let next = tokens::next(item, token.end);
    let after = next.map_or("", |next| &item[next.start..next.end]);
    let known = word == "#" && matches!(after, "define" | "include");
    let Some((_, help)) = FOREIGN.iter().find(|(name, _)| *name == word && !known) else { return false };
    let shown = &item[token.start..next.map_or(token.end, |next| next.end)];
    diags
        .error(
            "E0011",
            Span::new(base + token.start, base + token.end),
            format!("`{shown}` is not part of this language"),
        )
        .help(*help);
    true
}

/// Reports an unterminated string or comment that begins at or before `at`, and returns it.
fn open_text(item: &str, base: usize, at: usize, diags: &mut Diagnostics) -> Option<Token> {
    let open = |token: &Token| matches!(token.kind, Kind::OpenStr | Kind::OpenComment);
    let token = tokens::tokens(item, 0).take_while(|token| token.start <= at).find(open)?;
    let start = base + token.start;
    if token.kind == Kind::OpenComment {
        diags
            .error("E0012", Span::new(start, start + 2), "this comment is not closed")
            .help("comments that begin with `/*` end with `*/`");
    } else {
        diags
            .error("E0002", Span::new(start, base + token.end), "this string is not closed")
            .label("the closing `\"` is missing on this line")
            .help("a newline inside a string is written `\\n`");
    }
    Some(token)
}

/// Reports an unmatched bracket, if the item has ended too early.
fn open_bracket(broken: &BrokenItem, diags: &mut Diagnostics) -> bool {
    let Some(token) = tokens::unmatched(&broken.item) else { return false };
    let (start, end) = (broken.base + token.start, broken.base + token.end);
    let open = &broken.item[token.start..token.end];
    if !matches!(open, "{" | "(" | "[") {
        return false;
    }
    let next = if broken.last { "the script ends" } else { "the next clause begins" };
    not_closed(open, Span::new(start, end), next, diags);
    true
}

/// Reports a bracket that is not closed before `next` happens.
fn not_closed(open: &str, span: Span, next: &str, diags: &mut Diagnostics) {
    diags
        .error("E0003", span, format!("this `{open}` is not closed"))
        .label(format!("{next} before it is closed"))
        .help(format!("add the missing `{}`", tokens::partner(open)));
}

/// The bracket that a statement has opened and not closed before its `;`.
fn open_in_statement(item: &str, found: Token, expectation: &str) -> Option<Token> {
    if &item[found.start..found.end] != ";" {
        return None;
    }
    let start = statement_start(item, found.start)?;
    let statement = &item[start..found.start];
    let open = tokens::unmatched(statement)?;
    let text = &statement[open.start..open.end];
    let closes = matches!(text, "(" | "[") && expectation.contains(&format!("`{}`", tokens::partner(text)));
    closes.then_some(Token { start: start + open.start, end: start + open.end, ..open })
}

fn last_char(item: &str, base: usize) -> Span {
    let end = item.trim_end().len();
    let start = item[..end].char_indices().next_back().map_or(0, |(at, _)| at);
    Span::new(base + start, base + end)
}

/// A token as text for a message.
fn describe(text: &str, token: Token) -> String {
    // Longer tokens are truncated, since the position is shown.
    const SHOWN: usize = 40;
    let word = &text[token.start..token.end];
    match word.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("`{}...`", &word[..cut]),
        None => format!("`{word}`"),
    }
}

/// Description of a rule, and its rank: of the rules that are expected at a position, those with the highest rank
/// are named. Operators are possible nearly everywhere, and are named only if nothing else is expected.
fn phrase(rule: Rule) -> Option<(u8, &'static str)> {
    use Rule::*;
    Some(match rule {
        include | define | declaration | config | import | macro_def | map_decl | metric | clause
        | kw_config | provider | file_provider | spec | spec_given | shebang | items | item_alone => {
            (9, "a probe such as `uprobe:libcuda:cuInit`")
        }
        quoted | function_regex | spec_text | spec_option | path_text | bare_spec => {
            (5, "the name of a target or function")
        }
        predicate | slash_open => (4, "a `/predicate/`"),
        braces | angles | lbrace | langle => (4, "`{`"),
        slash_close => (3, "`/`"),
        semi => (5, "`;`"),
        rbrace => (3, "`}`"),
        rangle => (2, "`>`"),
        rparen => (3, "`)`"),
        rbracket => (3, "`]`"),
        comma | trailing_comma => (3, "`,`"),
        colon | spec_colon => (3, "`:`"),
        range => (3, "`..`"),
        assign => (3, "`=`"),
        kw_import | kw_macro | kw_metric => (9, "a probe such as `uprobe:libcuda:cuInit`"),
        macro_param => (6, "a name"),
        header => (6, "a header such as `<cuda.h>`"),
        block_stmt | simple_stmt | if_stmt | while_stmt | for_stmt | unroll_stmt | let_stmt | return_stmt
        | break_stmt | continue_stmt | expr_stmt => (8, "a statement"),
        kw_if | kw_while | kw_for | kw_unroll | kw_let | kw_return | kw_break | kw_continue => {
            (8, "a statement")
        }
        expr | binary | unary | number | string | boolean | sizeof | kw_sizeof | typeinfo | kw_typeinfo
        | kw_comptime | offsetof | kw_offsetof | container_of | kw_container_of | name_or_call | paren
        | record | block_expr | cast | positional | positional_count | config_value | metric_value
        | map_name => (7, "an expression"),
        var => (7, "a variable such as `$x`"),
        ident | name | field | tuple_index => (6, "a name"),
        config_entry => (6, "a setting such as `max_map_keys = 1000`"),
        metric_entry => (6, "a property such as `name = \"gpu.cuda.errors\"`"),
        type_name | sure_type | maybe_type | tagged_type | typeof_type | kw_typeof | c_type | c_word
        | tag | c_base | compound | compound_tag | enumeration | enum_tag | member | qualifier => {
            (6, "a type")
        }
        declarators | declarator | function_pointer | enumerator => (6, "a name"),
        attribute | dimension | bits => (0, "an operator"),
        digits => (6, "a number"),
        kw_else => (1, "`else`"),
        or | and | eq | ne | shl | shr | le | ge | lt | gt | bit_or | bit_xor | bit_and | add | sub | mul
        | div | rem | question | assign_op | wrong_assign => (0, "an operator"),
        stars | array => (3, "`)`"),
        keys | dot | arrow | increment | decrement | lbracket => (0, "an operator"),
        args | lparen => (1, "`(`"),
        _ => return None,
    })
}

/// `` `,` or `)` ``
fn expectation(rules: &[Rule]) -> String {
    let phrases: Vec<_> = rules.iter().filter_map(|&rule| phrase(rule)).collect();
    let most = phrases.iter().map(|(rank, _)| *rank).max().unwrap_or(0);
    // A statement or an expression describes the position sufficiently; punctuation is listed together.
    let shown =
        |rank: u8| if most >= 6 { rank == most || rank == 3 && most < 9 } else { rank > 1 || most <= 1 };
    let mut words: Vec<&str> = Vec::new();
    let mut ranked: Vec<_> = phrases.iter().filter(|(rank, _)| shown(*rank)).collect();
    ranked.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
    for (_, word) in ranked {
        if !words.contains(word) {
            words.push(word);
        }
    }
    match words.split_last() {
        None => "something else".to_owned(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, before)) => format!("{} or {last}", before.join(", ")),
    }
}

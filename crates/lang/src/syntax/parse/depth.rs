//! Stack space for the recursive parser. Pest can check the stack at each step, which takes a third of the parse time; this module
//! checks the nesting depth once, before parsing.

use pest::Parser as _;
use pest::iterators::Pairs;

use super::grammar::Grammar;
use super::{MAX_DEPTH, Rule, tokens};
use crate::diagnostics::Diagnostics;
use crate::source::span::Span;

/// Brackets around a place at most; what is built of them has its own, lower limit.
const MAX_BRACKETS: usize = 1000;

/// `typeof(` around a place at most: what stands behind it may be a type or a value, and both are tried.
const MAX_TYPEOF: usize = 6;
const TYPEOF: &str = "typeof";

/// The bracket behind it.
const OF_TYPEOF: u8 = b't';

/// Stack of one level: the rules from a bracket to the next one in it. Measured at its deepest, and doubled.
const LEVEL: usize = if cfg!(debug_assertions) { 32 << 10 } else { 8 << 10 };

/// Levels for which there is room whatever lies in them. Texts with more marks are only known to have fewer brackets.
const MOST_LEVELS: usize = 1 << 16;

/// Stack of who reads a text's parts.
const WITHIN: usize = 1 << 20;

/// The grammar's view of a text.
pub(crate) fn parse(rule: Rule, text: &str) -> Result<Pairs<'_, Rule>, Box<pest::error::Error<Rule>>> {
    let room = room(text);
    stacker::maybe_grow(room, room, || Grammar::parse(rule, text).map_err(Box::new))
}

/// Runs `f`, which reads parts of a text one after the other, with room for all of them: a stack for each takes longer than
/// reading it.
pub(crate) fn with_room<R>(text: &str, f: impl FnOnce() -> R) -> R {
    let room = room(text) + WITHIN;
    stacker::maybe_grow(room, room, f)
}

fn room(text: &str) -> usize {
    LEVEL * (8 + marks(text).min(MOST_LEVELS))
}

/// Reports nesting that nobody writes, from `at` on; says whether there is any.
pub(crate) fn is_too_deep(text: &str, at: usize, diags: &mut Diagnostics) -> bool {
    let rest = &text[at..];
    let may_be = marks(rest) > MAX_BRACKETS || rest.matches(TYPEOF).count() > MAX_TYPEOF;
    let found = may_be.then(|| too_deep(text, at)).flatten();
    found.into_iter().for_each(|span| report_too_deep(span, diags));
    found.is_some()
}

/// Marks that begin a level; no text nests deeper than it has of them.
fn marks(text: &str) -> usize {
    text.bytes().filter(|byte| matches!(byte, b'(' | b'[' | b'{' | b'?')).count()
}

/// The first bracket that lies too deep.
fn too_deep(text: &str, at: usize) -> Option<Span> {
    let mut open: Vec<u8> = Vec::new();
    let mut before = "";
    for token in tokens::tokens(text, at) {
        let word = &text[token.start..token.end];
        match text.as_bytes()[token.start] {
            b'(' if before == TYPEOF => open.push(OF_TYPEOF),
            mark @ (b'(' | b'[' | b'{' | b'?') => open.push(mark),
            b')' | b']' | b'}' => {
                end_choices(&mut open);
                open.pop();
            }
            b':' if open.last() == Some(&b'?') => drop(open.pop()),
            b';' => end_choices(&mut open),
            _ => {}
        }
        before = word;
        let of_typeof = open.iter().filter(|mark| **mark == OF_TYPEOF);
        if open.len() > MAX_BRACKETS || word == "(" && of_typeof.count() > MAX_TYPEOF {
            return Some(Span::new(token.start, token.end));
        }
    }
    None
}

/// `c ? a` without its `:` ends with what it lies in.
fn end_choices(open: &mut Vec<u8>) {
    while open.pop_if(|mark| *mark == b'?').is_some() {}
}

/// Reports nesting beyond the limit.
pub(crate) fn report_too_deep(span: Span, diags: &mut Diagnostics) {
    diags
        .error("E0007", span, "nested too deeply")
        .label(format!("more than {MAX_DEPTH} levels of brackets, operators and blocks"))
        .help("give a part of it to a variable first");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts in which levels follow each other as closely as they can.
    fn nested(levels: usize) -> [String; 9] {
        let in_brackets = |open: &str, close: &str| {
            format!("BEGIN {{ $x = {}1{}; }}", open.repeat(levels), close.repeat(levels))
        };
        [
            in_brackets("(", ")"),
            in_brackets("f(", ")"),
            in_brackets("@[", "]"),
            in_brackets("(a=", ")"),
            in_brackets("{", "}"),
            in_brackets("1 ? ", " : 2"),
            in_brackets("if 1 { 1 } else ", "{ 2 }"),
            format!("BEGIN {{ {}{} }}", "if 1 {".repeat(levels), "}".repeat(levels)),
            format!("struct a {{ {} int x; {} }}", "struct {".repeat(levels), "}".repeat(levels)),
        ]
    }

    #[test]
    fn a_level_takes_no_more_than_half_its_room() {
        for text in nested(MAX_BRACKETS / 2) {
            let taken = LEVEL * (8 + marks(&text)) / 2;
            stacker::grow(taken, || drop(Grammar::parse(Rule::items, &text)));
        }
    }

    /// Whatever is left open, what is in it is read a bounded number of times.
    #[test]
    fn brackets_without_end_are_read_in_linear_time() {
        let openings = [
            "{ ",
            "{ @++; ",
            "x:y{ ",
            "(",
            "f(",
            "@[",
            "(a=",
            "(a=(",
            "f(a=",
            "1 ? ",
            "if 1 { ",
            "if (",
            "if 1 { 1 } else { ",
            "while 1 { ",
            "for $i : 0..2 { ",
            "unroll 2 { ",
            "$x = { ",
            "$x = if 1 { ",
            "sizeof(",
            "typeof(",
            "(typeof(",
            "sizeof(typeof(",
            "offsetof(typeof(",
            "(uint8)(",
            "-(",
            "*(",
            "{ (",
            "{ $x = (a={ ",
            "let $x = { ",
            "return { ",
        ];
        let start = std::time::Instant::now();
        for opening in openings {
            for text in
                [format!("BEGIN {{ {}", opening.repeat(40)), format!("macro m() {{ {}", opening.repeat(40))]
            {
                let one = std::time::Instant::now();
                let source = crate::Source::new("t.ct", text.as_str());
                let mut diags = Diagnostics::default();
                assert!(crate::syntax::parse::parse(&source, &[], &mut diags).is_none(), "{text}");
                assert!(one.elapsed().as_secs() < 5, "{opening}: {:?}", one.elapsed());
            }
        }
        assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    }
}

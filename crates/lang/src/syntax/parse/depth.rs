//! Stack space for the recursive parser. Pest can check the stack at each step, which takes a third of the parse time; this module
//! checks the nesting depth once, before parsing.

use pest::Parser as _;
use pest::iterators::Pairs;

use super::grammar::{Grammar, Rule};
use super::tokens;
use crate::diagnostics::Diagnostics;
use crate::limits::MAX_DEPTH;
use crate::source::span::Span;

/// Largest nesting depth of brackets; the syntax tree has a lower limit.
const MAX_BRACKETS: usize = 1000;

/// Largest nesting depth of `typeof(`: its operand is parsed as a type and as a value, which doubles the time.
const MAX_TYPEOF: usize = 6;
const TYPEOF: &str = "typeof";

/// Marker for a bracket after it.
const OF_TYPEOF: u8 = b't';

/// Stack size of a level: the rules from a bracket to a nested one. Measured for the deepest case, and doubled.
const LEVEL: usize = if cfg!(debug_assertions) { 32 << 10 } else { 8 << 10 };

/// Largest number of levels with reserved stack. A text with more marks is checked to have fewer brackets.
const MOST_LEVELS: usize = 1 << 16;

/// Stack size for converting the parse tree.
const WITHIN: usize = 1 << 20;

/// Parses a text with the grammar.
pub(crate) fn parse(rule: Rule, text: &str) -> Result<Pairs<'_, Rule>, Box<pest::error::Error<Rule>>> {
    let room = room(text);
    stacker::maybe_grow(room, room, || Grammar::parse(rule, text).map_err(Box::new))
}

/// Runs `f`, which parses parts of a text, with enough stack for all of them: allocating a stack for each part
/// takes longer than parsing it.
pub(crate) fn with_room<R>(text: &str, f: impl FnOnce() -> R) -> R {
    let room = room(text) + WITHIN;
    stacker::maybe_grow(room, room, f)
}

fn room(text: &str) -> usize {
    LEVEL * (8 + marks(text).min(MOST_LEVELS))
}

/// Reports excessive nesting from `at` on; returns whether there is any.
pub(crate) fn is_too_deep(text: &str, at: usize, diags: &mut Diagnostics) -> bool {
    let rest = &text[at..];
    let may_be = marks(rest) > MAX_BRACKETS || rest.matches(TYPEOF).count() > MAX_TYPEOF;
    let found = may_be.then(|| too_deep(text, at)).flatten();
    found.into_iter().for_each(|span| report_too_deep(span, diags));
    found.is_some()
}

/// Number of marks that begin a level, an upper bound of the nesting depth.
fn marks(text: &str) -> usize {
    text.bytes().filter(|byte| matches!(byte, b'(' | b'[' | b'{' | b'?')).count()
}

/// The first bracket that is nested too deeply.
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

/// Ends `c ? a` without its `:` at the end of the enclosing bracket.
fn end_choices(open: &mut Vec<u8>) {
    while open.pop_if(|mark| *mark == b'?').is_some() {}
}

/// Reports nesting beyond the limit.
pub(crate) fn report_too_deep(span: Span, diags: &mut Diagnostics) {
    diags
        .error("E0007", span, "nested too deeply")
        .label(format!("more than {MAX_DEPTH} levels of brackets, operators and blocks"))
        .help("assign a part of it to a variable first");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts with the densest possible nesting.
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

    /// Text in brackets that are not closed is parsed a bounded number of times.
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
            "typeinfo(",
            "comptime (",
            "if comptime (",
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
                assert!(crate::parse(&source, &[], &mut diags).is_none(), "{text}");
                assert!(one.elapsed().as_secs() < 5, "{opening}: {:?}", one.elapsed());
            }
        }
        assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    }
}

//! The tokens of a valid script with the properties that the formatter needs, and the comments between them.
//!
//! Tokens are the leaves of the grammar's tree. Punctuation that the grammar matches as literal text (the parentheses of a cast, a
//! dot) is found between the leaves.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::diagnostics::Diagnostics;
use crate::syntax::parse;
use crate::syntax::parse::conditionals;
use crate::syntax::parse::grammar::{Pair, Rule};

/// A token of the script.
#[derive(Clone, Debug)]
pub(super) struct Token<'a> {
    /// Text as written.
    pub text: &'a str,
    /// Terminal rule of the grammar; `None` for text without a rule.
    pub rule: Option<Rule>,
    /// True for the first token of an item, a statement or a setting.
    pub entry: bool,
    /// True if it begins a block.
    pub opens: bool,
    /// True if it ends a block.
    pub closes: bool,
    /// True if the entries of the block that begins or ends here end with `;`.
    pub semicolons: bool,
    /// True if there is never a blank before it.
    pub glued_before: bool,
    /// True if there is never a blank after it.
    pub glued_behind: bool,
}

/// A comment, without the newline.
#[derive(Clone, Debug)]
pub(super) struct Comment<'a> {
    /// Text including `//` or `/*`.
    pub text: &'a str,
    /// Number of newlines before it.
    pub newlines: usize,
}

impl Comment<'_> {
    /// Whether it extends to the end of the line.
    pub(super) fn is_line(&self) -> bool {
        self.text.starts_with("//") || self.is_directive() || self.text.contains('\n')
    }

    /// Whether it is a line of the preprocessor, with the lines that it excludes.
    pub(super) fn is_directive(&self) -> bool {
        self.text.starts_with('#')
    }
}

/// The text before a token.
#[derive(Clone, Debug, Default)]
pub(super) struct Gap<'a> {
    /// Comments in order.
    pub comments: Vec<Comment<'a>>,
    /// Number of newlines after the last comment.
    pub newlines: usize,
}

impl Gap<'_> {
    /// Whether it contains a newline, or must.
    pub(super) fn has_line_end(&self) -> bool {
        self.newlines > 0 || self.comments.iter().any(|comment| comment.newlines > 0 || comment.is_line())
    }

    /// Width of the comments on one line in columns.
    pub(super) fn width(&self) -> usize {
        self.comments.iter().map(|comment| comment.text.chars().count() + 1).sum()
    }
}

/// A script as tokens.
pub(super) struct Tokens<'a> {
    /// Tokens in order.
    pub list: Vec<Token<'a>>,
    /// Gap before each token, and one after the last.
    pub gaps: Vec<Gap<'a>>,
    /// Lines of the preprocessor, and lines that they exclude.
    blanked: Vec<Range<usize>>,
}

/// Rules that are kept unchanged, including blanks.
const VERBATIM: &[Rule] = &[Rule::shebang, Rule::include, Rule::define, Rule::spec, Rule::bare_spec];

/// Rules that own a block of statements which end with `;`. The last statement of any other block may be its
/// value.
const STATEMENTS: &[Rule] = &[
    Rule::clause,
    Rule::if_stmt,
    Rule::if_arm,
    Rule::while_stmt,
    Rule::for_stmt,
    Rule::unroll_stmt,
    Rule::braces,
    Rule::angles,
    Rule::config,
    Rule::metric,
];

/// Prefix and postfix operators.
const AFFIXES: &[Rule] =
    &[Rule::neg, Rule::not, Rule::bit_not, Rule::deref, Rule::address_of, Rule::increment, Rule::decrement];

/// Index of the `if` that is the value of a block.
fn valued_if(rule: Rule, owner: Rule, children: &[Pair]) -> Option<usize> {
    if rule != Rule::braces || owner == Rule::macro_def || STATEMENTS.contains(&owner) {
        return None;
    }
    let last = children.iter().rposition(|child| child.as_rule() != Rule::rbrace)?;
    let is_else = |part: Pair| part.as_rule() == Rule::braces;
    let chooses = |stmt: &Pair| stmt.clone().into_inner().last().is_some_and(is_else);
    (children[last].as_rule() == Rule::if_stmt && chooses(&children[last])).then_some(last)
}

/// A leaf of the syntax tree, with its range of bytes.
struct Leaf {
    start: usize,
    end: usize,
    rule: Rule,
}

/// Facts about positions in the text, from the syntax tree.
#[derive(Default)]
struct Marks {
    leaves: Vec<Leaf>,
    entries: HashSet<usize>,
    /// Braces, and whether their entries end with `;`.
    opens: HashMap<usize, bool>,
    closes: HashMap<usize, bool>,
    glued_before: HashSet<usize>,
    glued_behind: HashSet<usize>,
}

impl Marks {
    fn walk(&mut self, pair: Pair, owner: Rule) {
        let (rule, span) = (pair.as_rule(), pair.as_span());
        let verbatim = VERBATIM.contains(&rule);
        let children: Vec<Pair> = if verbatim { Vec::new() } else { pair.clone().into_inner().collect() };
        if children.is_empty() {
            let end = span.start() + pair.as_str().trim_end().len();
            return self.leaves.push(Leaf { start: span.start(), end, rule });
        }
        self.mark(rule, owner, span.end(), &children);
        let valued = valued_if(rule, owner, &children);
        // The arms of an `if` that is a value are also values.
        let hands_on = matches!(rule, Rule::if_stmt | Rule::if_arm) && owner == Rule::if_expr;
        for (at, child) in children.into_iter().enumerate() {
            self.walk(child, if hands_on || valued == Some(at) { Rule::if_expr } else { rule });
        }
    }

    fn mark(&mut self, rule: Rule, owner: Rule, end: usize, children: &[Pair]) {
        match rule {
            Rule::unary => self.affixes(children),
            Rule::cast => drop(self.glued_behind.insert(end)),
            Rule::let_stmt => {
                let colons = children.iter().filter(|child| child.as_rule() == Rule::colon);
                self.glued_before.extend(colons.map(|colon| colon.as_span().start()));
            }
            _ => {}
        }
        let is = |rules: [Rule; 2]| move |child: &Pair| rules.contains(&child.as_rule());
        let open = children.iter().position(is([Rule::lbrace, Rule::langle]));
        let close = children.iter().rposition(is([Rule::rbrace, Rule::rangle]));
        if let (Some(open), Some(close)) = (open, close) {
            let of_statements = match rule {
                Rule::braces | Rule::angles => STATEMENTS.contains(&owner),
                _ => STATEMENTS.contains(&rule),
            };
            self.opens.insert(children[open].as_span().start(), of_statements);
            self.closes.insert(children[close].as_span().start(), of_statements);
            let is_mark =
                |child: &&Pair| matches!(child.as_rule(), Rule::semi | Rule::comma | Rule::trailing_comma);
            let inside = children[open + 1..close].iter().filter(|child| !is_mark(child));
            self.entries.extend(inside.map(|child| child.as_span().start()));
        }
    }

    fn affixes(&mut self, children: &[Pair]) {
        let is_affix = |child: &&Pair| {
            AFFIXES.contains(&child.as_rule()) || matches!(child.as_rule(), Rule::cast | Rule::kw_comptime)
        };
        let operand = children.iter().take_while(is_affix).count();
        for (at, child) in children.iter().enumerate().filter(|(_, child)| AFFIXES.contains(&child.as_rule()))
        {
            match at < operand {
                true => self.glued_behind.insert(child.as_span().end()),
                false => self.glued_before.insert(child.as_span().start()),
            };
        }
    }
}

impl<'a> Tokens<'a> {
    /// The tokens of a script; `None` if the grammar cannot parse it.
    pub(super) fn of(text: &'a str) -> Option<Tokens<'a>> {
        let mut marks = Marks::default();
        let applied = conditionals::apply(text, 0, None, &mut Diagnostics::default());
        for item in parse::items(&applied)? {
            marks.entries.insert(item.as_span().start());
            marks.walk(item, Rule::items);
        }
        let mut tokens = Tokens {
            list: Vec::new(),
            gaps: vec![Gap::default()],
            blanked: conditionals::blanked(text, None),
        };
        let mut at = 0;
        for &Leaf { start, end, rule } in &marks.leaves {
            tokens.between(text, at..start, &marks);
            tokens.push(text, start..end, Some(rule), &marks);
            at = end;
        }
        tokens.between(text, at..text.len(), &marks);
        Some(tokens)
    }

    fn push(&mut self, text: &'a str, place: Range<usize>, rule: Option<Rule>, marks: &Marks) {
        let word = &text[place.clone()];
        // Braces of unknown syntax are also treated as blocks.
        let (bare_open, bare_close) = (rule.is_none() && word == "{", rule.is_none() && word == "}");
        let (opens, closes) = (marks.opens.get(&place.start), marks.closes.get(&place.start));
        self.list.push(Token {
            text: word,
            rule,
            entry: marks.entries.contains(&place.start),
            opens: opens.is_some() || bare_open,
            closes: closes.is_some() || bare_close,
            semicolons: opens.or(closes).copied().unwrap_or(false),
            glued_before: marks.glued_before.contains(&place.start),
            glued_behind: marks.glued_behind.contains(&place.end),
        });
        self.gaps.push(Gap::default());
    }

    /// Handles blanks, comments and other text between two terminals.
    fn between(&mut self, text: &'a str, place: Range<usize>, marks: &Marks) {
        let mut at = place.start;
        while at < place.end {
            let rest = &text[at..place.end];
            let directive = self.blanked.iter().find(|range| range.start == at);
            let length = match rest.chars().next() {
                None => break,
                _ if directive.is_some() => self.comment(rest, directive.map(Range::len)),
                Some(c) if c.is_whitespace() || c == '\u{feff}' => {
                    let gap = self.gaps.last_mut().expect("one from the start");
                    gap.newlines += usize::from(c == '\n');
                    c.len_utf8()
                }
                Some(_) if rest.starts_with("//") || rest.starts_with("/*") => self.comment(rest, None),
                Some(_) => {
                    let length = parse::word_length(rest);
                    self.push(text, at..at + length, None, marks);
                    length
                }
            };
            at += length;
        }
    }

    /// Adds a comment of known length, or up to its end mark.
    fn comment(&mut self, rest: &'a str, length: Option<usize>) -> usize {
        let length = length.unwrap_or_else(|| match rest.starts_with("//") {
            true => rest.find('\n').unwrap_or(rest.len()),
            false => rest.find("*/").map_or(rest.len(), |at| at + 2),
        });
        let gap = self.gaps.last_mut().expect("one from the start");
        let newlines = std::mem::take(&mut gap.newlines);
        gap.comments.push(Comment { text: rest[..length].trim(), newlines });
        length
    }

    /// The token that closes the block opened at `open`.
    fn partner(&self, open: usize) -> Option<usize> {
        let mut depth = 0usize;
        for (at, token) in self.list.iter().enumerate().skip(open) {
            depth += usize::from(token.opens);
            if token.closes {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
        None
    }

    /// The token that closes the last block of the `if` whose block opens at `open`; for another statement, of its
    /// block.
    pub(super) fn end_of_arms(&self, open: usize) -> Option<usize> {
        let mut close = self.partner(open)?;
        while self.has_else(close) {
            let next = self.list[close..].iter().position(|token| token.opens)?;
            close = self.partner(close + next)?;
        }
        Some(close)
    }

    /// Whether an `else` follows the block that ends at `close`.
    pub(super) fn has_else(&self, close: usize) -> bool {
        self.list.get(close + 1).is_some_and(|token| token.text == "else")
    }
}

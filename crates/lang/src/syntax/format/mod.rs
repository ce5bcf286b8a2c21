//! The formatter, `cudatrace fmt`: rewrites a script in a uniform style.
//!
//! ```text
//! BEGIN{$x=1;print( $x )}  // why      ->      BEGIN {
//!                                                  $x = 1;
//!                                                  print($x);
//!                                              } // why
//! ```
//!
//! Only blanks, line ends and `;` change. Comments stay, and so do blank lines between groups. A clause of several lines has a blank
//! line before and after it. A line end inside a statement is kept, and a block of one statement on one line stays on one line if
//! it fits. Tokens come from the grammar (`tokens`), the rules for blanks from `spacing`. Syntax that neither covers gets blanks
//! between its tokens and one line per entry of its braces. The result is parsed again and discarded if its tree differs.

mod spacing;
mod tokens;

use crate::diagnostics::Diagnostics;
use crate::source::span::Source;
use crate::syntax::FindBuiltin;
use crate::syntax::parse;
use crate::syntax::print::dump;
use tokens::{Comment, Token, Tokens};

/// Line width; longer lines are broken at braces.
const WIDTH: usize = 120;

/// Number of placeholder values for `$1`, `$2` ... during formatting.
const PARAMETERS: usize = 64;

/// The reason why a script was not formatted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The script has errors, which were reported.
    Wrong,
    /// The formatted text would have another meaning, because this module does not support some syntax.
    Unknown,
}

/// Formats a script; errors are added to `diags`.
///
/// # Errors
/// The script cannot be parsed, or not be formatted without a change of meaning.
pub fn format(src: &Source, builtins: FindBuiltin, diags: &mut Diagnostics) -> Result<String, Failure> {
    let before = meaning(src, builtins, diags).ok_or(Failure::Wrong)?;
    let text = Writer::new(&Tokens::of(&src.text).ok_or(Failure::Unknown)?).write();
    let formatted = Source::new(src.name.as_str(), text.as_str());
    let after = meaning(&formatted, builtins, &mut Diagnostics::default());
    (after == Some(before)).then_some(text).ok_or(Failure::Unknown)
}

fn meaning(src: &Source, builtins: FindBuiltin, diags: &mut Diagnostics) -> Option<String> {
    let params = vec!["1".to_string(); PARAMETERS];
    parse::parse(src, &params, builtins, diags).map(|script| dump(&script))
}

/// An enclosing pair of braces.
struct Block {
    /// True if the block is on one line.
    inline: bool,
    /// True if each entry ends with `;`.
    semicolons: bool,
}

struct Writer<'a> {
    tokens: &'a Tokens<'a>,
    out: String,
    blocks: Vec<Block>,
    /// True if the head of the item has several lines.
    tall_head: bool,
    /// True if the last closed block is on one line.
    closed_inline: bool,
    /// True if an empty line precedes the next text.
    apart: bool,
}

impl<'a> Writer<'a> {
    fn new(tokens: &'a Tokens<'a>) -> Writer<'a> {
        Writer {
            tokens,
            out: String::new(),
            blocks: Vec::new(),
            tall_head: false,
            closed_inline: true,
            apart: false,
        }
    }

    fn write(mut self) -> String {
        for at in 0..self.tokens.list.len() {
            self.token(at);
        }
        let last = self.tokens.list.len();
        self.comments(last, 0);
        self.trim_line();
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.out
    }

    fn token(&mut self, at: usize) {
        let token = &self.tokens.list[at];
        let dropped = self.is_needless(at);
        if !dropped && self.lacks_semicolon(at) {
            self.out.push(';');
        }
        let indent = self.indent_before(token);
        self.apart = self.has_empty_line_before(at);
        let forced = self.comments(at, indent.comment);
        if dropped {
            return;
        }
        match forced || self.breaks(at) {
            true => self.new_line(at, indent.token),
            false => self.blank(at),
        }
        self.out.push_str(token.text);
        self.track(at);
    }

    /// Updates the stack of blocks.
    fn track(&mut self, at: usize) {
        let token = &self.tokens.list[at];
        if token.opens {
            let inline = self.closed_inline && self.fits_inline(at);
            self.blocks.push(Block { inline, semicolons: token.semicolons });
        } else if token.closes {
            let inline = self.blocks.pop().is_some_and(|block| block.inline);
            // All arms of an `if` are formatted alike.
            self.closed_inline = inline || !self.tokens.has_else(at);
        }
        if token.entry && self.blocks.is_empty() {
            self.tall_head = false;
        }
    }

    /// Whether a `;` or the `,` after the last attach point separates nothing.
    fn is_needless(&self, at: usize) -> bool {
        let Some(before) = at.checked_sub(1).map(|at| &self.tokens.list[at]) else { return false };
        let text = self.tokens.list[at].text;
        // `interval:s:1, { ... }`
        let opens = self.tokens.list.get(at + 1).is_some_and(|next| next.opens);
        text == "," && opens && self.blocks.is_empty()
            || text == ";" && (before.text == ";" || before.opens || before.closes && before.semicolons)
    }

    /// Whether the entry before this token has no `;` although entries of its block end with one.
    fn lacks_semicolon(&self, at: usize) -> bool {
        let token = &self.tokens.list[at];
        let Some(before) = at.checked_sub(1).map(|at| &self.tokens.list[at]) else { return false };
        let ends = token.entry || token.closes;
        let open = self.blocks.last().is_some_and(|block| block.semicolons && !block.inline);
        ends && open && before.text != ";" && !before.opens && !before.closes
    }

    fn indent_before(&mut self, token: &Token) -> Indent {
        let depth = self.blocks.len();
        let inner = 4 * depth;
        match () {
            () if token.closes => Indent { token: inner.saturating_sub(4), comment: inner },
            () if token.entry || depth == 0 || matches!(token.text, ")" | "]" | "else") => {
                Indent { token: inner, comment: inner }
            }
            () => Indent { token: inner + 4, comment: inner + 4 },
        }
    }

    /// Whether the token begins a line.
    fn breaks(&self, at: usize) -> bool {
        let token = &self.tokens.list[at];
        let inline = self.blocks.last().is_some_and(|block| block.inline);
        let in_source = self.tokens.gaps[at].newlines > 0;
        match () {
            () if at == 0 => false,
            () if token.closes && self.tokens.list[at - 1].opens => false,
            () if token.closes || token.entry => !inline,
            () if token.opens => in_source && self.blocks.is_empty() && self.tall_head,
            () if token.text == "else" || inline => false,
            () => in_source && spacing::may_break(&self.tokens.list[at - 1], token),
        }
    }

    /// Writes the comments before token `at`. Returns true if a line must begin after them.
    fn comments(&mut self, at: usize, indent: usize) -> bool {
        let mut forced = false;
        for comment in &self.tokens.gaps[at].comments {
            match comment.newlines == 0 && !forced && !self.out.is_empty() {
                true => self.out.push(' '),
                false => self.comment_line(comment, indent),
            }
            self.apart &= comment.newlines == 0 && !self.out.is_empty();
            self.out.push_str(comment.text);
            forced = comment.text.starts_with("//") || comment.is_directive();
        }
        forced || !self.tokens.gaps[at].comments.is_empty() && self.tokens.gaps[at].newlines > 0
    }

    fn comment_line(&mut self, comment: &Comment, indent: usize) {
        let newlines = if self.apart { comment.newlines.max(2) } else { comment.newlines };
        self.line_end(newlines);
        self.out.push_str(&" ".repeat(indent));
    }

    fn new_line(&mut self, at: usize, indent: usize) {
        let closes = self.tokens.list[at].closes;
        let newlines = if self.apart { 2 } else { self.tokens.gaps[at].newlines };
        self.line_end(if closes { 1 } else { newlines });
        self.out.push_str(&" ".repeat(indent));
        self.tall_head |= self.blocks.is_empty() && !self.tokens.list[at].entry;
    }

    /// Whether an item is separated by an empty line: it or the previous item has several lines.
    fn has_empty_line_before(&self, at: usize) -> bool {
        let starts = self.tokens.list.get(at).is_some_and(|token| token.entry) && self.blocks.is_empty();
        if !starts {
            return false;
        }
        let last_line = self.out.rsplit('\n').find(|line| !line.is_empty()).unwrap_or("");
        let after_clause = last_line.starts_with(['}', '>']);
        let after_shebang = self.out.starts_with("#!") && !self.out.trim_end().contains('\n');
        !after_shebang && (after_clause || !self.item_fits_line(at))
    }

    /// Whether the item has no block, or fits on one line with its block.
    fn item_fits_line(&self, at: usize) -> bool {
        let rest = &self.tokens.list[at..];
        let is_next_item = |token: &Token| token.entry;
        let end = rest.iter().skip(1).position(is_next_item).map_or(rest.len(), |end| end + 1);
        let Some(open) = rest[..end].iter().position(|token| token.opens) else { return true };
        let head = at + 1..=at + open;
        let tall = head.clone().any(|at| self.tokens.gaps[at].has_line_end());
        let width = |at: usize| {
            self.tokens.list[at].text.chars().count()
                + usize::from(self.blank_between(at))
                + self.tokens.gaps[at].width()
        };
        let width = rest[0].text.chars().count() + head.map(width).sum::<usize>();
        !tall && self.fits_inline_from(at + open, width)
    }

    /// Ends the line. An empty line of the source is kept, unless it follows a brace.
    fn line_end(&mut self, newlines: usize) {
        self.trim_line();
        if self.out.is_empty() {
            return;
        }
        let opened = self.out.ends_with('{') || self.out.ends_with(" <");
        self.out.push_str(if newlines > 1 && !opened { "\n\n" } else { "\n" });
    }

    fn trim_line(&mut self) {
        let length = self.out.trim_end().len();
        self.out.truncate(length);
    }

    fn blank(&mut self, at: usize) {
        let commented = !self.tokens.gaps[at].comments.is_empty();
        if at > 0 && (commented || self.blank_between(at)) {
            self.out.push(' ');
        }
    }

    fn blank_between(&self, at: usize) -> bool {
        spacing::blank_between(&self.tokens.list[at - 1], &self.tokens.list[at])
    }

    /// Whether the block that opens here stays on its line, with the other arms of its `if`: they are on one line
    /// in the source, have one statement each, and fit.
    fn fits_inline(&self, open: usize) -> bool {
        let line = self.out.rfind('\n').map_or(0, |at| at + 1);
        self.fits_inline_from(open, self.out[line..].chars().count())
    }

    /// Whether the arms fit on the rest of a line that already has `width` columns.
    fn fits_inline_from(&self, open: usize, mut width: usize) -> bool {
        let Some(close) = self.tokens.end_of_arms(open) else { return false };
        let mut entries = vec![0];
        for at in open + 1..=close {
            let (token, gap) = (&self.tokens.list[at], &self.tokens.gaps[at]);
            if gap.has_line_end() {
                return false;
            }
            match () {
                () if token.opens => entries.push(0),
                () if token.closes => drop(entries.pop()),
                () => {}
            }
            if let Some(entries) = entries.last_mut() {
                *entries += u32::from(token.entry);
                if *entries > 1 {
                    return false;
                }
            }
            width += token.text.chars().count() + usize::from(self.blank_between(at)) + gap.width();
        }
        width <= WIDTH
    }
}

/// Indentation of a token and of the comments before it, in columns.
struct Indent {
    token: usize,
    comment: usize,
}

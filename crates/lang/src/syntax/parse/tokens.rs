//! Tokens of a script that does not parse: enough to name the unexpected token, match brackets, and find where an item begins.
//!
//! Not used for valid scripts, which the grammar parses. Any text can be split into tokens.

/// Kind of a token.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `pid`, `$x`, `@m`, `12ms`
    Word,
    /// `uprobe:libcuda:cuMem*`
    Probe,
    /// `"text"`
    Str,
    /// A string without closing quote; it ends with the line.
    OpenStr,
    /// An unterminated comment; it ends with the text.
    OpenComment,
    /// `{`, `+`, or any other character
    Punct,
}

/// A token, without spaces and comments.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Kind.
    pub kind: Kind,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

/// Providers at the start of a clause. They are used for recovery after an error, not to refuse others.
pub(crate) const PROVIDERS: &[&str] = &[
    "begin",
    "end",
    "uprobe",
    "u",
    "uretprobe",
    "ur",
    "usdt",
    "gpu",
    "ioctl",
    "interval",
    "i",
    "profile",
    "p",
    "cuda",
    "cudart",
    "test",
    "bench",
    "tracepoint",
    "t",
    "rawtracepoint",
    "rt",
    "self",
    "driver",
    "watchpoint",
    "iter",
    "it",
    "w",
    "kprobe",
    "kfunc",
    "kretfunc",
    "k",
    "kretprobe",
    "kr",
    "fentry",
    "f",
    "fexit",
    "fr",
    "software",
    "s",
    "hardware",
    "h",
];

/// Keywords at the start of a C declaration.
const DECLARATIONS: &[&str] = &["struct", "union", "enum", "typedef"];

/// Keywords at the start of other items.
const ITEM_KEYWORDS: &[&str] = &["import", "macro"];

/// Tokens from byte `at` on.
pub fn tokens(text: &str, at: usize) -> impl Iterator<Item = Token> + '_ {
    let mut at = at;
    std::iter::from_fn(move || {
        let token = next(text, at)?;
        at = token.end;
        Some(token)
    })
}

/// The offset of the first byte from `at` on that is neither space nor comment.
pub fn skip_space(text: &str, mut at: usize) -> usize {
    loop {
        let rest = &text[at..];
        let spaces = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n', '\u{feff}']).len();
        at += spaces;
        match comment(&text[at..]) {
            Some(Some(length)) => at += length,
            _ => return at,
        }
    }
}

/// Length of the comment at the start of `rest`; `Some(None)` if it is unterminated.
fn comment(rest: &str) -> Option<Option<usize>> {
    if rest.starts_with("//") {
        return Some(Some(rest.find('\n').unwrap_or(rest.len())));
    }
    rest.starts_with("/*").then(|| rest[2..].find("*/").map(|at| at + 4))
}

/// The token at or after `at`.
pub fn next(text: &str, at: usize) -> Option<Token> {
    let start = skip_space(text, at);
    let rest = &text[start..];
    let first = rest.chars().next()?;
    let (kind, length) = match first {
        '"' => string(rest),
        '/' if rest.starts_with("/*") => (Kind::OpenComment, rest.len()),
        '$' | '@' => (Kind::Word, 1 + word(&rest[1..])),
        _ if is_word(first) => match probe(rest) {
            Some(length) => (Kind::Probe, length),
            None => (Kind::Word, word(rest)),
        },
        _ => (Kind::Punct, punct(rest).unwrap_or(first.len_utf8())),
    };
    Some(Token { kind, start, end: start + length })
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn word(rest: &str) -> usize {
    rest.find(|c| !is_word(c)).unwrap_or(rest.len())
}

/// Operators of several characters that messages show as a whole.
const LONG: &[&str] =
    &["<<=", ">>=", "==", "!=", "<=", ">=", "&&", "||", "->", "++", "--", "+=", "-=", "*=", "..", "<<", ">>"];

fn punct(rest: &str) -> Option<usize> {
    LONG.iter().find(|op| rest.starts_with(**op)).map(|op| op.len())
}

fn string(rest: &str) -> (Kind, usize) {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '\n' => return (Kind::OpenStr, at),
            '"' if !escaped => return (Kind::Str, at + 1),
            _ => escaped = c == '\\' && !escaped,
        }
    }
    (Kind::OpenStr, rest.len())
}

/// Length of a probe with its parts; `/*` in its paths does not begin a comment.
fn probe(rest: &str) -> Option<usize> {
    let provider = word(rest);
    let part = rest[provider..].strip_prefix(':')?;
    let known = PROVIDERS.iter().any(|name| name.eq_ignore_ascii_case(&rest[..provider]));
    (known && part.starts_with(|c: char| !c.is_whitespace()))
        .then(|| rest.find([' ', '\t', '\r', '\n', ',', '{', '"']).unwrap_or(rest.len()))
}

/// Whether an item can begin with this token.
pub fn begins_item(text: &str, token: Token) -> bool {
    let word = &text[token.start..token.end];
    let provider = |word: &str| PROVIDERS.iter().any(|name| name.eq_ignore_ascii_case(word));
    let then = next(text, token.end).map_or("", |next| &text[next.start..next.end]);
    match token.kind {
        Kind::Probe => true,
        Kind::Word if word == "config" => then == "=",
        Kind::Word if word == "let" || word == "metric" => then.starts_with('@'),
        Kind::Word if DECLARATIONS.contains(&word) => starts_line(text, token.start),
        Kind::Word if ITEM_KEYWORDS.contains(&word) => starts_line(text, token.start),
        Kind::Word => provider(word) && ["{", ",", "/", "<"].contains(&then),
        Kind::Punct => word == "#" && starts_line(text, token.start),
        _ => false,
    }
}

/// Whether only blanks precede `at` on its line.
pub fn starts_line(text: &str, at: usize) -> bool {
    let before = text[..at].trim_end_matches([' ', '\t', '\r']);
    before.is_empty() || before.ends_with('\n')
}

/// The first unmatched bracket in `text`.
pub fn unmatched(text: &str) -> Option<Token> {
    let mut open: Vec<Token> = Vec::new();
    for token in tokens(text, 0).filter(|token| token.kind == Kind::Punct) {
        match &text[token.start..token.end] {
            "{" | "(" | "[" => open.push(token),
            close @ ("}" | ")" | "]") => match open.last() {
                Some(top) if partner(&text[top.start..top.end]) == close => drop(open.pop()),
                Some(top) => return Some(*top),
                None => return Some(token),
            },
            _ => {}
        }
    }
    open.pop()
}

/// Whether more text may close all brackets: some are open, and none is closed by a bracket of another kind.
pub fn is_left_open(text: &str) -> bool {
    let mut open: Vec<&str> = Vec::new();
    for token in tokens(text, 0).filter(|token| token.kind == Kind::Punct) {
        match &text[token.start..token.end] {
            bracket @ ("{" | "(" | "[") => open.push(bracket),
            close @ ("}" | ")" | "]") if open.pop().is_none_or(|open| partner(open) != close) => {
                return false;
            }
            _ => {}
        }
    }
    !open.is_empty()
}

/// `}` for `{`
pub fn partner(open: &str) -> &'static str {
    match open {
        "{" => "}",
        "(" => ")",
        _ => "]",
    }
}

/// The start of the statement that contains `at`; `None` outside of all braces.
pub fn statement_start(item: &str, at: usize) -> Option<usize> {
    let mut starts: Vec<usize> = Vec::new();
    let mut before = "";
    for token in tokens(item, 0).take_while(|token| token.start < at) {
        let word = &item[token.start..token.end];
        match word {
            "{" => starts.push(token.end),
            "<" if starts.is_empty() && opens_angles(item, token.start, before) => starts.push(token.end),
            "}" => drop(starts.pop()),
            _ => {}
        }
        if let (";" | "}", Some(start)) = (word, starts.last_mut()) {
            *start = token.end;
        }
        before = word;
    }
    starts.pop()
}

/// Whether a `<` opens a body: it does after a probe or after the predicate, but not in it.
fn opens_angles(item: &str, at: usize, before: &str) -> bool {
    before == "/"
        || !item[..at].contains([' ', '\t', '\n'])
        || !item[..at].contains(" /") && !item[..at].contains("\n/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        tokens(text, 0).map(|token| &text[token.start..token.end]).collect()
    }

    #[test]
    fn cuts_any_text() {
        assert_eq!(
            words("a>=$b /* c */ \"d\\\"\" // e\n@f[1]"),
            ["a", ">=", "$b", "\"d\\\"\"", "@f", "[", "1", "]"]
        );
        assert_eq!(words("uprobe:/lib/*/x.so:f { \"open\n}"), ["uprobe:/lib/*/x.so:f", "{", "\"open", "}"]);
        assert_eq!(words("é /* open"), ["é", "/* open"]);
    }

    #[test]
    fn finds_the_lonely_bracket() {
        let start = |text| unmatched(text).map(|token| token.start);
        assert_eq!(start("{ ( ) [ ] }"), None);
        assert_eq!(start("{ ( }"), Some(2));
        assert_eq!(start("{ { }"), Some(0));
        assert_eq!(start("} {"), Some(0));
    }
}

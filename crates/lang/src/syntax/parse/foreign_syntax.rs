//! Syntax of other languages, and what to write instead: one table, used where the grammar fails.
//!
//! A row is a pattern of the tokens around the position, which is `^`: `let ^ WORD` matches `let x`. Words in capitals match
//! classes of tokens, `..` matches anything from the start of the statement, `START` is that start itself, and `NOTHING`
//! the end of the clause. The first matching row wins.

use super::tokens::{self, Kind, Token};
use crate::syntax::FindBuiltin;
use crate::syntax::parse::tokens::statement_start;

/// A pattern of syntax from other languages, and the advice.
struct Habit {
    /// Text that the list of expected rules must contain; empty for any.
    expected: &'static str,
    /// Pattern of the tokens around the error.
    shape: &'static str,
    /// Advice.
    help: &'static str,
}

const fn anywhere(shape: &'static str, help: &'static str) -> Habit {
    Habit { expected: "", shape, help }
}

const fn expecting(expected: &'static str, shape: &'static str, help: &'static str) -> Habit {
    Habit { expected, shape, help }
}

const LOOP: &str = "`for` loops over a range, `for $i : 0..10 { }`, or a map, `for $kv : @m { }`; use `while` for other loops";
const QUOTES: &str = "strings are written in straight double quotes: `\"text\"`";
const ELSE_IF: &str = "write `else if`";
const PARENTHESES: &str = "arguments of a function are written in parentheses: `printf(\"%d\\n\", pid)`";
const NO_TYPE: &str = "an assignment makes a variable, `$x = 0`; `let $x: uint32 = 0` also gives its type";
const DOLLAR: &str = "names of variables begin with `$`";
const BRACES: &str =
    "the body of `if`, of `else` and of a loop needs braces: `if pid == 1 { exit() } else { @n = 1 }`";
const ELSE: &str = "`else` follows the body of an `if`, and both bodies need braces: `if pid == 1 { exit() } else { @n = 1 }`";
const NO_KEYS: &str = "a map without keys is written `@m`; if there was a `$name` in the brackets, the shell replaced \
                       it: put the script in single quotes";
const UNQUOTED: &str = "the shell removed the inner quotes: put the script in single quotes, `-e '...'`";
const OPEN_CALL: &str = "a `)` is missing before it";
const VALUES: &str = "values follow the text, after a comma: `printf(\"%d\\n\", pid)`";
const LIST: &str = "there are no lists: write a tuple, `(1, 2)`, or keep the values in a map, `@m[key]`";
const PAIR: &str =
    "one variable holds both: in `for ($kv : @m) { }`, `$kv.0` is the key and `$kv.1` the value";
const ONE_EACH: &str = "each `=` assigns to one variable or map: `@a = 1; @b = 2`";
const BODY: &str =
    "statements are written in the body of a probe: `BEGIN { ... }`, `uprobe:libcuda:cuInit { ... }`";
const CHOICE: &str = "a choice between two values is written `condition ? a : b`";
const SWITCH: &str = "there is no `switch`: write `if ... { } else if ... { }`";
const SHELL: &str = "something is missing before it; in double quotes the shell replaces `$x`: put the script in single \
                     quotes";
const MISSING: &str = "a value is missing after the comma; if it was a `$x`, the shell replaced it: put the script in \
                       single quotes";
const KEY: &str = "a key is missing after the comma; if it was a `$x`, the shell replaced it: put the script in single \
                   quotes";
const NAME: &str = "a name follows the colon: `cuda:alloc`, `uprobe:libcuda:cuInit`";
const NO_BODY: &str = "a body follows the probe: `BEGIN { ... }`; if you wrote one, the shell split the script at a \
                       space: put the script in single quotes";
const CONDITION: &str =
    "a statement under a condition begins with `if`: `if args.bytes > 100 { @n = count() }`";
const NO_SEMICOLON: &str =
    "the body follows the probe without a `;`: `uprobe:libcuda:cuInit { @n = count() }`";
const PREDICATE: &str = "a predicate is written between slashes: `/ pid == 3 /`";
const NO_BRACE: &str = "a `{` is missing before the body: `BEGIN { printf(\"hello\\n\") }`, `uprobe:libcuda:cuInit { @n = count() }`";
const KEY_PARTS: &str = "the parts of a key are separated by commas: `@m[\"x\", 1]`";
const COLONS: &str = "the parts of a probe are joined by colons: `uprobe:libcuda:cuInit`";
const TOGETHER: &str = "`+=` and `-=` are written without a space";
const BLANKS: &str = "the parts of a probe are written without spaces between them: `uprobe:libcuda:cuInit`";
const ONE_COMMA: &str = "remove one of the two commas";
const EACH: &str = "there is no operator `in`: compare with each value, `x == 1 || x == 2`";
const SEARCH: &str =
    "there are no regular expressions in conditions; to search in a string use `strcontains(text, \"part\")`";
const JOIN: &str =
    "strings are joined by `str_concat(a, b)`, or printed one after the other: `printf(\"%s%s\", a, b)`";
const MACRO: &str = "functions cannot be defined; define a macro instead: `macro twice(x) { x + x }`";

/// The advice for two adjacent statements.
pub(crate) const SEPARATED: &str = "statements are separated by `;`";

const HABITS: &[Habit] = &[
    expecting("`]`", "^ :", KEY_PARTS),
    anywhere("== ^ =", "`==` compares"),
    anywhere("!= ^ =", "`!=` compares"),
    anywhere("for ( VAR ^ =", LOOP),
    anywhere("RANGE ^ =", "a range excludes its end: `0..10` goes from 0 to 9"),
    anywhere("+ ^ =", TOGETHER),
    anywhere("- ^ =", TOGETHER),
    anywhere("START ^ =", SHELL),
    anywhere("START ^ ==", SHELL),
    anywhere("( ^ ==", SHELL),
    anywhere("/ ^ ==", SHELL),
    expecting("an expression", ", ^ )", MISSING),
    expecting("an expression", ", ^ ]", KEY),
    expecting("`]`", "^ =", "a `]` is missing before it: `@m[key] = value`; to compare write `==`"),
    anywhere("^ =", "`=` assigns in a statement of its own; `==` compares"),
    anywhere(": ^ =", "`=` assigns"),
    anywhere("^ '", QUOTES),
    anywhere("^ QUOTE", QUOTES),
    anywhere("^ BLANK", "this character looks like a space and is not one: type a plain space"),
    anywhere("^ \\", "in single quotes the shell keeps a backslash: write `\"` without it"),
    anywhere("^ ~", SEARCH),
    anywhere("^ !", SEARCH),
    anywhere("< ^ >", "`!=` compares"),
    anywhere("= ^ +", "`+=` adds to the current value; a number needs no `+` before it"),
    anywhere(". ^ STR", JOIN),
    anywhere(". ^ VAR", JOIN),
    anywhere("MAP [ ^ ]", NO_KEYS),
    anywhere("printf ( ^ %", UNQUOTED),
    expecting("an expression", "( ^ }", OPEN_CALL),
    anywhere("/ ^ /", "write a condition between the slashes, or remove them"),
    anywhere("^ #", "comments begin with `//`"),
    anywhere("^ and", "the operator is written `&&`"),
    anywhere("^ or", "the operator is written `||`"),
    anywhere("not ^", "the operator is written `!`"),
    anywhere("^ not", "the operator is written `!`"),
    anywhere("elsif .. ^", ELSE_IF),
    anywhere("elif .. ^", ELSE_IF),
    anywhere("elseif .. ^", ELSE_IF),
    anywhere("for VAR ^ in", LOOP),
    anywhere("for VAR ^ ,", PAIR),
    anywhere("for ( VAR ^ ,", PAIR),
    anywhere("for ( VAR ^ in", LOOP),
    anywhere("for ( ^", LOOP),
    anywhere("for ^", LOOP),
    anywhere("foreach .. ^", LOOP),
    anywhere("^ in", EACH),
    anywhere("switch .. ^", SWITCH),
    anywhere(
        "do ^ {",
        "there is no `do`: a loop is written `while ... { }`, and tests its condition before the body",
    ),
    anywhere("probe ^ WORD", "a clause begins with its probe: `uprobe:libcuda:cuInit { }`"),
    anywhere("let ^ WORD", DOLLAR),
    anywhere("var ^ WORD", DOLLAR),
    anywhere("goto ^", "there is no `goto`: leave a loop by `break`, a clause by `return`"),
    anywhere("try ^", "there are no exceptions: an operation that fails yields 0, or a result to check"),
    anywhere("echo ^", "print text with `printf(\"text\\n\")`"),
    expecting("`,`", "STR ^ WORD", VALUES),
    expecting("`,`", "STR ^ VAR", VALUES),
    expecting("`,`", "STR ^ MAP", VALUES),
    expecting("`,`", "WORD ^ STR", VALUES),
    expecting("an expression", "^ [", LIST),
    expecting("`/`", "NUM ^ ,", "separate digits by `_`: `1_000_000`"),
    anywhere("NUM ^ BYTES", "bytes have no units: 10 MB are `10 << 20`"),
    expecting("`;`", "NUM ^ ,", LIST),
    expecting("`;`", "STR ^ ,", LIST),
    expecting("`;`", "MAP ^ ,", ONE_EACH),
    expecting("`;`", "VAR ^ ,", ONE_EACH),
    expecting("`;`", "^ ,", SEPARATED),
    expecting("`;`", "VAR ^ :", "`=` assigns"),
    expecting("`;`", "MAP ^ :", "`=` assigns"),
    expecting("`;`", "NUM ^ if", CHOICE),
    expecting("`;`", "STR ^ if", CHOICE),
    expecting("`;`", "NUM ^ UNIT", "write the unit directly after the number: `10s`"),
    expecting("`;`", "@ ^ NUM", "names of maps begin with a letter"),
    expecting("`;`", "NUM ^ {", CONDITION),
    expecting("`;`", "STR ^ {", CONDITION),
    expecting(
        "`)`",
        "WORD ^ :",
        "values of `span`, `event` and `counter` are named by `=`: `bytes = args.bytes`",
    ),
    expecting("a `/predicate/`", "PROBE ^ ;", NO_SEMICOLON),
    anywhere("CALL ^ STR", PARENTHESES),
    anywhere("CALL ^ VAR", PARENTHESES),
    anywhere("CALL ^ MAP", PARENTHESES),
    anywhere("CALL ^ WORD", PARENTHESES),
    anywhere("MAP ^ {", "keys are written in brackets: `@m[key]`"),
    anywhere("TYPE ^ WORD", NO_TYPE),
    anywhere("TYPE ^ VAR", NO_TYPE),
    expecting("`{`", "if .. ^ ;", BRACES),
    expecting("`{`", "if .. ^ CALL", BRACES),
    expecting("`{`", "if .. ^ MAP", BRACES),
    expecting("`{`", "if .. ^ VAR", BRACES),
    expecting("`{`", "while .. ^ MAP", BRACES),
    expecting("`{`", "while .. ^ VAR", BRACES),
    expecting("`{`", "for .. ^ MAP", BRACES),
    expecting("`{`", "for .. ^ VAR", BRACES),
    expecting("`{`", "while .. ^ CALL", BRACES),
    expecting("`{`", "for .. ^ CALL", BRACES),
    expecting("`{`", "while .. ^ ;", BRACES),
    expecting("`{`", "if .. ^ :", BRACES),
    expecting("`{`", "while .. ^ :", BRACES),
    expecting("`{`", "for .. ^ :", BRACES),
    anywhere("else ^ :", BRACES),
    anywhere("else ^ WORD", BRACES),
    anywhere("else ^ MAP", BRACES),
    anywhere("else ^ VAR", BRACES),
    anywhere("if .. ^ return", BRACES),
    anywhere("^ else", ELSE),
    anywhere("syscall : ^ :", "system calls are tracepoints: `tracepoint:syscalls:sys_enter_read`"),
    anywhere("PROBE ^ :", "write one colon between the parts of a probe: `uprobe:libcuda:cuInit`"),
    anywhere("PROBE ^ if", PREDICATE),
    expecting("`{`", "WORD ^ if", PREDICATE),
    expecting("a target", "PART ^ WORD", BLANKS),
    expecting("a target", "PART ^ PROBE", BLANKS),
    expecting("a `/predicate/`", "PROBE ^ NOTHING", NO_BODY),
    expecting("a `/predicate/`", "PROBE ^ ACTION", NO_BRACE),
    expecting("a `/predicate/`", "START WORD ^ ACTION", NO_BRACE),
    expecting("a `/predicate/`", "PROBE ^ CALL", PREDICATE),
    expecting("a `/predicate/`", "PROBE ^ (", PREDICATE),
    anywhere("START BEGIN ^ CALL", BODY),
    anywhere("START END ^ CALL", BODY),
    expecting("a `/predicate/`", "START PROBE ^ WORD", COLONS),
    expecting("a `/predicate/`", "PROBE ^ MAP", BODY),
    expecting("a `/predicate/`", "PROBE ^ VAR", BODY),
    expecting(
        "a probe",
        "^ /",
        "a predicate is written between its probe and the body: `uprobe:libcuda:cuInit / pid == 3 / { }`",
    ),
    expecting("`/`", "^ {", "a predicate ends with a slash: `/ pid == 3 /`"),
    anywhere("function ^", MACRO),
    anywhere("def ^", MACRO),
    anywhere("fn ^", MACRO),
    anywhere("func ^", MACRO),
    expecting("a probe", "^ ;", "clauses are not separated: remove the `;`"),
    expecting("a probe", "^ }", "no `{` is open here"),
    expecting(
        "a name",
        "macro .. ^ {",
        "its parameters are written in parentheses: `macro twice(x) { x + x }`",
    ),
    expecting("the name of a target", "PART ^ {", NAME),
    expecting("a name", ", ^ ,", ONE_COMMA),
    expecting("a probe", "^ {", BODY),
    expecting("`{`", "CALL ^ (", BODY),
    expecting("a `/predicate/`", "START WORD ^ (", "the body follows the probe: `BEGIN { ... }`"),
    expecting("`:`", "^ ;", CHOICE),
    expecting("a `/predicate/`", "START WORD ^ WORD", COLONS),
    expecting("`;`", "^ )", "no `(` is open here"),
    expecting("`;`", "^ ]", "no `[` is open here"),
    expecting("`;`", "^ WORD", SEPARATED),
    expecting("`;`", "^ VAR", SEPARATED),
    expecting("`;`", "^ MAP", SEPARATED),
    expecting("`;`", "^ CALL", SEPARATED),
];

/// Advice for the error at `at` of an item, where `expectation` is expected.
pub(crate) fn advice(
    item: &str,
    at: usize,
    expectation: &str,
    builtins: FindBuiltin,
) -> Option<&'static str> {
    let start = statement_start(item, at).unwrap_or(0);
    let before: Vec<Token> = tokens::tokens(&item[..at], start).collect();
    let found = tokens::next(item, at);
    let around = Around { item, before: &before, found, builtins };
    let fits = |habit: &&Habit| expectation.contains(habit.expected) && around.has_shape(habit.shape);
    HABITS.iter().find(fits).map(|habit| habit.help)
}

/// The tokens around an error.
struct Around<'a> {
    item: &'a str,
    before: &'a [Token],
    found: Option<Token>,
    builtins: FindBuiltin,
}

impl Around<'_> {
    fn has_shape(&self, shape: &str) -> bool {
        let (before, found) = shape.split_once('^').expect("a shape has a place");
        let follows = match found.trim() {
            "" => true,
            "NOTHING" => self.found.is_none(),
            found => self.found.is_some_and(|token| self.is(token, found)),
        };
        follows && self.ends_with(before.trim())
    }

    /// Whether the tokens before the error are `shape`, or begin with the part of it before `..`.
    fn ends_with(&self, shape: &str) -> bool {
        if let Some((first, _)) = shape.split_once(" ..") {
            return self.before.first().is_some_and(|&token| self.is(token, first));
        }
        let (whole, shape) = shape.strip_prefix("START").map_or((false, shape), |rest| (true, rest));
        let words: Vec<&str> = shape.split_whitespace().collect();
        let from = self.before.len().checked_sub(words.len());
        from.filter(|&from| from == 0 || !whole).is_some_and(|from| {
            self.before[from..].iter().zip(words).all(|(&token, word)| self.is(token, word))
        })
    }

    /// Whether a call is a whole statement: `;`, `}` or nothing follows it. A predicate compares its value.
    fn is_statement(&self, call: Token) -> bool {
        let mut depth = 0;
        for token in tokens::tokens(self.item, call.end) {
            match &self.item[token.start..token.end] {
                "(" => depth += 1,
                ")" => depth -= 1,
                ";" | "}" if depth == 0 => return true,
                _ if depth == 0 => return false,
                _ => {}
            }
        }
        depth == 0
    }

    fn is(&self, token: Token, shape: &str) -> bool {
        let text = &self.item[token.start..token.end];
        let builtin = || token.kind == Kind::Word && (self.builtins)(text).is_some();
        match shape {
            "WORD" => token.kind == Kind::Word && !text.starts_with(['$', '@']),
            "VAR" => text.starts_with('$'),
            "MAP" => text.starts_with('@'),
            "RANGE" => text == ".." || text == ".",
            "UNIT" => TIMES.iter().any(|unit| text.starts_with(unit)),
            "BYTES" => BYTES.contains(&text.to_lowercase().as_str()),
            "NUM" => text.starts_with(|c: char| c.is_ascii_digit()),
            "STR" => matches!(token.kind, Kind::Str | Kind::OpenStr),
            "PART" => text.ends_with(':'),
            "PROBE" => token.kind == Kind::Probe || text.ends_with(':'),
            "CALL" => builtin(),
            "ACTION" => builtin() && self.is_statement(token),
            "TYPE" => C_TYPES.contains(&text),
            "QUOTE" => text.starts_with(['“', '”', '„', '‘', '’', '«', '»', '`']),
            "BLANK" => text.starts_with(['\u{a0}', '\u{2009}', '\u{202f}', '\u{3000}', '\u{200b}']),
            _ => text == shape,
        }
    }
}

/// Prefixes of units of time, written as words.
const TIMES: &[&str] = &["sec", "min", "hour", "milli", "micro", "nano", "ms", "us", "ns"];

/// Units of memory.
const BYTES: &[&str] = &["kb", "mb", "gb", "tb", "kib", "mib", "gib", "tib", "bytes"];

const C_TYPES: &[&str] = &[
    "int", "unsigned", "signed", "char", "short", "long", "bool", "size_t", "int8", "int16", "int32",
    "int64", "uint8", "uint16", "uint32", "uint64", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "int8_t",
    "int16_t", "int32_t", "int64_t", "auto", "var",
];

/// Starts of items in other dialects, with the equivalent here.
pub(crate) const FOREIGN: &[(&str, &str)] = &[(
    "#",
    "comments begin with `//`; the directives are `#include`, `#define NAME literal`, `#undef` and conditions such as \
     `#ifdef`",
)];

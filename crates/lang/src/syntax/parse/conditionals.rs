//! Conditional lines of C's preprocessor: `#if`, `#ifdef`, `#ifndef`, `#elif`, `#else`, `#endif`, `#undef`.
//!
//! ```text
//! #ifndef BPFTRACE_HAVE_BTF                (blank)
//! #include <linux/sched.h>         ->      (blank)
//! #endif                                   (blank)
//! ```
//!
//! Directives and excluded lines become blanks, so that every span stays valid. `#define NAME value` and `#include` are left for the
//! grammar. Names without a value exist only here.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use super::condition;
use crate::diagnostics::Diagnostics;
use crate::source::span::{KernelVersion, Span};

/// Predefined names, the same as in bpftrace and its C parser. The kernel's types come from BTF.
const PREDEFINED: &[(&str, &str)] = &[
    ("BPFTRACE_HAVE_BTF", "1"),
    ("__BPF_TRACING__", "1"),
    ("__KERNEL__", "1"),
    ("__linux__", "1"),
    #[cfg(target_arch = "x86_64")]
    ("__x86_64__", "1"),
    #[cfg(target_arch = "x86_64")]
    ("__TARGET_ARCH_x86", "1"),
    #[cfg(target_arch = "aarch64")]
    ("__aarch64__", "1"),
    #[cfg(target_arch = "aarch64")]
    ("__TARGET_ARCH_arm64", "1"),
];

/// Supported directives; `#define` only without a value.
const DIRECTIVES: &[&str] = &[
    "if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif", "undef", "error", "warning",
    "pragma", "define",
];

/// The text with its conditional directives applied from `start` on; earlier bytes are unchanged. The length does
/// not change. `kernel`: its version, if known.
pub(crate) fn apply<'t>(
    text: &'t str,
    start: usize,
    kernel: Option<KernelVersion>,
    diags: &mut Diagnostics,
) -> Cow<'t, str> {
    let lines = directives(text, start);
    if lines.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut bytes = text.as_bytes().to_vec();
    for range in Pass::new(text, &lines, kernel, diags).run(&lines) {
        bytes[range].iter_mut().filter(|byte| !matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    }
    Cow::Owned(String::from_utf8(bytes).expect("whole lines became blanks"))
}

/// The ranges that [`apply`] blanks: whole lines.
pub(crate) fn blanked(text: &str, kernel: Option<KernelVersion>) -> Vec<Range<usize>> {
    let lines = directives(text, 0);
    Pass::new(text, &lines, kernel, &mut Diagnostics::default()).run(&lines)
}

/// A line that begins with `#`, including continuation lines.
struct Directive {
    /// `ifdef`
    word: String,
    /// Text after the word, without comments.
    rest: String,
    start: usize,
    /// Offset of its end, before the newline.
    end: usize,
}

/// All supported directives of the text; empty if the text needs no work.
fn directives(text: &str, start: usize) -> Vec<Directive> {
    if !text[start..].contains('#') {
        return Vec::new();
    }
    let (mut found, mut at, mut in_comment) = (Vec::new(), start, false);
    while at < text.len() {
        let is_directive = !in_comment && text[at..].trim_start_matches([' ', '\t']).starts_with('#');
        let end = if is_directive { logical_end(text, at) } else { line_end(text, at) };
        match is_directive {
            true => found.extend(directive(&text[at..end], at)),
            false => in_comment = ends_in_comment(&text[at..end], in_comment),
        }
        at = end + 1;
    }
    if found.iter().all(|directive| directive.word == "define") { Vec::new() } else { found }
}

fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |length| at + length)
}

/// The end of the last continuation line of the line at `at`.
fn logical_end(text: &str, at: usize) -> usize {
    let mut end = line_end(text, at);
    while end < text.len() && text[at..end].trim_end_matches('\r').ends_with('\\') {
        end = line_end(text, end + 1);
    }
    end
}

fn directive(line: &str, start: usize) -> Option<Directive> {
    let joined = line.replace("\\\r\n", " ").replace("\\\n", " ");
    let code = without_comments(&joined);
    let code = code.trim_start().strip_prefix('#')?.trim_start();
    let word: String = code.chars().take_while(char::is_ascii_alphanumeric).collect();
    let rest = code[word.len()..].trim().to_owned();
    DIRECTIVES.contains(&word.as_str()).then(|| Directive { word, rest, start, end: start + line.len() })
}

fn without_comments(line: &str) -> String {
    let (mut out, mut rest) = (String::new(), line);
    while let Some(at) = rest.find("/*") {
        if rest[..at].contains("//") {
            break;
        }
        out.push_str(&rest[..at]);
        out.push(' ');
        rest = rest[at..].find("*/").map_or("", |length| &rest[at + length + 2..]);
    }
    out.push_str(rest.split("//").next().unwrap_or(rest));
    out
}

/// Whether a block comment is open at the end of a line.
fn ends_in_comment(line: &str, mut in_comment: bool) -> bool {
    let bytes = line.as_bytes();
    let (mut at, mut quoted) = (0, false);
    while at < bytes.len() {
        let two = &bytes[at..bytes.len().min(at + 2)];
        match two {
            b"*/" if in_comment => in_comment = false,
            _ if in_comment => {
                at += 1;
                continue;
            }
            [b'\\', _] if quoted => {}
            b"//" if !quoted => return false,
            b"/*" if !quoted => in_comment = true,
            _ => {
                quoted ^= bytes[at] == b'"';
                at += 1;
                continue;
            }
        }
        at += 2;
    }
    in_comment
}

/// An `#if` without its `#endif` so far.
struct Open {
    span: Span,
    /// True if the lines around it are included.
    outside: bool,
    /// True if a previous branch was included.
    taken: bool,
    /// True if the current branch is included.
    active: bool,
    /// True after `#else`.
    last: bool,
}

struct Pass<'d> {
    diags: &'d mut Diagnostics,
    defined: HashMap<String, String>,
    /// Words in conditions, to detect names without a value that no condition uses.
    mentioned: String,
    open: Vec<Open>,
    blanks: Vec<Range<usize>>,
    /// Start of the excluded lines of the current branch.
    left_out: Option<usize>,
    text: &'d str,
}

impl<'d> Pass<'d> {
    fn new(
        text: &'d str,
        lines: &[Directive],
        kernel: Option<KernelVersion>,
        diags: &'d mut Diagnostics,
    ) -> Pass<'d> {
        let predefined = PREDEFINED.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let code = kernel.map(|version| version.code().to_string());
        let defined = predefined.chain(code.map(|code| ("LINUX_VERSION_CODE".to_string(), code))).collect();
        let conditions = lines.iter().filter(|line| line.word != "define");
        let mentioned = conditions.map(|line| line.rest.as_str()).collect::<Vec<_>>().join(" ");
        let (open, blanks) = (Vec::new(), Vec::new());
        Pass { diags, defined, mentioned, open, blanks, left_out: None, text }
    }

    /// Returns the ranges that become blanks.
    fn run(mut self, lines: &[Directive]) -> Vec<Range<usize>> {
        lines.iter().for_each(|line| self.directive(line));
        self.finish(self.text.len());
        self.blanks
    }

    fn active(&self) -> bool {
        self.open.last().is_none_or(|open| open.active)
    }

    fn directive(&mut self, line: &Directive) {
        let span = self.span(line);
        match line.word.as_str() {
            "if" | "ifdef" | "ifndef" => {
                let outside = self.active();
                let active = outside && self.condition(line);
                self.open.push(Open { span, outside, taken: active, active, last: false });
            }
            "elif" | "elifdef" | "elifndef" | "else" => self.branch(line),
            "endif" if self.open.pop().is_none() => self.stray(line),
            "endif" => {}
            _ if !self.active() => return,
            "define" => return self.define(line),
            "undef" => drop(self.defined.remove(&line.rest)),
            "error" => {
                self.diags.error("E0041", span, format!("the script stops here: {}", line.rest));
            }
            "warning" => {
                self.diags.warning("W0053", span, format!("the script warns: {}", line.rest));
            }
            _ => {}
        }
        self.blank(line);
    }

    /// Handles `#elif` and `#else`.
    fn branch(&mut self, line: &Directive) {
        let Some(open) = self.open.last().filter(|open| !open.last) else { return self.stray(line) };
        let may = open.outside && !open.taken;
        let active = may && (line.word == "else" || self.condition(line));
        let open = self.open.last_mut().expect("it was there");
        (open.active, open.last) = (active, line.word == "else");
        open.taken |= active;
    }

    /// `#define NAME value` is left to the grammar; a name without a value is used only in conditions.
    fn define(&mut self, line: &Directive) {
        let name: String = line.rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let value = line.rest[name.len()..].to_owned();
        let flag = value.is_empty() && condition::words(&self.mentioned).any(|word| word == name);
        if flag {
            self.blanks.push(line.start..line.end);
        }
        self.defined.insert(name, value);
    }

    fn condition(&mut self, line: &Directive) -> bool {
        let holds = match line.word.as_str() {
            "ifdef" | "elifdef" => Ok(self.defined.contains_key(&line.rest)),
            "ifndef" | "elifndef" => Ok(!self.defined.contains_key(&line.rest)),
            _ => condition::holds(&line.rest, &self.defined),
        };
        holds.unwrap_or_else(|why| {
            let message = format!("`#{}` cannot be evaluated: {why}", line.word);
            let help = "a condition consists of integers, operators, `defined(NAME)` and names of `#define`";
            self.diags.error("E0041", self.span(line), message).help(help);
            false
        })
    }

    fn stray(&mut self, line: &Directive) {
        let message = format!("`#{}` has no `#if` before it", line.word);
        self.diags.error("E0041", self.span(line), message);
    }

    fn span(&self, line: &Directive) -> Span {
        let first = self.text[line.start..line.end].lines().next().unwrap_or("");
        let start = line.start + first.len() - first.trim_start().len();
        Span::new(start, line.start + first.trim_end().len())
    }

    /// Blanks a directive, including adjacent excluded lines.
    fn blank(&mut self, line: &Directive) {
        let start = self.left_out.take().unwrap_or(line.start);
        match self.active() {
            true => self.blanks.push(start..line.end),
            false => self.left_out = Some(start),
        }
    }

    fn finish(&mut self, end: usize) {
        if let Some(start) = self.left_out.take() {
            self.blanks.push(start..end);
        }
        for open in std::mem::take(&mut self.open) {
            self.diags
                .error("E0041", open.span, "this condition is not closed")
                .help("write `#endif` after the lines that it covers");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The remaining text of a script, and the messages.
    fn left(text: &str) -> (String, Vec<String>) {
        let mut diags = Diagnostics::default();
        let applied = apply(text, 0, Some(KernelVersion { major: 6, minor: 1, patch: 0 }), &mut diags);
        assert_eq!(applied.len(), text.len());
        let lines = applied.lines().map(str::trim).filter(|line| !line.is_empty());
        (lines.collect::<Vec<_>>().join("|"), diags.list.into_iter().map(|d| d.message).collect())
    }

    #[track_caller]
    fn takes(text: &str, wanted: &str) {
        assert_eq!(left(text), (wanted.to_owned(), vec![]), "{text}");
    }

    #[test]
    fn one_branch_is_left() {
        takes("#ifndef BPFTRACE_HAVE_BTF\n#include <linux/sched.h>\n#else\nA\n#endif\nB", "A|B");
        takes("#if 0\nA\n#elif 1\nB\n#elif 1\nC\n#else\nD\n#endif", "B");
        takes("# if 1 // yes\nA\n# else /* no */\nB\n#endif", "A");
        takes("#ifdef NO\n#if 1\nA\n#else\nB\n#endif\n#else\nC\n#endif", "C");
    }

    #[test]
    fn conditions_see_what_is_defined_before_them() {
        takes("#define LIMIT 0x10\n#if LIMIT * 2 == 32 && !defined(X)\nA\n#endif", "#define LIMIT 0x10|A");
        takes("#define DEBUG\n#ifdef DEBUG\nA\n#endif\n#undef DEBUG\n#ifdef DEBUG\nB\n#endif", "A");
        takes("#if LATER\nA\n#endif\n#define LATER 1", "#define LATER 1");
        takes("#ifdef NO\n#define A 1\n#endif\n#ifndef A\nB\n#endif", "B");
    }

    #[test]
    fn conditions_know_the_kernel() {
        takes("#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 8, 0)\nA\n#else\nB\n#endif", "A");
        takes("#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)\nA\n#else\nB\n#endif", "B");
    }

    #[test]
    fn comments_and_texts_have_no_directives() {
        takes("/*\n#if 0\n*/\nA // /*\n#if 1\nB \"/*\"\n#endif", "/*|#if 0|*/|A // /*|B \"/*\"");
        takes("#!/usr/bin/cudatrace\n#pragma once\nA", "#!/usr/bin/cudatrace|A");
        takes("#if defined(A) || \\\n  1\nB\n#endif", "B");
    }

    #[test]
    fn mistakes_are_reported_where_they_are() {
        assert_eq!(left("#else\nA").1, ["`#else` has no `#if` before it"]);
        assert_eq!(left("#if 1\n#else\n#else\n#endif").1, ["`#else` has no `#if` before it"]);
        assert_eq!(left("#if 1\nA").1, ["this condition is not closed"]);
        assert_eq!(left("#if (1\nA\n#endif").1, ["`#if` cannot be evaluated: `)` is missing"]);
        assert_eq!(
            left("#if 0\n#error no\n#else\n#error not here\n#endif").1,
            ["the script stops here: not here"]
        );
    }
}

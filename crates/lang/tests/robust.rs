//! Any text at all: the parser answers with a script or with errors that have a place and a code, and does not panic, run
//! out of stack or take long. The corpus is every script of the golden files, damaged in many ways, and bytes by chance.

#[path = "../../wire/tests/common/rounds.rs"]
mod rounds;

use std::path::Path;

use lang::diagnostics::codes;
use lang::{Diagnostics, Source};
use rounds::rounds;

/// Deterministic pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// Text that begins, ends or breaks a construct.
const PIECES: &[&str] = &[
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    "/",
    "/*",
    "*/",
    "//",
    "\"",
    "'",
    ";",
    ",",
    ":",
    "::",
    "=",
    "==",
    "->",
    "..",
    "?",
    "#",
    "#define X ",
    "$",
    "@",
    "\\",
    "\n",
    "\r\n",
    "\0",
    "é",
    "\u{feff}",
    "\u{a0}",
    "if ",
    "else ",
    "for ",
    "let ",
    "macro m($a) ",
    "struct s ",
    "config = ",
    "BEGIN ",
    "uprobe:a:b ",
    "1.5",
    "0x",
    "18446744073709551616",
    "++",
    "--",
];

fn corpus() -> Vec<String> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let folders = ["parse", "check", "resolve", "fmt"];
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(golden.join(folder)).unwrap());
    let mut paths: Vec<_> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    paths.sort();
    let script = |path| std::fs::read_to_string(path).unwrap().split("====").next().unwrap().to_string();
    paths.into_iter().map(script).collect()
}

fn place(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

fn damaged(script: &str, numbers: &mut Numbers) -> String {
    let mut text = script.to_string();
    for _ in 0..1 + numbers.below(4) {
        let start = place(&text, numbers.below(text.len() + 1));
        let end = place(&text, start + numbers.below(12)).max(start);
        match numbers.below(4) {
            0 => text.replace_range(start..end, ""),
            1 => text.insert_str(start, numbers.pick(PIECES)),
            2 => text.replace_range(start..end, numbers.pick(PIECES)),
            _ => text.insert_str(start, &script[place(script, start)..place(script, start + 30)]),
        }
    }
    text
}

/// Parses a text, and renders its diagnostics.
fn read(text: &str) {
    let mut diags = Diagnostics::default();
    let source = Source::new("t.ct", text);
    let script = lang::parse(&source, &[], &mut diags);
    assert_eq!(script.is_none(), diags.has_errors(), "{text}");
    for diag in &diags.list {
        let (start, end) = (diag.span.start as usize, diag.span.end as usize);
        assert!(start <= end && end <= text.len(), "{text}: {diag:?}");
        assert!(codes::find(diag.code).is_some(), "{diag:?}");
    }
    lang::diagnostics::render::render(&diags.list, &source, false);
}

#[test]
fn damaged_scripts_are_read_or_refused() {
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    let scripts = corpus();
    assert!(scripts.len() > 60, "the golden files are gone");
    for round in rounds(4 * scripts.len()) {
        read(&damaged(&scripts[round % scripts.len()], &mut numbers));
    }
}

#[test]
fn any_bytes_are_read_or_refused() {
    let mut numbers = Numbers(0x1234_5678_9abc_def1);
    for _ in rounds(1_000) {
        let bytes: Vec<u8> = (0..numbers.below(80)).map(|_| numbers.below(256) as u8).collect();
        read(&String::from_utf8_lossy(&bytes));
        let pieces: Vec<&str> = (0..numbers.below(40)).map(|_| numbers.pick(PIECES)).collect();
        read(&pieces.concat());
    }
}

#[test]
fn formatting_of_damaged_scripts_is_idempotent() {
    let mut numbers = Numbers(0x0dd0_5eed_cafe_f00d);
    let format = |text: &str| lang::format(&Source::new("t.ct", text), &mut Diagnostics::default());
    let mut formatted = 0;
    for script in corpus() {
        let text = damaged(&script, &mut numbers);
        if let Ok(once) = format(&text) {
            assert_eq!(format(&once).as_ref(), Ok(&once), "{text}");
            formatted += 1;
        }
    }
    assert!(formatted > 5, "{formatted}");
}

#[test]
fn many_mistakes_are_found_in_one_clause_and_no_more_than_they_are() {
    for count in [1, 2, 5, 15] {
        let text =
            format!("BEGIN {{\n{}}}\nEND {{ print(1); }}", "    $x = ;\n    print(2);\n".repeat(count));
        let mut diags = Diagnostics::default();
        lang::parse(&Source::new("t.ct", text.as_str()), &[], &mut diags);
        assert_eq!(diags.list.len(), count, "{text}");
    }
}

#[test]
fn text_after_many_broken_clauses_is_parsed() {
    let text = "BEGIN { $x = ; }\n".repeat(60) + "END { printf(\"); }\n";
    let mut diags = Diagnostics::default();
    lang::parse(&Source::new("t.ct", text.as_str()), &[], &mut diags);
    assert_eq!(diags.list.len(), 61);
    assert_eq!(diags.list.last().map(|last| last.code), Some("E0002"));
}

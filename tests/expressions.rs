//! Expressions of numbers and texts mean what they mean in C: 300 that are made by chance, against a program compiled by gcc.
//!
//! Each conversion is a cast in C, as in the manual: unsigned if both sides are, signed otherwise. `EXPRESSIONS_SEED`
//! makes others.

mod common;

use common::{can_trace, cudatrace, missing, stderr, stdout};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

const EXPRESSIONS: usize = 300;
/// Number of expressions per clause: a program has a limited size.
const OF_CLAUSE: usize = 12;

/// Deterministic pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// An expression in both languages.
struct Both {
    script: String,
    c: String,
    signed: bool,
}

impl Both {
    fn new(script: impl Into<String>, c: impl Into<String>, signed: bool) -> Both {
        Both { script: script.into(), c: c.into(), signed }
    }

    /// The expression in C, converted.
    fn c_as(&self, signed: bool) -> String {
        format!("(({})({}))", if signed { "int64_t" } else { "uint64_t" }, self.c)
    }
}

const TEXTS: [&str; 6] = ["kernel_fill", "", "k", "fill", "nel_", "memcpy"];

fn leaf(numbers: &mut Numbers) -> Both {
    let text = TEXTS[numbers.below(TEXTS.len())];
    let at = numbers.below(8);
    match numbers.below(14) {
        0..=2 => Both::new("$a", "a", true),
        3 | 4 => Both::new("$b", "b", true),
        5..=7 => Both::new("$c", "c", false),
        8 => {
            let value = numbers.next() as i64 >> numbers.below(63);
            Both::new(format!("((int64){value})"), format!("(int64_t){value}LL"), true)
        }
        9 => {
            let value = numbers.next() >> numbers.below(63);
            Both::new(format!("((uint64){value})"), format!("{value}ULL"), false)
        }
        10 => Both::new("((int64)strlen($s))", "strlen(s)", true),
        11 => Both::new(format!("((int64)$s[{at}])"), format!("s[{at}]"), true),
        12 => {
            let equal = |s: &str| format!("(strncmp({s}, {text:?}, {}) == 0)", at + 1);
            Both::new(format!("((int64){})", equal("$s")), equal("s"), true)
        }
        _ => match numbers.below(3) {
            0 => Both::new(format!("((int64)strstr($s, {text:?}))"), format!("find(s, {text:?})"), true),
            1 => Both::new(
                format!("((int64)strcontains($s, {text:?}))"),
                format!("(find(s, {text:?}) >= 0)"),
                true,
            ),
            _ => Both::new("((int64)($s == $t))", "(strcmp(s, t) == 0)", true),
        },
    }
}

/// Names of integers with fewer bits, in both languages.
const NARROW: [(&str, bool); 6] = [
    ("int8", true),
    ("int16", true),
    ("int32", true),
    ("uint8", false),
    ("uint16", false),
    ("uint32", false),
];

fn expression(numbers: &mut Numbers, depth: usize) -> Both {
    if depth == 0 || numbers.below(6) == 0 {
        return leaf(numbers);
    }
    let one = expression(numbers, depth - 1);
    match numbers.below(10) {
        0 => {
            let (name, signed) = NARROW[numbers.below(NARROW.len())];
            Both::new(format!("(({name})({}))", one.script), format!("(({name}_t)({}))", one.c), signed)
        }
        1 => Both::new(format!("(-({}))", one.script), format!("(-{})", one.c_as(true)), true),
        2 => Both::new(format!("(~({}))", one.script), format!("(~{})", one.c_as(one.signed)), one.signed),
        3 => {
            let (two, three) = (expression(numbers, depth - 1), expression(numbers, depth - 1));
            let signed = two.signed || three.signed;
            let script = format!("(({}) != 0 ? ({}) : ({}))", one.script, two.script, three.script);
            Both::new(
                script,
                format!("({} != 0 ? {} : {})", one.c, two.c_as(signed), three.c_as(signed)),
                signed,
            )
        }
        _ => {
            let two = expression(numbers, depth - 1);
            binary(numbers, one, two)
        }
    }
}

fn binary(numbers: &mut Numbers, one: Both, two: Both) -> Both {
    let signed = one.signed || two.signed;
    let (left, right) = (one.c_as(signed), two.c_as(signed));
    let plain = ["+", "-", "*", "&", "|", "^"];
    let compared = ["<", ">", "<=", ">=", "==", "!="];
    match numbers.below(14) {
        chosen @ 0..=5 => {
            let op = plain[chosen];
            Both::new(
                format!("(({}) {op} ({}))", one.script, two.script),
                format!("({left} {op} {right})"),
                signed,
            )
        }
        6 | 7 => {
            let of = if signed { "div_s" } else { "div_u" };
            Both::new(
                format!("(({}) / ({}))", one.script, two.script),
                format!("{of}({left}, {right})"),
                signed,
            )
        }
        8 | 9 => {
            let of = if signed { "rem_s" } else { "rem_u" };
            Both::new(
                format!("(({}) % ({}))", one.script, two.script),
                format!("{of}({left}, {right})"),
                signed,
            )
        }
        10 => {
            let op = ["<<", ">>"][numbers.below(2)];
            let script = format!("(({}) {op} (({}) & 63))", one.script, two.script);
            Both::new(
                script,
                format!("({} {op} ({} & 63))", one.c_as(one.signed), two.c_as(true)),
                one.signed,
            )
        }
        11 => {
            let op = ["&&", "||"][numbers.below(2)];
            let script = format!("((int64)(({}) != 0 {op} ({}) != 0))", one.script, two.script);
            Both::new(script, format!("({} != 0 {op} {} != 0)", one.c, two.c), true)
        }
        _ => {
            let op = compared[numbers.below(compared.len())];
            let script = format!("((int64)(({}) {op} ({})))", one.script, two.script);
            Both::new(script, format!("({left} {op} {right})"), true)
        }
    }
}

const C: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <string.h>
static int64_t find(const char *s, const char *part) { const char *at = strstr(s, part); return at ? at - s : -1; }
static int64_t div_s(int64_t a, int64_t b) { return b == 0 ? 1 : b == -1 ? -(uint64_t)a : a / b; }
static int64_t rem_s(int64_t a, int64_t b) { return b == 0 ? 1 : b == -1 ? 0 : a % b; }
static uint64_t div_u(uint64_t a, uint64_t b) { return b == 0 ? 1 : a / b; }
static uint64_t rem_u(uint64_t a, uint64_t b) { return b == 0 ? 1 : a % b; }
__attribute__((noinline)) void values(int64_t a, int64_t b, uint64_t c, const char *s, const char *t, int call) {
    (void)find, (void)div_s, (void)rem_s, (void)div_u, (void)rem_u;
EXPRESSIONS
}
int main(void) {
    char s[] = "kernel_fill\0and more", t[] = "kernel_fill", u[] = "memcpy\0\0\0\0\0";
    values(0, 0, 0, s, t, 0);
    values(1, -1, 1, u, t, 1);
    values(-7, 3, 1ull << 63, s, u, 2);
    values(INT64_MIN, -1, ~0ull, s, t, 3);
    values(INT64_MAX, 1 << 20, 4096, u, u, 4);
    values(123456789012345, -987654321, 77, s, t, 5);
    return 0;
}
"#;

#[test]
fn expressions_are_worth_what_c_makes_of_them() {
    if !can_trace() {
        return;
    }
    let seed = common::number("EXPRESSIONS_SEED").unwrap_or(1);
    let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let all: Vec<Both> = (0..EXPRESSIONS).map(|_| expression(&mut numbers, 3)).collect();
    let folder = tempfile::tempdir().expect("a directory");
    let (source, program) = (folder.path().join("values.c"), folder.path().join("values"));
    let mut printed = String::new();
    for (number, Both { c, .. }) in all.iter().enumerate() {
        let _ = writeln!(printed, "    printf(\"C %d {number} %ld\\n\", call, (int64_t)({c}));");
    }
    std::fs::write(&source, C.replace("EXPRESSIONS", &printed)).expect("written");
    let gcc =
        Command::new("gcc").args(["-w", "-O1", "-fwrapv"]).arg(&source).arg("-o").arg(&program).status();
    if !gcc.is_ok_and(|status| status.success()) {
        return missing("there is no gcc");
    }
    let mut script = String::from("config = { max_strlen = 64 }\n");
    for (chunk, part) in all.chunks(OF_CLAUSE).enumerate() {
        let _ = writeln!(script, "uprobe:{}:values {{", program.display());
        script +=
            "    $a = (int64)arg0; $b = (int64)arg1; $c = (uint64)arg2; $s = str(arg3); $t = str(arg4);\n";
        for (number, both) in (chunk * OF_CLAUSE..).zip(part) {
            let _ = writeln!(script, "    printf(\"T %d {number} %d\\n\", arg5, (int64)({}));", both.script);
        }
        script += "}\n";
    }
    let path = folder.path().join("values.ct");
    std::fs::write(&path, &script).expect("written");
    // In a file of its own: the program writes in blocks, which end within lines.
    let to = folder.path().join("traced");
    let mut command = cudatrace();
    command.args(["-q", "-o"]).arg(&to).arg(&path).arg("--").arg(&program);
    let output = command.output().expect("cudatrace starts");
    let (text, of_tracer) = (stdout(&output), std::fs::read_to_string(&to).expect("written"));
    let computed: BTreeSet<&str> = text.lines().filter_map(|line| line.strip_prefix("C ")).collect();
    let traced: BTreeSet<&str> = of_tracer.lines().filter_map(|line| line.strip_prefix("T ")).collect();
    assert_eq!(computed.len(), 6 * EXPRESSIONS, "{}", stderr(&output));
    let wrong: Vec<&&str> = computed.difference(&traced).collect();
    let shown = wrong.iter().take(5).map(|line| {
        let number: usize = line.split(' ').nth(1).and_then(|number| number.parse().ok()).expect("a number");
        let found = traced.iter().find(|other| other.split(' ').take(2).eq(line.split(' ').take(2)));
        format!("C: {line}, found: {found:?}\n  {}\n  {}\n", all[number].script, all[number].c)
    });
    let shown: String = shown.collect();
    assert!(wrong.is_empty(), "seed {seed}: {} are wrong:\n{shown}{}", wrong.len(), stderr(&output));
}

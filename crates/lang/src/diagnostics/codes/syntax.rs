//! Codes of the parser: `E00xx`.

use crate::diagnostics::Code;

/// Findings of the parser.
pub const SYNTAX: &[Code] = &[
    Code {
        code: "E0001",
        title: "something else is expected here",
        explanation: "The text does not follow the grammar at the marked place. The message names what could stand \
                      there. The next clause is read as usual, so that further mistakes are reported in the same run.",
        example: "BEGIN { print(1 print(2) }",
        repaired: "BEGIN { print(1); print(2) }",
    },
    Code {
        code: "E0002",
        title: "a string is not closed",
        explanation: "A string ends on the line on which it begins. Write `\\n` for a newline in it and `\\\"` for a \
                      quote.",
        example: "BEGIN { printf(\"hello); }",
        repaired: "BEGIN { printf(\"hello\"); }",
    },
    Code {
        code: "E0003",
        title: "a bracket is not closed",
        explanation: "Each `{`, `(` and `[` needs its partner, and a `< ... >` body its `>`. The marked one has none \
                      before the next clause or the end of the script.",
        example: "BEGIN { if pid { print(1); }",
        repaired: "BEGIN { if pid { print(1); } }",
    },
    Code {
        code: "E0004",
        title: "there are no floating point numbers",
        explanation: "Code in the kernel has integers only. Divide by an integer (`bytes / 1000000`), or scale first \
                      when digits behind the point matter (`bytes * 100 / 1000000`).",
        example: "BEGIN { print(3 / 1000000.0); }",
        repaired: "BEGIN { print(3 / 1000000); }",
    },
    Code {
        code: "E0005",
        title: "this is not a number",
        explanation: "Integers are decimal (`12`, `1_000`, `1e6`), hexadecimal (`0x1f`) or octal (`017`), with at most \
                      64 bits. A duration has a unit: `ns us ms s m h d`. C suffixes such as `UL` are accepted.",
        example: "BEGIN { print(12kb); }",
        repaired: "BEGIN { print(12 * 1024); }",
    },
    Code {
        code: "E0006",
        title: "an assignment where a value is expected",
        explanation: "`=` assigns and is a statement; `==` compares and is an expression. Predicates, conditions and \
                      parentheses take expressions.",
        example: "interval:s:1 /pid = 3/ { print(1); }",
        repaired: "interval:s:1 /pid == 3/ { print(1); }",
    },
    Code {
        code: "E0007",
        title: "nested too deeply",
        explanation: "Brackets, operators and blocks may be nested a few hundred deep, and so may pointers to pointers, \
                      structs in structs and `#define`s of each other. Give a part of the expression to a variable first.",
        example: concat!(
            "BEGIN { $x = !!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!\n",
            "             !!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!\n",
            "             !!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!1; print($x); }",
        ),
        repaired: "BEGIN { $x = !!1; print($x); }",
    },
    Code {
        code: "E0008",
        title: "this cannot be assigned to",
        explanation: "Only scratch variables (`$x`) and maps (`@m`, `@m[key]`) can be changed: by `=`, by `+=` and its \
                      kind, by `++` and `--`.",
        example: "BEGIN { pid = 3; }",
        repaired: "BEGIN { $pid = 3; print($pid); }",
    },
    Code {
        code: "E0009",
        title: "unknown escape in a string",
        explanation: "Strings know `\\n`, `\\t`, `\\r`, `\\a`, `\\b`, `\\e`, `\\\"`, `\\\\`, octal bytes (`\\033`) and \
                      hexadecimal bytes (`\\x1b`).",
        example: "BEGIN { printf(\"100\\%\"); }",
        repaired: "BEGIN { printf(\"100%%\"); }",
    },
    Code {
        code: "E0010",
        title: "a probe is not written completely",
        explanation: "A probe is a provider and what it needs, with colons between: `uprobe:libcuda:cuMemAlloc`. \
                      After a comma a bare function takes over what stands before the last colon. A positional \
                      parameter in a probe must be given on the command line.",
        example: "BEGIN, cuInit { print(1); }",
        repaired: "BEGIN, uprobe:libcuda:cuInit { print(1); }",
    },
    Code {
        code: "E0011",
        title: "not part of this language",
        explanation: "Of C's preprocessor there are `#include`, `#define NAME literal`, `#undef` and conditions such as \
                      `#ifdef`. `struct`, `union`, `enum` and `typedef` declare types, and `macro` names what stands for \
                      more than a literal.",
        example: "#import \"x.h\"",
        repaired: "#define LIMIT 4096\nuprobe:libcuda:cuMemAlloc / args.bytesize > LIMIT / { @ = count() }",
    },
    Code {
        code: "E0012",
        title: "a comment is not closed",
        explanation: "A comment that begins with `/*` ends with `*/`; comments do not nest.",
        example: "BEGIN { print(1); } /* and then",
        repaired: "BEGIN { print(1); } /* and then */",
    },
    Code {
        code: "E0013",
        title: "`>` closes the body",
        explanation: "In a `< ... >` body a `>` outside parentheses closes the body, as in C++ template arguments. Put \
                      comparisons and shifts in parentheses, or write the body in braces.",
        example: "BEGIN < $x = 3; $y = $x > 2; print($y); >",
        repaired: "BEGIN < $x = 3; $y = ($x > 2); print($y); >",
    },
    Code {
        code: "W0051",
        title: "an unknown header",
        explanation: "Headers are not read. What CUDA's headers and the usual headers of C and of the kernel's interface \
                      define is built in, and the kernel's own types come from its BTF: including those headers is \
                      accepted. What another header defines is unknown.",
        example: "#include <zlib.h>\nBEGIN { print(1); }",
        repaired: "#include <linux/sched.h>\nBEGIN { print(1); }",
    },
    Code {
        code: "W0052",
        title: "a definition that has no effect",
        explanation: "`#define` names a literal: `#define LIMIT 4096`. A name without a value serves conditions such as \
                      `#ifdef` only; macros with parameters and values of another kind are not expanded. Where such a \
                      name is used it is unknown.",
        example: "#define TWICE(x) x + x\nBEGIN { print(1); }",
        repaired: "#define TWO 2\nBEGIN { print(TWO); }",
    },
    Code {
        code: "E0041",
        title: "a condition of the preprocessor is wrong",
        explanation: "`#if`, `#ifdef` and `#ifndef` are closed by `#endif`; `#elif` and `#else` belong to one of them. \
                      Conditions have integers, operators, `defined(NAME)` and names of `#define`. `#error` in lines that \
                      are taken refuses the script.",
        example: "#ifdef DEBUG\nBEGIN { print(1); }",
        repaired: "#ifdef DEBUG\nBEGIN { print(1); }\n#endif\nEND { print(2); }",
    },
    Code {
        code: "W0053",
        title: "the script warns",
        explanation: "A `#warning` in lines that are taken.",
        example: "#warning old\nBEGIN { print(1); }",
        repaired: "#if 0\n#warning old\n#endif\nBEGIN { print(1); }",
    },
    Code {
        code: "E0016",
        title: "a loop over something that has no elements",
        explanation: "`for` goes over a range of integers (`for $i : 0..10`) or over a whole map (`for $kv : @m`). A \
                      single value of a map, or a variable, is neither.",
        example: "BEGIN { for $i : 10 { print($i); } }",
        repaired: "BEGIN { for $i : 0..10 { print($i); } }",
    },
    Code {
        code: "E0017",
        title: "a value with a name where none is taken",
        explanation: "`name = value` between the parentheses of a call is for `span`, `event` and `counter`, behind what has \
                      no name. To compare, write `==`.",
        example: "BEGIN { print(pid = 1) }",
        repaired: "BEGIN { print(pid == 1) }",
    },
];

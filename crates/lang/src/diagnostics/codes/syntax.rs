//! Codes of the parser: `E00xx`.

use crate::diagnostics::Code;

/// Codes of the parser.
pub const SYNTAX: &[Code] = &[
    Code {
        code: "E0001",
        title: "something else is expected here",
        explanation: "The text does not follow the grammar at the marked position. The message names what is expected \
                      there. The next clause is parsed as usual, so that its mistakes are reported in the same run.",
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
        explanation: "Each `{`, `(` and `[` needs a closing bracket, and a `< ... >` body needs its `>`. The marked \
                      bracket is not closed before the next clause or the end of the script.",
        example: "BEGIN { if pid { print(1); }",
        repaired: "BEGIN { if pid { print(1); } }",
    },
    Code {
        code: "E0004",
        title: "a floating-point number",
        explanation: "Programs in the kernel compute with integers only. Divide by an integer (`bytes / 1000000`), or \
                      scale first if digits after the decimal point matter (`bytes * 100 / 1000000`).",
        example: "BEGIN { print(3 / 1000000.0); }",
        repaired: "BEGIN { print(3 / 1000000); }",
    },
    Code {
        code: "E0005",
        title: "this is not a number",
        explanation: "Integers are decimal (`12`, `1_000`, `1e6`), hexadecimal (`0x1f`) or octal (`017`), and have at \
                      most 64 bits. A duration has a unit: `ns us ms s m h d`. C suffixes such as `UL` are accepted.",
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
        explanation: "Brackets, operators and blocks may be nested a few hundred levels deep, and so may pointers to \
                      pointers, structs in structs and `#define`s that use each other. Assign a part of the expression \
                      to a variable first.",
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
        explanation: "Only scratch variables (`$x`) and maps (`@m`, `@m[key]`) can be assigned to: by `=`, by `+=` and \
                      similar operators, by `++` and `--`.",
        example: "BEGIN { pid = 3; }",
        repaired: "BEGIN { $pid = 3; print($pid); }",
    },
    Code {
        code: "E0009",
        title: "unknown escape in a string",
        explanation: "The escapes in strings are `\\n`, `\\t`, `\\r`, `\\a`, `\\b`, `\\e`, `\\\"`, `\\\\`, octal bytes \
                      (`\\033`) and hexadecimal bytes (`\\x1b`).",
        example: "BEGIN { printf(\"100\\%\"); }",
        repaired: "BEGIN { printf(\"100%%\"); }",
    },
    Code {
        code: "E0010",
        title: "an incomplete probe",
        explanation: "A probe consists of a provider and its parts, joined by colons: `uprobe:libcuda:cuMemAlloc`. \
                      After a comma, a bare function name uses the provider and target of the probe before it. A \
                      positional parameter in a probe must be given on the command line.",
        example: "BEGIN, cuInit { print(1); }",
        repaired: "BEGIN, uprobe:libcuda:cuInit { print(1); }",
    },
    Code {
        code: "E0011",
        title: "not part of this language",
        explanation: "The directives of C's preprocessor that work here are `#include`, `#define NAME literal`, \
                      `#undef` and conditions such as `#ifdef`. `struct`, `union`, `enum` and `typedef` declare types. \
                      `macro` declares a name for anything larger than a literal.",
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
        explanation: "Headers are not read. The definitions of CUDA's headers, of C's usual headers and of the kernel's \
                      user-space headers are built in, and the kernel's own types come from its BTF. Including those \
                      headers is accepted. The definitions of other headers are unknown.",
        example: "#include <zlib.h>\nBEGIN { print(1); }",
        repaired: "#include <linux/sched.h>\nBEGIN { print(1); }",
    },
    Code {
        code: "W0052",
        title: "a definition that has no effect",
        explanation: "`#define` names a literal: `#define LIMIT 4096`. A name without a value is known to conditions \
                      such as `#ifdef` only. Macros with parameters, and values that are not literals, are not \
                      expanded: their names are unknown elsewhere in the script.",
        example: "#define TWICE(x) x + x\nBEGIN { print(1); }",
        repaired: "#define TWO 2\nBEGIN { print(TWO); }",
    },
    Code {
        code: "E0041",
        title: "a wrong preprocessor condition",
        explanation: "`#if`, `#ifdef` and `#ifndef` are closed by `#endif`; `#elif` and `#else` belong to one of them. \
                      A condition consists of integers, operators, `defined(NAME)` and names of `#define`. An `#error` \
                      in lines that are compiled refuses the script.",
        example: "#ifdef DEBUG\nBEGIN { print(1); }",
        repaired: "#ifdef DEBUG\nBEGIN { print(1); }\n#endif\nEND { print(2); }",
    },
    Code {
        code: "W0053",
        title: "a warning of the script",
        explanation: "The lines that are compiled contain a `#warning`.",
        example: "#warning old\nBEGIN { print(1); }",
        repaired: "#if 0\n#warning old\n#endif\nBEGIN { print(1); }",
    },
    Code {
        code: "E0016",
        title: "a loop over a value without elements",
        explanation: "`for` loops over a range of integers (`for $i : 0..10`) or over a whole map (`for $kv : @m`). A \
                      single value of a map, or a variable, is neither.",
        example: "BEGIN { for $i : 10 { print($i); } }",
        repaired: "BEGIN { for $i : 0..10 { print($i); } }",
    },
    Code {
        code: "E0017",
        title: "an unexpected named value",
        explanation: "Named values, `name = value`, are arguments of `span`, `event` and `counter` only, after the \
                      values without a name. To compare, write `==`.",
        example: "BEGIN { print(pid = 1) }",
        repaired: "BEGIN { print(pid == 1) }",
    },
];

//! Codes of the expansions: `E003x`.

use crate::diagnostics::Code;

/// Findings of the expansion.
pub const FORMS: &[Code] = &[
    Code {
        code: "E0031",
        title: "an option of the script is wrong",
        explanation: "`getopt(\"name\", default, \"help\")` reads `--name=value` from behind the script on the command \
                      line. The default is a number, a string, `true` or `false`, the same wherever the option is \
                      asked for, and the value must be of its type. Without a default the option is a switch.",
        example: "BEGIN { print(getopt(\"top\", pid)); }",
        repaired: "BEGIN { print(getopt(\"top\", 10)); }",
    },
    Code {
        code: "E0032",
        title: "a macro is defined twice",
        explanation: "Macros of one name must differ in what they want: in the number of parameters, or in their kinds \
                      (an expression `a`, a variable `$a`, a map `@a`).",
        example: "macro next(a) { a + 1 } macro next(b) { b + 2 } BEGIN { print(next(1)); }",
        repaired: "macro next(a) { a + 1 } macro next(a, step) { a + step } BEGIN { print(next(next(1), 2)); }",
    },
    Code {
        code: "E0033",
        title: "a macro uses itself",
        explanation: "A macro is put in where it is used, so it cannot use itself, nor may two use each other. Loops \
                      repeat things.",
        example: "macro forever(a) { forever(a + 1) } BEGIN { print(forever(1)); }",
        repaired: "macro next(a) { a + 1 } BEGIN { print(next(1)); }",
    },
    Code {
        code: "E0034",
        title: "a macro does not take this",
        explanation: "A macro wants as many arguments as it has parameters: for `a` any expression, for `$a` a variable \
                      of the caller, for `@a` a whole map.",
        example: "macro reset($a) { $a = 0; } BEGIN { $x = 1; reset(1); print($x); }",
        repaired: "macro reset($a) { $a = 0; } BEGIN { $x = 1; reset($x); print($x); }",
    },
    Code {
        code: "E0035",
        title: "a macro uses a map that it is not given",
        explanation: "A macro has variables of its own, and of the caller's things it sees only what is handed over. A \
                      map is handed over as `@name`.",
        example: "macro note(k) { @seen[k] = 1; } BEGIN { note(3); }",
        repaired: "macro note(@seen, k) { @seen[k] = 1; } BEGIN { note(@seen, 3); }",
    },
    Code {
        code: "E0036",
        title: "a block without a value where one is wanted",
        explanation: "The value of a block, and of a macro, is its last expression if no `;` follows it.",
        example: "BEGIN { $x = { $y = 1; $y + 1; }; print($x); }",
        repaired: "BEGIN { $x = { $y = 1; $y + 1 }; print($x); }",
    },
    Code {
        code: "E0037",
        title: "settings in a script that is imported",
        explanation: "Settings are for the whole run: the script that is run has them, not one that it imports.",
        example: "import \"settings.ct\"; BEGIN { print(1); }",
        repaired: "config = { max_strlen = 64 } import \"common.ct\"; BEGIN { print(LIMIT); }",
    },
    Code {
        code: "E0038",
        title: "a script cannot be imported",
        explanation: "`import` takes the path of a script, relative to the script that imports it, or of a folder of \
                      scripts. Only scripts can be imported: C is not read, and the types of CUDA are built in. Files \
                      that anybody may write are refused.",
        example: "import \"comon.ct\"; BEGIN { print(1); }",
        repaired: "import \"common.ct\"; BEGIN { print(LIMIT); }",
    },
    Code {
        code: "E0039",
        title: "scripts import each other",
        explanation: "A script is read once however often it is imported, but it cannot import itself, nor a script \
                      that imports it. What both need goes to a script of its own.",
        example: "import \"circle.ct\"; BEGIN { print(1); }",
        repaired: "import \"common.ct\"; import \"common.ct\"; BEGIN { print(LIMIT); }",
    },
    Code {
        code: "E0040",
        title: "an operation has no such argument, or not yet",
        explanation: "Each operation of CUDA has its own arguments, the same whichever function does it. What the call \
                      gives back is known only when it returns. `cudatrace -l -v 'cuda:*'` lists the arguments.",
        example: "cuda:alloc { @ = sum(args.byte) }",
        repaired: "cuda:alloc { @ = sum(args.bytes) }",
    },
    Code {
        code: "W0041",
        title: "no function of an operation meets the condition",
        explanation: "Which function does an operation is known before the program runs, and with it `args.kind` in most \
                      cases. A clause is attached to the functions that its condition may hold for; here there is none. \
                      `cudatrace -l -v 'cuda:*'` lists the functions.",
        example: "cuda:graph / args.kind == \"start\" / { @ = count() }",
        repaired: "cuda:graph / args.kind == \"launch\" / { @ = count() }",
    },
];

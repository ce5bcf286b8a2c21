//! Codes of the expansions: `E003x`.

use crate::diagnostics::Code;

/// Codes of the expansion.
pub const EXPANSION: &[Code] = &[
    Code {
        code: "E0031",
        title: "a wrong option of the script",
        explanation: "`getopt(\"name\", default, \"help\")` returns the value of `--name=value`, which follows the \
                      script on the command line. The default is a number, a string, `true` or `false`, and is the same \
                      at all uses of the option. The value must have the default's type. Without a default the option \
                      is a switch.",
        example: "BEGIN { print(getopt(\"top\", pid)); }",
        repaired: "BEGIN { print(getopt(\"top\", 10)); }",
    },
    Code {
        code: "E0032",
        title: "a macro is defined twice",
        explanation: "Macros of one name must differ in the number of their parameters, or in the kinds of these (an \
                      expression `a`, a variable `$a`, a map `@a`).",
        example: "macro next(a) { a + 1 } macro next(b) { b + 2 } BEGIN { print(next(1)); }",
        repaired: "macro next(a) { a + 1 } macro next(a, step) { a + step } BEGIN { print(next(next(1), 2)); }",
    },
    Code {
        code: "E0033",
        title: "a macro uses itself",
        explanation: "A macro is expanded where it is used. So it cannot use itself, directly or by way of other \
                      macros. Use a loop to repeat statements.",
        example: "macro forever(a) { forever(a + 1) } BEGIN { print(forever(1)); }",
        repaired: "macro next(a) { a + 1 } BEGIN { print(next(1)); }",
    },
    Code {
        code: "E0034",
        title: "wrong arguments of a macro",
        explanation: "A macro takes as many arguments as it has parameters: for `a` any expression, for `$a` a variable \
                      of the caller, for `@a` a whole map.",
        example: "macro reset($a) { $a = 0; } BEGIN { $x = 1; reset(1); print($x); }",
        repaired: "macro reset($a) { $a = 0; } BEGIN { $x = 1; reset($x); print($x); }",
    },
    Code {
        code: "E0035",
        title: "a macro uses a map that it is not given",
        explanation: "A macro has variables of its own. It can use only those maps and variables of its caller that it \
                      gets as arguments. A map is passed as `@name`.",
        example: "macro note(k) { @seen[k] = 1; } BEGIN { note(3); }",
        repaired: "macro note(@seen, k) { @seen[k] = 1; } BEGIN { note(@seen, 3); }",
    },
    Code {
        code: "E0036",
        title: "a block without a value where a value is expected",
        explanation: "The value of a block, and of a macro, is its last expression, if no `;` follows it.",
        example: "BEGIN { $x = { $y = 1; $y + 1; }; print($x); }",
        repaired: "BEGIN { $x = { $y = 1; $y + 1 }; print($x); }",
    },
    Code {
        code: "E0037",
        title: "settings in a script that is imported",
        explanation: "Settings apply to the whole run. Write them in the script that runs, not in a script that it imports.",
        example: "import \"settings.ct\"; BEGIN { print(1); }",
        repaired: "config = { max_strlen = 64 } import \"common.ct\"; BEGIN { print(LIMIT); }",
    },
    Code {
        code: "E0038",
        title: "a script cannot be imported",
        explanation: "`import` takes the path of a script or of a folder of scripts, relative to the script that \
                      imports it. Only scripts can be imported: C headers are not read, and the types of CUDA are built \
                      in. Files that every user may write are refused.",
        example: "import \"comon.ct\"; BEGIN { print(1); }",
        repaired: "import \"common.ct\"; BEGIN { print(LIMIT); }",
    },
    Code {
        code: "E0039",
        title: "scripts import each other",
        explanation: "A script is read once, however often it is imported. It cannot import itself, nor a script that \
                      imports it. Move what both need to a third script.",
        example: "import \"circle.ct\"; BEGIN { print(1); }",
        repaired: "import \"common.ct\"; import \"common.ct\"; BEGIN { print(LIMIT); }",
    },
    Code {
        code: "E0040",
        title: "an operation, ioctl or record without such an argument, or without it at this time",
        explanation: "Each operation of CUDA has its own arguments, the same for all functions that perform it, and so \
                      has each ioctl of the driver, and each kind of records of a GPU. Results of the call are known only \
                      when it returns. `cudatrace -l -v 'cuda:*'`, and the same for `ioctl:*` and `gpu:*`, lists the \
                      arguments.",
        example: "cuda:alloc { @ = sum(args.byte) }",
        repaired: "cuda:alloc { @ = sum(args.bytes) }",
    },
    Code {
        code: "W0041",
        title: "nothing meets the condition",
        explanation: "A clause is attached to those functions of the operation for which its condition can be true. In \
                      most cases the function determines `args.kind` and `args.direction`. Here the condition is true \
                      for none of them, as with a word that the argument never is. \
                      `cudatrace -l -v 'cuda:*'` lists the functions.",
        example: "cuda:graph / args.kind == \"start\" / { @ = count() }",
        repaired: "cuda:graph / args.kind == \"launch\" / { @ = count() }",
    },
    Code {
        code: "W0042",
        title: "ioctls without an argument of the clause",
        explanation: "A pattern of ioctls selects those that have all arguments of the clause; the others are left out. \
                      `args.name`, `args.status` and the other arguments that `cudatrace -l -v 'ioctl:*'` shows for \
                      each ioctl leave none out.",
        example: "ioctl:nvidia:RM_ALLOC* { @[args.params_size] = count() }",
        repaired: "ioctl:nvidia:RM_ALLOC { @[args.params_size] = count() }",
    },
    Code {
        code: "W0043",
        title: "kinds of records without an argument of the clause",
        explanation: "A pattern such as `gpu:*` selects the kinds of records that have all arguments of the clause; the \
                      others are left out. `cudatrace -l -v 'gpu:*'` lists the arguments of each kind.",
        example: "gpu:mem* { @[args.direction] = sum(args.bytes) }",
        repaired: "gpu:memcpy { @[args.direction] = sum(args.bytes) }",
    },
];

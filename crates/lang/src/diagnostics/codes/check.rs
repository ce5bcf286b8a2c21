//! Codes of the checker: `E02xx`.

use crate::diagnostics::Code;

/// Findings about names, types and values. `W` marks warnings.
pub const TYPES: &[Code] = &[
    Code {
        code: "E0201",
        title: "a value does not fit what a variable or map holds",
        explanation: "A variable or map holds one kind of value in all of the script. Integers and strings may grow; \
                      a number does not become a string.",
        example: "BEGIN { @x = 1; @x = \"a\" }",
        repaired: "BEGIN { @x = 1; @y = \"a\" }",
    },
    Code {
        code: "E0202",
        title: "a key does not fit the map",
        explanation: "All keys of a map have the same number of values, of the same kinds.",
        example: "BEGIN { @x[1] = 1; @x[1, 2] = 1 }",
        repaired: "BEGIN { @x[1, 1] = 1; @x[1, 2] = 1 }",
    },
    Code {
        code: "E0203",
        title: "undefined variable",
        explanation: "Scratch variables live in one clause and are set before they are read. Maps (`@x`) are shared by \
                      all clauses.",
        example: "BEGIN { print($x) }",
        repaired: "BEGIN { $x = 1; print($x) }",
    },
    Code {
        code: "E0204",
        title: "a variable may not be set here",
        explanation: "On some way to this place nothing was assigned to the variable.",
        example: "BEGIN { if (pid == 1) { $x = 1 } print($x) }",
        repaired: "BEGIN { $x = 0; if (pid == 1) { $x = 1 } print($x) }",
    },
    Code {
        code: "E0205",
        title: "a variable without a type",
        explanation: "The type of a variable is that of what is assigned to it, and nothing is.",
        example: "BEGIN { let $x; print($x) }",
        repaired: "BEGIN { let $x = 0; print($x) }",
    },
    Code {
        code: "E0206",
        title: "unknown name",
        explanation: "Names without a sigil are built-in variables (`pid`), constants of CUDA (`CUDA_SUCCESS`) and \
                      of the kernel (`ENOENT`), and what `#define` names. Variables begin with `$`, maps with `@`.",
        example: "BEGIN { print(pidd) }",
        repaired: "BEGIN { print(pid) }",
    },
    Code {
        code: "E0207",
        title: "nothing is ever put into a map",
        explanation: "A map that is only read, printed or cleared is most likely misspelled.",
        example: "BEGIN { print(@x) }",
        repaired: "BEGIN { @x = 1; print(@x) }",
    },
    Code {
        code: "E0208",
        title: "unknown function",
        explanation: "`cudatrace help functions` and the reference list the built-in functions.",
        example: "BEGIN { prinf(\"hello\") }",
        repaired: "BEGIN { printf(\"hello\") }",
    },
    Code {
        code: "E0209",
        title: "wrong number of arguments",
        explanation: "The message shows how the function is written.",
        example: "BEGIN { @ = lhist(1) }",
        repaired: "BEGIN { @ = lhist(1, 0, 100, 10) }",
    },
    Code {
        code: "E0210",
        title: "an argument of the wrong kind",
        explanation: "The message says what the function takes.",
        example: "BEGIN { @ = sum(\"a\") }",
        repaired: "BEGIN { @ = sum(1) }",
    },
    Code {
        code: "E0211",
        title: "no meaning in this kind of probe",
        explanation: "Results and durations are known when a call returns (`uretprobe`), arguments and names of \
                      functions in probes of functions.",
        example: "uprobe:libcuda:cuInit { print(retval) }",
        repaired: "uretprobe:libcuda:cuInit { print(retval) }",
    },
    Code {
        code: "E0212",
        title: "an operator on the wrong kinds of values",
        explanation: "Arithmetic is on numbers. Strings can be compared by `==` and `!=`.",
        example: "BEGIN { print(\"a\" + 1) }",
        repaired: "BEGIN { print((\"a\", 1)) }",
    },
    Code {
        code: "E0213",
        title: "memory that cannot be read so",
        explanation: "`*p` needs to know what `p` points to, and how wide it is.",
        example: "uprobe:libcuda:cuInit { print(*pid) }",
        repaired: "uprobe:libcuda:cuInit { print(*(int32 *)arg0) }",
    },
    Code {
        code: "E0214",
        title: "no such field, part or element",
        explanation: "The message lists what there is, or what is near.",
        example: "uprobe:libcuda:cuLaunchKernelEx { print(args.config->gridDim) }",
        repaired: "uprobe:libcuda:cuLaunchKernelEx { print(args.config->gridDimX) }",
    },
    Code {
        code: "E0216",
        title: "unknown type",
        explanation: "Known are C's integer types, and the structs, enums and typedefs of CUDA's driver and runtime.",
        example: "BEGIN { print((uint33)1) }",
        repaired: "BEGIN { print((uint32)1) }",
    },
    Code {
        code: "E0217",
        title: "a cast that is not possible",
        explanation: "Integers, bools, enums and pointers can be cast to each other, and nothing else.",
        example: "BEGIN { print((uint32)\"a\") }",
        repaired: "BEGIN { print((uint32)1) }",
    },
    Code {
        code: "E0218",
        title: "an aggregation in the wrong place",
        explanation: "`count()`, `hist(n)` and their kind are assigned to a map, and that map holds nothing else. \
                      Histograms have no single value.",
        example: "BEGIN { $x = count() }",
        repaired: "BEGIN { @x = count() }",
    },
    Code {
        code: "E0219",
        title: "values do not fit the format",
        explanation: "Each `%` of a format takes one value. `%s` prints anything; the others print numbers.",
        example: "BEGIN { printf(\"%d %d\", 1) }",
        repaired: "BEGIN { printf(\"%d %d\", 1, 2) }",
    },
    Code {
        code: "E0220",
        title: "not a format",
        explanation: "Formats are those of C: flags, width, precision, and one of `d i u x X o c p f s r rx rh`.",
        example: "BEGIN { printf(\"%y\", 1) }",
        repaired: "BEGIN { printf(\"%d\", 1) }",
    },
    Code {
        code: "E0221",
        title: "must be known when compiling",
        explanation: "Sizes of histograms, counts of unrolled loops, and formats are part of the compiled program.",
        example: "BEGIN { @ = lhist(1, 0, pid, 1) }",
        repaired: "BEGIN { @ = lhist(1, 0, 100, 1) }",
    },
    Code {
        code: "E0222",
        title: "a number out of range",
        explanation: "The message says what the range is.",
        example: "BEGIN { unroll(101) { @x++ } }",
        repaired: "BEGIN { unroll(100) { @x++ } }",
    },
    Code {
        code: "E0223",
        title: "not supported yet",
        explanation: "Other tracers have it. The message says what to use.",
        example: "BEGIN { print(kaddr(\"jiffies\")) }",
        repaired: "BEGIN { print(jiffies) }",
    },
    Code {
        code: "E0224",
        title: "changes the machine",
        explanation: "Functions that run commands or send signals act on the traced machine: `--unsafe` on the command line \
                      allows them.",
        example: "BEGIN { system(\"reboot\") }",
        repaired: "BEGIN { exit() }",
    },
    Code {
        code: "E0225",
        title: "outside of a loop",
        explanation: "`break` and `continue` act on the loop around them.",
        example: "BEGIN { break; }",
        repaired: "BEGIN { while (@n < 3) { @n++; break; } }",
    },
    Code {
        code: "E0226",
        title: "no single value",
        explanation: "A statement such as `printf` has no value; an array that travels in registers is read element by \
                      element.",
        example: "BEGIN { $x = exit() }",
        repaired: "BEGIN { $x = 1; print($x); exit() }",
    },
    Code {
        code: "E0227",
        title: "too large",
        explanation: "Keys and values of maps are put together in scratch memory of limited size.",
        example: "BEGIN { @[str(1), str(2), str(3), str(4), str(5)] = 1 }",
        repaired: "BEGIN { @[str(1, 64), str(2, 64), str(3, 64)] = 1 }",
    },
    Code {
        code: "E0228",
        title: "an assertion does not hold",
        explanation: "`static_assert` says what a script relies on, such as the size of a struct.",
        example: "BEGIN { static_assert(sizeof(uint64) == 4, \"longs of four bytes\") }",
        repaired: "BEGIN { static_assert(sizeof(uint64) == 8, \"longs of eight bytes\") }",
    },
    Code {
        code: "E0240",
        title: "a member or name that cannot be declared",
        explanation: "A declaration gives each member a name and a type of known size: a struct must be declared before \
                      it is a member of another, and may be declared later if only a pointer to it is.",
        example: "struct list { struct list next; };\nBEGIN { print(1) }",
        repaired: "struct list { struct list *next; };\nBEGIN { print(1) }",
    },
    Code {
        code: "E0241",
        title: "declared twice",
        explanation: "A struct, union, enum, a member of one or a constant has one declaration in a script.",
        example: "struct point { int x; };\nstruct point { int y; };\nBEGIN { print(1) }",
        repaired: "struct point { int x; };\nstruct size { int y; };\nBEGIN { print(1) }",
    },
    Code {
        code: "E0242",
        title: "a map is no such metric",
        explanation: "`metric @m = { ... }` says how a map of the script is exported: `name` and `unit` as \
                      OpenTelemetry writes them (the unit is UCUM: `By`, `s`), `help` in words, `labels` a list of \
                      names separated by commas, one for each part of the key, `kind` (`counter`, `updowncounter` or `gauge`) of \
                      plain values and sums, and `divisor` that values are divided by. The labels `process` and \
                      `process.pid` of a `pid` stand for what is known of the process. Text, pointers and stacks are no metrics.",
        example: "metric @n = { labels = \"function, process\"; } uprobe:libcuda:cuInit { @n[func] = count() }",
        repaired: "metric @n = { labels = \"function\"; } uprobe:libcuda:cuInit { @n[func] = count() }",
    },
    Code {
        code: "E0243",
        title: "a record for `--export` that cannot be made",
        explanation: "`span` is the call that a return probe sees, with `name = value` for what is to be known of it; elsewhere it \
                      needs `start = `, a time of `nsecs`. `event` and `counter` begin with a name, and a counter has a number.",
        example: "uprobe:libcuda:cuInit { span() }",
        repaired: "uretprobe:libcuda:cuInit { span() }",
    },
    Code {
        code: "W0251",
        title: "signed and unsigned numbers meet",
        explanation: "An int64 holds all but the upper half of uint64. What is larger shows as negative.",
        example: "uprobe:libcuda:cuMemAlloc { $x = args.bytesize; $x = -1; print($x) }",
        repaired: "uprobe:libcuda:cuMemAlloc { $x = (int64)args.bytesize; $x = -1; print($x) }",
    },
    Code {
        code: "W0252",
        title: "never reached",
        explanation: "The statement follows one that always leaves.",
        example: "BEGIN { return; print(1) }",
        repaired: "BEGIN { print(1); return }",
    },
    Code {
        code: "W0253",
        title: "a value is not used",
        explanation: "`_ = e` says that this is on purpose.",
        example: "BEGIN { pid }",
        repaired: "BEGIN { print(pid) }",
    },
    Code {
        code: "W0254",
        title: "never true",
        explanation: "No attach point of the clause has such a name, or no number stands for such a text.",
        example: "uprobe:libcuda:cuInit / func == \"cuMemAlloc\" / { @ = count() }",
        repaired: "uprobe:libcuda:cuMemAlloc / func == \"cuMemAlloc_v2\" / { @ = count() }",
    },
    Code {
        code: "W0255",
        title: "an argument that the call has yet to fill",
        explanation: "Out-parameters point to memory that is filled when the call returns.",
        example: "uprobe:libcuda:cuMemAlloc { print(*args.dptr) }",
        repaired: "uretprobe:libcuda:cuMemAlloc { print(*args.dptr) }",
    },
    Code {
        code: "W0256",
        title: "strings are cut",
        explanation: "`max_strlen` is the size of a string, its NUL included, at most.",
        example: "BEGIN { print(str(1, 5000)) }",
        repaired: "config = { max_strlen = 5000 } BEGIN { print(str(1, 5000)) }",
    },
    Code {
        code: "W0257",
        title: "division by zero",
        explanation: "It yields 1, and so does the remainder; both are counted as errors at run time.",
        example: "BEGIN { print(pid / 0) }",
        repaired: "BEGIN { print(pid / 2) }",
    },
    Code {
        code: "W0258",
        title: "names of enum values are lost",
        explanation: "Where values of two enums, or an enum and a plain number, are kept in one place, they are kept \
                      as numbers.",
        example: "uretprobe:libcuda:cuInit { @[retval] = count() } BEGIN { @[pid] = count() }",
        repaired: "uretprobe:libcuda:cuInit { @results[retval] = count() } BEGIN { @[pid] = count() }",
    },
    Code {
        code: "W0259",
        title: "a number is followed as an address",
        explanation: "What a number points to is not known. Eight bytes are read there, as bpftrace does, which is right for \
                      pointers and 64-bit integers alone.",
        example: "uprobe:libc:malloc { print(*(reg(\"sp\") + 8)) }",
        repaired: "uprobe:libc:malloc { print(*(uint64 *)(reg(\"sp\") + 8)) }",
    },
    Code {
        code: "W0260",
        title: "a comparison is compared",
        explanation: "`1 < x < 5` does not ask whether `x` lies between 1 and 5: `1 < x` is true or false, 1 or 0, and both \
                      are less than 5.",
        example: "uprobe:libc:malloc / 1 < arg0 < 4096 / { @ = count() }",
        repaired: "uprobe:libc:malloc / 1 < arg0 && arg0 < 4096 / { @ = count() }",
    },
    Code {
        code: "W0261",
        title: "not all of a value can be read",
        explanation: "`args`, or a struct that is passed or returned by value, is a record of what can be read of it. \
                      Floating-point numbers and vectors travel in registers that probes cannot read; text and arrays of more \
                      than 64 elements that are passed by value are left out too.",
        example: "uprobe:libcuda:cuTexRefSetMipmapLevelBias { print(args) }",
        repaired: "uprobe:libcuda:cuTexRefSetMipmapLevelBias { print(args.hTexRef) }",
    },
];

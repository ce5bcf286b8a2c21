//! Codes of the checker: `E02xx`.

use crate::diagnostics::Code;

/// Codes for names, types and values. `W` marks warnings.
pub const TYPES: &[Code] = &[
    Code {
        code: "E0201",
        title: "a value of another type than the variable or map holds",
        explanation: "A variable or map holds values of one type in the whole script. Integers and strings may become \
                      wider; a number does not become a string.",
        example: "BEGIN { @x = 1; @x = \"a\" }",
        repaired: "BEGIN { @x = 1; @y = \"a\" }",
    },
    Code {
        code: "E0202",
        title: "a key does not fit the map",
        explanation: "All keys of a map have the same number of values, of the same types.",
        example: "BEGIN { @x[1] = 1; @x[1, 2] = 1 }",
        repaired: "BEGIN { @x[1, 1] = 1; @x[1, 2] = 1 }",
    },
    Code {
        code: "E0203",
        title: "undefined variable",
        explanation: "A scratch variable belongs to one clause, and must be assigned before it is read. Maps (`@x`) are \
                      shared by all clauses.",
        example: "BEGIN { print($x) }",
        repaired: "BEGIN { $x = 1; print($x) }",
    },
    Code {
        code: "E0204",
        title: "a variable that may be unset",
        explanation: "On some path to this position the variable is not assigned.",
        example: "BEGIN { if (pid == 1) { $x = 1 } print($x) }",
        repaired: "BEGIN { $x = 0; if (pid == 1) { $x = 1 } print($x) }",
    },
    Code {
        code: "E0205",
        title: "a variable without a type",
        explanation: "The first assignment determines a variable's type, and this variable has none.",
        example: "BEGIN { let $x; print($x) }",
        repaired: "BEGIN { let $x = 0; print($x) }",
    },
    Code {
        code: "E0206",
        title: "unknown name",
        explanation: "A name without a sigil is a built-in variable (`pid`), a constant of CUDA (`CUDA_SUCCESS`) or of \
                      the kernel (`ENOENT`), or a name of `#define`. Variables begin with `$`, maps with `@`.",
        example: "BEGIN { print(pidd) }",
        repaired: "BEGIN { print(pid) }",
    },
    Code {
        code: "E0207",
        title: "a map that is never assigned",
        explanation: "No statement of the script assigns to the map. A map that is only read, printed or cleared is \
                      most likely misspelled.",
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
        explanation: "The message shows the arguments of the function.",
        example: "BEGIN { @ = lhist(1) }",
        repaired: "BEGIN { @ = lhist(1, 0, 100, 10) }",
    },
    Code {
        code: "E0210",
        title: "an argument of the wrong type",
        explanation: "The message names the types that the function takes.",
        example: "BEGIN { @ = sum(\"a\") }",
        repaired: "BEGIN { @ = sum(1) }",
    },
    Code {
        code: "E0211",
        title: "not available in this kind of probe",
        explanation: "Results and durations are known when a call returns (`uretprobe`). Arguments and names of \
                      functions are available in probes on functions.",
        example: "uprobe:libcuda:cuInit { print(retval) }",
        repaired: "uretprobe:libcuda:cuInit { print(retval) }",
    },
    Code {
        code: "E0212",
        title: "an operator on values of the wrong type",
        explanation: "Arithmetic operators take numbers. Strings can be compared by `==` and `!=`.",
        example: "BEGIN { print(\"a\" + 1) }",
        repaired: "BEGIN { print((\"a\", 1)) }",
    },
    Code {
        code: "E0213",
        title: "memory that cannot be read in this way",
        explanation: "`*p` requires that `p` has a pointer type: it determines how many bytes are read.",
        example: "uprobe:libcuda:cuInit { print(*pid) }",
        repaired: "uprobe:libcuda:cuInit { print(*(int32 *)arg0) }",
    },
    Code {
        code: "E0214",
        title: "no such field or element",
        explanation: "The message lists the fields, or similar names.",
        example: "uprobe:libcuda:cuLaunchKernelEx { print(args.config->gridDim) }",
        repaired: "uprobe:libcuda:cuLaunchKernelEx { print(args.config->gridDimX) }",
    },
    Code {
        code: "E0216",
        title: "unknown type",
        explanation: "The known types are C's integer types, the structs, enums and typedefs of CUDA's driver and \
                      runtime, and the types that the script or debug information declares.",
        example: "BEGIN { print((uint33)1) }",
        repaired: "BEGIN { print((uint32)1) }",
    },
    Code {
        code: "E0217",
        title: "an impossible cast",
        explanation: "Integers, bools, enums and pointers can be cast to each other, numbers to byte arrays of the same \
                      size and back, and strings to byte arrays.",
        example: "BEGIN { print((uint32)\"a\") }",
        repaired: "BEGIN { print((uint32)1) }",
    },
    Code {
        code: "E0218",
        title: "a misplaced aggregation",
        explanation: "`count()`, `hist(n)` and the other aggregations are assigned to a map, and that map holds nothing \
                      else. A histogram has no single value.",
        example: "BEGIN { $x = count() }",
        repaired: "BEGIN { @x = count() }",
    },
    Code {
        code: "E0219",
        title: "values that do not match the format",
        explanation: "Each directive (`%...`) of a format takes one value. `%s` prints values of any type; the others \
                      print numbers.",
        example: "BEGIN { printf(\"%d %d\", 1) }",
        repaired: "BEGIN { printf(\"%d %d\", 1, 2) }",
    },
    Code {
        code: "E0220",
        title: "a wrong format",
        explanation: "Formats are written as in C: flags, width, precision, and one of `d i u x X o c p f s r rx rh`.",
        example: "BEGIN { printf(\"%y\", 1) }",
        repaired: "BEGIN { printf(\"%d\", 1) }",
    },
    Code {
        code: "E0221",
        title: "a value that must be known at compile time",
        explanation: "Sizes of histograms, counts of unrolled loops, and formats become part of the compiled program, \
                      so they must be constants.",
        example: "BEGIN { @ = lhist(1, 0, pid, 1) }",
        repaired: "BEGIN { @ = lhist(1, 0, 100, 1) }",
    },
    Code {
        code: "E0222",
        title: "a number out of range",
        explanation: "The message gives the range.",
        example: "BEGIN { unroll(101) { @x++ } }",
        repaired: "BEGIN { unroll(100) { @x++ } }",
    },
    Code {
        code: "E0223",
        title: "not supported yet",
        explanation: "bpftrace has it. The message names what to use instead.",
        example: "BEGIN { debugf(\"here\") }",
        repaired: "BEGIN { printf(\"here\\n\") }",
    },
    Code {
        code: "E0224",
        title: "a function that changes the machine",
        explanation: "Functions that run commands or send signals change the traced machine. `--unsafe` on the command \
                      line allows them.",
        example: "BEGIN { system(\"reboot\") }",
        repaired: "BEGIN { exit() }",
    },
    Code {
        code: "E0225",
        title: "`break` or `continue` outside a loop",
        explanation: "`break` and `continue` act on the loop around them.",
        example: "BEGIN { break; }",
        repaired: "BEGIN { while (@n < 3) { @n++; break; } }",
    },
    Code {
        code: "E0226",
        title: "a value is expected",
        explanation: "A statement such as `printf` has no value. An array that is passed in registers is read element \
                      by element.",
        example: "BEGIN { $x = exit() }",
        repaired: "BEGIN { $x = 1; print($x); exit() }",
    },
    Code {
        code: "E0227",
        title: "a key or value that is too large",
        explanation: "Keys and values of maps are built in scratch memory of limited size.",
        example: "config = { max_strlen = 32768 } BEGIN { @[str(1), str(2), str(3)] = 1 }",
        repaired: "BEGIN { @[str(1, 64), str(2, 64), str(3, 64)] = 1 }",
    },
    Code {
        code: "E0228",
        title: "a failed assertion",
        explanation: "`static_assert` checks an assumption of the script, such as the size of a struct.",
        example: "BEGIN { static_assert(sizeof(uint64) == 4, \"longs of four bytes\") }",
        repaired: "BEGIN { static_assert(sizeof(uint64) == 8, \"longs of eight bytes\") }",
    },
    Code {
        code: "E0240",
        title: "a member or name that cannot be declared",
        explanation: "A declaration gives each member a name and a type of known size. A struct must be declared before \
                      it is a member of another struct. If only a pointer to it is a member, it may be declared later.",
        example: "struct list { struct list next; };\nBEGIN { print(1) }",
        repaired: "struct list { struct list *next; };\nBEGIN { print(1) }",
    },
    Code {
        code: "E0241",
        title: "declared twice",
        explanation: "A struct, union, enum, member or constant may be declared only once in a script.",
        example: "struct point { int x; };\nstruct point { int y; };\nBEGIN { print(1) }",
        repaired: "struct point { int x; };\nstruct size { int y; };\nBEGIN { print(1) }",
    },
    Code {
        code: "E0242",
        title: "a map does not match its metric",
        explanation: "`metric @m = { ... }` defines how a map of the script is exported. `name` and `unit` are written \
                      as in OpenTelemetry (the unit in UCUM: `By`, `s`). `help` is a sentence. `labels` is a list of \
                      names separated by commas, one for each part of the key. `kind` (`counter`, `updowncounter` or \
                      `gauge`) applies to plain values and sums. Values are divided by `divisor`. The labels `process` \
                      and `process.pid` turn a `pid` into the attributes of its process. Text, pointers and stacks \
                      cannot be metrics.",
        example: "metric @n = { labels = \"function, process\"; } uprobe:libcuda:cuInit { @n[func] = count() }",
        repaired: "metric @n = { labels = \"function\"; } uprobe:libcuda:cuInit { @n[func] = count() }",
    },
    Code {
        code: "E0243",
        title: "a wrong record for `--export`",
        explanation: "In a return probe, `span` records the call, with attributes written as `name = value`. In other \
                      probes it needs `start = `, a time of `nsecs`. `event` and `counter` begin with a name, and \
                      `counter` also takes a number.",
        example: "uprobe:libcuda:cuInit { span() }",
        repaired: "uretprobe:libcuda:cuInit { span() }",
    },
    Code {
        code: "E0244",
        title: "a value of the launching call at a record of a GPU",
        explanation: "A `gpu:` probe runs after the work is done, in another thread than the one that launched it. \
                      `tid`, `func` and `ustack` are those of the launching call; its arguments and other values are not known. \
                      `args` has the values of the record: `args.duration`, `args.device`, `args.stream`. A clause of \
                      `cuda:launch` can keep values in a map by `corr`, for the record to find.",
        example: "gpu:kernel { @ = hist(duration) }",
        repaired: "gpu:kernel { @ = hist(args.duration) }",
    },
    Code {
        code: "W0251",
        title: "signed and unsigned numbers are mixed",
        explanation: "An int64 cannot hold the upper half of the values of a uint64. They are shown as negative numbers.",
        example: "uprobe:libcuda:cuMemAlloc { $x = args.bytesize; $x = -1; print($x) }",
        repaired: "uprobe:libcuda:cuMemAlloc { $x = (int64)args.bytesize; $x = -1; print($x) }",
    },
    Code {
        code: "W0252",
        title: "never reached",
        explanation: "The statement follows one that always leaves the block, such as `return`.",
        example: "BEGIN { return; print(1) }",
        repaired: "BEGIN { print(1); return }",
    },
    Code {
        code: "W0253",
        title: "a value is not used",
        explanation: "The expression has no effect. Write `_ = e` if this is intended.",
        example: "BEGIN { pid }",
        repaired: "BEGIN { print(pid) }",
    },
    Code {
        code: "W0254",
        title: "never true",
        explanation: "No attach point of the clause has this name, or no value of the enum or function has this text.",
        example: "uprobe:libcuda:cuInit / func == \"cuMemAlloc\" / { @ = count() }",
        repaired: "uprobe:libcuda:cuMemAlloc / func == \"cuMemAlloc_v2\" / { @ = count() }",
    },
    Code {
        code: "W0255",
        title: "an out-parameter that is read at entry",
        explanation: "Out-parameters point to memory that is filled when the call returns.",
        example: "uprobe:libcuda:cuMemAlloc { print(*args.dptr) }",
        repaired: "uretprobe:libcuda:cuMemAlloc { print(*args.dptr) }",
    },
    Code {
        code: "W0256",
        title: "strings are cut",
        explanation: "`max_strlen` is the largest size of a string, including its NUL.",
        example: "BEGIN { print(str(1, 5000)) }",
        repaired: "config = { max_strlen = 5000 } BEGIN { print(str(1, 5000)) }",
    },
    Code {
        code: "W0257",
        title: "division by zero",
        explanation: "A division by zero yields 1, and so does a remainder. Both are counted as errors at run time.",
        example: "BEGIN { print(pid / 0) }",
        repaired: "BEGIN { print(pid / 2) }",
    },
    Code {
        code: "W0258",
        title: "names of enum values are lost",
        explanation: "A map or variable that holds values of two enums, or of an enum and plain numbers, keeps and \
                      prints them as numbers.",
        example: "uretprobe:libcuda:cuInit { @[retval] = count() } BEGIN { @[pid] = count() }",
        repaired: "uretprobe:libcuda:cuInit { @results[retval] = count() } BEGIN { @[pid] = count() }",
    },
    Code {
        code: "W0259",
        title: "a number is used as a pointer",
        explanation: "The type that a number points to is unknown. Eight bytes are read, as in bpftrace. This is \
                      correct only for pointers and 64-bit integers.",
        example: "uprobe:libc:malloc { print(*(reg(\"sp\") + 8)) }",
        repaired: "uprobe:libc:malloc { print(*(uint64 *)(reg(\"sp\") + 8)) }",
    },
    Code {
        code: "W0260",
        title: "the result of a comparison is compared",
        explanation: "`1 < x < 5` does not check that `x` is between 1 and 5: `1 < x` is 1 or 0, and both are less than 5.",
        example: "uprobe:libc:malloc / 1 < arg0 < 4096 / { @ = count() }",
        repaired: "uprobe:libc:malloc / 1 < arg0 && arg0 < 4096 / { @ = count() }",
    },
    Code {
        code: "W0261",
        title: "a value that can be read only in part",
        explanation: "`args`, or a struct that is passed or returned by value, is a record of its readable members. \
                      Floating-point numbers and vectors are passed in registers that probes cannot read. Text, and \
                      arrays of more than 64 elements, are also omitted if they are passed by value.",
        example: "uprobe:libcuda:cuTexRefSetMipmapLevelBias { print(args) }",
        repaired: "uprobe:libcuda:cuTexRefSetMipmapLevelBias { print(args.hTexRef) }",
    },
    Code {
        code: "W0262",
        title: "a map that is declared and not used",
        explanation: "No clause reads or writes the map: its name may be misspelled in the declaration.",
        example: "let @calls = hash(100); uprobe:libc:malloc { @call[pid] = count() }",
        repaired: "let @calls = hash(100); uprobe:libc:malloc { @calls[pid] = count() }",
    },
];

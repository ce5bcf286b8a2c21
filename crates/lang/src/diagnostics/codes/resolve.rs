//! Codes of the resolver: `E01xx`.

use crate::diagnostics::Code;

/// Findings about probes, targets, functions and settings. `W` marks warnings.
pub const PROBES: &[Code] = &[
    Code {
        code: "E0101",
        title: "unknown kind of probe",
        explanation: "A probe begins with its kind: `uprobe`, `uretprobe`, `interval`, `profile`, `BEGIN` or `END`. \
                      Upper and lower case are the same.",
        example: "uprob:libcuda:cuInit { @ = count() }",
        repaired: "uprobe:libcuda:cuInit { @ = count() }",
    },
    Code {
        code: "E0102",
        title: "a kind of probe that is not supported",
        explanation: "Other tracers have more kinds of probe. What a CUDA program does is seen by probes on the \
                      functions of its libraries.",
        example: "kprobe:vfs_read { @ = count() }",
        repaired: "uprobe:libc:malloc { @ = count() }",
    },
    Code {
        code: "E0103",
        title: "a probe has too many or too few parts",
        explanation: "A function is written `uprobe:TARGET:FUNCTION`, where the target is a library (`libcuda`), a \
                      path, or a program. Return probes sit on functions, not inside them.",
        example: "uprobe:cuInit { @ = count() }",
        repaired: "uprobe:libcuda:cuInit { @ = count() }",
    },
    Code {
        code: "E0104",
        title: "the target cannot be probed",
        explanation: "No file of this name, or one that is no program or library, or that cannot be read. The message \
                      says which. In a clause with several attach points this is a warning if another was found.",
        example: "uprobe:/nowhere/libx.so:f { @ = count() }",
        repaired: "uprobe:libcuda:cuInit { @ = count() }",
    },
    Code {
        code: "E0105",
        title: "no such function",
        explanation: "The files that the target stands for have no function of this name, version or pattern. In \
                      libcuda and libcudart a name without suffix stands for all its live versions; a name with a \
                      suffix, or in quotes, for exactly one symbol.",
        example: "uprobe:libcuda:cuMemAllocc { @ = count() }",
        repaired: "uprobe:libcuda:cuMemAlloc { @ = count() }",
    },
    Code {
        code: "E0106",
        title: "not a period",
        explanation: "`interval` and `profile` take a unit and a whole number: `interval:s:1`, `profile:hz:99`, \
                      `interval:500ms`. The shortest period is one microsecond.",
        example: "interval:fortnight:1 { exit() }",
        repaired: "interval:s:1 { exit() }",
    },
    Code {
        code: "E0107",
        title: "not a pattern of functions",
        explanation: "Functions are named exactly, with wildcards (`cuMem*`), by a regular expression (`/cu.*Alloc/`), \
                      with a version (`cudaMalloc@libcudart.so.12`), an offset (`cuInit+16`) or an address.",
        example: "uprobe:libcuda:cuInit+x { @ = count() }",
        repaired: "uprobe:libcuda:cuInit+16 { @ = count() }",
    },
    Code {
        code: "E0108",
        title: "unknown setting",
        explanation: "The `config` block knows `max_map_keys`, `max_strlen`, `str_trunc_trailer`, \
                      `max_cat_bytes`, `print_maps_on_exit`, `stack_mode`, `max_loop_iterations`, `missing_probes`, \
                      `max_probes`, `cpp_demangle`, `show_debug_info` and `perf_rb_pages`.",
        example: "config = { max_map_key = 10 } BEGIN { exit() }",
        repaired: "config = { max_map_keys = 10 } BEGIN { exit() }",
    },
    Code {
        code: "E0109",
        title: "a setting of the wrong kind",
        explanation: "The message says which values the setting takes.",
        example: "config = { max_map_keys = 0 } BEGIN { exit() }",
        repaired: "config = { max_map_keys = 1000 } BEGIN { exit() }",
    },
    Code {
        code: "E0110",
        title: "a map is not declared rightly",
        explanation: "`let @m = hash(1000);` makes room for 1000 keys; in an `lruhash` a new key takes the place of one that \
                      was not used for long. `percpuhash` and `percpulruhash` are for aggregations. The keys of a `processhash` begin \
                      with `pid`, and are deleted when that process has ended.",
        example: "let @m = heap(10); BEGIN { @m = 1 }",
        repaired: "let @m = hash(10); BEGIN { @m[1] = 1 }",
    },
    Code {
        code: "E0111",
        title: "no such library",
        explanation: "A short name is looked for in the processes that are traced, then where libraries are \
                      installed. With `-c`, `-p` or `--wait`, or where another attach point of the clause was found, a \
                      library may come later and is waited for; otherwise there is nothing to probe.",
        example: "uprobe:libcudar:cudaMalloc { @ = count() }",
        repaired: "uprobe:libcudart:cudaMalloc { @ = count() }",
    },
    Code {
        code: "E0115",
        title: "more attach points than are wanted",
        explanation: "Where a script sets `max_probes`, it is refused if it stands for more attach points. There is no \
                      bound otherwise: they cost one program and one link for all functions of a clause.",
        example: "config = { max_probes = 1 } uprobe:libcuda:cuMem* { @ = count() }",
        repaired: "config = { max_probes = 1 } uprobe:libcuda:cuInit { @ = count() }",
    },
    Code {
        code: "E0116",
        title: "a script of tests that is run as if it traced",
        explanation: "`test:NAME` runs with `--test`, `bench:NAME` with `--bench`, and neither of them otherwise. This                       script has nothing else.",
        example: "test:sum { return 1 + 1 != 2 }",
        repaired: "test:sum { return 1 + 1 != 2 } BEGIN { printf(\"tracing\\n\") }",
    },
    Code {
        code: "E0117",
        title: "no instruction begins there",
        explanation: "A probe is a breakpoint in the place of an instruction's first byte. In the middle of one, or behind the \
                      function's end, it would change what the program does.",
        example: "uprobe:./app:main+3 { @ = count() }",
        repaired: "uprobe:./app:main+4 { @ = count() }",
    },
    Code {
        code: "E0120",
        title: "no such argument",
        explanation: "None of the functions of this clause has an argument of this name. Functions that lack one are \
                      left out with a warning as long as some are left.",
        example: "uprobe:libcuda:cuMemAlloc { @ = sum(args.bytesiz) }",
        repaired: "uprobe:libcuda:cuMemAlloc { @ = sum(args.bytesize) }",
    },
    Code {
        code: "E0121",
        title: "arguments are not known by name",
        explanation: "Names and types of arguments are known for the CUDA driver, the CUDA runtime and NCCL, and for functions \
                      that debug information describes: of programs and libraries compiled with `-g`, or whose debug \
                      information lies beside them (`/usr/lib/debug/.build-id`, `.gnu_debuglink`). The message says \
                      where it was looked for. Elsewhere use `arg0`, `arg1` ... and casts.",
        example: "uprobe:libc:malloc { @ = sum(args.size) }",
        repaired: "uprobe:libc:malloc { @ = sum(arg0) }",
    },
    Code {
        code: "E0122",
        title: "an argument that cannot be read",
        explanation: "Floating-point arguments travel in registers that probes cannot see.",
        example: "uprobe:libcuda:cuTexRefSetMipmapLevelBias { print(args.bias) }",
        repaired: "uprobe:libcuda:cuTexRefSetMipmapLevelBias { print(args.hTexRef) }",
    },
    Code {
        code: "E0123",
        title: "no result to read",
        explanation: "The function returns nothing, or something that integer registers do not hold: a floating-point number, a \
                      vector. Structs that it returns can be read; to a large one `retval` points.",
        example: "uretprobe:./app:main { @[retval] = count() }",
        repaired: "uretprobe:./app:main { @[func] = count() }",
    },
    Code {
        code: "E0124",
        title: "nobody can tell where an argument lies",
        explanation: "Debug information says what a function takes, the ABI where that lies. Copies that the compiler made \
                      of a function for some of its callers (`.isra.0`, `.constprop.0`) take other parameters than it; \
                      128-bit integers, vectors, and most of what Rust and Go pass by value follow other rules. Other \
                      functions of a wildcard are probed all the same.",
        example: "uprobe:./app:serve.isra.0 { print(args.kind) }",
        repaired: "uprobe:./app:serve { print(args.kind) }",
    },
    Code {
        code: "W0151",
        title: "functions are left out",
        explanation: "A wildcard also matched functions that lack an argument, or a result, that the body uses, or \
                      tracepoints that lack a field. They are not probed.",
        example: "uprobe:libcuda:cuMem* { @ = sum(args.bytesize) }",
        repaired: "uprobe:libcuda:cuMemAlloc, uprobe:libcuda:cuMemAllocHost_v2 { @ = sum(args.bytesize) }",
    },
    Code {
        code: "W0152",
        title: "not a known function of the library",
        explanation: "The library is not loaded yet, and the tables of its functions do not have this name. It is \
                      looked up when the library appears.",
        example: "uprobe:libnccl:ncclAllReducee { @ = count() }",
        repaired: "uprobe:libnccl:ncclAllReduce { @ = count() }",
    },
    Code {
        code: "W0153",
        title: "a setting without effect, or with an old name",
        explanation: "Settings of other tracers are accepted, so that their scripts run.",
        example: "config = { log_size = 10 } BEGIN { exit() }",
        repaired: "config = { max_map_keys = 10 } BEGIN { exit() }",
    },
    Code {
        code: "W0154",
        title: "an attach point that is not there",
        explanation: "A clause with several attach points runs at those that are found, and each that is not is named. \
                      With `missing_probes = \"ignore\"` in the `config` block nothing is said.",
        example: "uprobe:/nowhere/libcuda.so:cuInit, uprobe:libcuda:cuInit { @ = count() }",
        repaired: "uprobe:libcuda:cuInit { @ = count() }",
    },
    Code {
        code: "W0155",
        title: "functions that look at where they return to",
        explanation: "A return probe puts another address where a function returns to. What reads it goes wrong in every \
                      traced program: `dlsym` does not know who asks, `setjmp` remembers a place that nobody may come \
                      back to, and exceptions are caught by nobody. Patterns leave such functions out; their entries \
                      can be probed.",
        example: "uretprobe:libc:dlsym { @ = count() }",
        repaired: "uprobe:libc:dlsym { @ = count() }",
    },
    Code {
        code: "E0114",
        title: "no such marker",
        explanation: "A `usdt` probe is written `usdt:TARGET:PROVIDER:NAME`, and sits where the author of a program or \
                      library put a marker of that name. `cudatrace -l 'usdt:TARGET:*'` lists them, with `-v` the values \
                      that they pass on.",
        example: "usdt:./app:app:bacth { @ = count() }",
        repaired: "usdt:./app:app:batch { @ = count() }",
    },
    Code {
        code: "E0113",
        title: "no such operation of CUDA",
        explanation: "Operations are written `cuda:OPERATION`, and `cuda:OPERATION:start` for their beginning. \
                      `cudatrace -l 'cuda:*'` lists them, with `-v` their arguments.",
        example: "cuda:aloc { @ = count() }",
        repaired: "cuda:alloc { @ = count() }",
    },
    Code {
        code: "E0112",
        title: "no such tracepoint",
        explanation: "A tracepoint is written `tracepoint:CATEGORY:EVENT`; `*` stands for anything. `cudatrace -l \
                      'tracepoint:sched:*'` lists those of this kernel. Their fields are read from tracefs, which need \
                      not be mounted but is root's.",
        example: "tracepoint:sched:sched_swich { @ = count() }",
        repaired: "tracepoint:sched:sched_switch { @ = count() }",
    },
];

//! Codes of the resolver: `E01xx`.

use crate::diagnostics::Code;

/// Codes for probes, targets, functions and settings. `W` marks warnings.
pub const PROBES: &[Code] = &[
    Code {
        code: "E0101",
        title: "unknown kind of probe",
        explanation: "A probe begins with its kind, such as `uprobe`, `uretprobe`, `interval`, `profile`, `BEGIN` or \
                      `END`, in upper or lower case. `cudatrace help probes` lists all kinds.",
        example: "uprob:libcuda:cuInit { @ = count() }",
        repaired: "uprobe:libcuda:cuInit { @ = count() }",
    },
    Code {
        code: "E0102",
        title: "a kind of probe that is not supported",
        explanation: "Other tracers have this kind of probe. To see what a CUDA program does, probe the functions of \
                      its libraries.",
        example: "asyncwatchpoint:0x1000:8:w { @ = count() }",
        repaired: "watchpoint:0x1000:8:w { @ = count() }",
    },
    Code {
        code: "E0103",
        title: "a probe has too many or too few parts",
        explanation: "A function is written `uprobe:TARGET:FUNCTION`, where the target is a library (`libcuda`), a \
                      path, or a program. `uprobe` runs when the function is entered, `uretprobe` when it returns. A \
                      return probe takes no offset in a function.",
        example: "uprobe:cuInit { @ = count() }",
        repaired: "uprobe:libcuda:cuInit { @ = count() }",
    },
    Code {
        code: "E0104",
        title: "the target cannot be probed",
        explanation: "There is no file of this name, or it is not a program or library, or it cannot be read. The \
                      message gives the reason. In a clause with several attach points this is a warning if another \
                      attach point was found.",
        example: "uprobe:/nowhere/libx.so:f { @ = count() }",
        repaired: "uprobe:libcuda:cuInit { @ = count() }",
    },
    Code {
        code: "E0105",
        title: "no such function",
        explanation: "The files of the target have no function of this name, version or pattern. In libcuda and \
                      libcudart a name without a suffix means all its current versions. A name with a suffix, or in \
                      quotes, means exactly one symbol.",
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
        title: "not a function or pattern of functions",
        explanation: "A function is given by its exact name, with wildcards (`cuMem*`), by a regular expression \
                      (`/cu.*Alloc/`), with a version (`cudaMalloc@libcudart.so.12`), with an offset (`cuInit+16`) or \
                      by its address.",
        example: "uprobe:libcuda:cuInit+x { @ = count() }",
        repaired: "uprobe:libcuda:cuInit+16 { @ = count() }",
    },
    Code {
        code: "E0108",
        title: "unknown setting",
        explanation: "The settings of the `config` block are `max_map_keys`, `max_strlen`, `str_trunc_trailer`, \
                      `max_cat_bytes`, `print_maps_on_exit`, `stack_mode`, `max_loop_iterations`, `missing_probes`, \
                      `kernel_events`, `in_process`, `max_probes`, `cpp_demangle`, `show_debug_info`, `license` and \
                      `perf_rb_pages`.",
        example: "config = { max_map_key = 10 } BEGIN { exit() }",
        repaired: "config = { max_map_keys = 10 } BEGIN { exit() }",
    },
    Code {
        code: "E0109",
        title: "a setting of the wrong kind",
        explanation: "The message names the values that the setting takes.",
        example: "config = { max_map_keys = 0 } BEGIN { exit() }",
        repaired: "config = { max_map_keys = 1000 } BEGIN { exit() }",
    },
    Code {
        code: "E0110",
        title: "a wrong declaration of a map",
        explanation: "`let @m = hash(1000);` makes room for 1000 keys. In a full `lruhash` a new key replaces the one \
                      that was unused for longest. `percpuhash` and `percpulruhash` hold aggregations. The keys of a \
                      `processhash` begin with `pid`, and are deleted when that process ends.",
        example: "let @m = heap(10); BEGIN { @m = 1 }",
        repaired: "let @m = hash(10); BEGIN { @m[1] = 1 }",
    },
    Code {
        code: "E0111",
        title: "no such library",
        explanation: "A library name is searched in the traced processes, then in the directories where libraries are \
                      installed. With a command, `-p` or `--wait`, or if another attach point of the clause was found, \
                      cudatrace waits until a process loads the library. Otherwise there is nothing to probe.",
        example: "uprobe:libcudar:cudaMalloc { @ = count() }",
        repaired: "uprobe:libcudart:cudaMalloc { @ = count() }",
    },
    Code {
        code: "E0115",
        title: "more attach points than `max_probes`",
        explanation: "A script that sets `max_probes` is refused if it has more attach points than that. Without the \
                      setting there is no limit: all functions of a clause share one program and one link.",
        example: "config = { max_probes = 1 } uprobe:libcuda:cuMem* { @ = count() }",
        repaired: "config = { max_probes = 1 } uprobe:libcuda:cuInit { @ = count() }",
    },
    Code {
        code: "E0116",
        title: "a script of tests or benchmarks that runs as a trace",
        explanation: "`test:NAME` probes run with `--test` only, `bench:NAME` probes with `--bench` only. This script \
                      has no other probes.",
        example: "test:sum { return 1 + 1 != 2 }",
        repaired: "test:sum { return 1 + 1 != 2 } BEGIN { printf(\"tracing\\n\") }",
    },
    Code {
        code: "E0117",
        title: "no instruction begins at the offset",
        explanation: "A probe replaces the first byte of an instruction by a breakpoint. In the middle of an \
                      instruction, or after the function's end, it would change what the program does.",
        example: "uprobe:./app:main+3 { @ = count() }",
        repaired: "uprobe:./app:main+4 { @ = count() }",
    },
    Code {
        code: "E0118",
        title: "functions of the kernel cannot be probed here",
        explanation: "`kprobe` needs a kernel that is built with CONFIG_KPROBES, as those of distributions are. `fentry` \
                      needs Linux 5.17 with BTF, and a kernel that is not locked down. Tracepoints exist everywhere: \
                      `cudatrace -l 'tracepoint:*:*'` lists them, and `cudatrace doctor` shows what the kernel has.",
        example: "fentry:__x64_sys_openat { @ = count() }",
        repaired: "kprobe:__x64_sys_openat { @ = count() }",
    },
    Code {
        code: "E0119",
        title: "no such event of the kernel driver",
        explanation: "`cudatrace -l 'driver:*'` lists the events of NVIDIA's kernel driver, `-lv` the functions that perform \
                      them. The first function that the loaded driver has is probed.",
        example: "driver:opne { @ = count() }",
        repaired: "driver:open { @ = count() }",
    },
    Code {
        code: "E0120",
        title: "no such argument",
        explanation: "None of the functions of this clause has an argument of this name. If some functions have it, the \
                      others are skipped with a warning.",
        example: "uprobe:libcuda:cuMemAlloc { @ = sum(args.bytesiz) }",
        repaired: "uprobe:libcuda:cuMemAlloc { @ = sum(args.bytesize) }",
    },
    Code {
        code: "E0121",
        title: "the names of arguments are unknown",
        explanation: "Names and types of arguments are known for the CUDA driver, the CUDA runtime and NCCL, and for \
                      functions with debug information. A program or library has it if it was compiled with `-g`, or if \
                      its debug information is installed in a separate file (`/usr/lib/debug/.build-id`, \
                      `.gnu_debuglink`). The message names the paths that were searched. For other functions use \
                      `arg0`, `arg1` ... and casts.",
        example: "uprobe:libc:malloc { @ = sum(args.size) }",
        repaired: "uprobe:libc:malloc { @ = sum(arg0) }",
    },
    Code {
        code: "E0122",
        title: "an argument that cannot be read",
        explanation: "Floating-point arguments are passed in vector registers, which programs in the kernel cannot read. \
                      With `--in-process` a `float` and a `double` are read.",
        example: "uprobe:libcuda:cuTexRefSetMipmapLevelBias { print(args.bias) }",
        repaired: "uprobe:libcuda:cuTexRefSetMipmapLevelBias { print(args.hTexRef) }",
    },
    Code {
        code: "E0123",
        title: "no result to read",
        explanation: "The function returns nothing, or a value that is not in an integer register: a vector, or a \
                      floating-point number, which only `--in-process` reads. Structs can be read; for a large struct, `retval` is a pointer to it.",
        example: "uretprobe:./app:main { @[retval] = count() }",
        repaired: "uretprobe:./app:main { @[func] = count() }",
    },
    Code {
        code: "E0124",
        title: "the location of an argument is unknown",
        explanation: "Debug information describes the parameters of a function, and the ABI determines their locations. \
                      The compiler's specialised copies of a function (`.isra.0`, `.constprop.0`) take other parameters \
                      than the function. 128-bit integers, vectors, and most values that Rust and Go pass by value \
                      follow other rules. The other functions of a wildcard are still probed.",
        example: "uprobe:./app:serve.isra.0 { print(args.kind) }",
        repaired: "uprobe:./app:serve { print(args.kind) }",
    },
    Code {
        code: "W0151",
        title: "some functions are skipped",
        explanation: "The wildcard also matches functions without an argument or result that the body uses, or \
                      tracepoints without such a field. They are not probed.",
        example: "uprobe:libcuda:cuMem* { @ = sum(args.bytesize) }",
        repaired: "uprobe:libcuda:cuMemAlloc, uprobe:libcuda:cuMemAllocHost_v2 { @ = sum(args.bytesize) }",
    },
    Code {
        code: "W0152",
        title: "unknown function of a library",
        explanation: "The library is not loaded yet, and cudatrace's tables of its functions do not contain this name. \
                      The name is looked up again when a process loads the library.",
        example: "uprobe:libnccl:ncclAllReducee { @ = count() }",
        repaired: "uprobe:libnccl:ncclAllReduce { @ = count() }",
    },
    Code {
        code: "W0153",
        title: "a setting that has no effect, or an old name of a setting",
        explanation: "Settings of bpftrace are accepted, so that its scripts run.",
        example: "config = { log_size = 10 } BEGIN { exit() }",
        repaired: "config = { max_map_keys = 10 } BEGIN { exit() }",
    },
    Code {
        code: "W0154",
        title: "a missing attach point",
        explanation: "A clause with several attach points runs at those that were found, and a warning names each of \
                      the others. `missing_probes = \"ignore\"` in the `config` block turns these warnings off.",
        example: "uprobe:/nowhere/libcuda.so:cuInit, uprobe:libcuda:cuInit { @ = count() }",
        repaired: "uprobe:libcuda:cuInit { @ = count() }",
    },
    Code {
        code: "W0155",
        title: "functions that read their return address",
        explanation: "A return probe replaces the return address of a function. A function that reads its return \
                      address then fails in every traced program: `dlsym` cannot identify its caller, `longjmp` jumps \
                      to a wrong address, and exceptions are not caught. Patterns skip such functions. Their entries \
                      can be probed.",
        example: "uretprobe:libc:dlsym { @ = count() }",
        repaired: "uprobe:libc:dlsym { @ = count() }",
    },
    Code {
        code: "E0114",
        title: "no such USDT marker",
        explanation: "A `usdt` probe is written `usdt:TARGET:PROVIDER:NAME`, and runs at the markers of that name that \
                      the author put into the program or library. `cudatrace -l 'usdt:TARGET:*'` lists the markers; \
                      `-v` adds their arguments.",
        example: "usdt:./app:app:bacth { @ = count() }",
        repaired: "usdt:./app:app:batch { @ = count() }",
    },
    Code {
        code: "E0113",
        title: "no such CUDA operation",
        explanation: "An operation is written `cuda:OPERATION`, or `cuda:OPERATION:start` for its beginning. `cudatrace \
                      -l 'cuda:*'` lists the operations; `-v` adds their arguments.",
        example: "cuda:aloc { @ = count() }",
        repaired: "cuda:alloc { @ = count() }",
    },
    Code {
        code: "E0126",
        title: "no such ioctl",
        explanation: "An ioctl of NVIDIA's driver is written `ioctl:nvidia:NAME`, or `ioctl:nvidia-uvm:NAME` for unified \
                      memory. The names are those of NVIDIA's open kernel modules; their prefixes `NV_ESC_` and `UVM_` \
                      may be omitted, and `*` matches anything. `cudatrace -l 'ioctl:*'` lists them; `-v` adds their \
                      arguments. `NV_ESC_IOCTL_XFER_CMD` is not listed: it carries another ioctl, whose name it gets.",
        example: "ioctl:nvidia:RM_CONTROLL { @ = count() }",
        repaired: "ioctl:nvidia:RM_CONTROL { @ = count() }",
    },
    Code {
        code: "E0127",
        title: "a driver that is not loaded",
        explanation: "Ioctls are traced on the device files of the driver. Their major number is known only while the \
                      driver is loaded; `/proc/devices` lists it. `missing_probes = \"warn\"` in the `config` block \
                      makes the error a warning.",
        example: "ioctl:nvidia-uvm:MIGRATE { @ = count() }",
        repaired: "ioctl:nvidia:RM_ALLOC { @ = count() }",
    },
    Code {
        code: "E0128",
        title: "no library for the records of a GPU",
        explanation: "What a GPU does is recorded by a library of cudatrace, which is loaded into the traced process for \
                      `gpu:` probes. This build, or this way of tracing, has none. `missing_probes = \"warn\"` in the \
                      `config` block makes the error a warning.",
        example: "gpu:idle { @ = count() }",
        repaired: "gpu:kernel { @ = count() }",
    },
    Code {
        code: "E0129",
        title: "no such records of a GPU",
        explanation: "A probe on what a GPU did is `gpu:KIND`, such as `gpu:kernel` or `gpu:memcpy`; `*` matches any text. \
                      `cudatrace -l -v 'gpu:*'` lists the kinds with their arguments.",
        example: "gpu:kernels { @ = count() }",
        repaired: "gpu:kernel { @ = count() }",
    },
    Code {
        code: "E0130",
        title: "memory that cannot be watched",
        explanation: "A watchpoint is written `watchpoint:ADDRESS:BYTES:ACCESSES`. A processor watches 1, 2, 4 or 8 bytes, \
                      which begin at a multiple of their number, for writes (`w`), reads and writes (`rw`) or execution \
                      (`x`). Most processors watch four addresses at a time; those of x86 cannot watch reads alone.",
        example: "watchpoint:0x1002:4:w { @ = count() }",
        repaired: "watchpoint:0x1002:2:w { @ = count() }",
    },
    Code {
        code: "E0131",
        title: "no such iterator",
        explanation: "The kernel has iterators for some kinds of items: `iter:task` for threads, `iter:task_file` for their \
                      open files, `iter:task_vma` for their mappings. They need BTF. `cudatrace -lv 'iter:*'` lists them with \
                      their fields.",
        example: "iter:tasks { @ = count() }",
        repaired: "iter:task { @ = count() }",
    },
    Code {
        code: "E0112",
        title: "no such tracepoint",
        explanation: "A tracepoint is written `tracepoint:CATEGORY:EVENT`, where `*` matches anything. `cudatrace -l \
                      'tracepoint:sched:*'` lists those of this kernel. Their fields are read from tracefs. It need not \
                      be mounted, but only root may read it.",
        example: "tracepoint:sched:sched_swich { @ = count() }",
        repaired: "tracepoint:sched:sched_switch { @ = count() }",
    },
];

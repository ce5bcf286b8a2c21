//! The declarations of every generated script, and the attach points of its clauses.

/// Kind of a probe, which determines the values that a clause may use.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Side {
    /// A timer: the time.
    Timer,
    /// `BEGIN` and `END`: the time; they interrupt nothing.
    Ends,
    /// A test, which returns a number.
    Test,
    /// Entry of a function: registers and arguments.
    Entry,
    /// Return of a function: the result, the duration, and arguments at entry.
    Return,
}

/// A probe.
pub(super) struct Probe {
    /// Attach point in a script.
    pub name: &'static str,
    /// Kind.
    pub side: Side,
    /// Names of integer arguments of its functions.
    pub args: &'static [&'static str],
    /// Other arguments of its functions.
    pub of: &'static [&'static str],
    /// True if its functions return a `CUresult`.
    pub result: bool,
}

impl Probe {
    /// Whether the probe is an operation, whose functions have different arguments.
    pub(super) fn is_operation(&self) -> bool {
        self.name.starts_with("cuda:")
    }
}

pub(super) const fn probe(side: Side, name: &'static str, args: &'static [&'static str]) -> Probe {
    Probe { name, side, args, of: &["api"], result: false }
}

pub(super) const fn entry(name: &'static str, args: &'static [&'static str]) -> Probe {
    probe(Side::Entry, name, args)
}

const fn returning(name: &'static str, args: &'static [&'static str]) -> Probe {
    Probe { result: true, of: &["retval", "api"], ..probe(Side::Return, name, args) }
}

pub(super) const fn having(of: &'static [&'static str], probe: Probe) -> Probe {
    Probe { of, ..probe }
}

/// All probes.
pub(super) static PROBES: &[Probe] = &[
    entry("uprobe:libcuda:cuInit", &["args.Flags"]),
    entry("uprobe:libcuda:cuMem*", &[]),
    entry("called = uprobe:libcuda:cuMemFree, uprobe:libcudart:cudaFree", &[]),
    having(
        &["kernel_name(args.f)", "args.f"],
        entry("uprobe:libcuda:cuLaunchKernel", &["args.gridDimX", "args.sharedMemBytes", "args.blockDimZ"]),
    ),
    entry("uprobe:libcuda:cuLaunchKernelEx", &["args.config->gridDimY"]),
    entry("uprobe:libcuda:cuMemsetD8", &["args.uc", "args.N", "alloc_size(args.dstDevice)"]),
    entry("uprobe:libcudart:cudaMemcpy", &["args.count"]),
    having(
        &["args.gridDim"],
        entry("uprobe:libcudart:cudaLaunchKernel", &["args.gridDim.x", "args.blockDim.z", "args.sharedMem"]),
    ),
    having(&["alloc_site(args.dst)", "args.kind"], entry("cuda:memcpy:start", &["args.bytes"])),
    returning("uretprobe:libcuda:cuMemAlloc", &["args.bytesize", "*args.dptr"]),
    returning("uretprobe:libcuda:cu*", &[]),
    returning("uretprobe:libcuda:cuLaunchKernel", &["args.gridDimX", "args.blockDimY"]),
    having(&["args.kind"], probe(Side::Return, "cuda:alloc", &["args.bytes", "args.duration", "args.ptr"])),
    having(
        &["alloc_site(args.src)", "args.kind"],
        probe(Side::Return, "cuda:memcpy", &["args.bytes", "alloc_base(args.dst)", "alloc_size(args.src)"]),
    ),
    probe(Side::Timer, "interval:s:1", &[]),
    probe(Side::Timer, "profile:hz:99", &[]),
    probe(Side::Ends, "BEGIN", &[]),
    probe(Side::Test, "test:it", &[]),
    probe(Side::Ends, "END", &[]),
];

/// Settings; a script has one of them.
pub(super) static SETTINGS: &[&str] = &[
    "",
    "config = { max_strlen = 48; }\n",
    "config = { max_loop_iterations = 3; stack_mode = raw; }\n",
    "config = { max_map_keys = 9; }\n",
];

/// Types, macros, and maps with a capacity of a few keys.
pub(super) const DECLARATIONS: &str = "\
#define SIX 6
enum color { RED, GREEN = 3, BLUE = -2 };
struct point { int x; short y; char tag; };
struct bits { unsigned low : 5; unsigned mid : 9; int high : 18; unsigned long wide : 37; };
struct shape { struct point corners[2]; enum color color; unsigned char name[5]; char label[7]; struct bits b; struct shape *next; };
struct odd { char c; long l; int words[3]; unsigned short s; unsigned f : 3; } __attribute__((packed));
union both { struct bits bits; unsigned whole; unsigned char bytes[8]; };
let @z = hash(3);
let @l = lruhash(5);
let @pc = percpulruhash(4);
let @ph = percpuhash(6);
metric @c = { unit = \"1\"; help = \"how often\"; }
macro clamp(v, low, high) { let $v = v; $v < low ? low : ($v > high ? high : $v) }
macro swap($a, $b) { let $old = $a; $a = $b; $b = $old; }
macro note(@m, k) { @m[k]++; @m[k] }
macro digits(v) { let $n = 0; let $rest = (uint64)v; while ($rest > 0) { $rest = $rest / 10; $n++; } $n }
";

/// Assigns a value to every map that does not depend on time, so that each has a type.
pub(super) const FIRST: &str = "@i[0] = 1; @u = (uint64)5; @t[1, comm] = comm; @c[(uint64)0] = count(); @d = sum((int64)1); \
                         @m[0] = min((int64)5); @x[comm] = max((uint64)1); @h = hist((int64)3, 1); @hk[0] = hist((int64)3); \
                         @a[0] = avg((int64)4); @s[0] = stats((int64)9); @lh = lhist((int64)4, -10, 100, 7); \
                         @lk[comm] = lhist((int64)4, 0, 8, 1); @z[0] = 2; @l[0] = 3; @pc[0] = count(); @ph[0] = sum((uint64)2); \
                         @e[GREEN] = count(); @made[str_concat(comm, \"!\")] = count(); @said = 0; \
                         @r[0] = (a = (int64)0, b = comm, c = (x = (uint64)0, y = (int16)0)); \
                         @v[0] = ((int64)2, comm, ((uint8)3, (uint64)4));";

/// The same for maps that depend on time.
pub(super) const FIRST_TIMES: &str =
    "@last = tseries((int64)1, 300us, 4); @total[0] = tseries((uint64)2, 200us, 3, \"sum\");";

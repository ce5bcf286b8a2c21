//! Records of a GPU: names, types and descriptions of the arguments that scripts read of a record.
//!
//! ```text
//! gpu:kernel   cudatrace_gpu_kernel(records, count)   args.duration = end - start, args.device at 80 ...
//! ```
//!
//! Not here: the members of a record, the kinds and their functions ([`crate::record`]), the loop over a batch (`lang::expand::gpu`).

use crate::record::{self, Kind};
pub use crate::record::{MEMBERS, Member, operator_table};
use crate::types::Enum;

/// A kind of records.
#[derive(Debug)]
pub struct RecordKind {
    /// `kernel`
    pub name: &'static str,
    /// Description in listings.
    pub doc: &'static str,
    /// Function of the agent that is called with a batch: its first argument is the address of the records, its second their
    /// number.
    pub function: &'static str,
    /// Operations of CUDA whose calls launch the work, the common one first.
    pub launched_by: &'static [&'static str],
    /// Arguments in the order of listings, in addition to [`COMMON`].
    own: &'static [Argument],
    /// Whether it has [`OF_DEVICE`], too.
    is_of_device: bool,
    kind: Kind,
}

/// An argument of `gpu:` probes.
#[derive(Debug)]
pub struct Argument {
    /// `duration`
    pub name: &'static str,
    /// Type in scripts.
    pub ty: &'static str,
    /// Description in listings.
    pub doc: &'static str,
    /// Expression for the value; `$r` is the record.
    pub value: &'static str,
}

/// Size of a record in bytes.
pub const RECORD_BYTES: u32 = record::SIZE as u32;

/// Kinds in the order of their numbers.
pub static KINDS: &[RecordKind] = &[
    RecordKind {
        doc: "a kernel ran",
        launched_by: &["cuda:launch"],
        own: &[
            arg(
                "kernel",
                "uint64",
                "the kernel, for `kernel_name()`: address of its mangled name",
                "$r.kernel",
            ),
            STREAM,
            arg("grid", "x, y, z", "blocks", "(x = $r.grid_x, y = $r.grid_y, z = $r.grid_z)"),
            arg("block", "x, y, z", "threads of a block", "(x = $r.block_x, y = $r.block_y, z = $r.block_z)"),
            arg("registers", "uint32", "registers of a thread", "$r.registers"),
            arg("shared", "uint32", "shared memory of a block, bytes", "$r.shared"),
            GRAPH,
            NODE,
            CORR,
            DELAY,
        ],
        ..row(Kind::Kernel)
    },
    RecordKind {
        doc: "memory was copied",
        launched_by: &["cuda:memcpy", "cuda:launch"],
        own: &[
            arg("bytes", "uint64", "bytes copied", "$r.bytes"),
            arg(
                "direction",
                "string",
                "`HtoD`, `DtoH`, `DtoD`, `HtoH`, `PtoP`; with arrays `HtoA`, `AtoH`, `AtoA`, `AtoD`, `DtoA`; `any` if it is not known",
                DIRECTION,
            ),
            arg("src_kind", "enum gpu_memory", "memory of the source", "(enum gpu_memory)$r.src_kind"),
            arg("dst_kind", "enum gpu_memory", "memory of the destination", "(enum gpu_memory)$r.dst_kind"),
            arg("async", "bool", "whether the call returned before the work was done", "$r.is_async != 0"),
            arg("src_device", "uint32", "device of the source, for copies between devices", "$r.src_device"),
            arg("dst_device", "uint32", "device of the destination, in the same form", "$r.dst_device"),
            STREAM,
            GRAPH,
            NODE,
            CORR,
            DELAY,
        ],
        ..row(Kind::Memcpy)
    },
    RecordKind {
        doc: "memory was filled",
        launched_by: &["cuda:memset", "cuda:launch"],
        own: &[
            arg("bytes", "uint64", "bytes filled", "$r.bytes"),
            arg("value", "uint32", "value that is repeated", "$r.value"),
            arg("memory_kind", "enum gpu_memory", "the memory", "(enum gpu_memory)$r.src_kind"),
            STREAM,
            GRAPH,
            NODE,
            CORR,
            DELAY,
        ],
        ..row(Kind::Memset)
    },
    RecordKind {
        doc: "a graph ran, as a whole",
        launched_by: &["cuda:launch"],
        own: &[GRAPH, STREAM, CORR, DELAY],
        ..row(Kind::Graph)
    },
    RecordKind {
        doc: "the host, or a stream, waited for the GPU",
        launched_by: &["cuda:sync"],
        own: &[
            arg("type", "enum gpu_sync", "what waited for what", "(enum gpu_sync)$r.what"),
            STREAM,
            arg("event", "uint32", "id of the event that was waited for", "$r.value"),
            CORR,
        ],
        ..row(Kind::Sync)
    },
    RecordKind {
        doc: "the driver, or the collection of these records, took time",
        own: &[arg("kind", "enum gpu_overhead", "what took the time", "(enum gpu_overhead)$r.value")],
        ..row(Kind::Overhead)
    },
    RecordKind {
        doc: "no kernel ran on a device, between two kernels",
        launched_by: &["cuda:launch"],
        own: &[
            arg("cause", "enum gpu_idle", "the probable cause", "(enum gpu_idle)$r.what"),
            arg(
                "kernel",
                "uint64",
                "the kernel that ran next, for `kernel_name()`; 0 for a graph",
                "$r.kernel",
            ),
            STREAM,
            CORR,
        ],
        ..row(Kind::Idle)
    },
    RecordKind {
        doc: "the program marked a part of its work by NVTX; the thread is the one that ends it",
        own: &[
            arg("name", "string", "its name", "$r.range == 0 ? \"\" : str((uint8 *)$r.range)"),
            arg(
                "domain",
                "string",
                "the name of its domain; empty: the default one",
                "$r.kernel == 0 ? \"\" : str((uint8 *)$r.kernel)",
            ),
            arg(
                "form",
                "enum gpu_range",
                "how it was made: of one thread, by start and end, or as an instant",
                "(enum gpu_range)$r.is_async",
            ),
            arg("category", "uint32", "number of its category; 0: none", "$r.value"),
            arg(
                "category_name",
                "string",
                "the name of its category, if it has one",
                "$r.uuid == 0 ? \"\" : str((uint8 *)$r.uuid)",
            ),
            arg(
                "payload",
                "uint64",
                "the number that belongs to it; the bits of a floating-point number",
                "$r.bytes",
            ),
            arg("payload_type", "enum gpu_payload", "its type", "(enum gpu_payload)$r.what"),
        ],
        is_of_device: false,
        ..row(Kind::Range)
    },
    RecordKind {
        doc: "PyTorch ran an operator, a function of the backward pass, or a range that the program names; times are those of the host",
        own: &[
            arg("name", "string", "its name, such as `aten::mm`", OPERATOR),
            arg("depth", "uint32", "operators around it", "$r.value"),
        ],
        is_of_device: false,
        ..row(Kind::Operator)
    },
    RecordKind {
        doc: "a range ended that the program names for PyTorch's profiler (`record_function`), as `Optimizer.step#AdamW.step`; times are those of the host",
        own: &[arg("name", "string", "its name", OPERATOR)],
        is_of_device: false,
        ..row(Kind::Annotation)
    },
];

/// Expression for the name of an operator.
pub const OPERATOR: &str = "$r.operator == 0 ? \"\" : str((uint8 *)$r.operator)";

/// A launch, or a wait, that begins: the agent calls the function in the thread that launches. Only for clauses that the compiler adds.
pub static LAUNCH: RecordKind =
    RecordKind { doc: "work is launched, or waited for", own: &[CORR, OF_FORWARD], ..row(Kind::Launch) };
const OF_FORWARD: Argument = arg("forward", "uint64", "id of the forward operator", "$r.forward");

/// An operator of PyTorch that may have work in the backward pass begins: the agent calls the function in its thread. Only for clauses that the
/// compiler adds.
pub static FORWARD: RecordKind = RecordKind {
    doc: "an operator of PyTorch begins",
    own: &[CORR],
    is_of_device: false,
    ..row(Kind::Forward)
};

/// Operators of PyTorch are known from now on, in the table at the correlation id: see [`operator_table`]. Only for clauses that the compiler
/// adds.
pub static OPERATOR_TABLE: RecordKind = RecordKind {
    doc: "operators of PyTorch are known",
    own: &[CORR],
    is_of_device: false,
    ..row(Kind::OperatorTable)
};

/// Kinds that scripts cannot name.
pub static HIDDEN: [&RecordKind; 3] = [&LAUNCH, &FORWARD, &OPERATOR_TABLE];

/// Operations whose calls have a correlation id that scripts can read.
pub const LAUNCHING: [&str; 4] = ["cuda:launch", "cuda:memcpy", "cuda:memset", "cuda:graph"];

/// Arguments of all kinds.
pub static COMMON: &[Argument] = &[
    arg("duration", "uint64", "how long it took, ns", "(uint64)($r.end - $r.start)"),
    arg("start", "uint64", "when it began, ns of the clock of `nsecs(monotonic)`", "$r.start"),
    arg("end", "uint64", "when it ended, in the same form", "$r.end"),
];

/// Arguments of all kinds that a device has done.
pub static OF_DEVICE: &[Argument] = &[
    arg("device", "uint32", "CUDA's number of the device in this process", "$r.device"),
    arg(
        "gpu",
        "uint64",
        "a number that only this device has, in all processes; 0 if it is not known",
        "$r.gpu",
    ),
    arg(
        "uuid",
        "uint64",
        "the UUID of the device, for `str()`: address of `GPU-01234567-…`; 0 if it is not known",
        "$r.uuid",
    ),
    arg("context", "uint32", "id of the context", "$r.context"),
];

const STREAM: Argument = arg("stream", "uint64", "id of the stream", "$r.stream");
const GRAPH: Argument = arg("graph", "uint32", "id of the graph; 0: none", "$r.graph");
const NODE: Argument = arg("node", "uint64", "id of the node of the graph; 0: none", "$r.node");
const CORR: Argument = arg("corr", "uint64", "correlation id of the launching call", "$r.corr");
const DELAY: Argument = arg(
    "delay",
    "int64",
    "time from the launching call to the start, ns; -1 if it is not known",
    "$r.launch == 0 ? (int64)-1 : (int64)($r.start - $r.launch)",
);
const DIRECTION: &str = "$r.what == 1 ? \"HtoD\" : $r.what == 2 ? \"DtoH\" : $r.what == 8 ? \"DtoD\" : $r.what == 10 ? \"PtoP\" \
                         : $r.what == 9 ? \"HtoH\" : $r.what == 3 ? \"HtoA\" : $r.what == 4 ? \"AtoH\" : $r.what == 5 ? \"AtoA\" \
                         : $r.what == 6 ? \"AtoD\" : $r.what == 7 ? \"DtoA\" : \"any\"";

const fn arg(name: &'static str, ty: &'static str, doc: &'static str, value: &'static str) -> Argument {
    Argument { name, ty, doc, value }
}

/// A kind with the name and the function of its row in `record.rs`, without arguments of its own.
const fn row(kind: Kind) -> RecordKind {
    RecordKind {
        name: kind.name(),
        doc: "",
        function: kind.function(),
        launched_by: &[],
        own: &[],
        is_of_device: true,
        kind,
    }
}

impl Argument {
    /// Description in listings, with the values of an enum.
    pub fn description(&self) -> String {
        let words = self.ty.strip_prefix("enum ").and_then(words).unwrap_or_default();
        match words {
            [] => self.doc.to_owned(),
            words => {
                let names: Vec<String> = words.iter().map(|(name, _)| format!("`{name}`")).collect();
                format!("{}: {}", self.doc, names.join(", "))
            }
        }
    }
}

impl RecordKind {
    /// The kind of this name.
    pub fn of(name: &str) -> Option<&'static RecordKind> {
        KINDS.iter().chain(HIDDEN).find(|kind| kind.name == name)
    }

    /// Whether the probe runs in the thread of the program that the record is about, and not in that of the agent.
    pub fn is_at_once(&self) -> bool {
        matches!(
            self.kind,
            Kind::Range
                | Kind::Operator
                | Kind::Annotation
                | Kind::Launch
                | Kind::Forward
                | Kind::OperatorTable
        )
    }

    /// Its number.
    pub fn number(&self) -> u8 {
        self.kind as u8
    }

    /// All arguments, in the order of listings.
    pub fn args(&self) -> impl Iterator<Item = &'static Argument> {
        let of_device = if self.is_of_device { OF_DEVICE } else { &[] };
        COMMON.iter().chain(of_device).chain(self.own)
    }

    /// The argument of this name.
    pub fn arg(&self, name: &str) -> Option<&'static Argument> {
        self.args().find(|arg| arg.name == name)
    }
}

/// Enums of arguments. Their constants are compared in quotes, since words like `device` have other meanings in scripts.
pub(crate) static ENUMS: [Enum; 6] = [
    Enum {
        name: "gpu_memory",
        signed: false,
        variants: &[
            ("unknown", 0),
            ("pageable", 1),
            ("pinned", 2),
            ("device", 3),
            ("array", 4),
            ("managed", 5),
            ("device_static", 6),
            ("managed_static", 7),
        ],
    },
    Enum {
        name: "gpu_sync",
        signed: false,
        variants: &[
            ("unknown", 0),
            ("event_synchronize", 1),
            ("stream_wait_event", 2),
            ("stream_synchronize", 3),
            ("context_synchronize", 4),
        ],
    },
    Enum {
        name: "gpu_overhead",
        signed: false,
        variants: &[
            ("unknown", 0),
            ("driver_compiler", 1),
            ("buffer_flush", 1 << 16),
            ("instrumentation", 2 << 16),
            ("resource", 3 << 16),
            ("runtime_triggered_module_loading", 4 << 16),
            ("lazy_function_loading", 5 << 16),
            ("command_buffer_full", 6 << 16),
            ("activity_buffer_request", 7 << 16),
            ("uvm_activity_init", 8 << 16),
        ],
    },
    Enum {
        name: "gpu_idle",
        signed: false,
        variants: &[
            ("unknown", 0),
            ("host_late", 1),
            ("host_waited", 2),
            ("copy", 3),
            ("nothing_asked", 4),
            ("queued", 5),
        ],
    },
    Enum { name: "gpu_range", signed: false, variants: &[("pushed", 0), ("started", 1), ("mark", 2)] },
    Enum {
        name: "gpu_payload",
        signed: false,
        variants: &[
            ("none", 0),
            ("uint64", 1),
            ("int64", 2),
            ("double", 3),
            ("uint32", 4),
            ("int32", 5),
            ("float", 6),
        ],
    },
];

/// The constants of an enum of records.
pub fn words(of: &str) -> Option<&'static [(&'static str, i64)]> {
    ENUMS.iter().find(|def| def.name == of).map(|def| def.variants)
}

/// Names of [`ENUMS`].
pub(crate) const ENUM_NAMES: [&str; 6] =
    ["gpu_memory", "gpu_sync", "gpu_overhead", "gpu_idle", "gpu_range", "gpu_payload"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_the_agent_has_a_row() {
        let rows = KINDS.iter().chain(HIDDEN).map(|kind| kind.kind);
        assert_eq!(rows.collect::<Vec<_>>(), Kind::ALL);
        assert!(KINDS.iter().all(|kind| !kind.doc.is_empty()));
    }

    #[test]
    fn arguments_read_members_that_exist() {
        for arg in KINDS.iter().chain(HIDDEN).flat_map(RecordKind::args) {
            for read in arg.value.split("$r.").skip(1) {
                let end = read.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(read.len());
                assert!(
                    MEMBERS.iter().any(|member| member.name == &read[..end]),
                    "{}: {}",
                    arg.name,
                    arg.value
                );
            }
        }
        assert_eq!(ENUMS.each_ref().map(|def| def.name), ENUM_NAMES);
    }
}

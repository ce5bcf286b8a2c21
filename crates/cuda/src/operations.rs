//! Operations such as `cuda:alloc` and `cudart:alloc`: the functions of the driver or the runtime that perform them, and the
//! expressions for the operation's arguments in each function.
//!
//! ```text
//! cuda:alloc     cuMemAlloc          bytes = args.bytesize                    ptr = *args.dptr
//!                cuMemAllocPitch     bytes = args.WidthInBytes * args.Height  ptr = *args.dptr
//!                cuMemHostRegister   bytes = args.bytesize                    ptr = args.p
//! cudart:alloc   cudaMalloc          bytes = args.size                        ptr = *args.devPtr
//! ```
//!
//! An operation of both APIs has the same arguments in both. The arguments are declared here, the functions in `driver` and
//! `runtime`. A function is named by its family: `cuMemAlloc` includes `cuMemAlloc_v2` and the variants for per-thread default
//! streams. The expressions are written in the script language. A row may omit an argument whose default is right.
//! Not here: facts that only the device knows, such as the kernels of a graph.

use crate::library::Library;

/// An operand of a copy of a box: the handle of an array, or an address.
macro_rules! operand {
    ($operand:literal, $array:literal) => {
        concat!(
            $operand,
            ".type == ",
            $array,
            " ? (uint64)",
            $operand,
            ".op.array.array : (uint64)",
            $operand,
            ".op.ptr.ptr"
        )
    };
}

mod driver;
mod runtime;

/// An API with operations.
#[derive(Debug)]
pub struct Api {
    /// Provider name, before the colon: `cuda`.
    pub provider: &'static str,
    /// Library whose functions perform the operations.
    pub library: Library,
    /// Operations in the order of listings.
    pub operations: &'static [Operation],
    /// Functions that libraries call continuously to query their own state. Operations for arbitrary calls exclude
    /// them.
    pub quiet: &'static [&'static str],
}

/// All APIs.
pub static APIS: &[Api] = &[
    Api { provider: "cuda", library: Library::Driver, operations: driver::OPERATIONS, quiet: driver::QUIET },
    Api {
        provider: "cudart",
        library: Library::Runtime,
        operations: runtime::OPERATIONS,
        quiet: runtime::QUIET,
    },
];

/// Operation for calls that no other operation covers.
pub const OTHER: &str = "other";

/// An operation.
#[derive(Debug)]
pub struct Operation {
    /// `alloc`
    pub name: &'static str,
    /// Description in listings.
    pub doc: &'static str,
    /// Arguments of its probes in `args`, without [`COMMON`].
    pub args: &'static [Argument],
    /// Functions that perform the operation, without duplicates.
    pub variants: &'static [OperationVariant],
    /// Results of calls that count as the operation.
    pub fires: Fires,
}

/// Results of calls that count as an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fires {
    /// Successful calls; failed ones also in a clause that uses the result.
    OnSuccess,
    /// Failed calls, for which this condition (in the language of scripts) holds.
    OnFailure(&'static str),
    /// All calls.
    Always,
}

impl Fires {
    /// The condition on the result of a call, in the language of scripts. `uses_result`: the clause uses the
    /// result.
    pub fn condition(self, uses_result: bool) -> Option<&'static str> {
        match self {
            Fires::OnFailure(condition) => Some(condition),
            Fires::OnSuccess if !uses_result => Some("!is_error(retval)"),
            Fires::OnSuccess | Fires::Always => None,
        }
    }

    /// Whether a call may count as the operation before its result is known.
    pub fn has_start(self) -> bool {
        !matches!(self, Fires::OnFailure(_))
    }
}

/// An argument of an operation.
#[derive(Debug)]
pub struct Argument {
    /// `bytes`
    pub name: &'static str,
    /// Type of its values in scripts: `uint64`, `void *`. Other names are documentation only.
    pub ty: &'static str,
    /// True if the value is known only after the call has returned.
    pub at_return: bool,
    /// Value for functions that do not pass the argument.
    pub default: &'static str,
    /// Description in listings.
    pub doc: &'static str,
}

/// Functions with the same expressions for the arguments.
#[derive(Debug)]
pub struct OperationVariant {
    /// Symbol families, or a wildcard.
    pub functions: &'static [&'static str],
    /// Name of each argument and the script expression for its value.
    pub args: &'static [(&'static str, &'static str)],
}

impl Argument {
    /// Whether values are converted to the type: numbers and addresses are.
    pub fn is_number(&self) -> bool {
        self.ty.starts_with("uint") || self.ty.ends_with('*')
    }
}

impl Operation {
    /// The argument of this name, [`COMMON`] included.
    pub fn arg(&self, name: &str) -> Option<&'static Argument> {
        self.all_args().find(|arg| arg.name == name)
    }

    /// Its own arguments, then [`COMMON`].
    pub fn all_args(&self) -> impl Iterator<Item = &'static Argument> {
        self.args.iter().chain(COMMON)
    }
}

impl OperationVariant {
    /// The script expression for an argument of these functions.
    pub fn value(&self, arg: &'static Argument) -> &'static str {
        self.args.iter().find(|(name, _)| *name == arg.name).map_or(arg.default, |(_, text)| text)
    }
}

impl Api {
    /// The API of a provider; case is ignored.
    pub fn of(provider: &str) -> Option<&'static Api> {
        APIS.iter().find(|api| api.provider.eq_ignore_ascii_case(provider))
    }

    /// The API of a library.
    pub fn of_library(library: Library) -> Option<&'static Api> {
        APIS.iter().find(|api| api.library == library)
    }

    /// Whether an operation has this family among its functions.
    pub fn names(&self, family: &str) -> bool {
        let mut functions =
            self.operations.iter().flat_map(|o| o.variants).flat_map(|variant| variant.functions);
        functions.any(|function| *function == family)
    }

    /// The operation of this name.
    pub fn operation(&self, name: &str) -> Option<&'static Operation> {
        self.operations.iter().find(|operation| operation.name == name)
    }
}

const fn variant(
    functions: &'static [&'static str],
    args: &'static [(&'static str, &'static str)],
) -> OperationVariant {
    OperationVariant { functions, args }
}

const fn arg(name: &'static str, ty: &'static str, default: &'static str, doc: &'static str) -> Argument {
    Argument { name, ty, at_return: false, default, doc }
}

const fn at_return(
    name: &'static str,
    ty: &'static str,
    default: &'static str,
    doc: &'static str,
) -> Argument {
    Argument { name, ty, at_return: true, default, doc }
}

/// Arguments of all operations.
pub static COMMON: &[Argument] = &[
    at_return(
        "result",
        "result",
        "retval",
        "result of the call; a clause that uses it also gets failed calls",
    ),
    at_return("duration", "nanoseconds", "duration", "time in the call, ns"),
    at_return("start", "uint64", "started", "when the call began, ns of the clock of `nsecs(monotonic)`"),
];

const ASYNC: Argument = arg("async", "bool", "false", "the call does not wait for completion");
const STREAM: Argument = arg("stream", "void *", "0", "the stream; 0 is the default one");

const NO_DIM: &str = "(x = (uint32)0, y = (uint32)0, z = (uint32)0)";

const LAUNCH: &[Argument] = &[
    arg("kernel", "void *", "0", "handle of the kernel, for `kernel_name`; 0 for a graph"),
    arg("grid", "x, y, z", NO_DIM, "blocks"),
    arg("block", "x, y, z", NO_DIM, "threads of a block"),
    arg("shared", "uint32", "0", "dynamic shared memory of a block, bytes"),
    STREAM,
    arg("kind", "string", "\"kernel\"", "`kernel`, `cooperative`, `graph`"),
];

const ALLOC: &[Argument] = &[
    arg("bytes", "uint64", "0", "requested size"),
    at_return("ptr", "uint64", "0", "address or handle; 0 if it failed"),
    arg(
        "kind",
        "string",
        "\"device\"",
        "`device`, `pitched`, `managed`, `pinned`, `registered`, `pool`, `physical`, `array`, `ipc`",
    ),
    STREAM,
    ASYNC,
];

const FREE: &[Argument] = &[
    arg("ptr", "uint64", "0", "address or handle, as the allocation returned it"),
    arg(
        "kind",
        "string",
        "\"device\"",
        "`device` (pitched and managed too), `pinned`, `registered`, `pool`, `physical`, `array`, `ipc`",
    ),
    STREAM,
    ASYNC,
];

const POOL: &[Argument] = &[
    arg(
        "kind",
        "string",
        "\"create\"",
        "`create`, `import`, `trim`, `use` (the default pool of its device), `destroy`",
    ),
    at_return("pool", "void *", "0", "the pool"),
    arg("bytes", "uint64", "0", "`trim`: the size that is kept"),
];

const HINT: &[Argument] = &[
    arg("bytes", "uint64", "0", "size of the memory; of a batch the sum"),
    arg("ptr", "uint64", "0", "start of the memory; of a batch the first"),
    arg("kind", "string", "\"advise\"", "`advise`, `prefetch`, `attach` (to a stream), `discard`"),
    STREAM,
];

const MEMCPY: &[Argument] = &[
    arg("bytes", "uint64", "0", "bytes copied"),
    arg("dst", "uint64", "0", "destination: an address or an array's handle; of a batch the first"),
    arg("src", "uint64", "0", "source, in the same form"),
    arg(
        "direction",
        "string",
        "\"any\"",
        "`HtoD`, `DtoH`, `DtoD`, `HtoH`, `PtoP`; `any` where the driver determines it from the addresses",
    ),
    arg(
        "kind",
        "string",
        "\"linear\"",
        "`linear`, `2D`, `3D`, `array`, `peer`; `batch`: several copies, with the sum of their bytes",
    ),
    STREAM,
    ASYNC,
];

const MEMSET: &[Argument] = &[
    arg("bytes", "uint64", "0", "bytes filled"),
    arg("ptr", "uint64", "0", "start address"),
    arg("value", "uint32", "0", "value that is repeated"),
    arg("kind", "string", "\"linear\"", "`linear`, `2D`, `3D`"),
    STREAM,
    ASYNC,
];

const SYNC: &[Argument] = &[
    arg("kind", "string", "\"context\"", "`context` (runtime: the device), `stream`, `event`"),
    STREAM,
    arg("event", "void *", "0", "the event that is waited for"),
];

const OF_STREAM: &[Argument] = &[
    arg(
        "kind",
        "string",
        "\"create\"",
        "`create`, `wait` (for an event), `callback` (on the host), `query`, `destroy`",
    ),
    at_return("stream", "void *", "0", "the stream; 0 is the default one"),
    arg("event", "void *", "0", "the event that is waited for"),
];

const OF_EVENT: &[Argument] = &[
    arg("kind", "string", "\"create\"", "`create`, `record`, `query`, `elapsed`, `destroy`"),
    at_return("event", "void *", "0", "the event; of `elapsed` the later one"),
    STREAM,
];

const GRAPH: &[Argument] = &[
    arg(
        "kind",
        "string",
        "\"create\"",
        "`create`, `clone`, `capture`, `captured`, `instantiate`, `update`, `upload`, `launch`, `destroy`",
    ),
    at_return("graph", "void *", "0", "the graph"),
    arg("from", "void *", "0", "`clone`: the original graph"),
    at_return("exec", "void *", "0", "the instance that can be launched"),
    STREAM,
];

const ALLOC_DOC: &str = "memory is allocated, on the device or for its use";
const FREE_DOC: &str = "memory is freed";
const LAUNCH_DOC: &str = "a kernel or a graph is launched";
const POOL_DOC: &str = "a memory pool is created, trimmed, selected or destroyed";
const HINT_DOC: &str = "advice, prefetch or discard of memory";
const MEMCPY_DOC: &str = "memory is copied";
const MEMSET_DOC: &str = "device memory is filled";
const SYNC_DOC: &str = "the program waits for the device";
const STREAM_DOC: &str = "a stream is created, queried or destroyed, waits for an event, or calls the host";
const EVENT_DOC: &str = "an event is created, recorded, queried or destroyed";
const GRAPH_DOC: &str = "a graph is captured, created, instantiated, changed, launched or destroyed";

const IS_ASYNC: (&str, &str) = ("async", "true");

/// Total bytes of the copies of a batch.
const BATCH_BYTES: (&str, &str) =
    ("bytes", "{ let $sum = (uint64)0; for $i : 0..args.count { $sum += (uint64)args.sizes[$i]; } $sum }");
// Driver and runtime share the text, so that their functions become one program.
const BOXES_BYTES: (&str, &str) = (
    "bytes",
    "{ let $sum = (uint64)0; \
     for $i : 0..args.numOps { \
         $sum += (uint64)args.opList[$i].extent.width * args.opList[$i].extent.height * args.opList[$i].extent.depth; \
     } \
     $sum }",
);
const BOX_BYTES: (&str, &str) =
    ("bytes", "args.op->extent.width * args.op->extent.height * args.op->extent.depth");

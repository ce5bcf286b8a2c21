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

/// An operand of a box: an array's handle or an address.
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

/// What has operations.
#[derive(Debug)]
pub struct Api {
    /// Before the colon: `cuda`.
    pub provider: &'static str,
    /// The library whose functions do them.
    pub library: Library,
    /// In the order of listings.
    pub operations: &'static [Operation],
    /// Functions that libraries call all the time to look at their own state. Operations that take any call leave them out.
    pub quiet: &'static [&'static str],
}

/// Both.
pub static APIS: &[Api] = &[
    Api { provider: "cuda", library: Library::Driver, operations: driver::OPERATIONS, quiet: driver::QUIET },
    Api {
        provider: "cudart",
        library: Library::Runtime,
        operations: runtime::OPERATIONS,
        quiet: runtime::QUIET,
    },
];

/// The operation of calls that no other one names.
pub const OTHER: &str = "other";

/// An operation.
#[derive(Debug)]
pub struct Operation {
    /// `alloc`
    pub name: &'static str,
    /// For listings.
    pub doc: &'static str,
    /// What its probes have as `args`, besides [`COMMON`].
    pub args: &'static [Argument],
    /// The functions that do it, each once.
    pub feeds: &'static [Feed],
    /// Which of their calls it stands for.
    pub fires: Fires,
}

/// The results of calls that an operation stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fires {
    /// Successes; failures too in a clause that uses the result.
    OnSuccess,
    /// Failures: this condition holds, in the language of scripts.
    OnFailure(&'static str),
    /// All.
    Always,
}

impl Fires {
    /// The condition on the result of a call, in the language of scripts; `uses_result`: the clause does.
    pub fn condition(self, uses_result: bool) -> Option<&'static str> {
        match self {
            Fires::OnFailure(condition) => Some(condition),
            Fires::OnSuccess if !uses_result => Some("!is_error(retval)"),
            Fires::OnSuccess | Fires::Always => None,
        }
    }

    /// Whether a call may be the operation's before its result is known.
    pub fn has_start(self) -> bool {
        !matches!(self, Fires::OnFailure(_))
    }
}

/// An argument of an operation.
#[derive(Debug)]
pub struct Argument {
    /// `bytes`
    pub name: &'static str,
    /// What its values are converted to: `uint64`, `void *`. Other names are for the reader alone.
    pub ty: &'static str,
    /// Known only when the call has returned.
    pub at_return: bool,
    /// For functions that do not say it.
    pub default: &'static str,
    /// For listings.
    pub doc: &'static str,
}

/// Functions that have the arguments at the same places.
#[derive(Debug)]
pub struct Feed {
    /// Families, or a wildcard.
    pub functions: &'static [&'static str],
    /// Arguments and how a script would read them there.
    pub args: &'static [(&'static str, &'static str)],
}

impl Argument {
    /// Whether values are converted to its type: numbers and addresses are.
    pub fn is_number(&self) -> bool {
        self.ty.starts_with("uint") || self.ty.ends_with('*')
    }
}

impl Operation {
    /// An argument, of [`COMMON`] too.
    pub fn arg(&self, name: &str) -> Option<&'static Argument> {
        self.all_args().find(|arg| arg.name == name)
    }

    /// Its own arguments, then [`COMMON`].
    pub fn all_args(&self) -> impl Iterator<Item = &'static Argument> {
        self.args.iter().chain(COMMON)
    }
}

impl Feed {
    /// How these functions give an argument.
    pub fn value(&self, arg: &'static Argument) -> &'static str {
        self.args.iter().find(|(name, _)| *name == arg.name).map_or(arg.default, |(_, text)| text)
    }
}

impl Api {
    /// By its provider, in any case.
    pub fn of(provider: &str) -> Option<&'static Api> {
        APIS.iter().find(|api| api.provider.eq_ignore_ascii_case(provider))
    }

    /// That of a library.
    pub fn of_library(library: Library) -> Option<&'static Api> {
        APIS.iter().find(|api| api.library == library)
    }

    /// Whether an operation names this family.
    pub fn names(&self, family: &str) -> bool {
        let mut functions = self.operations.iter().flat_map(|o| o.feeds).flat_map(|feed| feed.functions);
        functions.any(|function| *function == family)
    }

    /// The operation of that name.
    pub fn operation(&self, name: &str) -> Option<&'static Operation> {
        self.operations.iter().find(|operation| operation.name == name)
    }
}

const fn feed(functions: &'static [&'static str], args: &'static [(&'static str, &'static str)]) -> Feed {
    Feed { functions, args }
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

/// What all operations have.
pub static COMMON: &[Argument] = &[
    at_return(
        "result",
        "result",
        "retval",
        "how it ended: a `CUresult`, of the runtime a `cudaError_t`; a clause that uses it sees failed calls too",
    ),
    at_return("duration", "nanoseconds", "duration", "time in the call, ns"),
];

const ASYNC: Argument = arg("async", "bool", "false", "the call does not wait for it");
const STREAM: Argument = arg("stream", "void *", "0", "the stream; 0 is the default one");

const NO_DIM: &str = "(x = (uint32)0, y = (uint32)0, z = (uint32)0)";

const LAUNCH: &[Argument] = &[
    arg("kernel", "void *", "0", "its handle, for `kernel_name`; 0 for a graph"),
    arg("grid", "x, y, z", NO_DIM, "blocks"),
    arg("block", "x, y, z", NO_DIM, "threads of a block"),
    arg("shared", "uint32", "0", "dynamic shared memory of a block, bytes"),
    STREAM,
    arg("kind", "string", "\"kernel\"", "`kernel`, `cooperative`, `graph`"),
];

const ALLOC: &[Argument] = &[
    arg("bytes", "uint64", "0", "asked for"),
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
    arg("ptr", "uint64", "0", "address or handle, as the allocation gave it"),
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
        "`create`, `import`, `trim`, `use` (by default on its device), `destroy`",
    ),
    at_return("pool", "void *", "0", "the pool"),
    arg("bytes", "uint64", "0", "of `trim`: what it keeps"),
];

const HINT: &[Argument] = &[
    arg("bytes", "uint64", "0", "of the memory; of a batch of all its parts"),
    arg("ptr", "uint64", "0", "where it begins; of a batch its first part"),
    arg("kind", "string", "\"advise\"", "`advise`, `prefetch`, `attach` (to a stream), `discard`"),
    STREAM,
];

const MEMCPY: &[Argument] = &[
    arg("bytes", "uint64", "0", "copied"),
    arg(
        "dst",
        "uint64",
        "0",
        "where to: an address, or an array's handle; of a batch that of its first copy",
    ),
    arg("src", "uint64", "0", "where from, likewise"),
    arg(
        "direction",
        "string",
        "\"any\"",
        "`HtoD`, `DtoH`, `DtoD`, `HtoH`, `PtoP`; `any` where the driver finds it out from the addresses",
    ),
    arg(
        "kind",
        "string",
        "\"linear\"",
        "`linear`, `2D`, `3D`, `array`, `peer`; `batch`: several at once, with the bytes of all",
    ),
    STREAM,
    ASYNC,
];

const MEMSET: &[Argument] = &[
    arg("bytes", "uint64", "0", "filled"),
    arg("ptr", "uint64", "0", "where"),
    arg("value", "uint32", "0", "with what, repeated"),
    arg("kind", "string", "\"linear\"", "`linear`, `2D`, `3D`"),
    STREAM,
    ASYNC,
];

const SYNC: &[Argument] = &[
    arg("kind", "string", "\"context\"", "`context` (of the runtime: its device), `stream`, `event`"),
    STREAM,
    arg("event", "void *", "0", "the event that is waited for"),
];

const OF_STREAM: &[Argument] = &[
    arg(
        "kind",
        "string",
        "\"create\"",
        "`create`, `wait` (for an event), `callback` (calls the host), `query`, `destroy`",
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
    arg("from", "void *", "0", "of `clone`: what it is a copy of"),
    at_return("exec", "void *", "0", "the instance that can be launched"),
    STREAM,
];

const ALLOC_DOC: &str = "memory is allocated, of the device or for it";
const FREE_DOC: &str = "what an allocation gave is given back";
const LAUNCH_DOC: &str = "a kernel or a graph is launched";
const POOL_DOC: &str = "a pool of memory is made, trimmed, put to use or destroyed";
const HINT_DOC: &str = "it is said where memory will be used, or that its contents are not";
const MEMCPY_DOC: &str = "memory is copied";
const MEMSET_DOC: &str = "memory of the device is filled";
const SYNC_DOC: &str = "the program waits for the device";
const STREAM_DOC: &str = "a stream is made, told to wait or to call, asked or destroyed";
const EVENT_DOC: &str = "an event is made, recorded, asked or destroyed";
const GRAPH_DOC: &str = "a graph is captured, made, instantiated, changed, launched or destroyed";

const IS_ASYNC: (&str, &str) = ("async", "true");

/// Bytes of all copies of a batch.
const BATCH_BYTES: (&str, &str) =
    ("bytes", "{ let $sum = (uint64)0; for $i : 0..args.count { $sum += (uint64)args.sizes[$i]; } $sum }");
// In the same words, so that both are one program.
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

//! The operations that `cuda:alloc` and its like stand for: which functions of the driver do them, and where each of
//! these has what.
//!
//! ```text
//! cuda:alloc   cuMemAlloc          bytes = args.bytesize                    ptr = *args.dptr
//!              cuMemAllocPitch     bytes = args.WidthInBytes * args.Height  ptr = *args.dptr
//!              cuMemHostRegister   bytes = args.bytesize                    ptr = args.p
//! ```
//!
//! A function is named by its family: `cuMemAlloc` is `cuMemAlloc_v2`, with the forms for per-thread default streams.
//! What it has is said in the language of scripts. A row need not name an argument whose default is right for it.
//! What only the device knows is not here: a graph's kernels.

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
    /// Only calls for which this holds at return.
    pub when: Option<&'static str>,
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

/// The operation of that name.
pub fn operation(name: &str) -> Option<&'static Operation> {
    OPERATIONS.iter().find(|operation| operation.name == name)
}

/// Functions that libraries call all the time to look at their own state. Operations that take any call leave them out.
pub static QUIET: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxGetState",
    "cuGetProcAddress",
];

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
    at_return("result", "CUresult", "retval", "how it ended"),
    at_return("duration", "nanoseconds", "duration", "time in the call, ns"),
];

const ASYNC: Argument = arg("async", "bool", "false", "the call does not wait for it");
const STREAM: Argument = arg("stream", "void *", "0", "the stream; 0 is the default one");
const ON_STREAM: (&str, &str) = ("stream", "args.hStream");
const IS_ASYNC: (&str, &str) = ("async", "true");

const NO_DIM: &str = "(x = (uint32)0, y = (uint32)0, z = (uint32)0)";
const GRID: (&str, &str) = ("grid", "(x = args.gridDimX, y = args.gridDimY, z = args.gridDimZ)");
const BLOCK: (&str, &str) = ("block", "(x = args.blockDimX, y = args.blockDimY, z = args.blockDimZ)");
const KERNEL: (&str, &str) = ("kernel", "args.f");
const SHARED: (&str, &str) = ("shared", "args.sharedMemBytes");
const OLD_GRID: (&str, &str) =
    ("grid", "(x = (uint32)args.grid_width, y = (uint32)args.grid_height, z = (uint32)1)");

const PTR_OUT: (&str, &str) = ("ptr", "retval == CUDA_SUCCESS ? *args.dptr : 0");
const HOST_OUT: (&str, &str) = ("ptr", "retval == CUDA_SUCCESS ? (uint64)*args.pp : 0");
const BYTESIZE: (&str, &str) = ("bytes", "args.bytesize");

/// Bytes of one element of the array that a descriptor describes.
macro_rules! element_bytes {
    ($desc:literal) => {
        concat!(
            $desc,
            "->NumChannels * (",
            $desc,
            "->Format == CU_AD_FORMAT_UNSIGNED_INT8 || ",
            $desc,
            "->Format == CU_AD_FORMAT_SIGNED_INT8 ? 1 : ",
            $desc,
            "->Format == CU_AD_FORMAT_UNSIGNED_INT32 || ",
            $desc,
            "->Format == CU_AD_FORMAT_SIGNED_INT32 || ",
            $desc,
            "->Format == CU_AD_FORMAT_FLOAT ? 4 : 2)"
        )
    };
}

/// Bytes of such an array; a side that is 0 is not there.
macro_rules! array_bytes {
    ($desc:literal, $depth:literal) => {
        concat!(
            $desc,
            "->Width * (",
            $desc,
            "->Height == 0 ? 1 : ",
            $desc,
            "->Height) * ",
            $depth,
            " * ",
            element_bytes!($desc)
        )
    };
}

/// Bytes of all levels, each half as large in all directions; a layered array keeps its depth, which is the number of layers.
const MIPMAP_BYTES: &str = concat!(
    "{ let $elements = (uint64)0; let $desc = args.pMipmappedArrayDesc; \
     for $level : 0..args.numMipmapLevels { \
         let $w = (uint64)$desc->Width >> $level; \
         let $h = (uint64)$desc->Height >> $level; \
         let $d = ($desc->Flags & 1) != 0 ? (uint64)$desc->Depth : (uint64)$desc->Depth >> $level; \
         $elements += ($w == 0 ? 1 : $w) * ($h == 0 ? 1 : $h) * ($d == 0 ? 1 : $d); \
     } \
     $elements * ",
    element_bytes!("$desc"),
    " }"
);

/// Bytes of all copies of a batch.
const BATCH_BYTES: (&str, &str) =
    ("bytes", "{ let $sum = (uint64)0; for $i : 0..args.count { $sum += (uint64)args.sizes[$i]; } $sum }");
const BATCH_DST: (&str, &str) = ("dst", "args.count > 0 ? args.dsts[0] : 0");
const BATCH_SRC: (&str, &str) = ("src", "args.count > 0 ? args.srcs[0] : 0");
const BOXES_BYTES: (&str, &str) = (
    "bytes",
    "{ let $sum = (uint64)0; \
     for $i : 0..args.numOps { \
         let $at = args.opList + $i; \
         $sum += (uint64)$at->extent.width * $at->extent.height * $at->extent.depth; \
     } \
     $sum }",
);
const BOX_BYTES: (&str, &str) =
    ("bytes", "args.op->extent.width * args.op->extent.height * args.op->extent.depth");

/// An operand of a box: an array's handle or an address.
macro_rules! operand {
    ($operand:literal) => {
        concat!(
            $operand,
            ".type == CU_MEMCPY_OPERAND_TYPE_ARRAY ? (uint64)",
            $operand,
            ".op.array.array : (uint64)",
            $operand,
            ".op.ptr.ptr"
        )
    };
}

const COPY_DST: (&str, &str) = (
    "dst",
    "args.pCopy->dstMemoryType == CU_MEMORYTYPE_HOST ? (uint64)args.pCopy->dstHost \
     : args.pCopy->dstMemoryType == CU_MEMORYTYPE_ARRAY ? (uint64)args.pCopy->dstArray \
     : (uint64)args.pCopy->dstDevice",
);
const COPY_SRC: (&str, &str) = (
    "src",
    "args.pCopy->srcMemoryType == CU_MEMORYTYPE_HOST ? (uint64)args.pCopy->srcHost \
     : args.pCopy->srcMemoryType == CU_MEMORYTYPE_ARRAY ? (uint64)args.pCopy->srcArray \
     : (uint64)args.pCopy->srcDevice",
);
const COPY_DIRECTION: (&str, &str) = (
    "direction",
    "args.pCopy->srcMemoryType == CU_MEMORYTYPE_UNIFIED || args.pCopy->dstMemoryType == CU_MEMORYTYPE_UNIFIED ? \"any\" \
     : args.pCopy->srcMemoryType == CU_MEMORYTYPE_HOST \
     ? (args.pCopy->dstMemoryType == CU_MEMORYTYPE_HOST ? \"HtoH\" : \"HtoD\") \
     : (args.pCopy->dstMemoryType == CU_MEMORYTYPE_HOST ? \"DtoH\" : \"DtoD\")",
);
const BYTES_2D: (&str, &str) = ("bytes", "args.pCopy->WidthInBytes * args.pCopy->Height");
const BYTES_3D: (&str, &str) = ("bytes", "args.pCopy->WidthInBytes * args.pCopy->Height * args.pCopy->Depth");
const BYTE_COUNT: (&str, &str) = ("bytes", "args.ByteCount");
const TO_DEVICE: (&str, &str) = ("dst", "args.dstDevice");
const TO_HOST: (&str, &str) = ("dst", "args.dstHost");
const TO_ARRAY: (&str, &str) = ("dst", "args.dstArray");
const FROM_DEVICE: (&str, &str) = ("src", "args.srcDevice");
const FROM_HOST: (&str, &str) = ("src", "args.srcHost");
const FROM_ARRAY: (&str, &str) = ("src", "args.srcArray");
const H_TO_D: (&str, &str) = ("direction", "\"HtoD\"");
const D_TO_H: (&str, &str) = ("direction", "\"DtoH\"");
const D_TO_D: (&str, &str) = ("direction", "\"DtoD\"");
const P_TO_P: (&str, &str) = ("direction", "\"PtoP\"");
const OF_ARRAY: (&str, &str) = ("kind", "\"array\"");
const OF_2D: (&str, &str) = ("kind", "\"2D\"");
const OF_3D: (&str, &str) = ("kind", "\"3D\"");
const OF_PEER: (&str, &str) = ("kind", "\"peer\"");
const OF_BATCH: (&str, &str) = ("kind", "\"batch\"");

const FILLED: (&str, &str) = ("ptr", "args.dstDevice");

/// All operations, in the order of listings.
pub static OPERATIONS: &[Operation] = &[
    Operation {
        name: "launch",
        doc: "a kernel or a graph is launched",
        args: &[
            arg("kernel", "void *", "0", "its handle, for `kernel_name`; 0 for a graph"),
            arg("grid", "x, y, z", NO_DIM, "blocks"),
            arg("block", "x, y, z", NO_DIM, "threads of a block"),
            arg("shared", "uint32", "0", "dynamic shared memory of a block, bytes"),
            STREAM,
            arg("kind", "string", "\"kernel\"", "`kernel`, `cooperative`, `graph`"),
        ],
        feeds: &[
            feed(&["cuLaunchKernel"], &[KERNEL, GRID, BLOCK, SHARED, ON_STREAM]),
            feed(
                &["cuLaunchKernelEx"],
                &[
                    KERNEL,
                    (
                        "grid",
                        "(x = args.config->gridDimX, y = args.config->gridDimY, z = args.config->gridDimZ)",
                    ),
                    (
                        "block",
                        "(x = args.config->blockDimX, y = args.config->blockDimY, z = args.config->blockDimZ)",
                    ),
                    ("shared", "args.config->sharedMemBytes"),
                    ("stream", "args.config->hStream"),
                ],
            ),
            feed(
                &["cuLaunchCooperativeKernel"],
                &[KERNEL, GRID, BLOCK, SHARED, ON_STREAM, ("kind", "\"cooperative\"")],
            ),
            feed(&["cuGraphLaunch"], &[ON_STREAM, ("kind", "\"graph\"")]),
            feed(&["cuLaunch"], &[KERNEL]),
            feed(&["cuLaunchGrid"], &[KERNEL, OLD_GRID]),
            feed(&["cuLaunchGridAsync"], &[KERNEL, OLD_GRID, ON_STREAM]),
        ],
        when: None,
    },
    Operation {
        name: "alloc",
        doc: "memory is allocated, of the device or for it",
        args: &[
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
        ],
        feeds: &[
            feed(&["cuMemAlloc"], &[BYTESIZE, PTR_OUT]),
            feed(
                &["cuMemAllocPitch"],
                &[("bytes", "args.WidthInBytes * args.Height"), PTR_OUT, ("kind", "\"pitched\"")],
            ),
            feed(&["cuMemAllocManaged"], &[BYTESIZE, PTR_OUT, ("kind", "\"managed\"")]),
            feed(
                &["cuMemAllocAsync", "cuMemAllocFromPoolAsync"],
                &[BYTESIZE, PTR_OUT, ("kind", "\"pool\""), ON_STREAM, IS_ASYNC],
            ),
            feed(&["cuMemAllocHost", "cuMemHostAlloc"], &[BYTESIZE, HOST_OUT, ("kind", "\"pinned\"")]),
            feed(&["cuMemHostRegister"], &[BYTESIZE, ("ptr", "args.p"), ("kind", "\"registered\"")]),
            feed(
                &["cuMemCreate"],
                &[
                    ("bytes", "args.size"),
                    ("ptr", "retval == CUDA_SUCCESS ? *args.handle : 0"),
                    ("kind", "\"physical\""),
                ],
            ),
            feed(
                &["cuArrayCreate"],
                &[
                    ("bytes", array_bytes!("args.pAllocateArray", "1")),
                    ("ptr", "retval == CUDA_SUCCESS ? (uint64)*args.pHandle : 0"),
                    OF_ARRAY,
                ],
            ),
            feed(
                &["cuArray3DCreate"],
                &[
                    (
                        "bytes",
                        array_bytes!(
                            "args.pAllocateArray",
                            "(args.pAllocateArray->Depth == 0 ? 1 : args.pAllocateArray->Depth)"
                        ),
                    ),
                    ("ptr", "retval == CUDA_SUCCESS ? (uint64)*args.pHandle : 0"),
                    OF_ARRAY,
                ],
            ),
            feed(
                &["cuMipmappedArrayCreate"],
                &[
                    ("bytes", MIPMAP_BYTES),
                    ("ptr", "retval == CUDA_SUCCESS ? (uint64)*args.pHandle : 0"),
                    OF_ARRAY,
                ],
            ),
            feed(
                &["cuIpcOpenMemHandle"],
                &[("ptr", "retval == CUDA_SUCCESS ? *args.pdptr : 0"), ("kind", "\"ipc\"")],
            ),
        ],
        when: None,
    },
    Operation {
        name: "free",
        doc: "what `cuda:alloc` gave is given back",
        args: &[
            arg("ptr", "uint64", "0", "address or handle, as `cuda:alloc` gave it"),
            arg(
                "kind",
                "string",
                "\"device\"",
                "`device` (pitched and managed too), `pinned`, `registered`, `pool`, `physical`, `array`, `ipc`",
            ),
            STREAM,
            ASYNC,
        ],
        feeds: &[
            feed(&["cuMemFree"], &[("ptr", "args.dptr")]),
            feed(&["cuMemFreeAsync"], &[("ptr", "args.dptr"), ("kind", "\"pool\""), ON_STREAM, IS_ASYNC]),
            feed(&["cuMemFreeHost"], &[("ptr", "args.p"), ("kind", "\"pinned\"")]),
            feed(&["cuMemHostUnregister"], &[("ptr", "args.p"), ("kind", "\"registered\"")]),
            feed(&["cuMemRelease"], &[("ptr", "args.handle"), ("kind", "\"physical\"")]),
            feed(&["cuArrayDestroy"], &[("ptr", "args.hArray"), OF_ARRAY]),
            feed(&["cuMipmappedArrayDestroy"], &[("ptr", "args.hMipmappedArray"), OF_ARRAY]),
            feed(&["cuIpcCloseMemHandle"], &[("ptr", "args.dptr"), ("kind", "\"ipc\"")]),
        ],
        when: None,
    },
    Operation {
        name: "map",
        doc: "addresses are reserved, mapped to physical memory (which `cuda:alloc` gave), unmapped or given back",
        args: &[
            arg("bytes", "uint64", "args.size", "of the addresses"),
            at_return("ptr", "uint64", "args.ptr", "where they begin; 0 if none were reserved"),
            arg("memory", "uint64", "0", "the physical memory's handle, of `map` alone"),
            arg("kind", "string", "\"map\"", "`reserve`, `map`, `unmap`, `release`"),
        ],
        feeds: &[
            feed(
                &["cuMemAddressReserve"],
                &[("ptr", "retval == CUDA_SUCCESS ? *args.ptr : 0"), ("kind", "\"reserve\"")],
            ),
            feed(&["cuMemMap"], &[("memory", "args.handle")]),
            feed(&["cuMemUnmap"], &[("kind", "\"unmap\"")]),
            feed(&["cuMemAddressFree"], &[("kind", "\"release\"")]),
        ],
        when: None,
    },
    Operation {
        name: "memcpy",
        doc: "memory is copied",
        args: &[
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
        ],
        feeds: &[
            feed(&["cuMemcpyHtoD"], &[BYTE_COUNT, TO_DEVICE, FROM_HOST, H_TO_D]),
            feed(&["cuMemcpyHtoDAsync"], &[BYTE_COUNT, TO_DEVICE, FROM_HOST, H_TO_D, ON_STREAM, IS_ASYNC]),
            feed(&["cuMemcpyDtoH"], &[BYTE_COUNT, TO_HOST, FROM_DEVICE, D_TO_H]),
            feed(&["cuMemcpyDtoHAsync"], &[BYTE_COUNT, TO_HOST, FROM_DEVICE, D_TO_H, ON_STREAM, IS_ASYNC]),
            feed(&["cuMemcpyDtoD"], &[BYTE_COUNT, TO_DEVICE, FROM_DEVICE, D_TO_D]),
            feed(&["cuMemcpyDtoDAsync"], &[BYTE_COUNT, TO_DEVICE, FROM_DEVICE, D_TO_D, ON_STREAM, IS_ASYNC]),
            feed(&["cuMemcpy"], &[BYTE_COUNT, ("dst", "args.dst"), ("src", "args.src")]),
            feed(
                &["cuMemcpyAsync"],
                &[BYTE_COUNT, ("dst", "args.dst"), ("src", "args.src"), ON_STREAM, IS_ASYNC],
            ),
            feed(
                &["cuMemcpyWithAttributesAsync"],
                &[("bytes", "args.size"), ("dst", "args.dst"), ("src", "args.src"), ON_STREAM, IS_ASYNC],
            ),
            feed(&["cuMemcpyPeer"], &[BYTE_COUNT, TO_DEVICE, FROM_DEVICE, P_TO_P, OF_PEER]),
            feed(
                &["cuMemcpyPeerAsync"],
                &[BYTE_COUNT, TO_DEVICE, FROM_DEVICE, P_TO_P, OF_PEER, ON_STREAM, IS_ASYNC],
            ),
            feed(&["cuMemcpyHtoA"], &[BYTE_COUNT, TO_ARRAY, FROM_HOST, H_TO_D, OF_ARRAY]),
            feed(
                &["cuMemcpyHtoAAsync"],
                &[BYTE_COUNT, TO_ARRAY, FROM_HOST, H_TO_D, OF_ARRAY, ON_STREAM, IS_ASYNC],
            ),
            feed(&["cuMemcpyAtoH"], &[BYTE_COUNT, TO_HOST, FROM_ARRAY, D_TO_H, OF_ARRAY]),
            feed(
                &["cuMemcpyAtoHAsync"],
                &[BYTE_COUNT, TO_HOST, FROM_ARRAY, D_TO_H, OF_ARRAY, ON_STREAM, IS_ASYNC],
            ),
            feed(&["cuMemcpyDtoA"], &[BYTE_COUNT, TO_ARRAY, FROM_DEVICE, D_TO_D, OF_ARRAY]),
            feed(&["cuMemcpyAtoD"], &[BYTE_COUNT, TO_DEVICE, FROM_ARRAY, D_TO_D, OF_ARRAY]),
            feed(&["cuMemcpyAtoA"], &[BYTE_COUNT, TO_ARRAY, FROM_ARRAY, D_TO_D, OF_ARRAY]),
            feed(
                &["cuMemcpy2D", "cuMemcpy2DUnaligned"],
                &[BYTES_2D, COPY_DST, COPY_SRC, COPY_DIRECTION, OF_2D],
            ),
            feed(
                &["cuMemcpy2DAsync"],
                &[BYTES_2D, COPY_DST, COPY_SRC, COPY_DIRECTION, OF_2D, ON_STREAM, IS_ASYNC],
            ),
            feed(&["cuMemcpy3D"], &[BYTES_3D, COPY_DST, COPY_SRC, COPY_DIRECTION, OF_3D]),
            feed(
                &["cuMemcpy3DAsync"],
                &[BYTES_3D, COPY_DST, COPY_SRC, COPY_DIRECTION, OF_3D, ON_STREAM, IS_ASYNC],
            ),
            feed(&["cuMemcpy3DPeer"], &[BYTES_3D, COPY_DST, COPY_SRC, P_TO_P, OF_PEER]),
            feed(
                &["cuMemcpy3DPeerAsync"],
                &[BYTES_3D, COPY_DST, COPY_SRC, P_TO_P, OF_PEER, ON_STREAM, IS_ASYNC],
            ),
            feed(
                &["cuMemcpyBatchAsync"],
                &[BATCH_BYTES, BATCH_DST, BATCH_SRC, OF_BATCH, ON_STREAM, IS_ASYNC],
            ),
            feed(
                &["cuMemcpy3DBatchAsync"],
                &[
                    BOXES_BYTES,
                    ("dst", operand!("args.opList->dst")),
                    ("src", operand!("args.opList->src")),
                    OF_BATCH,
                    ON_STREAM,
                    IS_ASYNC,
                ],
            ),
            feed(
                &["cuMemcpy3DWithAttributesAsync"],
                &[
                    BOX_BYTES,
                    ("dst", operand!("args.op->dst")),
                    ("src", operand!("args.op->src")),
                    OF_3D,
                    ON_STREAM,
                    IS_ASYNC,
                ],
            ),
        ],
        when: None,
    },
    Operation {
        name: "memset",
        doc: "memory of the device is filled",
        args: &[
            arg("bytes", "uint64", "0", "filled"),
            arg("ptr", "uint64", "0", "where"),
            arg("value", "uint32", "0", "with what, repeated"),
            arg("kind", "string", "\"linear\"", "`linear`, `2D`"),
            STREAM,
            ASYNC,
        ],
        feeds: &[
            feed(&["cuMemsetD8"], &[("bytes", "args.N"), FILLED, ("value", "args.uc")]),
            feed(&["cuMemsetD16"], &[("bytes", "args.N * 2"), FILLED, ("value", "args.us")]),
            feed(&["cuMemsetD32"], &[("bytes", "args.N * 4"), FILLED, ("value", "args.ui")]),
            feed(
                &["cuMemsetD8Async"],
                &[("bytes", "args.N"), FILLED, ("value", "args.uc"), ON_STREAM, IS_ASYNC],
            ),
            feed(
                &["cuMemsetD16Async"],
                &[("bytes", "args.N * 2"), FILLED, ("value", "args.us"), ON_STREAM, IS_ASYNC],
            ),
            feed(
                &["cuMemsetD32Async"],
                &[("bytes", "args.N * 4"), FILLED, ("value", "args.ui"), ON_STREAM, IS_ASYNC],
            ),
            feed(
                &["cuMemsetD2D8"],
                &[("bytes", "args.Width * args.Height"), FILLED, ("value", "args.uc"), OF_2D],
            ),
            feed(
                &["cuMemsetD2D16"],
                &[("bytes", "args.Width * args.Height * 2"), FILLED, ("value", "args.us"), OF_2D],
            ),
            feed(
                &["cuMemsetD2D32"],
                &[("bytes", "args.Width * args.Height * 4"), FILLED, ("value", "args.ui"), OF_2D],
            ),
            feed(
                &["cuMemsetD2D8Async"],
                &[
                    ("bytes", "args.Width * args.Height"),
                    FILLED,
                    ("value", "args.uc"),
                    OF_2D,
                    ON_STREAM,
                    IS_ASYNC,
                ],
            ),
            feed(
                &["cuMemsetD2D16Async"],
                &[
                    ("bytes", "args.Width * args.Height * 2"),
                    FILLED,
                    ("value", "args.us"),
                    OF_2D,
                    ON_STREAM,
                    IS_ASYNC,
                ],
            ),
            feed(
                &["cuMemsetD2D32Async"],
                &[
                    ("bytes", "args.Width * args.Height * 4"),
                    FILLED,
                    ("value", "args.ui"),
                    OF_2D,
                    ON_STREAM,
                    IS_ASYNC,
                ],
            ),
        ],
        when: None,
    },
    Operation {
        name: "sync",
        doc: "the program waits for the device",
        args: &[
            arg("kind", "string", "\"context\"", "`context`, `stream`, `event`"),
            STREAM,
            arg("event", "void *", "0", "the event that is waited for"),
        ],
        feeds: &[
            feed(&["cuCtxSynchronize"], &[]),
            feed(&["cuStreamSynchronize"], &[ON_STREAM, ("kind", "\"stream\"")]),
            feed(&["cuEventSynchronize"], &[("event", "args.hEvent"), ("kind", "\"event\"")]),
        ],
        when: None,
    },
    Operation {
        name: "stream",
        doc: "a stream is made, told to wait, asked or destroyed",
        args: &[
            arg("kind", "string", "\"create\"", "`create`, `wait` (for an event), `query`, `destroy`"),
            at_return("stream", "void *", "0", "the stream; 0 is the default one"),
            arg("event", "void *", "0", "the event that is waited for"),
        ],
        feeds: &[
            feed(
                &["cuStreamCreate", "cuStreamCreateWithPriority"],
                &[("stream", "retval == CUDA_SUCCESS ? (uint64)*args.phStream : 0")],
            ),
            feed(&["cuStreamWaitEvent"], &[ON_STREAM, ("event", "args.hEvent"), ("kind", "\"wait\"")]),
            feed(&["cuStreamQuery"], &[ON_STREAM, ("kind", "\"query\"")]),
            feed(&["cuStreamDestroy"], &[ON_STREAM, ("kind", "\"destroy\"")]),
        ],
        when: None,
    },
    Operation {
        name: "event",
        doc: "an event is made, recorded, asked or destroyed",
        args: &[
            arg("kind", "string", "\"create\"", "`create`, `record`, `query`, `destroy`"),
            at_return("event", "void *", "0", "the event"),
            STREAM,
        ],
        feeds: &[
            feed(&["cuEventCreate"], &[("event", "retval == CUDA_SUCCESS ? (uint64)*args.phEvent : 0")]),
            feed(
                &["cuEventRecord", "cuEventRecordWithFlags"],
                &[("event", "args.hEvent"), ON_STREAM, ("kind", "\"record\"")],
            ),
            feed(&["cuEventQuery"], &[("event", "args.hEvent"), ("kind", "\"query\"")]),
            feed(&["cuEventDestroy"], &[("event", "args.hEvent"), ("kind", "\"destroy\"")]),
        ],
        when: None,
    },
    Operation {
        name: "module",
        doc: "code is loaded or unloaded",
        args: &[
            arg("kind", "string", "\"load\"", "`load`, `unload`"),
            at_return("module", "void *", "0", "the module or library"),
        ],
        feeds: &[
            feed(
                &["cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary"],
                &[("module", "retval == CUDA_SUCCESS ? (uint64)*args.module : 0")],
            ),
            feed(
                &["cuLibraryLoadData", "cuLibraryLoadFromFile"],
                &[("module", "retval == CUDA_SUCCESS ? (uint64)*args.library : 0")],
            ),
            feed(&["cuModuleUnload"], &[("module", "args.hmod"), ("kind", "\"unload\"")]),
            feed(&["cuLibraryUnload"], &[("module", "args.library"), ("kind", "\"unload\"")]),
        ],
        when: None,
    },
    Operation {
        name: "graph",
        doc: "a graph is captured, made, launched or destroyed",
        args: &[
            arg(
                "kind",
                "string",
                "\"create\"",
                "`create`, `capture`, `captured`, `instantiate`, `launch`, `destroy`",
            ),
            at_return("graph", "void *", "0", "the graph"),
            at_return("exec", "void *", "0", "the instance that can be launched"),
            STREAM,
        ],
        feeds: &[
            feed(&["cuGraphCreate"], &[("graph", "retval == CUDA_SUCCESS ? (uint64)*args.phGraph : 0")]),
            feed(&["cuStreamBeginCapture"], &[ON_STREAM, ("kind", "\"capture\"")]),
            feed(
                &["cuStreamBeginCaptureToGraph"],
                &[ON_STREAM, ("graph", "args.hGraph"), ("kind", "\"capture\"")],
            ),
            feed(
                &["cuStreamEndCapture"],
                &[
                    ON_STREAM,
                    ("graph", "retval == CUDA_SUCCESS ? (uint64)*args.phGraph : 0"),
                    ("kind", "\"captured\""),
                ],
            ),
            feed(
                &["cuGraphInstantiate", "cuGraphInstantiateWithParams"],
                &[
                    ("graph", "args.hGraph"),
                    ("exec", "retval == CUDA_SUCCESS ? (uint64)*args.phGraphExec : 0"),
                    ("kind", "\"instantiate\""),
                ],
            ),
            feed(&["cuGraphLaunch"], &[("exec", "args.hGraphExec"), ON_STREAM, ("kind", "\"launch\"")]),
            feed(&["cuGraphExecDestroy"], &[("exec", "args.hGraphExec"), ("kind", "\"destroy\"")]),
            feed(&["cuGraphDestroy"], &[("graph", "args.hGraph"), ("kind", "\"destroy\"")]),
        ],
        when: None,
    },
    Operation {
        name: "error",
        doc: "a call of the driver fails; `CUDA_ERROR_NOT_READY` is an answer and none",
        args: &[],
        feeds: &[feed(&["cu[A-Z]*"], &[])],
        when: Some("is_error(retval)"),
    },
    Operation {
        name: "call",
        doc: "any call of the driver, but those that libraries make all the time to look at their own state",
        args: &[],
        feeds: &[feed(&["cu[A-Z]*"], &[])],
        when: None,
    },
];

//! Operations of the driver API: the functions of each.

use super::*;

pub(super) static QUIET: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxGetState",
    "cuGetProcAddress",
];

const ON_STREAM: (&str, &str) = ("stream", "args.hStream");
const GRID: (&str, &str) = ("grid", "(x = args.gridDimX, y = args.gridDimY, z = args.gridDimZ)");
const BLOCK: (&str, &str) = ("block", "(x = args.blockDimX, y = args.blockDimY, z = args.blockDimZ)");
const KERNEL: (&str, &str) = ("kernel", "args.f");
const SHARED: (&str, &str) = ("shared", "args.sharedMemBytes");
const OLD_GRID: (&str, &str) =
    ("grid", "(x = (uint32)args.grid_width, y = (uint32)args.grid_height, z = (uint32)1)");

const PTR_OUT: (&str, &str) = ("ptr", "retval == CUDA_SUCCESS ? *args.dptr : 0");
const HOST_OUT: (&str, &str) = ("ptr", "retval == CUDA_SUCCESS ? (uint64)*args.pp : 0");
const BYTESIZE: (&str, &str) = ("bytes", "args.bytesize");

/// Bytes of all levels of an array; each level has half the size in all dimensions. A layered array keeps its
/// depth, which is the number of layers; a side of 0 is absent. All arrays use the same text, so that they become
/// one program, and read each member of the descriptor once. Sides have at most 32 bits, whatever an invalid call
/// requests.
macro_rules! array_bytes {
    ($desc:literal, $depth:expr, $layered:expr, $levels:literal) => {
        concat!(
            "{ let $width = (uint64)",
            $desc,
            "->Width; let $height = (uint64)",
            $desc,
            "->Height; let $depth = (uint64)",
            $depth,
            "; let $layered = (uint64)",
            $layered,
            "; let $elements = (uint64)0; for $level : 0..",
            $levels,
            " { \
                 let $w = $width >> $level; \
                 let $h = $height >> $level; \
                 let $d = $layered != 0 ? $depth : $depth >> $level; \
                 $elements += ($w == 0 ? 1 : $w) * ($h == 0 ? 1 : $h) * ($d == 0 ? 1 : $d); \
             } \
             let $format = (uint64)",
            $desc,
            "->Format; $elements * (uint64)",
            $desc,
            "->NumChannels * ($format == CU_AD_FORMAT_UNSIGNED_INT8 || $format == CU_AD_FORMAT_SIGNED_INT8 ? 1 \
             : $format == CU_AD_FORMAT_UNSIGNED_INT32 || $format == CU_AD_FORMAT_SIGNED_INT32 || \
             $format == CU_AD_FORMAT_FLOAT ? 4 : 2) }"
        )
    };
}

/// Value of a field for a graph node of any kind, if it is a kernel node.
macro_rules! of_kernel {
    ($x:literal, $y:literal, $z:literal) => {
        concat!(
            "{ let $is = args.nodeParams->type == CU_GRAPH_NODE_TYPE_KERNEL; ",
            "(x = $is ? args.nodeParams->kernel.",
            $x,
            " : 0, y = $is ? args.nodeParams->kernel.",
            $y,
            " : 0, z = $is ? args.nodeParams->kernel.",
            $z,
            " : 0) }"
        )
    };
}

const BATCH_DST: (&str, &str) = ("dst", "args.count > 0 ? args.dsts[0] : 0");
const BATCH_SRC: (&str, &str) = ("src", "args.count > 0 ? args.srcs[0] : 0");
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

const BATCH_PTR: (&str, &str) = ("ptr", "args.count > 0 ? args.dptrs[0] : 0");
const OF_POOL: (&str, &str) = ("pool", "args.pool");

const IN_GRAPH: (&str, &str) = ("graph", "args.hGraph");
const IN_EXEC: (&str, &str) = ("exec", "args.hGraphExec");
const NEW_NODE: (&str, &str) = ("node", "retval == CUDA_SUCCESS ? (uint64)*args.phGraphNode : 0");
const NODE: (&str, &str) = ("node", "args.hNode");
const CHANGED: (&str, &str) = ("change", "true");
// The second version of the struct also has the handle of a kernel, at offset 56, for nodes without a function.
const NODE_KERNEL: (&str, &str) = (
    "kernel",
    "args.nodeParams->func == 0 && strcontains(func, \"_v2\") ? *(uint64 *)((uint64)args.nodeParams + 56) \
     : (uint64)args.nodeParams->func",
);
const NODE_GRID: (&str, &str) =
    ("grid", "(x = args.nodeParams->gridDimX, y = args.nodeParams->gridDimY, z = args.nodeParams->gridDimZ)");
const NODE_BLOCK: (&str, &str) = (
    "block",
    "(x = args.nodeParams->blockDimX, y = args.nodeParams->blockDimY, z = args.nodeParams->blockDimZ)",
);
const NODE_SHARED: (&str, &str) = ("shared", "args.nodeParams->sharedMemBytes");
const ANY_KIND: (&str, &str) = (
    "kind",
    "args.nodeParams->type == CU_GRAPH_NODE_TYPE_KERNEL ? \"kernel\" \
     : args.nodeParams->type == CU_GRAPH_NODE_TYPE_MEMCPY ? \"memcpy\" \
     : args.nodeParams->type == CU_GRAPH_NODE_TYPE_MEMSET ? \"memset\" \
     : args.nodeParams->type == CU_GRAPH_NODE_TYPE_HOST ? \"host\" \
     : args.nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH ? \"graph\" \
     : args.nodeParams->type == CU_GRAPH_NODE_TYPE_EMPTY ? \"empty\" \
     : args.nodeParams->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ? \"record\" \
     : args.nodeParams->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ? \"wait\" \
     : args.nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? \"alloc\" \
     : args.nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_FREE ? \"free\" : \"other\"",
);
const ANY_KERNEL: (&str, &str) = (
    "kernel",
    "args.nodeParams->type != CU_GRAPH_NODE_TYPE_KERNEL ? 0 \
     : args.nodeParams->kernel.func == 0 ? (uint64)args.nodeParams->kernel.kern : (uint64)args.nodeParams->kernel.func",
);
const ANY_GRID: (&str, &str) = ("grid", of_kernel!("gridDimX", "gridDimY", "gridDimZ"));
const ANY_BLOCK: (&str, &str) = ("block", of_kernel!("blockDimX", "blockDimY", "blockDimZ"));
const ANY_SHARED: (&str, &str) = (
    "shared",
    "args.nodeParams->type == CU_GRAPH_NODE_TYPE_KERNEL ? args.nodeParams->kernel.sharedMemBytes : 0",
);
const ANY_CHILD: (&str, &str) =
    ("child", "args.nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH ? (uint64)args.nodeParams->graph.graph : 0");

/// Operations in the order of listings.
pub(super) static OPERATIONS: &[Operation] = &[
    Operation {
        name: "launch",
        doc: LAUNCH_DOC,
        args: LAUNCH,
        variants: &[
            variant(&["cuLaunchKernel"], &[KERNEL, GRID, BLOCK, SHARED, ON_STREAM]),
            variant(
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
            variant(
                &["cuLaunchCooperativeKernel"],
                &[KERNEL, GRID, BLOCK, SHARED, ON_STREAM, ("kind", "\"cooperative\"")],
            ),
            variant(
                &["cuLaunchCooperativeKernelMultiDevice"],
                &[
                    ("kernel", "args.launchParamsList->function"),
                    (
                        "grid",
                        "(x = args.launchParamsList->gridDimX, y = args.launchParamsList->gridDimY, \
                         z = args.launchParamsList->gridDimZ)",
                    ),
                    (
                        "block",
                        "(x = args.launchParamsList->blockDimX, y = args.launchParamsList->blockDimY, \
                         z = args.launchParamsList->blockDimZ)",
                    ),
                    ("shared", "args.launchParamsList->sharedMemBytes"),
                    ("stream", "args.launchParamsList->hStream"),
                    ("kind", "\"cooperative\""),
                ],
            ),
            variant(&["cuGraphLaunch"], &[ON_STREAM, ("kind", "\"graph\"")]),
            variant(&["cuLaunch"], &[KERNEL]),
            variant(&["cuLaunchGrid"], &[KERNEL, OLD_GRID]),
            variant(&["cuLaunchGridAsync"], &[KERNEL, OLD_GRID, ON_STREAM]),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "alloc",
        doc: ALLOC_DOC,
        args: ALLOC,
        variants: &[
            variant(&["cuMemAlloc"], &[BYTESIZE, PTR_OUT]),
            variant(
                &["cuMemAllocPitch"],
                &[("bytes", "args.WidthInBytes * args.Height"), PTR_OUT, ("kind", "\"pitched\"")],
            ),
            variant(&["cuMemAllocManaged"], &[BYTESIZE, PTR_OUT, ("kind", "\"managed\"")]),
            variant(
                &["cuMemAllocAsync", "cuMemAllocFromPoolAsync"],
                &[BYTESIZE, PTR_OUT, ("kind", "\"pool\""), ON_STREAM, IS_ASYNC],
            ),
            variant(&["cuMemAllocHost", "cuMemHostAlloc"], &[BYTESIZE, HOST_OUT, ("kind", "\"pinned\"")]),
            variant(&["cuMemHostRegister"], &[BYTESIZE, ("ptr", "args.p"), ("kind", "\"registered\"")]),
            variant(
                &["cuMemCreate"],
                &[
                    ("bytes", "args.size"),
                    ("ptr", "retval == CUDA_SUCCESS ? *args.handle : 0"),
                    ("kind", "\"physical\""),
                ],
            ),
            variant(
                &["cuArrayCreate"],
                &[
                    ("bytes", array_bytes!("args.pAllocateArray", "0", "0", "1")),
                    ("ptr", "retval == CUDA_SUCCESS ? (uint64)*args.pHandle : 0"),
                    OF_ARRAY,
                ],
            ),
            variant(
                &["cuArray3DCreate"],
                &[
                    ("bytes", array_bytes!("args.pAllocateArray", "args.pAllocateArray->Depth", "0", "1")),
                    ("ptr", "retval == CUDA_SUCCESS ? (uint64)*args.pHandle : 0"),
                    OF_ARRAY,
                ],
            ),
            variant(
                &["cuMipmappedArrayCreate"],
                &[
                    (
                        "bytes",
                        array_bytes!(
                            "args.pMipmappedArrayDesc",
                            "args.pMipmappedArrayDesc->Depth",
                            "(args.pMipmappedArrayDesc->Flags & 1)",
                            "(args.numMipmapLevels < 32 ? args.numMipmapLevels : 32)"
                        ),
                    ),
                    ("ptr", "retval == CUDA_SUCCESS ? (uint64)*args.pHandle : 0"),
                    OF_ARRAY,
                ],
            ),
            variant(
                &["cuIpcOpenMemHandle"],
                &[("ptr", "retval == CUDA_SUCCESS ? *args.pdptr : 0"), ("kind", "\"ipc\"")],
            ),
            variant(
                &["cuMemPoolImportPointer"],
                &[("ptr", "retval == CUDA_SUCCESS ? *args.ptr_out : 0"), ("kind", "\"ipc\"")],
            ),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "free",
        doc: FREE_DOC,
        args: FREE,
        variants: &[
            variant(&["cuMemFree"], &[("ptr", "args.dptr")]),
            variant(&["cuMemFreeAsync"], &[("ptr", "args.dptr"), ("kind", "\"pool\""), ON_STREAM, IS_ASYNC]),
            variant(&["cuMemFreeHost"], &[("ptr", "args.p"), ("kind", "\"pinned\"")]),
            variant(&["cuMemHostUnregister"], &[("ptr", "args.p"), ("kind", "\"registered\"")]),
            variant(&["cuMemRelease"], &[("ptr", "args.handle"), ("kind", "\"physical\"")]),
            variant(&["cuArrayDestroy"], &[("ptr", "args.hArray"), OF_ARRAY]),
            variant(&["cuMipmappedArrayDestroy"], &[("ptr", "args.hMipmappedArray"), OF_ARRAY]),
            variant(&["cuIpcCloseMemHandle"], &[("ptr", "args.dptr"), ("kind", "\"ipc\"")]),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "pool",
        doc: POOL_DOC,
        args: POOL,
        variants: &[
            variant(&["cuMemPoolCreate"], &[("pool", "retval == CUDA_SUCCESS ? (uint64)*args.pool : 0")]),
            variant(
                &["cuMemPoolImportFromShareableHandle"],
                &[("pool", "retval == CUDA_SUCCESS ? (uint64)*args.pool_out : 0"), ("kind", "\"import\"")],
            ),
            variant(&["cuMemPoolTrimTo"], &[OF_POOL, ("bytes", "args.minBytesToKeep"), ("kind", "\"trim\"")]),
            variant(&["cuDeviceSetMemPool"], &[OF_POOL, ("kind", "\"use\"")]),
            variant(&["cuMemPoolDestroy"], &[OF_POOL, ("kind", "\"destroy\"")]),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "hint",
        doc: HINT_DOC,
        args: HINT,
        variants: &[
            variant(&["cuMemAdvise"], &[("bytes", "args.count"), ("ptr", "args.devPtr")]),
            variant(
                &["cuMemPrefetchAsync"],
                &[("bytes", "args.count"), ("ptr", "args.devPtr"), ON_STREAM, ("kind", "\"prefetch\"")],
            ),
            variant(
                &["cuStreamAttachMemAsync"],
                &[("bytes", "args.length"), ("ptr", "args.dptr"), ON_STREAM, ("kind", "\"attach\"")],
            ),
            variant(
                &["cuMemPrefetchBatchAsync", "cuMemDiscardAndPrefetchBatchAsync"],
                &[BATCH_BYTES, BATCH_PTR, ON_STREAM, ("kind", "\"prefetch\"")],
            ),
            variant(
                &["cuMemDiscardBatchAsync"],
                &[BATCH_BYTES, BATCH_PTR, ON_STREAM, ("kind", "\"discard\"")],
            ),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "map",
        doc: "addresses are reserved, mapped to physical memory of `cuda:alloc`, unmapped or released",
        args: &[
            arg("bytes", "uint64", "args.size", "size of the range"),
            at_return("ptr", "uint64", "args.ptr", "start of the range; 0 if none was reserved"),
            arg("memory", "uint64", "0", "`map`: the handle of the physical memory"),
            arg("kind", "string", "\"map\"", "`reserve`, `map`, `unmap`, `release`"),
        ],
        variants: &[
            variant(
                &["cuMemAddressReserve"],
                &[("ptr", "retval == CUDA_SUCCESS ? *args.ptr : 0"), ("kind", "\"reserve\"")],
            ),
            variant(&["cuMemMap"], &[("memory", "args.handle")]),
            variant(&["cuMemUnmap"], &[("kind", "\"unmap\"")]),
            variant(&["cuMemAddressFree"], &[("kind", "\"release\"")]),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "memcpy",
        doc: MEMCPY_DOC,
        args: MEMCPY,
        variants: &[
            variant(&["cuMemcpyHtoD"], &[BYTE_COUNT, TO_DEVICE, FROM_HOST, H_TO_D]),
            variant(&["cuMemcpyHtoDAsync"], &[BYTE_COUNT, TO_DEVICE, FROM_HOST, H_TO_D, ON_STREAM, IS_ASYNC]),
            variant(&["cuMemcpyDtoH"], &[BYTE_COUNT, TO_HOST, FROM_DEVICE, D_TO_H]),
            variant(&["cuMemcpyDtoHAsync"], &[BYTE_COUNT, TO_HOST, FROM_DEVICE, D_TO_H, ON_STREAM, IS_ASYNC]),
            variant(&["cuMemcpyDtoD"], &[BYTE_COUNT, TO_DEVICE, FROM_DEVICE, D_TO_D]),
            variant(
                &["cuMemcpyDtoDAsync"],
                &[BYTE_COUNT, TO_DEVICE, FROM_DEVICE, D_TO_D, ON_STREAM, IS_ASYNC],
            ),
            variant(&["cuMemcpy"], &[BYTE_COUNT, ("dst", "args.dst"), ("src", "args.src")]),
            variant(
                &["cuMemcpyAsync"],
                &[BYTE_COUNT, ("dst", "args.dst"), ("src", "args.src"), ON_STREAM, IS_ASYNC],
            ),
            variant(
                &["cuMemcpyWithAttributesAsync"],
                &[("bytes", "args.size"), ("dst", "args.dst"), ("src", "args.src"), ON_STREAM, IS_ASYNC],
            ),
            variant(&["cuMemcpyPeer"], &[BYTE_COUNT, TO_DEVICE, FROM_DEVICE, P_TO_P, OF_PEER]),
            variant(
                &["cuMemcpyPeerAsync"],
                &[BYTE_COUNT, TO_DEVICE, FROM_DEVICE, P_TO_P, OF_PEER, ON_STREAM, IS_ASYNC],
            ),
            variant(&["cuMemcpyHtoA"], &[BYTE_COUNT, TO_ARRAY, FROM_HOST, H_TO_D, OF_ARRAY]),
            variant(
                &["cuMemcpyHtoAAsync"],
                &[BYTE_COUNT, TO_ARRAY, FROM_HOST, H_TO_D, OF_ARRAY, ON_STREAM, IS_ASYNC],
            ),
            variant(&["cuMemcpyAtoH"], &[BYTE_COUNT, TO_HOST, FROM_ARRAY, D_TO_H, OF_ARRAY]),
            variant(
                &["cuMemcpyAtoHAsync"],
                &[BYTE_COUNT, TO_HOST, FROM_ARRAY, D_TO_H, OF_ARRAY, ON_STREAM, IS_ASYNC],
            ),
            variant(&["cuMemcpyDtoA"], &[BYTE_COUNT, TO_ARRAY, FROM_DEVICE, D_TO_D, OF_ARRAY]),
            variant(&["cuMemcpyAtoD"], &[BYTE_COUNT, TO_DEVICE, FROM_ARRAY, D_TO_D, OF_ARRAY]),
            variant(&["cuMemcpyAtoA"], &[BYTE_COUNT, TO_ARRAY, FROM_ARRAY, D_TO_D, OF_ARRAY]),
            variant(
                &["cuMemcpy2D", "cuMemcpy2DUnaligned"],
                &[BYTES_2D, COPY_DST, COPY_SRC, COPY_DIRECTION, OF_2D],
            ),
            variant(
                &["cuMemcpy2DAsync"],
                &[BYTES_2D, COPY_DST, COPY_SRC, COPY_DIRECTION, OF_2D, ON_STREAM, IS_ASYNC],
            ),
            variant(&["cuMemcpy3D"], &[BYTES_3D, COPY_DST, COPY_SRC, COPY_DIRECTION, OF_3D]),
            variant(
                &["cuMemcpy3DAsync"],
                &[BYTES_3D, COPY_DST, COPY_SRC, COPY_DIRECTION, OF_3D, ON_STREAM, IS_ASYNC],
            ),
            variant(&["cuMemcpy3DPeer"], &[BYTES_3D, COPY_DST, COPY_SRC, P_TO_P, OF_PEER]),
            variant(
                &["cuMemcpy3DPeerAsync"],
                &[BYTES_3D, COPY_DST, COPY_SRC, P_TO_P, OF_PEER, ON_STREAM, IS_ASYNC],
            ),
            variant(
                &["cuMemcpyBatchAsync"],
                &[BATCH_BYTES, BATCH_DST, BATCH_SRC, OF_BATCH, ON_STREAM, IS_ASYNC],
            ),
            variant(
                &["cuMemcpy3DBatchAsync"],
                &[
                    BOXES_BYTES,
                    ("dst", operand!("args.opList->dst", "CU_MEMCPY_OPERAND_TYPE_ARRAY")),
                    ("src", operand!("args.opList->src", "CU_MEMCPY_OPERAND_TYPE_ARRAY")),
                    OF_BATCH,
                    ON_STREAM,
                    IS_ASYNC,
                ],
            ),
            variant(
                &["cuMemcpy3DWithAttributesAsync"],
                &[
                    BOX_BYTES,
                    ("dst", operand!("args.op->dst", "CU_MEMCPY_OPERAND_TYPE_ARRAY")),
                    ("src", operand!("args.op->src", "CU_MEMCPY_OPERAND_TYPE_ARRAY")),
                    OF_3D,
                    ON_STREAM,
                    IS_ASYNC,
                ],
            ),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "memset",
        doc: MEMSET_DOC,
        args: MEMSET,
        variants: &[
            variant(&["cuMemsetD8"], &[("bytes", "args.N"), FILLED, ("value", "args.uc")]),
            variant(&["cuMemsetD16"], &[("bytes", "args.N * 2"), FILLED, ("value", "args.us")]),
            variant(&["cuMemsetD32"], &[("bytes", "args.N * 4"), FILLED, ("value", "args.ui")]),
            variant(
                &["cuMemsetD8Async"],
                &[("bytes", "args.N"), FILLED, ("value", "args.uc"), ON_STREAM, IS_ASYNC],
            ),
            variant(
                &["cuMemsetD16Async"],
                &[("bytes", "args.N * 2"), FILLED, ("value", "args.us"), ON_STREAM, IS_ASYNC],
            ),
            variant(
                &["cuMemsetD32Async"],
                &[("bytes", "args.N * 4"), FILLED, ("value", "args.ui"), ON_STREAM, IS_ASYNC],
            ),
            variant(
                &["cuMemsetD2D8"],
                &[("bytes", "args.Width * args.Height"), FILLED, ("value", "args.uc"), OF_2D],
            ),
            variant(
                &["cuMemsetD2D16"],
                &[("bytes", "args.Width * args.Height * 2"), FILLED, ("value", "args.us"), OF_2D],
            ),
            variant(
                &["cuMemsetD2D32"],
                &[("bytes", "args.Width * args.Height * 4"), FILLED, ("value", "args.ui"), OF_2D],
            ),
            variant(
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
            variant(
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
            variant(
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
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "sync",
        doc: SYNC_DOC,
        args: SYNC,
        variants: &[
            variant(&["cuCtxSynchronize"], &[]),
            variant(&["cuStreamSynchronize"], &[ON_STREAM, ("kind", "\"stream\"")]),
            variant(&["cuEventSynchronize"], &[("event", "args.hEvent"), ("kind", "\"event\"")]),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "stream",
        doc: STREAM_DOC,
        args: OF_STREAM,
        variants: &[
            variant(
                &["cuStreamCreate", "cuStreamCreateWithPriority"],
                &[("stream", "retval == CUDA_SUCCESS ? (uint64)*args.phStream : 0")],
            ),
            variant(&["cuStreamWaitEvent"], &[ON_STREAM, ("event", "args.hEvent"), ("kind", "\"wait\"")]),
            variant(&["cuStreamAddCallback", "cuLaunchHostFunc"], &[ON_STREAM, ("kind", "\"callback\"")]),
            variant(&["cuStreamQuery"], &[ON_STREAM, ("kind", "\"query\"")]),
            variant(&["cuStreamDestroy"], &[ON_STREAM, ("kind", "\"destroy\"")]),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "event",
        doc: EVENT_DOC,
        args: OF_EVENT,
        variants: &[
            variant(
                &["cuEventCreate", "cuIpcOpenEventHandle", "cuEventCreateFromEGLSync"],
                &[("event", "retval == CUDA_SUCCESS ? (uint64)*args.phEvent : 0")],
            ),
            variant(
                &["cuEventRecord", "cuEventRecordWithFlags"],
                &[("event", "args.hEvent"), ON_STREAM, ("kind", "\"record\"")],
            ),
            variant(&["cuEventQuery"], &[("event", "args.hEvent"), ("kind", "\"query\"")]),
            variant(&["cuEventElapsedTime"], &[("event", "args.hEnd"), ("kind", "\"elapsed\"")]),
            variant(&["cuEventDestroy"], &[("event", "args.hEvent"), ("kind", "\"destroy\"")]),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "module",
        doc: "code is loaded or unloaded",
        args: &[
            arg("kind", "string", "\"load\"", "`load`, `unload`"),
            at_return("module", "void *", "0", "the module or library"),
        ],
        variants: &[
            variant(
                &["cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary"],
                &[("module", "retval == CUDA_SUCCESS ? (uint64)*args.module : 0")],
            ),
            variant(
                &["cuLibraryLoadData", "cuLibraryLoadFromFile"],
                &[("module", "retval == CUDA_SUCCESS ? (uint64)*args.library : 0")],
            ),
            variant(&["cuModuleUnload"], &[("module", "args.hmod"), ("kind", "\"unload\"")]),
            variant(&["cuLibraryUnload"], &[("module", "args.library"), ("kind", "\"unload\"")]),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "graph",
        doc: GRAPH_DOC,
        args: GRAPH,
        variants: &[
            variant(&["cuGraphCreate"], &[("graph", "retval == CUDA_SUCCESS ? (uint64)*args.phGraph : 0")]),
            variant(
                &["cuGraphClone"],
                &[
                    ("graph", "retval == CUDA_SUCCESS ? (uint64)*args.phGraphClone : 0"),
                    ("from", "args.originalGraph"),
                    ("kind", "\"clone\""),
                ],
            ),
            variant(&["cuStreamBeginCapture"], &[ON_STREAM, ("kind", "\"capture\"")]),
            variant(
                &["cuStreamBeginCaptureToGraph", "cuStreamBeginRecaptureToGraph"],
                &[ON_STREAM, ("graph", "args.hGraph"), ("kind", "\"capture\"")],
            ),
            variant(
                &["cuStreamEndCapture"],
                &[
                    ON_STREAM,
                    ("graph", "retval == CUDA_SUCCESS ? (uint64)*args.phGraph : 0"),
                    ("kind", "\"captured\""),
                ],
            ),
            variant(
                &["cuGraphInstantiate", "cuGraphInstantiateWithParams"],
                &[
                    ("graph", "args.hGraph"),
                    ("exec", "retval == CUDA_SUCCESS ? (uint64)*args.phGraphExec : 0"),
                    ("kind", "\"instantiate\""),
                ],
            ),
            variant(
                &["cuGraphExecUpdate"],
                &[("graph", "args.hGraph"), ("exec", "args.hGraphExec"), ("kind", "\"update\"")],
            ),
            variant(&["cuGraphUpload"], &[("exec", "args.hGraphExec"), ON_STREAM, ("kind", "\"upload\"")]),
            variant(&["cuGraphLaunch"], &[("exec", "args.hGraphExec"), ON_STREAM, ("kind", "\"launch\"")]),
            variant(&["cuGraphExecDestroy"], &[("exec", "args.hGraphExec"), ("kind", "\"destroy\"")]),
            variant(&["cuGraphDestroy"], &[("graph", "args.hGraph"), ("kind", "\"destroy\"")]),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "node",
        doc: "a node is added to a graph or changed",
        args: &[
            arg(
                "kind",
                "string",
                "\"kernel\"",
                "`kernel`, `memcpy`, `memset`, `host`, `graph`, `empty`, `record` and `wait` (of an event), `alloc`, `free`, `other`",
            ),
            arg("change", "bool", "false", "the node existed before"),
            arg("graph", "void *", "0", "the graph that receives the node; 0 for a change"),
            arg("exec", "void *", "0", "the instance, if the node is changed in one instance only"),
            at_return("node", "void *", "0", "the node"),
            arg("kernel", "void *", "0", "the kernel's handle, for `kernel_name`"),
            arg("grid", "x, y, z", NO_DIM, "blocks"),
            arg("block", "x, y, z", NO_DIM, "threads of a block"),
            arg("shared", "uint32", "0", "dynamic shared memory of a block, bytes"),
            arg("child", "void *", "0", "the child graph, for the kind `graph`"),
        ],
        variants: &[
            variant(
                &["cuGraphAddKernelNode"],
                &[IN_GRAPH, NEW_NODE, NODE_KERNEL, NODE_GRID, NODE_BLOCK, NODE_SHARED],
            ),
            variant(
                &["cuGraphKernelNodeSetParams"],
                &[CHANGED, NODE, NODE_KERNEL, NODE_GRID, NODE_BLOCK, NODE_SHARED],
            ),
            variant(
                &["cuGraphExecKernelNodeSetParams"],
                &[CHANGED, IN_EXEC, NODE, NODE_KERNEL, NODE_GRID, NODE_BLOCK, NODE_SHARED],
            ),
            variant(
                &["cuGraphAddNode"],
                &[IN_GRAPH, NEW_NODE, ANY_KIND, ANY_KERNEL, ANY_GRID, ANY_BLOCK, ANY_SHARED, ANY_CHILD],
            ),
            variant(
                &["cuGraphNodeSetParams"],
                &[CHANGED, NODE, ANY_KIND, ANY_KERNEL, ANY_GRID, ANY_BLOCK, ANY_SHARED, ANY_CHILD],
            ),
            variant(
                &["cuGraphExecNodeSetParams"],
                &[CHANGED, IN_EXEC, NODE, ANY_KIND, ANY_KERNEL, ANY_GRID, ANY_BLOCK, ANY_SHARED, ANY_CHILD],
            ),
            variant(
                &["cuGraphAddChildGraphNode"],
                &[IN_GRAPH, NEW_NODE, ("kind", "\"graph\""), ("child", "args.childGraph")],
            ),
            variant(&["cuGraphAddMemcpyNode"], &[IN_GRAPH, NEW_NODE, ("kind", "\"memcpy\"")]),
            variant(&["cuGraphAddMemsetNode"], &[IN_GRAPH, NEW_NODE, ("kind", "\"memset\"")]),
            variant(&["cuGraphAddHostNode"], &[IN_GRAPH, NEW_NODE, ("kind", "\"host\"")]),
            variant(&["cuGraphAddEmptyNode"], &[IN_GRAPH, NEW_NODE, ("kind", "\"empty\"")]),
            variant(&["cuGraphAddEventRecordNode"], &[IN_GRAPH, NEW_NODE, ("kind", "\"record\"")]),
            variant(&["cuGraphAddEventWaitNode"], &[IN_GRAPH, NEW_NODE, ("kind", "\"wait\"")]),
            variant(&["cuGraphAddMemAllocNode"], &[IN_GRAPH, NEW_NODE, ("kind", "\"alloc\"")]),
            variant(&["cuGraphAddMemFreeNode"], &[IN_GRAPH, NEW_NODE, ("kind", "\"free\"")]),
            variant(
                &[
                    "cuGraphAddBatchMemOpNode",
                    "cuGraphAddExternalSemaphoresSignalNode",
                    "cuGraphAddExternalSemaphoresWaitNode",
                ],
                &[IN_GRAPH, NEW_NODE, ("kind", "\"other\"")],
            ),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "error",
        doc: "a call of the driver fails; `CUDA_ERROR_NOT_READY` does not count, nor `CUDA_ERROR_DEINITIALIZED` at the end of a process",
        args: &[],
        variants: &[variant(&["cu[A-Z]*"], &[])],
        fires: Fires::OnFailure("is_error(retval) && retval != CUDA_ERROR_DEINITIALIZED"),
    },
    Operation {
        name: "call",
        doc: "any call of the driver, except frequent queries of libraries about their own state",
        args: &[],
        variants: &[variant(&["cu[A-Z]*"], &[])],
        fires: Fires::Always,
    },
    Operation {
        name: OTHER,
        doc: "a call of the driver that belongs to no other operation, except queries of libraries about their own state",
        args: &[],
        variants: &[variant(&["cu[A-Z]*"], &[])],
        fires: Fires::Always,
    },
];

//! Operations of the runtime API: the functions of each, in CUDA 11 to 13. A function that a release lacks is skipped there.

use super::*;

pub(super) static QUIET: &[&str] = &["cudaGetDevice", "cudaGetLastError", "cudaPeekAtLastError"];

const ON_STREAM: (&str, &str) = ("stream", "args.stream");
const ON_H_STREAM: (&str, &str) = ("stream", "args.hStream");

const KERNEL: (&str, &str) = ("kernel", "args.func");
const GRID: (&str, &str) = ("grid", "(x = args.gridDim.x, y = args.gridDim.y, z = args.gridDim.z)");
const BLOCK: (&str, &str) = ("block", "(x = args.blockDim.x, y = args.blockDim.y, z = args.blockDim.z)");
const SHARED: (&str, &str) = ("shared", "args.sharedMem");

const SIZE: (&str, &str) = ("bytes", "args.size");
const COUNT: (&str, &str) = ("bytes", "args.count");
const WIDTH_HEIGHT: (&str, &str) = ("bytes", "args.width * args.height");
const AT_DEV_PTR: (&str, &str) = ("ptr", "args.devPtr");
const AT_PTR: (&str, &str) = ("ptr", "args.ptr");
const DEV_PTR_OUT: (&str, &str) = ("ptr", "retval == cudaSuccess ? (uint64)*args.devPtr : 0");
const PTR_OUT: (&str, &str) = ("ptr", "retval == cudaSuccess ? (uint64)*args.ptr : 0");
const ARRAY_OUT: (&str, &str) = ("ptr", "retval == cudaSuccess ? (uint64)*args.array : 0");

/// Bytes of one element; its channels are measured in bits.
macro_rules! element_bytes {
    () => {
        "(uint64)(args.desc->x + args.desc->y + args.desc->z + args.desc->w) / 8"
    };
}

/// Bytes of a box of elements; a side of 0 is absent.
const BOX_OF_ELEMENTS: (&str, &str) = (
    "bytes",
    concat!(
        "args.extent.width * (args.extent.height == 0 ? 1 : args.extent.height) \
         * (args.extent.depth == 0 ? 1 : args.extent.depth) * (",
        element_bytes!(),
        ")"
    ),
);

/// Bytes of all levels; each level has half the size in all dimensions. A layered array keeps its depth, which is
/// the number of layers.
const MIPMAP_BYTES: (&str, &str) = (
    "bytes",
    concat!(
        "{ let $elements = (uint64)0; \
         for $level : 0..(args.numLevels < 32 ? args.numLevels : 32) { \
             let $w = args.extent.width >> $level; \
             let $h = args.extent.height >> $level; \
             let $d = (args.flags & 1) != 0 ? args.extent.depth : args.extent.depth >> $level; \
             $elements += ($w == 0 ? 1 : $w) * ($h == 0 ? 1 : $h) * ($d == 0 ? 1 : $d); \
         } \
         $elements * (",
        element_bytes!(),
        ") }"
    ),
);

const DST: (&str, &str) = ("dst", "args.dst");
const SRC: (&str, &str) = ("src", "args.src");
/// Direction that the program passes.
macro_rules! direction {
    ($kind:literal) => {
        concat!(
            $kind,
            " == cudaMemcpyHostToDevice ? \"HtoD\" : ",
            $kind,
            " == cudaMemcpyDeviceToHost ? \"DtoH\" : ",
            $kind,
            " == cudaMemcpyDeviceToDevice ? \"DtoD\" : ",
            $kind,
            " == cudaMemcpyHostToHost ? \"HtoH\" : \"any\""
        )
    };
}

const BY_KIND: (&str, &str) = ("direction", direction!("args.kind"));
const BY_KIND_3D: (&str, &str) = ("direction", direction!("args.p->kind"));
const P_TO_P: (&str, &str) = ("direction", "\"PtoP\"");
const BYTES_3D: (&str, &str) =
    ("bytes", "args.p->extent.width * args.p->extent.height * args.p->extent.depth");
const DST_3D: (&str, &str) =
    ("dst", "args.p->dstArray != 0 ? (uint64)args.p->dstArray : (uint64)args.p->dstPtr.ptr");
const SRC_3D: (&str, &str) =
    ("src", "args.p->srcArray != 0 ? (uint64)args.p->srcArray : (uint64)args.p->srcPtr.ptr");
const OF_ARRAY: (&str, &str) = ("kind", "\"array\"");
const OF_2D: (&str, &str) = ("kind", "\"2D\"");
const OF_3D: (&str, &str) = ("kind", "\"3D\"");
const OF_PEER: (&str, &str) = ("kind", "\"peer\"");
const OF_BATCH: (&str, &str) = ("kind", "\"batch\"");

const BOX_OF_BYTES: (&str, &str) = ("bytes", "args.extent.width * args.extent.height * args.extent.depth");
const AT_PITCHED: (&str, &str) = ("ptr", "args.pitchedDevPtr.ptr");
const VALUE: (&str, &str) = ("value", "args.value");
const BATCH_PTR: (&str, &str) = ("ptr", "args.count > 0 ? (uint64)args.dptrs[0] : 0");
const OF_POOL: (&str, &str) = ("pool", "args.memPool");
const EVENT: (&str, &str) = ("event", "args.event");
const OF_GRAPH: (&str, &str) = ("graph", "args.graph");
const OF_EXEC: (&str, &str) = ("exec", "args.graphExec");
const GRAPH_OUT: (&str, &str) = ("graph", "retval == cudaSuccess ? (uint64)*args.pGraph : 0");

/// Operations in the order of listings.
pub(super) static OPERATIONS: &[Operation] = &[
    Operation {
        name: "launch",
        doc: LAUNCH_DOC,
        args: LAUNCH,
        variants: &[
            variant(&["cudaLaunchKernel"], &[KERNEL, GRID, BLOCK, SHARED, ON_STREAM]),
            variant(
                &["cudaLaunchCooperativeKernel"],
                &[KERNEL, GRID, BLOCK, SHARED, ON_STREAM, ("kind", "\"cooperative\"")],
            ),
            variant(
                &["cudaLaunchKernelExC"],
                &[
                    KERNEL,
                    (
                        "grid",
                        "(x = args.config->gridDim.x, y = args.config->gridDim.y, z = args.config->gridDim.z)",
                    ),
                    (
                        "block",
                        "(x = args.config->blockDim.x, y = args.config->blockDim.y, z = args.config->blockDim.z)",
                    ),
                    ("shared", "args.config->dynamicSmemBytes"),
                    ("stream", "args.config->stream"),
                ],
            ),
            variant(
                &["cudaLaunchCooperativeKernelMultiDevice"],
                &[
                    ("kernel", "args.launchParamsList->func"),
                    (
                        "grid",
                        "(x = args.launchParamsList->gridDim.x, y = args.launchParamsList->gridDim.y, \
                         z = args.launchParamsList->gridDim.z)",
                    ),
                    (
                        "block",
                        "(x = args.launchParamsList->blockDim.x, y = args.launchParamsList->blockDim.y, \
                         z = args.launchParamsList->blockDim.z)",
                    ),
                    ("shared", "args.launchParamsList->sharedMem"),
                    ("stream", "args.launchParamsList->stream"),
                    ("kind", "\"cooperative\""),
                ],
            ),
            variant(&["cudaGraphLaunch"], &[ON_STREAM, ("kind", "\"graph\"")]),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "alloc",
        doc: ALLOC_DOC,
        args: ALLOC,
        variants: &[
            variant(&["cudaMalloc"], &[SIZE, DEV_PTR_OUT]),
            variant(&["cudaMallocPitch"], &[WIDTH_HEIGHT, DEV_PTR_OUT, ("kind", "\"pitched\"")]),
            variant(
                &["cudaMalloc3D"],
                &[
                    BOX_OF_BYTES,
                    ("ptr", "retval == cudaSuccess ? (uint64)args.pitchedDevPtr->ptr : 0"),
                    ("kind", "\"pitched\""),
                ],
            ),
            variant(&["cudaMallocManaged"], &[SIZE, DEV_PTR_OUT, ("kind", "\"managed\"")]),
            variant(&["cudaMallocAsync"], &[SIZE, DEV_PTR_OUT, ("kind", "\"pool\""), ON_H_STREAM, IS_ASYNC]),
            variant(
                &["cudaMallocFromPoolAsync"],
                &[SIZE, PTR_OUT, ("kind", "\"pool\""), ON_STREAM, IS_ASYNC],
            ),
            variant(&["cudaMallocHost"], &[SIZE, PTR_OUT, ("kind", "\"pinned\"")]),
            variant(
                &["cudaHostAlloc"],
                &[SIZE, ("ptr", "retval == cudaSuccess ? (uint64)*args.pHost : 0"), ("kind", "\"pinned\"")],
            ),
            variant(&["cudaHostRegister"], &[SIZE, AT_PTR, ("kind", "\"registered\"")]),
            variant(
                &["cudaMallocArray"],
                &[
                    (
                        "bytes",
                        concat!(
                            "args.width * (args.height == 0 ? 1 : args.height) * (",
                            element_bytes!(),
                            ")"
                        ),
                    ),
                    ARRAY_OUT,
                    OF_ARRAY,
                ],
            ),
            variant(&["cudaMalloc3DArray"], &[BOX_OF_ELEMENTS, ARRAY_OUT, OF_ARRAY]),
            variant(
                &["cudaMallocMipmappedArray"],
                &[
                    MIPMAP_BYTES,
                    ("ptr", "retval == cudaSuccess ? (uint64)*args.mipmappedArray : 0"),
                    OF_ARRAY,
                ],
            ),
            variant(&["cudaIpcOpenMemHandle"], &[DEV_PTR_OUT, ("kind", "\"ipc\"")]),
            variant(&["cudaMemPoolImportPointer"], &[PTR_OUT, ("kind", "\"ipc\"")]),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "free",
        doc: FREE_DOC,
        args: FREE,
        variants: &[
            variant(&["cudaFree"], &[AT_DEV_PTR]),
            variant(&["cudaFreeAsync"], &[AT_DEV_PTR, ("kind", "\"pool\""), ON_H_STREAM, IS_ASYNC]),
            variant(&["cudaFreeHost"], &[AT_PTR, ("kind", "\"pinned\"")]),
            variant(&["cudaHostUnregister"], &[AT_PTR, ("kind", "\"registered\"")]),
            variant(&["cudaFreeArray"], &[("ptr", "args.array"), OF_ARRAY]),
            variant(&["cudaFreeMipmappedArray"], &[("ptr", "args.mipmappedArray"), OF_ARRAY]),
            variant(&["cudaIpcCloseMemHandle"], &[AT_DEV_PTR, ("kind", "\"ipc\"")]),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "pool",
        doc: POOL_DOC,
        args: POOL,
        variants: &[
            variant(&["cudaMemPoolCreate"], &[("pool", "retval == cudaSuccess ? (uint64)*args.memPool : 0")]),
            variant(
                &["cudaMemPoolImportFromShareableHandle"],
                &[("pool", "retval == cudaSuccess ? (uint64)*args.memPool : 0"), ("kind", "\"import\"")],
            ),
            variant(
                &["cudaMemPoolTrimTo"],
                &[OF_POOL, ("bytes", "args.minBytesToKeep"), ("kind", "\"trim\"")],
            ),
            variant(&["cudaDeviceSetMemPool"], &[OF_POOL, ("kind", "\"use\"")]),
            variant(&["cudaMemPoolDestroy"], &[OF_POOL, ("kind", "\"destroy\"")]),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "hint",
        doc: HINT_DOC,
        args: HINT,
        variants: &[
            variant(&["cudaMemAdvise"], &[COUNT, AT_DEV_PTR]),
            variant(&["cudaMemPrefetchAsync"], &[COUNT, AT_DEV_PTR, ON_STREAM, ("kind", "\"prefetch\"")]),
            variant(
                &["cudaStreamAttachMemAsync"],
                &[("bytes", "args.length"), AT_DEV_PTR, ON_STREAM, ("kind", "\"attach\"")],
            ),
            variant(
                &["cudaMemPrefetchBatchAsync", "cudaMemDiscardAndPrefetchBatchAsync"],
                &[BATCH_BYTES, BATCH_PTR, ON_STREAM, ("kind", "\"prefetch\"")],
            ),
            variant(
                &["cudaMemDiscardBatchAsync"],
                &[BATCH_BYTES, BATCH_PTR, ON_STREAM, ("kind", "\"discard\"")],
            ),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "memcpy",
        doc: MEMCPY_DOC,
        args: MEMCPY,
        variants: &[
            variant(&["cudaMemcpy"], &[COUNT, DST, SRC, BY_KIND]),
            variant(&["cudaMemcpyAsync"], &[COUNT, DST, SRC, BY_KIND, ON_STREAM, IS_ASYNC]),
            variant(&["cudaMemcpyWithAttributesAsync"], &[SIZE, DST, SRC, ON_STREAM, IS_ASYNC]),
            variant(&["cudaMemcpyPeer"], &[COUNT, DST, SRC, P_TO_P, OF_PEER]),
            variant(&["cudaMemcpyPeerAsync"], &[COUNT, DST, SRC, P_TO_P, OF_PEER, ON_STREAM, IS_ASYNC]),
            variant(&["cudaMemcpyToSymbol"], &[COUNT, ("dst", "args.symbol"), SRC, BY_KIND]),
            variant(
                &["cudaMemcpyToSymbolAsync"],
                &[COUNT, ("dst", "args.symbol"), SRC, BY_KIND, ON_STREAM, IS_ASYNC],
            ),
            variant(&["cudaMemcpyFromSymbol"], &[COUNT, DST, ("src", "args.symbol"), BY_KIND]),
            variant(
                &["cudaMemcpyFromSymbolAsync"],
                &[COUNT, DST, ("src", "args.symbol"), BY_KIND, ON_STREAM, IS_ASYNC],
            ),
            variant(
                &["cudaMemcpyToArray", "cudaMemcpyFromArray", "cudaMemcpyArrayToArray"],
                &[COUNT, DST, SRC, BY_KIND, OF_ARRAY],
            ),
            variant(
                &["cudaMemcpyToArrayAsync", "cudaMemcpyFromArrayAsync"],
                &[COUNT, DST, SRC, BY_KIND, OF_ARRAY, ON_STREAM, IS_ASYNC],
            ),
            variant(&["cudaMemcpy2D"], &[WIDTH_HEIGHT, DST, SRC, BY_KIND, OF_2D]),
            variant(&["cudaMemcpy2DAsync"], &[WIDTH_HEIGHT, DST, SRC, BY_KIND, OF_2D, ON_STREAM, IS_ASYNC]),
            variant(
                &["cudaMemcpy2DToArray", "cudaMemcpy2DFromArray", "cudaMemcpy2DArrayToArray"],
                &[WIDTH_HEIGHT, DST, SRC, BY_KIND, OF_ARRAY],
            ),
            variant(
                &["cudaMemcpy2DToArrayAsync", "cudaMemcpy2DFromArrayAsync"],
                &[WIDTH_HEIGHT, DST, SRC, BY_KIND, OF_ARRAY, ON_STREAM, IS_ASYNC],
            ),
            variant(&["cudaMemcpy3D"], &[BYTES_3D, DST_3D, SRC_3D, BY_KIND_3D, OF_3D]),
            variant(
                &["cudaMemcpy3DAsync"],
                &[BYTES_3D, DST_3D, SRC_3D, BY_KIND_3D, OF_3D, ON_STREAM, IS_ASYNC],
            ),
            variant(&["cudaMemcpy3DPeer"], &[BYTES_3D, DST_3D, SRC_3D, P_TO_P, OF_PEER]),
            variant(
                &["cudaMemcpy3DPeerAsync"],
                &[BYTES_3D, DST_3D, SRC_3D, P_TO_P, OF_PEER, ON_STREAM, IS_ASYNC],
            ),
            variant(
                &["cudaMemcpyBatchAsync"],
                &[
                    BATCH_BYTES,
                    ("dst", "args.count > 0 ? (uint64)args.dsts[0] : 0"),
                    ("src", "args.count > 0 ? (uint64)args.srcs[0] : 0"),
                    OF_BATCH,
                    ON_STREAM,
                    IS_ASYNC,
                ],
            ),
            variant(
                &["cudaMemcpy3DBatchAsync"],
                &[
                    BOXES_BYTES,
                    ("dst", operand!("args.opList->dst", "cudaMemcpyOperandTypeArray")),
                    ("src", operand!("args.opList->src", "cudaMemcpyOperandTypeArray")),
                    OF_BATCH,
                    ON_STREAM,
                    IS_ASYNC,
                ],
            ),
            variant(
                &["cudaMemcpy3DWithAttributesAsync"],
                &[
                    BOX_BYTES,
                    ("dst", operand!("args.op->dst", "cudaMemcpyOperandTypeArray")),
                    ("src", operand!("args.op->src", "cudaMemcpyOperandTypeArray")),
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
            variant(&["cudaMemset"], &[COUNT, AT_DEV_PTR, VALUE]),
            variant(&["cudaMemsetAsync"], &[COUNT, AT_DEV_PTR, VALUE, ON_STREAM, IS_ASYNC]),
            variant(&["cudaMemset2D"], &[WIDTH_HEIGHT, AT_DEV_PTR, VALUE, OF_2D]),
            variant(&["cudaMemset2DAsync"], &[WIDTH_HEIGHT, AT_DEV_PTR, VALUE, OF_2D, ON_STREAM, IS_ASYNC]),
            variant(&["cudaMemset3D"], &[BOX_OF_BYTES, AT_PITCHED, VALUE, OF_3D]),
            variant(&["cudaMemset3DAsync"], &[BOX_OF_BYTES, AT_PITCHED, VALUE, OF_3D, ON_STREAM, IS_ASYNC]),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "sync",
        doc: SYNC_DOC,
        args: SYNC,
        variants: &[
            variant(&["cudaDeviceSynchronize", "cudaThreadSynchronize"], &[]),
            variant(&["cudaStreamSynchronize"], &[ON_STREAM, ("kind", "\"stream\"")]),
            variant(&["cudaEventSynchronize"], &[EVENT, ("kind", "\"event\"")]),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "stream",
        doc: STREAM_DOC,
        args: OF_STREAM,
        variants: &[
            variant(
                &["cudaStreamCreate", "cudaStreamCreateWithFlags", "cudaStreamCreateWithPriority"],
                &[("stream", "retval == cudaSuccess ? (uint64)*args.pStream : 0")],
            ),
            variant(&["cudaStreamWaitEvent"], &[ON_STREAM, EVENT, ("kind", "\"wait\"")]),
            variant(&["cudaStreamAddCallback", "cudaLaunchHostFunc"], &[ON_STREAM, ("kind", "\"callback\"")]),
            variant(&["cudaStreamQuery"], &[ON_STREAM, ("kind", "\"query\"")]),
            variant(&["cudaStreamDestroy"], &[ON_STREAM, ("kind", "\"destroy\"")]),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "event",
        doc: EVENT_DOC,
        args: OF_EVENT,
        variants: &[
            variant(
                &["cudaEventCreate", "cudaEventCreateWithFlags", "cudaIpcOpenEventHandle"],
                &[("event", "retval == cudaSuccess ? (uint64)*args.event : 0")],
            ),
            variant(
                &["cudaEventCreateFromEGLSync"],
                &[("event", "retval == cudaSuccess ? (uint64)*args.phEvent : 0")],
            ),
            variant(
                &["cudaEventRecord", "cudaEventRecordWithFlags"],
                &[EVENT, ON_STREAM, ("kind", "\"record\"")],
            ),
            variant(&["cudaEventQuery"], &[EVENT, ("kind", "\"query\"")]),
            variant(&["cudaEventElapsedTime"], &[("event", "args.end"), ("kind", "\"elapsed\"")]),
            variant(&["cudaEventDestroy"], &[EVENT, ("kind", "\"destroy\"")]),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "device",
        doc: "a thread selects a device, or a device is reset, or its access to another changes",
        args: &[
            arg(
                "kind",
                "string",
                "\"set\"",
                "`set`, `init`, `reset`, `peer` (access to another device), `unpeer`",
            ),
            arg("device", "int64", "-1", "the device; -1 is the current one"),
        ],
        variants: &[
            variant(&["cudaSetDevice"], &[("device", "args.device")]),
            variant(&["cudaInitDevice"], &[("device", "args.device"), ("kind", "\"init\"")]),
            variant(&["cudaDeviceReset", "cudaThreadExit"], &[("kind", "\"reset\"")]),
            variant(&["cudaDeviceEnablePeerAccess"], &[("device", "args.peerDevice"), ("kind", "\"peer\"")]),
            variant(
                &["cudaDeviceDisablePeerAccess"],
                &[("device", "args.peerDevice"), ("kind", "\"unpeer\"")],
            ),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "graph",
        doc: GRAPH_DOC,
        args: GRAPH,
        variants: &[
            variant(&["cudaGraphCreate"], &[GRAPH_OUT]),
            variant(
                &["cudaGraphClone"],
                &[
                    ("graph", "retval == cudaSuccess ? (uint64)*args.pGraphClone : 0"),
                    ("from", "args.originalGraph"),
                    ("kind", "\"clone\""),
                ],
            ),
            variant(&["cudaStreamBeginCapture"], &[ON_STREAM, ("kind", "\"capture\"")]),
            variant(
                &["cudaStreamBeginCaptureToGraph", "cudaStreamBeginRecaptureToGraph"],
                &[ON_STREAM, OF_GRAPH, ("kind", "\"capture\"")],
            ),
            variant(&["cudaStreamEndCapture"], &[ON_STREAM, GRAPH_OUT, ("kind", "\"captured\"")]),
            variant(
                &["cudaGraphInstantiate", "cudaGraphInstantiateWithFlags", "cudaGraphInstantiateWithParams"],
                &[
                    OF_GRAPH,
                    ("exec", "retval == cudaSuccess ? (uint64)*args.pGraphExec : 0"),
                    ("kind", "\"instantiate\""),
                ],
            ),
            variant(
                &["cudaGraphExecUpdate"],
                &[("graph", "args.hGraph"), ("exec", "args.hGraphExec"), ("kind", "\"update\"")],
            ),
            variant(&["cudaGraphUpload"], &[OF_EXEC, ON_STREAM, ("kind", "\"upload\"")]),
            variant(&["cudaGraphLaunch"], &[OF_EXEC, ON_STREAM, ("kind", "\"launch\"")]),
            variant(&["cudaGraphExecDestroy"], &[OF_EXEC, ("kind", "\"destroy\"")]),
            variant(&["cudaGraphDestroy"], &[OF_GRAPH, ("kind", "\"destroy\"")]),
        ],
        fires: Fires::OnSuccess,
    },
    Operation {
        name: "error",
        doc: "a call of the runtime fails; `cudaErrorNotReady` does not count, nor `cudaErrorCudartUnloading` at the end of a process",
        args: &[],
        variants: &[variant(&["cuda[A-Z]*"], &[])],
        fires: Fires::OnFailure("is_error(retval) && retval != cudaErrorCudartUnloading"),
    },
    Operation {
        name: "call",
        doc: "any call of the runtime, except frequent queries of libraries about their own state",
        args: &[],
        variants: &[variant(&["cuda[A-Z]*"], &[])],
        fires: Fires::Always,
    },
    Operation {
        name: OTHER,
        doc: "a call of the runtime that belongs to no other operation, except queries of libraries about their own state",
        args: &[],
        variants: &[variant(&["cuda[A-Z]*"], &[])],
        fires: Fires::Always,
    },
];

//! Compares the tables with the exports of real libraries, and with layouts from a C compiler.
//!
//! `*.functions` have the names of the functions that a release of the library exports, one per line.

use std::collections::BTreeSet;

use cuda::operations::{APIS, Api};
use cuda::{Direction, Kind, Library};

const DRIVER_580: &str = include_str!("libcuda-580.159.04.functions");
const RUNTIMES: [(u32, &str); 3] = [
    (11, include_str!("libcudart-11.8.89.functions")),
    (12, include_str!("libcudart-12.9.79.functions")),
    (13, include_str!("libcudart-13.5.37.functions")),
];

/// Driver functions without a signature, because there is no public description of them.
const UNDESCRIBED_DRIVER: [&str; 11] = [
    "cuEGLApiInit",         // called by libEGL alone
    "cuMemGetAttribute",    // in no header
    "cuMemGetAttribute_v2", // in no header
    // Interface of the debugger.
    "cudbgApiAttach",
    "cudbgApiDetach",
    "cudbgApiInit",
    "cudbgGetAPI",
    "cudbgGetAPIVersion",
    "cudbgMain",
    "cudbgReportDriverApiError",
    "cudbgReportDriverInternalError",
];

/// Runtime functions without a signature, for the same reason.
const UNDESCRIBED_RUNTIME: [&str; 5] = [
    "__cudaGetProcAddress",
    "__cudaRegisterUnifiedTable",
    "cudaSubgridCreate",
    "cudaSubgridWorkerGridCreate",
    "cudaSubgridWorksetCreate",
];

fn driver() -> BTreeSet<&'static str> {
    DRIVER_580.lines().collect()
}

fn family(name: &str) -> Vec<&'static str> {
    family_in(Library::Driver, &driver(), name)
}

fn family_in(library: Library, exported: &BTreeSet<&'static str>, name: &str) -> Vec<&'static str> {
    let member = |s: &&&str| cuda::is_live_member(library, name, s, |n| exported.contains(n));
    exported.iter().filter(member).copied().collect()
}

/// The releases of a library, as (major version, exported symbols).
fn releases(api: &Api) -> Vec<(u32, BTreeSet<&'static str>)> {
    match api.library {
        Library::Driver => vec![(0, driver())],
        _ => RUNTIMES.iter().map(|(major, names)| (*major, names.lines().collect())).collect(),
    }
}

fn undescribed(library: Library, major: u32, exported: &'static str) -> Vec<&'static str> {
    exported.lines().filter(|name| cuda::signature(library, major, name).is_none()).collect()
}

#[test]
fn every_driver_function_has_a_signature() {
    assert_eq!(driver().len(), 682);
    assert_eq!(undescribed(Library::Driver, 0, DRIVER_580), UNDESCRIBED_DRIVER);
}

#[test]
fn every_runtime_function_has_a_signature() {
    for (major, exported) in RUNTIMES {
        let missing = undescribed(Library::Runtime, major, exported);
        let unexplained: Vec<_> = missing
            .into_iter()
            .filter(|name| !UNDESCRIBED_RUNTIME.contains(&cuda::base_name(Library::Runtime, name)))
            .collect();
        assert!(unexplained.is_empty(), "libcudart {major}: {unexplained:?}");
    }
}

#[test]
fn families_of_the_driver() {
    assert_eq!(family("cuMemAlloc"), ["cuMemAlloc_v2"]);
    assert_eq!(family("cuMemcpyAsync"), ["cuMemcpyAsync", "cuMemcpyAsync_ptsz"]);
    assert_eq!(family("cuMemcpyHtoD"), ["cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds"]);
    assert_eq!(family("cuCtxCreate"), ["cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4"]);
    assert_eq!(family("cuCtxGetDevice"), ["cuCtxGetDevice", "cuCtxGetDevice_v2"]);
    assert_eq!(family("cuMemAdvise"), ["cuMemAdvise", "cuMemAdvise_v2"]);
    assert_eq!(family("cuLaunchKernel"), ["cuLaunchKernel", "cuLaunchKernel_ptsz"]);
    assert_eq!(family("cuTexRefSetAddress2D"), ["cuTexRefSetAddress2D_v3"]);
    assert_eq!(family("cuGraphInstantiate"), ["cuGraphInstantiateWithFlags", "cuGraphInstantiate_v2"]);
    assert_eq!(family("cuGraphInstantiateWithFlags"), ["cuGraphInstantiateWithFlags"]);
    assert_eq!(family("cuMemAlloc_v2"), ["cuMemAlloc_v2"], "a suffix is exact");
    assert_eq!(family("cuMemAllocAsync").len(), 2);
    assert!(family("cuMem").is_empty());
}

#[test]
fn every_family_of_the_driver_has_a_live_member_with_a_signature() {
    let names: BTreeSet<_> = driver().iter().map(|name| cuda::base_name(Library::Driver, name)).collect();
    for name in names {
        let members = family(name);
        assert!(!members.is_empty(), "{name}");
        for member in members.iter().filter(|member| !UNDESCRIBED_DRIVER.contains(member)) {
            assert!(cuda::signature(Library::Driver, 0, member).is_some(), "{member}");
        }
    }
}

/// For the 26 names whose symbol depends on the CUDA version that a program requests, all these symbols are live.
#[test]
fn forms_of_programs_from_11_3_on_are_alive() {
    let changed = [
        "cuCtxGetDevice",
        "cuCtxSynchronize",
        "cuDeviceGetUuid",
        "cuEventElapsedTime",
        "cuGetProcAddress",
        "cuGraphAddDependencies",
        "cuGraphAddKernelNode",
        "cuGraphExecKernelNodeSetParams",
        "cuGraphExecUpdate",
        "cuGraphGetEdges",
        "cuGraphKernelNodeGetParams",
        "cuGraphKernelNodeSetParams",
        "cuGraphNodeGetDependencies",
        "cuGraphNodeGetDependentNodes",
        "cuGraphRemoveDependencies",
        "cuMemAdvise",
        "cuMemPrefetchAsync",
        "cuStreamBatchMemOp",
        "cuStreamGetCaptureInfo",
        "cuStreamGetCtx",
        "cuStreamUpdateCaptureDependencies",
        "cuStreamWaitValue32",
        "cuStreamWaitValue64",
        "cuStreamWriteValue32",
        "cuStreamWriteValue64",
    ];
    for name in changed {
        let members = family(name);
        assert!(members.contains(&name), "{name}: {members:?}");
        assert!(
            members.iter().any(|member| member.starts_with(&format!("{name}_v2"))),
            "{name}: {members:?}"
        );
    }
}

#[test]
fn dead_forms_are_exported_and_have_a_live_successor() {
    let exported = driver();
    let dead: Vec<_> = exported
        .iter()
        .filter(|name| cuda::is_dead(Library::Driver, name, |n| exported.contains(n)))
        .collect();
    assert!(dead.contains(&&"cuMemAlloc") && dead.contains(&&"cuMemcpyHtoDAsync"), "{dead:?}");
    for name in dead {
        let family = family(cuda::base_name(Library::Driver, name));
        assert!(!family.is_empty() && !family.contains(name), "{name}: {family:?}");
    }
}

#[test]
fn the_dead_forms_take_32_bits_and_the_live_ones_64() {
    let size = |symbol| cuda::signature(Library::Driver, 0, symbol).unwrap().params[1].ty.size();
    assert_eq!(size("cuMemAlloc"), Some(4));
    assert_eq!(size("cuMemAlloc_v2"), Some(8));
}

#[test]
fn runtime_arguments_depend_on_the_major_version() {
    let params = |major, symbol| {
        let signature = cuda::signature(Library::Runtime, major, symbol)?;
        Some(signature.params.iter().map(|param| param.name).collect::<Vec<_>>())
    };
    assert_eq!(params(12, "cudaMemAdvise").unwrap().last(), Some(&"device"));
    assert_eq!(params(13, "cudaMemAdvise").unwrap().last(), Some(&"location"));
    assert_eq!(params(12, "cudaMemAdvise_v2"), params(13, "cudaMemAdvise"));
    assert_eq!(params(13, "cudaMemAdvise_v2"), None);
    assert_eq!(params(11, "cudaGraphInstantiate").unwrap().len(), 5);
    assert_eq!(params(12, "cudaGraphInstantiate").unwrap().len(), 3);
    assert_eq!(params(13, "cudaThreadExit"), None);
    assert_eq!(params(0, "cudaThreadExit"), Some(vec![]), "an unknown version takes the newest that has it");
    assert_eq!(params(0, "cudaMemAdvise"), params(13, "cudaMemAdvise"));
    assert_eq!(params(14, "cudaMalloc"), params(13, "cudaMalloc"), "a future version is like the newest");
    for symbol in ["cudaMalloc@libcudart.so.13", "cudaMalloc@@libcudart.so.13"] {
        assert_eq!(params(13, symbol), Some(vec!["devPtr", "size"]));
    }
}

#[test]
fn a_launch_by_name_and_type() {
    let launch = cuda::signature(Library::Runtime, 12, "cudaLaunchKernel_ptsz").unwrap();
    let types: Vec<_> = launch.params.iter().map(|param| (param.name, cuda::ty(param.ty).c_name)).collect();
    let expected = [
        ("func", "const void *"),
        ("gridDim", "dim3"),
        ("blockDim", "dim3"),
        ("args", "void **"),
        ("sharedMem", "size_t"),
        ("stream", "cudaStream_t"),
    ];
    assert_eq!(types, expected);
    assert!(launch.params.iter().all(|param| param.dir == Direction::In));
    assert_eq!(launch.params[1].ty.size(), Some(12));
    assert_eq!(cuda::ty(launch.params[5].ty).kind, Kind::Handle);
    assert_eq!(cuda::ty(launch.ret).c_name, "cudaError_t");

    let driver = cuda::signature(Library::Driver, 0, "cuLaunchKernel").unwrap();
    assert_eq!(driver.params.len(), 11);
    assert_eq!(driver.param("hStream").unwrap().0, 8);
}

#[test]
fn a_signature_reads_as_c_declares_it() {
    let shown = |library, symbol| cuda::signature(library, 13, symbol).unwrap().to_string();
    assert_eq!(
        shown(Library::Driver, "cuMemAlloc_v2"),
        "CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)"
    );
    assert_eq!(
        shown(Library::Runtime, "cudaGetErrorName"),
        "const char *cudaGetErrorName(cudaError_t error)"
    );
    assert_eq!(shown(Library::Nccl, "ncclGroupStart"), "ncclResult_t ncclGroupStart()");
}

#[test]
fn directions() {
    let dir = |symbol, param| {
        let library = if symbol_is_runtime(symbol) { Library::Runtime } else { Library::Driver };
        cuda::signature(library, 13, symbol).unwrap().param(param).unwrap().1.dir
    };
    assert_eq!(dir("cuMemAlloc_v2", "dptr"), Direction::Out);
    assert_eq!(dir("cudaMalloc", "devPtr"), Direction::Out);
    assert_eq!(dir("cuMemcpyDtoH_v2", "dstHost"), Direction::In, "an untyped address is a value");
    assert_eq!(dir("cuLaunchKernel", "kernelParams"), Direction::In);
    assert_eq!(dir("cuGraphGetNodes", "numNodes"), Direction::InOut);
    assert_eq!(dir("cuPointerGetAttribute", "data"), Direction::Out);
    assert_eq!(dir("cudaPointerGetAttributes", "attributes"), Direction::Out);
    assert_eq!(dir("cudaGetDeviceProperties", "prop"), Direction::Out);
    assert_eq!(dir("cuMemcpyBatchAsync_v2", "sizes"), Direction::In);
    assert_eq!(dir("__cudaRegisterFunction", "deviceName"), Direction::In);
}

fn symbol_is_runtime(symbol: &str) -> bool {
    symbol.trim_start_matches('_').starts_with("cuda")
}

/// The pointee of an output parameter is described, and an output parameter is a pointer.
#[test]
fn out_arguments_are_pointers() {
    for library in Library::all() {
        for signature in cuda::signatures(library, 0) {
            for param in signature.params.iter().filter(|param| param.dir != Direction::In) {
                assert!(
                    matches!(cuda::ty(param.ty).kind, Kind::Pointer(_)),
                    "{} {}",
                    signature.name,
                    param.name
                );
            }
        }
    }
}

#[test]
fn signatures_are_sorted_and_found() {
    for (library, majors) in
        [(Library::Driver, &[0][..]), (Library::Runtime, &[0, 11, 12, 13]), (Library::Nccl, &[0, 2])]
    {
        for &major in majors {
            let all: Vec<_> = cuda::signatures(library, major).collect();
            assert!(all.is_sorted_by(|a, b| a.name < b.name), "{library:?} {major}");
            for signature in all {
                let found = cuda::signature(library, major, signature.name).unwrap();
                assert!(std::ptr::eq(found, signature), "{}", signature.name);
                assert_eq!(found.library, library);
            }
        }
    }
    assert_eq!(cuda::signatures(Library::Cufft, 0).count(), 0);
}

#[test]
fn enum_constants() {
    let result = cuda::enum_def(cuda::find_enum("CUresult").unwrap());
    assert_eq!(result.variants.len(), 106);
    assert_eq!(result.name_of(2), Some("CUDA_ERROR_OUT_OF_MEMORY"));
    assert_eq!(result.name_of(12345), None);
    assert_eq!(result.value_of("CUDA_ERROR_UNKNOWN"), Some(999));
    let error = cuda::enum_def(cuda::find_enum("cudaError_t").unwrap());
    assert_eq!(error.variants.len(), 138 + 1, "and `cudaErrorApiFailureBase`, which is no code");
    assert_eq!(cuda::find_enum("cudaError"), cuda::find_enum("cudaError_t"));
    assert_eq!(cuda::find_enum("cudaError_enum"), cuda::find_enum("CUresult"));

    let (id, value) = cuda::constant("CUDA_ERROR_OUT_OF_MEMORY").unwrap();
    assert_eq!((cuda::enum_def(id).name, value), ("CUresult", 2));
    assert_eq!(cuda::constant("cudaMemcpyHostToDevice").unwrap().1, 1);
    assert_eq!(
        cuda::constant("ncclSum").map(|(id, value)| (cuda::enum_def(id).name, value)),
        Some(("ncclRedOp_t", 0))
    );
    assert_eq!(cuda::constant("CUDA_ERROR"), None);
    assert_eq!(cuda::macro_constant("cudaHostAllocPortable"), Some(1));
    assert_eq!(cuda::macro_constant("cudaMemcpyHostToDevice"), None);
}

#[test]
fn constants_are_sorted_and_found() {
    let all: Vec<_> = cuda::constants().collect();
    assert!(all.len() > 2000 && all.is_sorted_by(|a, b| a.name < b.name));
    for cuda::EnumConstant { name, id, value } in all {
        assert_eq!(cuda::constant(name), Some((id, value)));
        assert!(cuda::enum_def(id).name_of(value).is_some());
    }
    assert!(cuda::macro_constants().is_sorted_by(|a, b| a.0 < b.0));
}

#[test]
fn names_are_unique() {
    let enums: Vec<_> = cuda::constants().map(|of| (cuda::enum_def(of.id).name, of.id)).collect();
    for (name, id) in enums {
        assert_eq!(cuda::find_enum(name), Some(id), "{name}");
    }
}

/// Offsets and sizes that gcc computed from NVIDIA's headers of 11.8, 12.9, 13.0 and 13.5.
#[test]
fn layouts() {
    let offset = |name: &str, field: &str| {
        cuda::struct_def(cuda::find_struct(name).unwrap()).field(field).unwrap().offset
    };
    let size = |name: &str| cuda::struct_def(cuda::find_struct(name).unwrap()).size;
    type Row<'a> = (&'a str, u32, &'a [(&'a str, u32)]);
    let fields: [Row; 12] = [
        ("dim3", 12, &[("x", 0), ("y", 4), ("z", 8)]),
        (
            "CUlaunchConfig",
            56,
            &[
                ("gridDimX", 0),
                ("gridDimY", 4),
                ("gridDimZ", 8),
                ("blockDimX", 12),
                ("blockDimY", 16),
                ("blockDimZ", 20),
                ("sharedMemBytes", 24),
                ("hStream", 32),
                ("attrs", 40),
                ("numAttrs", 48),
            ],
        ),
        (
            "cudaLaunchConfig_t",
            56,
            &[
                ("gridDim", 0),
                ("blockDim", 12),
                ("dynamicSmemBytes", 24),
                ("stream", 32),
                ("attrs", 40),
                ("numAttrs", 48),
            ],
        ),
        ("CUlaunchAttribute", 72, &[("id", 0), ("value", 8)]),
        ("cudaMemcpy3DParms", 160, &[("extent", 128), ("kind", 152)]),
        (
            "CUDA_MEMCPY2D",
            128,
            &[("srcMemoryType", 16), ("dstMemoryType", 72), ("WidthInBytes", 112), ("Height", 120)],
        ),
        (
            "CUDA_MEMCPY3D",
            200,
            &[
                ("srcMemoryType", 32),
                ("dstMemoryType", 120),
                ("WidthInBytes", 176),
                ("Height", 184),
                ("Depth", 192),
            ],
        ),
        (
            "cudaDeviceProp",
            1008,
            &[("name", 0), ("uuid", 256), ("totalGlobalMem", 288), ("multiProcessorCount", 384)],
        ),
        ("cudaDeviceProp_12", 1032, &[("totalGlobalMem", 288), ("multiProcessorCount", 388)]),
        ("cudaDeviceProp_11", 728, &[("totalGlobalMem", 288), ("multiProcessorCount", 388)]),
        ("CUgraphNodeParams", 256, &[("type", 0), ("kernel", 16), ("memcpy", 16), ("reserved2", 248)]),
        ("cudaPointerAttributes", 88, &[("devicePointer", 8), ("hostPointer", 16)]),
    ];
    for (name, bytes, members) in fields {
        assert_eq!(size(name), bytes, "{name}");
        for &(field, at) in members {
            assert_eq!(offset(name, field), at, "{name}.{field}");
        }
    }
    assert_eq!(size("CUDA_KERNEL_NODE_PARAMS_v1"), 56);
    assert_eq!(size("CUDA_KERNEL_NODE_PARAMS"), 72);
    assert_eq!(cuda::find_struct("CUlaunchConfig_st"), cuda::find_struct("CUlaunchConfig"));
    assert_eq!(cuda::find_struct("CUresult"), None);
}

/// Fields are inside their struct and aligned, and overlap only in unions.
#[test]
fn structs_are_consistent() {
    for name in
        ["CUlaunchConfig", "cudaGraphNodeParams", "CUmemLocation", "cudaDeviceProp", "CUDA_RESOURCE_DESC"]
    {
        let def = cuda::struct_def(cuda::find_struct(name).unwrap());
        for field in def.fields {
            let end = field.offset + field.ty.size().unwrap();
            assert!(end <= def.size, "{name}.{}", field.name);
        }
        assert_eq!(def.size % def.align, 0);
    }
}

#[test]
fn types_by_name() {
    let kind = |name| cuda::find_type(name).map(|id| cuda::ty(id).kind);
    assert_eq!(kind("CUdeviceptr"), Some(Kind::Int { bytes: 8, signed: false }));
    assert_eq!(kind("CUdevice"), Some(Kind::Int { bytes: 4, signed: true }));
    assert_eq!(kind("unsigned int"), Some(Kind::Int { bytes: 4, signed: false }));
    assert_eq!(kind("uint64_t"), Some(Kind::Int { bytes: 8, signed: false }));
    assert_eq!(kind("float"), Some(Kind::Float { bytes: 4 }));
    assert_eq!(kind("CUstream"), Some(Kind::Handle));
    assert_eq!(kind("CUhostFn"), Some(Kind::Function));
    assert!(matches!(kind("struct CUuuid_st"), Some(Kind::Struct(_))));
    assert!(matches!(kind("cudaMemcpyKind"), Some(Kind::Enum(_))));
    assert_eq!(kind("nothing"), None);
    let uuid = cuda::struct_def(cuda::find_struct("CUuuid").unwrap()).field("bytes").unwrap();
    assert!(matches!(cuda::ty(uuid.ty).kind, Kind::Array(_, 16)));
    let name = cuda::signature(Library::Driver, 0, "cuModuleGetFunction").unwrap().params[2].ty;
    assert_eq!((cuda::ty(name).c_name, cuda::ty(name).kind), ("const char *", Kind::String));
}

/// `dptr` of each `args.dptr` in an expression.
fn arguments(text: &str) -> impl Iterator<Item = &str> {
    text.split("args.")
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap())
}

#[test]
fn operations_name_functions_and_arguments_that_there_are() {
    for (api, operation) in APIS.iter().flat_map(|api| api.operations.iter().map(move |o| (api, o))) {
        let releases = releases(api);
        for variant in operation.variants {
            for function in variant.functions.iter().filter(|name| !name.contains('*')) {
                let forms = |(major, exported): &(u32, BTreeSet<&'static str>)| {
                    let members = family_in(api.library, exported, function).into_iter();
                    members.map(|member| (*major, member)).collect::<Vec<_>>()
                };
                let mut members: Vec<_> = releases.iter().flat_map(forms).collect();
                if members.is_empty() {
                    // The symbol is from a release later than the tables, so it has only one variant.
                    members.push((0, function));
                }
                let read = operation.all_args().flat_map(|arg| arguments(variant.value(arg)));
                for (&(major, member), name) in read.flat_map(|name| members.iter().map(move |m| (m, name))) {
                    let signature = cuda::signature(api.library, major, member).unwrap();
                    assert!(
                        signature.param(name).is_some(),
                        "{}:{}: {member} of {major} has no {name}",
                        api.provider,
                        operation.name
                    );
                }
            }
        }
    }
}

/// Functions of the runtime that concern memory, streams, events, launches or devices by name, but that only
/// `other` covers: they query, export, or set something without an effect of its own.
const OF_NO_OPERATION: &[&str] = &[
    "cudaDeviceRegisterAsyncNotification",
    "cudaDeviceSetCacheConfig",
    "cudaDeviceSetGraphMemAttribute",
    "cudaDeviceSetLimit",
    "cudaDeviceSetSharedMemConfig",
    "cudaHostGetDevicePointer",
    "cudaHostGetFlags",
    "cudaIpcGetEventHandle",
    "cudaIpcGetMemHandle",
    "cudaMemPoolExportPointer",
    "cudaMemPoolExportToShareableHandle",
    "cudaMemPoolGetAccess",
    "cudaMemPoolGetAttribute",
    "cudaMemPoolSetAccess",
    "cudaMemPoolSetAttribute",
    "cudaSetDeviceFlags",
    "cudaSetDoubleForDevice",
    "cudaSetDoubleForHost",
    "cudaSetValidDevices",
    "cudaStreamCopyAttributes",
    "cudaStreamGetAttribute",
    "cudaStreamGetCaptureInfo",
    "cudaStreamGetDevResource",
    "cudaStreamGetDevice",
    "cudaStreamGetFlags",
    "cudaStreamGetId",
    "cudaStreamGetPriority",
    "cudaStreamIsCapturing",
    "cudaStreamSetAttribute",
    "cudaStreamUpdateCaptureDependencies",
    "cudaThreadExchangeStreamCaptureMode",
    "cudaThreadGetCacheConfig",
    "cudaThreadGetLimit",
    "cudaThreadSetCacheConfig",
    "cudaThreadSetLimit",
];

#[test]
fn operations_of_the_runtime_have_all_that_allocates_copies_launches_and_waits() {
    let api = Api::of_library(Library::Runtime).unwrap();
    let of_operations =
        || api.operations.iter().flat_map(|o| o.variants).flat_map(|variant| variant.functions);
    let begins = [
        "cudaMalloc",
        "cudaFree",
        "cudaMemcpy",
        "cudaMemset",
        "cudaMemAdvise",
        "cudaMemPrefetch",
        "cudaMemDiscard",
        "cudaMemPool",
        "cudaHost",
        "cudaIpc",
        "cudaLaunch",
        "cudaStream",
        "cudaEvent",
        "cudaSet",
        "cudaDeviceS",
        "cudaDeviceR",
        "cudaDeviceE",
        "cudaDeviceDisable",
        "cudaInit",
        "cudaThread",
    ];
    let mut left: BTreeSet<&str> = BTreeSet::new();
    for (_, names) in RUNTIMES {
        for name in names.lines().filter(|name| begins.iter().any(|begin| name.starts_with(begin))) {
            let base = cuda::base_name(Library::Runtime, name);
            if !of_operations().any(|function| *function == base) {
                left.insert(base);
            }
        }
    }
    assert_eq!(left, OF_NO_OPERATION.iter().copied().collect());
}

#[test]
fn an_operation_has_each_function_once_and_only_arguments_of_its_own() {
    for operation in APIS.iter().flat_map(|api| api.operations) {
        let functions: Vec<_> = operation.variants.iter().flat_map(|variant| variant.functions).collect();
        assert_eq!(functions.iter().collect::<BTreeSet<_>>().len(), functions.len(), "{}", operation.name);
        for (name, _) in operation.variants.iter().flat_map(|variant| variant.args) {
            assert!(operation.arg(name).is_some(), "cuda:{}: {name}", operation.name);
        }
    }
}

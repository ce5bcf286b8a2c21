//! A catalog of two small libraries and the agent for tests: functions of the driver and runtime API, in files that do not exist.
//!
//! Functions are [`SPACING`] bytes apart. Every third begins with an `endbr64` (probes are 4 bytes further), every third with a
//! `push`, after which entry probes are placed (1 byte further, with the stack 8 bytes lower).

use crate::world::Callee;
use lang::catalog::{Catalog, File, FileId, Function, Place, TargetError};

/// Distance between functions in bytes.
pub const SPACING: u64 = 0x40;
const FIRST: u64 = 0x1000;
/// Id of the agent.
const AGENT: u32 = 2;

/// Functions of `libcuda`, in order of their addresses.
const DRIVER: &[&str] = &[
    "cuArray3DCreate_v2",
    "cuArrayCreate_v2",
    "cuCtxGetDevice",
    "cuCtxSynchronize",
    "cuInit",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuMemAllocAsync",
    "cuMemAllocPitch_v2",
    "cuMemAlloc_v2",
    "cuMemFreeAsync",
    "cuMemFree_v2",
    "cuMemcpy2D_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoD_v2",
    "cuMemsetD8_v2",
    "cuMipmappedArrayCreate",
    "cuModuleGetFunction",
    "cuStreamCreate",
];
/// Functions of `libcudart`.
const RUNTIME: &[&str] =
    &["cudaFree", "cudaLaunchKernel", "cudaMalloc", "cudaMemcpy", "cudaMemset", "cudaMemset3D"];

/// Bytes that have been pushed `past` bytes into a function.
pub fn stack_shift(past: u64) -> u64 {
    if past == 1 { 8 } else { 0 }
}

/// Whether `offset` is inside of the function at `function`.
pub fn covers(function: u64, offset: u64) -> bool {
    (function..function + SPACING).contains(&offset)
}

/// A catalog with two CUDA libraries and the agent; see the module documentation.
#[derive(Debug)]
pub struct TestCatalog {
    files: [File; 2],
    functions: [Vec<Function>; 3],
}

fn functions(names: &[&str]) -> Vec<Function> {
    let function = |(name, index): (&&str, u64)| Function {
        names: vec![name.to_string()],
        version: None,
        offset: FIRST + SPACING * index,
    };
    names.iter().zip(0..).map(function).collect()
}

impl TestCatalog {
    /// The catalog whose targets `libcuda` and `libcudart` are `files`, with ids 0 and 1.
    pub fn new(files: [File; 2]) -> TestCatalog {
        let agent: Vec<&str> =
            cuda::gpu::KINDS.iter().chain(cuda::gpu::HIDDEN).map(|kind| kind.function).collect();
        TestCatalog { files, functions: [functions(DRIVER), functions(RUNTIME), functions(&agent)] }
    }

    /// A catalog with a driver and a runtime of CUDA 12.
    pub fn of_cuda() -> TestCatalog {
        let file = |id, path: &str, library| File {
            id: FileId(id),
            path: path.into(),
            library: Some((library, 12)),
        };
        TestCatalog::new([
            file(0, "/usr/lib/libcuda.so.1", cuda::Library::Driver),
            file(1, "/usr/lib/libcudart.so.12", cuda::Library::Runtime),
        ])
    }

    /// The functions that worlds may call.
    pub fn callees(&self) -> Vec<Callee> {
        let of = |file: u32| {
            self.functions[file as usize].iter().map(move |f| Callee { file, function: f.offset })
        };
        of(0).chain(of(1)).collect()
    }

    /// The functions that the agent calls with batches of records.
    pub fn agent_functions(&self) -> Vec<Callee> {
        let of_agent = self.functions[AGENT as usize].iter();
        of_agent.map(|f| Callee { file: AGENT, function: f.offset }).collect()
    }
}

impl Catalog for TestCatalog {
    lang::lacks!(later_files, indirect_functions, markers, instructions, code_addresses, debug_information);
    lang::lacks!(
        source_lines,
        kernel_types,
        kernel_symbols,
        iterators,
        kernel_fields,
        kernel_functions,
        records
    );
    lang::lacks!(tracepoints, devices, known_targets);

    fn files(&self, target: &str) -> Result<Vec<File>, TargetError> {
        match target {
            "libcuda" => Ok(vec![self.files[0].clone()]),
            "libcudart" => Ok(vec![self.files[1].clone()]),
            _ => Err(TargetError::NotYet { looked_in: vec![] }),
        }
    }

    fn functions(&self, file: FileId) -> &[Function] {
        &self.functions[file.0 as usize]
    }

    fn symbol(&self, _file: FileId, name: &str) -> Option<(u64, u64)> {
        (name == "counter").then_some((0x9000, 4))
    }

    fn offset_to_address(&self, _file: FileId, offset: u64) -> Option<u64> {
        Some(offset)
    }

    fn agent(&self) -> Option<File> {
        Some(File { id: FileId(AGENT), path: "/usr/lib/libcudatrace_agent.so".into(), library: None })
    }

    fn cgroup_id(&self, path: &str) -> Option<u64> {
        (path == "/sys/fs/cgroup").then_some(0x1_0000_0064)
    }

    fn entry_place(&self, file: FileId, offset: u64) -> Place {
        match (offset - FIRST) / SPACING % 3 {
            2 => Place { offset: offset + 1, stack_shift: 8 },
            _ => self.return_place(file, offset),
        }
    }

    fn return_place(&self, _file: FileId, offset: u64) -> Place {
        let endbr64 = (offset - FIRST) / SPACING % 3 == 1;
        Place { offset: offset + if endbr64 { 4 } else { 0 }, stack_shift: 0 }
    }
}

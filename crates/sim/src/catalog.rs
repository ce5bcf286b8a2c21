//! A catalog of one small library, for tests: the names and signatures of the driver API in a file that does not exist.
//!
//! Functions lie [`SPACING`] bytes apart. Every third begins with an `endbr64` (probes go 4 bytes further), every third
//! with a `push` that entry probes are put behind (1 byte further, the stack 8 bytes lower).

use crate::world::Callee;
use lang::catalog::{Catalog, File, FileId, Function, Place, TargetError};

/// Bytes from function to function.
pub const SPACING: u64 = 0x40;
const FIRST: u64 = 0x1000;

/// Names that exist, in order of their addresses.
pub const FUNCTIONS: [&str; 12] = [
    "cuCtxGetDevice",
    "cuCtxSynchronize",
    "cuInit",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoD_v2",
    "cuMemsetD8_v2",
    "cuModuleGetFunction",
    "cuStreamCreate",
];

/// How far below its place at the first instruction the stack pointer is, so many bytes into a function.
pub fn stack_shift(past: u64) -> u64 {
    if past == 1 { 8 } else { 0 }
}

/// `offset` is a place in the function at `function`.
pub fn covers(function: u64, offset: u64) -> bool {
    (function..function + SPACING).contains(&offset)
}

/// See the module.
#[derive(Debug)]
pub struct TestCatalog {
    file: File,
    functions: Vec<Function>,
}

impl TestCatalog {
    /// The catalog whose target `libcuda` is `file`, with id 0.
    pub fn new(file: File) -> TestCatalog {
        let function = |(name, index): (&&str, u64)| Function {
            names: vec![name.to_string()],
            version: None,
            offset: FIRST + SPACING * index,
        };
        TestCatalog { file, functions: FUNCTIONS.iter().zip(0..).map(function).collect() }
    }

    /// What worlds may call.
    pub fn callees(&self) -> Vec<Callee> {
        self.functions.iter().map(|f| Callee { file: 0, function: f.offset }).collect()
    }
}

impl Catalog for TestCatalog {
    fn files(&self, target: &str) -> Result<Vec<File>, TargetError> {
        match target {
            "libcuda" => Ok(vec![self.file.clone()]),
            _ => Err(TargetError::NotYet { looked_in: vec![] }),
        }
    }

    fn functions(&self, _file: FileId) -> &[Function] {
        &self.functions
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

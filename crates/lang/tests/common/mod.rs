//! A machine of some libraries and a dozen symbols, the same everywhere.

pub(crate) mod declared;
pub(crate) mod record;

use std::sync::Arc;

use lang::catalog::debug_info::{Absent, TypeId};
use lang::catalog::{
    Catalog, DeviceDriver, File, FileId, Function, KERNEL, KernelFunction, Landing, Marker, Place,
    TargetError, Tracepoint, VMLINUX, debug_info,
};
use lang::hir::Hook;
use record::passed;

/// Name in scripts, path, known library, symbols.
type Library = (&'static str, &'static str, Option<(cuda::Library, u32)>, &'static str);

/// Libraries with their symbols in the order of their addresses. `a=b` are two names of one address, `f@V` has the
/// ELF version V.
const LIBRARIES: &[Library] = &[
    (
        "libcuda",
        "/usr/lib/libcuda.so.1",
        Some((cuda::Library::Driver, 0)),
        "cuCtxCreate_v2 cuCtxCreate_v4 cuCtxGetCurrent cuEventElapsedTime cuInit cuLaunchKernel cuLaunchKernelEx \
         cuMemAlloc cuMemAllocHost_v2 cuMemAlloc_v2 cuMemFree_v2 cuMemcpyHtoDAsync_v2 cuMemcpyHtoDAsync_v2_ptsz \
         cuModuleGetFunction cuStreamQuery cuTexRefSetMipmapLevelBias cudbgApiInit",
    ),
    (
        "libcudart",
        "/opt/cuda-12/libcudart.so.12",
        Some((cuda::Library::Runtime, 12)),
        "cudaCreateChannelDesc@libcudart.so.12 cudaGetErrorString@libcudart.so.12 cudaLaunchKernel@libcudart.so.12 \
         cudaMalloc@libcudart.so.12 cudaMemcpy@libcudart.so.12",
    ),
    ("libc", "/usr/lib/libc.so.6", None, "execvp free malloc=__libc_malloc dlsym _setjmp"),
    (
        "./app",
        "/home/me/app",
        None,
        "cudaMalloc main _ZN2nn6Linear7forwardEl early serve serve.isra.0 serve_all totals",
    ),
];

/// Symbols of the agent, whose id follows those of the libraries. It is older than `gpu:idle`.
const AGENT: &str = "cudatrace_gpu_graph cudatrace_gpu_kernel cudatrace_gpu_launch cudatrace_gpu_memcpy cudatrace_gpu_memset cudatrace_gpu_overhead \
                     cudatrace_gpu_sync cudatrace_gpu_operator cudatrace_gpu_forward cudatrace_gpu_operator_table \
                     cudatrace_gpu_annotation";

/// Functions of the kernel, sorted by name.
const KERNEL_FUNCTIONS: &[KernelFunction] = &[
    kernel_function("__pfx_vfs_read", VMLINUX, 0xffff_ffff_8100_0ff0, false),
    kernel_function("__x64_sys_openat", VMLINUX, 0xffff_ffff_8100_1000, true),
    kernel_function("do_nmi", VMLINUX, 0xffff_ffff_8100_2000, false),
    kernel_function("nvidia_open", "nvidia", 0xffff_ffff_c000_1000, true),
    kernel_function("nvidia_unlocked_ioctl", "nvidia", 0xffff_ffff_c000_2000, true),
    kernel_function("rm_ioctl", "nvidia", 0xffff_ffff_c000_3000, false),
    kernel_function("tcp_ack.isra.0", VMLINUX, 0xffff_ffff_8100_3000, true),
    kernel_function("vfs_read", VMLINUX, 0xffff_ffff_8100_4000, true),
    kernel_function("vfs_write", VMLINUX, 0xffff_ffff_8100_5000, true),
];

const fn kernel_function(
    name: &'static str,
    module: &'static str,
    address: u64,
    traceable: bool,
) -> KernelFunction {
    KernelFunction { module, name, address, traceable }
}

/// The machine of the tests.
pub(crate) struct Machine {
    functions: Vec<Vec<Function>>,
    markers: Vec<Marker>,
}

impl Machine {
    pub(crate) fn new() -> Machine {
        let functions =
            LIBRARIES.iter().map(|(.., symbols)| functions(symbols)).chain([functions(AGENT)]).collect();
        Machine { functions, markers: record::markers() }
    }
}

/// Name of a file in scripts.
fn name_of(file: FileId) -> &'static str {
    LIBRARIES.get(file.0 as usize).map_or("the agent", |library| library.0)
}

fn functions(symbols: &str) -> Vec<Function> {
    let function = |(at, text): (usize, &str)| {
        let (names, version) =
            text.split_once('@').map_or((text, None), |(names, version)| (names, Some(version)));
        Function {
            names: names.split('=').map(String::from).collect(),
            version: version.map(String::from),
            offset: 0x1000 + 0x100 * at as u64,
        }
    };
    symbols.split_whitespace().enumerate().map(function).collect()
}

impl Catalog for Machine {
    lang::lacks!(indirect_functions, kernel_types);

    fn kernel_symbol(&self, name: &str) -> Option<u64> {
        matches!(name, "avenrun" | "process_counts" | "__per_cpu_offset").then_some(0xffff_ffff_8100_0000)
    }

    fn files_among(&self, target: &str, among: &[FileId]) -> Vec<File> {
        let mut files = self.files(target).unwrap_or_default();
        files.retain(|file| among.contains(&file.id));
        files
    }

    fn agent(&self) -> Option<File> {
        let id = FileId(LIBRARIES.len() as u32);
        Some(File { id, path: "/usr/lib/libcudatrace_agent.so".into(), library: None })
    }

    fn cgroup_id(&self, path: &str) -> Option<u64> {
        (path == "/sys/fs/cgroup").then_some(1)
    }

    fn files(&self, target: &str) -> Result<Vec<File>, TargetError> {
        let matches = |(at, (name, path, library, _)): (usize, &Library)| {
            let file = File { id: FileId(at as u32), path: path.to_string(), library: *library };
            (target == *name || format!("lib{target}") == *name || target == *path || target == "*")
                .then_some(file)
        };
        let found: Vec<File> = LIBRARIES.iter().enumerate().filter_map(matches).collect();
        match found.is_empty() {
            false => Ok(found),
            true if target.contains('/') => Err(TargetError::Unusable("no such file".into())),
            true => Err(TargetError::NotYet { looked_in: vec!["/usr/lib".into()] }),
        }
    }

    fn tracepoint(&self, category: &str, event: &str) -> Result<Tracepoint, String> {
        let fields = record::of(category, event).ok_or("this kernel has none")?;
        Ok(Tracepoint { fields })
    }

    fn tracepoints(&self) -> Vec<(String, String)> {
        ["sched_process_exit", "sched_switch"].map(|event| ("sched".into(), event.into())).into()
    }

    fn iterator(&self, items: &str) -> Result<Tracepoint, String> {
        match items {
            "task" => Ok(Tracepoint { fields: passed() }),
            _ => Err("this kernel has none".into()),
        }
    }

    fn iterators(&self) -> Vec<String> {
        vec!["task".into()]
    }

    fn raw_tracepoint(&self, event: &str) -> Result<Tracepoint, String> {
        match event {
            "sched_switch" => Ok(Tracepoint { fields: passed() }),
            "sched_process_exit" => Ok(Tracepoint { fields: passed().split_off(3) }),
            _ => Err("this kernel has none".into()),
        }
    }

    fn raw_tracepoints(&self) -> Vec<String> {
        ["sched_process_exit", "sched_switch"].map(String::from).into()
    }

    /// The kernel has kprobes, and no trampolines.
    fn kernel_hook(&self, hook: Hook) -> Result<(), String> {
        match hook {
            Hook::Trampoline => Err("it is locked down, and refuses their programs".into()),
            _ => Ok(()),
        }
    }

    fn kernel_functions(&self) -> &[KernelFunction] {
        KERNEL_FUNCTIONS
    }

    fn trampoline_functions(&self) -> &[KernelFunction] {
        KERNEL_FUNCTIONS
    }

    fn kernel_field(&self, of: &str, field: &str) -> Option<u32> {
        record::kernel_field(of, field)
    }

    /// Instructions have four bytes, functions 256.
    fn landing(&self, _: FileId, function: Option<u64>, offset: u64) -> Landing {
        let (begins, within) = (offset - offset % 4, function.map_or(0, |start| offset - start));
        match offset % 4 {
            _ if within >= 256 => Landing::After { size: 256 },
            0 => Landing::Begins,
            _ => Landing::Inside { begins, next: begins + 4 },
        }
    }

    fn functions(&self, file: FileId) -> &[Function] {
        &self.functions[file.0 as usize]
    }

    fn symbol(&self, _: FileId, name: &str) -> Option<(u64, u64)> {
        (name == "counter").then_some((0x9000, 4))
    }

    fn offset_to_address(&self, _: FileId, offset: u64) -> Option<u64> {
        Some(offset + 0x100)
    }

    /// Only the program has markers.
    fn markers(&self, file: FileId) -> &[Marker] {
        if name_of(file) == "./app" { &self.markers } else { &[] }
    }

    /// Only the program has debug information.
    fn declared(&self, file: FileId, _: u64, symbol: &str) -> Result<Arc<debug_info::Function>, Absent> {
        if file == KERNEL {
            return declared::kernel_function(symbol);
        }
        match name_of(file) {
            "./app" => declared::function(file, symbol),
            _ => Err(Absent::NoInformation { looked_for: Vec::new() }),
        }
    }

    /// The program is compiled from `src/main.c`, whose line 7 is in two functions.
    fn source_lines(&self, file: FileId, source: &str) -> Result<Vec<(u64, u64)>, Absent> {
        match (name_of(file), source) {
            ("./app", "main.c" | "src/main.c") => {
                Ok(vec![(5, 0x1010), (7, 0x1020), (7, 0x1120), (12, 0x1030)])
            }
            ("./app", _) => Ok(Vec::new()),
            _ => Err(Absent::NoInformation { looked_for: Vec::new() }),
        }
    }

    fn declared_type(&self, id: TypeId) -> Arc<debug_info::Type> {
        declared::ty(id)
    }

    fn declared_type_named(&self, file: FileId, name: &str) -> Option<TypeId> {
        if file == KERNEL {
            return None;
        }
        (name_of(file) == "./app").then(|| declared::named(file, name))?
    }

    /// Entry probes move by the length of a `push`, return probes do not move.
    fn entry_place(&self, _: FileId, offset: u64) -> Place {
        Place { offset: offset + 1, stack_shift: 8 }
    }

    fn return_place(&self, _: FileId, offset: u64) -> Place {
        Place { offset, stack_shift: 0 }
    }

    fn address_to_offset(&self, _: FileId, address: u64) -> Option<u64> {
        (address < 0x10_0000).then_some(address)
    }

    /// The driver for unified memory is not loaded.
    fn device(&self, name: &str) -> Option<DeviceDriver> {
        (name == "nvidia").then_some(DeviceDriver { major: 195, release: Some(580) })
    }

    fn known_targets(&self) -> Vec<String> {
        LIBRARIES.iter().map(|(name, ..)| name.to_string()).collect()
    }
}

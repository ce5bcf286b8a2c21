//! NVIDIA's kernel driver: the functions that perform an event, and names of tutorials that are no functions.
//!
//! ```text
//! ioctl   nvidia  nvidia_unlocked_ioctl            since 550  fentry or kprobe
//!         nvidia  nvidia_frontend_unlocked_ioctl   515        fentry or kprobe
//! ```
//!
//! Names change between branches of the driver, so that an event has several functions: a tracer attaches to the first that the
//! loaded modules have. Their source is NVIDIA's open kernel modules (`kernel-open`, `src/nvidia`), and the symbols of 580.159.04 as
//! loaded. The proprietary modules have the functions of the kernel's build by the same names. Their other functions have names
//! without meaning.
//!
//! Not here: whether a function exists in the running kernel, and what it can be attached by (`host`, `runtime`). A launch of a GPU
//! kernel is no event: the program writes it to memory that it shares with the GPU.

/// A module of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    /// `nvidia.ko`: devices, resources, channels.
    Nvidia,
    /// `nvidia-uvm.ko`: unified memory.
    Uvm,
}

impl Module {
    /// Its name in the kernel.
    pub fn name(self) -> &'static str {
        match self {
            Module::Nvidia => "nvidia",
            Module::Uvm => "nvidia_uvm",
        }
    }
}

/// How a function was compiled, which determines what can be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverBuild {
    /// By the build system of the kernel, with sites of the function tracer and BTF: `fentry`, or one link for many `kprobe`.
    WithKernel,
    /// In `nv-kernel.o`, which NVIDIA compiles, without sites and types: only single `kprobe`, and only on kernels with
    /// `CONFIG_KPROBE_EVENTS_ON_NOTRACE`, which distributions rarely set. Ioctls show the same work.
    Before,
}

/// A function of the driver.
#[derive(Debug)]
pub struct Function {
    /// The module that contains it.
    pub module: Module,
    /// Its symbol.
    pub name: &'static str,
    /// Branches of the driver in which the name was seen, oldest first.
    pub seen: &'static [u16],
    /// How it was compiled.
    pub built: DriverBuild,
}

/// An event of the driver, in one of several functions.
#[derive(Debug)]
pub struct Event {
    /// `ioctl`
    pub name: &'static str,
    /// Description in listings.
    pub doc: &'static str,
    /// The functions, those of newer branches first.
    pub functions: &'static [Function],
}

/// A name that tracers of other projects use, and that the kernel does not have.
#[derive(Debug)]
pub struct Misnomer {
    /// `nv_schedule_work`
    pub name: &'static str,
    /// The reason.
    pub reason: &'static str,
    /// Functions to attach to instead.
    pub instead: &'static [&'static str],
}

const fn compiled(module: Module, name: &'static str, seen: &'static [u16]) -> Function {
    Function { module, name, seen, built: DriverBuild::WithKernel }
}

const fn prebuilt(name: &'static str, seen: &'static [u16]) -> Function {
    Function { module: Module::Nvidia, name, seen, built: DriverBuild::Before }
}

use Module::{Nvidia, Uvm};

/// All events.
pub static EVENTS: &[Event] = &[
    Event {
        name: "open",
        doc: "a process opens /dev/nvidiactl or /dev/nvidiaN",
        functions: &[compiled(Nvidia, "nvidia_open", &[515, 580])],
    },
    Event {
        name: "close",
        doc: "the last reference to such a file is closed",
        functions: &[compiled(Nvidia, "nvidia_close", &[515, 580])],
    },
    Event {
        name: "mmap",
        doc: "device or system memory is mapped into a process",
        functions: &[compiled(Nvidia, "nvidia_mmap", &[515, 550, 580])],
    },
    Event {
        name: "poll",
        doc: "a process waits for an event of the driver",
        functions: &[compiled(Nvidia, "nvidia_poll", &[515, 580])],
    },
    Event {
        name: "ioctl",
        doc: "an ioctl of /dev/nvidiactl or /dev/nvidiaN: (file, command, argument)",
        functions: &[
            compiled(Nvidia, "nvidia_unlocked_ioctl", &[550, 580]),
            compiled(Nvidia, "nvidia_frontend_unlocked_ioctl", &[515]),
        ],
    },
    Event {
        name: "interrupt",
        doc: "an interrupt of a GPU",
        functions: &[compiled(Nvidia, "nvidia_isr", &[580])],
    },
    Event {
        name: "interrupt_work",
        doc: "the thread of the interrupt handles it",
        functions: &[compiled(Nvidia, "nvidia_isr_kthread_bh", &[580])],
    },
    Event {
        name: "work",
        doc: "work is queued for a thread of the driver; this is no launch",
        functions: &[compiled(Nvidia, "nv_kthread_q_schedule_q_item", &[550, 580])],
    },
    Event {
        name: "channel",
        doc: "a channel, through which a program submits work, is created",
        functions: &[prebuilt("kchannelConstruct_IMPL", &[580])],
    },
    Event {
        name: "channel_group",
        doc: "a group of channels that are scheduled together is created",
        functions: &[prebuilt("kchangrpapiConstruct_IMPL", &[515, 580])],
    },
    Event {
        name: "schedule",
        doc: "a group of channels is put on a runlist, or taken off it",
        functions: &[prebuilt("kchangrpapiCtrlCmdGpFifoSchedule_IMPL", &[515, 580, 595])],
    },
    Event {
        name: "schedule_channel",
        doc: "a single channel is put on a runlist, or taken off it",
        functions: &[prebuilt("kchannelCtrlCmdGpFifoSchedule_IMPL", &[580, 595])],
    },
    Event {
        name: "video_memory",
        doc: "memory of the GPU is allocated",
        functions: &[prebuilt("vidmemConstruct_IMPL", &[580])],
    },
    Event {
        name: "xid",
        doc: "an Xid error: (PCI device, number, format, values)",
        functions: &[compiled(Nvidia, "nv_report_error", &[515, 550, 575])],
    },
    Event {
        name: "uvm_open",
        doc: "a process opens /dev/nvidia-uvm",
        functions: &[compiled(Uvm, "uvm_open_entry", &[550, 580])],
    },
    Event {
        name: "uvm_ioctl",
        doc: "an ioctl of /dev/nvidia-uvm: (file, command, argument)",
        functions: &[compiled(Uvm, "uvm_unlocked_ioctl_entry", &[550, 580])],
    },
    Event {
        name: "uvm_mmap",
        doc: "unified memory is mapped into a process",
        functions: &[compiled(Uvm, "uvm_mmap_entry", &[550, 580])],
    },
    Event {
        name: "cpu_fault",
        doc: "a thread accesses unified memory that is not mapped on the CPU: (fault of the kernel)",
        functions: &[
            compiled(Uvm, "uvm_vm_fault_entry", &[580]),
            compiled(Uvm, "uvm_vm_fault_wrapper_entry", &[550]),
        ],
    },
    Event {
        name: "gpu_faults",
        doc: "a thread of the driver handles page faults of a GPU",
        functions: &[
            compiled(Uvm, "uvm_parent_gpu_service_replayable_faults", &[560, 580]),
            compiled(Uvm, "uvm_gpu_service_replayable_faults", &[515, 550]),
        ],
    },
    Event {
        name: "gpu_fatal_faults",
        doc: "a thread of the driver handles faults of a GPU after which a channel cannot continue",
        functions: &[
            compiled(Uvm, "uvm_parent_gpu_service_non_replayable_fault_buffer", &[580]),
            compiled(Uvm, "uvm_gpu_service_non_replayable_fault_buffer", &[515]),
        ],
    },
    Event {
        name: "uvm_event",
        doc: "a fault or a migration of unified memory: (listeners, event, data)",
        functions: &[compiled(Uvm, "uvm_perf_event_notify", &[515, 550])],
    },
    Event {
        name: "migrate",
        doc: "pages of unified memory are copied to a processor",
        functions: &[compiled(Uvm, "uvm_va_block_make_resident_copy", &[580])],
    },
    Event {
        name: "evict",
        doc: "unified memory leaves a GPU that is full",
        functions: &[compiled(Uvm, "uvm_va_block_evict_chunks", &[580])],
    },
];

const NO_LAUNCH: &str = "launches make no call of the kernel: the program writes them to memory that it shares with the GPU, which \
                         schedules itself; what the kernel sees is the set-up of channels";
const BY_IOCTL: &str = "such objects are created and freed by ioctls";

/// Names that are no functions, in any branch that has the others.
pub static MISNOMERS: &[Misnomer] = &[
    Misnomer {
        name: "nvidia_ioctl",
        reason: "it is part of its caller since driver 550",
        instead: &["nvidia_unlocked_ioctl", "nvidia_frontend_unlocked_ioctl"],
    },
    Misnomer { name: "nv_ioctl", reason: "", instead: &["nvidia_unlocked_ioctl"] },
    Misnomer { name: "nvidia_ioctl_v2", reason: "", instead: &["nvidia_unlocked_ioctl"] },
    Misnomer {
        name: "nvidia_frontend_ioctl",
        reason: "drivers since 550 have no such layer",
        instead: &["nvidia_unlocked_ioctl"],
    },
    Misnomer {
        name: "nv_mem_alloc",
        reason: BY_IOCTL,
        instead: &["nvidia_unlocked_ioctl", "vidmemConstruct_IMPL"],
    },
    Misnomer { name: "nv_mem_free", reason: BY_IOCTL, instead: &["nvidia_unlocked_ioctl"] },
    Misnomer {
        name: "nv_create_context",
        reason: BY_IOCTL,
        instead: &["nvidia_unlocked_ioctl", "kchannelConstruct_IMPL", "kchangrpapiConstruct_IMPL"],
    },
    Misnomer { name: "nv_destroy_context", reason: BY_IOCTL, instead: &["nvidia_unlocked_ioctl"] },
    Misnomer { name: "nv_bind_context", reason: BY_IOCTL, instead: &["nvidia_unlocked_ioctl"] },
    Misnomer {
        name: "nv_schedule_work",
        reason: NO_LAUNCH,
        instead: &["nvidia_unlocked_ioctl", "nv_kthread_q_schedule_q_item"],
    },
    Misnomer {
        name: "nv_gpu_scheduler_schedule",
        reason: NO_LAUNCH,
        instead: &["nvidia_unlocked_ioctl", "nv_kthread_q_schedule_q_item"],
    },
];

/// A tracepoint of the driver's modules.
#[derive(Debug)]
pub struct Tracepoint {
    /// `nvidia`
    pub category: &'static str,
    /// `nvidia_dev_xid`
    pub event: &'static str,
    /// When the kernel has it.
    pub exists: &'static str,
    /// Alternative without it.
    pub instead: &'static str,
}

/// All tracepoints of the driver.
pub static TRACEPOINTS: &[Tracepoint] = &[Tracepoint {
    category: "nvidia",
    event: "nvidia_dev_xid",
    exists: "NVIDIA's open kernel modules have it from driver 575 on, while they are loaded; the kernel gives no tracepoints to \
             proprietary modules",
    instead: "`cudatrace xid` also reads the driver's lines in the kernel's log, which every driver writes: `tracepoint:printk:console`",
}];

/// The event of this name.
pub fn event(name: &str) -> Option<&'static Event> {
    EVENTS.iter().find(|event| event.name == name)
}

/// The name of a tutorial that is no function.
pub fn misnomer(name: &str) -> Option<&'static Misnomer> {
    MISNOMERS.iter().find(|misnomer| misnomer.name == name)
}

/// The driver's tracepoint of this name.
pub fn tracepoint(category: &str, event: &str) -> Option<&'static Tracepoint> {
    TRACEPOINTS.iter().find(|tracepoint| tracepoint.category == category && tracepoint.event == event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn functions() -> impl Iterator<Item = &'static Function> {
        EVENTS.iter().flat_map(|event| event.functions)
    }

    #[test]
    fn names_are_listed_once() {
        let events: HashSet<&str> = EVENTS.iter().map(|event| event.name).collect();
        assert_eq!(events.len(), EVENTS.len());
        let names: HashSet<&str> = functions().map(|function| function.name).collect();
        assert_eq!(names.len(), functions().count());
        let misnomers: HashSet<&str> = MISNOMERS.iter().map(|misnomer| misnomer.name).collect();
        assert_eq!(misnomers.len(), MISNOMERS.len());
        assert_eq!(names.intersection(&misnomers).count(), 0);
    }

    #[test]
    fn the_functions_of_newer_branches_come_first() {
        for event in EVENTS {
            assert!(!event.functions.is_empty(), "{}", event.name);
            let newest: Vec<u16> = event.functions.iter().map(|f| *f.seen.last().unwrap()).collect();
            assert!(newest.is_sorted_by(|a, b| a > b), "{}: {newest:?}", event.name);
        }
        for function in functions() {
            assert!(function.seen.is_sorted_by(|a, b| a < b), "{}", function.name);
            assert!(function.seen.iter().all(|branch| (515..700).contains(branch)), "{}", function.name);
        }
    }

    #[test]
    fn modules_and_builds_are_those_that_the_names_show() {
        for function in functions() {
            assert_eq!(function.module == Uvm, function.name.starts_with("uvm_"), "{}", function.name);
            let is_rm = function.name.ends_with("_IMPL");
            assert_eq!(function.built == DriverBuild::Before, is_rm, "{}", function.name);
        }
    }

    #[test]
    fn functions_that_are_named_instead_exist() {
        for misnomer in MISNOMERS {
            assert!(!misnomer.instead.is_empty(), "{}", misnomer.name);
            for name in misnomer.instead {
                assert!(functions().any(|function| function.name == *name), "{}: {name}", misnomer.name);
            }
        }
        assert_eq!(misnomer("nv_schedule_work").unwrap().reason, NO_LAUNCH);
        assert!(misnomer("nvidia_unlocked_ioctl").is_none());
        assert_eq!(event("ioctl").unwrap().functions[0].name, "nvidia_unlocked_ioctl");
    }
}

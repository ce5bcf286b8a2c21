//! Result codes of calls: which of them are errors, and one line of description for each.
//!
//! Most numbers mean the same in the driver and the runtime: they are in [`BOTH`]. The tables of the driver and of the runtime have the
//! other numbers, and take precedence. The texts are our own; the facts follow the documentation of the two enums.

use crate::types::find_enum;

/// An enum of results, and its values that are not errors.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Results {
    /// `CUresult`
    pub name: &'static str,
    /// Success, and results that only mean "not yet".
    pub fine: &'static [i64],
    /// Descriptions of the values that differ between driver and runtime; `None` if no value has one.
    texts: Option<&'static [(i64, &'static str)]>,
}

impl Results {
    /// Description of a value, in one line.
    pub fn text(&self, value: i64) -> Option<&'static str> {
        let of_own = find(self.texts?, value);
        let known = |value: &i64| {
            find_enum(self.name).is_some_and(|id| crate::types::enum_def(id).name_of(*value).is_some())
        };
        of_own.or_else(|| Some(value).filter(known).and_then(|value| find(BOTH, value)))
    }

    /// All values with a description.
    pub fn texts(&self) -> Vec<(i64, &'static str)> {
        let variants = find_enum(self.name).map_or(&[][..], |id| crate::types::enum_def(id).variants);
        let mut texts: Vec<_> =
            variants.iter().filter_map(|&(_, value)| Some((value, self.text(value)?))).collect();
        texts.dedup();
        texts
    }
}

/// The enums for which the values that are errors are known.
pub static RESULTS: &[Results] = &[DRIVER, RUNTIME, NCCL];

/// Results of the driver. `CUDA_ERROR_NOT_READY` is not an error: `cuStreamQuery` and `cuEventQuery` return it
/// while work is pending.
pub const DRIVER: Results = Results { name: "CUresult", fine: &[0, 600], texts: Some(DRIVER_ALONE) };
/// Results of the runtime; `cudaErrorNotReady` is not an error.
pub const RUNTIME: Results = Results { name: "cudaError_t", fine: &[0, 600], texts: Some(RUNTIME_ALONE) };
/// Results of NCCL; `ncclInProgress` is not an error.
pub const NCCL: Results = Results { name: "ncclResult_t", fine: &[0, 7], texts: None };

/// Results of calls after the driver or runtime has shut down. Destructors make such calls at the end of a
/// process. They are neither successes nor failures of the program.
pub const AFTER_SHUTDOWN: [&str; 2] = ["CUDA_ERROR_DEINITIALIZED", "cudaErrorCudartUnloading"];

/// Whether the result with this name is not an error: success, or "not yet".
pub fn is_fine(name: &str) -> bool {
    RESULTS.iter().any(|results| {
        let variants = find_enum(results.name).map(crate::types::enum_def);
        variants.is_some_and(|def| results.fine.iter().any(|value| def.name_of(*value) == Some(name)))
    })
}

/// The table entry of a result enum.
pub fn results(name: &str) -> Option<&'static Results> {
    RESULTS.iter().find(|results| results.name == name)
}

fn find(table: &[(i64, &'static str)], value: i64) -> Option<&'static str> {
    table.iter().find(|(number, _)| *number == value).map(|(_, text)| *text)
}

static DRIVER_ALONE: &[(i64, &str)] = &[
    (3, "the driver was not initialised: cuInit comes first"),
    (4, "the driver is shutting down, as at the end of a process"),
    (201, "this thread has no current context, or the context was destroyed or is of the wrong kind"),
    (202, "the context is current already"),
    (216, "another context has exclusive use of this device"),
    (400, "no such stream, event, module or other object: not created, destroyed, or of another context"),
    (500, "nothing has this name: no such kernel, variable or texture in the module"),
    (708, "the primary context is in use and cannot be changed any more"),
    (916, "the key that protects device memory is being renewed"),
];

static RUNTIME_ALONE: &[(i64, &str)] = &[
    (3, "driver or runtime could not be initialised"),
    (4, "the runtime is shutting down: it was called while the process ends"),
    (9, "a launch has an invalid configuration: grid, block or shared memory too large, or zero"),
    (10, "the driver's answer has no counterpart in this runtime, which is older or newer"),
    (12, "the pitch of a 2D copy is too large or smaller than its rows"),
    (13, "no such variable of the device, or its name or address is wrong"),
    (16, "a host pointer is wrong: not from cudaHostAlloc or cudaHostRegister"),
    (17, "a device pointer is wrong: not memory of this device"),
    (18, "not a texture"),
    (19, "the texture is not bound"),
    (20, "a channel format that does not exist or does not fit"),
    (21, "the direction of a copy is none of the known ones or does not fit the pointers"),
    (22, "the address of a constant was taken where that was not possible"),
    (23, "a texture could not be read"),
    (24, "a texture was not bound when it was needed"),
    (25, "waiting for the device failed"),
    (26, "this texture does not support the filter mode"),
    (27, "this texture does not support normalised reads"),
    (28, "code for the device and its emulation were mixed"),
    (31, "not implemented yet"),
    (32, "an emulated device pointer does not fit 32 bits"),
    (35, "the driver is too old for this runtime"),
    (37, "not a surface"),
    (43, "two modules have a variable of the same name"),
    (44, "two modules have a texture of the same name"),
    (45, "two modules have a surface of the same name"),
    (49, "the runtime cannot use the current context, such as one of an older driver API"),
    (52, "a launch without its configuration"),
    (53, "a launch before this one has failed"),
    (65, "kernels that launch kernels nest too deep"),
    (66, "a kernel launched by a kernel uses a texture of file scope"),
    (67, "a kernel launched by a kernel uses a surface of file scope"),
    (68, "kernels that launch kernels wait for each other too deep"),
    (69, "too many launches by kernels are pending: raise cudaLimitDevRuntimePendingLaunchCount"),
    (98, "no such kernel for this device: built for another architecture, or its code is not in the program"),
    (103, "self-tests of the driver or the runtime have failed"),
    (127, "the runtime failed within itself while it started"),
    (201, "the device has no usable context: reset, or a context of the wrong kind is current"),
    (216, "another thread or process has exclusive use of this device"),
    (400, "no such stream, event or other object: not created, destroyed, or of another device"),
    (500, "nothing has this name: no such symbol in the program's device code"),
    (708, "the device is in use already and its flags cannot be changed"),
    (10000, "an error of the driver that this runtime does not define"),
];

/// Values with the same meaning in driver and runtime.
static BOTH: &[(i64, &str)] = &[
    (0, "no error"),
    (1, "an argument is out of its range: NULL, zero, too large, or one that does not fit the others"),
    (2, "no memory is left of the kind that was asked for, on the device or the host"),
    (5, "the profiler is off in this run, so it cannot be started or stopped"),
    (6, "the profiler was not set up"),
    (7, "the profiler runs already"),
    (8, "the profiler does not run"),
    (34, "a stub library is loaded instead of the real one: check the library path"),
    (36, "this function needs a newer driver"),
    (46, "no device is available: busy, in exclusive mode, or off"),
    (47, "no room is left for multicast objects"),
    (100, "there is no CUDA device, or none is visible: check CUDA_VISIBLE_DEVICES and the driver"),
    (101, "no device has this number, or it does not support the request"),
    (102, "the device has no license"),
    (200, "the code to load is no valid GPU image: damaged, or in no supported format (PTX, cubin, fatbin)"),
    (205, "a buffer could not be mapped"),
    (206, "a buffer could not be unmapped"),
    (207, "the array is mapped and cannot be destroyed"),
    (208, "the resource is mapped already"),
    (209, "no code for this GPU: the program was built for other architectures and has no PTX that fits"),
    (210, "the resource was acquired already"),
    (211, "the resource is not mapped"),
    (212, "the resource is not mapped as an array"),
    (213, "the resource is not mapped as a pointer"),
    (214, "memory of the device is damaged: an ECC error that cannot be corrected; the process must end"),
    (215, "the device has no such limit"),
    (217, "these devices cannot reach each other's memory"),
    (218, "the PTX code does not compile"),
    (219, "a problem with an OpenGL or DirectX context"),
    (220, "NVLink has an error that cannot be corrected; the process must end"),
    (221, "PTX must be compiled and the library of the compiler is missing"),
    (222, "the PTX code is of a newer version than this driver compiles: update the driver"),
    (223, "PTX must be compiled, which is disabled"),
    (224, "the device does not support this execution affinity"),
    (225, "the code waits for the device inside a kernel, which this device does not support"),
    (226, "an error was contained to this process, whose work on the device is lost; the process must end"),
    (227, "the loader of this driver is too old for the code"),
    (300, "the source of the code is wrong"),
    (301, "no such file"),
    (302, "a shared library lacks a symbol that is needed"),
    (303, "a shared library could not be set up"),
    (304, "the operating system refused a call"),
    (401, "the object is not in a state for this"),
    (402, "the result cannot be returned without loss"),
    (600, "not completed yet: the result of a query, no error"),
    (700, "a kernel accessed invalid memory; every further call fails, and the process must end"),
    (701, "the launch needs more registers, shared memory or threads than there are"),
    (702, "a kernel ran for too long and was stopped; the process must end"),
    (703, "the kernel's use of textures does not fit the context"),
    (704, "access to the other device's memory is on already"),
    (705, "access to the other device's memory is not on"),
    (709, "the context was destroyed, or its primary context was reset"),
    (710, "an assertion of a kernel did not hold; the process must end"),
    (711, "no resources are left for access to other devices"),
    (712, "this host memory is registered already"),
    (713, "this host memory is not registered"),
    (714, "the device's stack is broken or overflowed; the process must end"),
    (715, "a kernel executed an invalid instruction; the process must end"),
    (716, "a kernel used an address that is not aligned as it must be; the process must end"),
    (717, "a kernel used an address of the wrong kind of memory; the process must end"),
    (718, "a kernel jumped to an address without code; the process must end"),
    (719, "a kernel failed for an unknown reason; the process must end"),
    (720, "a cooperative launch has more blocks than can run at once"),
    (721, "a kernel ended without freeing its tensor memory"),
    (800, "not permitted"),
    (801, "not supported by this device, driver or platform"),
    (802, "the system is not ready: services such as Fabric Manager are still starting"),
    (803, "kernel driver and user library are of different versions: reboot, or reload the driver"),
    (804, "the compatibility package does not support this GPU"),
    (805, "the MPS control daemon or server cannot be reached"),
    (806, "the MPS server rejected the request or did not answer"),
    (807, "the MPS server is not ready, for example after an error of a client: try again"),
    (808, "MPS has no room for another client"),
    (809, "MPS has no room for another connection to the device"),
    (810, "the MPS server ended this client"),
    (811, "this program launches kernels from kernels, which is not supported here"),
    (812, "two parts of the program launch kernels from kernels in incompatible versions"),
    (900, "a stream that is being captured cannot do this"),
    (901, "an earlier error has invalidated the capture"),
    (902, "this would join two captures"),
    (903, "this stream is not the one whose capture began"),
    (904, "the capture ends while a forked stream has not joined it again"),
    (905, "the captured work would depend on work outside of it"),
    (906, "the default stream would become part of a capture, which is not supported"),
    (907, "the event was last recorded in a capture"),
    (908, "the capture was begun by another thread"),
    (909, "the operation timed out"),
    (910, "the graph has changed too much for its instance to be updated"),
    (911, "an operation failed on another device"),
    (912, "the launch has an unsupported cluster size"),
    (913, "the kernel has not been loaded yet"),
    (914, "a resource of the wrong type"),
    (915, "a resource that is not configured for this"),
    (917, "the stream was detached from its context"),
    (918, "the graph could not be captured again"),
    (919, "the fabric between devices is not ready"),
    (999, "unknown: something failed within the driver"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::enum_def;

    #[test]
    fn every_result_of_driver_and_runtime_has_words() {
        for results in [DRIVER, RUNTIME] {
            let known = enum_def(find_enum(results.name).expect("in the tables"));
            for (name, value) in known.variants {
                assert!(results.text(*value).is_some(), "{name} ({value}) has no words");
            }
        }
    }

    #[test]
    fn answers_that_mean_not_yet_are_fine_by_name() {
        let fine =
            ["CUDA_SUCCESS", "cudaSuccess", "CUDA_ERROR_NOT_READY", "cudaErrorNotReady", "ncclInProgress"];
        assert!(fine.into_iter().all(is_fine));
        assert!(
            !["CUDA_ERROR_INVALID_VALUE", "cudaErrorUnknown", "ncclSystemError", ""].into_iter().any(is_fine)
        );
    }

    #[test]
    fn results_after_the_shutdown_exist() {
        for (results, name) in [DRIVER, RUNTIME].iter().zip(AFTER_SHUTDOWN) {
            let known = enum_def(find_enum(results.name).expect("in the tables"));
            assert!(known.variants.iter().any(|(known, _)| *known == name), "{name}");
        }
    }

    #[test]
    fn words_belong_to_results_that_exist() {
        for (results, table) in [(DRIVER, DRIVER_ALONE), (RUNTIME, RUNTIME_ALONE)] {
            let known = enum_def(find_enum(results.name).expect("in the tables"));
            table.iter().for_each(|(value, _)| assert!(known.name_of(*value).is_some(), "{value}"));
        }
        assert_eq!(DRIVER.text(9), None);
        assert_eq!(DRIVER.text(4242), None);
    }

    #[test]
    fn words_fit_a_line() {
        for (value, text) in BOTH.iter().chain(DRIVER_ALONE).chain(RUNTIME_ALONE) {
            assert!(text.len() < 120 && !text.ends_with('.') && !text.contains('\n'), "{value}: {text}");
        }
        for table in [BOTH, DRIVER_ALONE, RUNTIME_ALONE] {
            assert!(table.windows(2).all(|pair| pair[0].0 < pair[1].0), "sorted, each once");
        }
    }

    #[test]
    fn results_that_are_no_failures_exist() {
        for results in RESULTS {
            let known = enum_def(find_enum(results.name).expect("in the tables"));
            results.fine.iter().for_each(|value| assert!(known.name_of(*value).is_some(), "{value}"));
        }
    }
}

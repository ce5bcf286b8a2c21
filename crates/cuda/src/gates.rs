//! Functions of the driver that a running program is sure to call, and by whose calls it can be made to load a library.
//!
//! Any CUDA program calls some of them all the time: launches, copies, waits, and the queries of contexts by which the runtime begins its
//! calls. The driver does not call them itself by these symbols, nor calls the program from within them while it holds a lock. So a call
//! comes from ordinary code of the program. Functions that are called once, as `cuInit` is, would come too late. Those that create contexts are here
//! since nothing was launched before them.
//!
//! Symbols of a family are called alike: `cuMemcpy` stands for `cuMemcpy_ptds` too.

use crate::library::Library;

const FAMILIES: &[&str] = &[
    "cuCtxCreate",
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxPopCurrent",
    "cuCtxPushCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDevicePrimaryCtxGetState",
    "cuDevicePrimaryCtxRetain",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuGraphLaunch",
    "cuLaunchCooperativeKernel",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuMemAlloc",
    "cuMemAllocAsync",
    "cuMemFree",
    "cuMemFreeAsync",
    "cuMemcpy",
    "cuMemcpy2D",
    "cuMemcpy2DAsync",
    "cuMemcpyAsync",
    "cuMemcpyDtoD",
    "cuMemcpyDtoDAsync",
    "cuMemcpyDtoH",
    "cuMemcpyDtoHAsync",
    "cuMemcpyHtoD",
    "cuMemcpyHtoDAsync",
    "cuMemcpyPeer",
    "cuMemcpyPeerAsync",
    "cuMemsetD16",
    "cuMemsetD16Async",
    "cuMemsetD32",
    "cuMemsetD32Async",
    "cuMemsetD8",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuPointerGetAttribute",
    "cuPointerGetAttributes",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

/// Whether a symbol of the driver is one of these functions.
pub fn is_gate(symbol: &str) -> bool {
    FAMILIES.binary_search(&crate::base_name(Library::Driver, symbol)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_its_functions_exist() {
        assert!(FAMILIES.is_sorted());
        for family in FAMILIES {
            let has_signature = crate::signatures(Library::Driver, 12).any(|one| is_of(one.name, family));
            assert!(has_signature, "{family}");
        }
    }

    fn is_of(symbol: &str, family: &str) -> bool {
        crate::base_name(Library::Driver, symbol) == family
    }

    #[test]
    fn all_symbols_of_a_family_are_gates() {
        assert!(
            ["cuLaunchKernel_ptsz", "cuMemAlloc_v2", "cuMemcpyHtoDAsync_v2_ptsz"].map(is_gate) == [true; 3]
        );
        assert!(!is_gate("cuInit") && !is_gate("cuCtxDestroy_v2"));
    }
}

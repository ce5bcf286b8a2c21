//! The library that is loaded into a traced process. It collects the records of CUPTI (NVIDIA's library for tools), which it finds in
//! the process or at a path from the tracer, and passes them in batches to empty functions, on which the tracer has probes.
//!
//! Ranges of NVTX and operators of PyTorch come by functions of their own ([`ranges`], [`operators`]).
//!
//! There are two ways in: the driver loads the library by `CUDA_INJECTION64_PATH` and calls [`InitializeInjection`]; or a
//! thread that the tracer has started by a call of the program loads it and calls [`cudatrace_attach`]. Both start one thread, which holds a socket to the tracer and ends when the tracer does.
//!
//! The library uses neither Rust's standard library nor its allocator, and its symbols of the C library have no version: it runs with
//! any C library that the process has.

#![no_std]
#![allow(non_upper_case_globals, non_snake_case)]

#[path = "../kind_set.rs"]
mod kind_set;
#[path = "../message.rs"]
mod message;
#[macro_use]
#[path = "../record.rs"]
mod record;

mod activity;
mod api_exit;
mod batch;
mod buffers;
mod clock;
mod collection;
mod copies;
mod counts;
mod cupti;
mod devices;
mod driver;
mod forks;
mod graphs;
mod idle;
mod launches;
mod leaving;
mod names;
mod operators;
mod presence;
mod ranges;
mod sys;
mod thread_id;
mod threads;
mod tracer;
mod waiting;
mod waits;

use collection::DriverState;
use core::ffi::c_int;

/// Where the tracer listens, which writes it into the file before a process loads it.
#[unsafe(no_mangle)]
#[used]
pub static cudatrace_tracer: tracer::TracerAddress = tracer::TracerAddress::none();

/// Called by the driver in `cuInit`.
///
/// # Safety
/// The caller is the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjection() -> c_int {
    tracer::load_next(&cudatrace_tracer);
    if let Some(socket) = tracer::connect(&cudatrace_tracer) {
        collection::start(socket, &tracer::hello(&cudatrace_tracer), DriverState::Initializes);
    }
    1
}

/// Called by each library of the program that uses NVTX, at its first call: see [`ranges`].
///
/// # Safety
/// The caller is NVTX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(get: ranges::GetTable) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { ranges::hook(get) }
}

/// Called by a thread that exists only for that; calls of the driver wait until it has returned. `socket` is connected to the tracer. Returns 0, or
/// an error number.
///
/// # Safety
/// The caller owns `socket`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudatrace_attach(socket: c_int) -> c_int {
    collection::start(sys::Descriptor(socket), &tracer::hello(&cudatrace_tracer), DriverState::Runs)
}

/// Never called: nothing here panics on purpose, and a panic must not unwind into CUPTI.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: no arguments.
    unsafe { sys::abort() }
}

//! The gate keeps all registers, also the vector registers that the program's `pthread_create` may use, and claims a request once.
#![cfg(target_arch = "x86_64")]

use native::layout::PAGE;
use native::load::{self, Functions, REQUESTED, Request, VectorState};
use native::object::Object;
use native::{CpuNumber, Environment, Layout, Process, ThreadId, TimeSource};
use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::sync::atomic::{AtomicU32, Ordering};

/// x87, SSE, AVX, and the components of AVX-512.
const COMPONENTS: u64 = 0xe7;
const AREA: usize = 4096;
/// Offsets of the x87 and SSE registers.
const LEGACY: std::ops::Range<usize> = 32..416;

#[repr(C, align(64))]
struct Area([u8; AREA]);

static CALLS: AtomicU32 = AtomicU32::new(0);

/// Overwrites registers as a function may, and fails: no thread is started.
unsafe extern "C" fn pthread_create() -> i32 {
    CALLS.fetch_add(1, Ordering::Relaxed);
    let mut zeros = Area([0; AREA]);
    // MXCSR has no initial state: all exceptions are masked.
    zeros.0[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
    // SAFETY: an area of zeros is the initial state.
    unsafe {
        asm!("xrstor64 [{area}]", area = in(reg) &raw const zeros, in("rax") COMPONENTS, in("rdx") 0, out("rcx") _, out("rsi") _,
             out("rdi") _, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    libc::EAGAIN
}

/// A region with the gate; returns its address and that of the gate.
fn region() -> (u64, u64) {
    let object = Object::default();
    let (layout, placement) = Layout::new(&object, 1);
    let environment = Environment::Process(Process {
        cpus: 1,
        cpu: CpuNumber::Segment,
        thread: ThreadId::Word,
        time: TimeSource::Asked,
        unwind: None,
    });
    let image = native::translate(&object, &layout, &placement, &environment, layout.code).unwrap();
    let at = image.end().next_multiple_of(16);
    let gate = load::gate(at, &image, VectorState::Xsave);
    let size = (at + gate.len() as u64).next_multiple_of(PAGE) as usize;
    let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, in which there is room for the code.
    unsafe {
        let base = libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0);
        assert_ne!(base, libc::MAP_FAILED);
        let base = base.cast::<u8>();
        for (offset, code) in [(image.start, &image.code), (at, &gate)] {
            std::ptr::copy_nonoverlapping(code.as_ptr(), base.add(offset as usize), code.len());
        }
        (base as u64, base as u64 + at)
    }
}

/// Parts of the area that this processor has.
fn parts() -> Vec<std::ops::Range<usize>> {
    // SAFETY: the processor has XSAVE.
    let enabled = unsafe { _xgetbv(0) } & COMPONENTS;
    let further = (2..64).filter(|bit| enabled >> bit & 1 == 1).map(|bit| {
        let found = __cpuid_count(0xd, bit);
        found.ebx as usize..(found.ebx + found.eax) as usize
    });
    std::iter::once(LEGACY).chain(further).collect()
}

#[test]
fn registers_are_kept_and_a_request_is_claimed_once() {
    if !is_x86_feature_detected!("xsave") {
        return;
    }
    let (base, gate) = region();
    let functions = Functions {
        pthread_create: pthread_create as *const () as u64,
        pthread_detach: 0,
        dlopen: 0,
        dlsym: 0,
        blocked: u64::MAX,
    };
    let none = load::Descriptor { number: u32::MAX, file: (0, 0) };
    let request = Request { library: none, socket: none, functions, symbol: "f", path: "/" }.to_bytes();
    let word = |offset: u64| {
        // SAFETY: an aligned word of the region.
        unsafe { &*((base + offset) as *const AtomicU32) }
    };
    // SAFETY: room for the words.
    unsafe {
        let to = (base + load::DESCRIPTORS) as *mut u8;
        std::ptr::copy_nonoverlapping(request.as_ptr(), to, request.len());
    }
    word(load::STATE).store(REQUESTED, Ordering::Relaxed);

    let (mut before, mut after) = (Box::new(Area([0; AREA])), Box::new(Area([0; AREA])));
    // SAFETY: room for the state.
    unsafe {
        asm!("xsave64 [{area}]", area = in(reg) before.0.as_mut_ptr(), in("rax") COMPONENTS, in("rdx") 0);
    }
    for (number, at) in parts().into_iter().flatten().enumerate() {
        // The last six bytes of an x87 register's place are reserved.
        let is_reserved = at < 160 && at % 16 >= 10;
        before.0[at] = if is_reserved { 0 } else { (number % 251) as u8 + 1 };
    }
    // SAFETY: the processor has XSAVE.
    let enabled = unsafe { _xgetbv(0) } & COMPONENTS;
    before.0[512..520].copy_from_slice(&enabled.to_le_bytes());
    for _ in 0..2 {
        let mut registers: [u64; 7] = [1, 2, 3, 4, 5, 6, 7];
        let [rcx, rsi, rdi, r8, r9, r10, r11] = &mut registers;
        // SAFETY: the gate keeps all registers; what it calls only fails.
        unsafe {
            asm!(
                "xrstor64 [r12]", "call r14", "xsave64 [r13]", "emms",
                in("r12") before.0.as_ptr(), in("r13") after.0.as_mut_ptr(), in("r14") gate,
                in("rax") COMPONENTS, in("rdx") 0, inout("rcx") *rcx, inout("rsi") *rsi, inout("rdi") *rdi,
                inout("r8") *r8, inout("r9") *r9, inout("r10") *r10, inout("r11") *r11,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _, out("xmm14") _,
                out("xmm15") _,
            );
        }
        assert_eq!(registers, [1, 2, 3, 4, 5, 6, 7]);
        for part in parts() {
            assert_eq!(before.0[part.clone()], after.0[part.clone()], "{part:?}");
        }
    }
    let state = [load::STATE, load::RUNNING].map(|offset| word(offset).load(Ordering::Relaxed));
    assert_eq!((state, CALLS.load(Ordering::Relaxed)), ([0, 0], 1));
}

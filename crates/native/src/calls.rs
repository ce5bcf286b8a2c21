//! Calls of helpers: what the kernel does for a BPF program, done in the traced process.
//!
//! The arguments are in rdi, rsi, rdx, rcx and r8, as for a C function; the result is in rax. The short ones are generated here, the
//! others are functions of `helpers/helpers.c`.

use crate::context;
use crate::layout::{self, MapPlace};
use crate::registers::{AUX, CPU};
use crate::translator::Translator;
use crate::x86::{Assembler, Cond, Mem, Op, Reg, Shift, Width};
use crate::{CpuNumber, Environment, Process, ThreadId, TimeSource};

/// Machine code of `helpers/helpers.c`.
pub(crate) const CODE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/helpers.bin"));

/// Its functions: names with offsets, and the index of each.
#[allow(missing_docs)]
pub(crate) mod function {
    include!(concat!(env!("OUT_DIR"), "/helpers.rs"));
}

/// The flags of a record's header, see `ring.c`.
const BUSY: u32 = 0x8000_0000;
const DISCARD: u32 = 0x4000_0000;

/// Helpers with a place in the table at [`layout::REPLACED`]. A loop over a map is among them since its order is arbitrary.
const REPLACED: &[u32] = &[5, 7, 14, 15, 16, 42, 67, 80, 109, 112, 114, 117, 118, 120, 125, 164];

const EFAULT: i64 = 14;
const CLOCK_MONOTONIC: u64 = 1;
const CLOCK_BOOTTIME: u64 = 7;
const SYS_GETPID: u64 = 39;
const SYS_GETUID: u64 = 102;
const SYS_GETGID: u64 = 104;

/// Generates a call of a kernel function; false if it has no counterpart here.
pub(crate) fn kfunc(at: &mut Translator, name: &str) -> bool {
    let context = |offset: i32| Mem::At(Reg::RDI, offset);
    match name {
        // Every run has a stack of its own.
        "bpf_preempt_disable" | "bpf_preempt_enable" => {}
        "bpf_session_is_return" => at.asm.load(Width::W32, Reg::RAX, context(context::IS_RETURN)),
        "bpf_session_cookie" => at.asm.load(Width::W64, Reg::RAX, context(context::SESSION)),
        wire::features::VECTOR => {
            at.asm.shift(Shift::Left, true, Reg::RSI, 3);
            at.asm.alu(Op::Add, true, Reg::RSI, Reg::RDI);
            at.asm.load(Width::W64, Reg::RAX, Mem::At(Reg::RSI, context::VECTORS));
        }
        wire::features::PROGRAM_NAME => program_name(at),
        wire::features::PROCESS_NAME => process_name(at),
        wire::unwind::FIND_RULE => find_rule(at),
        wire::unwind::TELL_UNKNOWN => {
            at.asm.lea(Reg::RSI, Mem::Region(layout::UNKNOWN));
            call(at, function::TELL_UNKNOWN);
        }
        wire::python::THREAD_POINTER if is_tracer(at) => at.asm.mov_imm(Reg::RAX, 0),
        wire::python::THREAD_POINTER => {
            at.asm.lea(Reg::RDI, Mem::Region(0));
            call(at, function::THREAD_POINTER);
        }
        wire::unwind::READ_WORD if is_tracer(at) => at.asm.mov_imm(Reg::RAX, -EFAULT as u64),
        wire::unwind::READ_WORD => {
            at.asm.lea(Reg::R8, Mem::Region(0));
            process_id(at.asm);
            call(at, function::READ_WORD);
        }
        _ => return false,
    }
    true
}

/// Generates a call of a helper by its number; false if it has no counterpart here.
pub(crate) fn helper(at: &mut Translator, number: u32) -> bool {
    let environment = at.context.environment;
    match number {
        1 => lookup(at),
        2 => with_cpu(at, function::MAP_UPDATE),
        3 => with_cpu(at, function::MAP_DELETE),
        113 => read_own(at, function::READ_OWN),
        115 => read_own(at, function::READ_OWN_STRING),
        130 => call(at, function::RING_OUTPUT),
        131 => call(at, function::RING_RESERVE),
        132 => at.asm.alu_mem_imm(Op::And, false, Mem::At(Reg::RDI, -8), !BUSY as i32),
        133 => at.asm.alu_mem_imm(Op::Xor, false, Mem::At(Reg::RDI, -8), (BUSY | DISCARD) as i32),
        164 if matches!(environment, Environment::Process(_)) => with_cpu(at, function::FOR_EACH),
        174 => at.asm.load(Width::W64, Reg::RAX, Mem::At(Reg::RDI, context::COOKIE)),
        181 => {
            at.asm.lea(Reg::R8, Mem::Region(0));
            call(at, function::REPEAT);
        }
        195 => call(at, function::MAP_LOOKUP_PERCPU),
        8 => {
            cpu(at.asm, environment, Reg::RAX);
        }
        _ => match environment {
            Environment::Process(process) => return of_process(at, process, number),
            Environment::Replaced { .. } if !REPLACED.contains(&number) => return false,
            Environment::Replaced { .. } => {
                at.asm.call_mem(Mem::Region(layout::REPLACED + 8 * u64::from(number)));
            }
        },
    }
    true
}

/// End of "only the kernel ...", for a helper that scripts use and that has no counterpart here.
pub(crate) fn only_kernel(number: u32) -> Option<&'static str> {
    match number {
        35 | 37 => Some("has its tasks"),
        80 => Some("knows control groups"),
        109 | 117 => Some("sends signals in a probe"),
        _ => None,
    }
}

/// Helpers that tell something about the process and the time.
fn of_process(at: &mut Translator, process: &Process, number: u32) -> bool {
    match number {
        5 if process.time == TimeSource::Counter => time(at.asm, false),
        125 if process.time == TimeSource::Counter => time(at.asm, true),
        5 => asked_time(at, CLOCK_MONOTONIC),
        125 => asked_time(at, CLOCK_BOOTTIME),
        14 => process_and_thread(at, process.thread),
        15 => user_and_group(at.asm),
        16 if process.thread == ThreadId::Word => {
            process_name(at);
            at.asm.mov_imm(Reg::RAX, 0);
        }
        16 => call(at, function::GET_COMM),
        112 | 114 if process.is_tracer() => call(at, function::READ_NOTHING),
        112 | 114 => {
            process_id(at.asm);
            call(at, if number == 112 { function::READ_USER } else { function::READ_USER_STRING });
        }
        _ => return false,
    }
    true
}

/// Copies the name of the executed file.
fn program_name(at: &mut Translator) {
    let name = at.context.layout.code;
    for offset in (0..layout::PROGRAM_NAME_SIZE).step_by(8) {
        at.asm.load(Width::W64, AUX, Mem::Region(name + offset));
        at.asm.store(Width::W64, Mem::At(Reg::RDI, offset as i32), AUX);
    }
}

/// Copies the name of the process.
fn process_name(at: &mut Translator) {
    let names = at.context.layout.code;
    at.asm.lea(Reg::RSI, Mem::Region(names + layout::PROCESS_NAMES));
    at.asm.alu_load(Op::Add, true, Reg::RSI, Mem::Region(names + layout::PROCESS_NAME_NUMBER));
    for offset in (0..layout::PROCESS_NAME_SIZE as i32).step_by(8) {
        at.asm.load(Width::W64, AUX, Mem::At(Reg::RSI, offset));
        at.asm.store(Width::W64, Mem::At(Reg::RDI, offset), AUX);
    }
}

/// Looks for the unwind rule of an address.
fn find_rule(at: &mut Translator) {
    let unwind = match at.context.environment {
        Environment::Process(process) => process.unwind,
        Environment::Replaced { .. } => None,
    };
    let Some(unwind) = unwind else { return at.asm.mov_imm(Reg::RAX, 0) };
    at.asm.mov_imm(Reg::RCX, unwind.tables);
    at.asm.lea(Reg::R8, Mem::Region(layout::UNKNOWN));
    at.asm.lea(Reg::R9, Mem::Region(unwind.returns));
    call(at, function::FIND_RULE);
}

/// Whether programs run in the tracer.
fn is_tracer(at: &Translator) -> bool {
    matches!(at.context.environment, Environment::Process(process) if process.is_tracer())
}

/// Reads memory of the region, or of the programs' stack.
fn read_own(at: &mut Translator, function: usize) {
    at.asm.lea(Reg::RCX, Mem::Region(0));
    at.asm.lea_code(Reg::R8, at.context.end);
    call(at, function);
}

fn call(at: &mut Translator, function: usize) {
    at.asm.call(at.context.helpers[function]);
}

fn with_cpu(at: &mut Translator, function: usize) {
    cpu(at.asm, at.context.environment, CPU);
    call(at, function);
}

/// Generates the number of the CPU, always below the number of possible CPUs: the kernel's word in thread-local memory is -1 while a
/// thread is not registered.
fn cpu(asm: &mut Assembler, environment: &Environment, to: Reg) {
    let cpus = match environment {
        Environment::Process(process) => {
            match process.cpu {
                CpuNumber::Rseq(offset) => asm.load(Width::W32, to, Mem::Thread(offset + 4)),
                CpuNumber::Rdpid => {
                    asm.rdpid(to);
                    asm.alu_imm(Op::And, false, to, 0xfff);
                }
                CpuNumber::Segment => {
                    // GDT_ENTRY_CPUNODE with privilege level 3
                    asm.mov_imm(to, 0x7b);
                    asm.lsl(to, to);
                    asm.alu_imm(Op::And, false, to, 0xfff);
                }
            }
            process.cpus
        }
        Environment::Replaced { cpus } => {
            asm.load(Width::W32, to, Mem::Region(layout::CPU));
            *cpus
        }
    };
    asm.alu_imm(Op::Cmp, false, to, cpus as i32);
    asm.alu(Op::Sbb, false, AUX, AUX);
    asm.alu(Op::And, false, to, AUX);
}

/// Looks up a key. In an array that is known this is a few instructions.
fn lookup(at: &mut Translator) {
    let known = at.map.map(|map| at.context.map(map)).filter(|map| map.def.kind.is_array());
    match known {
        Some(map) => cell_of_array(at.asm, at.context.environment, map),
        None => with_cpu(at, function::MAP_LOOKUP),
    }
}

fn cell_of_array(asm: &mut Assembler, environment: &Environment, map: &MapPlace) {
    let (outside, done) = (asm.label(), asm.label());
    asm.load(Width::W32, Reg::RAX, Mem::At(Reg::RSI, 0));
    asm.alu_imm(Op::Cmp, false, Reg::RAX, map.def.max_entries as i32);
    asm.jcc(Cond::AboveEqual, outside);
    asm.imul_imm(true, Reg::RAX, Reg::RAX, map.stride as i32);
    if map.cpus > 1 {
        cpu(asm, environment, CPU);
        asm.imul_imm(true, CPU, CPU, map.cpu_size as i32);
        asm.alu(Op::Add, true, Reg::RAX, CPU);
    }
    asm.lea(AUX, Mem::Region(map.cells));
    asm.alu(Op::Add, true, Reg::RAX, AUX);
    asm.jmp(done);
    asm.bind(outside);
    asm.alu(Op::Xor, false, Reg::RAX, Reg::RAX);
    asm.bind(done);
}

/// Nanoseconds of the monotonic or the boot clock, from the time stamp counter.
fn time(asm: &mut Assembler, boot: bool) {
    asm.load(Width::W64, AUX, Mem::Region(layout::CLOCK_NUMBER));
    // Each traced process can write the word.
    asm.alu_imm(Op::And, false, AUX, 1);
    asm.shift(crate::x86::Shift::Left, true, AUX, layout::CLOCK_SIZE.trailing_zeros() as u8);
    asm.lea(CPU, Mem::Region(layout::CLOCKS));
    asm.alu(Op::Add, true, AUX, CPU);
    asm.rdtsc();
    asm.shift(crate::x86::Shift::Left, true, Reg::RDX, 32);
    asm.alu(Op::Or, true, Reg::RAX, Reg::RDX);
    asm.mul_mem(Mem::At(AUX, 0));
    asm.shrd(Reg::RAX, Reg::RDX, 32);
    asm.alu_load(Op::Add, true, Reg::RAX, Mem::At(AUX, 8));
    if boot {
        asm.alu_load(Op::Add, true, Reg::RAX, Mem::Region(layout::BOOT_AHEAD));
    }
}

fn asked_time(at: &mut Translator, clock: u64) {
    at.asm.mov_imm(Reg::RDI, clock);
    call(at, function::CLOCK_NS);
}

/// rax = tgid << 32 | tid
fn process_and_thread(at: &mut Translator, thread: ThreadId) {
    match thread {
        ThreadId::Stored(offset) => at.asm.load(Width::W32, Reg::RAX, Mem::Thread(offset)),
        ThreadId::Asked { expected_at } => {
            at.asm.lea(Reg::RDI, Mem::Region(0));
            at.asm.mov_imm(Reg::RSI, expected_at.into());
            call(at, function::THREAD_ID);
        }
        ThreadId::Word => at.asm.load(Width::W32, Reg::RAX, Mem::Region(layout::TID)),
    }
    let asm = &mut *at.asm;
    asm.mov(false, Reg::RDX, Reg::RAX);
    process_id(asm);
    asm.mov(true, Reg::RAX, CPU);
    asm.shift(crate::x86::Shift::Left, true, Reg::RAX, 32);
    asm.alu(Op::Or, true, Reg::RAX, Reg::RDX);
}

/// r9 = tgid; keeps rdi, rsi, rdx, rcx and r8. A child of `fork` asks once and stores the answer.
fn process_id(asm: &mut Assembler) {
    let known = asm.label();
    asm.load(Width::W32, CPU, Mem::Region(layout::TGID));
    asm.test(false, CPU, CPU);
    asm.jcc(Cond::NotEqual, known);
    asm.push(Reg::RCX);
    asm.mov_imm(Reg::RAX, SYS_GETPID);
    asm.syscall();
    asm.pop(Reg::RCX);
    asm.store(Width::W32, Mem::Region(layout::TGID), Reg::RAX);
    asm.mov(false, CPU, Reg::RAX);
    asm.bind(known);
}

/// rax = gid << 32 | uid
fn user_and_group(asm: &mut Assembler) {
    asm.mov_imm(Reg::RAX, SYS_GETGID);
    asm.syscall();
    asm.mov(false, CPU, Reg::RAX);
    asm.mov_imm(Reg::RAX, SYS_GETUID);
    asm.syscall();
    asm.mov(false, Reg::RAX, Reg::RAX);
    asm.shift(crate::x86::Shift::Left, true, CPU, 32);
    asm.alu(Op::Or, true, Reg::RAX, CPU);
}

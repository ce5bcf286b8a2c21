//! A BPF machine in user space. It runs the programs of an object and traps where the kernel would refuse to load them, and on
//! errors that the kernel does not detect: scratch memory of an earlier run, a record with stale padding.
//!
//! Not here: attaching programs, reading records (`session`).

mod alu;
mod helpers;
mod maps;
mod memory;
mod trap;

pub use alu::{alu, condition};
pub use maps::Map;
pub use memory::{Kind, Memory, RegionId};
pub use native::object::{Insn, LoadError, MapDef, MapKind, Object};
pub use trap::{Fault, Trap};

use crate::rng::Rng;
use crate::world::{self, Moment, Regs};
use native::object::{self, insn};

/// MAX_BPF_STACK
const STACK: u64 = 512;
/// The JIT rounds each function's stack up to a multiple of this number of bytes.
const STACK_STEP: u64 = 16;
/// MAX_CALL_FRAMES
const FRAMES: usize = 8;
/// Difference of the boot clock to the monotonic clock in ns, which detects a program that confuses them.
pub const BOOT_AHEAD_NS: u64 = 7_000_000_000;

/// Environment of one run of a program.
#[derive(Clone, Debug)]
pub struct Hit<'a> {
    /// Thread and time.
    pub moment: &'a Moment,
    /// User memory.
    pub user: &'a world::Memory,
    /// Bytes of the program's context.
    pub context: Vec<u8>,
    /// Attach cookie.
    pub cookie: u64,
    /// Address of the session cookie, and whether this is the return.
    pub session: Option<(u64, bool)>,
}

/// The context of a function probe: bytes of `struct pt_regs`.
pub fn context(regs: &Regs) -> Vec<u8> {
    regs.0.iter().flat_map(|r| r.to_le_bytes()).collect()
}

/// BPF machine; see the module documentation.
#[derive(Debug)]
pub struct Machine {
    object: Object,
    /// All regions.
    pub memory: Memory,
    maps: Vec<Map>,
    map_handles: Vec<RegionId>,
    code_handles: Vec<RegionId>,
    task: Task,
    data: Vec<Option<RegionId>>,
    /// Records that are reserved but not submitted, with their ring buffer.
    open: Vec<(RegionId, usize)>,
    /// Source of `bpf_get_prandom_u32`.
    rng: Rng,
    /// Largest number of instructions per run.
    pub limit: u64,
    /// Number of instructions of the last run.
    pub executed: u64,
    /// Signals that programs have sent.
    pub signals: Vec<crate::outcome::Signal>,
}

/// The interrupted task. The registers at its kernel entry are unknown.
#[derive(Debug)]
struct Task {
    handle: RegionId,
    regs: RegionId,
}

/// Frame of a running function.
struct Frame {
    function: usize,
    regs: [Option<u64>; 11],
    stack: RegionId,
    /// Lowest used offset of the stack.
    depth: u64,
    pc: usize,
}

/// State of a run of a program.
struct Run<'a> {
    hit: &'a Hit<'a>,
    context: RegionId,
    /// Stack size of the callers, in bytes.
    stack: u64,
    frames: usize,
    /// Function and instruction of the innermost trap.
    at: Option<(usize, usize)>,
    preemption_forbidden: bool,
}

/// Limit of instructions per run: generated scripts have nested loops, none of them endless.
const INSTRUCTIONS: u64 = 100_000_000;

impl Machine {
    /// Creates a machine with a loaded object. `rand` seeds `bpf_get_prandom_u32`.
    pub fn new(object: Object, cpus: u32, rand: u64) -> Machine {
        let mut memory = Memory::default();
        let mut handle = |name: &str| memory.add(name, Kind::Handle, vec![]);
        let map_handles = object.maps.iter().map(|m| handle(&m.name)).collect();
        let code_handles = object.functions.iter().map(|f| handle(&f.name)).collect();
        let task = Task {
            handle: memory.add("the task", Kind::Handle, vec![]),
            regs: memory.add("its registers", Kind::Context, context(&Regs::default())),
        };
        let data = object
            .sections
            .iter()
            .map(|s| s.data.as_ref().map(|bytes| memory.add(s.name.clone(), Kind::ReadOnly, bytes.clone())));
        let data = data.collect();
        let maps = object.maps.iter().map(|def| Map::new(def.clone(), cpus)).collect();
        let (rng, limit, executed) = (Rng::new(rand), INSTRUCTIONS, 0);
        Machine {
            object,
            memory,
            maps,
            map_handles,
            code_handles,
            task,
            data,
            open: vec![],
            rng,
            limit,
            executed,
            signals: vec![],
        }
    }

    /// Definition of a map, by its symbol.
    pub fn definition(&self, name: &str) -> Option<&MapDef> {
        self.maps.iter().map(|map| &map.def).find(|def| def.name == name)
    }

    /// A map by its symbol, with the memory that contains its cells.
    pub fn map(&mut self, name: &str) -> Option<(&mut Map, &mut Memory)> {
        let map = self.maps.iter_mut().find(|m| m.def.name == name)?;
        Some((map, &mut self.memory))
    }

    /// The next random number for programs.
    pub fn random(&mut self) -> u32 {
        self.rng.bits() as u32
    }

    /// Runs the program with this symbol; returns its result.
    pub fn run(&mut self, symbol: &str, hit: &Hit) -> Result<u64, Fault> {
        let fault = |function: String, at, trap| Fault { function, at, trap };
        let Some(function) = self.object.function(symbol) else {
            return Err(fault(symbol.into(), 0, Trap::Jump(0)));
        };
        self.executed = 0;
        let context = self.memory.add("the context", Kind::Context, hit.context.clone());
        let mut run = Run { hit, context, stack: 0, frames: 0, at: None, preemption_forbidden: false };
        let result = self.call(&mut run, function, &[context.address(0)]);
        self.memory.end(context);
        let leaked = !std::mem::take(&mut self.open).is_empty();
        let result = result.and_then(|r0| match leaked {
            true => Err(Trap::Leaked),
            false if run.preemption_forbidden => Err(Trap::Preemption),
            false => Ok(r0),
        });
        result.map_err(|trap| {
            let (function, at) = run.at.unwrap_or((function, 0));
            fault(self.object.functions[function].name.clone(), at, trap)
        })
    }

    /// Calls a function of the object.
    fn call(&mut self, run: &mut Run, function: usize, args: &[u64]) -> Result<u64, Trap> {
        if run.frames == FRAMES {
            return Err(Trap::Depth);
        }
        let stack = self.memory.push_stack(STACK as usize);
        let mut frame = Frame { function, regs: [None; 11], stack, depth: 0, pc: 0 };
        for (reg, value) in frame.regs[1..].iter_mut().zip(args) {
            *reg = Some(*value);
        }
        frame.regs[10] = Some(stack.address(STACK));
        run.frames += 1;
        let result = self.steps(run, &mut frame);
        run.frames -= 1;
        self.memory.pop_stack(stack);
        if result.is_err() && run.at.is_none() {
            run.at = Some((function, frame.pc));
        }
        result
    }

    fn steps(&mut self, run: &mut Run, frame: &mut Frame) -> Result<u64, Trap> {
        loop {
            self.executed += 1;
            if self.executed > self.limit {
                return Err(Trap::Endless(self.limit));
            }
            let code = &self.object.functions[frame.function].code;
            let insn = *code.get(frame.pc).ok_or(Trap::Jump(frame.pc as i64))?;
            if insn.opcode == insn::EXIT {
                return frame.get(0);
            }
            let next = self.step(run, frame, insn)?;
            frame.pc = usize::try_from(next).map_err(|_| Trap::Jump(next))?;
        }
    }

    /// Executes one instruction; returns the index of the next.
    fn step(&mut self, run: &mut Run, frame: &mut Frame, insn: Insn) -> Result<i64, Trap> {
        let next = frame.pc as i64 + 1;
        match insn.class() {
            insn::LD => {
                self.wide(frame, insn)?;
                return Ok(next + 1);
            }
            insn::LDX => self.load(frame, insn)?,
            insn::ST if insn.opcode & 0xe0 == 0x60 => self.store(run, frame, insn, insn.imm as i64 as u64)?,
            insn::STX if insn.opcode & 0xe0 == 0x60 => {
                let value = frame.get(insn.src)?;
                self.store(run, frame, insn, value)?;
            }
            insn::STX if insn.opcode & 0xe0 == 0xc0 => self.atomic(frame, insn)?,
            insn::ALU | insn::ALU64 => arithmetic(frame, insn)?,
            insn::JMP if insn.opcode == insn::CALL => self.call_insn(run, frame, insn)?,
            insn::JMP if insn.opcode == 0x05 => return Ok(next + i64::from(insn.offset)),
            insn::JMP | insn::JMP32 => {
                let b = if insn.from_register() { frame.get(insn.src)? } else { insn.imm as i64 as u64 };
                let wide = insn.class() == insn::JMP;
                let taken = condition(insn.opcode & 0xf0, frame.get(insn.dst)?, b, wide);
                let taken = taken.ok_or(Trap::Instruction(insn.encode()))?;
                return Ok(next + if taken { i64::from(insn.offset) } else { 0 });
            }
            _ => return Err(Trap::Instruction(insn.encode())),
        }
        Ok(next)
    }

    fn wide(&mut self, frame: &mut Frame, insn: Insn) -> Result<(), Trap> {
        let code = &self.object.functions[frame.function].code;
        let second = *code.get(frame.pc + 1).ok_or(Trap::Jump(frame.pc as i64 + 1))?;
        if insn.opcode != insn::WIDE || second.opcode != 0 {
            return Err(Trap::Instruction(insn.encode()));
        }
        let reference = self.object.functions[frame.function].references.get(&frame.pc);
        let value = match reference {
            None if insn.src == 0 => u64::from(insn.imm as u32) | u64::from(second.imm as u32) << 32,
            None => return Err(Trap::Instruction(insn.encode())),
            Some(object::Reference::Map(map)) => self.map_handles[*map].address(0),
            Some(object::Reference::Value { map, offset }) => {
                let cell = self.maps[*map].lookup(&[0; 4], 0, &mut self.memory);
                cell.ok_or(Trap::Instruction(insn.encode()))?.address(*offset)
            }
            Some(object::Reference::Function(function)) => self.code_handles[*function].address(0),
            Some(object::Reference::Data { section, offset }) => {
                let region = self.data[*section].ok_or(Trap::Instruction(insn.encode()))?;
                region.address(*offset)
            }
            Some(object::Reference::Kfunc(_)) => return Err(Trap::Instruction(insn.encode())),
        };
        frame.set(insn.dst, value)
    }

    /// Records the stack depth of a store below r10.
    fn touch(&mut self, outer: u64, frame: &mut Frame, address: u64) -> Result<(), Trap> {
        if let Ok((region, offset)) = self.memory.find(address)
            && region == frame.stack
        {
            frame.depth = frame.depth.max(STACK.saturating_sub(offset.max(0) as u64));
        }
        let total = outer + frame.depth.next_multiple_of(STACK_STEP);
        if total > STACK { Err(Trap::Stack(total)) } else { Ok(()) }
    }

    fn load(&mut self, frame: &mut Frame, insn: Insn) -> Result<(), Trap> {
        if insn.opcode & 0xe0 != 0x60 {
            return Err(Trap::Instruction(insn.encode()));
        }
        let address = frame.get(insn.src)?.wrapping_add(insn.offset as i64 as u64);
        let value = self.memory.load(address, insn.size())?;
        frame.set(insn.dst, value)
    }

    fn store(&mut self, run: &Run, frame: &mut Frame, insn: Insn, value: u64) -> Result<(), Trap> {
        let address = frame.get(insn.dst)?.wrapping_add(insn.offset as i64 as u64);
        self.touch(run.stack, frame, address)?;
        self.memory.store(address, insn.size(), value)
    }

    fn atomic(&mut self, frame: &mut Frame, insn: Insn) -> Result<(), Trap> {
        const FETCH: i32 = 1;
        let size = insn.size();
        let address = frame.get(insn.dst)?.wrapping_add(insn.offset as i64 as u64);
        let source = frame.get(insn.src)?;
        if size < 4 {
            return Err(Trap::Instruction(insn.encode()));
        }
        self.memory.aligned(address, size, true)?;
        let old = self.memory.load(address, size)?;
        let mask = if size == 4 { 0xffff_ffff } else { u64::MAX };
        let new = match insn.imm & !FETCH {
            0x00 => old.wrapping_add(source),
            0x40 => old | source,
            0x50 => old & source,
            0xa0 => old ^ source,
            0xe0 if insn.imm & FETCH != 0 => source,
            0xf0 if insn.imm & FETCH != 0 => {
                let same = frame.get(0)? & mask == old;
                frame.set(0, old)?;
                if same { source } else { old }
            }
            _ => return Err(Trap::Instruction(insn.encode())),
        };
        if insn.imm & FETCH != 0 && insn.imm != 0xf1 {
            frame.set(insn.src, old)?;
        }
        self.memory.store(address, size, new)
    }

    fn call_insn(&mut self, run: &mut Run, frame: &mut Frame, insn: Insn) -> Result<(), Trap> {
        let reference = self.object.functions[frame.function].references.get(&frame.pc).cloned();
        let outer = run.stack;
        // The depth of stores by this frame; helpers may have written to lower addresses.
        run.stack += frame.depth.next_multiple_of(STACK_STEP);
        let result = match (reference, insn.src) {
            (Some(object::Reference::Kfunc(name)), _) => self.kfunc(run, frame, &name),
            (Some(object::Reference::Function(function)), _) => {
                let args: Vec<u64> = frame.regs[1..6].iter().map_while(|r| *r).collect();
                self.call(run, function, &args)
            }
            (None, 0) => self.helper(run, frame, insn.imm as u32),
            _ => Err(Trap::Instruction(insn.encode())),
        };
        run.stack = outer;
        frame.regs[1..6].fill(None);
        frame.set(0, result?)
    }

    /// Marks the cells of a map as not written, from byte `from` on.
    pub fn forget(&mut self, map: &str, from: usize) {
        let Some((map, memory)) = self.map(map) else { return };
        for key in map.visited() {
            for cell in map.lookup_all(&key, memory) {
                memory.forget(cell, from);
            }
        }
    }
}

fn arithmetic(frame: &mut Frame, insn: Insn) -> Result<(), Trap> {
    let bad = Trap::Instruction(insn.encode());
    let (code, wide) = (insn.opcode & 0xf0, insn.class() == insn::ALU64);
    // Sign-extending moves, signed division and unconditional byte swaps require Linux 6.6.
    if insn.offset != 0 || code == 0xd0 {
        return Err(bad);
    }
    let a = match code {
        0xb0 => 0,
        _ => frame.get(insn.dst)?,
    };
    let b = match insn.from_register() {
        true => frame.get(insn.src)?,
        false => insn.imm as i64 as u64,
    };
    let limit = if wide { 64 } else { 32 };
    let shifts_too_far = matches!(code, 0x60 | 0x70 | 0xc0) && !insn.from_register() && b >= limit;
    let divides_by_zero = matches!(code, 0x30 | 0x90) && !insn.from_register() && b == 0;
    if shifts_too_far || divides_by_zero {
        return Err(bad);
    }
    frame.set(insn.dst, alu(code, a, b, wide).ok_or(bad)?)
}

impl Frame {
    fn get(&self, reg: u8) -> Result<u64, Trap> {
        self.regs.get(reg as usize).copied().flatten().ok_or(Trap::Register(reg))
    }

    fn set(&mut self, reg: u8, value: u64) -> Result<(), Trap> {
        // r10 is read-only, and r11 does not exist.
        let slot = self.regs[..10].get_mut(reg as usize).ok_or(Trap::Register(reg))?;
        *slot = Some(value);
        Ok(())
    }
}

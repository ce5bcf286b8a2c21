//! The environment of a script: processes that call functions, clocks, timer ticks, and user memory. Plain data, used by the
//! reference interpreter and by the BPF machine.
//!
//! Not here: which probes see a call (`reference` and `session` read that from their program), what a body does.

use crate::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// Size of a page of user memory in bytes; a page is mapped or not.
pub const PAGE: u64 = 4096;

/// User memory, a single address space for all processes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Memory {
    /// Writes bytes, and maps their pages.
    pub fn write(&mut self, address: u64, bytes: &[u8]) {
        for (at, byte) in (address..).zip(bytes) {
            let page = self.pages.entry(at / PAGE).or_insert_with(|| vec![0; PAGE as usize]);
            page[(at % PAGE) as usize] = *byte;
        }
    }

    /// One byte, if its page is mapped.
    pub fn byte(&self, address: u64) -> Option<u8> {
        self.pages.get(&(address / PAGE)).map(|page| page[(address % PAGE) as usize])
    }

    /// `len` bytes, if all of them are mapped.
    pub fn read(&self, address: u64, len: u64) -> Option<Vec<u8>> {
        (0..len).map(|i| self.byte(address.checked_add(i)?)).collect()
    }

    /// Like the kernel's `strncpy_from_user_nofault`: the bytes up to a NUL, which is excluded, or `size` - 1
    /// bytes. `None` if the NUL or the first `size` bytes cannot be read.
    pub fn read_str(&self, address: u64, size: u64) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        for i in 0..size {
            match self.byte(address.checked_add(i)?)? {
                0 => return Some(text),
                byte => text.push(byte),
            }
        }
        text.pop();
        Some(text)
    }
}

/// Index of a register in `struct pt_regs` of x86-64, in words.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[rustfmt::skip]
pub enum Reg {
    R15, R14, R13, R12, Bp, Bx, R11, R10, R9, R8, Ax, Cx, Dx, Si, Di, OrigAx, Ip, Cs, Flags, Sp, Ss,
}

/// Registers of integer arguments, in order.
pub const ARGUMENT_REGS: [Reg; 6] = [Reg::Di, Reg::Si, Reg::Dx, Reg::Cx, Reg::R8, Reg::R9];

/// Register names in `reg("...")`.
#[rustfmt::skip]
const REG_NAMES: [&str; 21] = [
    "r15", "r14", "r13", "r12", "bp", "bx", "r11", "r10", "r9", "r8", "ax", "cx", "dx", "si", "di", "orig_ax", "ip",
    "cs", "flags", "sp", "ss",
];

/// User registers at a probe.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Regs(pub [u64; 21]);

impl Regs {
    /// The value of a register.
    pub fn get(&self, reg: Reg) -> u64 {
        self.0[reg as usize]
    }

    /// Sets a register.
    pub fn set(&mut self, reg: Reg, value: u64) {
        self.0[reg as usize] = value;
    }

    /// The register with the name in `reg("sp")`; `pc` is `ip`.
    pub fn by_name(&self, name: &str) -> Option<u64> {
        let name = if name == "pc" { "ip" } else { name };
        REG_NAMES.iter().position(|n| *n == name).map(|at| self.0[at])
    }
}

/// The running thread, its CPU and the time.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// Boot clock, ns.
    pub time_ns: u64,
    /// Process id.
    pub tgid: u32,
    /// Thread id.
    pub tid: u32,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// CPU.
    pub cpu: u32,
    /// Thread name, at most 15 bytes.
    pub comm: String,
    /// cgroup v2 id.
    pub cgroup: u64,
    /// Return addresses, innermost first; empty if there is no stack.
    pub user_stack: Vec<u64>,
    /// Return addresses in the kernel.
    pub kernel_stack: Vec<u64>,
}

/// One call of a traced function.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The catalog's id of the file.
    pub file: u32,
    /// File offset of the function.
    pub function: u64,
    /// Registers at the first instruction.
    pub entry: Regs,
    /// Result.
    pub retval: u64,
}

impl Call {
    /// Registers at a return probe: caller-saved registers are overwritten.
    pub fn at_return(&self) -> Regs {
        let mut regs = self.entry.clone();
        for reg in [Reg::Di, Reg::Si, Reg::Dx, Reg::Cx, Reg::R8, Reg::R9, Reg::R10, Reg::R11] {
            regs.set(reg, 0xdead_beef_dead_0000 | reg as u64);
        }
        regs.set(Reg::Ax, self.retval);
        regs.set(Reg::Sp, self.entry.get(Reg::Sp) + 8);
        regs.set(Reg::Ip, 0x40_1234);
        regs
    }
}

/// Event of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A call begins; index into [`World::calls`].
    Entry(usize),
    /// A call returns. Without its entry: the probe was attached during the call.
    Return(usize),
    /// All `interval` probes run.
    Interval,
    /// All `profile` probes run, on this CPU.
    Profile,
}

/// One step of a world.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Thread and time.
    pub moment: Moment,
    /// Changes of user memory before the step.
    pub writes: Vec<(u64, Vec<u8>)>,
    /// Event.
    pub what: What,
}

/// A simulated environment; see the module documentation.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    /// Number of possible CPUs.
    pub cpus: u32,
    /// Boot-clock time of the start of the tracer.
    pub start_ns: u64,
    /// Thread and time of `BEGIN`.
    pub begin: Moment,
    /// Thread and time of `END`.
    pub end: Moment,
    /// Calls that steps refer to.
    pub calls: Vec<Call>,
    /// Steps in order.
    pub steps: Vec<Step>,
    /// User memory at the start.
    pub memory: Memory,
    /// Traced processes, if there is a pid filter.
    pub traced: BTreeSet<u32>,
    /// Seed of `rand`.
    pub rand: u64,
}

/// Process that the tracer has started, in every world.
pub const CHILD: u32 = 100;
/// Difference of TAI to the boot clock in ns.
pub const TAI_AHEAD_NS: u64 = 1_700_000_037_000_000_000;

impl Moment {
    /// NUMA node; each has two CPUs.
    pub fn numa_node(&self) -> u32 {
        self.cpu / 2
    }

    /// Jiffies, of 4 ms.
    pub fn jiffies(&self) -> u64 {
        self.time_ns / 4_000_000
    }
}

/// A function that random worlds call.
#[derive(Copy, Clone, Debug)]
pub struct Callee {
    /// The catalog's id of the file.
    pub file: u32,
    /// File offset.
    pub function: u64,
}

/// Address of the texts in random worlds, one every 64 bytes; the page after the next one is not mapped.
pub const TEXTS: u64 = 0x5555_0000_0000;
/// Address of a page of 8-byte numbers; some are addresses in [`TEXTS`].
pub const NUMBERS: u64 = 0x5555_0100_0000;
/// An address that is not mapped.
pub const UNMAPPED: u64 = 0x6666_0000_0000;

/// Number of steps after which no call is pending that began before its function was attached.
const ATTACHED: usize = 5;
const STACKS: u64 = 0x7ffd_0000_0000;
const WORDS: [&str; 8] =
    ["", "a", "saxpy", "vector_add", "vector_add_2", "ampere_sgemm_128x64_tn", "k\u{e9}rnel\n", "x y"];

impl World {
    /// A random world of `count` steps over `callees`: three processes of two threads, nested calls, timers.
    pub fn random(seed: u64, callees: &[Callee], count: usize) -> World {
        let mut maker = Maker::new(seed, callees);
        while maker.world.steps.len() < count {
            maker.step();
        }
        maker.finish()
    }
}

/// Builds a random world.
struct Maker<'a> {
    rng: Rng,
    callees: &'a [Callee],
    now_ns: u64,
    /// The pending calls of each thread.
    inside: BTreeMap<u32, Vec<usize>>,
    world: World,
}

impl Maker<'_> {
    fn new(seed: u64, callees: &[Callee]) -> Maker<'_> {
        let mut rng = Rng::new(seed);
        let start_ns = 10_000_000_000 + rng.below(1 << 40);
        let tracer = Moment {
            time_ns: start_ns + 10,
            tgid: 4000,
            tid: 4000,
            uid: 0,
            gid: 0,
            cpu: 1,
            comm: "cudatrace".into(),
            cgroup: 1,
            user_stack: vec![0x40_0000],
            kernel_stack: vec![0xffff_ffff_8100_0000],
        };
        let world = World {
            cpus: 4,
            start_ns,
            begin: tracer.clone(),
            end: tracer,
            calls: vec![],
            steps: vec![],
            memory: memory(&mut rng),
            traced: [100, 200].into(),
            rand: rng.bits(),
        };
        Maker { rng, callees, now_ns: start_ns + 1000, inside: BTreeMap::new(), world }
    }

    fn step(&mut self) {
        self.now_ns += 1 + self.rng.below(100_000);
        let moment = self.moment();
        match self.rng.below(20) {
            0 => self.push(moment, vec![], What::Interval),
            1 => self.push(moment, vec![], What::Profile),
            2..=10 => self.enter(moment),
            _ => self.leave(moment),
        }
    }

    fn push(&mut self, moment: Moment, writes: Vec<(u64, Vec<u8>)>, what: What) {
        self.world.steps.push(Step { moment, writes, what });
    }

    fn moment(&mut self) -> Moment {
        let tgid = *self.rng.pick(&[100, 200, 300]);
        let tid = tgid + self.rng.below(2) as u32;
        let depth = self.rng.below(4);
        Moment {
            time_ns: self.now_ns,
            tgid,
            tid,
            uid: tgid * 10,
            gid: tgid * 10 + 1,
            cpu: self.rng.below(u64::from(self.world.cpus)) as u32,
            comm: if tid == tgid { format!("main{tgid}") } else { "fifteen letters".into() },
            cgroup: 0x1_0000_0000 + u64::from(tgid),
            user_stack: (0..depth).map(|i| 0x40_0000 + 0x100 * i).collect(),
            kernel_stack: (0..depth.min(2)).map(|i| 0xffff_ffff_8100_0000 + i).collect(),
        }
    }

    fn enter(&mut self, moment: Moment) {
        let calls = self.inside.entry(moment.tid).or_default();
        let depth = calls.len() as u64;
        if depth == 5 || self.callees.is_empty() {
            return;
        }
        let sp = STACKS + u64::from(moment.tid) * 0x10_0000 + 0x8000 - 0x200 * depth;
        calls.push(self.world.calls.len());
        let callee = *self.rng.pick(self.callees);
        let mut entry = Regs(std::array::from_fn(|_| argument(&mut self.rng)));
        entry.set(Reg::Sp, sp);
        entry.set(Reg::Ip, 0x7f00_0000_0000 + callee.function);
        let stack: Vec<u8> = (0..16).flat_map(|_| argument(&mut self.rng).to_le_bytes()).collect();
        let retval = argument(&mut self.rng);
        self.world.calls.push(Call { file: callee.file, function: callee.function, entry, retval });
        // Some calls began before their function was attached, so only their return is seen.
        if self.world.steps.len() > ATTACHED || !self.rng.chance(30) {
            self.push(moment, vec![(sp, stack)], What::Entry(self.world.calls.len() - 1));
        }
    }

    fn leave(&mut self, moment: Moment) {
        if let Some(call) = self.inside.get_mut(&moment.tid).and_then(Vec::pop) {
            // A longjmp skips some returns.
            if self.world.steps.len() > ATTACHED && self.rng.chance(3) {
                return;
            }
            let writes =
                vec![(NUMBERS + 8 * self.rng.below(8), argument(&mut self.rng).to_le_bytes().to_vec())];
            self.push(moment, writes, What::Return(call));
        }
    }

    fn finish(mut self) -> World {
        self.world.end.time_ns = self.now_ns + 1000;
        self.world
    }
}

/// An argument: a number, or an address that may be mapped or not.
fn argument(rng: &mut Rng) -> u64 {
    match rng.below(8) {
        0..=2 => rng.interesting() as u64,
        3..=4 => TEXTS + 64 * rng.below(16),
        5..=6 => NUMBERS + 8 * rng.below(16),
        _ => UNMAPPED,
    }
}

fn memory(rng: &mut Rng) -> Memory {
    let mut memory = Memory::default();
    for i in 0..PAGE / 64 {
        let mut text = rng.pick(&WORDS).as_bytes().to_vec();
        text.push(0);
        memory.write(TEXTS + 64 * i, &text);
        memory.write(NUMBERS + 8 * i, &argument(rng).to_le_bytes());
    }
    // A text that extends beyond the mapped memory.
    memory.write(TEXTS + 2 * PAGE - 3, b"end");
    memory
}

//! Runs an object over a world as the runtime does: attaches by the manifest, drains the ring buffer after each hit, performs the
//! actions of the records, and reads maps and counters at the end. Unlike the runtime it continues after `exit()`: until probes are
//! detached, the programs themselves must do nothing.

use crate::machine::{self, Fault, Hit, LoadError, Machine, Object};
use crate::outcome::{self, Contents, Loss, Outcome, Output, What, named};
use crate::world::{self, Call, Moment, Reg, Regs, World};
use std::collections::{BTreeMap, HashMap};
use wire::counter::{COUNTERS_MAP, FAILURES_MAP};
use wire::manifest::{self, Attach, CompiledScript, EventKind, Manifest, Side, Site};
use wire::map::{Agg, MapValue, Storage};
use wire::trigger::Trigger;
use wire::{CounterKind, decode};

/// Size of the ring buffer in bytes, if the manifest leaves it to the runtime.
const RING_BYTES: u32 = 1 << 20;

/// The reason why a run has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The object cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A program did something forbidden.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A record or cell that does not match its layout.
    #[error(transparent)]
    Decode(#[from] decode::DecodeError),
    /// The object lacks a map of the manifest.
    #[error("the object has no map `{0}`")]
    NoMap(String),
    /// A record of an event that is not in the manifest.
    #[error("a record of event {0}, which the manifest lacks")]
    NoEvent(u32),
    /// A slot of scratch memory is still claimed after the program has ended.
    #[error("`{program}` leaves a slot of `{map}` taken")]
    Scratch {
        /// Symbol of the program.
        program: String,
        /// Name of the map.
        map: String,
    },
}

/// Cost of a program.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Number of runs.
    pub runs: u64,
    /// Total number of instructions.
    pub instructions: u64,
}

/// An outcome with its cost.
#[derive(Debug)]
pub struct Run {
    /// Outcome.
    pub outcome: Outcome,
    /// Cost by program symbol.
    pub costs: BTreeMap<String, Cost>,
}

/// Something that runs the programs of an object and keeps its maps.
pub trait Engine {
    /// Runs a program by its symbol; returns its result.
    fn run(&mut self, symbol: &str, hit: &Hit) -> Result<u64, Fault>;
    /// Whether the object has this map.
    fn has_map(&self, map: &str) -> bool;
    /// The keys of a map; of an array those that may have been written.
    fn keys(&mut self, map: &str) -> Vec<Vec<u8>>;
    /// The cells of a key on all CPUs.
    fn cells(&mut self, map: &str, key: &[u8]) -> Vec<Vec<u8>>;
    /// Sets the cells of a key on all CPUs.
    fn set(&mut self, map: &str, key: &[u8], value: &[u8]);
    /// Removes all keys; cells of arrays are zeroed.
    fn clear(&mut self, map: &str);
    /// Zeroes every cell from byte `from` on.
    fn zero(&mut self, map: &str, from: usize);
    /// Takes the records of a ring buffer.
    fn records(&mut self, ring: &str) -> Vec<Vec<u8>>;
    /// Stacks of a stack map, by id.
    fn stacks(&mut self, map: &str) -> Vec<Vec<u64>>;
    /// A new session cookie: the address of 8 bytes.
    fn session_cookie(&mut self) -> u64;
    /// Overwrites the cells of scratch memory from byte `from` on, so that a program that reads what an earlier run left is
    /// detected.
    fn forget(&mut self, map: &str, from: usize);
    /// Number of instructions of the last run; 0 if they are not counted.
    fn executed(&self) -> u64;
    /// Takes the signals that programs have sent.
    fn signals(&mut self) -> Vec<outcome::Signal>;
}

impl Engine for Machine {
    fn run(&mut self, symbol: &str, hit: &Hit) -> Result<u64, Fault> {
        Machine::run(self, symbol, hit)
    }

    fn has_map(&self, map: &str) -> bool {
        self.definition(map).is_some()
    }

    fn keys(&mut self, map: &str) -> Vec<Vec<u8>> {
        self.map(map).map_or_else(Vec::new, |(map, _)| map.keys())
    }

    fn cells(&mut self, map: &str, key: &[u8]) -> Vec<Vec<u8>> {
        let Some((map, memory)) = self.map(map) else { return vec![] };
        map.lookup_all(key, memory).iter().map(|cell| memory.bytes(*cell).to_vec()).collect()
    }

    fn set(&mut self, map: &str, key: &[u8], value: &[u8]) {
        if let Some((map, memory)) = self.map(map) {
            map.set(key, value, memory);
        }
    }

    fn clear(&mut self, map: &str) {
        if let Some((map, memory)) = self.map(map) {
            map.clear(memory);
        }
    }

    fn zero(&mut self, map: &str, from: usize) {
        if let Some((map, memory)) = self.map(map) {
            map.zero(from, memory);
        }
    }

    fn records(&mut self, ring: &str) -> Vec<Vec<u8>> {
        let Some((ring, _)) = self.map(ring) else { return vec![] };
        ring.used = 0;
        std::mem::take(&mut ring.records)
    }

    fn stacks(&mut self, map: &str) -> Vec<Vec<u64>> {
        self.map(map).map_or_else(Vec::new, |(map, _)| map.stacks.clone())
    }

    fn session_cookie(&mut self) -> u64 {
        Machine::session_cookie(self)
    }

    fn forget(&mut self, map: &str, from: usize) {
        Machine::forget(self, map, from);
    }

    fn executed(&self) -> u64 {
        self.executed
    }

    fn signals(&mut self) -> Vec<outcome::Signal> {
        std::mem::take(&mut self.signals)
    }
}

/// Runs an object in a world.
pub fn run(compiled: &CompiledScript, world: &World) -> Result<Run, Failure> {
    let machine = Machine::new(parse(compiled)?, world.cpus, world.rand);
    run_on(machine, &compiled.manifest, world)
}

/// The object of a script, with a size of the ring buffer.
pub fn parse(compiled: &CompiledScript) -> Result<Object, LoadError> {
    let mut object = Object::parse(&compiled.elf)?;
    for map in &mut object.maps {
        if map.name == manifest::RING_MAP && map.max_entries == 0 {
            map.max_entries = RING_BYTES;
        }
    }
    Ok(object)
}

/// Runs the object of an engine in a world.
pub fn run_on(engine: impl Engine, manifest: &Manifest, world: &World) -> Result<Run, Failure> {
    let user = world.memory.clone();
    let (sessions, costs) = (HashMap::new(), BTreeMap::new());
    let mut session = Session { engine, manifest, user, sessions, outcome: Outcome::default(), costs };
    session.start(world);
    session.all(world)?;
    session.finish()?;
    Ok(Run { outcome: session.outcome, costs: session.costs })
}

struct Session<'a, E> {
    engine: E,
    manifest: &'a Manifest,
    user: world::Memory,
    /// Session cookies by program and call, if the entry has requested the return.
    sessions: HashMap<(usize, usize), u64>,
    outcome: Outcome,
    costs: BTreeMap<String, Cost>,
}

/// Arguments of a run of a program.
struct Context {
    bytes: Vec<u8>,
    cookie: u64,
    session: Option<(u64, bool)>,
}

impl Context {
    fn plain(bytes: Vec<u8>) -> Context {
        Context { bytes, cookie: 0, session: None }
    }
}

/// Context of a raw tracepoint program: at most twelve arguments.
fn raw_tracepoint() -> Context {
    Context::plain(vec![0; 12 * 8])
}

/// Context of a perf event program: registers, sample period, address.
fn perf_event() -> Context {
    let mut bytes = machine::context(&Regs::default());
    bytes.extend([0; 16]);
    Context::plain(bytes)
}

/// Registers at a position after the start of a function, see [`crate::catalog`].
fn at_place(regs: &Regs, call: &Call, site: &Site) -> Regs {
    let mut regs = regs.clone();
    let past = site.offset - call.function;
    regs.set(Reg::Ip, regs.get(Reg::Ip) + past);
    regs.set(Reg::Sp, regs.get(Reg::Sp) - crate::catalog::stack_shift(past));
    regs
}

impl<'m, E: Engine> Session<'m, E> {
    fn start(&mut self, world: &World) {
        let mut control = vec![0; manifest::CONTROL_SIZE as usize];
        let words = [
            (manifest::CONTROL_START, world.start_ns),
            (manifest::CONTROL_TAI, world::TAI_AHEAD_NS),
            (manifest::CONTROL_CHILD, u64::from(world::CHILD)),
        ];
        for (at, word) in words {
            control[at as usize..at as usize + 8].copy_from_slice(&word.to_le_bytes());
        }
        self.engine.set(manifest::CONTROL_MAP, &[0; 4], &control);
        // A script without function probes does not have this map.
        for pid in &world.traced {
            self.engine.set(manifest::PIDS_MAP, &pid.to_le_bytes(), &manifest::UNCOUNTED.to_le_bytes());
        }
    }

    fn all(&mut self, world: &World) -> Result<(), Failure> {
        self.each(|on| *on == Trigger::Begin, &world.begin, raw_tracepoint)?;
        self.tests(&world.begin)?;
        for step in &world.steps {
            for (address, bytes) in &step.writes {
                self.user.write(*address, bytes);
            }
            let moment = &step.moment;
            match step.what {
                world::What::Interval => {
                    self.each(|on| matches!(on, Trigger::Interval { .. }), moment, perf_event)?
                }
                world::What::Profile => {
                    self.each(|on| matches!(on, Trigger::Profile { .. }), moment, perf_event)?
                }
                world::What::Entry(call) => self.uprobes(world, call, moment, false)?,
                world::What::Return(call) => self.uprobes(world, call, moment, true)?,
            }
        }
        self.each(|on| *on == Trigger::End, &world.end, raw_tracepoint)
    }

    /// Runs tests and benches, and takes their return values from the control cell.
    fn tests(&mut self, moment: &Moment) -> Result<(), Failure> {
        let is_test =
            |program: &&manifest::Program| matches!(program.attach, Attach::Event(Trigger::Test { .. }));
        for program in self.manifest.programs.iter().filter(is_test) {
            if self.take_control(manifest::CONTROL_EXITED, false) != 0 {
                break;
            }
            self.hit(&program.symbol, moment, raw_tracepoint())?;
            let returned = self.take_control(manifest::CONTROL_RETURNED, true);
            self.outcome.returned.push(returned as i64);
        }
        Ok(())
    }

    /// A word of the control cell; with `empty` it is then set to 0.
    fn take_control(&mut self, at: u32, empty: bool) -> u64 {
        let Some(mut bytes) = self.engine.cells(manifest::CONTROL_MAP, &[0; 4]).pop() else { return 0 };
        let word = &mut bytes[at as usize..at as usize + 8];
        let value = u64::from_le_bytes((&*word).try_into().expect("8 bytes"));
        if empty {
            word.fill(0);
            self.engine.set(manifest::CONTROL_MAP, &[0; 4], &bytes);
        }
        value
    }

    fn each(
        &mut self,
        wanted: impl Fn(&Trigger) -> bool,
        moment: &Moment,
        context: fn() -> Context,
    ) -> Result<(), Failure> {
        let is_wanted = |program: &&manifest::Program| matches!(&program.attach, Attach::Event(trigger) if wanted(trigger));
        for program in self.manifest.programs.iter().filter(is_wanted) {
            self.hit(&program.symbol, moment, context())?;
        }
        Ok(())
    }

    fn uprobes(&mut self, world: &World, id: usize, moment: &Moment, is_return: bool) -> Result<(), Failure> {
        let call = &world.calls[id];
        for (index, program) in self.manifest.programs.iter().enumerate() {
            let Attach::Functions { side, sites, .. } = &program.attach else { continue };
            let here =
                |site: &&Site| site.file == call.file && crate::catalog::covers(call.function, site.offset);
            let Some(site) = sites.iter().find(here) else { continue };
            let session = match (side, is_return) {
                (Side::Entry, false) | (Side::Return, true) => None,
                (Side::Session, false) => Some((self.engine.session_cookie(), false)),
                // Without the entry, or if the entry declined, the kernel calls no return handler.
                (Side::Session, true) => match self.sessions.remove(&(index, id)) {
                    Some(cookie) => Some((cookie, true)),
                    None => continue,
                },
                _ => continue,
            };
            let regs = if is_return { call.at_return() } else { at_place(&call.entry, call, site) };
            let context = Context { bytes: machine::context(&regs), cookie: site.cookie, session };
            let result = self.hit(&program.symbol, moment, context)?;
            if let (Some((cookie, false)), 0) = (session, result) {
                self.sessions.insert((index, id), cookie);
            }
        }
        Ok(())
    }

    fn hit(&mut self, symbol: &str, moment: &Moment, context: Context) -> Result<u64, Failure> {
        let scratch = |name: &&String| name.starts_with("ct_scratch");
        for map in self.manifest.internal_maps.iter().filter(scratch) {
            self.engine.forget(map, 8);
        }
        let Context { bytes, cookie, session } = context;
        let user = std::mem::take(&mut self.user);
        let hit = Hit { moment, user: &user, context: bytes, cookie, session };
        let result = self.engine.run(symbol, &hit);
        self.user = user;
        let cost = self.costs.entry(symbol.into()).or_default();
        cost.runs += 1;
        cost.instructions += self.engine.executed();
        let result = result?;
        self.outcome.signals.append(&mut self.engine.signals());
        for map in self.manifest.internal_maps.iter().filter(scratch) {
            self.released(symbol, map)?;
        }
        self.drain()?;
        Ok(result)
    }

    /// Checks that a scratch slot is released: its first word is 0.
    fn released(&mut self, program: &str, name: &str) -> Result<(), Failure> {
        let keys = self.engine.keys(name);
        let cells: Vec<_> = keys.iter().flat_map(|key| self.engine.cells(name, key)).collect();
        match cells.iter().any(|cell| cell[..8] != [0; 8]) {
            true => Err(Failure::Scratch { program: program.into(), map: name.into() }),
            false => Ok(()),
        }
    }

    fn drain(&mut self) -> Result<(), Failure> {
        for record in self.engine.records(manifest::RING_MAP) {
            self.record(&record)?;
        }
        Ok(())
    }

    fn record(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let manifest = self.manifest;
        let header = decode::header(bytes)?;
        let event = manifest.events.get(header.event as usize).ok_or(Failure::NoEvent(header.event))?;
        let values = decode::record(bytes, &event.record)?;
        let mut values: Vec<_> = values.iter().map(|v| self.named(v)).collect();
        let what = match &event.kind {
            EventKind::Printf { format } => What::Printf(format.clone(), values),
            EventKind::Message { what, format, .. } => What::Message(*what, format.clone(), values),
            EventKind::Rows { top, none, .. } => What::Rows(*top, none.clone()),
            EventKind::Print => What::Print(values.remove(0)),
            EventKind::PrintEntry { map } => self.entry(*map, values)?,
            EventKind::PrintMap { map, top, div } => {
                What::PrintMap(self.name(*map), self.contents(*map)?, *top, *div)
            }
            EventKind::Clear { map } => self.clear(*map)?,
            EventKind::Zero { map } => self.zero(*map)?,
            EventKind::Exit => self.exit(&values),
            EventKind::Export { what, .. } => What::Export(outcome::exported(*what), values),
            EventKind::Time { format } => What::Time(format.clone()),
        };
        let decode::Header { cpu, time_ns, tgid, tid, .. } = header;
        self.outcome.output.push(Output { cpu, time_ns, tgid, tid, what });
        Ok(())
    }

    fn name(&self, map: u32) -> String {
        self.manifest.maps[map as usize].name.clone()
    }

    fn named(&mut self, value: &wire::Value) -> outcome::Value {
        let manifest = self.manifest;
        let stacks: Vec<Vec<Vec<u64>>> =
            manifest.stacks.iter().map(|s| self.engine.stacks(&s.symbol)).collect();
        named(value, manifest, &|map, id| stacks.get(map as usize)?.get(id as usize).cloned())
    }

    /// `print(@m[k])` of a histogram or another aggregation.
    fn entry(&mut self, map: u32, values: Vec<outcome::Value>) -> Result<What, Failure> {
        let cell = self.contents(map)?.remove(&values);
        Ok(What::PrintEntry(self.name(map), values, cell))
    }

    fn exit(&mut self, values: &[outcome::Value]) -> What {
        let code = match values {
            [outcome::Value::Int(code, 8)] => *code,
            _ => panic!("an exit record has one int64, found {values:?}"),
        };
        self.outcome.exit.get_or_insert(code);
        What::Exit(code)
    }

    /// Symbol of a map of the manifest, which the object has.
    fn symbol(&self, map: u32) -> Result<&'m str, Failure> {
        let symbol = &self.manifest.maps[map as usize].symbol;
        if self.engine.has_map(symbol) { Ok(symbol) } else { Err(Failure::NoMap(symbol.clone())) }
    }

    fn clear(&mut self, map: u32) -> Result<What, Failure> {
        let symbol = self.symbol(map)?;
        self.engine.clear(symbol);
        Ok(What::Clear(self.name(map)))
    }

    /// Zeroes the values. The keys stay, and so does the flag that a plain array cell was written.
    fn zero(&mut self, map: u32) -> Result<What, Failure> {
        let from = self.manifest.maps[map as usize].value_offset() as usize;
        let symbol = self.symbol(map)?;
        self.engine.zero(symbol, from);
        Ok(What::Zero(self.name(map)))
    }

    fn contents(&mut self, map: u32) -> Result<Contents, Failure> {
        let declared = &self.manifest.maps[map as usize];
        let symbol = self.symbol(map)?;
        let keys = self.engine.keys(symbol);
        let raw: Vec<_> = keys.into_iter().map(|key| (self.engine.cells(symbol, &key), key)).collect();
        let mut contents = Contents::new();
        for (cells, key) in raw {
            let Some(cell) = self.cell(declared, &cells)? else { continue };
            let key = decode::key(&key, &declared.key)?;
            contents.insert(key.iter().map(|part| self.named(part)).collect(), cell);
        }
        Ok(contents)
    }

    fn cell(&mut self, map: &wire::map::Map, cells: &[Vec<u8>]) -> Result<Option<outcome::Cell>, Failure> {
        match &map.value {
            MapValue::Plain(_) if map.storage == Storage::Array && cells[0][..8] == [0; 8] => Ok(None),
            MapValue::Plain(ty) => {
                let value = decode::value(&cells[0], map.value_offset() as usize, ty)?;
                Ok(Some(outcome::Cell::Plain(self.named(&value))))
            }
            MapValue::Agg(agg) => Ok(merge(agg, cells)),
        }
    }

    fn finish(&mut self) -> Result<(), Failure> {
        for (index, map) in (0..).zip(&self.manifest.maps) {
            let contents = self.contents(index)?;
            self.outcome.maps.insert(map.name.clone(), contents);
        }
        let counters = &self.manifest.counters;
        for (index, counter) in (0u32..).zip(counters) {
            let (name, key, word) = match counter.kind.is_frequent() {
                true => (COUNTERS_MAP, index, 0),
                false => (FAILURES_MAP, 0, index as usize),
            };
            if !self.engine.has_map(name) {
                break;
            }
            let cells = self.engine.cells(name, &key.to_le_bytes());
            let count = cells.iter().map(|cell| words(cell)[word]).sum();
            if let Some(loss) = loss(self.manifest, &counter.kind) {
                self.outcome.loss(loss, count);
            }
        }
        Ok(())
    }
}

fn words(cell: &[u8]) -> Vec<u64> {
    cell.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("8 bytes"))).collect()
}

fn merge(agg: &Agg, cells: &[Vec<u8>]) -> Option<outcome::Cell> {
    let words: Vec<_> = cells.iter().map(|cell| words(cell)).collect();
    outcome::merge(agg, &words)
}

fn loss(manifest: &Manifest, kind: &CounterKind) -> Option<Loss> {
    let name = |map: u32| manifest.maps[map as usize].name.clone();
    Some(match kind {
        CounterKind::MapFull(map) => Loss::MapFull(name(*map)),
        CounterKind::MissingKey(map) => Loss::MissingKey(name(*map)),
        CounterKind::UserRead => Loss::UserRead,
        CounterKind::DivisionByZero => Loss::DivisionByZero,
        CounterKind::OutOfBounds => Loss::OutOfBounds,
        CounterKind::LoopLimit => Loss::LoopLimit,
        CounterKind::LostStack => Loss::LostStack,
        CounterKind::Entered(_) | CounterKind::Returned(_) | CounterKind::NoEntry(_) => return None,
        kind @ (CounterKind::LostEvent(_)
        | CounterKind::UnsentSignal
        | CounterKind::Unfinished
        | CounterKind::Missed
        | CounterKind::MapLocked(_)
        | CounterKind::NoScratch
        | CounterKind::NoCallSlot
        | CounterKind::NoRoomAround
        | CounterKind::NoUnwindTable) => Loss::NoResource(format!("{kind:?}")),
    })
}

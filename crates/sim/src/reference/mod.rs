//! The meaning of a checked script: a plain interpreter of [`hir::Program`] over a [`World`]. It has no BPF, no registers and no
//! limits of the kernel. If it and the compiler disagree, the comments of `hir` decide.
//!
//! Actions of the reader (`clear`, `zero`, `print(@m)`, the lookup for `print(@m[k])` of an aggregation, the end after `exit`)
//! happen after the probe has run.

mod abi;
mod expr;
mod printed;
mod state;
mod stmt;
mod store;
mod table;
mod value;

use crate::outcome::{Loss, Outcome, Output, What};
use crate::rng::Rng;
use crate::world::{self, Moment, Regs, World};
use lang::hir::{Attach, Expr, ExprKind, MapId, NameId, Probe, Program, Records, Site, Trigger, visit};
use state::{EntryState, Later, MOST_ROUNDS, Meaning, Run, TrackedCall};
use std::collections::HashMap;
use stmt::Flow;
use table::Table;
use value::Val;

/// The program's loops have too many rounds, and were not interpreted to their end.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TooManyRounds;

/// Runs a checked program in a world; `pid_filter` and `sums` are the compiler's options.
///
/// # Errors
/// Its loops have more rounds than the interpreter's limit.
pub fn run(program: &Program, world: &World, pid_filter: bool, sums: bool) -> Result<Outcome, TooManyRounds> {
    let mut meaning = Meaning {
        program,
        start_ns: world.start_ns,
        cpus: world.cpus,
        memory: world.memory.clone(),
        tables: program.maps.iter().map(|map| Table::new(map, sums)).collect(),
        stacks: HashMap::new(),
        rng: Rng::new(world.rand),
        outcome: Outcome::default(),
        entered: HashMap::new(),
        tracked: HashMap::new(),
        rounds: 0,
    };
    meaning.all(world, pid_filter);
    match meaning.rounds > MOST_ROUNDS {
        true => Err(TooManyRounds),
        false => Ok(meaning.finish()),
    }
}

impl<'a> Meaning<'a> {
    fn all(&mut self, world: &World, pid_filter: bool) {
        self.plain(&world.begin, |on| *on == Trigger::Begin);
        self.plain(&world.begin, |on| matches!(on, Trigger::Test { .. }));
        for step in &world.steps {
            if self.outcome.exit.is_some() || self.rounds > MOST_ROUNDS {
                break;
            }
            for (address, bytes) in &step.writes {
                self.memory.write(*address, bytes);
            }
            let is_filtered = match step.what {
                // An interval does not belong to a process.
                world::What::Interval => false,
                world::What::Profile => !self.program.config.events_of_all,
                world::What::Entry(_) | world::What::Return(_) => true,
            };
            let filtered = pid_filter && is_filtered;
            if filtered && !world.traced.contains(&step.moment.tgid) {
                continue;
            }
            match step.what {
                world::What::Interval => {
                    self.plain(&step.moment, |on| matches!(on, Trigger::Interval { .. }))
                }
                world::What::Profile => self.plain(&step.moment, |on| matches!(on, Trigger::Profile { .. })),
                world::What::Entry(call) => self.enter(world, call, &step.moment),
                world::What::Return(call) => self.leave(world, call, &step.moment),
            }
        }
        self.plain(&world.end, |on| *on == Trigger::End);
    }

    fn plain(&mut self, moment: &Moment, wanted: impl Fn(&Trigger) -> bool) {
        let is_wanted = |probe: &&Probe| matches!(&probe.attach, Attach::Event(trigger) if wanted(trigger));
        for probe in self.program.probes.iter().filter(is_wanted) {
            self.probe(probe, moment, None, Regs::default(), None);
        }
    }

    fn enter(&mut self, world: &World, id: usize, moment: &Moment) {
        let call = &world.calls[id];
        let above = |n: u64| call.entry.get(world::Reg::Sp) + 8 + 8 * n;
        let word = |bytes: Vec<u8>| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        let stack = (0..16).map(|n| self.memory.read(above(n), 8).map(word)).collect();
        let entered = EntryState { time_ns: moment.time_ns, regs: call.entry.clone(), stack };
        self.entered.insert(id, entered.clone());
        self.track(call, moment);
        for probe in &self.program.probes {
            let Attach::Entry(_, sites) = &probe.attach else { continue };
            let Some(site) = site(sites, call) else { continue };
            let mut regs = call.entry.clone();
            let past = site.place.offset - call.function;
            // The stack pointer is that at the first instruction, whatever the probe's position is.
            regs.set(world::Reg::Ip, regs.get(world::Reg::Ip) + past);
            self.probe(probe, moment, Some(site), regs, Some(entered.clone()));
        }
    }

    fn leave(&mut self, world: &World, id: usize, moment: &Moment) {
        let call = &world.calls[id];
        let entered = self.entered.remove(&id);
        if entered.is_some() {
            self.untrack(call, moment);
        }
        for probe in &self.program.probes {
            let Attach::Return(_, sites) = &probe.attach else { continue };
            if entered.is_none() && (wants_entry(probe) || self.program.is_tracked(probe)) {
                continue;
            }
            let Some(site) = site(sites, call) else { continue };
            self.probe(probe, moment, Some(site), call.at_return(), entered.clone());
        }
    }

    fn probe(
        &mut self,
        probe: &Probe,
        moment: &Moment,
        site: Option<&Site>,
        regs: Regs,
        entered: Option<EntryState>,
    ) {
        if self.outcome.exit.is_some() && probe.attach != Attach::Event(Trigger::End) {
            return;
        }
        let vars = probe.vars.iter().map(|var| Val::zero(&var.ty, self.program)).collect();
        let around = self.around(moment, &regs, &probe.attach);
        let (record, queue, returned) = Default::default();
        let mut run = Run { probe, moment, site, regs, entered, around, vars, record, queue, returned };
        let wanted = probe.predicate.as_ref().is_none_or(|p| self.eval(&mut run, p).truth());
        match probe.records {
            _ if !wanted => {}
            Some(records) => self.records(&mut run, records),
            None => drop(self.block(&mut run, &probe.body)),
        }
        if matches!(probe.attach, Attach::Event(Trigger::Test { .. })) {
            self.outcome.returned.push(run.returned);
        }
        for later in std::mem::take(&mut run.queue) {
            self.read(moment, later);
        }
    }

    /// Runs the body for each record of a batch.
    fn records(&mut self, run: &mut Run, records: Records) {
        let [first, count] = [world::Reg::Di, world::Reg::Si].map(|reg| run.regs.get(reg));
        for index in 0..count {
            run.record = first.wrapping_add(index.wrapping_mul(records.bytes.into()));
            if self.block(run, &run.probe.body) == Flow::Exit {
                break;
            }
        }
    }

    /// Pushes a call onto its thread's stack if one of the program's tracked probes is at its function. Calls that
    /// are not above it have ended.
    fn track(&mut self, call: &world::Call, moment: &Moment) {
        if let Some(func) = self.tracked_func(call) {
            let sp = call.entry.get(world::Reg::Sp);
            let calls = self.tracked.entry(moment.tid).or_default();
            calls.retain(|around| around.sp > sp);
            calls.push(TrackedCall { sp, time_ns: moment.time_ns, func });
        }
    }

    /// Handles the return of a tracked call, which ends all calls nested in it.
    fn untrack(&mut self, call: &world::Call, moment: &Moment) {
        if self.tracked_func(call).is_none() {
            return;
        }
        let sp = call.entry.get(world::Reg::Sp);
        let calls = self.tracked.entry(moment.tid).or_default();
        if calls.iter().any(|entered| entered.sp == sp) {
            calls.retain(|around| around.sp > sp);
        }
    }

    fn tracked_func(&self, call: &world::Call) -> Option<NameId> {
        let tracked = self.program.probes.iter().filter(|probe| self.program.is_tracked(probe));
        tracked.filter_map(|probe| site(probe.attach.sites(), call).map(|site| site.func)).next()
    }

    /// The tracked calls that enclose the current one.
    fn around(&self, moment: &Moment, regs: &Regs, attach: &Attach) -> Vec<TrackedCall> {
        let popped = if matches!(attach, Attach::Return(..)) { 8 } else { 0 };
        let sp = regs.get(world::Reg::Sp).wrapping_sub(popped);
        let calls = self.tracked.get(&moment.tid).into_iter().flatten();
        calls.filter(|around| around.sp > sp).cloned().collect()
    }

    /// Performs the reader's action for a record.
    fn read(&mut self, moment: &Moment, later: Later) {
        let name = |map: MapId| self.program.maps[map.0 as usize].name.clone();
        let what = match later {
            Later::Emit(what) => what,
            Later::PrintEntry(map, key) => {
                let (key, cell) = self.entry(map, &key);
                What::PrintEntry(name(map), key, cell)
            }
            Later::PrintMap(map, top, div) => What::PrintMap(name(map), self.contents(map), top, div),
            Later::Clear(map) => {
                self.tables[map.0 as usize].clear();
                What::Clear(name(map))
            }
            Later::Zero(map) => {
                self.tables[map.0 as usize].zero(&self.program.maps[map.0 as usize], self.program);
                What::Zero(name(map))
            }
        };
        if let What::Exit(code) = what {
            self.outcome.exit.get_or_insert(code);
        }
        let Moment { cpu, time_ns, tgid, tid, .. } = *moment;
        self.outcome.output.push(Output { cpu, time_ns, tgid, tid, what });
    }

    fn loss(&mut self, loss: Loss) {
        self.outcome.loss(loss, 1);
    }

    fn finish(mut self) -> Outcome {
        for (id, map) in (0..).map(MapId).zip(&self.program.maps) {
            let contents = self.contents(id);
            self.outcome.maps.insert(map.name.clone(), contents);
        }
        self.outcome
    }
}

/// Whether the probe uses values of the call's entry, which are unknown if the call began before the probe was
/// attached.
fn wants_entry(probe: &Probe) -> bool {
    let mut uses_entry = false;
    let mut see = |e: &Expr| {
        use ExprKind::{Arg, Duration, Param, ParamField, Started};
        uses_entry |= matches!(e.kind, Param(_) | ParamField { .. } | Arg(_) | Duration | Started);
    };
    visit::visit_probe(probe, &mut see);
    uses_entry
}

fn site<'p>(sites: &'p [Site], call: &world::Call) -> Option<&'p Site> {
    sites.iter().find(|site| {
        site.file.is_some_and(|f| f.0 == call.file)
            && crate::catalog::covers(call.function, site.place.offset)
    })
}

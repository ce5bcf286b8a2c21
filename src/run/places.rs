//! Where the clauses of scripts run with `--in-process`: what only the kernel can run goes there, with all clauses that share a map or other
//! state with it. The others run in the traced processes.

use super::compiler::Compiler;
use crate::console::Messages;
use crate::patch_sites;
use anyhow::{Result, anyhow};
use host::Machine;
use lang::expand::maps_of;
use lang::resolve::providers::{self, ProviderMatch};
use runtime::{ClauseNeeds, ScriptState};
use std::collections::{BTreeMap, BTreeSet};
use wire::manifest::{Attach, CompiledScript, Side};

/// Risk of the kernel's return probes that those in the process do not have.
const RISK_OF_RETURNS: &str =
    "; a C++ exception that passes a call whose return the kernel probes ends the program";

/// A clause: number of its script, and its own.
type Clause = (usize, u32);

/// Where the clauses run.
#[derive(Debug, Default)]
pub struct Places {
    all: BTreeMap<Clause, ClauseNeeds>,
    /// Clauses that run in the kernel, with the reasons.
    kernel: BTreeMap<Clause, String>,
    /// Clauses with functions to probe.
    calls: BTreeSet<Clause>,
    /// Clauses that probe returns of functions.
    returns: BTreeSet<Clause>,
}

impl Places {
    /// Decides for scripts that were compiled for the traced processes. `patches`: a function that cannot be patched is a reason for
    /// the kernel.
    ///
    /// # Errors
    /// An object cannot be read.
    pub fn of(
        machine: &Machine,
        compilers: &[Compiler<'_>],
        modules: &[CompiledScript],
        patches: bool,
    ) -> Result<Places> {
        let mut places = Places::default();
        for (script, (compiler, module)) in compilers.iter().zip(modules).enumerate() {
            let needs = runtime::needs(module)?;
            places.all.extend(needs.into_iter().map(|(number, needs)| ((script, number), needs)));
            for program in &module.manifest.programs {
                if let Attach::Functions { side, hook, .. } = &program.attach {
                    places.calls.insert((script, program.clause));
                    if *side != Side::Entry && !hook.is_in_kernel() {
                        places.returns.insert((script, program.clause));
                    }
                }
            }
            for program in &module.manifest.programs {
                let clause = (script, program.clause);
                let returns = places.returns.contains(&clause);
                let reason = || patch_sites::why_kernel(machine, &module.manifest, program, returns);
                if let Some(reason) = patches.then(reason).flatten() {
                    places.kernel.insert(clause, reason);
                }
            }
            places.add_written(script, compiler);
        }
        let given =
            places.all.iter().filter_map(|(clause, needs)| Some((*clause, needs.why_kernel.clone()?)));
        places.kernel.extend(given.collect::<Vec<_>>());
        places.join();
        Ok(places)
    }

    /// Adds the clauses of libraries that are not loaded yet, and the maps of code that is never reached: the optimiser has removed it
    /// from the object, but the code generator needs them.
    fn add_written(&mut self, script: usize, compiler: &Compiler<'_>) {
        for (clause, number) in compiler.clauses().zip(0..) {
            let maps = maps_of(clause).into_iter().map(ScriptState::Map);
            if let Some(needs) = self.all.get_mut(&(script, number)) {
                needs.shares.extend(maps);
            } else if compiler.has_pending() {
                let shares = maps.collect();
                let text = compiler.text_of(clause);
                let needs = ClauseNeeds { text, why_kernel: None, shares, reads_floats: false };
                self.all.insert((script, number), needs);
                self.calls.insert((script, number));
                if clause.probes.iter().any(|probe| is_return_probe(&probe.provider.node)) {
                    self.returns.insert((script, number));
                }
            }
        }
    }

    /// Adds the clauses that share something with those in the kernel.
    fn join(&mut self) {
        let mut new: Vec<Clause> = self.kernel.keys().copied().collect();
        while let Some(in_kernel) = new.pop() {
            let with = &self.all[&in_kernel];
            for (clause, needs) in &self.all {
                let shared = needs.shares.intersection(&with.shares).next();
                if let (Some(what), false) = (shared, self.kernel.contains_key(clause)) {
                    self.kernel.insert(*clause, format!("it shares {what} with `{}`", with.text));
                    new.push(*clause);
                }
            }
        }
    }

    /// The reason why the kernel runs everything; `None` if a part that has probes of functions runs in the traced processes.
    pub fn all_in_kernel(&self) -> Option<String> {
        let reason = self.reasons().next()?.1;
        let remains = self.calls.iter().any(|clause| !self.kernel.contains_key(clause));
        let risk = if self.returns.is_empty() { "" } else { RISK_OF_RETURNS };
        (!remains).then(|| format!("{reason}{risk}"))
    }

    /// The error of a clause that only the kernel can run, and that reads what only programs in a process can.
    pub fn contradiction(&self) -> Option<anyhow::Error> {
        let (clause, reason) = self.sorted().into_iter().find(|(clause, _)| self.all[clause].reads_floats)?;
        let text = &self.all[clause].text;
        Some(anyhow!(
            "`{text}` reads a floating-point argument or result, which the kernel cannot read, but only the kernel can run it: {reason}; \
             leave out the number, or put it into a clause of its own"
        ))
    }

    /// Whether some clauses run in the kernel.
    pub fn need_kernel(&self) -> bool {
        !self.kernel.is_empty()
    }

    /// Clauses in the kernel: text, reason. Those that do not merely share something come first.
    pub fn reasons(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sorted().into_iter().map(|(clause, reason)| (self.all[clause].text.as_str(), reason))
    }

    fn sorted(&self) -> Vec<(&Clause, &str)> {
        let mut all: Vec<(&Clause, &str)> =
            self.kernel.iter().map(|(clause, reason)| (clause, reason.as_str())).collect();
        all.sort_by_key(|(_, reason)| reason.starts_with("it shares"));
        all
    }

    /// Says why there is something for the kernel to run.
    pub fn explain_kernel(&self, messages: &Messages) {
        self.reasons()
            .take(1)
            .for_each(|(_, reason)| messages.note(&format!("{reason}; the kernel must run it")));
    }

    /// Prints for each clause in the kernel why it is there; of those that probe returns, which is a risk, also without `-v`.
    pub fn list_kernel(&self, messages: &Messages) {
        for (clause, reason) in self.sorted() {
            let text = &self.all[clause].text;
            match self.returns.contains(clause) {
                true => {
                    messages.warning(&format!("`{text}` runs in the kernel: {reason}{RISK_OF_RETURNS}"));
                }
                false => messages.detail(|| format!("`{text}` runs in the kernel: {reason}")),
            }
        }
    }

    /// Clauses that run in the kernel, in a few words.
    pub fn in_kernel(&self) -> Option<String> {
        let (count, (_, reason)) = (self.kernel.len(), self.reasons().next()?);
        let clauses = if count == 1 { "a clause".to_owned() } else { format!("{count} clauses") };
        Some(format!("{clauses} in the kernel: {reason}"))
    }

    /// The division of a script.
    pub fn part(&self, script: usize, percpu_lookup: bool) -> codegen::Part {
        let in_kernel = self.kernel.keys().filter(|(of, _)| *of == script);
        let elsewhere = self.all.iter().filter(|(clause, _)| !self.kernel.contains_key(clause));
        codegen::Part {
            kernel: in_kernel.map(|(_, clause)| *clause).collect(),
            process_maps: elsewhere.flat_map(|(_, needs)| &needs.shares).filter_map(name_of_map).collect(),
            percpu_lookup,
            kernel_walks: self.kernel.keys().any(|clause| self.all[clause].walks_stacks()),
        }
    }
}

/// Whether a provider as written probes the return of functions.
fn is_return_probe(provider: &str) -> bool {
    matches!(providers::find(provider), ProviderMatch::Known(row) if row.names.contains(&"uretprobe"))
}

fn name_of_map(shared: &ScriptState) -> Option<String> {
    match shared {
        ScriptState::Map(name) => Some(name.clone()),
        ScriptState::UnwindTables | ScriptState::Calls => None,
    }
}

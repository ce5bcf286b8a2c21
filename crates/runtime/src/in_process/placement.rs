//! Which clauses of a compiled script can run in the traced processes (`--in-process`), and why the others need the kernel.
//!
//! In: a compiled script. Out: for each clause the reason why only the kernel can run it, if there is one, and the maps and other state that
//! it shares with other clauses. Not here: the choice where a clause runs (`cudatrace`).

use super::user_space::{self, parse};
use crate::error::LoadError;
use native::survey::Survey;
use std::collections::{BTreeMap, BTreeSet};
use wire::Manifest;
use wire::counter::{COUNTERS_MAP, FAILURES_MAP};
use wire::manifest::{self, Attach, CompiledScript, Program};
use wire::trigger::Trigger;

/// Maps that each place has for itself.
const OF_EACH_PLACE: [&str; 5] =
    [manifest::RING_MAP, manifest::CONTROL_MAP, manifest::PIDS_MAP, COUNTERS_MAP, FAILURES_MAP];
/// Beginning of the names of scratch maps, which each place has, too.
const SCRATCH: &str = "ct_scratch";

/// State of a script that is at one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScriptState {
    /// A map of the script, by its name.
    Map(String),
    /// Tables that walks of user stacks read.
    UnwindTables,
    /// Values that the entries of calls store for later.
    Calls,
}

impl std::fmt::Display for ScriptState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ScriptState::Map(name) => write!(f, "`@{name}`"),
            ScriptState::UnwindTables => f.write_str("the unwind tables"),
            ScriptState::Calls => f.write_str("values of running calls"),
        }
    }
}

/// Requirements of a clause on the place where it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClauseNeeds {
    /// The probe list as written.
    pub text: String,
    /// The reason why only the kernel can run it, as a sentence.
    pub why_kernel: Option<String>,
    /// State that it shares with other clauses.
    pub shares: BTreeSet<ScriptState>,
    /// Whether it reads floating-point numbers in registers, which the kernel cannot.
    pub reads_floats: bool,
}

impl ClauseNeeds {
    /// Whether it walks user stacks.
    pub fn walks_stacks(&self) -> bool {
        self.shares.contains(&ScriptState::UnwindTables)
    }
}

/// Requirements of the clauses of a script, by their numbers. The script was compiled for the traced processes.
///
/// # Errors
/// [`LoadError::Object`]
pub fn needs(compiled: &CompiledScript) -> Result<BTreeMap<u32, ClauseNeeds>, LoadError> {
    let object = parse(compiled)?;
    let survey = Survey::new(&object);
    let mut clauses: BTreeMap<u32, ClauseNeeds> = BTreeMap::new();
    for program in &compiled.manifest.programs {
        let uses = survey.of(&program.symbol);
        let clause = clauses.entry(program.clause).or_default();
        if !program.auxiliary || clause.text.is_empty() {
            clause.text.clone_from(&program.text);
        }
        let kernel_stack =
            |map: &String| compiled.manifest.stacks.iter().any(|stack| !stack.user && stack.symbol == *map);
        let stack = uses.maps.iter().any(kernel_stack).then(|| "only the kernel has its stacks".to_owned());
        let why = why_kernel(program).or(stack).or_else(|| Some(uses.unsupported?.to_string()));
        clause.why_kernel = clause.why_kernel.take().or(why);
        clause.reads_floats |= uses.vectors;
        clause.shares.extend(uses.maps.iter().filter_map(|map| shared(&compiled.manifest, map)));
    }
    Ok(clauses)
}

/// State that clauses with this map share.
fn shared(manifest: &Manifest, map: &str) -> Option<ScriptState> {
    if OF_EACH_PLACE.contains(&map) || map.starts_with(SCRATCH) {
        return None;
    }
    if manifest.stacks.iter().any(|stack| stack.user && stack.symbol == map) {
        return Some(ScriptState::UnwindTables);
    }
    let of_script = manifest.maps.iter().find(|one| one.symbol == map);
    Some(of_script.map_or(ScriptState::Calls, |one| ScriptState::Map(one.name.clone())))
}

/// The reason why a program is of the kernel, whatever it does.
fn why_kernel(program: &Program) -> Option<String> {
    let is_of_kernel = match &program.attach {
        Attach::Functions { hook, .. } => hook.is_in_kernel(),
        Attach::Event(trigger) => !matches!(
            trigger,
            Trigger::Begin | Trigger::End | Trigger::Interval { .. } | Trigger::Signal { .. }
        ),
        Attach::ProcessEnd => false,
        Attach::Follow { .. } => true,
    };
    is_of_kernel.then(|| match program.text.as_str() {
        "" => "it follows events of the kernel".to_owned(),
        text => format!("`{text}` is an event of the kernel"),
    })
}

/// Refuses programs that only the kernel can run.
pub(crate) fn check(manifest: &Manifest) -> Result<(), LoadError> {
    let reason = manifest.programs.iter().find_map(why_kernel);
    reason.map_or(Ok(()), |reason| Err(LoadError::NotInProcess { reason }))
}

/// The reason why the programs of a script cannot run in the traced processes together; `None` if they can.
pub fn why_not_in_process(compiled: &CompiledScript) -> Option<String> {
    check(&compiled.manifest).and_then(|()| user_space::check(compiled)).err().map(|error| error.to_string())
}

//! Turns resolved clauses into the checked program: types, names, conversions. The last stage that reports the user's mistakes.
//!
//! The script is checked in rounds. A round checks all bodies with the types of variables and maps that earlier rounds
//! found. When a round finds no new types, its output is the program and its diagnostics are reported.
//!
//! Not here: attach points (`resolve`), machine code (`codegen`).

mod aggregates;
mod args;
mod calls;
mod comptime;
pub mod config;
mod declare;
mod expr;
mod hidden_calls;
mod map_calls;
mod maps;
mod memory;
mod metrics;
mod operators;
pub mod passes;
mod same;
mod schedule;
pub(crate) mod scope;
pub mod slots;
pub(crate) mod stmt;
mod temporaries;
mod tracked;
mod type_info;
mod type_names;
pub(crate) mod variables;
mod words;

pub use crate::builtins::address::registers;
use crate::builtins::args::Args;
use crate::check::passes::dead_clauses::ClauseMaps;
use crate::check::passes::{dead_clauses, unique_spans};

use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

use crate::builtins::probe_context::ProbeContext;
use crate::catalog::{Catalog, FileId};
use crate::check::scope::{Scope, VarState};
use crate::check::slots::{MapState, Slot, ValueState};
use crate::diagnostics::suggest::similar;
use crate::diagnostics::{Diagnostic, Diagnostics, Severity};
use crate::expand::macros::{note_values, written};
use crate::expand::options::OptionValue;
use crate::expand::{map_names, maps_of};
use crate::hir::{self, Attach, Config, Hook, Map, MapId, MapValue, Names, Probe, Program, Records};
use crate::limits;
use crate::resolve::grouping::{Layout, ProgramGroup};
use crate::resolve::interner::Interner;
use crate::resolve::setting::{PendingTarget, Run, Setting};
use crate::resolve::{self, ResolvedClause, ResolvedScript};
use crate::source::span::{Source, Span};
use crate::syntax::ast;
use crate::syntax::ast::{Item, Labels, Script};
use crate::types::Types;
use cuda::gpu::RECORD_BYTES;

/// A variable of unknown type.
const UNTYPED: &str = "E0205";
/// A map that is read and never assigned.
const NEVER_ASSIGNED: &str = "E0207";

/// Inputs of [`check`] besides the script.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Functions that change the machine are allowed.
    pub unsafe_ok: bool,
    /// State of the running session; the new program's lists begin with it.
    pub known: Option<SessionState>,
    /// Only calls in these files: for libraries that are loaded while the program runs.
    pub only_files: Option<Vec<FileId>>,
    /// Positional parameters, `$1` first.
    pub params: Vec<String>,
    /// Prefix of the names of the script's maps, when several scripts share a session.
    pub map_prefix: Option<String>,
    /// Options after the script's name: `--top=20`.
    pub given: Vec<OptionValue>,
    /// Settings from the environment, as `name=value`; they win over the script's.
    pub environment: Vec<(String, String)>,
    /// Which clauses run.
    pub run: Run,
    /// The script is only checked, and may run on a machine with another kernel: what this kernel lacks is a warning.
    pub for_other_machine: bool,
    /// A regular expression: attach points with other names are skipped.
    pub probe_filter: Option<String>,
}

/// Lists of a running program; their ids and types do not change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionState {
    /// Its maps.
    pub maps: Vec<Map>,
    /// Its names.
    pub names: Names,
    /// Its enums.
    pub enums: Vec<hir::Enum>,
    /// Its structs.
    pub structs: Vec<hir::Struct>,
}

impl SessionState {
    /// The state of a program that later clauses need.
    pub fn of(program: &Program) -> SessionState {
        SessionState {
            maps: program.maps.clone(),
            names: program.names.clone(),
            enums: program.enums.clone(),
            structs: program.structs.clone(),
        }
    }
}

/// A script without mistakes.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedScript {
    /// The program.
    pub program: Program,
    /// Targets that no process has mapped yet.
    pub pending: Vec<PendingTarget>,
}

/// Resolves and checks a script. `None` when there are errors; all of them are in `diags`.
pub fn check(
    script: &Script,
    src: &Source,
    options: &Options,
    catalog: &dyn Catalog,
    diags: &mut Diagnostics,
) -> Option<CheckedScript> {
    let before = diags.clone();
    let checked = check_in(schedule::Order::Maps, script, src, options, catalog, diags);
    if !diags.has_errors() {
        return checked;
    }
    // The later of two conflicting uses is reported.
    let known = before.list.len();
    *diags = before;
    let checked = check_in(schedule::Order::Text, script, src, options, catalog, diags);
    note_values(script, src, &mut diags.list[known..]);
    checked
}

fn check_in(
    order: schedule::Order,
    script: &Script,
    src: &Source,
    options: &Options,
    catalog: &dyn Catalog,
    diags: &mut Diagnostics,
) -> Option<CheckedScript> {
    let errors_before = diags.has_errors();
    let known = options.known.clone().unwrap_or_default();
    let mut types = Types::new(known.enums, known.structs, catalog);
    let mut names = Interner::new(known.names);
    let config = settings(script, options, diags);
    let setting = Setting {
        catalog,
        only_files: options.only_files.as_deref(),
        probe_filter: options.probe_filter.as_deref().and_then(|filter| regex::Regex::new(filter).ok()),
        missing: config.missing_probes,
        most: config.max_probes,
        run: &options.run,
        for_other_machine: options.for_other_machine,
    };
    let resolved = resolve::resolve(script, &setting, &mut types, &mut names, diags);
    let mut checker = Checker::new(src, options, catalog, types, names, config);
    checker.has_earlier_errors = diags.has_errors();
    checker.sends_calls = resolved.sends_calls;
    let unknown = |pending: &&PendingTarget| cuda::Library::from_alias(&pending.target).is_none();
    checker.pending_library = resolved.pending.iter().find(unknown).map(|pending| pending.target.clone());
    checker.files = resolved.files.iter().map(|file| file.id).collect();
    checker.types.visible_files.clone_from(&checker.files);
    checker.add_session_maps(&known.maps);
    checker.top_level(script, diags);
    let mut probes = checker.rounds(&resolved, order, diags);
    unique_spans::dedup(&mut probes);
    let elsewhere = options.only_files.as_ref().map(|_| checker.maps_of_clauses(script));
    dead_clauses::remove(&mut probes, elsewhere.unwrap_or_default());
    (errors_before || !diags.has_errors()).then(|| checker.finish(probes, resolved))
}

pub(crate) fn settings(script: &Script, options: &Options, diags: &mut Diagnostics) -> Config {
    let mut config = Config::default();
    for item in &script.items {
        if let Item::Config(entries) = item {
            entries.iter().for_each(|entry| config::apply(entry, &mut config, diags));
        }
    }
    for (name, value) in &options.environment {
        // The caller has already reported an error in the value.
        let _ = config::variable(name, value, &mut config);
    }
    // Tests and benches print a verdict, and the output of failed ones.
    config.print_maps_on_exit &= !matches!(options.run, Run::Tests { .. });
    config
}

/// Upper bound of rounds. Slots only widen, in few steps, so it is never reached.
const MAX_ROUNDS: usize = 64;

/// A kind of map in a declaration.
struct MapKind {
    name: &'static str,
    /// A new key replaces an old one.
    evicts: bool,
    /// Only for aggregations.
    per_cpu: bool,
    /// Keys begin with a process id, and are deleted when the process exits.
    by_process: bool,
}

static MAP_KINDS: &[MapKind] = &[
    MapKind { name: "hash", evicts: false, per_cpu: false, by_process: false },
    MapKind { name: "lruhash", evicts: true, per_cpu: false, by_process: false },
    MapKind { name: "percpuhash", evicts: false, per_cpu: true, by_process: false },
    MapKind { name: "percpulruhash", evicts: true, per_cpu: true, by_process: false },
    MapKind { name: "processhash", evicts: false, per_cpu: false, by_process: true },
];

/// `let @m = hash(N)`
struct DeclaredMap {
    max_entries: u32,
    kind: &'static MapKind,
    span: Span,
}

/// A body for one group of attach points, with its state between rounds and the facts that it used.
struct Body<'r, 'a> {
    clause: &'r ResolvedClause<'a>,
    group: &'r ProgramGroup,
    /// The first of the bodies that one clause of the source expands to.
    first: bool,
    vars: Vec<VarState>,
    /// A variable that it read has changed since.
    guessed: bool,
    /// A condition of `comptime` was not decided.
    undecided: bool,
    /// Maps whose key or value types it read.
    seen: Vec<MapReading>,
    findings: Diagnostics,
    probe: Option<Probe>,
}

/// The reading of a map's types.
struct MapReading {
    /// The index of the map.
    map: usize,
    /// The change count of the key type at the first reading of it.
    key: Option<u32>,
    /// The change count of the value type at the first reading of it.
    value: Option<u32>,
}

impl MapReading {
    fn of(index: usize, map: &MapState) -> MapReading {
        MapReading { map: index, key: map.key.take_seen(), value: map.value.take_seen() }
    }

    /// Whether a type that was read has changed since.
    fn has_changed(&self, maps: &[MapState]) -> bool {
        let map = &maps[self.map];
        map.key.has_changed_since(self.key) || map.value.has_changed_since(self.value)
    }
}

impl<'r, 'a> Body<'r, 'a> {
    fn new(clause: &'r ResolvedClause<'a>, group: &'r ProgramGroup, first: bool) -> Body<'r, 'a> {
        let (vars, seen, findings) = (Vec::new(), Vec::new(), Diagnostics::default());
        let (guessed, undecided) = (false, false);
        Body { clause, group, first, vars, guessed, undecided, seen, findings, probe: None }
    }

    /// Whether it is unchecked, or a fact that it used has changed since.
    fn is_due(&self, maps: &[MapState]) -> bool {
        self.probe.is_none() || self.guessed || self.seen.iter().any(|reading| reading.has_changed(maps))
    }
}

/// The state of checking.
pub(crate) struct Checker<'a> {
    pub src: &'a Source,
    pub options: &'a Options,
    pub catalog: &'a dyn Catalog,
    pub types: Types<'a>,
    pub names: Interner,
    pub config: Config,
    /// `#define`
    pub defines: FxHashMap<String, &'a ast::Expr>,
    /// The `#define` around the current point.
    expansion: Option<variables::DefineExpansion>,
    /// `let @m = hash(N)`
    declared: FxHashMap<String, DeclaredMap>,
    /// `metric @m = { ... }`
    metrics: Vec<metrics::MetricDeclaration>,
    /// Maps that are declared as metrics, and the names of the metrics.
    metric_names: (FxHashMap<String, Span>, FxHashMap<String, Span>),
    labels: Labels,
    gpu_joins: u32,
    /// As [`ast::Script::given`].
    pub(crate) given: Vec<Span>,
    /// As [`ast::Script::expansions`].
    expansions: FxHashMap<Span, Option<Span>>,
    pub maps: Vec<MapState>,
    /// By name.
    map_ids: FxHashMap<String, MapId>,
    /// Maps of a running program that this script uses, with the first use.
    used: FxHashMap<MapId, Span>,
    /// Constants of the enum that is being declared.
    pub enumerators: FxHashMap<String, i64>,
    /// Earlier stages reported errors, which may explain unknown types.
    pub has_earlier_errors: bool,
    /// The script exports calls as spans, so nested exports name their parent.
    pub sends_calls: bool,
    /// Findings of this round.
    pub diags: Diagnostics,
    /// Files with attach points of the script.
    files: Vec<FileId>,
    /// A library that is not loaded yet and has no table of signatures.
    pending_library: Option<String>,
    /// Types are known well enough to decide conditions of `comptime`.
    pub(crate) decides: bool,
    /// The current probe.
    pub context: ProbeContext,
    /// Scope at the current point of its body.
    pub scope: Scope,
}

impl<'a> Checker<'a> {
    fn new(
        src: &'a Source,
        options: &'a Options,
        catalog: &'a dyn Catalog,
        types: Types<'a>,
        names: Interner,
        config: Config,
    ) -> Self {
        let (defines, declared, maps) = (FxHashMap::default(), FxHashMap::default(), Vec::new());
        let metrics = Vec::new();
        let (diags, scope, enumerators) = (Diagnostics::default(), Scope::default(), FxHashMap::default());
        let context = ProbeContext::default();
        Checker {
            src,
            options,
            catalog,
            types,
            names,
            config,
            defines,
            expansion: None,
            declared,
            metrics,
            metric_names: Default::default(),
            labels: Labels::new(),
            gpu_joins: 0,
            given: Vec::new(),
            expansions: FxHashMap::default(),
            maps,
            map_ids: FxHashMap::default(),
            used: FxHashMap::default(),
            enumerators,
            has_earlier_errors: false,
            sends_calls: false,
            diags,
            files: Vec::new(),
            pending_library: None,
            decides: false,
            context,
            scope,
        }
    }

    fn add_session_maps(&mut self, maps: &[Map]) {
        self.maps = maps.iter().map(MapState::of_session).collect();
        self.map_ids = maps.iter().map(|map| map.name.clone()).zip((0..).map(MapId)).collect();
    }

    /// The maps of all clauses, also of those without attach points in this module.
    fn maps_of_clauses(&self, script: &Script) -> ClauseMaps {
        let mut found = ClauseMaps::default();
        for item in &script.items {
            let Item::Clause(clause) = item else { continue };
            let maps = maps_of(clause).into_iter().filter_map(|name| self.map_ids.get(&name).copied());
            match clause.span == Span::default() {
                true => found.inserted.push(maps.collect()),
                false => found.written.extend(maps),
            }
        }
        found
    }

    fn top_level(&mut self, script: &'a Script, diags: &mut Diagnostics) {
        self.labels.clone_from(&script.labels);
        self.gpu_joins = script.gpu_joins;
        self.given.clone_from(&script.given);
        self.expansions.clone_from(&script.expansions);
        for item in &script.items {
            if let Item::Declaration(declaration) = item {
                self.declare_tags(&declaration.base);
            }
        }
        for item in &script.items {
            match item {
                Item::Define { name, value } => {
                    self.defines.insert(name.node.clone(), value);
                }
                Item::Declaration(declaration) => self.declare(declaration),
                Item::MapDecl { name, kind, max_entries } => self.declare_map(name, kind, max_entries, diags),
                Item::Metric { map, entries } => self.declare_metric(map, entries),
                Item::Clause(_) | Item::Config(_) | Item::Import(_) | Item::Macro(_) => {}
            }
        }
        self.report(diags);
        self.warn_of_unused(script, diags);
    }

    /// Warns of maps that are declared in a script with clauses, and in none of them.
    fn warn_of_unused(&self, script: &Script, diags: &mut Diagnostics) {
        if !script.items.iter().any(|item| matches!(item, Item::Clause(_))) {
            return;
        }
        let names = |item: &Item| match item {
            Item::Clause(clause) => map_names(clause, true),
            Item::Metric { map, .. } => BTreeSet::from([map.node.clone()]),
            _ => BTreeSet::new(),
        };
        let used: BTreeSet<String> = script.items.iter().flat_map(names).collect();
        for item in &script.items {
            // Maps of the prelude are declared together.
            if let Item::MapDecl { name, .. } = item
                && self.declared.contains_key(&name.node)
                && !name.node.starts_with("__")
                && !used.contains(&name.node)
            {
                diags.warning("W0262", name.span, format!("map `@{}` is not used", name.node));
            }
        }
    }

    fn declare_map(&mut self, name: &ast::Name, kind: &ast::Name, max: &ast::Expr, diags: &mut Diagnostics) {
        let Some(found) = MAP_KINDS.iter().find(|known| known.name == kind.node) else {
            let names = MAP_KINDS.iter().map(|kind| kind.name);
            let error = diags.error("E0110", kind.span, format!("unknown kind of map `{}`", kind.node));
            error.help(match similar(&kind.node, names).first() {
                Some(near) => format!("did you mean `{near}`?"),
                None => "write `hash(N)` for at most N keys".into(),
            });
            return;
        };
        match max.kind {
            ast::ExprKind::Int { value, .. } if (1..=limits::MAP_ENTRIES as u64).contains(&value) => {
                let declared = DeclaredMap { max_entries: value as u32, kind: found, span: kind.span };
                self.declared.insert(name.node.clone(), declared);
            }
            _ => {
                let message = format!("a map holds from 1 to {} keys", limits::MAP_ENTRIES);
                diags.error("E0110", max.span, message);
            }
        }
    }

    /// Checks all bodies until no type changes, then reports.
    fn rounds(
        &mut self,
        resolved: &ResolvedScript<'a>,
        order: schedule::Order,
        diags: &mut Diagnostics,
    ) -> Vec<Probe> {
        let all =
            resolved.clauses.iter().flat_map(|clause| clause.groups.iter().map(move |group| (clause, group)));
        let mut seen = FxHashSet::default();
        let all = all.map(|(clause, at)| {
            let span = clause.clause.body.span;
            Body::new(clause, at, seen.insert(span) || span == Span::default())
        });
        let mut bodies: Vec<Body> = all.collect();
        self.check_all(order, &mut bodies);
        self.decides = true;
        if bodies.iter().any(|body| body.undecided) {
            bodies.iter_mut().filter(|body| body.undecided).for_each(|body| body.probe = None);
            self.check_all(order, &mut bodies);
        }
        let all: Vec<usize> = (0..bodies.len()).collect();
        if self.infer_from_absent(resolved) {
            self.check_until_stable(&mut bodies, &all);
        }
        let has_errors =
            bodies.iter().flat_map(|body| &body.findings.list).any(|found| found.severity == Severity::Error);
        if !has_errors && self.infer_integers() {
            self.check_until_stable(&mut bodies, &all);
        }
        self.diags.merge(bodies.iter_mut().map(|body| std::mem::take(&mut body.findings)).collect());
        self.check_maps();
        self.check_metrics();
        self.drop_consequences();
        self.report(diags);
        bodies.into_iter().filter_map(|body| body.probe).collect()
    }

    /// Checks all bodies until the facts that they use no longer change.
    fn check_all(&mut self, order: schedule::Order, bodies: &mut [Body<'_, 'a>]) {
        if order == schedule::Order::Maps {
            schedule::components(self, bodies)
                .iter()
                .for_each(|component| self.check_until_stable(bodies, component));
        }
        let all: Vec<usize> = (0..bodies.len()).collect();
        self.check_until_stable(bodies, &all);
    }

    /// Infers types of unassigned maps from clauses without attach points, such as those of a library that is not loaded yet.
    /// All other results of these clauses are dropped. Returns whether a type was inferred.
    fn infer_from_absent(&mut self, resolved: &ResolvedScript<'a>) -> bool {
        let is_known = |map: &MapState, types: &Types| map.is_known(types) && map.key_types(types).is_some();
        if self.maps.iter().all(|map| is_known(map, &self.types)) {
            return false;
        }
        let before = self.maps.clone();
        let nowhere = ProgramGroup::Calls { hook: Hook::Uprobe, returns: true, layout: Layout::default() };
        let absent = resolved.clauses.iter().filter(|clause| clause.groups.is_empty());
        let mut bodies: Vec<Body> = absent.map(|clause| Body::new(clause, &nowhere, true)).collect();
        let all: Vec<usize> = (0..bodies.len()).collect();
        self.check_until_stable(&mut bodies, &all);
        self.map_ids.retain(|_, id| (id.0 as usize) < before.len());
        self.maps.truncate(before.len());
        let mut inferred = false;
        for (map, before) in self.maps.iter_mut().zip(before) {
            match !is_known(&before, &self.types) && is_known(map, &self.types) {
                true => inferred = true,
                false => *map = before,
            }
        }
        inferred
    }

    /// Infers that maps hold integers whose values come only from themselves and each other: `@a = @a + 1`. Returns whether there are some.
    fn infer_integers(&mut self) -> bool {
        let types = &self.types;
        let mut inferred = false;
        for map in self.maps.iter_mut().filter(|map| map.is_assigned && !map.is_known(types)) {
            map.value.change(types, |state| *state = ValueState::Plain(Slot::integers()));
            inferred = true;
        }
        inferred
    }

    /// Checks some of the bodies until the facts that they use no longer change.
    fn check_until_stable(&mut self, bodies: &mut [Body<'_, 'a>], some: &[usize]) {
        // Bodies of one clause infer nearly the same types: the first bodies are checked until they are stable, then the rest.
        for _ in 0..MAX_ROUNDS {
            if !self.round(bodies, some, |body| body.first) && !self.round(bodies, some, |_| true) {
                break;
            }
        }
    }

    /// Checks the listed bodies that are due and selected. Returns whether there was one.
    fn round(
        &mut self,
        bodies: &mut [Body<'_, 'a>],
        some: &[usize],
        selected: impl Fn(&Body) -> bool,
    ) -> bool {
        let (mut any, mut found, mut from) = (false, 0, 0);
        for &at in some {
            found += bodies[from..at].iter().map(|body| body.findings.list.len()).sum::<usize>();
            from = at;
            if selected(&bodies[at]) && bodies[at].is_due(&self.maps) {
                self.check_body(&mut bodies[at], found);
                any = true;
            }
        }
        any
    }

    /// Checks a body; `found` is the number of findings in the bodies before it.
    fn check_body(&mut self, body: &mut Body<'_, 'a>, found: usize) {
        self.diags = Diagnostics::preceded_by(found);
        let vars = std::mem::take(&mut body.vars);
        body.probe = Some(self.probe(body.clause, body.group, vars));
        body.undecided = self.scope.undecided;
        body.vars = std::mem::take(&mut self.scope).into_vars();
        body.guessed = body.vars.iter().any(|var| var.slot.has_changed_since(var.slot.take_seen()));
        let readings = self.maps.iter().enumerate().map(|(at, map)| MapReading::of(at, map));
        body.seen = readings.filter(|reading| reading.key.is_some() || reading.value.is_some()).collect();
        body.findings = std::mem::take(&mut self.diags);
    }

    /// Moves the findings of this round to `diags`.
    fn report(&mut self, diags: &mut Diagnostics) {
        for finding in std::mem::take(&mut self.diags).list {
            diags.push(finding);
        }
    }

    /// Drops errors about unknown types if another error may be their cause.
    fn drop_consequences(&mut self) {
        if self.has_earlier_errors || self.diags.list.iter().any(explains_empty_maps) {
            self.diags.list.retain(|d| d.code != UNTYPED);
        }
    }

    fn probe(&mut self, clause: &ResolvedClause<'a>, group: &ProgramGroup, vars: Vec<VarState>) -> Probe {
        self.context = ProbeContext::new(clause, group);
        self.scope = Scope::enter(vars);
        self.types.visible_files = self.body_files();
        let predicate = clause.clause.predicate.as_ref().map(|e| self.condition(e));
        let body = self.block(&clause.clause.body);
        let (predicate, body) = predicate_first(predicate, body);
        let vars = self.vars();
        let (attach, signature) = match group {
            ProgramGroup::Event(event) => (Attach::Event(event.trigger.clone()), event.signature.clone()),
            ProgramGroup::Calls { hook, returns: true, layout } => {
                (Attach::Return(*hook, layout.sites.clone()), layout.signature.clone())
            }
            ProgramGroup::Calls { hook, layout, .. } => {
                (Attach::Entry(*hook, layout.sites.clone()), layout.signature.clone())
            }
        };
        let span = probe_list(clause.clause);
        let (clause, cases) = (clause.index, Vec::new());
        let records = self.context.gpu.map(|kind| Records { kind: kind.number(), bytes: RECORD_BYTES });
        Probe { clause, span, attach, signature, cases, records, vars, predicate, body }
    }

    /// Files whose types a body may name: those of its attach points, or all of the script's.
    fn body_files(&self) -> Vec<FileId> {
        let own = self.context.clause_sites.iter().filter_map(|site| site.file);
        let mut files: Vec<FileId> = own.collect();
        files.dedup();
        if files.is_empty() {
            files.clone_from(&self.files);
        }
        files
    }

    /// The variables of a checked body.
    fn vars(&mut self) -> Vec<hir::Var> {
        let scope = std::mem::take(&mut self.scope);
        let vars = scope.vars().iter().map(|state| self.var(state)).collect();
        self.scope = scope;
        vars
    }

    fn var(&mut self, state: &VarState) -> hir::Var {
        let ty = state.slot.get().ty(&self.types);
        if ty.is_none() && state.read {
            let message = format!("the type of `${}` is unknown", written(&state.name));
            self.diags
                .error(UNTYPED, state.span, message)
                .help(format!("assign to it first: `${} = 0`", state.name));
        }
        hir::Var { name: state.name.clone(), ty: ty.unwrap_or(hir::Type::I64) }
    }

    /// Checks types and sizes of the maps after the last round.
    fn check_maps(&mut self) {
        let explained = self.has_earlier_errors || self.diags.list.iter().any(explains_empty_maps);
        for at in 0..self.maps.len() {
            let map = &self.maps[at];
            let span = map.span;
            if !map.is_known(&self.types) {
                if !explained && map.is_mentioned {
                    self.undefined_map(at);
                }
                continue;
            }
            self.check_map_kind(at);
            self.check_kept_structs(at);
            let map = &self.maps[at];
            let key = map.key_types(&self.types).unwrap_or_default();
            let key_bytes: u32 = key.iter().map(|ty| self.types.size(ty)).sum();
            let value_bytes = map.read_type(&self.types).map_or(8, |ty| self.types.size(&ty));
            let name = map.name.clone();
            let is_empty = key_bytes == 0 && !key.is_empty() || value_bytes == 0;
            if is_empty {
                let message = format!("`@{name}` would store nothing: the value has no members");
                let error = self.diags.error("E0226", span, message);
                error.help("`args` of a function without arguments can only be printed: `print(args)`");
            }
            if key_bytes > limits::KEY_BYTES {
                let message =
                    format!("the key of `@{name}` takes {key_bytes} bytes, {} at most", limits::KEY_BYTES);
                self.diags.error("E0227", span, message).help("shorten its strings: `str(p, 64)`");
            }
            if value_bytes > limits::VALUE_BYTES {
                let message = format!(
                    "a value of `@{name}` takes {value_bytes} bytes, {} at most",
                    limits::VALUE_BYTES
                );
                self.diags.error("E0227", span, message).help("shorten its strings: `str(p, 64)`");
            }
        }
    }

    /// A map of a running program holds structs with the members of their first declaration.
    fn check_kept_structs(&mut self, at: usize) {
        let Some(&span) = self.used.get(&MapId(at as u32)) else { return };
        let map = &self.maps[at];
        let types = map.key_types(&self.types).into_iter().flatten().chain(map.read_type(&self.types));
        let Some(name) = types.filter_map(|ty| Some(self.types.changed_in(&ty)?.name.clone())).next() else {
            return;
        };
        let message = format!("`@{}` holds `{name}` with the members of an earlier declaration", map.name);
        self.diags.error("E0241", span, message).help("give the struct or the map another name");
    }

    /// Checks a map against its declared kind: assigned values cannot be per-CPU.
    fn check_map_kind(&mut self, at: usize) {
        let map = &self.maps[at];
        let Some(declared) = self.declared.get(&map.name) else { return };
        if declared.kind.per_cpu && matches!(map.value.get(), ValueState::Plain(_)) {
            let (kind, shared) = (declared.kind.name, declared.kind.name.replace("percpu", ""));
            let message = format!("`@{}` is assigned to, and a `{kind}` holds aggregations", map.name);
            self.diags.error("E0110", declared.span, message).help(format!("write `{shared}`"));
        }
        let first = map.key_types(&self.types).and_then(|key| key.into_iter().next());
        if declared.kind.by_process && !matches!(first, Some(hir::Type::Int { .. })) {
            let message = format!("the key of `@{}` does not begin with a process id", map.name);
            self.diags.error("E0110", declared.span, message).help("write `@m[pid, ...]`");
        }
    }

    fn finish(self, probes: Vec<Probe>, resolved: ResolvedScript) -> CheckedScript {
        let types = &self.types;
        let maps = self.maps.iter().map(|state| Map {
            name: state.name.clone(),
            key: state.key_types(types).unwrap_or_default(),
            value: match state.value.get() {
                ValueState::Plain(slot) => MapValue::Plain(slot.ty(types).unwrap_or(hir::Type::I64)),
                ValueState::Agg(agg) => MapValue::Agg(agg.clone()),
            },
            max_entries: self.max_entries(state),
            evicts: state.evicts || self.declared.get(&state.name).is_some_and(|map| map.kind.evicts),
            by_process: state.by_process
                || self.declared.get(&state.name).is_some_and(|map| map.kind.by_process),
            metric: state.metric.clone(),
            span: state.span,
        });
        let maps = maps.collect();
        let (enums, structs) = self.types.into_lists();
        let names = self.names.into_names();
        let (files, config) = (resolved.files, self.config);
        let tracks_calls = resolved.uses_enclosing;
        let gpu_joins = self.gpu_joins;
        let program = Program { enums, structs, maps, files, names, probes, config, tracks_calls, gpu_joins };
        CheckedScript { program, pending: resolved.pending }
    }

    fn max_entries(&self, map: &MapState) -> u32 {
        let declared = self.declared.get(&map.name).map(|declared| declared.max_entries);
        map.max_entries.or(declared).unwrap_or(self.config.max_map_keys)
    }

    /// Checks what may be the expansion of a macro's call at `span`: messages name the call, too.
    pub(crate) fn in_expansion<T>(&mut self, span: Span, check: impl FnOnce(&mut Self) -> T) -> T {
        let is_call = self.expansions.contains_key(&span);
        self.diags.calls.extend(is_call.then_some(span));
        let checked = check(self);
        if is_call {
            self.diags.calls.pop();
        }
        checked
    }

    /// Adds an error of this round.
    pub(crate) fn error(
        &mut self,
        code: &'static str,
        span: Span,
        message: impl Into<String>,
    ) -> &mut Diagnostic {
        self.diags.error(code, span, message)
    }

    /// Adds a warning of this round.
    pub(crate) fn warning(
        &mut self,
        code: &'static str,
        span: Span,
        message: impl Into<String>,
    ) -> &mut Diagnostic {
        self.diags.warning(code, span, message)
    }

    /// The id of a map, new or old.
    pub(crate) fn map_id(&mut self, name: &str, span: Span) -> MapId {
        let id = self.map_number(name, span);
        self.maps[id.0 as usize].is_mentioned = true;
        id
    }

    /// The id of a map that may be in code which `comptime` excludes.
    pub(crate) fn map_number(&mut self, name: &str, span: Span) -> MapId {
        if let Some(id) = self.map_ids.get(name) {
            self.used.entry(*id).or_insert(span);
            return *id;
        }
        let id = MapId(self.maps.len() as u32);
        self.maps.push(MapState::new(name, span));
        self.map_ids.insert(name.into(), id);
        id
    }
}

/// Whether an error may explain a map of unknown type: an assignment to it may be wrong.
fn explains_empty_maps(finding: &Diagnostic) -> bool {
    finding.severity == Severity::Error && finding.code != UNTYPED
}

/// A predicate with statements becomes an `if` around the body, where variables are available.
fn predicate_first(
    predicate: Option<hir::Expr>,
    body: Vec<hir::Stmt>,
) -> (Option<hir::Expr>, Vec<hir::Stmt>) {
    let mut runs = false;
    let mut see = |e: &hir::Expr| runs |= matches!(e.kind, hir::ExprKind::Block { .. });
    predicate.iter().for_each(|e| crate::hir::visit::visit_expr(e, &mut see));
    match predicate {
        Some(cond) if runs => {
            let span = cond.span;
            let kind = hir::StmtKind::If { cond, then: body, otherwise: Vec::new() };
            (None, vec![hir::Stmt { kind, span }])
        }
        predicate => (predicate, body),
    }
}

/// From the first attach point to the last.
fn probe_list(clause: &ast::Clause) -> Span {
    let spans = clause.probes.iter().map(|spec| spec.span);
    spans.reduce(Span::to).unwrap_or(clause.span)
}

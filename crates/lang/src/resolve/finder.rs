//! State that resolving shares between attach points: files of targets, missing targets, facts about functions.

use crate::catalog::{File, FileId, Place, TargetError};
use crate::diagnostics::wording::did_you_mean;
use crate::diagnostics::{Diagnostic, Diagnostics, Severity};
use crate::hir::{MissingProbes, NameId, NameKind, Trigger};
use crate::resolve::cuda_libraries::library_of;
use crate::resolve::interner::Interner;
use crate::resolve::setting::{PendingTarget, Setting};
use crate::resolve::spot::{Call, EventSpot, Miss, Spot, Spots, finding};
use crate::resolve::symbols::Symbols;
use crate::source::span::Span;
use crate::syntax::ast::Clause;
use rustc_hash::FxHashMap;

/// The target that stands for all programs and libraries of the traced processes.
pub(super) const EVERYTHING: &str = "*";

/// Resolves the attach points of one clause after the other.
pub(super) struct Finder<'a, 'b> {
    pub(super) setting: &'a Setting<'a>,
    pub(super) names: &'b mut Interner,
    pub(super) diags: &'b mut Diagnostics,
    /// Files with attach points.
    pub files: Vec<File>,
    /// Missing targets.
    pub pending: Vec<PendingTarget>,
    /// Indices in `pending` by target.
    awaited: FxHashMap<String, usize>,
    /// Indices in `pending` of the current clause's targets.
    awaited_by_clause: Vec<usize>,
    /// Files of targets so far: a missing target is searched for in many places.
    targets: FxHashMap<String, Result<Vec<File>, TargetError>>,
    pub(super) symbols: FxHashMap<FileId, Symbols<'a>>,
    /// Attach points of the current clause that this machine does not have.
    pub(super) absent: Vec<Diagnostic>,
    /// Devices whose missing driver has been reported.
    pub(super) unloaded: Vec<&'static str>,
    /// Functions so far: several clauses, and several attach points of one, have the same functions.
    known: FxHashMap<(FileId, &'a str), FunctionFacts>,
    /// Places of probes so far.
    places: FxHashMap<PlaceKey, Place>,
    /// The current clause's use of enclosing calls, which begin and end at one place.
    pub(super) enclosing: EnclosingUse,
    /// True if the current clause uses arguments or results.
    pub(super) typed: bool,
}

/// A function and the side of it that is probed.
#[derive(PartialEq, Eq, Hash)]
struct PlaceKey {
    file: FileId,
    offset: u64,
    at_return: bool,
}

/// Facts about a function that do not depend on the probe.
#[derive(Clone, Copy)]
pub(super) struct FunctionFacts {
    pub func: NameId,
    pub api: NameId,
    pub signature: Option<&'static cuda::Signature>,
}

/// A clause's use of the calls that enclose its own.
#[derive(Clone, Copy, Default)]
pub(super) struct EnclosingUse {
    /// The first position of such a use: `call_depth`.
    pub named: Option<Span>,
    /// True if it uses the enclosing span, if there is one.
    pub parent: bool,
}

impl<'a, 'b> Finder<'a, 'b> {
    /// A finder that adds to `names` and `diags`.
    pub(super) fn new(setting: &'a Setting<'a>, names: &'b mut Interner, diags: &'b mut Diagnostics) -> Self {
        let (targets, symbols, known, places, awaited, awaited_by_clause) = Default::default();
        let (files, pending, absent, unloaded) = Default::default();
        let (enclosing, typed) = (EnclosingUse::default(), false);
        Finder {
            setting,
            names,
            diags,
            files,
            pending,
            awaited,
            awaited_by_clause,
            targets,
            symbols,
            absent,
            unloaded,
            known,
            places,
            enclosing,
            typed,
        }
    }

    /// Whether the filter of the command line lets a place pass. `BEGIN` and `END` are no places.
    pub(super) fn passes_filter(&self, spot: &Spot) -> bool {
        let Some(filter) = &self.setting.probe_filter else { return true };
        let name = match spot {
            Spot::Event(event) if matches!(event.trigger, Trigger::Begin | Trigger::End) => return true,
            Spot::Event(event) => event.name,
            Spot::Call(call) => call.site.probe,
        };
        filter.is_match(&self.names.names().probes[name.0 as usize])
    }

    /// Reports that the script has more attach points than its limit `most`.
    pub(super) fn too_many(&mut self, clause: &Clause, count: usize, most: u32) {
        let span = clause.probes.first().map_or(clause.body.span, |spec| spec.span);
        let message = format!("{count} attach points up to here, and `max_probes` is {most}");
        self.diags.error("E0115", span, message).help("probe fewer functions, or raise `max_probes`");
    }

    /// Marks the missing targets of the current clause as needed if the clause has no other places.
    pub(super) fn mark_needed(&mut self, spots: &[Spot]) {
        let is_present = |spot: &Spot| match spot {
            Spot::Event(_) => true,
            Spot::Call(Call { site, .. }) => site.file.is_some(),
        };
        let needed = self.setting.missing == MissingProbes::Error && !spots.iter().any(is_present);
        for at in self.awaited_by_clause.drain(..) {
            self.pending[at].needed |= needed;
        }
    }

    /// Reports the attach points of the current clause that this machine does not have: as warnings if others exist.
    pub(super) fn report_absent(&mut self, others_exist: bool) {
        let absent = std::mem::take(&mut self.absent);
        let severity = match self.setting.missing {
            MissingProbes::Ignore => return,
            MissingProbes::Error if !others_exist => Severity::Error,
            _ => Severity::Warning,
        };
        for mut diagnostic in absent {
            if others_exist {
                diagnostic.notes.push("the other attach points of this clause are probed".into());
            }
            if severity == Severity::Warning {
                diagnostic.code = "W0154";
            }
            diagnostic.severity = severity;
            self.diags.push_once(diagnostic);
        }
    }

    /// Warns that the running kernel lacks what a script needs that is checked for another machine.
    pub(super) fn assume(&mut self, mut diagnostic: Diagnostic) {
        if self.setting.missing == MissingProbes::Ignore {
            return;
        }
        (diagnostic.severity, diagnostic.code) = (Severity::Warning, "W0154");
        diagnostic.notes.push("the machine that runs the script is assumed to have it".into());
        self.diags.push_once(diagnostic);
    }

    /// An event without record.
    pub(super) fn event(&mut self, trigger: Trigger, name: &str) -> Spot {
        let name = self.names.intern(NameKind::Probe, name);
        Spot::Event(EventSpot { trigger, name, signature: None, pointees: vec![] })
    }

    /// The files of a target, limited to [`Setting::only_files`].
    pub(super) fn files(&mut self, target: &str) -> Result<Vec<File>, TargetError> {
        if let Some(found) = self.targets.get(target) {
            return found.clone();
        }
        let found = match self.setting.only_files {
            None => self.setting.catalog.files(target),
            Some(only) => match self.setting.catalog.files_among(target, only) {
                none if none.is_empty() => Err(TargetError::NotYet { looked_in: Vec::new() }),
                files => Ok(files),
            },
        };
        self.targets.insert(target.to_owned(), found.clone());
        found
    }

    /// Records that a file has attach points.
    pub(super) fn use_file(&mut self, file: &File) {
        if !self.files.iter().any(|known| known.id == file.id) {
            self.files.push(file.clone());
        }
    }

    pub(super) fn no_target(&self, target: &str, span: Span, reason: &str) -> Spots {
        let known = self.setting.catalog.known_targets();
        // A known name is no misspelling: its file is the reason.
        let misspelled = !known.iter().any(|name| name == target);
        let near = known.iter().map(String::as_str).filter(|_| misspelled);
        let help = did_you_mean(&self.diags.similar(target, near));
        let message = format!("cannot probe `{target}`: {reason}");
        Err(Miss::Absent(finding("E0104", span, message, "", help)))
    }

    /// Records that the current clause needs a target that no process has mapped yet.
    pub(super) fn wait_for(&mut self, target: &str, span: Span, looked_in: Vec<String>) {
        let at = *self.awaited.entry(target.into()).or_insert(self.pending.len());
        if at == self.pending.len() {
            self.pending.push(PendingTarget { target: target.into(), looked_in, span, needed: false });
        }
        self.awaited_by_clause.push(at);
    }

    /// The place of a function's probe.
    pub(super) fn place(&mut self, file: FileId, offset: u64, at_return: bool) -> Place {
        let catalog = self.setting.catalog;
        *self.places.entry(PlaceKey { file, offset, at_return }).or_insert_with(|| match at_return {
            true => catalog.return_place(file, offset),
            false => catalog.entry_place(file, offset),
        })
    }

    /// The facts about a symbol of a file.
    pub(super) fn known(&mut self, file: &File, symbol: &'a str) -> FunctionFacts {
        if let Some(known) = self.known.get(&(file.id, symbol)) {
            return *known;
        }
        let known = self.function(symbol, library_of(file, symbol));
        self.known.insert((file.id, symbol), known);
        known
    }

    /// The facts about a symbol, from the tables of a library.
    pub(super) fn function(&mut self, symbol: &str, library: Option<(cuda::Library, u32)>) -> FunctionFacts {
        let api = library.map_or(symbol, |(library, _)| cuda::base_name(library, symbol));
        FunctionFacts {
            func: self.names.intern(NameKind::Func, symbol),
            api: self.names.intern(NameKind::Api, api),
            signature: library.and_then(|(library, major)| cuda::signature(library, major, symbol)),
        }
    }
}

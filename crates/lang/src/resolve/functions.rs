//! Attach points to sites: which functions of which files a clause runs at.
//!
//! A function is probed once by a clause however many of its names and of the clause's attach points mean it. Where a
//! target is not there yet, the functions that the CUDA tables know are assumed, so that the body is checked all the same.

use crate::diagnostics::wording::{did_you_mean, listed};
use crate::resolve::spot::{Call, Miss, Spot, Spots, finding, malformed, once_each, wrong};
use crate::syntax::ast::text;
use std::fmt;

use cuda::operations::{Api, OTHER};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::catalog::debug_info::{Absent, WITH_INFORMATION};
use crate::catalog::{File, FileId, Function, Landing, Place, TargetError};
use crate::diagnostics::suggest::similar;
use crate::diagnostics::{DRAWN, Diagnostic, Diagnostics, Severity};
use crate::expand::operations;
use crate::hir::{MissingProbes, NameId, NameKind, Site, Trial, Trigger};
use crate::resolve::interner::Interner;
use crate::resolve::pattern::{FunctionPattern, NamePattern, cpp_name};
use crate::resolve::providers::{self, PROVIDERS, Provider, ProviderKind, ProviderMatch};
use crate::resolve::setting::{Pending, Setting};
use crate::resolve::signature::Declared;
use crate::resolve::symbols::Symbols;
use crate::resolve::unsafe_returns;
use crate::source::span::Span;
use crate::syntax::ast::{Clause, ProbeSpec};

/// All programs and libraries that the traced processes run.
pub(super) const EVERYTHING: &str = "*";

/// Looks for the sites of one clause after the other.
pub struct Finder<'a, 'b> {
    pub(super) setting: &'a Setting<'a>,
    pub(super) names: &'b mut Interner,
    pub(super) diags: &'b mut Diagnostics,
    pub(super) files: Vec<File>,
    pending: Vec<Pending>,
    /// Where the targets of `pending` stand in it.
    awaited: FxHashMap<String, usize>,
    /// Targets that the current clause needs, as indices into `pending`.
    asked_for: Vec<usize>,
    /// Targets that were looked for: one that is not there is searched for in many places.
    targets: FxHashMap<String, Result<Vec<File>, TargetError>>,
    symbols: FxHashMap<FileId, Symbols<'a>>,
    /// Attach points of the clause in hand that this machine does not have.
    absent: Vec<Diagnostic>,
    /// Functions that were found so far: several clauses, and several attach points of one, mean the same.
    known: FxHashMap<(FileId, &'a str), FunctionFacts>,
    /// Where they are probed, by file, offset and whether it is at their return.
    places: FxHashMap<(FileId, u64, bool), Place>,
    /// What the clause in hand asks of the calls around its own, which begin and end at one place.
    around: Around,
    /// The clause in hand asks for arguments or results.
    typed: bool,
}

/// What is the same of a function wherever it is probed.
#[derive(Clone, Copy)]
struct FunctionFacts {
    func: NameId,
    api: NameId,
    signature: Option<&'static cuda::Signature>,
}

/// What a clause asks of the calls around its own.
#[derive(Clone, Copy, Default)]
pub struct Around {
    /// The first place where it names them: `call_depth`.
    pub named: Option<Span>,
    /// It names the span that it lies in, where there is one.
    pub parent: bool,
}

impl<'a, 'b> Finder<'a, 'b> {
    /// A finder that adds to `names` and `diags`.
    pub fn new(setting: &'a Setting<'a>, names: &'b mut Interner, diags: &'b mut Diagnostics) -> Self {
        let (targets, symbols, known, places, awaited, asked_for) = Default::default();
        let (files, pending, absent) = (Vec::new(), Vec::new(), Vec::new());
        let (around, typed) = (Around::default(), false);
        Finder {
            setting,
            names,
            diags,
            files,
            pending,
            awaited,
            asked_for,
            targets,
            symbols,
            known,
            places,
            absent,
            around,
            typed,
        }
    }

    /// The files that sites lie in, and the targets that are missing.
    pub fn finish(self) -> (Vec<File>, Vec<Pending>) {
        (self.files, self.pending)
    }

    /// All places where a clause runs, each once; `typed`: it asks for arguments or results.
    pub fn clause(&mut self, clause: &Clause, around: Around, typed: bool) -> Vec<Spot> {
        (self.around, self.typed) = (around, typed);
        let mut spots = Vec::new();
        for spec in &clause.probes {
            match self.spec(spec) {
                Ok(found) => spots.extend(found),
                Err(Miss::Wrong(diagnostic)) => drop(self.diags.push(*diagnostic)),
                Err(Miss::Absent(diagnostic)) => self.absent.push(*diagnostic),
                Err(Miss::Silent) => {}
            }
        }
        self.report_absent(!spots.is_empty());
        self.need(&spots);
        spots.retain(|spot| self.passes_filter(spot));
        once_each(spots)
    }

    fn passes_filter(&self, spot: &Spot) -> bool {
        let Some(filter) = &self.setting.probe_filter else { return true };
        let (Spot::Timed { name, .. } | Spot::Call(Call { site: Site { probe: name, .. }, .. })) = spot;
        filter.is_match(&self.names.names().probes[name.0 as usize])
    }

    /// The script asks for no more attach points than `most`, and with this clause it has more.
    pub fn too_many(&mut self, clause: &Clause, count: usize, most: u32) {
        let span = clause.probes.first().map_or(clause.body.span, |spec| spec.span);
        let message = format!("{count} attach points up to here, and `max_probes` is {most}");
        self.diags.error("E0115", span, message).help("probe fewer functions, or raise `max_probes`");
    }

    /// Where nothing else of a clause was found, what it waits for is needed.
    fn need(&mut self, spots: &[Spot]) {
        let is_there = |spot: &Spot| match spot {
            Spot::Timed { .. } => true,
            Spot::Call(call) => call.site.file.is_some(),
        };
        let needed = self.setting.missing == MissingProbes::Error && !spots.iter().any(is_there);
        for at in self.asked_for.drain(..) {
            self.pending[at].needed |= needed;
        }
    }

    /// A missing alternative is no error where a sibling was found.
    fn report_absent(&mut self, sibling_found: bool) {
        let absent = std::mem::take(&mut self.absent);
        let severity = match self.setting.missing {
            MissingProbes::Ignore => return,
            MissingProbes::Error if !sibling_found => Severity::Error,
            _ => Severity::Warning,
        };
        for mut diagnostic in absent {
            if sibling_found {
                diagnostic.notes.push("the other attach points of this clause are probed".into());
            }
            if severity == Severity::Warning {
                diagnostic.code = "W0154";
            }
            diagnostic.severity = severity;
            self.diags.push(diagnostic);
        }
    }

    fn spec(&mut self, spec: &ProbeSpec) -> Spots {
        let name = &spec.provider.node;
        let provider = match providers::find(name) {
            ProviderMatch::Known(provider) => provider,
            ProviderMatch::Absent(way_out) => {
                let message = format!("`{name}` probes are not supported");
                return wrong("E0102", spec.provider.span, message, "not here", vec![way_out.into()]);
            }
            ProviderMatch::Unknown => return unknown_provider(spec),
        };
        if self.setting.only_files.is_some() && !is_call(provider.kind) {
            return Err(Miss::Silent);
        }
        let name = spec.parts.first().map_or("", |part| text(&part.node));
        if !self.setting.run.takes(provider.kind, name) {
            return Err(Miss::Silent);
        }
        match provider.kind {
            ProviderKind::Begin => self.bare(spec, provider, Trigger::Begin),
            ProviderKind::End => self.bare(spec, provider, Trigger::End),
            ProviderKind::Interval | ProviderKind::Profile => self.timer(spec, provider),
            ProviderKind::Software | ProviderKind::Hardware => self.counter(spec, provider),
            ProviderKind::Signal => self.signal(spec, provider),
            ProviderKind::Test => self.trial(spec, provider, Trial::Test),
            ProviderKind::Bench => self.trial(spec, provider, Trial::Bench),
            ProviderKind::Tracepoint => self.tracepoints(spec, provider),
            ProviderKind::RawTracepoint => self.raw_tracepoints(spec, provider),
            ProviderKind::Uprobe => self.call(spec, provider, false),
            ProviderKind::Uretprobe => self.call(spec, provider, true),
            ProviderKind::Usdt => self.markers(spec, provider),
            ProviderKind::Cuda => self.operation(spec, provider),
        }
    }

    fn call(&mut self, spec: &ProbeSpec, provider: &'static Provider, returns: bool) -> Spots {
        let (target, function, of_cpp) = match spec.parts.as_slice() {
            [target, function] => (target, function, false),
            [target, language, function] if text(&language.node) == "cpp" => (target, function, true),
            _ => return call_malformed(spec, provider),
        };
        let line = FunctionPattern::line(text(&target.node), text(&function.node)).filter(|_| !of_cpp);
        let (target_name, parsed) = match line {
            Some((file, line)) => (file, Ok(line)),
            None if of_cpp => (text(&target.node), Ok(FunctionPattern::cpp(text(&function.node)))),
            None => (text(&target.node), FunctionPattern::parse(&function.node)),
        };
        if let Some(refused) = foreign_target(target_name, target.span, provider) {
            return refused;
        }
        let pattern = match parsed {
            Ok(pattern) => pattern,
            Err(reason) => return wrong("E0107", function.span, reason, "", Vec::new()),
        };
        if returns && !matches!(pattern, FunctionPattern::Named { offset: 0, .. }) {
            let message = "a return probe needs the name of a function, without offset".to_string();
            return wrong("E0103", function.span, message, "", Vec::new());
        }
        if self.around.named.is_some() && !matches!(pattern, FunctionPattern::Named { offset: 0, .. }) {
            let message = "what asks for the calls around it needs the name of a function, without offset";
            return wrong("E0103", function.span, message.to_string(), "", Vec::new());
        }
        let (written, at) = (text(&function.node), function.span);
        let asked = FunctionSpec { provider, returns, pattern, written, at, operation: None };
        self.in_target(&asked, target_name, target.span)
    }

    /// The files that a target stands for; of those that the script is for.
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

    fn in_target(&mut self, asked: &FunctionSpec, target: &str, span: Span) -> Spots {
        match self.files(target) {
            Ok(files) if target == EVERYTHING => self.in_any(asked, files, span),
            Ok(files) => self.in_files(asked, files),
            Err(_) if self.setting.only_files.is_some() => Err(Miss::Silent),
            Err(TargetError::NotYet { looked_in }) => {
                // Only operations use a library other than their own, and only if it is present.
                let of_api = |api: &Api| operations::library(asked.written) == api.library;
                let by_form =
                    asked.operation.is_some() && !Api::of(asked.provider.names[0]).is_some_and(of_api);
                if !by_form {
                    self.wait_for(target, span, looked_in);
                }
                self.assumed(asked, target)
            }
            Err(TargetError::Unusable(reason)) => self.no_target(target, span, &reason),
        }
    }

    /// In all that traced processes run: what they map later may have it.
    fn in_any(&mut self, asked: &FunctionSpec, files: Vec<File>, span: Span) -> Spots {
        let paths: Vec<String> = files.iter().map(|file| file.path.clone()).collect();
        match self.in_files(asked, files) {
            Err(Miss::Absent(_)) => {
                self.wait_for(EVERYTHING, span, paths);
                self.assumed(asked, EVERYTHING)
            }
            found => found,
        }
    }

    /// Functions of one operation. A driver need not have all of them.
    fn operation(&mut self, spec: &ProbeSpec, provider: &'static Provider) -> Spots {
        let parts: Vec<&str> = spec.parts.iter().map(|part| text(&part.node)).collect();
        let start = parts.get(1) == Some(&operations::START);
        if operations::functions(spec).next().is_none() {
            let api = Api::of(provider.names[0]).expect("providers of operations are theirs");
            return unknown_operation(spec, api, parts.first().copied().unwrap_or(""));
        }
        let name = format!("{}:{}{}", provider.names[0], parts[0], if start { ":start" } else { "" });
        let mut spots = Vec::new();
        for written in operations::functions(spec) {
            // A function of an operation is found by its family, any other by its symbol.
            let pattern = FunctionPattern::plain(match operations::asked(spec) {
                Some(_) => NamePattern::from_text(written),
                None => NamePattern::Exact(written.to_owned()),
            });
            let operation = Some(name.as_str());
            let asked =
                FunctionSpec { provider, returns: !start, pattern, written, at: spec.span, operation };
            match self.in_target(&asked, operations::library(written).alias(), spec.span) {
                Ok(found) if asked.by_name() => spots.extend(found),
                Ok(found) => {
                    let takes = |spot: &Spot| says_much(spot, parts[0] == OTHER);
                    spots.extend(found.into_iter().filter(takes));
                }
                Err(Miss::Wrong(diagnostic)) => return Err(Miss::Wrong(diagnostic)),
                Err(Miss::Absent(_) | Miss::Silent) => {}
            }
        }
        if spots.is_empty() { Err(Miss::Silent) } else { Ok(spots) }
    }

    pub(super) fn no_target(&self, target: &str, span: Span, reason: &str) -> Spots {
        let known = self.setting.catalog.known_targets();
        // A name that is known was not mistyped: its file is what is wrong.
        let mistyped = !known.iter().any(|name| name == target);
        let near = known.iter().map(String::as_str).filter(|_| mistyped);
        let help = did_you_mean(&self.diags.similar(target, near));
        let message = format!("cannot probe `{target}`: {reason}");
        Err(Miss::Absent(finding("E0104", span, message, "", help)))
    }

    fn in_files(&mut self, asked: &FunctionSpec, files: Vec<File>) -> Spots {
        let mut spots = Vec::new();
        for file in &files {
            let found = self.in_file(asked, file)?;
            if !found.is_empty() && !self.files.iter().any(|known| known.id == file.id) {
                self.files.push(file.clone());
            }
            spots.extend(found);
        }
        match spots.is_empty() {
            false => Ok(unsafe_returns::leave_out(spots, asked.by_name(), asked.at, self.diags)),
            true if self.setting.only_files.is_some() => Err(Miss::Silent),
            // A driver need not have all functions of an operation: near names would be looked for in vain.
            true if asked.operation.is_some() => Err(Miss::Silent),
            true => Err(Miss::Absent(self.no_function(asked, &files))),
        }
    }

    fn in_file(&mut self, asked: &FunctionSpec, file: &File) -> Spots {
        match &asked.pattern {
            FunctionPattern::Address(address) => self.at_address(asked, file, *address),
            FunctionPattern::Line { source, line } => self.at_line(asked, file, source, *line),
            FunctionPattern::Named { name, version, offset } => {
                let mut matched = self.matching(file, name, version.as_deref());
                // An old version that no program calls any more; what they call is picked by the loader.
                let is_left_over = |f: &Function| {
                    f.version.is_some() && self.setting.catalog.is_indirect(file.id, asked.written)
                };
                if version.is_none() && asked.by_name() {
                    matched.retain(|(f, _)| !is_left_over(f));
                }
                for (f, symbol) in matched.iter().filter(|_| *offset > 0) {
                    let shown = |offset: u64| format!("{symbol}+{offset}");
                    self.lands(asked, file, Some(f.offset), (f.offset, f.offset + offset), &shown)?;
                }
                Ok(matched
                    .into_iter()
                    .map(|(f, symbol)| self.spot(asked, file, f, symbol, *offset))
                    .collect())
            }
        }
    }

    /// Functions whose name matches, each with the first name that does.
    fn matching(
        &mut self,
        file: &File,
        name: &NamePattern,
        version: Option<&str>,
    ) -> Vec<(&'a Function, &'a str)> {
        let catalog = self.setting.catalog;
        let known = || Symbols::new(catalog.functions(file.id));
        let symbols = &*self.symbols.entry(file.id).or_insert_with(known);
        let library = match name {
            NamePattern::Family(family) => library_of(file, family).map(|(library, _)| library),
            _ => None,
        };
        symbols
            .starting(name.beginning())
            .filter(|f| version.is_none_or(|wanted| f.version.as_deref() == Some(wanted)))
            .filter_map(|f| {
                let matches = |symbol: &&String| name.matches(library, symbol, |other| symbols.has(other));
                f.names.iter().find(matches).map(|symbol| (f, symbol.as_str()))
            })
            .collect()
    }

    fn spot(
        &mut self,
        asked: &FunctionSpec,
        file: &File,
        function: &Function,
        symbol: &'a str,
        offset: u64,
    ) -> Spot {
        let one_place = asked.returns || self.around.named.is_some() || self.around.parent;
        let place = match (offset, one_place) {
            (0, at_return) => self.place(file.id, function.offset, at_return),
            (offset, _) => Place { offset: function.offset + offset, stack_shift: 0 },
        };
        // Behind the first instruction the registers need not hold the arguments any more.
        let (known, probe) = match offset {
            0 => (self.known(file, symbol), self.probe(asked, format_args!("{}:{symbol}", file.path))),
            _ => (
                self.function(symbol, None),
                self.probe(asked, format_args!("{}:{symbol}+{offset}", file.path)),
            ),
        };
        let declared = match known.signature {
            Some(row) => Ok(Declared::Cuda(row)),
            // Behind the first instruction a function is none any more.
            None if offset == 0 && self.typed => self.declared(file, function, symbol),
            None => Err(None),
        };
        let (signature, absent) = match declared {
            Ok(declared) => (Some(declared), None),
            Err(absent) => (None, absent.map(|why| (file.path.clone(), why))),
        };
        Spot::Call(Call {
            undeclared_yet: false,
            by_name: asked.by_name(),
            returns: asked.returns,
            site: site(Some(file.id), place, known, probe),
            symbol: symbol.into(),
            signature,
            absent,
            passed: None,
        })
    }

    /// What debug information knows of a function.
    fn declared(&self, file: &File, function: &Function, symbol: &str) -> Result<Declared, Option<Absent>> {
        let found = self.setting.catalog.declared(file.id, function.offset, symbol);
        found.map(Declared::Debug).map_err(Some)
    }

    /// What the tables know of a symbol of a file.
    /// Where a function is probed.
    fn place(&mut self, file: FileId, offset: u64, at_return: bool) -> Place {
        let catalog = self.setting.catalog;
        *self.places.entry((file, offset, at_return)).or_insert_with(|| match at_return {
            true => catalog.return_place(file, offset),
            false => catalog.entry_place(file, offset),
        })
    }

    fn known(&mut self, file: &File, symbol: &'a str) -> FunctionFacts {
        if let Some(known) = self.known.get(&(file.id, symbol)) {
            return *known;
        }
        let known = self.function(symbol, library_of(file, symbol));
        self.known.insert((file.id, symbol), known);
        known
    }

    /// What the tables of a library know of a symbol.
    fn function(&mut self, symbol: &str, library: Option<(cuda::Library, u32)>) -> FunctionFacts {
        let api = library.map_or(symbol, |(library, _)| cuda::base_name(library, symbol));
        FunctionFacts {
            func: self.names.intern(NameKind::Func, symbol),
            api: self.names.intern(NameKind::Api, api),
            signature: library.and_then(|(library, major)| cuda::signature(library, major, symbol)),
        }
    }

    /// What `probe` says there: the operation, or how the function is named.
    fn probe(&mut self, asked: &FunctionSpec, function: fmt::Arguments) -> NameId {
        match asked.operation {
            Some(name) => self.names.intern(NameKind::Probe, name),
            None => {
                let name = format!("{}:{function}", asked.provider.names[0]);
                self.names.intern(NameKind::Probe, &name)
            }
        }
    }

    /// Refuses a place where no instruction begins: a breakpoint there would make another one of it, and break the program.
    /// Offsets are said as `shown` has them, relative to `base`.
    fn lands(
        &self,
        asked: &FunctionSpec,
        file: &File,
        function: Option<u64>,
        (base, offset): (u64, u64),
        shown: &dyn Fn(u64) -> String,
    ) -> Result<(), Miss> {
        let said = |offset: u64| shown(offset.wrapping_sub(base));
        let (message, help) = match self.setting.catalog.landing(file.id, function, offset) {
            Landing::Begins => return Ok(()),
            Landing::Inside { begins, next } => (
                format!("no instruction begins at `{}`", said(offset)),
                format!("the nearest that do are `{}` and `{}`", said(begins), said(next)),
            ),
            Landing::Behind { size } => (
                format!("`{}` is behind the end of the function, which has {size} bytes", said(offset)),
                "`objdump -d` shows where its instructions begin".into(),
            ),
        };
        Err(Miss::Wrong(finding("E0117", asked.at, message, "the program would break there", vec![help])))
    }

    fn at_address(&mut self, asked: &FunctionSpec, file: &File, address: u64) -> Spots {
        let symbol = format!("{address:#x}");
        let probe = self.probe(asked, format_args!("{}:{symbol}", file.path));
        self.in_code(asked, file, address, symbol, probe).map(|spot| vec![spot])
    }

    /// `./app@main.c:22`: where the code of the line begins, in each function that has code of it.
    fn at_line(&mut self, asked: &FunctionSpec, file: &File, source: &str, line: u64) -> Spots {
        let lines = match self.setting.catalog.source_lines(file.id, source) {
            Ok(lines) => lines,
            Err(absent) => return Err(Miss::Absent(no_lines(asked, file, &absent))),
        };
        let of_line = lines.iter().filter(|(of, _)| *of == line);
        let symbol = format!("{source}:{line}");
        let probe = self.probe(asked, format_args!("{}@{symbol}", file.path));
        let spots: Vec<Spot> = of_line
            .map(|(_, address)| self.in_code(asked, file, *address, symbol.clone(), probe))
            .collect::<Result<_, _>>()?;
        match spots.is_empty() {
            true => Err(Miss::Absent(no_line(asked, file, (source, line), &lines))),
            false => Ok(spots),
        }
    }

    /// An instruction that need not be the first of a function.
    fn in_code(
        &mut self,
        asked: &FunctionSpec,
        file: &File,
        address: u64,
        symbol: String,
        probe: NameId,
    ) -> Result<Spot, Miss> {
        let Some(offset) = self.setting.catalog.address_to_offset(file.id, address) else {
            let message = format!("no code at address {address:#x} of {}", file.path);
            return Err(Miss::Absent(finding("E0105", asked.at, message, "outside its code", Vec::new())));
        };
        let shown = |offset: u64| format!("{:#x}", address.wrapping_add(offset));
        self.lands(asked, file, None, (offset, offset), &shown)?;
        let place = Place { offset, stack_shift: 0 };
        let known = self.function(&symbol, None);
        Ok(Spot::Call(Call {
            undeclared_yet: false,
            returns: asked.returns,
            site: site(Some(file.id), place, known, probe),
            symbol,
            signature: None,
            absent: None,
            by_name: true,
            passed: None,
        }))
    }

    fn no_function(&self, asked: &FunctionSpec, files: &[File]) -> Box<Diagnostic> {
        let paths = listed(files.iter().map(|file| file.path.as_str()), 5);
        let of_cpp = matches!(&asked.pattern, FunctionPattern::Named { name: NamePattern::Cpp(_), .. });
        let what = if of_cpp { "C++ function" } else { "function" };
        let message = format!("no {what} `{}` in {paths}", asked.written);
        let help = match self.diags.are_many() || self.absent.len() >= DRAWN {
            true => Vec::new(),
            false => self.other_functions(asked, files),
        };
        finding("E0105", asked.at, message, "not exported there", help)
    }

    /// What may be meant by a function that is not there.
    fn other_functions(&self, asked: &FunctionSpec, files: &[File]) -> Vec<String> {
        // No name has blanks: it is a predicate that a comma makes a regular expression.
        if !is_plain(&asked.pattern) && asked.written.contains(' ') {
            return vec![
                "no comma stands before a predicate: `uprobe:libcuda:cuInit / pid == 3 / { }`".into(),
            ];
        }
        if files.iter().any(|file| self.setting.catalog.is_indirect(file.id, asked.written)) {
            let name = asked.written;
            return vec![format!(
                "`{name}` is several functions, of which the loader takes one for this machine's CPU (IFUNC): probe who calls it"
            )];
        }
        let names = |file: &File| self.setting.catalog.functions(file.id);
        let candidates: FxHashSet<&str> =
            files.iter().flat_map(names).flat_map(|f| f.names.iter().map(String::as_str)).collect();
        let help = match &asked.pattern {
            FunctionPattern::Named { version: Some(version), .. } => {
                other_versions(asked, files, version, names)
            }
            _ => Vec::new(),
        };
        let near = match &asked.pattern {
            FunctionPattern::Named { name: NamePattern::Cpp(name), .. } => {
                let names = candidates.iter().filter_map(|symbol| cpp_name(symbol, name.contains('(')));
                let names: FxHashSet<String> = names.collect();
                return did_you_mean(&similar(name, names.iter().map(String::as_str)));
            }
            FunctionPattern::Named { name, .. } => nearest(name, asked.written, &sorted(candidates.clone())),
            FunctionPattern::Address(_) | FunctionPattern::Line { .. } => Vec::new(),
        };
        let elsewhere = cuda_library(asked.written);
        let other =
            |library: &&str| files.iter().all(|file| file.library.is_none_or(|(l, _)| l.alias() != *library));
        match elsewhere.filter(other) {
            Some(library) => {
                let form = format!("{}:{library}:{}", asked.provider.names[0], asked.written);
                vec![format!("`{library}` has it: `{form}`")]
            }
            None if asked.written.contains('|') && is_plain(&asked.pattern) => {
                vec![format!("a regular expression stands between slashes: `/{}/`", asked.written)]
            }
            None if help.is_empty() && near.is_empty() => listing(files, candidates.len()),
            None if help.is_empty() => did_you_mean(&near),
            None => help,
        }
    }

    /// A library that nobody has mapped yet is asked for by the script.
    pub(super) fn wait_for(&mut self, target: &str, span: Span, looked_in: Vec<String>) {
        let at = *self.awaited.entry(target.into()).or_insert(self.pending.len());
        if at == self.pending.len() {
            self.pending.push(Pending { target: target.into(), looked_in, span, needed: false });
        }
        self.asked_for.push(at);
    }

    /// Sites in a library that is not mapped yet.
    fn assumed(&mut self, asked: &FunctionSpec, target: &str) -> Spots {
        let library = library_by_name(target);
        let mut symbols = match (&asked.pattern, library) {
            (FunctionPattern::Named { name, .. }, Some((library, major))) => expected(name, library, major),
            _ => Vec::new(),
        };
        if symbols.is_empty() {
            self.warn_unexpected(asked, library);
            symbols.push(asked.written.to_string());
        }
        let spots = symbols.into_iter().map(|symbol| {
            let known = self.function(&symbol, library);
            let probe = self.probe(asked, format_args!("{target}:{symbol}"));
            Spot::Call(Call {
                returns: asked.returns,
                site: site(None, Place::default(), known, probe),
                symbol,
                signature: known.signature.map(Declared::Cuda),
                undeclared_yet: library.is_none(),
                absent: None,
                by_name: asked.by_name(),
                passed: None,
            })
        });
        Ok(spots.collect())
    }

    fn warn_unexpected(&mut self, asked: &FunctionSpec, library: Option<(cuda::Library, u32)>) {
        let Some((library, major)) = library else { return };
        if cuda::signatures(library, major).next().is_none() {
            return;
        }
        let near =
            self.diags.similar(near_key(asked.written), cuda::signatures(library, major).map(|s| s.name));
        let message = format!("`{}` is no known function of {}", asked.written, library.alias());
        let warning = self.diags.warning("W0152", asked.at, message);
        warning.note("the library is not loaded yet, so this is decided when it is");
        warning.help.extend(did_you_mean(&near));
    }
}

fn site(file: Option<FileId>, place: Place, known: FunctionFacts, probe: NameId) -> Site {
    Site { file, place, semaphore: 0, case: 0, func: known.func, api: known.api, probe }
}

/// An attach point of a function, taken apart.
struct FunctionSpec<'s> {
    provider: &'static Provider,
    returns: bool,
    pattern: FunctionPattern,
    written: &'s str,
    at: Span,
    /// `cuda:alloc`, of which it is a part.
    operation: Option<&'s str>,
}

impl FunctionSpec<'_> {
    fn by_name(&self) -> bool {
        match &self.pattern {
            FunctionPattern::Named { name, .. } => name.single().is_some(),
            FunctionPattern::Address(_) | FunctionPattern::Line { .. } => true,
        }
    }
}

fn is_call(kind: ProviderKind) -> bool {
    matches!(kind, ProviderKind::Uprobe | ProviderKind::Uretprobe | ProviderKind::Usdt | ProviderKind::Cuda)
}

fn call_malformed(spec: &ProbeSpec, provider: &'static Provider) -> Spots {
    let parts: Vec<&str> = spec.parts.iter().map(|part| text(&part.node)).collect();
    match parts.as_slice() {
        [one] => match library_by_symbol(one) {
            Some((library, _)) => {
                let help = vec![format!("write `{}:{}:{one}`", provider.names[0], library.alias())];
                wrong("E0103", spec.span, "the target is missing".into(), "only a function", help)
            }
            None => malformed(spec.span, "expected a target and a function".into(), provider),
        },
        [target, function, side @ ("entry" | "return" | "exit")] => {
            let kind = if *side == "entry" { "uprobe" } else { "uretprobe" };
            let help = vec![format!("write `{kind}:{target}:{function}`")];
            wrong(
                "E0103",
                spec.span,
                format!("leave out `:{side}`: the kind of the probe selects it"),
                "",
                help,
            )
        }
        _ => malformed(spec.span, "expected a target and a function".into(), provider),
    }
}

/// What other tracers take for a target, and this one does not.
fn foreign_target(target: &str, span: Span, provider: &Provider) -> Option<Spots> {
    if target.contains(".apk!") || target.contains(".zip!") {
        let help = vec!["unpack the file, and name it".to_string()];
        return Some(wrong("E0103", span, "files inside of archives cannot be probed".into(), "", help));
    }
    FunctionPattern::line(target, "1").map(|(file, _)| {
        let form = format!(
            "write `{}:{target}:LINE`, or `{}:{file}:FUNCTION`",
            provider.names[0], provider.names[0]
        );
        wrong(
            "E0103",
            span,
            "behind a file of source code stands the number of a line".into(),
            "",
            vec![form],
        )
    })
}

fn no_lines(asked: &FunctionSpec, file: &File, absent: &Absent) -> Box<Diagnostic> {
    let message = format!("lines of source code of `{}` are not known", file.path);
    let why = match absent {
        Absent::NoInformation { .. } | Absent::NotDescribed => {
            format!("it has no debug information: {WITH_INFORMATION}")
        }
        Absent::Unusable(why) => format!("its debug information cannot be used: {why}"),
    };
    finding("E0105", asked.at, message, "", vec![why])
}

/// A line without code. `lines` are those that have some, in order.
fn no_line(
    asked: &FunctionSpec,
    file: &File,
    (source, line): (&str, u64),
    lines: &[(u64, u64)],
) -> Box<Diagnostic> {
    let message = match lines.is_empty() {
        true => format!("`{}` is not made of `{source}`", file.path),
        false => format!("line {line} of `{source}` has no code in `{}`", file.path),
    };
    let before = lines.iter().rev().map(|(of, _)| of).find(|of| **of < line);
    let behind = lines.iter().map(|(of, _)| of).find(|of| **of > line);
    let near: Vec<String> = before.into_iter().chain(behind).map(|of| format!("line {of}")).collect();
    let help = (!near.is_empty()).then(|| format!("the nearest code is of {}", near.join(" and of ")));
    finding("E0105", asked.at, message, "", help.into_iter().collect())
}

fn unknown_provider(spec: &ProbeSpec) -> Spots {
    let (name, span) = (&spec.provider.node, spec.provider.span);
    let known = PROVIDERS.iter().flat_map(|p| p.names.iter().copied()).filter(|name| name.len() > 2);
    let lower = name.to_lowercase();
    let mut help = did_you_mean(&similar(&lower, known));
    if help.is_empty() && spec.parts.is_empty() {
        help.extend(cuda_library(name).map(|library| {
            format!("a function is probed by `uprobe:{library}:{name}` or `uretprobe:{library}:{name}`")
        }));
    }
    if let Some(function) = spec.parts.first().filter(|_| help.is_empty() && name.starts_with("lib"))
        && spec.parts.len() == 1
    {
        help.push(format!("calls of a function: write `uprobe:{name}:{}`", text(&function.node)));
    }
    if help.is_empty() {
        let forms: Vec<String> = PROVIDERS.iter().map(|p| format!("`{}`", p.form)).collect();
        help.push(format!("probes are {}", forms.join(", ")));
    }
    wrong("E0101", span, format!("unknown kind of probe `{name}`"), "", help)
}

/// The library of CUDA that has a function of this name.
pub fn cuda_library(function: &str) -> Option<&'static str> {
    let has = |library: &cuda::Library| known_function(*library, function);
    cuda::Library::all().find(has).map(cuda::Library::alias)
}

/// Whether the tables have the function, or its family.
fn known_function(library: cuda::Library, function: &str) -> bool {
    cuda::signatures(library, 0).any(|s| s.name == function || cuda::base_name(library, s.name) == function)
}

/// The wrong name, or `:start` where there is none.
fn unknown_operation(spec: &ProbeSpec, api: &'static Api, name: &str) -> Spots {
    let known = || api.operations.iter().map(|operation| operation.name);
    let written = format!("{}:{name}", api.provider);
    if let Some(operation) = api.operation(name) {
        let message = format!("`{written}` cannot be followed by that");
        let help = match operation.fires.has_start() {
            false => format!("write `{written}`: it is known only when a call returns"),
            true => format!("write `{written}`, or `{written}:start` for its beginning"),
        };
        return wrong("E0113", spec.span, message, "", vec![help]);
    }
    let mut help = did_you_mean(&similar(name, known()));
    if let Some(library) = cuda_library(name) {
        help = vec![format!(
            "a function is probed by `uprobe:{library}:{name}` or `uretprobe:{library}:{name}`"
        )];
    } else if help.is_empty() {
        help.push(format!("operations are {}", listed(known(), api.operations.len())));
    }
    wrong("E0113", spec.span, format!("no operation `{written}`"), "", help)
}

/// A call that is more than a look at the library's own state, and whose result is known to be a code; of `others` one
/// that no operation names.
fn says_much(spot: &Spot, others: bool) -> bool {
    match spot {
        Spot::Call(Call { signature: Some(Declared::Cuda(known)), .. }) => {
            let family = cuda::base_name(known.library, known.name);
            let left_out = |api: &Api| api.quiet.contains(&family) || others && api.names(family);
            ["CUresult", "cudaError_t"].contains(&cuda::ty(known.ret).c_name)
                && !Api::of_library(known.library).is_some_and(left_out)
        }
        _ => false,
    }
}

/// The library whose tables apply to a symbol of a file. A program may have a static copy of the runtime; there the
/// symbol itself tells.
fn library_of(file: &File, symbol: &str) -> Option<(cuda::Library, u32)> {
    file.library.or_else(|| library_by_symbol(symbol))
}

fn library_by_symbol(symbol: &str) -> Option<(cuda::Library, u32)> {
    let library = match symbol {
        s if s.starts_with("cuda") || s.starts_with("__cuda") => cuda::Library::Runtime,
        s if s.starts_with("cu") => cuda::Library::Driver,
        s if s.starts_with("nccl") => cuda::Library::Nccl,
        _ => return None,
    };
    let known = |name: &str| cuda::signature(library, 0, name).is_some();
    let family = cuda::base_name(library, symbol);
    (known(symbol) || known(family) || known(&format!("{family}_v2"))).then_some((library, 0))
}

/// `libcudart`, `cudart`, `/usr/lib/libcudart.so.12`
fn library_by_name(target: &str) -> Option<(cuda::Library, u32)> {
    let file_name = target.rsplit('/').next().unwrap_or(target);
    cuda::Library::from_alias(target).map(|library| (library, 0)).or_else(|| {
        cuda::Library::from_soname(file_name).map(|(library, major)| (library, major.unwrap_or(0)))
    })
}

/// Symbols that a library is known to have and a pattern matches.
fn expected(name: &NamePattern, library: cuda::Library, major: u32) -> Vec<String> {
    let known = |symbol: &str| cuda::signature(library, major, symbol).is_some();
    cuda::signatures(library, major)
        .map(|signature| signature.name)
        .filter(|symbol| name.matches(Some(library), symbol, known))
        .map(String::from)
        .collect()
}

/// Names like the one that was asked for; for a wildcard, names that begin like it.
fn nearest<'n>(name: &NamePattern, written: &str, candidates: &[&'n str]) -> Vec<&'n str> {
    let key = near_key(written);
    if name.single().is_some() || key.len() < 3 {
        return similar(key, candidates.iter().copied());
    }
    let starts = candidates.iter().filter_map(|candidate| candidate.get(..key.len()));
    let near = similar(key, starts);
    near.into_iter().filter_map(|start| candidates.iter().copied().find(|c| c.starts_with(start))).collect()
}

/// Not a regular expression.
fn is_plain(pattern: &FunctionPattern) -> bool {
    !matches!(pattern, FunctionPattern::Named { name: NamePattern::Regex(_), .. })
}

/// How to see what there is.
fn listing(files: &[File], names: usize) -> Vec<String> {
    match files {
        [] => Vec::new(),
        _ if names == 0 => vec!["it names no functions".into()],
        [first, ..] => {
            vec![format!("`cudatrace -l 'uprobe:{}:*'` lists the {names} that are there", first.path)]
        }
    }
}

/// The text to compare names with: without version, offset and wildcards.
fn near_key(written: &str) -> &str {
    written.split(['@', '+', '*', '?', '[']).next().unwrap_or(written)
}

fn other_versions<'f>(
    asked: &FunctionSpec,
    files: &[File],
    version: &str,
    functions: impl Fn(&File) -> &'f [Function],
) -> Vec<String> {
    let FunctionPattern::Named { name, .. } = &asked.pattern else { return Vec::new() };
    let named = |f: &&Function| f.names.iter().any(|symbol| name.matches(None, symbol, |_| false));
    let versions: FxHashSet<&str> =
        files.iter().flat_map(functions).filter(named).filter_map(|f| f.version.as_deref()).collect();
    match sorted(versions).as_slice() {
        [] => Vec::new(),
        found => vec![format!("its version there is {}, not `{version}`", listed(found.iter().copied(), 5))],
    }
}

fn sorted(names: FxHashSet<&str>) -> Vec<&str> {
    let mut list: Vec<&str> = names.into_iter().collect();
    list.sort_unstable();
    list
}

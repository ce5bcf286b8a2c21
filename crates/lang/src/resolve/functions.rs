//! `uprobe:libcuda:cuMem*`, `uretprobe:./app:main`: functions of files.
//!
//! A function is probed once by a clause, even if several of its names or several attach points match it. In a missing target,
//! the functions of the CUDA tables are assumed, so that the body is checked.

use crate::catalog::debug_info::Absent;
use crate::catalog::{Catalog, File, FileId, Function, Landing, Place, TargetError};
use crate::expand::operations;
use crate::hir::{Hook, NameId, NameKind, Site};
use crate::resolve::completion;
use crate::resolve::cuda_libraries::{expected, library_by_name, library_by_symbol, library_of};
use crate::resolve::declaration::FunctionDeclaration;
use crate::resolve::finder::{EVERYTHING, Finder, FunctionFacts};
use crate::resolve::function_list;
use crate::resolve::function_spec::FunctionSpec;
use crate::resolve::jump_targets;
use crate::resolve::missing_functions::{no_line, no_lines};
use crate::resolve::pattern::{FunctionPattern, NamePattern};
use crate::resolve::provider::{Provider, ProviderProperties};
use crate::resolve::spot::{Call, Miss, Spot, Spots, finding, wrong};
use crate::resolve::symbols::Symbols;
use crate::resolve::unsafe_returns;
use crate::source::span::Span;
use crate::syntax::ast::ProbeSpec;
use cuda::operations::Api;
use std::fmt;

/// Beginning of the names of functions of the static runtime that are not in the tables.
const HIDDEN_IN_STATIC_RUNTIME: &str = "libcudart_static_";

/// A target and a function, which may be a pattern.
pub(super) const PROPERTIES: ProviderProperties = ProviderProperties {
    in_files: true,
    patterns: true,
    words: |catalog, _, parts| match parts {
        [target, function] => completion::functions(catalog, target, function),
        _ => completion::targets(catalog),
    },
    args: |catalog, _, parts| match parts {
        [target] => parameters(catalog, target, "*"),
        [target, function] => parameters(catalog, target, function),
        _ => Vec::new(),
    },
    ..ProviderProperties::PLAIN
};

/// Names of the parameters of the functions that match.
fn parameters(catalog: &dyn Catalog, target: &str, function: &str) -> Vec<String> {
    let found = function_list::find(catalog, target, function).unwrap_or_default();
    let declared = found.iter().filter_map(|found| found.declared(catalog).ok());
    let names = |declared: FunctionDeclaration| -> Vec<String> {
        declared.params().into_iter().map(|(name, _)| name.to_owned()).collect()
    };
    declared.flat_map(names).collect()
}

impl<'a> Finder<'a, '_> {
    pub(super) fn call(&mut self, spec: &ProbeSpec, provider: &Provider, returns: bool) -> Spots {
        let (wanted, target) = FunctionSpec::parse(spec, provider, returns)?;
        if self.enclosing.named.is_some() && !wanted.is_at_entry() {
            let message = "a clause that uses enclosing calls needs the name of a function, without offset";
            return wrong("E0103", wanted.at, message.into(), "", Vec::new());
        }
        self.in_target(&wanted, target.node, target.span)
    }

    /// The functions in the files of a target.
    pub(super) fn in_target(&mut self, wanted: &FunctionSpec, target: &str, span: Span) -> Spots {
        match self.files(target) {
            Ok(files) if target == EVERYTHING => self.in_any(wanted, files, span),
            Ok(files) => self.in_files(wanted, files),
            Err(_) if self.setting.only_files.is_some() => Err(Miss::Silent),
            Err(TargetError::NotYet { looked_in }) => {
                // Only operations use a library other than their own, and only if it is present.
                let of_api = |api: &Api| operations::library(wanted.written) == api.library;
                let by_form =
                    wanted.operation.is_some() && !Api::of(wanted.provider.names[0]).is_some_and(of_api);
                if !by_form {
                    self.wait_for(target, span, looked_in);
                }
                self.assumed(wanted, target)
            }
            Err(TargetError::Unusable(reason)) => self.no_target(target, span, &reason),
        }
    }

    /// The functions in all files of the traced processes, which may map further files later.
    fn in_any(&mut self, wanted: &FunctionSpec, files: Vec<File>, span: Span) -> Spots {
        let paths: Vec<String> = files.iter().map(|file| file.path.clone()).collect();
        match self.in_files(wanted, files) {
            Err(Miss::Absent(_)) => {
                self.wait_for(EVERYTHING, span, paths);
                self.assumed(wanted, EVERYTHING)
            }
            found => found,
        }
    }

    fn in_files(&mut self, wanted: &FunctionSpec, files: Vec<File>) -> Spots {
        let mut spots = Vec::new();
        for file in &files {
            let found = self.in_file(wanted, file)?;
            if !found.is_empty() {
                self.use_file(file);
            }
            spots.extend(found);
        }
        match spots.is_empty() {
            false => {
                let in_process = self.setting.catalog.runs_in_process();
                Ok(unsafe_returns::skip(spots, wanted.by_name(), in_process, wanted.at, self.diags))
            }
            true if self.setting.only_files.is_some() => Err(Miss::Silent),
            // A driver may lack functions of an operation; similar names are of no use.
            true if wanted.operation.is_some() => Err(Miss::Silent),
            true => Err(Miss::Absent(self.no_function(wanted, &files))),
        }
    }

    fn in_file(&mut self, wanted: &FunctionSpec, file: &File) -> Spots {
        match &wanted.pattern {
            FunctionPattern::Address(address) => self.at_address(wanted, file, *address),
            FunctionPattern::Line { source, line } => self.at_line(wanted, file, source, *line),
            FunctionPattern::Named { name, version, offset } => {
                let mut matched =
                    self.matching(file, wanted.library, name, version.as_deref(), self.has_return(wanted));
                self.refuse_jump_targets(wanted, &matched)?;
                // An old version, which new programs do not call: the loader selects their function.
                let is_old = |f: &Function| {
                    f.version.is_some() && self.setting.catalog.is_indirect(file.id, wanted.written)
                };
                if version.is_none() && wanted.by_name() {
                    matched.retain(|(f, _)| !is_old(f));
                }
                for (f, symbol) in matched.iter().filter(|_| *offset > 0) {
                    let shown = |offset: u64| format!("{symbol}+{}", offset.wrapping_sub(f.offset));
                    self.check_landing(wanted, file, Some(f.offset), f.offset + offset, &shown)?;
                }
                Ok(matched
                    .into_iter()
                    .map(|(f, symbol)| self.spot(wanted, file, f, symbol, *offset))
                    .collect())
            }
        }
    }

    /// Functions with a matching name, and the first of these names. `named`: the library by whose short name the file was found. If the file
    /// is another one into which the library is linked, patterns match the library's functions only.
    fn matching(
        &mut self,
        file: &File,
        named: Option<cuda::Library>,
        name: &NamePattern,
        version: Option<&str>,
        has_return: bool,
    ) -> Vec<(&'a Function, &'a str)> {
        let catalog = self.setting.catalog;
        let known = || Symbols::new(catalog.functions(file.id));
        let symbols = &*self.symbols.entry(file.id).or_insert_with(known);
        let library = match name {
            NamePattern::Family(family) => library_of(file, family).map(|(library, _)| library),
            _ => None,
        };
        let is_hidden = name.beginning().starts_with(HIDDEN_IN_STATIC_RUNTIME);
        let linked_in =
            named.filter(|_| !is_hidden && name.is_pattern() && library_by_name(&file.path).is_none());
        let is_in_library = |symbol: &str| {
            linked_in
                .is_none_or(|wanted| library_by_symbol(symbol).is_some_and(|(library, _)| library == wanted))
        };
        symbols
            .starting(name.beginning())
            .filter(|f| version.is_none_or(|wanted| f.version.as_deref() == Some(wanted)))
            .filter_map(|f| {
                let matches = |symbol: &&String| {
                    is_in_library(symbol)
                        && name.matches(library, symbol, |other| symbols.has(other))
                        && !jump_targets::is_skipped(name, symbol, has_return)
                };
                f.names.iter().find(matches).map(|symbol| (f, symbol.as_str()))
            })
            .collect()
    }

    /// Whether the clause has a program at the return of the function.
    fn has_return(&self, wanted: &FunctionSpec) -> bool {
        wanted.returns || self.enclosing.named.is_some() || self.enclosing.parent
    }

    /// Refuses the return of code to which the program jumps: it would change a value of the program.
    fn refuse_jump_targets(&self, wanted: &FunctionSpec, matched: &[(&Function, &str)]) -> Result<(), Miss> {
        let at_entry = wanted.is_at_entry() && self.has_return(wanted);
        let Some((_, symbol)) =
            matched.iter().find(|(_, symbol)| at_entry && jump_targets::is_jumped_to(symbol))
        else {
            return Ok(());
        };
        let message = format!("`{symbol}` does not return: the program jumps to it, and does not call it");
        let help = vec!["use a `uprobe` without the enclosing calls".to_owned()];
        wrong("E0103", wanted.at, message, "", help)
    }

    fn spot(
        &mut self,
        wanted: &FunctionSpec,
        file: &File,
        function: &Function,
        symbol: &'a str,
        offset: u64,
    ) -> Spot {
        let one_place = self.has_return(wanted);
        let place = match (offset, one_place) {
            (0, at_return) => self.place(file.id, function.offset, at_return),
            (offset, _) => Place { offset: function.offset + offset, stack_shift: 0 },
        };
        // After the first instruction the registers may not hold the arguments.
        let (known, probe) = match offset {
            0 => (self.known(file, symbol), self.probe(wanted, format_args!("{}:{symbol}", file.path))),
            _ => (
                self.function(symbol, None),
                self.probe(wanted, format_args!("{}:{symbol}+{offset}", file.path)),
            ),
        };
        let declared = match known.signature {
            Some(row) => Ok(FunctionDeclaration::Cuda(row)),
            None if offset == 0 && self.typed => self.declared(file, function, symbol),
            None => Err(None),
        };
        let (signature, absent) = match declared {
            Ok(declared) => (Some(declared), None),
            Err(absent) => (None, absent.map(|why| (file.path.clone(), why))),
        };
        Spot::Call(Call {
            hook: Hook::Uprobe,
            undeclared_yet: false,
            by_name: wanted.by_name(),
            returns: wanted.returns,
            site: site(Some(file.id), place, known, probe),
            symbol: symbol.into(),
            signature,
            absent,
            passed: None,
        })
    }

    /// The declaration of a function in debug information.
    fn declared(
        &self,
        file: &File,
        function: &Function,
        symbol: &str,
    ) -> Result<FunctionDeclaration, Option<Absent>> {
        let found = self.setting.catalog.declared(file.id, function.offset, symbol);
        found.map(FunctionDeclaration::Debug).map_err(Some)
    }

    /// The value of `probe`: the operation, or the name of the function.
    fn probe(&mut self, wanted: &FunctionSpec, function: fmt::Arguments) -> NameId {
        match wanted.operation {
            Some(name) => self.names.intern(NameKind::Probe, name),
            None => {
                let name = format!("{}:{function}", wanted.provider.names[0]);
                self.names.intern(NameKind::Probe, &name)
            }
        }
    }

    /// Refuses a place at which no instruction begins: a breakpoint there would change the code, and break the program. In
    /// messages, `shown` formats offsets in the file.
    fn check_landing(
        &self,
        wanted: &FunctionSpec,
        file: &File,
        function: Option<u64>,
        offset: u64,
        shown: &dyn Fn(u64) -> String,
    ) -> Result<(), Miss> {
        let (message, help) = match self.setting.catalog.landing(file.id, function, offset) {
            Landing::Begins => return Ok(()),
            Landing::Inside { begins, next } => (
                format!("no instruction begins at `{}`", shown(offset)),
                format!("the nearest instructions begin at `{}` and `{}`", shown(begins), shown(next)),
            ),
            Landing::After { size } => (
                format!("`{}` is after the end of the function, which has {size} bytes", shown(offset)),
                "`objdump -d` shows where its instructions begin".into(),
            ),
        };
        Err(Miss::Wrong(finding("E0117", wanted.at, message, "the program would break there", vec![help])))
    }

    fn at_address(&mut self, wanted: &FunctionSpec, file: &File, address: u64) -> Spots {
        let symbol = format!("{address:#x}");
        let probe = self.probe(wanted, format_args!("{}:{symbol}", file.path));
        self.in_code(wanted, file, address, symbol, probe).map(|spot| vec![spot])
    }

    /// `./app@main.c:22`: the first instruction of the line in each function that has code of it.
    fn at_line(&mut self, wanted: &FunctionSpec, file: &File, source: &str, line: u64) -> Spots {
        let lines = match self.setting.catalog.source_lines(file.id, source) {
            Ok(lines) => lines,
            Err(absent) => return Err(Miss::Absent(no_lines(wanted, file, &absent))),
        };
        let of_line = lines.iter().filter(|(of, _)| *of == line);
        let symbol = format!("{source}:{line}");
        let probe = self.probe(wanted, format_args!("{}@{symbol}", file.path));
        let spots: Vec<Spot> = of_line
            .map(|(_, address)| self.in_code(wanted, file, *address, symbol.clone(), probe))
            .collect::<Result<_, _>>()?;
        match spots.is_empty() {
            true => Err(Miss::Absent(no_line(wanted, file, source, line, &lines))),
            false => Ok(spots),
        }
    }

    /// An instruction, not necessarily the first of a function.
    fn in_code(
        &mut self,
        wanted: &FunctionSpec,
        file: &File,
        address: u64,
        symbol: String,
        probe: NameId,
    ) -> Result<Spot, Miss> {
        let Some(offset) = self.setting.catalog.address_to_offset(file.id, address) else {
            let message = format!("no code at address {address:#x} of {}", file.path);
            return Err(Miss::Absent(finding("E0105", wanted.at, message, "outside its code", Vec::new())));
        };
        let shown = |other: u64| format!("{:#x}", address.wrapping_add(other.wrapping_sub(offset)));
        self.check_landing(wanted, file, None, offset, &shown)?;
        let place = Place { offset, stack_shift: 0 };
        let known = self.function(&symbol, None);
        Ok(Spot::Call(Call {
            hook: Hook::Uprobe,
            undeclared_yet: false,
            returns: wanted.returns,
            site: site(Some(file.id), place, known, probe),
            symbol,
            signature: None,
            absent: None,
            by_name: true,
            passed: None,
        }))
    }

    /// The assumed functions of a library that is not mapped yet.
    fn assumed(&mut self, wanted: &FunctionSpec, target: &str) -> Spots {
        let library = library_by_name(target);
        let mut symbols = match (&wanted.pattern, library) {
            (FunctionPattern::Named { name, .. }, Some((library, major))) => expected(name, library, major),
            _ => Vec::new(),
        };
        if symbols.is_empty() {
            self.warn_unexpected(wanted, library);
            symbols.push(wanted.written.to_string());
        }
        let spots = symbols.into_iter().map(|symbol| {
            let known = self.function(&symbol, library);
            let probe = self.probe(wanted, format_args!("{target}:{symbol}"));
            Spot::Call(Call {
                hook: Hook::Uprobe,
                returns: wanted.returns,
                site: site(None, Place::default(), known, probe),
                symbol,
                signature: known.signature.map(FunctionDeclaration::Cuda),
                undeclared_yet: library.is_none(),
                absent: None,
                by_name: wanted.by_name(),
                passed: None,
            })
        });
        Ok(spots.collect())
    }
}

fn site(file: Option<FileId>, place: Place, known: FunctionFacts, probe: NameId) -> Site {
    Site { file, module: "", place, semaphore: 0, case: 0, func: known.func, api: known.api, probe }
}

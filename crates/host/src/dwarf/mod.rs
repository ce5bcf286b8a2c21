//! Debug information (DWARF 2 to 5) of probed files: signatures of functions, and types.
//!
//! A file costs nothing until a script uses arguments, results or types of it. The file is then mapped, the address ranges of its
//! units are read once, and after that only the units that contain the answer. Only indices are cached: each query parses the
//! few entries that it needs.
//!
//! - [`separate_file`]: the file that has the information; [`sections`]: its sections, decompressed
//! - [`units`]: finding the unit, and the entries in it; [`entry`]: one entry and its attributes
//! - [`lines`]: lines of source code to addresses
//! - [`split`]: units in `.dwo` files and `.dwp` packages
//! - [`function`] and [`c_types`]: the answers; [`abi`]: arguments passed by reference or in unknown locations
//!
//! Any bytes are acceptable input: damaged entries are treated as absent.

#![allow(non_upper_case_globals, reason = "the names of the DWARF standard")]

mod abi;
mod c_types;
mod entry;
mod function;
mod lines;
mod sections;
mod separate_file;
mod split;
mod units;

pub use separate_file::search_in_folders;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gimli::{Abbreviations, Dwarf, Unit};
use lang::catalog::FileId;
use lang::catalog::debug_info::{Absent, Function, Kind, Type, TypeId};

use crate::elf::ElfFile;
use sections::{Sections, Slice};
use split::SplitSearch;
use units::{Place, Scan, Units};

type FunctionResult = Result<Arc<Function>, Absent>;

/// The debug information of one file.
#[derive(Debug)]
pub(crate) struct Debug {
    file: FileId,
    main: Sections,
    /// Sections of the supplementary file that `dwz` shares between several files.
    shared: Option<Sections>,
    /// Where the units of skeletons are searched.
    splits: SplitSearch,
    units: OnceLock<Units>,
    scans: Mutex<HashMap<usize, Arc<Scan>>>,
    functions: Mutex<HashMap<(u64, String), FunctionResult>>,
    /// Abbreviations of units whose entries were read: parsing them again takes longer than reading an entry.
    abbreviations: Mutex<HashMap<usize, Arc<Abbreviations>>>,
    types: Mutex<HashMap<u64, Arc<Type>>>,
    /// Definitions of all types of the file, by their full names.
    names: OnceLock<HashMap<String, Place>>,
}

/// The separate debug file of a stripped file, which has its symbols.
pub(crate) fn symbols_beside(elf: &ElfFile, path: &Path, shown: &Path) -> Option<ElfFile> {
    separate_file::find(elf, path, shown).ok().map(|found| found.main)
}

/// Whether the debug information of an untrusted file can be read. All files that its links name must be plain
/// files of a bounded size, and no section may decompress to more than the memory.
pub(crate) fn has_harmless_information(path: &Path) -> bool {
    ElfFile::open(path)
        .is_ok_and(|elf| !sections::has_bombs(&elf) && separate_file::links_are_harmless(&elf, path))
}

impl Debug {
    /// The debug information of a file, which is opened at `path` and shown as `shown`.
    ///
    /// # Errors
    /// There is none; the error contains the searched locations.
    pub(crate) fn of(file: FileId, elf: &ElfFile, path: &Path, shown: &Path) -> Result<Debug, Absent> {
        let found = separate_file::find(elf, path, shown)?;
        let main = Sections::load(found.main).map_err(Absent::Unusable)?;
        let shared = found.shared.map(Sections::load).transpose().map_err(Absent::Unusable)?;
        Ok(Debug {
            file,
            main,
            shared,
            splits: SplitSearch::new(path, shown),
            units: OnceLock::new(),
            scans: Mutex::default(),
            functions: Mutex::default(),
            abbreviations: Mutex::default(),
            types: Mutex::default(),
            names: OnceLock::new(),
        })
    }

    /// The function at a virtual address; `symbol` is the symbol that is probed.
    pub(crate) fn function(&self, address: u64, symbol: &str) -> FunctionResult {
        let key = (address, symbol.to_owned());
        if let Some(known) = lock(&self.functions).get(&key) {
            return known.clone();
        }
        let found = self.read_function(address, symbol).map(Arc::new);
        lock(&self.functions).insert(key, found.clone());
        found
    }

    /// The type with an id from this debug information.
    pub(crate) fn declared_type(&self, id: TypeId) -> Arc<Type> {
        if let Some(known) = lock(&self.types).get(&id.at) {
            return Arc::clone(known);
        }
        let nothing = || Type { name: String::new(), kind: Kind::Void };
        let found = Arc::new(self.read_type(c_types::Ref::of(id)).unwrap_or_else(nothing));
        lock(&self.types).insert(id.at, Arc::clone(&found));
        found
    }

    /// The type of this name that the file defines, or the only one with this name in a namespace.
    pub(crate) fn type_named(&self, name: &str) -> Option<TypeId> {
        let inner = format!("::{name}");
        let within = || {
            let mut named = self.names().iter().filter(|(full, _)| full.ends_with(&inner));
            let (_, only) = named.next()?;
            named.next().is_none().then_some(only)
        };
        let place = self.names().get(name).or_else(within)?;
        Some(c_types::Ref::to(*place).id(self.file))
    }

    fn dwarf(&self) -> Dwarf<Slice<'_>> {
        let mut dwarf = self.main.dwarf();
        if let Some(shared) = &self.shared {
            dwarf.set_sup(shared.dwarf());
        }
        dwarf
    }

    fn units(&self) -> &Units {
        self.units.get_or_init(|| Units::read(&self.dwarf(), &self.splits))
    }

    /// The index of a unit, which is cached.
    fn scan(&self, unit: usize) -> Arc<Scan> {
        if let Some(known) = lock(&self.scans).get(&unit) {
            return Arc::clone(known);
        }
        let scan = Arc::new(self.read_scan(unit));
        lock(&self.scans).insert(unit, Arc::clone(&scan));
        scan
    }

    fn read_scan(&self, unit: usize) -> Scan {
        let start = self.units().start(unit);
        self.in_unit(start, |dwarf, unit, start| Some(Scan::read(dwarf, unit, start))).unwrap_or_default()
    }

    /// Calls `f` with the unit that contains a location.
    fn in_unit<T>(
        &self,
        place: Place,
        f: impl for<'d> FnOnce(&Dwarf<Slice<'d>>, &Unit<Slice<'d>>, Place) -> Option<T>,
    ) -> Option<T> {
        let at = self.units().around(place)?;
        let start = self.units().start(at);
        let all = self.dwarf();
        let split = self.units().split(place.part, &all);
        let dwarf = split.as_ref().unwrap_or_else(|| units::of_part(&all, place.part));
        let header = units::header(dwarf, start)?;
        let known = lock(&self.abbreviations).get(&at).cloned();
        let abbreviations = match known {
            Some(known) => known,
            None => {
                let read = dwarf.abbreviations(&header).ok()?;
                lock(&self.abbreviations).entry(at).or_insert(read).clone()
            }
        };
        let mut unit = Unit::new_with_abbreviations(dwarf, header, abbreviations).ok()?;
        if let Some(skeleton) = self.units().skeleton(at) {
            let header = units::header(&all, skeleton)?;
            unit.copy_relocated_attributes(&all.unit(header).ok()?);
        }
        f(dwarf, &unit, start)
    }

    /// Definitions of all types by name; reads every unit.
    fn names(&self) -> &HashMap<String, Place> {
        self.names.get_or_init(|| {
            let mut names = HashMap::new();
            for unit in 0..self.units().len() {
                for (name, place) in self.read_scan(unit).types {
                    names.entry(name).or_insert(place);
                }
            }
            names
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

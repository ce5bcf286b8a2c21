//! Split debug information (`-gsplit-dwarf`): the units in `.dwo` files, or in the package `FILE.dwp` that `dwp` makes of them.
//!
//! ```text
//! prog        skeleton unit: addresses, dwo_id, DW_AT_dwo_name "main.dwo", DW_AT_comp_dir "/src"
//! main.dwo    split unit with the same dwo_id: functions and types
//! ```
//!
//! Source: "Split DWARF Object Files" in the DWARF 5 standard; before, the GNU extension of DWARF 4 (`DW_AT_GNU_dwo_name`).

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use gimli::{Dwarf, DwarfPackage, DwarfPackageSections, DwoId, EndianSlice, LittleEndian, Unit};

use super::sections::{PackageList, Sections, Slice, has_bombs};
use super::separate_file::{MOST_LINKED, folders, roots};
use crate::elf::ElfFile;

/// Where `.dwo` files and the package of a program are searched.
#[derive(Debug)]
pub(super) struct SplitSearch {
    /// `/proc/PID/root`, and the root of this process.
    roots: Vec<PathBuf>,
    /// Paths of the program: as it is opened, and the file with its debug information.
    programs: Vec<PathBuf>,
}

/// The split units that were found.
#[derive(Debug, Default)]
pub(super) struct Splits {
    package: Option<Package>,
    list: Vec<SplitUnit>,
}

/// A unit, or a file with units.
#[derive(Debug)]
enum SplitUnit {
    File {
        id: DwoId,
        sections: Box<Sections>,
    },
    InPackage(DwoId),
    /// A type unit: its row in the index of the package.
    TypeInPackage(u32),
}

/// The sections of a `.dwp` file.
#[derive(Debug)]
struct Package {
    elf: ElfFile,
    list: PackageList,
}

/// A skeleton: the part of a unit that the linker has put into the program.
pub(super) struct Skeleton {
    pub id: DwoId,
    /// `DW_AT_dwo_name`
    pub name: String,
    /// `DW_AT_comp_dir`
    pub folder: String,
}

impl Skeleton {
    /// The skeleton, if the unit is one.
    pub(super) fn of(dwarf: &Dwarf<Slice<'_>>, unit: &Unit<Slice<'_>>) -> Option<Skeleton> {
        let name = unit.dwo_name().ok()??;
        let name = dwarf.attr_string(unit, name).ok()?.to_string_lossy().into_owned();
        let folder = unit.comp_dir.map(|folder| folder.to_string_lossy().into_owned()).unwrap_or_default();
        Some(Skeleton { id: unit.dwo_id?, name, folder })
    }
}

impl SplitSearch {
    /// `path` is that of the program, `shown` its path in the process.
    pub(super) fn new(path: &Path, shown: &Path) -> SplitSearch {
        let mut programs = vec![path.to_path_buf()];
        programs.extend(path.canonicalize().ok().filter(|real| real != path));
        SplitSearch { roots: roots(path, shown), programs }
    }

    /// `prog.dwp` beside the program, or in a folder of the user's.
    fn packages(&self) -> impl Iterator<Item = PathBuf> {
        let named = |program: &PathBuf| {
            let mut name = program.clone().into_os_string();
            name.push(".dwp");
            PathBuf::from(name)
        };
        let beside: Vec<PathBuf> = self.programs.iter().map(named).collect();
        let given = beside.iter().filter_map(|path| path.file_name());
        let given: Vec<PathBuf> =
            given.flat_map(|name| folders().iter().map(move |folder| folder.join(name))).collect();
        given.into_iter().chain(beside)
    }

    /// Paths of a `.dwo` file: in the folders of the user, where it was compiled, and beside the program.
    fn files(&self, skeleton: &Skeleton) -> Vec<PathBuf> {
        let name = Path::new(&skeleton.name);
        let last = name.file_name().map(Path::new);
        let names = || [Some(name).filter(|name| name.is_relative()), last].into_iter().flatten();
        let beside = self.programs.iter().filter_map(|program| program.parent());
        let compiled = Path::new(&skeleton.folder).join(name);
        let compiled =
            compiled.strip_prefix("/").map(|inside| self.roots.iter().map(move |root| root.join(inside)));
        let mut paths: Vec<PathBuf> =
            folders().iter().flat_map(|folder| names().map(|name| folder.join(name))).collect();
        paths.extend(compiled.into_iter().flatten());
        paths.extend(beside.flat_map(|folder| names().map(|name| folder.join(name))));
        let mut known = HashSet::new();
        paths.retain(|path| known.insert(path.clone()));
        paths
    }
}

impl Splits {
    /// Opens the package of a program with skeletons, and lists its type units.
    pub(super) fn open_package(&mut self, search: &SplitSearch) {
        self.package = search.packages().filter_map(|path| open(&path)).map(Package::load).next();
        let Some(package) = &self.package else { return };
        let types = package.dwarf().map_or(0, |package| package.tu_index.unit_count());
        self.list.extend((1..=types).map(SplitUnit::TypeInPackage));
    }

    /// Adds the unit of a skeleton.
    ///
    /// # Errors
    /// It was not found; the error has the searched paths.
    pub(super) fn add(&mut self, skeleton: &Skeleton, search: &SplitSearch) -> Result<(), String> {
        let package = self.package.as_ref().and_then(Package::dwarf);
        if package.is_some_and(|package| package.cu_index.find(skeleton.id.0).is_some()) {
            self.list.push(SplitUnit::InPackage(skeleton.id));
            return Ok(());
        }
        // A file may have several units, as with `-flto`.
        if self.list.iter().any(|unit| matches!(unit, SplitUnit::File { id, .. } if *id == skeleton.id)) {
            return Ok(());
        }
        let paths = search.files(skeleton);
        let found = paths.iter().filter_map(|path| Sections::load_split(open(path)?).ok());
        match { found }.find(|sections| has_unit(&sections.dwarf(), skeleton.id)) {
            Some(sections) => {
                self.list.push(SplitUnit::File { id: skeleton.id, sections: Box::new(sections) })
            }
            None => return Err(not_found(skeleton, &paths)),
        }
        Ok(())
    }

    /// Number of units and files.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// The sections of a unit or a file; `parent` is the program's. `None` if they are damaged.
    pub(super) fn dwarf<'a>(&'a self, at: usize, parent: &Dwarf<Slice<'a>>) -> Option<Dwarf<Slice<'a>>> {
        match self.list.get(at)? {
            SplitUnit::File { sections, .. } => {
                let mut dwarf = sections.dwarf();
                dwarf.make_dwo(parent);
                Some(dwarf)
            }
            SplitUnit::InPackage(id) => self.package.as_ref()?.dwarf()?.find_cu(*id, parent).ok()?,
            SplitUnit::TypeInPackage(row) => self.package.as_ref()?.dwarf()?.tu_sections(*row, parent).ok(),
        }
    }
}

impl Package {
    fn load(elf: ElfFile) -> Package {
        let list = PackageList::load(&elf);
        Package { elf, list }
    }

    /// `None` if its index is damaged.
    fn dwarf(&self) -> Option<DwarfPackage<Slice<'_>>> {
        let list: &DwarfPackageSections<_> = self.list.sections();
        list.borrow(|section| EndianSlice::new(section.bytes(&self.elf), LittleEndian), Slice::default()).ok()
    }
}

fn not_found(skeleton: &Skeleton, paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    format!(
        "its debug information is in `{}` (`-gsplit-dwarf`), which is neither in a `.dwp` file beside the program nor in {}; \
         `--debuginfo FOLDER` names its folder",
        skeleton.name,
        paths.join(", ")
    )
}

/// Whether a `.dwo` file has this unit.
fn has_unit(dwarf: &Dwarf<Slice<'_>>, id: DwoId) -> bool {
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        if dwarf.unit(header).is_ok_and(|unit| unit.dwo_id == Some(id)) {
            return true;
        }
    }
    false
}

/// Opens a file that a program names, which may be no plain file.
fn open(path: &Path) -> Option<ElfFile> {
    let harmless = path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MOST_LINKED);
    let elf = ElfFile::open(path).ok().filter(|_| harmless)?;
    (!has_bombs(&elf)).then_some(elf)
}

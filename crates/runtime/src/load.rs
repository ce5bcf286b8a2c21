//! Loads the compiled object of a script, an ELF file, into the kernel with libbpf. Only descriptors of its programs and maps are kept.
//!
//! A module that extends a session shares the session's maps by name. Each module has its own constant data.

use crate::error::{LIMITS, LoadError};
use crate::handles::{LoadedMap, LoadedProgram, MapHandle, Objects, ProgramHandle};
use crate::kernel::features;
use libbpf_rs::{AsRawLibbpf, MapCore, ObjectBuilder, OpenObject, PrintLevel};
use libbpf_sys as bpf;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::sync::Mutex;
use wire::Manifest;
use wire::counter::{COUNTERS_MAP, FAILURES_MAP};
use wire::manifest::{self, CompiledScript, Program};
use wire::map::DIRECT_PREFIX;

/// Largest number of shown lines of the verifier's log.
const LOG_LINES: usize = 24;

/// Default number of counters reserved for modules that extend the session.
pub(crate) const SPARE_COUNTERS: u32 = 1024;

/// Loads an object; uses the maps in `shared` that have the same names.
pub(crate) fn load(
    compiled: &CompiledScript,
    shared: &HashMap<String, LoadedMap>,
) -> Result<Objects, LoadError> {
    load_first(compiled, shared, 0)
}

/// Loads the first object of a session. Reserves `spare_counters` for later ones (0: [`SPARE_COUNTERS`]).
pub(crate) fn load_first(
    compiled: &CompiledScript,
    shared: &HashMap<String, LoadedMap>,
    spare_counters: u32,
) -> Result<Objects, LoadError> {
    let spare_counters = if spare_counters == 0 { SPARE_COUNTERS } else { spare_counters };
    check_version(&compiled.manifest)?;
    let _lock = CAPTURE_LOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let log = LibbpfLog::capture();
    let why = |error| refusal(&compiled.manifest, &log.text(), &error);
    let mut refused = HashMap::new();
    let loaded = open(compiled, shared, spare_counters).map_err(why)?.load();
    let object = match loaded.map_err(why) {
        Ok(object) => object,
        Err(error) => {
            let mut again = open(compiled, shared, spare_counters).map_err(why)?;
            refused = leave_out_refused(&mut again, &error);
            if refused.is_empty() {
                return Err(error);
            }
            again.load().map_err(why)?
        }
    };
    collect(&object, &compiled.manifest, shared, refused)
}

/// Leaves out the programs at functions of the kernel that it refuses, if an object does not load because of such a program:
/// patterns match functions whose arguments the kernel cannot pass on. Returns the kernel's reasons by program.
fn leave_out_refused(open: &mut OpenObject, error: &LoadError) -> HashMap<String, String> {
    let LoadError::Refused { symbol, .. } = error else { return HashMap::new() };
    let is_trampoline = |section: &OsStr| {
        ["fentry/", "fexit/"].iter().any(|kind| section.to_string_lossy().starts_with(kind))
    };
    let at_function =
        open.progs().any(|program| program.name() == symbol.as_str() && is_trampoline(program.section()));
    if !at_function {
        return HashMap::new();
    }
    let mut refused = HashMap::new();
    for mut program in open.progs_mut() {
        if is_trampoline(program.section())
            && let Some(reason) = features::refusal_of_trampoline(&program.section().to_string_lossy())
        {
            program.set_autoload(false);
            refused.insert(program.name().to_string_lossy().into_owned(), reason);
        }
    }
    refused
}

fn check_version(manifest: &Manifest) -> Result<(), LoadError> {
    let (found, expected) = (manifest.version, manifest::VERSION);
    if found == expected { Ok(()) } else { Err(LoadError::Version { found, expected }) }
}

fn open(
    compiled: &CompiledScript,
    shared: &HashMap<String, LoadedMap>,
    spare_counters: u32,
) -> libbpf_rs::Result<OpenObject> {
    let mut open = ObjectBuilder::default().open_memory(&compiled.elf)?;
    for mut map in open.maps_mut() {
        let name = symbol(map.name());
        if let Some(shared) = shared.get(&name) {
            // libbpf allocates the value of a direct map, which must have the size of the shared map.
            if map.value_size() != shared.value_size {
                map.set_value_size(shared.value_size)?;
            }
            if let Some(fd) = shared.handle.fd() {
                map.reuse_fd(fd.as_fd())?;
            }
        } else if name == COUNTERS_MAP {
            let entries = map.max_entries() + spare_counters;
            map.set_max_entries(entries)?;
        } else if name == FAILURES_MAP {
            let bytes = map.value_size() + 8 * spare_counters;
            map.set_value_size(bytes)?;
        }
    }
    Ok(open)
}

/// Name of a map in the manifest. In the object, direct maps have the names of their sections.
fn symbol(name: &OsStr) -> String {
    let name = name.to_string_lossy();
    name.strip_prefix(DIRECT_PREFIX).unwrap_or(&name).to_owned()
}

fn collect(
    object: &libbpf_rs::Object,
    manifest: &Manifest,
    shared: &HashMap<String, LoadedMap>,
    mut refused: HashMap<String, String>,
) -> Result<Objects, LoadError> {
    let mut objects = Objects::default();
    let setup = |errno| LoadError::Setup { what: "cannot duplicate a descriptor", errno };
    for map in object.maps() {
        let name = symbol(map.name());
        if !shared.contains_key(&name) {
            let fd = map.as_fd().try_clone_to_owned().map_err(setup)?;
            let (max_entries, value_size) = (map.max_entries(), map.value_size());
            objects.maps.insert(name, LoadedMap { handle: MapHandle::Kernel(fd), max_entries, value_size });
        }
    }
    for Program { symbol, .. } in &manifest.programs {
        if let Some(reason) = refused.remove(symbol) {
            objects.programs.push(Err(reason));
            continue;
        }
        let missing = || LoadError::Missing { what: "program", symbol: symbol.clone() };
        let program = object.progs().find(|program| program.name() == symbol.as_str()).ok_or_else(missing)?;
        let fd = program.as_fd().try_clone_to_owned().map_err(setup)?;
        // SAFETY: the object of the program outlives the call.
        let attach_type =
            unsafe { bpf::bpf_program__expected_attach_type(program.as_libbpf_object().as_ptr()) };
        objects.programs.push(Ok(LoadedProgram { handle: ProgramHandle::Kernel(fd), attach_type }));
    }
    Ok(objects)
}

/// libbpf prints through one function per process, so only one load is captured at a time.
static CAPTURE_LOCK: Mutex<()> = Mutex::new(());
static CAPTURED: Mutex<String> = Mutex::new(String::new());

/// Captures the messages of libbpf while it exists.
struct LibbpfLog;

impl LibbpfLog {
    fn capture() -> LibbpfLog {
        captured().clear();
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| captured().push_str(&text))));
        LibbpfLog
    }

    fn text(&self) -> String {
        captured().clone()
    }
}

impl Drop for LibbpfLog {
    fn drop(&mut self) {
        libbpf_rs::set_print(None);
        *captured() = String::new();
    }
}

fn captured() -> std::sync::MutexGuard<'static, String> {
    CAPTURED.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Converts an error to the program or map that libbpf's messages name.
fn refusal(manifest: &Manifest, log: &str, error: &libbpf_rs::Error) -> LoadError {
    let named = |before: &str, after: &str| {
        log.lines().find_map(|line| {
            let rest = line.split_once(before)?.1;
            let (name, rest) = rest.split_once('\'')?;
            rest.contains(after).then(|| name.to_owned())
        })
    };
    let errno = errno_of(error);
    // The limit of open files of the process or the machine was reached, which is no fault of the object.
    if matches!(errno.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) {
        let what = "cannot load the script's programs and maps";
        return LoadError::Setup { what, errno };
    }
    if let Some(symbol) = named("prog '", "BPF program load failed: ") {
        return refused(manifest, symbol, log, errno);
    }
    if let Some(symbol) = named("map '", "failed to create: ") {
        return match errno.raw_os_error() {
            Some(libc::EPERM) => features::explain(errno).into(),
            _ => LoadError::Map { symbol, errno },
        };
    }
    let text = log.trim().replace("libbpf: ", "");
    LoadError::Object { reason: if text.is_empty() { error.to_string() } else { text } }
}

/// The errno at the end of the text of a libbpf-rs error, `… (os error 13)`. Its `kind()` does not distinguish EPERM (missing
/// permission) from EACCES (refused by the verifier).
fn errno_of(error: &libbpf_rs::Error) -> io::Error {
    let text = format!("{error:#}");
    let number = text.rsplit_once("(os error ").and_then(|(_, rest)| rest.strip_suffix(')')?.parse().ok());
    number.map_or_else(|| io::Error::other(text), io::Error::from_raw_os_error)
}

fn refused(manifest: &Manifest, symbol: String, log: &str, errno: io::Error) -> LoadError {
    let log = tail_of_log(log);
    if log.is_empty() && matches!(errno.raw_os_error(), Some(libc::EPERM)) {
        return features::explain(errno).into();
    }
    let program: Option<&Program> = manifest.programs.iter().find(|program| program.symbol == symbol);
    let (place, text) = program
        .map_or_else(Default::default, |program| (manifest.line_of(program.place), program.text.clone()));
    match LIMITS.iter().find(|(message, _)| log.contains(message)) {
        Some((_, limit)) => LoadError::TooMuch { place, text, limit },
        None => LoadError::Refused { symbol, place, text, errno, log },
    }
}

/// The last lines of the verifier's log, preceded by the script's line to which they belong. libbpf's markers enclose the log.
fn tail_of_log(text: &str) -> String {
    let Some((_, log)) = text.split_once("-- BEGIN PROG LOAD LOG --\n") else { return String::new() };
    let log = log.split_once("-- END PROG LOAD LOG --").map_or(log, |(log, _)| log);
    let lines: Vec<&str> = log.lines().filter(|line| !line.is_empty() && *line != "libbpf: prog").collect();
    let (before, shown) = lines.split_at(lines.len().saturating_sub(LOG_LINES));
    let is_quote = |line: &&str| line.starts_with(';');
    let quote = before.iter().copied().rfind(is_quote).filter(|_| !shown.first().is_some_and(is_quote));
    quote.into_iter().chain(shown.iter().copied()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "libbpf: prog 'probe0': BPF program load failed: Permission denied\n\
        libbpf: prog 'probe0': -- BEGIN PROG LOAD LOG --\n0: R1=ctx()\n; @a = 1 @ x.ct:3\n\
        R0 invalid mem access 'scalar'\n-- END PROG LOAD LOG --\nlibbpf: failed to load object ''\n";

    #[test]
    fn the_errno_is_found_below_the_contexts_of_an_error() {
        for errno in [libc::EPERM, libc::EACCES, libc::EMFILE, libc::ENFILE] {
            let error = libbpf_rs::Error::from_raw_os_error(errno);
            let error = libbpf_rs::ErrorExt::context(error, "failed to load object");
            assert_eq!(errno_of(&error).raw_os_error(), Some(errno), "{error:#}");
        }
    }

    #[test]
    fn a_refusal_names_program_clause_and_log() {
        let attach = manifest::Attach::Event(wire::trigger::Trigger::Begin);
        let text = "uprobe:libcuda:cuInit".to_owned();
        let program = Program {
            symbol: "probe0".into(),
            clause: 0,
            place: manifest::Place { line: 3, ..Default::default() },
            text,
            attach,
            auxiliary: false,
        };
        let manifest = Manifest { programs: vec![program], ..Manifest::default() };
        let error = refused(&manifest, "probe0".into(), LOG, io::Error::from_raw_os_error(libc::EACCES));
        let text = error.to_string();
        for part in ["line 3", "uprobe:libcuda:cuInit", "bug in cudatrace", "R0 invalid mem access", "x.ct:3"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn the_script_line_precedes_the_shown_instructions() {
        let instructions = "1: (b7) r1 = 0\n".repeat(100);
        let log = format!(
            "-- BEGIN PROG LOAD LOG --\n; @b = 2 @ x.ct:1\n; @a = 1 @ x.ct:3\n{instructions}no\n-- END PROG LOAD LOG --\n"
        );
        let log = tail_of_log(&log);
        assert!(log.starts_with("; @a = 1 @ x.ct:3\n1: (b7)") && log.ends_with("\nno"), "{log}");
        assert_eq!(log.lines().count(), LOG_LINES + 1);
    }

    #[test]
    fn another_version_of_the_format_is_refused_with_both_numbers() {
        let compiled =
            CompiledScript { elf: vec![], manifest: Manifest { version: 99, ..Manifest::default() } };
        let text = load(&compiled, &HashMap::new()).expect_err("version 99").to_string();
        assert!(text.contains("99") && text.contains(&manifest::VERSION.to_string()), "{text}");
    }

    #[test]
    fn invalid_objects_are_refused() {
        let manifest = Manifest { version: manifest::VERSION, ..Manifest::default() };
        let error = load(&CompiledScript { elf: b"no elf".to_vec(), manifest }, &HashMap::new());
        assert!(matches!(error, Err(LoadError::Object { .. })), "{error:?}");
    }
}

//! Search of target files: in processes, on disk, by overrides, in containers.

mod common;

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use common::{Running, gcc, library, loader};
use host::{Machine, Scope};
use lang::Catalog;
use lang::catalog::{File, TargetError};

fn running(pid: u32) -> Machine {
    Machine::new(Scope { pids: vec![pid], ..Scope::default() })
}

/// A command in an environment that hides the libraries of this machine.
fn command(argv: &[&Path], environment: &[(&str, &Path)]) -> Machine {
    let nothing = [
        "LD_LIBRARY_PATH",
        "CUDA_HOME",
        "CUDA_PATH",
        "CONDA_PREFIX",
        "VIRTUAL_ENV",
        "PYTHONPATH",
        "HOME",
        "PATH",
    ];
    let mut all: HashMap<OsString, OsString> =
        nothing.iter().map(|name| (name.into(), OsString::new())).collect();
    all.extend(environment.iter().map(|(name, value)| (name.into(), value.as_os_str().to_owned())));
    let command = Some(argv.iter().map(|arg| arg.as_os_str().to_owned()).collect());
    Machine::new(Scope { command, environment: all, ..Scope::default() })
}

fn paths(files: &[File]) -> Vec<PathBuf> {
    files.iter().map(|file| PathBuf::from(&file.path)).collect()
}

fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().expect("there")
}

const DRIVER: &str = "int cuInit(unsigned f) { return f; }";
const RUNTIME: &str = "int cudaMalloc(void **p, unsigned long n) { return p && n; }";

#[test]
fn every_copy_that_a_process_has_mapped_is_found_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let (a, b) = (dir.path().join("a/libcudart.so.12"), dir.path().join("b.libs/libcudart-d0da41ae.so.11.0"));
    library(RUNTIME, &a, "libcudart.so.12");
    library(RUNTIME, &b, "libcudart-d0da41ae.so.11.0");
    let link = dir.path().join("libcudart.so");
    std::os::unix::fs::symlink(&a, &link).expect("linked");
    let process = Running::start(Command::new(loader(dir.path())).args([&a, &b, &link]));
    let machine = running(process.pid());
    for target in ["libcudart", "cudart"] {
        let mut files = machine.files(target).expect("found");
        files.sort_by_key(|file| file.library);
        assert_eq!(paths(&files), [b.clone(), a.clone()].map(|path| canonical(&path)));
        assert_eq!(files[0].library, Some((cuda::Library::Runtime, 11)));
        assert_eq!(files[1].library, Some((cuda::Library::Runtime, 12)));
        assert_eq!(machine.why(files[0].id), format!("mapped by process {} (loader)", process.pid()));
    }
    assert_eq!(paths(&machine.files("libcudart.so.12").expect("found")), [canonical(&a)]);
    assert!(matches!(machine.files("libcudart.so.13"), Err(TargetError::NotYet { .. })));
    let file = machine.files("libcudart.so.12").expect("found").remove(0);
    assert!(machine.functions(file.id).iter().any(|f| f.names[0] == "cudaMalloc"));
}

#[test]
fn the_loader_is_told_directories_from_where_a_program_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let driver = dir.path().join("libs/libcuda.so.1");
    library(DRIVER, &driver, "libcuda.so.1");
    let wanted = [canonical(&driver)];

    let here = std::env::current_dir().expect("a directory");
    let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
    let libs = up.join(dir.path().strip_prefix("/").expect("absolute")).join("libs");
    let to_start = command(&[], &[("LD_LIBRARY_PATH", &libs)]);
    assert_eq!(paths(&to_start.files("libcuda").expect("found")), wanted);

    let mut loads_later = Command::new(loader(dir.path()));
    let process = Running::start(loads_later.env("LD_LIBRARY_PATH", "libs").current_dir(dir.path()));
    assert_eq!(paths(&running(process.pid()).files("libcuda").expect("found")), wanted);
}

#[test]
fn a_library_that_was_replaced_is_still_the_mapped_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("libcuda.so.1");
    library(DRIVER, &path, "libcuda.so.1");
    let process = Running::start(Command::new(loader(dir.path())).arg(&path));
    std::fs::remove_file(&path).expect("removed");
    library("int other(void) { return 1; }", &path, "libcuda.so.1");
    let machine = running(process.pid());
    let file = match machine.files("libcuda") {
        Ok(mut files) => files.remove(0),
        // Following the mapping requires CAP_CHECKPOINT_RESTORE.
        Err(_) => return eprintln!("skipped: no right to open /proc/PID/map_files"),
    };
    assert!(machine.functions(file.id).iter().any(|f| f.names[0] == "cuInit"));
    // The file can also be opened after the process has ended.
    drop(process);
    let inode = |path: &Path| std::fs::metadata(path).expect("there").ino();
    assert_ne!(inode(machine.open_path(file.id)), inode(&path));
    assert_eq!(file.path, canonical(dir.path()).join("libcuda.so.1").to_string_lossy());
}

#[test]
fn a_file_that_is_replaced_after_it_was_read_is_still_the_one_to_probe() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, new) = (dir.path().join("libcuda.so.1"), dir.path().join("new"));
    library(DRIVER, &path, "libcuda.so.1");
    std::fs::copy(&path, &new).expect("copied");
    let machine = command(&[], &[("LD_LIBRARY_PATH", dir.path())]);
    let file = machine.files("libcuda").expect("found").remove(0);
    let inode = |path: &Path| std::fs::metadata(path).expect("there").ino();
    let read = inode(&path);
    std::fs::rename(&new, &path).expect("replaced");
    assert_eq!(inode(machine.open_path(file.id)), read);
    // A process that maps the new file adds it as a further file.
    assert_ne!(machine.add_file(&path, &path, "mapped later").expect("added"), file.id);
}

#[test]
fn errors_for_unmapped_libraries_list_the_searched_places() {
    let dir = tempfile::tempdir().expect("a directory");
    let process = Running::start(&mut Command::new(loader(dir.path())));
    let error = running(process.pid()).files("libnosuchthing").expect_err("nothing");
    let TargetError::NotYet { looked_in } = error else { panic!("{error:?}") };
    assert_eq!(looked_in[0], format!("mapped files of process {}", process.pid()));
    assert!(looked_in.contains(&"/etc/ld.so.cache".to_owned()), "{looked_in:?}");
    let gone = running(u32::MAX).files("libnosuchthing").expect_err("nothing");
    let TargetError::NotYet { looked_in } = gone else { panic!("{gone:?}") };
    assert!(looked_in[0].contains("it has ended, or reading its mappings is not permitted"), "{looked_in:?}");
    assert!(
        matches!(running(process.pid()).files("/no/such/file"), Err(TargetError::Unusable(text)) if text.contains("no such file"))
    );
    assert!(
        matches!(running(process.pid()).files("/etc/passwd"), Err(TargetError::Unusable(text)) if text.contains("not an ELF file"))
    );
}

#[test]
fn a_command_finds_what_it_is_linked_with_and_what_lies_about() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = canonical(dir.path());
    let own = root.join("app/lib/libcuda.so.1");
    library(DRIVER, &own, "libcuda.so.1");
    let (deep, program) = (root.join("app/lib/libdeep.so"), root.join("app/bin/prog"));
    gcc(
        "int cuInit(unsigned); int deep(void) { return cuInit(0); }",
        &deep,
        &["-shared", "-fPIC", "-Wl,-soname,libdeep.so", "-Wl,-rpath,$ORIGIN", own.to_str().expect("text")],
    );
    gcc(
        "int deep(void); int main(void) { return deep(); }",
        &program,
        &["-Wl,-rpath,$ORIGIN/../lib", deep.to_str().expect("text"), "-Wl,--allow-shlib-undefined"],
    );
    let toolkit = root.join("toolkit/lib64/libcuda.so.1");
    library(DRIVER, &toolkit, "libcuda.so.1");
    library(DRIVER, &root.join("toolkit/lib64/stubs/libcuda.so"), "libcuda.so.1");
    let machine = command(&[&program], &[("CUDA_HOME", &root.join("toolkit"))]);
    let files: Vec<File> = machine
        .files("libcuda")
        .expect("found")
        .into_iter()
        .filter(|f| f.path.starts_with(root.to_str().expect("text")))
        .collect();
    assert_eq!(paths(&files), [own, toolkit]);
    assert_eq!(machine.why(files[0].id), format!("needed by {}", root.join("app/lib/libdeep.so").display()));
    assert!(machine.why(files[1].id).contains("CUDA_HOME"), "{}", machine.why(files[1].id));
    let by_name = command(&[Path::new("prog")], &[("PATH", &root.join("app/bin"))]);
    assert!(by_name.files("libcuda").expect("found").iter().any(|f| f.path.contains("/app/lib/")));
    assert_eq!(paths(&by_name.files("prog").expect("found")), [program]);
}

#[test]
fn a_script_has_the_packages_of_its_interpreter() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = canonical(dir.path());
    let wheel = root.join("venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcudart.so.13");
    library(RUNTIME, &wheel, "libcudart.so.13");
    let (python, script) = (root.join("venv/bin/python3"), root.join("train.py"));
    std::fs::create_dir_all(root.join("venv/bin")).expect("made");
    std::fs::write(root.join("venv/pyvenv.cfg"), "").expect("written");
    std::os::unix::fs::symlink("/bin/true", &python).expect("linked");
    for first in [format!("#!{}", python.display()), "#!/usr/bin/env -S python3 -u".into()] {
        std::fs::write(&script, format!("{first}\nimport torch\n")).expect("written");
        let machine = command(&[&script], &[("PATH", &root.join("venv/bin"))]);
        let files = machine.files("libcudart").expect("found");
        let found = files
            .iter()
            .find(|file| Path::new(&file.path) == wheel)
            .unwrap_or_else(|| panic!("{first}: {files:?}"));
        assert_eq!(found.library, Some((cuda::Library::Runtime, 13)));
    }
}

#[test]
fn a_program_with_the_runtime_linked_in_answers_to_libcudart() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = canonical(dir.path());
    let runtime = "int cudaLaunchKernel(void) { return 0; } const char *cudaGetErrorString(int e) { return e ? \"x\" : \"y\"; }
        void **__cudaRegisterFatBinary(void *p) { return p; } int cudaThreadExit(void) { return 0; }
        __attribute__((section(\".nv_fatbin\"))) int fatbin = 1; int main(void) { return 0; }";
    let (program, stripped) = (root.join("prog"), root.join("stripped"));
    gcc(runtime, &program, &[]);
    gcc(runtime, &stripped, &["-s"]);
    let files = command(&[&program], &[]).files("libcudart").expect("found");
    let found =
        files.iter().find(|file| Path::new(&file.path) == program).unwrap_or_else(|| panic!("{files:?}"));
    assert_eq!(found.library, Some((cuda::Library::Runtime, 12)));
    let machine = command(&[&stripped], &[]);
    match machine.files("libcudart") {
        Err(TargetError::Unusable(text)) => {
            assert!(text.contains("stripped") && text.contains("probe `libcuda`"), "{text}")
        }
        // This machine has its own runtime.
        Ok(files) => assert!(files.iter().all(|file| Path::new(&file.path) != stripped)),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn overrides_win() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = canonical(dir.path()).join("mine.so");
    library(DRIVER, &path, "libcuda.so.1");
    let machine = |path: &Path| {
        Machine::new(Scope { lib_overrides: vec![("libcuda".into(), path.into())], ..Scope::default() })
    };
    let mine = machine(&path);
    let files = mine.files("libcuda").expect("found");
    assert_eq!(paths(&files), std::slice::from_ref(&path));
    assert_eq!(mine.why(files[0].id), "given by --lib libcuda");
    assert!(mine.matches("libcuda", &path) && !mine.matches("libcuda", Path::new("/usr/lib/libcuda.so.1")));
    assert!(mine.belongs("libcuda", files[0].id));
    assert!(matches!(machine(Path::new("/none")).files("libcuda"), Err(TargetError::Unusable(_))));
}

#[test]
fn another_scope_is_looked_at_anew_and_ids_stay() {
    let machine = Machine::new(Scope { command: Some(vec!["no-such-program".into()]), ..Scope::default() });
    let own = std::env::current_exe().expect("our path");
    let first = machine.files(own.to_str().expect("UTF-8")).expect("ours");
    assert!(machine.files("libc").is_ok() && !machine.scope().is_system_wide());
    machine.set_scope(Scope { pids: vec![std::process::id()], ..Scope::default() });
    let why = |files: &[File]| machine.why(files[0].id).to_owned();
    assert_eq!(machine.scope().pids, [std::process::id()]);
    assert_eq!(machine.files(own.to_str().expect("UTF-8")).expect("ours"), first);
    assert_eq!(why(&first), "the path");
}

#[test]
fn patterns_and_links_lead_to_one_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = canonical(dir.path());
    library(DRIVER, &root.join("x/libq.so.1.2"), "libq.so.1");
    std::os::unix::fs::symlink("libq.so.1.2", root.join("x/libq.so.1")).expect("linked");
    std::fs::hard_link(root.join("x/libq.so.1.2"), root.join("x/libq.so")).expect("linked");
    let machine = Machine::new(Scope::default());
    let pattern = format!("{}/*/libq.so*", root.display());
    assert_eq!(machine.files(&pattern).expect("found").len(), 1);
    let link = root.join("x/libq.so.1");
    assert_eq!(machine.files(link.to_str().expect("text")).expect("found").len(), 1);
    assert_eq!(machine.files_taken().len(), 1);
    assert!(matches!(machine.files(&format!("{}/none*", root.display())), Err(TargetError::NotYet { .. })));
}

#[test]
fn a_search_by_pattern_reports_its_progress() {
    static SEEN: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];
    let start: fn() -> host::Progress =
        || Box::new(|is_elf| _ = SEEN[usize::from(is_elf)].fetch_add(1, Ordering::Relaxed));
    let dir = tempfile::tempdir().expect("a directory");
    let root = canonical(dir.path());
    library(DRIVER, &root.join("libq.so"), "libq.so.1");
    std::fs::write(root.join("text.so"), "no program").expect("written");
    let machine = Machine::new(Scope::default()).with_progress(Some(start));
    machine.files(&format!("{}/*.so", root.display())).expect("found");
    assert_eq!(SEEN.each_ref().map(|count| count.load(Ordering::Relaxed)), [1, 1]);
}

#[test]
fn a_late_file_is_told_to_belong_to_a_target() {
    let dir = tempfile::tempdir().expect("a directory");
    let late = canonical(dir.path()).join("libcuda.so.580.1");
    library(DRIVER, &late, "libcuda.so.1");
    let machine = Machine::new(Scope { command: Some(vec!["x".into()]), ..Scope::default() });
    let file = machine.add_file(&late, &late, "mapped later").expect("an ELF file");
    for (target, expected) in
        [("libcuda", true), ("libcuda.so.1", true), ("libcuda.so.2", false), ("libcudart", false)]
    {
        assert_eq!(machine.belongs(target, file), expected, "{target}");
    }
    assert!(machine.matches("libcuda.so.1", &late) && !machine.matches("libcudart", &late));
    assert_eq!(machine.add_file(&late, &late, "again").expect("known"), file);
}

/// Two overlay mounts of one lower directory share the inode that the kernel registers uprobes on.
#[test]
fn overlay_mounts_of_one_directory_count_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = canonical(dir.path());
    library(DRIVER, &root.join("lower/libcuda.so.1"), "libcuda.so.1");
    let program = loader(&root);
    // Each in its own mount namespace; in a third one the second container has changed (copied up) the library.
    let start = |name: &str, change: &str| {
        let script = format!(
            "cd {root} && mkdir {name} {name}.t && mount -t tmpfs none {name}.t && mkdir {name}.t/u {name}.t/w \
             && mount -t overlay none -o lowerdir=lower,upperdir={name}.t/u,workdir={name}.t/w {name} \
             && {change} && exec {program} {root}/{name}/libcuda.so.1",
            root = root.display(),
            program = program.display()
        );
        let probe =
            Command::new("unshare").args(["-m", "sh", "-c", &script.replace("exec ", "true ")]).output();
        let allowed = probe.is_ok_and(|output| output.status.success());
        for leftover in [name.to_owned(), format!("{name}.t")] {
            let _ = std::fs::remove_dir(root.join(leftover));
        }
        allowed.then(|| Running::start(Command::new("unshare").args(["-m", "sh", "-c", &script])))
    };
    let (Some(one), Some(two)) = (start("m1", "true"), start("m2", "true")) else {
        return eprintln!("skipped: no right to mount an overlay");
    };
    let changed = start("m3", "touch m3/libcuda.so.1").expect("allowed before");
    let plain = Running::start(Command::new(&program).arg(root.join("lower/libcuda.so.1")));
    let found = |pids: &[&Running]| {
        let machine =
            Machine::new(Scope { pids: pids.iter().map(|p| p.pid()).collect(), ..Scope::default() });
        let files = machine.files("libcuda").expect("found");
        assert!(machine.open_path(files[0].id).exists());
        files.len()
    };
    assert_eq!(found(&[&one, &two]), 1);
    assert_eq!(found(&[&one, &plain, &two]), 1);
    assert_eq!(found(&[&one, &changed]), 2);
    assert_eq!(found(&[&one, &two, &plain, &changed]), 2);
    // A hard link to the library changes one of its times, in both containers.
    let scope =
        |pids: &[&Running]| Scope { pids: pids.iter().map(|p| p.pid()).collect(), ..Scope::default() };
    let machine = Machine::new(scope(&[&one]));
    assert_eq!(machine.files("libcuda").expect("found").len(), 1);
    std::fs::hard_link(root.join("lower/libcuda.so.1"), root.join("lower/link")).expect("linked");
    machine.set_scope(scope(&[&one, &two]));
    assert_eq!(machine.files("libcuda").expect("found").len(), 1);
}

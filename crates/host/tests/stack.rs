//! Symbols of addresses of running processes, ended processes and deleted files.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use common::{gcc, library};
use host::Symbols;

/// Prints an address inside one of its functions and inside a library function, then waits.
const PROGRAM: &str = r#"
    #include <dlfcn.h>
    #include <stdio.h>
    #include <unistd.h>
    __attribute__((noinline)) int marked_function(int a) { return a + 1; }
    int main(int argc, char **argv) {
        void *library = dlopen(argv[1], RTLD_NOW);
        printf("%lu %lu\n", (unsigned long)marked_function + 2, (unsigned long)dlsym(library, "_ZN3api4callEi") + 1);
        fflush(stdout);
        for (;;) pause();
    }"#;

struct Sample {
    process: std::process::Child,
    own: u64,
    library: u64,
}

fn start(dir: &std::path::Path) -> Sample {
    let (program, lib) = (dir.join("prog"), dir.join("libapi.so"));
    gcc(PROGRAM, &program, &["-ldl", "-g"]);
    library("int _ZN3api4callEi(int a) { return a * 7; }", &lib, "libapi.so");
    run(&program, &lib)
}

fn run(program: &std::path::Path, lib: &std::path::Path) -> Sample {
    let mut process = Command::new(program).arg(lib).stdout(Stdio::piped()).spawn().expect("started");
    let mut line = String::new();
    BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let mut numbers = line.split_whitespace().map(|word| word.parse().expect("a number"));
    Sample { own: numbers.next().expect("own"), library: numbers.next().expect("library"), process }
}

fn end(mut sample: Sample) {
    sample.process.kill().expect("killed");
    sample.process.wait().expect("waited");
}

#[test]
fn addresses_of_a_living_process_have_names() {
    let dir = tempfile::tempdir().expect("a directory");
    let sample = start(dir.path());
    let mut symbols = Symbols::new(true, true);
    let pid = sample.process.id();
    let own = symbols.user(pid, sample.own);
    let last = own.last().expect("a frame");
    assert_eq!((last.symbol.as_deref(), last.offset, last.inlined), (Some("marked_function"), 2, false));
    assert_eq!(
        last.module,
        Some(dir.path().canonicalize().expect("there").join("prog").to_string_lossy().into_owned())
    );
    let (file, line) = last.source.clone().expect("debug information");
    assert!(file.ends_with("prog.c") && line == 5, "{file}:{line}");
    let library = symbols.user(pid, sample.library);
    assert_eq!((library[0].symbol.as_deref(), library[0].offset), (Some("api::call(int)"), 1));
    let nowhere = symbols.user(pid, 8);
    assert_eq!((nowhere.len(), nowhere[0].symbol.as_deref(), nowhere[0].address), (1, None, 8));
    end(sample);
}

#[test]
fn code_without_a_name_has_a_place_in_its_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let (program, lib) = (dir.path().join("prog"), dir.path().join("libapi.so"));
    end(start(dir.path()));
    let symbols = Command::new("nm").arg(&program).output().expect("nm");
    let symbols = String::from_utf8(symbols.stdout).expect("text");
    let marked = symbols.lines().find(|line| line.ends_with("marked_function")).expect("its symbol");
    let address = u64::from_str_radix(&marked[..16], 16).expect("an address");
    assert!(Command::new("strip").arg(&program).status().expect("strip").success());
    let sample = run(&program, &lib);
    let frames = Symbols::new(true, true).user(sample.process.id(), sample.own);
    assert_eq!((frames.len(), &frames[0].symbol, frames[0].offset), (1, &None, address + 2));
    assert!(frames[0].module.as_ref().is_some_and(|module| module.ends_with("/prog")), "{frames:?}");
    end(sample);
}

#[test]
fn a_library_has_its_symbols_where_its_debug_information_is_wrong() {
    let dir = tempfile::tempdir().expect("a directory");
    let (program, lib, debug) =
        (dir.path().join("prog"), dir.path().join("libapi.so"), dir.path().join("x.debug"));
    end(start(dir.path()));
    std::fs::write(&debug, "").expect("written");
    let link = format!("--add-gnu-debuglink={}", debug.display());
    let status = Command::new("objcopy").args(["--strip-all", &link]).arg(&lib).status().expect("objcopy");
    assert!(status.success());
    std::fs::write(&debug, "of another build").expect("written");
    let sample = run(&program, &lib);
    let mut symbols = Symbols::new(true, false);
    let found = symbols.user(sample.process.id(), sample.library);
    assert_eq!(found[0].symbol.as_deref(), Some("_ZN3api4callEi"), "as it stands in the table");
    end(sample);
}

#[test]
fn names_outlive_the_process_and_its_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let sample = start(dir.path());
    let (pid, own, library) = (sample.process.id(), sample.own, sample.library);
    // The file is deleted before the mappings are read, so only the mapping refers to it.
    std::fs::remove_file(dir.path().join("libapi.so")).expect("removed");
    let mut symbols = Symbols::new(false, true);
    symbols.remember(pid);
    end(sample);
    assert_eq!(symbols.user(pid, own)[0].symbol.as_deref(), Some("marked_function"));
    let gone = &symbols.user(pid, library)[0];
    assert!(gone.module.as_deref().is_some_and(|module| module.ends_with("/libapi.so")), "{gone:?}");
    if gone.symbol.is_none() {
        return eprintln!("skipped: no right to open /proc/PID/map_files");
    }
    assert_eq!(gone.symbol.as_deref(), Some("api::call(int)"));
    symbols.outdate(pid);
    let still = symbols.user(pid, own);
    assert_eq!(still[0].symbol.as_deref(), Some("marked_function"), "a stack may be older than that");
}

/// Generates code at run time and a perf map that names it; prints its address.
const MAKES_CODE: &str = r#"
    #include <stdio.h>
    #include <sys/mman.h>
    #include <unistd.h>
    int main(void) {
        char name[64];
        void *code = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        sprintf(name, "/tmp/perf-%d.map", getpid());
        FILE *map = fopen(name, "w");
        fprintf(map, "%lx 20 py::train:/model.py\n", (unsigned long)code);
        fclose(map);
        printf("%lu\n", (unsigned long)code);
        fflush(stdout);
        for (;;) pause();
    }"#;

#[test]
fn made_code_has_the_names_of_the_perf_map_also_when_the_process_has_gone() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("prog");
    gcc(MAKES_CODE, &program, &[]);
    let mut process = Command::new(&program).stdout(Stdio::piped()).spawn().expect("started");
    let mut line = String::new();
    BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let code: u64 = line.trim().parse().expect("a number");
    let pid = process.id();
    let mut symbols = Symbols::new(false, true);
    symbols.remember(pid);
    process.kill().expect("killed");
    process.wait().expect("waited");
    let map = format!("/tmp/perf-{pid}.map");
    std::fs::remove_file(&map).expect("removed");
    let frame = symbols.user(pid, code + 4).remove(0);
    assert_eq!((frame.symbol.as_deref(), frame.offset), (Some("py::train:/model.py"), 4));
    assert_eq!(frame.module, Some(map));
    assert_eq!(symbols.user(pid, code + 0x20)[0].symbol, None);
}

#[test]
fn kernel_addresses_have_names_if_we_may_see_them() {
    let text = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let line = text.lines().find(|line| line.ends_with(" schedule")).unwrap_or_default();
    let address = u64::from_str_radix(line.split(' ').next().unwrap_or_default(), 16).unwrap_or(0);
    let mut symbols = Symbols::new(false, true);
    if address == 0 {
        assert_eq!(symbols.kernel(0xffff_ffff_8100_0000).symbol, None);
        return eprintln!("skipped: kernel addresses are hidden");
    }
    let frame = symbols.kernel(address + 4);
    assert_eq!((frame.symbol.as_deref(), frame.offset), (Some("schedule"), 4));
    assert_eq!(symbols.kernel(1).symbol, None);
    assert_eq!(symbols.kernel(u64::MAX - 4096).symbol, None, "the last symbol lies far before it");
}

#[test]
fn a_process_that_ended_before_anybody_looked_has_the_names_of_what_it_was_heard_to_map() {
    let dir = tempfile::tempdir().expect("a directory");
    let sample = start(dir.path());
    let (pid, own, library) = (sample.process.id(), sample.own, sample.library);
    let mappings = linux::proc::mappings(pid);
    end(sample);
    let mut symbols = Symbols::new(false, true);
    assert_eq!(symbols.user(pid, own + 1)[0].symbol, None, "nobody has told");
    for mapping in mappings.iter().filter(|mapping| mapping.executable) {
        let Some(path) = mapping.name.path() else { continue };
        let place = mapping.start..mapping.end;
        symbols.record_mapping(pid, place, mapping.offset, mapping.inode, path.to_path_buf());
    }
    assert_eq!(symbols.user(pid, own)[0].symbol.as_deref(), Some("marked_function"));
    // The path refers to another file now.
    std::fs::remove_file(dir.path().join("libapi.so")).expect("removed");
    std::fs::write(dir.path().join("libapi.so"), "another").expect("written");
    let mut later = Symbols::new(false, true);
    for mapping in mappings.iter().filter(|mapping| mapping.executable) {
        let Some(path) = mapping.name.path() else { continue };
        let place = mapping.start..mapping.end;
        later.record_mapping(pid, place, mapping.offset, mapping.inode, path.to_path_buf());
    }
    assert_eq!(later.user(pid, library)[0].symbol, None);
}

//! Arguments by debug information: programs that print the arguments of their calls, compiled in many ways; the trace must
//! have the same arguments.

mod common;

use common::{can_trace, cudatrace, has_installed, section, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/described").join(name)
}

fn tool(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program} {args:?}: {}", stderr(&output));
}

/// Compiles sources into a program.
fn compile(compiler: &str, flags: &str, sources: &[&str], program: &Path) {
    let sources: Vec<PathBuf> = sources.iter().map(|name| source(name)).collect();
    let mut args: Vec<&str> = flags.split_whitespace().collect();
    args.extend(["-Wl,--build-id", "-o", program.to_str().unwrap()]);
    args.extend(sources.iter().map(|path| path.to_str().unwrap()));
    tool(compiler, &args);
}

fn c_program(flags: &str, program: &Path) {
    compile("gcc", flags, &["shapes.c", "pool.c"], program);
}

fn trace(script: &str, program: &Path) -> Output {
    trace_with(&[], script, program)
}

fn trace_with(options: &[&str], script: &str, program: &Path) -> Output {
    let program = program.to_str().unwrap();
    let script = source(script);
    let args = ["-q", script.to_str().unwrap(), program, "--", program];
    cudatrace().args(options).args(args).output().expect("cudatrace starts")
}

/// Asserts that exactly the calls that the program reports were traced.
fn same_as_printed(output: &Output, how: &str) {
    let text = stdout(output);
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('@'));
    let (seen, said): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with("saw "));
    let mut seen: Vec<&str> = seen.iter().filter_map(|line| line.strip_prefix("saw ")).collect();
    let mut said = said;
    seen.sort_unstable();
    said.sort_unstable();
    assert!(said.len() > 8, "{how}: {text}{}", stderr(output));
    assert_eq!(seen, said, "{how}: {}", stderr(output));
}

fn has(output: &Output, wanted: &str) {
    let text = stdout(output);
    assert!(text.lines().any(|line| line == wanted), "`{wanted}`: {text}{}", stderr(output));
}

#[test]
fn c_is_seen_as_it_is_however_it_is_compiled() {
    if !can_trace() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("shapes");
    let flags = [
        "-g -O0",
        "-g -O2",
        "-gdwarf-4 -O2",
        "-gdwarf-4 -gstrict-dwarf",
        "-gdwarf-3",
        "-gdwarf-2",
        "-g -gz=zlib",
    ];
    for flags in flags.into_iter().chain([
        "-gdwarf-4 -fdebug-types-section",
        "-g -fdebug-types-section",
        "-g -O2 -flto",
    ]) {
        c_program(flags, &program);
        let output = trace("shapes.ct", &program);
        same_as_printed(&output, flags);
        for line in [
            "@[BLUE]: 1",
            "@pools[mine]: 100",
            "@returned[second, first]: 1",
            "@level[OFF, true]: 1",
            "@level[ON, false]: 1",
            "@whole[MOST]: { .level = BELOW, .limit = NONE }",
            "@whole[NONE]: { .level = LOW, .limit = MOST }",
        ] {
            has(&output, line);
        }
    }
}

/// Compiles the sources to objects in the folder, and links them: `.dwo` files are written beside the objects.
fn split_program(flags: &str, folder: &Path, sources: &[&str]) -> PathBuf {
    let program = folder.join("shapes");
    let mut objects = Vec::new();
    for name in sources {
        let object = folder.join(name).with_extension("o");
        let mut args: Vec<&str> = flags.split_whitespace().collect();
        let source = source(name);
        args.extend(["-gsplit-dwarf", "-c", "-o", object.to_str().unwrap(), source.to_str().unwrap()]);
        tool("gcc", &args);
        objects.push(object);
    }
    let mut args = vec!["-Wl,--build-id", "-o", program.to_str().unwrap()];
    args.extend(objects.iter().map(|path| path.to_str().unwrap()));
    tool("gcc", &args);
    program
}

/// Moves the `.dwo` files of a folder into another one.
fn move_split_files(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "dwo") {
            std::fs::rename(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

const SPLIT_FLAGS: [&str; 6] = [
    "-gdwarf-4 -O0",
    "-gdwarf-4 -O2",
    "-gdwarf-5 -O0",
    "-gdwarf-5 -O2",
    "-gdwarf-4 -fdebug-types-section",
    "-gdwarf-5 -fdebug-types-section",
];

#[test]
fn split_debug_information_is_found_where_it_was_compiled_beside_the_program_and_in_given_folders() {
    if !can_trace() {
        return;
    }
    for flags in SPLIT_FLAGS {
        let (folder, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let program = split_program(flags, folder.path(), &["shapes.c", "pool.c"]);
        let output = trace("shapes.ct", &program);
        same_as_printed(&output, flags);
        has(&output, "@pools[mine]: 100");
        has(&output, "@[BLUE]: 1");
        move_split_files(folder.path(), other.path());
        let output = trace("shapes.ct", &program);
        assert!(stderr(&output).contains("--debuginfo FOLDER"), "{flags}: {}", stderr(&output));
        let given = ["--debuginfo", other.path().to_str().unwrap()];
        same_as_printed(&trace_with(&given, "shapes.ct", &program), flags);
        let moved = other.path().join("shapes");
        std::fs::rename(&program, &moved).unwrap();
        same_as_printed(&trace("shapes.ct", &moved), flags);
    }
}

#[test]
fn a_package_of_split_debug_information_is_read() {
    if !can_trace() {
        return;
    }
    // Both read DWARF 4 without fail; of DWARF 5 some versions crash, or do not end.
    for (packer, flags) in [("dwp", &SPLIT_FLAGS), ("llvm-dwp", &SPLIT_FLAGS)] {
        if !has_installed(packer) {
            eprintln!("skipped: {packer} is not installed");
            continue;
        }
        for flags in flags {
            let (folder, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
            let program = split_program(flags, folder.path(), &["shapes.c", "pool.c"]);
            let package = folder.path().join("shapes.dwp");
            let words = ["10", packer, "-e", program.to_str().unwrap(), "-o", package.to_str().unwrap()];
            let packed = Command::new("timeout").args(words).output().unwrap();
            if !packed.status.success() && flags.contains("-gdwarf-5") {
                eprintln!("skipped: this {packer} cannot pack {flags}");
                continue;
            }
            assert!(packed.status.success(), "{packer} {flags}: {}", stderr(&packed));
            move_split_files(folder.path(), other.path());
            same_as_printed(&trace("shapes.ct", &program), &format!("{packer} {flags}"));
        }
    }
}

#[test]
fn structs_passed_by_value_are_read_as_far_as_possible() {
    if !can_trace() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("passed");
    for flags in ["-g -O0", "-g -O2 -fno-ipa-sra -fno-ipa-cp", "-gdwarf-4 -O1"] {
        compile("gcc", flags, &["passed.c"], &program);
        let output = trace("passed.ct", &program);
        same_as_printed(&output, flags);
        for line in [
            "@small: { .a = 3, .b = -3 }",
            "@take: { .a = 30, .s = { .n = 3 }, .m = { .n = 3 }, .t = { .v = (3, -1, 3), .s = { .a = 3, .b = 7 } }, .z = -3 }",
            "@[make_three]: 3",
        ] {
            has(&output, line);
        }
    }
    let script = "uprobe:./passed:take { print(args) } uretprobe:./passed:make_mixed { print(retval) }";
    let output = cudatrace().args(["--check", "-e", script]).current_dir(folder.path()).output().unwrap();
    let said = stderr(&output);
    for part in
        ["`d`, `s.x`, `m.d` are not in `args` of `take`", "`retval.d` is not in `retval` of `make_mixed`"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn floating_point_numbers_in_memory_are_seen_as_they_are() {
    if !can_trace() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("numbers");
    for flags in ["-g -O0", "-g -O2 -fno-ipa-sra -fno-ipa-cp", "-gdwarf-4 -O1"] {
        compile("gcc", flags, &["numbers.c"], &program);
        let output = trace("numbers.ct", &program);
        same_as_printed(&output, flags);
        for line in [
            "@whole: { .f = 0.375, .d = [1.0,-0.75], .l = -1.5, .v = [3.0,1.0,2.0,3.0], .tail = 3 }",
            "@halves[0.375]: 1",
            "@parts: (3.0, -1.5)",
            "@tail: 9",
        ] {
            has(&output, line);
        }
    }
    let script = "uprobe:./numbers:hidden { print(args.tail) }";
    let output = cudatrace().args(["--check", "-e", script]).current_dir(folder.path()).output().unwrap();
    assert!(stderr(&output).contains("the location of `tail` of `hidden` is unknown"), "{}", stderr(&output));
}

#[test]
fn cpp_is_seen_as_it_is_however_it_is_compiled() {
    if !can_trace() || !has_installed("g++") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("widget");
    for flags in ["-g -O0", "-g -O2", "-gdwarf-4 -gstrict-dwarf -O2", "-g -O1 -fdebug-types-section"] {
        compile("g++", flags, &["widget.cpp"], &program);
        let output = trace("widget.ct", &program);
        same_as_printed(&output, flags);
        has(&output, "@[Slow]: 1");
    }
}

/// A program whose debug information is in a separate file.
fn split(folder: &Path, separate: &str, link: bool) -> PathBuf {
    let (program, whole, separate) = (folder.join("split"), folder.join("whole"), folder.join(separate));
    c_program("-g", &whole);
    let [program_name, whole, separate] = [&program, &whole, &separate].map(|path| path.to_str().unwrap());
    tool("objcopy", &["--only-keep-debug", whole, separate]);
    tool("objcopy", &["--strip-debug", whole, program_name]);
    if link {
        tool("objcopy", &[&format!("--add-gnu-debuglink={separate}"), program_name]);
    }
    program
}

#[test]
fn debug_information_beside_the_program_is_found_by_its_link() {
    if !can_trace() {
        return;
    }
    for directory in ["", ".debug"] {
        let folder = TempDir::new().unwrap();
        let program = split(folder.path(), "split.debug", true);
        let (from, to) =
            (folder.path().join("split.debug"), folder.path().join(directory).join("split.debug"));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::rename(from, to).unwrap();
        same_as_printed(&trace("shapes.ct", &program), directory);
    }
}

#[test]
fn debug_information_is_found_in_a_folder_of_the_user() {
    if !can_trace() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let program = split(folder.path(), "split.debug", true);
    let elsewhere = folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::rename(folder.path().join("split.debug"), elsewhere.join("split.debug")).unwrap();
    let options = ["--debuginfo", "/nowhere", "--debuginfo", elsewhere.to_str().unwrap()];
    same_as_printed(&trace_with(&options, "shapes.ct", &program), "elsewhere");
}

#[test]
fn a_stripped_program_has_the_names_of_the_file_beside_it() {
    if !can_trace() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let program = split(folder.path(), "split.debug", true);
    let path = program.to_str().unwrap();
    tool("strip", &[path]);
    same_as_printed(&trace("shapes.ct", &program), "stripped");
    let script = format!("uprobe:{path}:main {{ print((func, ustack(2))) }}");
    let output = cudatrace().args(["-q", "-e", &script, "--", path]).output().expect("cudatrace starts");
    has(&output, "(main, ");
    has(&output, "        main+0");
}

/// A library with a static function whose name is only in a separate file, and a program that calls it seven
/// times.
fn split_library(folder: &Path) -> (PathBuf, PathBuf) {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (library, separate, program) = (path("libhidden.so"), path("libhidden.debug"), path("calls"));
    let code = "static __attribute__((noinline, noclone)) int hidden(int a) { asm volatile(\"\"); return a + 1; } \
                int shown(int a) { return hidden(a) * 2; }";
    std::fs::write(path("hidden.c"), code).unwrap();
    let code = "int shown(int); int main(void) { for (int i = 0; i < 7; i++) shown(i); }";
    std::fs::write(path("calls.c"), code).unwrap();
    // The address of the code differs from its offset in the file.
    let options =
        ["-g", "-O1", "-shared", "-fPIC", "-Wl,-soname,libhidden.so", "-Wl,-Ttext-segment=0x400000"];
    tool("gcc", &[&options[..], &["-Wl,--build-id", &path("hidden.c"), "-o", &library]].concat());
    tool("gcc", &[&path("calls.c"), &library, "-o", &program]);
    tool("objcopy", &["--only-keep-debug", &library, &separate]);
    tool("strip", &[&library]);
    tool("objcopy", &[&format!("--add-gnu-debuglink={separate}"), &library]);
    (library.into(), program.into())
}

#[test]
fn functions_of_a_stripped_library_are_probed_by_the_names_of_the_file_beside_it() {
    if !can_trace() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let (library, program) = split_library(folder.path());
    let library = library.to_str().unwrap();
    let run = |script: &str| {
        let mut command = cudatrace();
        command.env("LD_LIBRARY_PATH", folder.path()).args(["-q", "-e", script, "--"]);
        command.arg(&program).output().expect("cudatrace starts")
    };
    has(
        &run(&format!("uprobe:{library}:hidden {{ @[func, usym(reg(\"ip\"))] = count() }}")),
        "@[hidden, hidden]: 7",
    );
    has(&run(&format!("uprobe:{library}:hidden {{ @ = count() }}")), "@: 7");
    has(&run(&format!("uprobe:{library}:hid* {{ @ = count() }}")), "@: 7");
    let list = || stdout(&cudatrace().args(["-l", &format!("uprobe:{library}:*")]).output().unwrap());
    assert!(list().contains(":hidden"), "{}", list());
    assert!(stderr(&run(&format!("uprobe:{library}:hiden {{ }}"))).contains("did you mean `hidden`?"));

    let separate = folder.path().join("libhidden.debug");
    let whole = std::fs::read(&separate).unwrap();
    for len in [0, 1, 64, 100, whole.len() / 2, whole.len() - 100] {
        std::fs::write(&separate, &whole[..len]).unwrap();
        assert!(list().contains(":shown"), "{len}: {}", list());
    }
    std::fs::write(&separate, &whole).unwrap();
    assert!(list().contains(":hidden"));
    c_program("-g -Dmain=hidden -shared -fPIC -Wl,--build-id", &separate);
    assert!(!list().contains(":hidden"), "of another build: {}", list());
}

#[test]
fn debug_information_of_another_build_is_not_taken() {
    if !can_trace() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let program = split(folder.path(), "split.debug", true);
    c_program("-g -O2", &folder.path().join("split.debug"));
    let output = trace("shapes.ct", &program);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("has no debug information"), "{}", stderr(&output));
}

#[test]
fn missing_debug_information_is_reported() {
    if !can_trace() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let program = split(folder.path(), "split.debug", true);
    std::fs::remove_file(folder.path().join("split.debug")).unwrap();
    let said = stderr(&trace("shapes.ct", &program));
    for wanted in [
        "E0121",
        "/usr/lib/debug/.build-id/",
        "/split.debug`",
        "/.debug/split.debug`",
        "compile it with `-g`",
    ] {
        assert!(said.contains(wanted), "`{wanted}`: {said}");
    }
}

#[test]
fn compressed_and_shared_debug_information_is_read() {
    if !can_trace() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let [program, other] = ["shapes", "other"].map(|name| folder.path().join(name));
    c_program("-g", &program);
    let path = program.to_str().unwrap();
    tool("objcopy", &["--compress-debug-sections=zstd", path]);
    same_as_printed(&trace("shapes.ct", &program), "zstd");
    if Command::new("dwz").arg("--version").output().is_err() {
        return eprintln!("dwz left out: it is not installed");
    }
    c_program("-g", &program);
    c_program("-g -O1", &other);
    let both = folder.path().join("shared.debug");
    tool("dwz", &["-m", both.to_str().unwrap(), "-M", "shared.debug", path, other.to_str().unwrap()]);
    same_as_printed(&trace("shapes.ct", &program), "dwz");
    std::fs::remove_file(&both).unwrap();
    let said = stderr(&trace("shapes.ct", &program));
    assert!(said.contains("`shared.debug` (by dwz), which is missing"), "{said}");
}

#[test]
fn damaged_debug_information_is_read_as_far_as_it_goes() {
    if !can_trace() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let (whole, program) = (folder.path().join("whole"), folder.path().join("shapes"));
    c_program("-g", &whole);
    let good = std::fs::read(&whole).unwrap();
    let sections = [".debug_info", ".debug_abbrev", ".debug_str"].map(|name| section(&good, name));
    let mut state = 1u64;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % bound
    };
    let path = program.to_str().unwrap();
    let script = format!(
        "uprobe:{path}:* {{ print(args) }} uretprobe:{path}:* {{ print(retval) }}
         uprobe:{path}:chain {{ $p = (struct node *)arg0; print(*$p); print(args.p->next->name) }}"
    );
    for round in 0..60 {
        let mut bytes = good.clone();
        for _ in 0..=below(8) {
            let section = &sections[below(sections.len())];
            bytes[section.start + below(section.len())] = below(256) as u8;
        }
        std::fs::write(&program, bytes).unwrap();
        for args in [&["-lv", &format!("uprobe:{path}:*")][..], &["-q", "--dry-run", "-e", &script]] {
            let output = cudatrace().args(args).output().unwrap();
            assert!(matches!(output.status.code(), Some(0 | 1)), "{round} {args:?}: {}", stderr(&output));
        }
    }
}

#[test]
fn copies_that_the_optimiser_changed_are_refused() {
    if !can_trace() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let (text, program) = (folder.path().join("copy.c"), folder.path().join("copy"));
    // Only one member of the struct is read, and the result is not used.
    let code = "#include <stdio.h>\nstruct s { int a; long b; };\n\
                static __attribute__((noinline)) int part(struct s *s, int n) { return printf(\"%d\\n\", s->a + n); }\n\
                int main(int argc, char **argv) { struct s s = { argc, 2 }; part(&s, argc); part(&s, 1); return 0; }\n";
    std::fs::write(&text, code).unwrap();
    tool("gcc", &["-g", "-O2", "-o", program.to_str().unwrap(), text.to_str().unwrap()]);
    let script = format!("uprobe:{}:part.* {{ print(args.s) }}", program.display());
    let output = cudatrace().args(["-e", &script, "--dry-run"]).output().unwrap();
    let said = stderr(&output);
    assert!(said.contains("E0124") && said.contains("made this copy of `part`"), "{said}");
}

/// Each call runs the line once, whatever the compiler generates for it; the number of line entries depends on the
/// optimisation level.
#[test]
fn a_line_of_source_is_probed_where_its_code_begins() {
    if !can_trace() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let (program, text) =
        (folder.path().join("numbers"), std::fs::read_to_string(source("numbers.c")).unwrap());
    let line = 1 + text.lines().position(|line| line.contains("return n.tail + tail")).expect("the line");
    for flags in ["-g -O0", "-g -O2", "-gdwarf-4 -O2", "-gdwarf-2 -O0", "-g -gz=zlib"] {
        compile("gcc", flags, &["numbers.c"], &program);
        let path = program.to_str().unwrap();
        let script = format!("uprobe:{path}@described/numbers.c:{line} {{ @[func, probe] = count() }}");
        let output = cudatrace().args(["-q", "-e", &script, "-c", path]).output().expect("cudatrace starts");
        has(&output, &format!("@[described/numbers.c:{line}, uprobe:{path}@described/numbers.c:{line}]: 10"));
    }
    let elsewhere = format!("uprobe:{}@numbers.c:1 {{ @ = count() }}", program.display());
    let output = cudatrace().args(["-e", &elsewhere]).output().expect("cudatrace starts");
    assert!(stderr(&output).contains("line 1 of `numbers.c` has no code"), "{}", stderr(&output));
}

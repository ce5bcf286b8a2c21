//! Shared parts of the tests of the whole tracer: requirements, programs to trace, and processes that end with their test.

#![allow(dead_code, reason = "each test program uses a part")]

use goblin::elf::Elf;
use std::ffi::{CStr, CString};
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// Longest wait of a test for an event that must occur.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Folder of the built example programs.
pub(crate) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/build")
}

/// Path of an example program.
pub(crate) fn example(name: &str) -> String {
    examples().join(name).to_str().expect("the checkout's path is UTF-8").to_owned()
}

/// Location of a section in an ELF file.
pub(crate) fn section(file: &[u8], name: &str) -> Range<usize> {
    let elf = Elf::parse(file).expect("an ELF file");
    let section =
        elf.section_headers.iter().find(|section| elf.shdr_strtab.get_at(section.sh_name) == Some(name));
    section.and_then(|section| section.file_range()).expect("a section with data")
}

/// Address of a function that a library exports.
pub(crate) fn exported(library: &str, name: &str) -> u64 {
    let bytes = std::fs::read(library).expect("a library");
    let elf = Elf::parse(&bytes).expect("an ELF file");
    let symbol = elf.dynsyms.iter().find(|symbol| elf.dynstrtab.get_at(symbol.st_name) == Some(name));
    symbol.expect("an exported function").st_value
}

/// A program that loads libraries, and a library for it; `None` if tracing or building is impossible.
pub(crate) fn loader_and_library() -> Option<(PathBuf, PathBuf)> {
    let both = || program("libraries.c", &[]).zip(program("work.c", &["-shared", "-fPIC"]));
    can_trace().then(both).flatten()
}

/// A compiled program of `tests/programs`.
pub(crate) fn program(name: &str, options: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program =
        folder.join(format!("{}{}", name.replace('.', "_"), options.concat().replace(['/', ','], "")));
    // Several tests build and run the same program at the same time.
    static BUILDS: AtomicU32 = AtomicU32::new(0);
    let new = program.with_extension(format!("{}.new", BUILDS.fetch_add(1, Ordering::Relaxed)));
    let compiler = if name.ends_with(".cpp") { "g++" } else { "gcc" };
    let built = Command::new(compiler)
        .args(["-O1", "-pthread", "-o"])
        .arg(&new)
        .arg(source)
        .args(options)
        .stderr(Stdio::null())
        .status();
    let is_built = built.is_ok_and(|status| status.success());
    let is_built = is_built && std::fs::rename(new, &program).is_ok();
    if !is_built {
        skip(&format!("{compiler} cannot build {name} with {options:?}"));
    }
    is_built.then_some(program)
}

/// Reports an optional tool that is missing, also where live tests are required: not every machine has all tools,
/// 32-bit programs or FUSE.
pub(crate) fn skip(what: &str) {
    eprintln!("skipped: {what}");
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("the checkout's path is UTF-8")
}

/// Whether a test that cannot run must fail: `CUDATRACE_LIVE=required`.
pub(crate) fn is_required() -> bool {
    std::env::var_os("CUDATRACE_LIVE").is_some_and(|value| value == "required")
}

/// A number in an environment variable, if it is set.
pub(crate) fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("`{variable}` is `{text}`, expected a number")))
}

/// Seeds of generated scripts. `AGREE_SEED` is the first one, `AGREE_PROGRAMS` their number; the defaults are 1
/// script for a given seed, and `usual` otherwise. Prints its progress.
pub(crate) fn seeds(test: &str, usual: u64) -> impl Iterator<Item = u64> {
    let first = number(&format!("{test}_SEED"));
    let count = number(&format!("{test}_PROGRAMS")).unwrap_or(if first.is_some() { 1 } else { usual });
    let first = first.unwrap_or(0);
    let test = test.to_owned();
    (first..first + count).inspect(move |&seed| {
        if seed > first && seed.is_multiple_of(500) {
            eprintln!("{test}_SEED={seed}");
        }
    })
}

/// Whether the user is root, who can trace.
pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// The reason why tracing is impossible here.
pub(crate) fn obstacle() -> Option<String> {
    if !is_root() {
        return Some("they need root".into());
    }
    let build = examples();
    (!build.join("libcuda.so.1").exists())
        .then(|| format!("{} lacks the simulated CUDA; run `make examples`", build.display()))
}

/// Reports a missing requirement: a skip, or a failure where tests are required to run.
pub(crate) fn missing(what: &str) {
    assert!(!is_required(), "live tests are required here, but {what}");
    eprintln!("skipped: {what}");
}

/// Whether a program is installed; reports it as missing if not.
pub(crate) fn has_installed(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        missing(&format!("{program} is not installed"));
    }
    is_there
}

/// Whether a test that only loads programs can run; prints the reason if not.
pub(crate) fn can_load() -> bool {
    is_root() || {
        missing("they need root");
        false
    }
}

/// Whether a test that traces can run; prints the reason if not.
pub(crate) fn can_trace() -> bool {
    obstacle().inspect(|what| missing(what)).is_none()
}

/// A command for `cudatrace` that finds only the simulated CUDA.
pub(crate) fn cudatrace() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cudatrace"));
    command.env("LD_LIBRARY_PATH", examples()).env("CUDASIM_FAST", "1").stdin(Stdio::null());
    command
}

/// Makes a command see other character devices in `/proc/devices`: drivers of NVIDIA that this machine lacks, with the major
/// number of devices that it has. It sees no function of the kernel, so that ioctls are observed at the system call even where
/// the driver's functions could be probed: the devices are not those of the driver.
pub(crate) fn with_devices(command: &mut Command, drivers: &[(&str, u32)]) {
    let rows: String = drivers.iter().map(|(name, major)| format!("{major:3} {name}\n")).collect();
    let name: String = drivers.iter().map(|(name, major)| format!("-{name}-{major}")).collect();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("devices{name}-{}", std::process::id()));
    std::fs::create_dir_all(folder).expect("the build folder is writable");
    std::fs::write(&path, format!("Character devices:\n{rows}\nBlock devices:\n")).expect("it is writable");
    let path = CString::new(path.into_os_string().into_encoded_bytes()).expect("no NUL");
    let mount = move || {
        // SAFETY: system calls on constant strings and `path`, which the closure owns.
        let done = unsafe {
            libc::unshare(libc::CLONE_NEWNS) == 0
                && mount_flags(c"none", c"/", libc::MS_REC | libc::MS_PRIVATE)
                && mount_flags(&path, c"/proc/devices", libc::MS_BIND)
                && mount_flags(c"/dev/null", c"/proc/kallsyms", libc::MS_BIND)
        };
        if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(mount) };
}

/// Whether a mount without type and options succeeds.
fn mount_flags(source: &CStr, target: &CStr, flags: u64) -> bool {
    // SAFETY: both strings end in NUL, and the other pointers may be null for these flags.
    unsafe { libc::mount(source.as_ptr(), target.as_ptr(), std::ptr::null(), flags, std::ptr::null()) == 0 }
}

/// Standard output as text.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Standard error as text.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits until a condition holds; fails after the time limit.
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A running process with its lines of output; killed when dropped.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    printed_lines: Vec<String>,
}

impl Running {
    /// Starts a command and reads both of its outputs.
    pub(crate) fn start(command: &mut Command) -> Running {
        let spawned = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (sender, lines) = mpsc::channel();
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().expect("piped")), Box::new(child.stderr.take().expect("piped"))];
        for stream in streams {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        Running { child, lines, printed_lines: Vec::new() }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that contains this.
    pub(crate) fn wait_for_line(&mut self, wanted: &str) {
        let start = Instant::now();
        while !self.printed_lines.iter().any(|line| line.contains(wanted)) {
            let left = PATIENCE.saturating_sub(start.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.printed_lines.push(line),
                Err(_) => panic!("waited in vain for `{wanted}`: {:#?}", self.printed_lines),
            }
        }
    }

    /// Whether a line that contains this text has been read.
    pub(crate) fn has_printed(&mut self, wanted: &str) -> bool {
        self.printed_lines.extend(self.lines.try_iter());
        self.printed_lines.iter().any(|line| line.contains(wanted))
    }

    /// The lines up to the last one that was waited for.
    pub(crate) fn printed_lines(&self) -> &[String] {
        &self.printed_lines
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: the child has not been waited for, so the pid is still its own.
        unsafe { libc::kill(self.pid() as i32, signal) };
    }

    /// Waits for the end; returns the status, and the duration of the wait.
    pub(crate) fn ended(&mut self) -> (ExitStatus, Duration) {
        let start = Instant::now();
        let mut status = None;
        while status.is_none() {
            assert!(start.elapsed() < PATIENCE, "not ended: {:#?}", self.printed_lines);
            status = self.child.try_wait().expect("a child of ours");
            std::thread::sleep(Duration::from_micros(200));
        }
        (status.expect("just seen"), start.elapsed())
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_none()
    }

    /// All lines of both outputs, until both are closed.
    pub(crate) fn lines(mut self) -> Vec<String> {
        self.ended();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.printed_lines.push(line);
        }
        std::mem::take(&mut self.printed_lines)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

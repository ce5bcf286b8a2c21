//! What tests of the whole tracer share: whether they can run here, where the programs to trace are, and processes that do not
//! outlive their test.

#![allow(dead_code, reason = "each test program uses a part")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// How long a test waits for something that must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Where the programs to trace are built.
pub fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/build")
}

/// A program of the examples.
pub fn example(name: &str) -> String {
    examples().join(name).to_str().expect("the checkout's path is UTF-8").to_owned()
}

/// A program that loads libraries, and a library for it; none where nothing can be traced or built.
pub fn loader_and_library() -> Option<(PathBuf, PathBuf)> {
    let both = || program("libraries.c", &[]).zip(program("work.c", &["-shared", "-fPIC"]));
    can_trace().then(both).flatten()
}

/// A program of `tests/programs`.
pub fn program(name: &str, options: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program =
        folder.join(format!("{}{}", name.replace('.', "_"), options.concat().replace(['/', ','], "")));
    // Several tests build the same program at the same time, and run it meanwhile.
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

/// Not every machine has all tools, 32-bit programs or FUSE: what is not here is named, also where live tests are required.
pub fn skip(what: &str) {
    eprintln!("skipped: {what}");
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("the checkout's path is UTF-8")
}

/// `CUDATRACE_LIVE=required`: what cannot run has failed.
pub fn is_required() -> bool {
    std::env::var_os("CUDATRACE_LIVE").is_some_and(|value| value == "required")
}

/// A number that the environment gives, if it gives one.
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("`{variable}` is `{text}`, expected a number")))
}

/// Seeds of generated scripts: `AGREE_SEED` is the first, `AGREE_PROGRAMS` says how many; only the first of them stands for
/// itself, none for `usual`. Says now and then how far it has come.
pub fn seeds(test: &str, usual: u64) -> impl Iterator<Item = u64> {
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

/// Root can trace.
pub fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// Why nothing can be traced here.
pub fn obstacle() -> Option<String> {
    if !is_root() {
        return Some("they need root".into());
    }
    let build = examples();
    (!build.join("libcuda.so.1").exists())
        .then(|| format!("{} lacks the simulated CUDA; run `make examples`", build.display()))
}

/// Something that the test needs is not here: a skip, or a failure where tests are required to run.
pub fn missing(what: &str) {
    assert!(!is_required(), "live tests are required here, but {what}");
    eprintln!("skipped: {what}");
}

/// Whether a test that loads programs, and attaches none, can run; says why not.
pub fn can_load() -> bool {
    is_root() || {
        missing("they need root");
        false
    }
}

/// Whether a test that traces can run; says why not.
pub fn can_trace() -> bool {
    obstacle().inspect(|what| missing(what)).is_none()
}

/// `cudatrace`, which finds the simulated CUDA and nothing else.
pub fn cudatrace() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cudatrace"));
    command.env("LD_LIBRARY_PATH", examples()).env("CUDASIM_FAST", "1").stdin(Stdio::null());
    command
}

/// Standard output as text.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Standard error as text.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits until something holds; fails when it never does.
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A process with its lines as they come; killed when dropped.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    heard: Vec<String>,
}

impl Running {
    /// Starts a command; both of its outputs are listened to.
    pub fn start(command: &mut Command) -> Running {
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
        Running { child, lines, heard: Vec::new() }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that contains this.
    pub fn wait_for_line(&mut self, wanted: &str) {
        let start = Instant::now();
        while !self.heard.iter().any(|line| line.contains(wanted)) {
            let left = PATIENCE.saturating_sub(start.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.heard.push(line),
                Err(_) => panic!("waited in vain for `{wanted}`: {:#?}", self.heard),
            }
        }
    }

    /// Whether a line that contains this has come by now.
    pub fn has_said(&mut self, wanted: &str) -> bool {
        self.heard.extend(self.lines.try_iter());
        self.heard.iter().any(|line| line.contains(wanted))
    }

    /// The lines that came until the last one that was waited for.
    pub fn heard(&self) -> &[String] {
        &self.heard
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the child has not been waited for, so the pid is still its own.
        unsafe { libc::kill(self.pid() as i32, signal) };
    }

    /// Waits for its end; gives the status, and what it took from now on.
    pub fn ended(&mut self) -> (ExitStatus, Duration) {
        let start = Instant::now();
        let mut status = None;
        while status.is_none() {
            assert!(start.elapsed() < PATIENCE, "not ended: {:#?}", self.heard);
            status = self.child.try_wait().expect("a child of ours");
            std::thread::sleep(Duration::from_micros(200));
        }
        (status.expect("just seen"), start.elapsed())
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_none()
    }

    /// Every line of both outputs, until nobody holds them open any more.
    pub fn lines(mut self) -> Vec<String> {
        self.ended();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.heard.push(line);
        }
        std::mem::take(&mut self.heard)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

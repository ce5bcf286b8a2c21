//! The process that is controlled: `target.c`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A function of the target.
pub(crate) struct Function {
    pub name: &'static str,
    /// Distance of the jump from the start, in bytes.
    pub place: u64,
    /// Bytes of the instructions that give way.
    len: usize,
}

pub(crate) const FUNCTIONS: [Function; 6] = [
    // mov %rsp,%rbp; sub $N,%rsp
    Function { name: "frame", place: 1, len: 7 },
    // lea itself(%rip),%rbx
    Function { name: "itself", place: 1, len: 7 },
    // test %rdi,%rdi; je
    Function { name: "branch", place: 1, len: 5 },
    // push %r14; push %r13; push %r12
    Function { name: "pushes", place: 2, len: 6 },
    // pause; pause; pause
    Function { name: "slow", place: 1, len: 6 },
    // movsbl values(%rip),%ebx
    Function { name: "table", place: 1, len: 7 },
];

/// A running target, which is killed on drop.
pub(crate) struct Target {
    pid: u32,
    child: Option<(Child, BufReader<ChildStdout>)>,
    /// Address of each function, and the instructions that give way.
    functions: BTreeMap<String, (u64, Vec<u8>)>,
    /// Other addresses.
    labels: BTreeMap<String, u64>,
}

/// `name 0x55551234`
fn label(line: &str) -> (String, u64) {
    let (name, address) = line.split_once(" 0x").expect("an address");
    (name.to_owned(), u64::from_str_radix(address, 16).expect("hex"))
}

/// The memory of a process, whose first thread may have ended.
fn memory_of(pid: u32) -> File {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("alive").map(|task| task.expect("a thread"));
    tasks.filter_map(|task| File::open(task.path().join("mem")).ok()).next().expect("its memory")
}

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let program = folder.join("in-process-target");
        let new = folder.join(format!("in-process-target-{}", std::process::id()));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/remote/target.c");
        let flags = ["-O0", "-w", "-fno-omit-frame-pointer", "-fcf-protection=none", "-pthread", "-o"];
        let status = Command::new("gcc").args(flags).arg(&new).arg(source).status();
        assert!(status.expect("gcc").success());
        // Another run of the tests may use the program.
        fs::rename(&new, &program).expect("renamed");
        program
    })
}

impl Target {
    /// Starts the program and waits until it is ready.
    pub(crate) fn start(numbers: &[u64; 3], options: &str) -> Target {
        Target::start_by(Command::new(program()), numbers, options)
    }

    /// The same, as another user.
    pub(crate) fn start_as(user: u32, numbers: &[u64; 3], options: &str) -> Target {
        let mut command = Command::new(program());
        command.uid(user).gid(user);
        Target::start_by(command, numbers, options)
    }

    fn start_by(mut command: Command, numbers: &[u64; 3], options: &str) -> Target {
        command.args(numbers.map(|number| number.to_string())).arg(options);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let pid = child.id();
        let mut functions = BTreeMap::new();
        for function in &FUNCTIONS {
            let mut line = String::new();
            output.read_line(&mut line).expect("a line");
            let (name, address) = label(line.trim());
            assert_eq!(name, function.name);
            let mut bytes = vec![0; function.len];
            memory_of(pid).read_exact_at(&mut bytes, address + function.place).expect("mapped");
            functions.insert(name, (address, bytes));
        }
        let mut target = Target { pid, child: Some((child, output)), functions, labels: BTreeMap::new() };
        loop {
            match target.read().as_str() {
                "ready" => return target,
                line => target.labels.extend([label(line)]),
            }
        }
    }

    /// Another address in the program, if it has this label.
    pub(crate) fn label(&self, name: &str) -> Option<u64> {
        self.labels.get(name).copied()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn address(&self, function: &str) -> u64 {
        self.functions[function].0
    }

    /// The instructions that give way.
    pub(crate) fn moved(&self, function: &str) -> &[u8] {
        &self.functions[function].1
    }

    /// Addresses of all functions.
    pub(crate) fn text(&self) -> Range<u64> {
        let addresses = self.functions.values().map(|(address, _)| *address);
        addresses.clone().min().expect("functions")..addresses.max().expect("functions") + 64
    }

    /// For [`Target::of_description`], in another process.
    pub(crate) fn described(&self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let functions =
            self.functions.iter().map(|(name, (at, bytes))| format!(" {name}:{at:x}:{}", hex(bytes)));
        format!("{}{}", self.pid, functions.collect::<String>())
    }

    /// The target that another process has started.
    pub(crate) fn of_description(text: &str) -> Target {
        let mut words = text.split(' ');
        let pid = words.next().and_then(|pid| pid.parse().ok()).expect("a pid");
        let bytes = |hex: &str| {
            (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..][..2], 16).expect("hex")).collect()
        };
        let function = |word: &str| {
            let [name, address, hex] = word.split(':').collect::<Vec<_>>().try_into().expect("three parts");
            (name.to_owned(), (u64::from_str_radix(address, 16).expect("hex"), bytes(hex)))
        };
        Target { pid, child: None, functions: words.map(function).collect(), labels: BTreeMap::new() }
    }

    /// Sends a line of input.
    pub(crate) fn line(&mut self, text: &str) {
        let (child, _) = self.child.as_mut().expect("our child");
        writeln!(child.stdin.as_mut().expect("a pipe"), "{text}").expect("written");
    }

    /// Reads a line of output.
    pub(crate) fn read(&mut self) -> String {
        let mut line = String::new();
        self.child.as_mut().expect("our child").1.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    pub(crate) fn expect(&mut self, line: &str) {
        assert_eq!(self.read(), line);
    }

    /// Ends its input; its last line.
    pub(crate) fn end(&mut self) -> String {
        self.child.as_mut().expect("our child").0.stdin = None;
        let report = self.read();
        let status = self.wait();
        assert!(status.success(), "{status}: {report}");
        report
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.as_mut().expect("our child").0.wait().expect("our child")
    }

    /// Its exit status, if it has ended.
    pub(crate) fn try_wait(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().expect("our child").0.try_wait().expect("our child")
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::kill(self.pid as i32, signal) }, 0);
    }

    /// The file of the program, and the offset of an address there.
    pub(crate) fn place_in_file(&self, address: u64) -> (PathBuf, u64) {
        let maps = self.maps();
        let place = |line: &str| {
            let (range, rest) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let hex = |text| u64::from_str_radix(text, 16).ok();
            let range = hex(start)?..hex(end)?;
            range.contains(&address).then_some(address - range.start + hex(rest.split(' ').nth(1)?)?)
        };
        (program().clone(), maps.lines().find_map(place).expect("mapped"))
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{name}", self.pid)).expect("alive")
    }

    pub(crate) fn status(&self) -> String {
        self.file("status")
    }

    pub(crate) fn maps(&self) -> String {
        self.file("maps")
    }

    /// Waits for a state of its first thread.
    pub(crate) fn wait_for_state(&self, state: char) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.status().contains(&format!("State:\t{state}")) {
            assert!(Instant::now() < deadline, "{}", self.status());
            std::thread::yield_now();
        }
    }

    fn entries(&self, folder: &str) -> impl Iterator<Item = PathBuf> {
        let entries = fs::read_dir(format!("/proc/{}/{folder}", self.pid)).expect("alive");
        entries.map(|entry| entry.expect("alive").path())
    }

    pub(crate) fn threads(&self) -> Vec<u32> {
        let tid = |path: PathBuf| path.file_name()?.to_str()?.parse().ok();
        self.entries("task").filter_map(tid).collect()
    }

    /// Its open files.
    pub(crate) fn opened(&self) -> Vec<String> {
        let links = self.entries("fd").filter_map(|path| fs::read_link(path).ok());
        links.map(|link| link.to_string_lossy().into_owned()).collect()
    }

    /// Checks that no function is patched.
    pub(crate) fn check_original(&self) {
        let memory = memory_of(self.pid);
        for function in &FUNCTIONS {
            let (address, original) = &self.functions[function.name];
            let mut now = vec![0; function.len];
            memory.read_exact_at(&mut now, address + function.place).expect("mapped");
            assert_eq!(&now, original, "{}", function.name);
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

//! Messages on standard error: diagnostics of the compiler, notes, errors. Output of the script is written elsewhere.

use crate::cli::{Cli, Color};
use lang::{Diagnostics, Severity, Source};
use std::cell::RefCell;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Messages about one script that are printed; who repairs these has seen enough.
const SHOWN: usize = 20;

/// How to speak.
pub struct Messages {
    color: bool,
    quiet: bool,
    warnings: bool,
    verbose: bool,
    out: RefCell<Box<dyn Write>>,
}

/// What `CUDATRACE_COLOR`, or bpftrace's variable, says: `always` or `never`.
fn wished() -> Option<bool> {
    let set = |name| std::env::var(name).ok();
    match set("CUDATRACE_COLOR").or_else(|| set("BPFTRACE_COLOR"))?.as_str() {
        "always" => Some(true),
        "never" => Some(false),
        _ => None,
    }
}

/// Progress shorter than this is not shown.
const SHORT: Duration = Duration::from_secs(1);

/// The line that shows how far a search through files is. A thread prints it also while no path is found.
struct SearchLine {
    /// Paths and ELF files.
    counts: Arc<[AtomicUsize; 2]>,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl SearchLine {
    fn start() -> host::Progress {
        let counts = Arc::<[AtomicUsize; 2]>::default();
        let (stop, stopped) = mpsc::channel();
        let (read, start) = (counts.clone(), Instant::now());
        let print = move || {
            while stopped.recv_timeout(SHORT) == Err(RecvTimeoutError::Timeout) {
                let [paths, files] = read.each_ref().map(|count| count.load(Relaxed));
                let seconds = start.elapsed().as_secs();
                let line = format!("searching: {paths} paths, {files} programs and libraries, {seconds} s");
                let _ = std::io::stderr().write_all(format!("\r{line}\x1b[K").as_bytes());
            }
            if start.elapsed() >= SHORT {
                let _ = write!(std::io::stderr(), "\r\x1b[K");
            }
        };
        let thread = std::thread::Builder::new().spawn(print).ok().map(|thread| (stop, thread));
        let line = SearchLine { counts, thread };
        Box::new(move |is_elf| line.add(is_elf))
    }

    fn add(&self, is_elf: bool) {
        self.counts[0].fetch_add(1, Relaxed);
        self.counts[1].fetch_add(usize::from(is_elf), Relaxed);
    }
}

impl Drop for SearchLine {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

impl Messages {
    /// As the command line wants it.
    pub fn new(cli: &Cli) -> Messages {
        let color = match cli.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => wished()
                .unwrap_or_else(|| std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()),
        };
        Messages {
            color,
            quiet: cli.quiet,
            warnings: !cli.quiet && !cli.no_warnings,
            verbose: cli.verbose,
            out: RefCell::new(Box::new(std::io::stderr())),
        }
    }

    /// Shows the progress of a search through files if standard error is a terminal.
    pub fn search_progress(&self) -> Option<fn() -> host::Progress> {
        (!self.quiet && std::io::stderr().is_terminal()).then_some(SearchLine::start)
    }

    /// From now on they go elsewhere.
    pub fn redirect(&self, out: Box<dyn Write>) {
        *self.out.borrow_mut() = out;
    }

    /// Whether to colour.
    pub fn color(&self) -> bool {
        self.color
    }

    /// Findings of the compiler, the first of them if they are many; warnings only if wanted.
    pub fn diagnostics(&self, diags: &Diagnostics, src: &Source) {
        let wanted = |d: &&lang::Diagnostic| d.severity == Severity::Error || self.warnings;
        let mut shown: Vec<_> = diags.list.iter().filter(wanted).cloned().collect();
        // Errors stay in sight, however many warnings stand before them.
        shown.sort_by_key(|d| d.severity == Severity::Warning && diags.list.len() > SHOWN);
        let hidden = shown.len().saturating_sub(SHOWN);
        shown.truncate(SHOWN);
        if !shown.is_empty() {
            self.say(&lang::diagnostics::render::render(&shown, src, self.color));
        }
        if hidden > 0 {
            self.say(&format!("... and {hidden} more\n"));
        }
    }

    /// The reason why we stop.
    pub fn error(&self, error: &anyhow::Error) {
        let (on, off) = if self.color { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
        self.say(&format!("{on}error{off}: {error:#}\n"));
    }

    /// Something that works otherwise than the user may think.
    pub fn warning(&self, text: &str) {
        if self.warnings {
            self.lost(text);
        }
    }

    /// Something was lost, which is said however quiet we are.
    pub fn lost(&self, text: &str) {
        let (on, off) = if self.color { ("\x1b[1;33m", "\x1b[0m") } else { ("", "") };
        self.say(&format!("{on}warning{off}: {text}\n"));
    }

    /// An attach point that the kernel refused: its calls are not seen.
    pub fn not_attached(&self, failure: &runtime::SiteFailure) {
        self.lost(&format!(
            "cannot attach {} at {:#x} in {}: {}",
            failure.probe,
            failure.offset,
            failure.path.display(),
            failure.why()
        ));
    }

    /// Progress that everybody wants to see.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            self.say(&format!("{text}\n"));
        }
    }

    /// Details for `-v`.
    pub fn detail(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            self.say(&format!("{}\n", text()));
        }
    }

    /// A closed standard error is no reason to stop.
    fn say(&self, text: &str) {
        let mut out = self.out.borrow_mut();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

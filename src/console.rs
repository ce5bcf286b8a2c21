//! Messages on standard error: diagnostics of the compiler, notes, errors. Output of the script is written elsewhere.

use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use lang::diagnostics::wording::listed;
use lang::{Diagnostics, Severity, Source};
use report::value::escape;
use runtime::{PatchReport, SiteFailure};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Largest number of messages about a script that are printed.
const SHOWN: usize = 20;

/// Largest number of refused attach points that a message names.
const MOST_REFUSED: usize = 4;

/// When to colour.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set and not empty; CUDATRACE_COLOR may be `always` or `never`.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The messages that are printed beside errors.
#[derive(Copy, Clone, Debug)]
pub struct MessageKinds {
    pub notes: bool,
    pub warnings: bool,
    /// How the tracer finds files, and how long that takes.
    pub details: bool,
}

/// Printer of messages.
pub struct Messages {
    color: bool,
    quiet: bool,
    warnings: bool,
    verbose: bool,
    out: RefCell<Box<dyn Write>>,
    /// Numbers of functions that could not be patched the last time, by process and reason.
    unpatched: RefCell<BTreeMap<(u32, &'static str), usize>>,
}

/// The variable that says when there are colors, or bpftrace's, and its value.
fn color_variable() -> Option<(&'static str, String)> {
    let names = ["CUDATRACE_COLOR", "BPFTRACE_COLOR"];
    names.into_iter().find_map(|name| Some((name, std::env::var(name).ok()?)))
}

/// Setting of [`color_variable`]: `always` or `never`.
fn color_setting() -> Option<bool> {
    match color_variable()?.1.as_str() {
        "always" => Some(true),
        "never" => Some(false),
        _ => None,
    }
}

/// The warning of a value that [`color_variable`] does not take, if there is one.
pub fn unknown_color() -> Option<String> {
    let (name, value) = color_variable()?;
    let takes = ["always", "never", "auto", ""];
    (!takes.contains(&value.as_str()))
        .then(|| format!("{name}={value} has no effect: expected always, never or auto"))
}

/// Shorter searches show no progress.
const SHORT: Duration = Duration::from_secs(1);

/// Progress line of a search through files. A thread prints it, so that it is updated even while no path is found.
struct SearchLine {
    /// Number of paths and of ELF files.
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
    /// A printer on standard error.
    pub fn new(color: Color, kinds: MessageKinds) -> Messages {
        let color = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => color_setting().unwrap_or_else(|| {
                std::io::stderr().is_terminal()
                    && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }),
        };
        Messages {
            color,
            quiet: !kinds.notes,
            warnings: kinds.warnings,
            verbose: kinds.details,
            out: RefCell::new(Box::new(std::io::stderr())),
            unpatched: RefCell::default(),
        }
    }

    /// Shows the progress of a search through files if standard error is a terminal.
    pub fn search_progress(&self) -> Option<fn() -> host::Progress> {
        (!self.quiet && std::io::stderr().is_terminal()).then_some(SearchLine::start)
    }

    /// Redirects later messages.
    pub fn redirect(&self, out: Box<dyn Write>) {
        *self.out.borrow_mut() = out;
    }

    /// Whether messages are coloured.
    pub fn color(&self) -> bool {
        self.color
    }

    /// Prints the compiler's messages, up to a limit; warnings only if enabled.
    pub fn diagnostics(&self, diags: &Diagnostics, src: &Source) {
        let wanted = |d: &&lang::Diagnostic| d.severity == Severity::Error || self.warnings;
        let mut shown: Vec<_> = diags.list.iter().filter(wanted).cloned().collect();
        // If there are many, errors come first, so that warnings do not displace them.
        shown.sort_by_key(|d| d.severity == Severity::Warning && diags.list.len() > SHOWN);
        let hidden = shown.len().saturating_sub(SHOWN);
        shown.truncate(SHOWN);
        if !shown.is_empty() {
            self.print(&lang::diagnostics::render::render(&shown, src, self.color));
        }
        if hidden > 0 {
            self.print(&format!("... and {hidden} more\n"));
        }
    }

    /// The style of a message's first word.
    fn style(&self, color: AnsiColor) -> Style {
        if self.color { color.on_default().bold() } else { Style::new() }
    }

    /// Prints the error that ends the program.
    pub fn error(&self, error: &anyhow::Error) {
        let style = self.style(AnsiColor::Red);
        self.print(&without_errno(&format!("{style}error{style:#}: {error:#}\n")));
    }

    /// Prints a warning of an unexpected behaviour.
    pub fn warning(&self, text: &str) {
        if self.warnings {
            self.lost(text);
        }
    }

    /// Prints a loss, even if messages are disabled.
    pub fn lost(&self, text: &str) {
        let style = self.style(AnsiColor::Yellow);
        self.print(&format!("{style}warning{style:#}: {}\n", printable(&without_errno(text))));
    }

    /// Prints how many functions of a process were patched, and how many could not be, whose calls are not traced.
    pub fn patched(&self, pid: u32, report: &PatchReport) {
        self.detail(|| format!("process {pid}: {} functions patched", report.patched));
        for (count, why) in [
            (report.in_use(), "their first instructions are in use"),
            (report.changed(), "another tool has changed their code"),
            (report.crowded(), "the process has no free memory near them"),
        ] {
            let before = self.unpatched.borrow_mut().insert((pid, why), count).unwrap_or(0);
            if count > before {
                let functions = if count == 1 { "function is" } else { "functions are" };
                self.lost(&format!("process {pid}: {count} {functions} not traced, since {why}"));
            }
        }
    }

    /// Prints the attach points that the kernel refused, whose calls are not traced; those with the same reason together.
    pub fn not_attached(&self, failures: &[SiteFailure]) {
        let mut by_reason: Vec<(String, Vec<&SiteFailure>)> = Vec::new();
        for failure in failures {
            let reason = failure.why();
            match by_reason.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, same)) => same.push(failure),
                None => by_reason.push((reason, vec![failure])),
            }
        }
        for (reason, same) in by_reason {
            let text = match same[..] {
                [SiteFailure { probe, position: Some((path, offset)), .. }] => {
                    format!("{probe} at {offset:#x} in {}", path.display())
                }
                [SiteFailure { probe, .. }] => probe.clone(),
                _ => {
                    let names = same.iter().map(|failure| failure.probe.as_str());
                    format!("{} probes ({})", same.len(), listed(names, MOST_REFUSED))
                }
            };
            self.lost(&format!("cannot attach {text}: {reason}"));
        }
    }

    /// Prints progress, unless disabled.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            self.print(&format!("{}\n", printable(text)));
        }
    }

    /// Prints details for `-v`.
    pub fn detail(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            self.print(&format!("{}\n", printable(&text())));
        }
    }

    /// Prints a text. A closed standard error is ignored.
    fn print(&self, text: &str) {
        let mut out = self.out.borrow_mut();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

/// A message whose control characters do not reach the terminal: it may contain names of a traced process. Those are escaped where a line end
/// in them could pass for another message.
fn printable(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| escape(line.as_bytes())).collect();
    lines.join("\n")
}

/// A message without numbers of errors, whose texts are beside them: `(os error 2)`.
fn without_errno(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default();
    let rest = parts.map(|part| part.split_once(')').map_or(part, |(_, rest)| rest));
    std::iter::once(first).chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_controls_the_terminal() {
        assert_eq!(printable("a\x1b]0;x\x07\n\u{9b}2J ü µs"), "a\\x1b]0;x\\x07\n\\u009b2J ü µs");
    }
}

//! `cudatrace report FILE`: what a recording amounts to, as text; and the same recording in other formats.

use crate::cli::Cli;
use crate::export::{Asked, Destination, KINDS};
use crate::messages::Messages;
use anyhow::{Context, Result, anyhow, bail};
use flate2::read::MultiGzDecoder;
use report::export::{End, Exporter, Record, Run};
use report::html::Page;
use report::recording::{self, Ended, Reader, Recording};
use report::summary::{Summary, time};
use report::timeline::Timeline;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

/// Standard input as a recording, standard output as what is made of one.
const STDOUT: &str = "-";
/// Rows of a table, threads of the timeline.
const ROWS: usize = 20;
/// Calls that are listed by their length.
const SLOWEST: usize = 15;

/// Reports on the file that the command line names.
///
/// # Errors
/// It cannot be read, is no recording, or what is to be made of it cannot be written.
pub fn run(cli: &Cli, messages: &Messages) -> Result<u8> {
    let [_, file] = &cli.words[..] else {
        bail!("report reads one recording: cudatrace report traces/trace_20260101_120000.jsonl");
    };
    let path = Path::new(file);
    let mut reading = Reading {
        outputs: outputs(cli),
        page: cli.report.html.is_some().then(Page::default),
        ..Reading::default()
    };
    let recording = recording::read(open(path)?, &mut reading).with_context(|| file.clone())?;
    let Reading { report, page, mut made, failure, .. } = reading;
    if let Some(error) = failure {
        return Err(error);
    }
    let dropped = if let Ended::Whole { dropped } = recording.ended { dropped } else { 0 };
    for Made { what, exporter, .. } in &mut made {
        exporter.finish(&End { dropped, goes_on: false }).with_context(|| what.clone())?;
    }
    if let (Some(page), Some(html)) = (&page, &cli.report.html) {
        let title = path.file_name().map_or(file.clone(), |name| name.to_string_lossy().into_owned());
        let text = page.html(&title, &recording, &report.summary);
        write_page(html, &text)?;
    }
    let losses: Vec<String> = made.iter().filter_map(Made::loss).collect();
    losses.iter().for_each(|loss| messages.lost(loss));
    let files: Vec<String> = made
        .iter()
        .filter(|made| made.loss().is_none())
        .map(|made| made.dest.text().to_owned())
        .chain(cli.report.html.iter().map(|html| html.display().to_string()))
        .collect();
    // Whoever has another format there wants nothing else with it.
    if !cli.quiet && !files.iter().any(|file| file == STDOUT) {
        report.print(&recording)?;
    }
    files.iter().filter(|file| *file != STDOUT).for_each(|file| messages.note(&format!("wrote {file}")));
    Ok(u8::from(!losses.is_empty()))
}

fn write_page(path: &Path, text: &str) -> Result<()> {
    let written = match path == Path::new(STDOUT) {
        true => std::io::stdout().lock().write_all(text.as_bytes()),
        false => std::fs::write(path, text),
    };
    written.with_context(|| format!("cannot write `{}`", path.display()))
}

/// One of the formats that are made.
struct Made {
    /// As it was asked for.
    what: String,
    dest: Destination,
    exporter: Box<dyn Exporter>,
}

impl Made {
    fn record(&mut self, record: &Record) -> Result<()> {
        self.exporter.record(record).with_context(|| self.what.clone())?;
        // A receiver that has failed once is not waited for again and again.
        if self.dest.has_lost() {
            self.dest.close();
        }
        Ok(())
    }

    /// What did not arrive, in words.
    fn loss(&self) -> Option<String> {
        let lost = self.dest.lost();
        (lost.count > 0).then(|| format!("{}: {}", self.what, lost.words()))
    }
}

/// All that is made of a recording while it is read once.
#[derive(Default)]
struct Reading {
    report: Report,
    page: Option<Page>,
    outputs: Vec<Asked>,
    made: Vec<Made>,
    /// The first one.
    failure: Option<anyhow::Error>,
}

impl Reader for Reading {
    fn begin(&mut self, run: &Run) {
        self.report.timeline = Timeline::new(run.start_ns);
        match open_all(&self.outputs, run) {
            Ok(opened) => self.made = opened,
            Err(error) => self.failure = Some(error),
        }
    }

    fn record(&mut self, record: Record) {
        self.report.add(&record);
        self.page.iter_mut().for_each(|page| page.add(&record));
        for made in &mut self.made {
            if let Err(error) = made.record(&record) {
                self.failure.get_or_insert(error);
            }
        }
    }
}

/// What is to be made besides.
fn outputs(cli: &Cli) -> Vec<Asked> {
    let kind = |name: &str| KINDS.iter().find(|kind| kind.name == name);
    let named = [
        ("chrome", &cli.report.chrome),
        ("perfetto", &cli.report.perfetto),
        ("folded", &cli.report.folded),
        ("otlp", &cli.report.otlp),
    ];
    let named =
        named.into_iter().filter_map(|(name, dest)| Some(Asked { kind: kind(name)?, dest: dest.clone()? }));
    cli.export.iter().cloned().chain(named).collect()
}

fn open_all(outputs: &[Asked], run: &Run) -> Result<Vec<Made>> {
    let run = Arc::new(run.clone());
    let open = |asked: &Asked| {
        let what = format!("{}={}", asked.kind.name, asked.dest);
        let open = asked.kind.open.context("a recording that is over has no metrics to be asked for");
        let dest = Destination::new(&asked.dest, None);
        let exporter = open.and_then(|open| open(&dest, &run)).with_context(|| what.clone())?;
        Ok(Made { what, dest, exporter })
    };
    outputs.iter().map(open).collect()
}

/// The lines of a file, compressed or not; `-` is standard input.
fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    if path == Path::new(STDOUT) {
        return Ok(Box::new(BufReader::new(std::io::stdin())));
    }
    let file = File::open(path).map_err(|error| anyhow!("{}: {error}", path.display()))?;
    Ok(match path.extension().is_some_and(|extension| extension == "gz") {
        true => Box::new(BufReader::with_capacity(1 << 18, MultiGzDecoder::new(file))),
        false => Box::new(BufReader::with_capacity(1 << 18, file)),
    })
}

/// What text says of a recording.
#[derive(Default)]
struct Report {
    summary: Summary,
    timeline: Timeline,
    slowest: Vec<Record>,
}

impl Report {
    fn add(&mut self, record: &Record) {
        self.summary.add(record);
        if record.span().is_none() {
            return;
        }
        self.timeline.add(record);
        let ns = record.own_ns();
        if self.slowest.len() < SLOWEST || self.slowest.last().is_some_and(|last| ns > last.own_ns()) {
            let at = self.slowest.partition_point(|known| known.own_ns() >= ns);
            self.slowest.insert(at, record.clone());
            self.slowest.truncate(SLOWEST);
        }
    }

    fn print(&self, recording: &Recording) -> Result<()> {
        let mut out = String::new();
        let Recording { run, ended, unreadable } = recording;
        let started = jiff::Timestamp::from_nanosecond(run.wall_ns(run.start_ns)).ok();
        let started = started.map_or(String::new(), |time| {
            time.to_zoned(jiff::tz::TimeZone::system()).strftime("%F %T").to_string()
        });
        let command = report::value::escape(words(&run.command).as_bytes());
        out += &format!("{} on {}, {started}, {command}\n", run.tool, run.host);
        match ended {
            Ended::Cut => out += "the recording was cut off; what follows is what there is\n",
            Ended::Whole { dropped: 0 } => {}
            Ended::Whole { dropped } => out += &format!("{dropped} records were dropped while it was made\n"),
        }
        if let Some((line, reason, count)) = unreadable {
            out += &format!("{count} lines cannot be read, the first is line {line}: {reason}\n");
        }
        self.summary.troubles.iter().for_each(|trouble| out += &format!("warning: {trouble}\n"));
        out += "\n";
        out += &self.summary.tables(ROWS);
        if self.summary.spans > 0 {
            out += &self.slowest_calls(run);
            out += "\nTIMELINE\n";
            out += &self.timeline.draw(columns(), ROWS);
        }
        // Names, hosts and commands come from the file, whoever wrote it.
        let lines = out.lines().map(|line| report::value::escape(line.as_bytes()) + "\n");
        match std::io::stdout().lock().write_all(lines.collect::<String>().as_bytes()) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            result => result.context("cannot write the report"),
        }
    }

    fn slowest_calls(&self, run: &Run) -> String {
        let mut out = String::from("\nSLOWEST CALLS\n");
        out += &format!("{:>12} {:>10}  {:<17} {:<32} DETAILS\n", "AT", "TOOK", "THREAD", "FUNCTION");
        for record in &self.slowest {
            let (Some(span), Some(thread)) = (record.span(), &record.thread) else { continue };
            let fields: Vec<String> = record.fields.labels().collect();
            let result = span.result.as_ref().filter(|_| span.status == report::export::Status::Error);
            let result = result.map_or(String::new(), |result| format!("{} ", result.label()));
            let details = report::value::escape(format!("{result}{}", fields.join(" ")).as_bytes());
            out += &format!(
                "{:>12} {:>10}  {:<17} {:<32} {}\n",
                time(record.time_ns.saturating_sub(run.start_ns)),
                time(record.own_ns()),
                format!("{}/{}", thread.pid, thread.tid),
                report::summary::cut(&report::value::escape(record.name.as_bytes()), 32),
                report::summary::cut(&details, 100),
            );
        }
        out
    }
}

fn words(command: &[String]) -> String {
    if command.is_empty() { "running processes".into() } else { shell_words::join(command) }
}

/// Columns of the timeline: what is left of the terminal behind the names.
fn columns() -> usize {
    // SAFETY: writes a struct of plain numbers.
    let width = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        match libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) {
            0 if std::io::stdout().is_terminal() => usize::from(size.ws_col),
            _ => 0,
        }
    };
    if width == 0 { 100 } else { width.saturating_sub(34).clamp(20, 200) }
}

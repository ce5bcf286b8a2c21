//! `cudatrace report FILE`: summarizes a recording as text or tables, and converts it to other formats.

mod files;
mod several;
mod unreadable;

use crate::Failure;
use crate::cli::{Cli, Format};
use crate::console::Messages;
use crate::export::Destination;
use crate::export::file::cannot_write;
use crate::export::kinds::{ExportRequest, KINDS};
use crate::subcommand::{Invocation, Subcommand};
use crate::terminal;
use anyhow::{Context, Result, bail};
use clap::Args;
use files::Recordings;
use report::export::otlp::traces::Per;
use report::export::parquet::Parquet;
use report::export::{End, Exporter, Out, Record, Run, json};
use report::recording::page::Page;
use report::recording::summary::{Summary, time};
use report::recording::timeline::Timeline;
use report::recording::{self, Reader, Recording, RecordingEnd, UnreadableLines, summary_tables as tables};
use std::fmt::Write as _;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of standard output as a destination.
const STDOUT: &str = "-";
/// Largest number of rows of a table, and of threads in the timeline.
const ROWS: usize = 20;
/// Width of the text if standard output is not a terminal.
const COLUMNS: usize = 120;
/// Number of longest calls in the list.
const SLOWEST: usize = 15;

/// `cudatrace report`
pub const SUBCOMMAND: Subcommand = Subcommand {
    summary: Some(("report FILE [--html PAGE]", "tables, a page or other formats of a recording")),
    examples: "Without a file, the newest recording in `traces`. `-` is standard input as a recording, and standard output as a file.\n\
               Two recordings are compared; recordings of the ranks of a job are put beside each other:\n  \
               cudatrace report before.arrows after.arrows\n  cudatrace report traces/*_rank*.arrows",
    most_words: usize::MAX,
    options: &["quiet", "format", "export", "trace_per"],
    own_options: ReportOptions::augment_args,
    ..Subcommand::new(
        "report",
        "Prints tables, the slowest calls and a timeline of a recording; converts it to other formats",
        "cudatrace report [FILE...] [--diff] [--html PAGE] [--open] [-f json | --csv TABLE] [--jsonl FILE] [--parquet DIR] [--chrome FILE] [--perfetto FILE] [--folded FILE] [--otlp URL]",
        |invocation| run(invocation, &invocation.own_options()?).map_err(Failure::wrong),
    )
};

/// Options that only `report` has: elsewhere their names are free for scripts.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of report")]
struct ReportOptions {
    /// The recording as JSON lines, one record each
    #[arg(long, value_name = "FILE")]
    jsonl: Option<String>,

    /// The recording as Chrome's trace events, for Perfetto, chrome://tracing and readers of PyTorch's traces; the GPU's work is in it
    /// after `record --gpu`
    #[arg(long, value_name = "FILE")]
    chrome: Option<String>,

    /// The recording as a native trace of Perfetto
    #[arg(long, value_name = "FILE")]
    perfetto: Option<String>,

    /// The recording's stacks for flame graphs
    #[arg(long, value_name = "FILE")]
    folded: Option<String>,

    /// The recording's spans to an OpenTelemetry receiver, or as JSON lines
    #[arg(long, value_name = "URL|file:FILE")]
    otlp: Option<String>,

    /// The recording as tables of Apache Parquet in a folder, for DuckDB, Spark, Dask, ClickHouse and polars: calls, gpu and events; of
    /// several ranks in a folder each
    #[arg(long, value_name = "DIR")]
    parquet: Option<PathBuf>,

    /// A page that works offline, with timeline, histograms, kernels, stacks, memory and errors; of two recordings one page with both
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Open the page in a browser; without --html it is written to the folder of the recording
    #[arg(long)]
    open: bool,

    /// Compare two recordings, also those of two ranks: what got slower or faster, the largest change first
    #[arg(long)]
    diff: bool,

    /// Print one table as comma-separated values: functions, kernels, ioctls, driver_functions, copies, memory, errors, gpu_kernels, gpu_copies, ranges or idle; changes of two recordings; ranks or spread of ranks. `-f json` prints all of them
    #[arg(long, value_name = "TABLE")]
    csv: Option<String>,
}

/// Reports on the recordings on the command line, or on the newest one.
fn run(invocation: &Invocation, options: &ReportOptions) -> Result<u8> {
    let Invocation { cli, messages, .. } = *invocation;
    let parts = match files::choose(invocation.words(), options.diff, messages)? {
        Recordings::One(parts) => parts,
        Recordings::Two(recordings) => return several::compare(cli, options, messages, recordings),
        Recordings::Ranks(recordings) => return several::ranks(cli, options, messages, recordings),
    };
    check_table(options, &tables::NAMES)?;
    let title = files::title(&parts);
    let page_path = page_path(options, &parts)?;
    refuse_read_files(cli, options, page_path.as_deref(), &parts)?;
    let mut reading = Reading {
        outputs: outputs(cli, options),
        trace_per: cli.trace_per.clone(),
        parquet: options.parquet.clone(),
        page: page_path.is_some().then(Page::default),
        ..Reading::default()
    };
    let recording = read(&parts, &mut reading)?;
    let Reading { report, page, mut conversions, failure, .. } = reading;
    if let Some(error) = failure {
        return Err(error);
    }
    conversions.iter_mut().try_for_each(|conversion| conversion.finish(&recording))?;
    warn_of_missing(&parts, &recording, messages);
    if recording.ended == RecordingEnd::Cut && !conversions.is_empty() {
        messages.warning("the recording was cut off; what was converted is what there is");
    }
    if let (Some(page), Some(html)) = (&page, &page_path) {
        write_page(html, &page.html(&title, &recording, &report.summary))?;
    }
    let losses: Vec<String> = conversions.iter().filter_map(Conversion::loss).collect();
    losses.iter().for_each(|loss| messages.lost(loss));
    let files: Vec<String> = conversions
        .iter()
        .filter(|conversions| conversions.loss().is_none())
        .map(|conversions| conversions.dest.text().to_owned())
        .collect();
    let text = if let Some(name) = &options.csv {
        report.csv(name)
    } else if cli.format == Format::Json {
        report.json(&title, &recording)
    } else if cli.quiet || !conversions.is_empty() || page.is_some() {
        // If another output is requested, no text is printed.
        String::new()
    } else {
        report.text(&recording)
    };
    print(&text)?;
    files.iter().filter(|file| *file != STDOUT).for_each(|file| messages.note(&format!("wrote {file}")));
    page_path.iter().for_each(|page| finish_page(page, options, messages));
    Ok(u8::from(!losses.is_empty()))
}

/// Number of records that the recording lacks.
fn dropped(recording: &Recording) -> u64 {
    match recording.ended {
        RecordingEnd::Whole { dropped, .. } => dropped,
        RecordingEnd::Cut => 0,
    }
}

/// The tables of two recordings, and of the ranks of a job.
const CHANGES: &str = "changes";
const OF_RANKS: [&str; 2] = ["ranks", "spread"];

/// Refuses a table that is not one of these.
fn check_table(options: &ReportOptions, names: &[&str]) -> Result<()> {
    match &options.csv {
        Some(name) if names.contains(&name.as_str()) => Ok(()),
        Some(name) if name == CHANGES => {
            bail!(
                "`{name}` is a table of two recordings: `cudatrace report --diff BEFORE AFTER --csv {name}`"
            )
        }
        Some(name) if OF_RANKS.contains(&name.as_str()) => {
            bail!("`{name}` is a table of the ranks of a job: name the recordings of all of them")
        }
        Some(name) => bail!("no table `{name}`: expected {}", names.join(", ")),
        None => Ok(()),
    }
}

/// Path of the page: from the command line, or next to the recording if it is only to be opened.
fn page_path(options: &ReportOptions, parts: &[PathBuf]) -> Result<Option<PathBuf>> {
    match (&options.html, options.open) {
        (Some(path), false) => Ok(Some(path.clone())),
        (Some(path), true) if path == Path::new(STDOUT) => bail!("--open needs a file: --html FILE --open"),
        (Some(path), true) => Ok(Some(path.clone())),
        (None, true) if parts[0] == Path::new(STDOUT) => bail!("--open needs a file: --html FILE --open"),
        (None, true) => Ok(Some(parts[0].with_file_name(format!("{}.html", files::stem(parts))))),
        (None, false) => Ok(None),
    }
}

/// Notes that a page was written, and opens it if that was asked for.
fn finish_page(page: &Path, options: &ReportOptions, messages: &Messages) {
    if page != Path::new(STDOUT) {
        messages.note(&format!("wrote {}", page.display()));
    }
    if options.open {
        open_page(page, messages);
    }
}

/// Refuses outputs that are one of the files that are read, or another recording, and two outputs to one file.
fn refuse_read_files(
    cli: &Cli,
    options: &ReportOptions,
    page: Option<&Path>,
    parts: &[PathBuf],
) -> Result<()> {
    let exported = outputs(cli, options).into_iter().map(|request| PathBuf::from(request.dest));
    let outputs: Vec<PathBuf> =
        exported.chain(page.map(Path::to_owned)).filter(|path| path != Path::new(STDOUT)).collect();
    let twice = outputs.iter().enumerate().find(|(at, output)| outputs[..*at].contains(output));
    if let Some((_, output)) = twice {
        bail!("two outputs go to `{}`", output.display());
    }
    for output in outputs.iter().filter(|output| output.is_file()) {
        if parts.iter().any(|part| files::is_same(output, part)) {
            bail!("`{}` is the recording that is read: name another output", output.display());
        }
        if files::is_recording(output) {
            let file = output.display();
            bail!(
                "`{file}` is a recording, which the output would replace: name it first, `report {file} …`, or name another output"
            );
        }
    }
    Ok(())
}

/// Opens a page in the browser of the desktop.
fn open_page(page: &Path, messages: &Messages) {
    let path = std::fs::canonicalize(page).unwrap_or_else(|_| page.into());
    let browser = std::env::var_os("BROWSER").filter(|name| !name.is_empty());
    let opened = std::process::Command::new(browser.unwrap_or_else(|| "xdg-open".into())).arg(&path).spawn();
    if let Err(error) = opened {
        messages.warning(&format!("no browser could be started ({error}): open file://{}", path.display()));
    }
}

/// Reads all parts of a recording in their order.
fn read(parts: &[PathBuf], reading: &mut dyn Reader) -> Result<Recording> {
    let mut whole: Option<Recording> = None;
    for part in parts {
        let from_pipe = part == Path::new(STDOUT) && !std::io::stdin().is_terminal();
        // Ctrl-C in `record | report -` ends the recording, but its report must still be printed.
        let interrupts = from_pipe.then(files::IgnoredInterrupts::begin);
        let found = recording::read(files::open(part)?, reading);
        drop(interrupts);
        let found = found.with_context(|| part.display().to_string())?;
        whole = Some(match whole {
            None => found,
            Some(before) => Recording {
                run: before.run,
                ended: found.ended,
                unreadable: match (before.unreadable, found.unreadable) {
                    (Some(one), Some(two)) => Some(UnreadableLines { count: one.count + two.count, ..one }),
                    (one, two) => one.or(two),
                },
            },
        });
    }
    whole.context("no recording was given")
}

/// Warns if parts of a recording were not read.
fn warn_of_missing(parts: &[PathBuf], recording: &Recording, messages: &Messages) {
    let goes_on = matches!(recording.ended, RecordingEnd::Whole { goes_on: true, .. });
    if let Some(what) = files::missing(parts, goes_on) {
        messages.warning(&format!("{} is not all of its recording: {what}", files::title(parts)));
    }
}

fn print(text: &str) -> Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write the report"),
    }
}

fn write_page(path: &Path, text: &str) -> Result<()> {
    let written = match path == Path::new(STDOUT) {
        true => std::io::stdout().lock().write_all(text.as_bytes()),
        false => std::fs::write(path, text),
    };
    written.map_err(|error| cannot_write(path, &error))
}

/// An export to another format.
struct Conversion {
    /// The option that requests it.
    what: String,
    dest: Destination,
    exporter: Box<dyn Exporter>,
}

impl Conversion {
    /// Tables in a folder, which is made.
    fn to_parquet(folder: &Path, run: &Run) -> Result<Conversion> {
        let what = format!("--parquet {}", folder.display());
        let open = |name: &str| -> std::io::Result<Out> {
            Ok(Box::new(BufWriter::new(std::fs::File::create(folder.join(name))?)))
        };
        let tables =
            std::fs::create_dir_all(folder).and_then(|()| Parquet::new(&Arc::new(run.clone()), open));
        let dest = Destination::new(&folder.to_string_lossy(), None);
        Ok(Conversion { exporter: Box::new(tables.with_context(|| what.clone())?), what, dest })
    }

    fn finish(&mut self, recording: &Recording) -> Result<()> {
        let is_cut = recording.ended == RecordingEnd::Cut;
        let end = End { dropped: dropped(recording), goes_on: false, is_cut };
        self.exporter.finish(&end).with_context(|| self.what.clone())
    }

    fn record(&mut self, record: &Record) -> Result<()> {
        self.exporter.record(record).with_context(|| self.what.clone())?;
        // After a failure of the receiver, later requests do not wait.
        if self.dest.has_lost() {
            self.dest.close();
        }
        Ok(())
    }

    /// Description of what did not arrive.
    fn loss(&self) -> Option<String> {
        let lost = self.dest.lost();
        (lost.count > 0).then(|| format!("{}: {}", self.what, lost.words()))
    }
}

/// All outputs of a recording, which is read once.
#[derive(Default)]
struct Reading {
    report: Report,
    page: Option<Page>,
    outputs: Vec<ExportRequest>,
    /// The folder for tables of Parquet.
    parquet: Option<PathBuf>,
    trace_per: Option<Per>,
    conversions: Vec<Conversion>,
    /// True after the first part; later parts belong to the same run.
    begun: bool,
    /// The first failure.
    failure: Option<anyhow::Error>,
}

impl Reader for Reading {
    fn begin(&mut self, run: &Run) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        self.report.timeline = Timeline::new(run.start_ns);
        let opened = open_all(&self.outputs, self.trace_per.as_ref(), run).and_then(|mut opened| {
            if let Some(folder) = &self.parquet {
                opened.push(Conversion::to_parquet(folder, run)?);
            }
            Ok(opened)
        });
        match opened {
            Ok(opened) => self.conversions = opened,
            Err(error) => self.failure = Some(error),
        }
    }

    fn record(&mut self, record: Record) {
        self.report.add(&record);
        self.page.iter_mut().for_each(|page| page.add(&record));
        for conversion in &mut self.conversions {
            if let Err(error) = conversion.record(&record) {
                self.failure.get_or_insert(error);
            }
        }
    }
}

/// The exports that the command line requests.
fn outputs(cli: &Cli, options: &ReportOptions) -> Vec<ExportRequest> {
    let kind = |name: &str| KINDS.iter().find(|kind| kind.name == name);
    let named = [
        ("jsonl", &options.jsonl),
        ("chrome", &options.chrome),
        ("perfetto", &options.perfetto),
        ("folded", &options.folded),
        ("otlp", &options.otlp),
    ];
    let named = named.into_iter().filter_map(|(name, dest)| {
        Some(ExportRequest { kind: kind(name)?, dest: dest.clone()?, only_new: false })
    });
    cli.export.iter().cloned().chain(named).collect()
}

fn open_all(outputs: &[ExportRequest], per: Option<&Per>, run: &Run) -> Result<Vec<Conversion>> {
    let run = Arc::new(run.clone());
    let open = |request: &ExportRequest| {
        let what = format!("{}={}", request.kind.name, request.dest);
        let open = request.kind.open.context("a recording has no metrics to be scraped");
        let dest = Destination::new(&request.dest, None).of_a_recording().with_traces(per.cloned());
        let exporter = open.and_then(|open| open.open(&dest, &run)).with_context(|| what.clone())?;
        Ok(Conversion { what, dest, exporter })
    };
    outputs.iter().map(open).collect()
}

/// Data of the text report.
#[derive(Default)]
struct Report {
    summary: Summary,
    timeline: Timeline,
    slowest: Vec<SlowCall>,
}

struct SlowCall {
    record: Record,
    /// Duration without nested calls, the sort key, so that a call and its enclosing call are not both listed.
    self_ns: u64,
    /// Name of the enclosing call.
    around: Option<Arc<str>>,
}

impl Report {
    fn add(&mut self, record: &Record) {
        let self_ns = self.summary.add(record);
        let Some(span) = record.span().filter(|_| !record.is_range() && !record.is_idle()) else { return };
        self.timeline.add(record);
        for slow in &mut self.slowest {
            if slow.record.span().is_some_and(|inner| inner.parent_id == span.span_id) {
                slow.around = Some(record.name.clone());
            }
        }
        if self.slowest.len() < SLOWEST || self.slowest.last().is_some_and(|last| self_ns > last.self_ns) {
            let at = self.slowest.partition_point(|known| known.self_ns >= self_ns);
            self.slowest.insert(at, SlowCall { record: record.clone(), self_ns, around: None });
            self.slowest.truncate(SLOWEST);
        }
    }

    /// A table as comma-separated values.
    fn csv(&self, name: &str) -> String {
        let tables = tables::tables(&self.summary);
        tables.iter().find(|table| table.name == name).map_or(String::new(), tables::Table::csv)
    }

    /// A JSON object with all tables.
    fn json(&self, title: &str, recording: &Recording) -> String {
        let Recording { run, ended, .. } = recording;
        let mut out = String::from("{");
        for (key, text) in [("recording", title), ("tool", &run.tool), ("host", &run.host)] {
            let _ = write!(out, "\"{key}\":");
            json::string(&mut out, text);
            out.push(',');
        }
        out.push_str("\"command\":");
        json::list(&mut out, run.command.iter(), |out, word| json::string(out, word));
        let (dropped, cut) = (dropped(recording), *ended == RecordingEnd::Cut);
        let summary = &self.summary;
        let _ = write!(
            out,
            ",\"length_ns\":{},\"threads\":{},\"driver_calls\":{},\"runtime_calls\":{},\"launches\":{},\"graph_launches\":{},\
             \"frees\":{},\"blocks_left\":{},\"failures\":{},\"dropped\":{dropped},\"cut\":{cut},\"warnings\":",
            summary.length_ns(),
            summary.threads.len(),
            summary.calls.1,
            summary.calls.0,
            summary.launches(),
            summary.graph_launches.count - summary.graph_launches.errors,
            summary.frees,
            summary.leaked(),
            summary.failures(),
        );
        json::list(&mut out, summary.losses.iter(), |out, text| json::string(out, text));
        for table in tables::tables(summary) {
            let _ = write!(out, ",\"{}\":", table.name);
            table.json(&mut out);
        }
        out + "}\n"
    }

    fn text(&self, recording: &Recording) -> String {
        let mut out = heading(recording);
        if !self.summary.versions.is_empty() {
            let versions = self.summary.versions.iter().map(|(name, version)| format!("{name} {version}"));
            out += &format!("{}\n", versions.collect::<Vec<_>>().join(", "));
        }
        self.summary.losses.iter().for_each(|loss| out += &format!("warning: {loss}\n"));
        out += "\n";
        let columns = terminal::known_columns().unwrap_or(COLUMNS);
        for line in self.summary.short().lines() {
            let is_long = line.chars().count() > columns;
            out += &if is_long { terminal::wrap(line, columns, 14) } else { line.to_owned() };
            out.push('\n');
        }
        out += &self.summary.tables(ROWS, columns);
        if self.summary.spans > 0 {
            out += &self.slowest_calls(columns);
            out += "\nTIMELINE\n";
            out += &self.timeline.draw(columns.saturating_sub(34).clamp(20, 200), ROWS);
        }
        // Names, hosts and commands are from the file, which is untrusted.
        out.lines().map(|line| report::value::escape(line.as_bytes()) + "\n").collect()
    }

    fn slowest_calls(&self, columns: usize) -> String {
        let first = self.summary.window.map_or(0, |(first, _)| first);
        let mut out = String::from("\nSLOWEST CALLS (by their own time)\n");
        out += &format!("{:>12} {:>10}  {:<17} {:<28} DETAILS\n", "AT", "TOOK", "THREAD", "FUNCTION");
        for SlowCall { record, around, .. } in &self.slowest {
            let (Some(span), Some(thread)) = (record.span(), &record.thread) else { continue };
            let result = span.result.as_ref().filter(|_| span.status != report::export::Status::Ok);
            let result = result.map(|result| result.label());
            let around = around.as_ref().map(|around| format!("in {around}"));
            let fields = record
                .fields
                .iter()
                .filter(|(name, _)| report::recording::summary::is_informative(record, name));
            let fields = fields.map(|(name, value)| format!("{name}={}", value.label()));
            let details: Vec<String> = result.into_iter().chain(around).chain(fields).collect();
            let details = report::value::escape(details.join(" ").as_bytes());
            let line = format!(
                "{:>12} {:>10}  {:<17} {:<28} {}",
                time(record.time_ns.saturating_sub(first)),
                time(record.duration_ns()),
                format!("{}/{}", thread.pid, thread.tid),
                report::recording::summary::cut(&report::value::escape(record.name.as_bytes()), 28),
                report::recording::summary::cut(&details, columns.saturating_sub(72).max(24)),
            );
            out += line.trim_end();
            out.push('\n');
        }
        out
    }
}

/// The lines about the recording itself: program, place, time, and whether it is whole.
fn heading(recording: &Recording) -> String {
    let Recording { run, ended, unreadable } = recording;
    let started = jiff::Timestamp::from_nanosecond(run.wall_ns(run.start_ns)).ok();
    let started = started.map_or(String::new(), |time| {
        time.to_zoned(jiff::tz::TimeZone::system()).strftime("%F %T").to_string()
    });
    let command = report::value::escape(words(&run.command).as_bytes());
    let mut out = format!("{} on {}, {started}, {command}\n", run.tool, run.host);
    if !run.environment.is_empty() {
        let known = run.environment.iter().map(|(name, value)| format!("{name} {value}"));
        out += &format!("{}\n", known.collect::<Vec<_>>().join(", "));
    }
    match ended {
        RecordingEnd::Cut => out += "the recording was cut off; what follows is what there is\n",
        RecordingEnd::Whole { dropped: 0, .. } => {}
        RecordingEnd::Whole { dropped, .. } => {
            out += &format!("{dropped} records were dropped while it was made\n")
        }
    }
    if let Some(UnreadableLines { first, reason, count }) = unreadable {
        out += &format!("{count} lines cannot be read, the first is line {first}: {reason}\n");
    }
    out
}

fn words(command: &[String]) -> String {
    if command.is_empty() { "running processes".into() } else { shell_words::join(command) }
}

//! Text output, equal to bpftrace's for maps, histograms and `printf`.
//!
//! Output of the script goes to one writer; messages about the run (attached probes, losses) go to another. With several scripts
//! each line has the script's name: `kernels  | `.

use std::io::{self, Write};

use wire::decode::Header;
use wire::manifest::{HiddenValue, Place};
use wire::map::{Agg, Map, MapValue};
use wire::{Manifest, Value};

use crate::losses::{Finding, findings, still_running};
use crate::map_order::{shown, wide};
use crate::printed::{Diagnostic, ExportValues, RecordOutput};
use crate::printf::printf;
use crate::test_results::Table;
use crate::value::{Context, escape};
use crate::{Cell, Loss, Names, Output, Sink, Snapshot, hist, time_series};

mod lines;

use lines::Lines;

/// Sink of text to `out`, and of notices to `notices`.
pub struct TextSink<W, N> {
    out: Lines<W>,
    notices: N,
    quiet: bool,
    hides_warnings: bool,
    /// Files that the user has not written.
    foreign: Vec<String>,
    tests: Table,
}

impl<W: Write, N: Write> TextSink<W, N> {
    /// Creates the sink. `quiet` omits the number of attached probes; losses are still reported.
    pub fn new(out: W, notices: N, quiet: bool) -> TextSink<W, N> {
        let (hides_warnings, foreign) = (false, Vec::new());
        TextSink { out: Lines::new(out), notices, quiet, hides_warnings, foreign, tests: Table::default() }
    }

    /// Omits positions in these files from reports of losses: the user has not written them.
    pub fn omit_places_in(self, foreign: Vec<String>) -> TextSink<W, N> {
        TextSink { foreign, ..self }
    }

    /// Whether to omit the output of `warnf`.
    pub fn hide_warnings(self, hides_warnings: bool) -> TextSink<W, N> {
        TextSink { hides_warnings, ..self }
    }

    fn print(&mut self, context: Context, header: &Header, printed: &RecordOutput) -> io::Result<()> {
        match printed {
            RecordOutput::Formatted(format, values) => self.out.write_all(&printf(format, values, context)),
            RecordOutput::Heading(text) => self.out.write_all(text),
            RecordOutput::Joined(text) => self.out.write_all(&[text.as_slice(), b"\n"].concat()),
            RecordOutput::Error(error) => self.diagnostic(context, "ERROR", error),
            RecordOutput::Warning(_) if self.hides_warnings => Ok(()),
            RecordOutput::Warning(warning) => self.diagnostic(context, "WARNING", warning),
            RecordOutput::Values(values) => {
                values.iter().try_for_each(|value| writeln!(self.out, "{}", context.text(value)))
            }
            RecordOutput::Entry(map, key, cell) => match context.manifest.maps.get(*map as usize) {
                Some(map) => self.entry(context, map, key, *cell, 1),
                None => Ok(()),
            },
            RecordOutput::Time(text) => self.out.write_all(text.as_bytes()),
            RecordOutput::NoRows(text, _) => self.out.write_all(&[text, &b"\n"[..]].concat()),
            RecordOutput::MoreRows(count) => writeln!(self.out, "... {} more", context.text(count)),
            RecordOutput::ExportValues(exported) => self.exported(context, header, exported),
        }
    }

    /// `leak.ct:3:5-17: WARNING: low memory`, and a line for each call of a macro that the statement is in
    fn diagnostic(&mut self, context: Context, level: &str, diagnostic: &Diagnostic) -> io::Result<()> {
        let at = |place: Place, end_column: u32| {
            let file = context.manifest.file_of(place);
            let end = match end_column {
                0 => String::new(),
                column => format!("-{column}"),
            };
            format!("{file}:{}:{}{end}", place.line, place.column)
        };
        let text = String::from_utf8_lossy(&diagnostic.text);
        writeln!(self.notices, "{}: {level}: {text}", at(diagnostic.place, diagnostic.end_column))?;
        diagnostic.calls.iter().try_for_each(|call| {
            writeln!(self.notices, "{}: {level}: expanded from this call", at(call.place, call.end_column))
        })
    }

    /// `span cuMemAlloc_v2 [python 7/8] 74120 ns CUDA_SUCCESS bytes=4096`
    fn exported(&mut self, context: Context, header: &Header, exported: &ExportValues) -> io::Result<()> {
        let name = exported.display_name(context);
        let name = escape(name.as_bytes());
        let mut line = format!("{} {name} [{}/{}]", exported.function(), header.tgid, header.tid);
        if let Some(duration) = exported.hidden(HiddenValue::Duration) {
            line += &format!(" {} ns", context.text(duration));
        }
        for value in
            [HiddenValue::Result, HiddenValue::Number].into_iter().filter_map(|which| exported.hidden(which))
        {
            line += &format!(" {}", context.text(value));
        }
        for (key, value) in exported.fields() {
            line += &format!(" {key}={}", context.text(value));
        }
        writeln!(self.out, "{line}")
    }

    fn map(&mut self, context: Context, snapshot: &Snapshot) -> io::Result<()> {
        let Some(map) = context.manifest.maps.get(snapshot.map as usize) else { return Ok(()) };
        for (key, cell) in shown(context, snapshot) {
            self.entry(context, map, key, Some(cell), snapshot.div.max(1))?;
        }
        Ok(())
    }

    /// An entry with several lines is separated from the next by an empty line.
    fn entry(
        &mut self,
        context: Context,
        map: &Map,
        key: &[Value],
        cell: Option<&Cell>,
        div: u32,
    ) -> io::Result<()> {
        self.out.write_all(entry(context, map, key, cell, div).as_bytes())?;
        if matches!(cell, Some(Cell::Buckets { .. } | Cell::Series(_))) {
            self.out.separate();
        }
        Ok(())
    }

    fn losses(&mut self, manifest: &Manifest, losses: &[Loss]) -> io::Result<()> {
        // On a terminal, reports must follow the output that they refer to.
        self.out.flush()?;
        let mut running: Vec<(String, Vec<Finding>)> = vec![];
        for finding in findings(manifest, losses) {
            let place = self.place(manifest, finding.place);
            if finding.running.is_some() {
                match running.iter_mut().find(|(known, _)| *known == place) {
                    Some((_, same)) => same.push(finding),
                    None => running.push((place, vec![finding])),
                }
                continue;
            }
            let kind = if finding.wrong { "error" } else { "warning" };
            writeln!(self.notices, "{kind}: {place}{}", finding.message)?;
        }
        for (place, same) in running {
            writeln!(self.notices, "note: {place}{}", still_running(&same))?;
        }
        Ok(())
    }

    /// The text before a message on a place of a script: none in files that the user has not written.
    fn place(&self, manifest: &Manifest, place: Place) -> String {
        let file = manifest.file_of(place);
        match place {
            Place { line: 0, .. } => String::new(),
            at if self.foreign.iter().any(|foreign| foreign == file) => match manifest.script_of(at) {
                "" => String::new(),
                script => format!("{script}: "),
            },
            Place { line, column, .. } => format!("{file}:{line}:{column}: "),
        }
    }
}

impl<W: Write, N: Write> Sink for TextSink<W, N> {
    fn output(&mut self, manifest: &Manifest, names: &dyn Names, output: &Output) -> io::Result<()> {
        let context = Context { manifest, names, verbatim: false };
        match output {
            Output::Attached { .. } if self.quiet => Ok(()),
            Output::Attached { probes } => {
                writeln!(self.notices, "Attached {probes} probe{}", if *probes == 1 { "" } else { "s" })
            }
            Output::Event { header, values, cell } => {
                RecordOutput::of(context, header, values, cell.as_ref())
                    .map_or(Ok(()), |printed| self.print(context, header, &printed))
            }
            Output::Fetched { text: Ok(text), .. } => self.out.write_all(text),
            Output::Fetched { text: Err(reason), .. } => writeln!(self.notices, "warning: {reason}"),
            Output::Script(script) => {
                let width = manifest.sources.iter().map(|source| source.script.len()).max().unwrap_or(0);
                self.out.begin_with(format!("{script:<width$} | "))
            }
            Output::Map(snapshot) => self.map(context, snapshot),
            Output::Table(_, table) => self.out.write_all(table.draw(context).as_bytes()),
            Output::Tests(step) => self.out.write_all(&self.tests.lines(step)),
            Output::End => {
                self.out.begin_with(String::new())?;
                // As bpftrace does, also if no map follows.
                if manifest.print_maps_on_exit { self.out.end() } else { Ok(()) }
            }
            Output::Losses(losses) => self.losses(manifest, losses),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()?;
        self.notices.flush()
    }
}

/// `@x[k]: 3` with its newline; the rows of a histogram follow.
fn entry(context: Context, map: &Map, key: &[Value], cell: Option<&Cell>, div: u32) -> String {
    let name = context.entry_name(&map.name, key);
    let Some(cell) = cell else { return format!("{name}: {}\n", missing(&map.value)) };
    match (cell, &map.value) {
        (Cell::Buckets { counts, .. }, MapValue::Agg(agg)) => {
            let mut rows = hist::rows(agg, counts);
            // bpftrace divides the counts of a hist, but not of an lhist.
            if matches!(agg, Agg::Hist { .. }) {
                rows.iter_mut().for_each(|row| row.count /= u64::from(div));
            }
            format!("{name}:\n{}", hist::draw(agg, &rows))
        }
        (Cell::Series(points), MapValue::Agg(Agg::TSeries { interval, .. })) => {
            format!("{name}:\n{}", time_series::draw(points, *interval, div, context.names))
        }
        _ => format!("{name}: {}\n", cell_text(context, cell, div)),
    }
}

/// The text for a missing key.
fn missing(value: &MapValue) -> &'static str {
    match value {
        MapValue::Plain(wire::Type::Str(_)) => "",
        _ => "0",
    }
}

fn cell_text(context: Context, cell: &Cell, div: u32) -> String {
    let divided = |bits: i64, signed: bool| wide(bits, signed) / i128::from(div);
    match cell {
        Cell::Plain(Value::Int(value, _)) => divided(*value, true).to_string(),
        Cell::Plain(Value::Uint(value, _)) => divided(*value as i64, false).to_string(),
        Cell::Plain(value) => context.text(value),
        Cell::Number { bits, signed } => divided(*bits, *signed).to_string(),
        Cell::Stats { count, total, signed } => {
            let total = divided(*total, *signed);
            let average = total / i128::from((*count).max(1));
            format!("{{ .count = {count}, .average = {average}, .total = {total} }}")
        }
        Cell::Buckets { .. } | Cell::Series(_) => String::new(),
    }
}

#[cfg(test)]
mod tests;

//! One JSON object per line, in bpftrace's shapes.
//!
//! ```text
//! {"type": "map", "data": {"@x": {"k,2": 3}}}
//! ```
//!
//! Integers beyond 2^53, which a double cannot represent in general, are strings. Control characters in strings of the traced process
//! are JSON escapes; bytes that are not UTF-8 become U+FFFD, so that every line is valid JSON.

use std::collections::HashMap;
use std::io::{self, Write};

use wire::decode::Header;
use wire::manifest::{HiddenValue, MacroCall, Message, Piece, Place};
use wire::map::{Agg, Map, MapValue};
use wire::types::Lookup;
use wire::{Manifest, Value};

use crate::export::json;
use crate::hist::{self, Row};
use crate::losses::findings;
use crate::map_order::{shown, wide};
use crate::printed::{Diagnostic, ExportValues, RecordOutput};
use crate::printf::{named, printf};
use crate::table::{self, Table};
use crate::test_results::{Step, TestResult};
use crate::value::{Context, key_parts};
use crate::{Cell, Loss, Names, Output, Sink, Snapshot, units};

/// Sink of JSON lines to `out`.
pub struct JsonSink<W> {
    out: W,
    quiet: bool,
    hides_warnings: bool,
    /// `"script": "kernels", ` if there are several scripts.
    script: String,
}

impl<W: Write> JsonSink<W> {
    /// Creates the sink. `quiet` omits the number of attached probes.
    pub fn new(out: W, quiet: bool) -> JsonSink<W> {
        JsonSink { out, quiet, hides_warnings: false, script: String::new() }
    }

    /// Whether to omit the output of `warnf`.
    pub fn hide_warnings(self, hides_warnings: bool) -> JsonSink<W> {
        JsonSink { hides_warnings, ..self }
    }

    fn line(&mut self, kind: &str, data: &str) -> io::Result<()> {
        writeln!(self.out, "{{\"type\": \"{kind}\", {}\"data\": {data}}}", self.script)
    }

    fn print(&mut self, context: Context, header: &Header, printed: &RecordOutput) -> io::Result<()> {
        match printed {
            RecordOutput::Formatted(format, values) => self.formatted(context, format, values),
            RecordOutput::Heading(_) => Ok(()),
            RecordOutput::Joined(text) => self.line("join", &string(text)),
            RecordOutput::Error(error) => self.diagnostic(context, "errorf", error),
            RecordOutput::Warning(_) if self.hides_warnings => Ok(()),
            RecordOutput::Warning(warning) => self.diagnostic(context, "warnf", warning),
            RecordOutput::Values(values) => {
                values.iter().try_for_each(|value| self.line("value", &value_json(context, value)))
            }
            RecordOutput::Entry(map, key, cell) => {
                let cell = cell.cloned().unwrap_or(Cell::Number { bits: 0, signed: false });
                self.map(context, *map, &[&(key.to_vec(), cell)], 1)
            }
            RecordOutput::Time(text) => self.line("time", &string(text.as_bytes())),
            RecordOutput::NoRows(_, name) => self.table_line(name, "[]"),
            RecordOutput::MoreRows(count) => self.line("more_rows", &value_json(context, count)),
            RecordOutput::ExportValues(exported) => self.exported(context, header, exported),
        }
    }

    fn diagnostic(&mut self, context: Context, kind: &str, diagnostic: &Diagnostic) -> io::Result<()> {
        let msg = string(&diagnostic.text);
        let file = string(context.manifest.file_of(diagnostic.place).as_bytes());
        let Place { line, column, .. } = diagnostic.place;
        let call = |call: &MacroCall| {
            let file = string(context.manifest.file_of(call.place).as_bytes());
            format!("{{\"filename\": {file}, \"line\": {}, \"col\": {}}}", call.place.line, call.place.column)
        };
        let calls: Vec<String> = diagnostic.calls.iter().map(call).collect();
        let calls = match calls.is_empty() {
            true => String::new(),
            false => format!(", \"expanded_from\": [{}]", calls.join(", ")),
        };
        writeln!(
            self.out,
            "{{\"type\": \"{kind}\", \"msg\": {msg}, \"filename\": {file}, \"line\": {line}, \"col\": {column}{calls}}}"
        )
    }

    fn exported(&mut self, context: Context, header: &Header, exported: &ExportValues) -> io::Result<()> {
        let name = exported.display_name(context);
        let mut members = vec![
            ("name", string(name.as_bytes())),
            ("time", number(i128::from(header.time_ns))),
            ("pid", header.tgid.to_string()),
            ("tid", header.tid.to_string()),
        ];
        let known = [("duration", HiddenValue::Duration), ("value", HiddenValue::Number)];
        let known = known.into_iter().filter_map(|(key, which)| Some((key, exported.hidden(which)?)));
        members.extend(known.chain(exported.fields()).map(|(key, value)| (key, value_json(context, value))));
        let result = exported.hidden(HiddenValue::Result);
        members.extend(result.map(|result| ("result", string(context.text(result).as_bytes()))));
        let members: Vec<String> =
            members.iter().map(|(key, value)| format!("{}: {value}", string(key.as_bytes()))).collect();
        self.line(exported.function(), &format!("{{{}}}", members.join(", ")))
    }

    /// Writes a text, or an object if the values have names.
    fn formatted(&mut self, context: Context, format: &[Piece], values: &[Value]) -> io::Result<()> {
        match named(format, values) {
            Some(cells) => {
                let names = table::names_with_units(std::slice::from_ref(cells));
                self.line("row", &row(context, &names, cells))
            }
            None => self.line("printf", &string(&printf(format, values, context))),
        }
    }

    /// Writes a table as an array of objects.
    fn table(&mut self, context: Context, table: &Table) -> io::Result<()> {
        let all = table.rows();
        let names = table::names_with_units(all);
        let rows: Vec<String> = all.iter().map(|cells| row(context, &names, cells)).collect();
        self.table_line(table.name(), &format!("[{}]", rows.join(", ")))
    }

    fn table_line(&mut self, name: &str, rows: &str) -> io::Result<()> {
        let script = &self.script;
        match name {
            "" => self.line("table", rows),
            name => writeln!(
                self.out,
                "{{\"type\": \"table\", \"name\": {}, {script}\"data\": {rows}}}",
                string(name.as_bytes())
            ),
        }
    }

    fn snapshot(&mut self, context: Context, snapshot: &Snapshot) -> io::Result<()> {
        let entries = shown(context, snapshot);
        if entries.is_empty() {
            let map = context.manifest.maps.get(snapshot.map as usize);
            return map.filter(|map| is_histogram(map)).map_or(Ok(()), |map| self.no_buckets(map));
        }
        self.map(context, snapshot.map, &entries, snapshot.div.max(1))
    }

    fn map(
        &mut self,
        context: Context,
        map: u32,
        entries: &[&(Vec<Value>, Cell)],
        div: u32,
    ) -> io::Result<()> {
        let Some(map) = context.manifest.maps.get(map as usize) else { return Ok(()) };
        let cell = |cell: &Cell| cell_json(context, map, cell, div);
        let data = match entries {
            [(key, only)] if key.is_empty() => cell(only),
            entries => {
                let keys = keys_json(context, entries.iter().map(|(key, _)| key.as_slice()));
                let pairs: Vec<String> = keys
                    .iter()
                    .zip(entries)
                    .map(|(key, (_, value))| format!("{key}: {}", cell(value)))
                    .collect();
                format!("{{{}}}", pairs.join(", "))
            }
        };
        let name = string(format!("@{}", map.name).as_bytes());
        self.line(kind(map), &format!("{{{name}: {data}}}"))
    }

    /// Writes a printed histogram without samples.
    fn no_buckets(&mut self, map: &Map) -> io::Result<()> {
        let name = string(format!("@{}", map.name).as_bytes());
        self.line(kind(map), &format!("{{{name}: []}}"))
    }

    fn test_step(&mut self, step: &Step) -> io::Result<()> {
        let of = |name: &str, data: String| format!("{{{}: {{{data}}}}}", string(name.as_bytes()));
        match step {
            Step::Begin { .. } | Step::End { .. } => Ok(()),
            Step::Test(TestResult { name, passed, ns, output }) => {
                let output = string(output);
                let data = format!("\"duration\": {ns}, \"passed\": {passed}, \"output\": {output}");
                self.line("test_result", &of(name, data))
            }
            Step::Bench { name, average_ns, runs } => {
                let data = format!("\"average\": {average_ns}, \"iters\": {runs}");
                self.line("benchmark_result", &of(name, data))
            }
        }
    }

    fn losses(&mut self, manifest: &Manifest, losses: &[Loss]) -> io::Result<()> {
        let (lost, others): (Vec<_>, Vec<_>) =
            findings(manifest, losses).into_iter().partition(|found| found.lost);
        let events: u64 = lost.iter().map(|found| found.count).sum();
        if events > 0 {
            writeln!(
                self.out,
                "{{\"type\": \"lost_events\", \"count\": {events}, \"data\": {{\"events\": {events}}}}}"
            )?;
        }
        for found in others {
            let file = string(manifest.file_of(found.place).as_bytes());
            let msg = string(found.message.as_bytes());
            let (ty, helper) = match found.helper {
                Some((helper, code)) => {
                    ("helper_error", format!("\"helper\": \"{helper}\", \"retcode\": {code}, "))
                }
                None => ("runtime_error", String::new()),
            };
            writeln!(
                self.out,
                "{{\"type\": \"{ty}\", \"msg\": {msg}, {helper}\"count\": {}, \"filename\": {file}, \"line\": {}, \"col\": {}}}",
                found.count, found.place.line, found.place.column
            )?;
        }
        Ok(())
    }
}

impl<W: Write> Sink for JsonSink<W> {
    fn output(&mut self, manifest: &Manifest, names: &dyn Names, output: &Output) -> io::Result<()> {
        let context = Context { manifest, names, verbatim: true };
        match output {
            Output::Attached { .. } if self.quiet => Ok(()),
            Output::Attached { probes } => writeln!(
                self.out,
                "{{\"type\": \"attached_probes\", \"count\": {probes}, \"data\": {{\"probes\": {probes}}}}}"
            ),
            Output::Event { header, values, cell } => {
                RecordOutput::of(context, header, values, cell.as_ref())
                    .map_or(Ok(()), |printed| self.print(context, header, &printed))
            }
            Output::Fetched { what, text: Ok(text) } => {
                self.line(if *what == Message::Cat { "cat" } else { "syscall" }, &string(text))
            }
            Output::Fetched { text: Err(reason), .. } => {
                writeln!(self.out, "{{\"type\": \"runtime_error\", \"msg\": {}}}", string(reason.as_bytes()))
            }
            Output::Script(script) => {
                self.script = format!("\"script\": {}, ", string(script.as_bytes()));
                Ok(())
            }
            Output::Map(snapshot) => self.snapshot(context, snapshot),
            Output::Table(_, table) => self.table(context, table),
            Output::Tests(step) => self.test_step(step),
            Output::End => {
                self.script.clear();
                Ok(())
            }
            Output::Losses(losses) => self.losses(manifest, losses),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Whether the map is a histogram without keys.
fn is_histogram(map: &Map) -> bool {
    map.key.is_empty() && matches!(&map.value, MapValue::Agg(Agg::Hist { .. } | Agg::LHist { .. }))
}

/// Type of the line, by the map's value.
fn kind(map: &Map) -> &'static str {
    match map.value {
        MapValue::Agg(Agg::Avg { .. } | Agg::Stats { .. }) => "stats",
        MapValue::Agg(Agg::Hist { .. } | Agg::LHist { .. }) => "hist",
        MapValue::Agg(Agg::TSeries { .. }) => "tseries",
        _ => "map",
    }
}

/// An object with the cells of a row, under these names. Cells whose names begin with `_` are only for people, and omitted.
fn row(context: Context, names: &[String], cells: &[(String, Value)]) -> String {
    let cell = |(name, (_, value)): (&String, &(String, Value))| {
        format!("{}: {}", string(name.as_bytes()), cell_of_table(context, value))
    };
    let known = names.iter().zip(cells).filter(|(name, _)| !name.starts_with('_'));
    format!("{{{}}}", known.map(cell).collect::<Vec<_>>().join(", "))
}

/// A cell: sizes in bytes, times in ns, results as names; a cell without a value is null.
fn cell_of_table(context: Context, value: &Value) -> String {
    match value {
        Value::Lookup(Lookup::Size | Lookup::Time, number_of) => number(i128::from(*number_of)),
        Value::Lookup(Lookup::Percent, tenths) => units::tenths(*tenths),
        Value::Either(_, value, _) => cell_of_table(context, value),
        Value::Enum(..) => string(context.text(value).as_bytes()),
        nothing if table::is_nothing(nothing) => "null".into(),
        other => value_json(context, other),
    }
}

fn cell_json(context: Context, map: &Map, cell: &Cell, div: u32) -> String {
    let divided = |bits: i64, signed: bool| wide(bits, signed) / i128::from(div);
    match (cell, &map.value) {
        (Cell::Plain(Value::Int(value, _)), _) => number(divided(*value, true)),
        (Cell::Plain(Value::Uint(value, _)), _) => number(divided(*value as i64, false)),
        (Cell::Plain(value), _) => value_json(context, value),
        (Cell::Number { bits, signed }, _) => number(divided(*bits, *signed)),
        (Cell::Stats { count, total, signed }, _) => {
            let total = divided(*total, *signed);
            let average = number(total / i128::from((*count).max(1)));
            format!(
                "{{\"count\": {}, \"average\": {average}, \"total\": {}}}",
                number(i128::from(*count)),
                number(total)
            )
        }
        (Cell::Buckets { counts, .. }, MapValue::Agg(agg)) => {
            let scale = if matches!(agg, Agg::Hist { .. }) { u64::from(div) } else { 1 };
            let rows: Vec<String> = hist::rows(agg, counts).iter().map(|row| row_json(row, scale)).collect();
            format!("[{}]", rows.join(","))
        }
        (Cell::Buckets { .. }, MapValue::Plain(_)) => "[]".into(),
        (Cell::Series(points), _) => {
            let point = |point: &crate::Point| {
                let wall = context.names.wall_clock_ns(point.start_ns);
                let start = context.names.strftime("%Y-%m-%d %H:%M:%S.%f", wall);
                let value = number(divided(point.bits, point.signed));
                format!("{{\"interval_start\":\"{start}{:03}\",\"value\":{value}}}", wall.rem_euclid(1000))
            };
            format!("[{}]", points.iter().map(point).collect::<Vec<_>>().join(","))
        }
    }
}

/// A bucket. Bounds are inclusive; an open bound is omitted.
fn row_json(row: &Row, scale: u64) -> String {
    let low = row.low.map_or(String::new(), |low| format!("\"min\": {}, ", number(i128::from(low))));
    let high = row.high.map_or(String::new(), |high| format!("\"max\": {}, ", number(i128::from(high) - 1)));
    format!("{{{low}{high}\"count\": {}}}", number(i128::from(row.count / scale)))
}

fn value_json(context: Context, value: &Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::Int(value, _) | Value::Enum(_, value) => number(i128::from(*value)),
        Value::Uint(value, _) | Value::Pointer(value) => number(i128::from(*value)),
        Value::Buf(bytes) => {
            let bytes: Vec<String> = bytes.iter().map(u8::to_string).collect();
            format!("[{}]", bytes.join(","))
        }
        Value::Tuple(parts) => {
            let parts: Vec<String> = parts.iter().map(|part| value_json(context, part)).collect();
            format!("[{}]", parts.join(","))
        }
        Value::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(|element| value_json(context, element)).collect();
            format!("[{}]", elements.join(","))
        }
        Value::Record(members) => {
            let member = |(name, value): &(String, Value)| {
                format!("{}: {}", string(name.as_bytes()), value_json(context, value))
            };
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
        Value::Str(bytes, cut) => {
            let trailer = if *cut { context.manifest.truncation_trailer.as_bytes() } else { b"" };
            string(&[bytes, trailer].concat())
        }
        Value::Either(_, value, _) => value_json(context, value),
        Value::Lookup(Lookup::Float, bits) if f32::from_bits(*bits as u32).is_finite() => units::float(*bits),
        Value::Lookup(Lookup::Double, bits) if f64::from_bits(*bits as u64).is_finite() => {
            units::double(*bits)
        }
        other => string(context.text(other).as_bytes()),
    }
}

/// The keys of a map, each once: readers keep only the last of several members with one name. If shortened names of GPU kernels collide, the mangled
/// names are used; other equal texts, such as the names of two processes, are numbered.
fn keys_json<'k>(context: Context, keys: impl Iterator<Item = &'k [Value]> + Clone) -> Vec<String> {
    let short: Vec<String> = keys.clone().map(|key| key_json(context, key)).collect();
    let mut times: HashMap<&str, usize> = HashMap::new();
    short.iter().for_each(|text| *times.entry(text).or_default() += 1);
    let distinct = |(key, text): (&[Value], &String)| match times[text.as_str()] {
        1 => text.clone(),
        _ => key_json(context, &key.iter().map(mangled).collect::<Vec<_>>()),
    };
    let quoted: Vec<String> = keys.zip(&short).map(distinct).collect();
    let texts = quoted.into_iter().map(|text| text[1..text.len() - 1].to_owned()).collect();
    units::distinct(texts).into_iter().map(|text| format!("\"{text}\"")).collect()
}

/// A value with mangled names of GPU kernels.
fn mangled(value: &Value) -> Value {
    match value {
        Value::Lookup(Lookup::Kernel | Lookup::KernelFull, id) => Value::Lookup(Lookup::KernelMangled, *id),
        Value::Tuple(parts) => Value::Tuple(parts.iter().map(mangled).collect()),
        other => other.clone(),
    }
}

/// `"k,2"`; a nested tuple is in parentheses.
fn key_json(context: Context, key: &[Value]) -> String {
    string(&join(context, key_parts(key)))
}

fn join(context: Context, parts: &[Value]) -> Vec<u8> {
    let texts: Vec<Vec<u8>> = parts
        .iter()
        .map(|part| match part {
            Value::Tuple(parts) => [b"(", join(context, parts).as_slice(), b")"].concat(),
            Value::Str(bytes, false) => bytes.clone(),
            other => context.text(other).into_bytes(),
        })
        .collect();
    texts.join(&b","[..])
}

/// An integer, as a string if a double cannot represent it.
fn number(value: i128) -> String {
    let mut out = String::new();
    json::integer(&mut out, value);
    out
}

/// A JSON string.
fn string(bytes: &[u8]) -> String {
    let mut out = String::new();
    json::string(&mut out, &String::from_utf8_lossy(bytes));
    out
}

#[cfg(test)]
mod tests;

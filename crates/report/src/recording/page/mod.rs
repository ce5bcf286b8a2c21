//! A self-contained HTML page about a recording: data, styles and program in one file, no network.
//!
//! The page has every span of a recording of up to ten million spans. Of further ones it has the busy time by row and bin of time, and
//! a sentence about them. Spans are columns (`columns.rs`), which the browser decompresses; the program is in `js`, one file after the
//! other.

mod areas;
mod arguments;
mod columns;
mod density;
mod flame_graph;
mod pair;
mod rows;
mod spans;
mod tables;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod texts;

use areas::Areas;
use arguments::Arguments;
use density::Density;
use flame_graph::FlameGraph;
pub use pair::pair;
use rows::Rows;
use spans::Spans;
use std::fmt::Write as _;

use crate::export::{Kind, Record, json};
use crate::recording::summary::Summary;
use crate::recording::{Recording, RecordingEnd};

/// Number of spans that the page has one by one.
const SPANS: usize = 10_000_000;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const PROGRAM: [&str; 14] = [
    include_str!("js/words.js"),
    include_str!("js/columns.js"),
    include_str!("js/spans.js"),
    include_str!("js/arguments.js"),
    include_str!("js/series.js"),
    include_str!("js/rows.js"),
    include_str!("js/search.js"),
    include_str!("js/draw.js"),
    include_str!("js/tables.js"),
    include_str!("js/range.js"),
    include_str!("js/flame.js"),
    include_str!("js/timeline.js"),
    include_str!("js/views.js"),
    include_str!("js/main.js"),
];

/// Collector of the page's data.
#[derive(Debug)]
pub struct Page {
    rows: Rows,
    spans: Spans,
    arguments: Arguments,
    areas: Areas,
    stacks: FlameGraph,
    /// Spans after the first `limit` ones.
    rest: Density,
    limit: usize,
}

impl Default for Page {
    fn default() -> Page {
        let (rows, spans, arguments, areas, stacks, rest) = Default::default();
        Page { rows, spans, arguments, areas, stacks, rest, limit: SPANS }
    }
}

impl Page {
    /// Adds a record.
    pub fn add(&mut self, record: &Record) {
        self.areas.add(record);
        let Kind::Span(_) = &record.kind else { return };
        self.stacks.add(record);
        let row = self.rows.row(record);
        match self.spans.len() < self.limit {
            true => self.spans.add(record, row, &mut self.arguments),
            false => self.rest.add(record, row),
        }
    }

    /// The page as HTML.
    pub fn html(&self, title: &str, recording: &Recording, summary: &Summary) -> String {
        let (first, last) = summary.window.unwrap_or((recording.run.start_ns, recording.run.start_ns));
        let order = self.spans.order(&self.rows);
        let mut data = String::new();
        header(&mut data, title, recording, summary);
        let _ = write!(data, ",\"length\":{}", last - first);
        self.rows.header(&mut data);
        self.spans.header(&mut data, &order);
        self.arguments.header(&mut data);
        self.areas.header(&mut data);
        self.stacks.header(&mut data);
        self.rest.header(&mut data, first);
        tables::write(&mut data, summary);
        data.push('}');
        // Inside a script element no text may look like a tag; `<` occurs only in strings.
        let data = data.replace('<', "\\u003c");
        let program = PROGRAM.join("\n");
        let mut out = String::new();
        let mut rest = PAGE;
        for (marker, text) in
            [("/*STYLE*/", STYLE), ("/*DATA*/", &data), ("/*PROGRAM*/", &program), ("<!--COLUMNS-->", "")]
        {
            rest = copy_until(&mut out, rest, marker);
            out.push_str(text);
        }
        // The program reads the columns while the browser reads the page. Launches and arguments are not needed to draw, and come last.
        self.spans.columns(&order, first, |name, bytes| column(&mut out, name, bytes));
        self.areas.columns(first, |name, bytes| column(&mut out, name, bytes));
        self.rest.columns(first, |name, bytes| column(&mut out, name, bytes));
        self.stacks.columns(|name, bytes| column(&mut out, name, bytes));
        column(&mut out, "launch", &self.spans.launch_column(&order));
        let arguments = self.spans.arguments(&order, self.arguments.shapes());
        self.arguments.columns(&arguments, |name, bytes| column(&mut out, name, bytes));
        out.push_str(rest);
        out
    }
}

/// Copies a text up to a marker; returns the text after it.
fn copy_until<'t>(out: &mut String, text: &'t str, marker: &str) -> &'t str {
    let (before, after) = text.split_once(marker).unwrap_or((text, ""));
    out.push_str(before);
    after
}

/// Appends an element with a column.
fn column(out: &mut String, name: &str, bytes: &[u8]) {
    let _ = write!(out, "<script type=\"application/octet-stream\" id=\"column-{name}\">");
    columns::write(out, bytes);
    out.push_str("</script>\n");
}

/// The beginning of the page's data: the run and its losses.
fn header(out: &mut String, title: &str, recording: &Recording, summary: &Summary) {
    let run = &recording.run;
    let first = summary.window.map_or(run.start_ns, |(first, _)| first);
    out.push_str("{\"title\":");
    json::string(out, title);
    for (key, text) in [("tool", &run.tool), ("host", &run.host)] {
        let _ = write!(out, ",\"{key}\":");
        json::string(out, text);
    }
    out.push_str(",\"command\":");
    json::list(out, run.command.iter(), |out, word| json::string(out, word));
    let wall_ms = run.wall_ns(first) / 1_000_000;
    let cut = recording.ended == RecordingEnd::Cut;
    let dropped = if let RecordingEnd::Whole { dropped, .. } = recording.ended { dropped } else { 0 };
    let time = summary.length_ns();
    let _ = write!(
        out,
        ",\"wall_ms\":{wall_ms},\"time\":{time},\"cut\":{cut},\"dropped\":{dropped},\"troubles\":"
    );
    json::list(out, summary.losses.iter(), |out, text| json::string(out, text));
    out.push_str(",\"classes\":");
    json::list(out, spans::classes().iter(), |out, class| json::string(out, class));
}

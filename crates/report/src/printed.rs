//! The output of one record, independent of the format. Only this file matches on the kinds of events.
//!
//! Not here: events that the reader carries out itself (`clear`, `print(@map)`, `cat`, …), which print nothing or another
//! [`Output`](crate::Output).

use wire::Value;
use wire::decode::Header;
use wire::manifest::{EventKind, Export, HiddenValue, MacroCall, Message, Piece, Place};

use crate::Cell;
use crate::printf::printf;
use crate::value::Context;

/// The output of a record.
pub(crate) enum RecordOutput<'a> {
    /// `printf(...)`, or a `row(...)` with a format.
    Formatted(&'a [Piece], &'a [Value]),
    /// The line above the rows of a table.
    Heading(Vec<u8>),
    /// `join(...)`, without a newline.
    Joined(Vec<u8>),
    /// `errorf(...)`
    Error(Diagnostic<'a>),
    /// `warnf(...)`
    Warning(Diagnostic<'a>),
    /// `print(value)`
    Values(&'a [Value]),
    /// `print(@map[key])`: index of the map, key, and the cell if the key exists.
    Entry(u32, &'a [Value], Option<&'a Cell>),
    /// `time(...)`
    Time(String),
    /// `rows(...)` without rows: the script's text for that case, and the name of the table.
    NoRows(&'a [u8], &'a str),
    /// `rows(top)`: number of rows that are not shown.
    MoreRows(&'a Value),
    /// `span(...)`, `event(...)`, `counter(...)`
    ExportValues(ExportValues<'a>),
}

/// A message of the script about itself.
pub(crate) struct Diagnostic<'a> {
    /// The message.
    pub text: Vec<u8>,
    /// The statement.
    pub place: Place,
    /// Column after the statement, 0 if it ends on another line.
    pub end_column: u32,
    /// Calls of the macros that the statement is in, the innermost first.
    pub calls: &'a [MacroCall],
}

/// The values of a `span`, an `event` or a `counter`.
pub(crate) struct ExportValues<'a> {
    /// Which of the three.
    pub what: Export,
    /// The name, if it is constant.
    pub name: Option<&'a str>,
    /// Names of the script's own values.
    pub keys: &'a [String],
    hidden: &'a [HiddenValue],
    values: &'a [Value],
}

impl<'a> RecordOutput<'a> {
    /// Converts a record. `None` if it prints nothing by itself.
    pub(crate) fn of(
        context: Context<'a>,
        header: &Header,
        values: &'a [Value],
        cell: Option<&'a Cell>,
    ) -> Option<RecordOutput<'a>> {
        let event = context.manifest.events.get(header.event as usize)?;
        let printed = match &event.kind {
            EventKind::Printf { format } => RecordOutput::Formatted(format, values),
            EventKind::Message { what, format, end_column, calls } => {
                let text = || printf(format, values, context);
                let end_column = *end_column;
                let diagnostic = || Diagnostic { text: text(), place: event.place, end_column, calls };
                match what {
                    Message::Heading => RecordOutput::Heading(text()),
                    Message::Join => RecordOutput::Joined(text()),
                    Message::Error => RecordOutput::Error(diagnostic()),
                    Message::Warning => RecordOutput::Warning(diagnostic()),
                    // The first value is the row's weight.
                    Message::Row => RecordOutput::Formatted(format, values.get(1..).unwrap_or_default()),
                    Message::Cat | Message::System => return None,
                }
            }
            EventKind::Print => RecordOutput::Values(values),
            EventKind::PrintEntry { map } => RecordOutput::Entry(*map, values, cell),
            EventKind::Time { format } => {
                let wall = context.names.wall_clock_ns(header.time_ns);
                RecordOutput::Time(context.names.strftime(format, wall))
            }
            EventKind::Rows { none, name, .. } => {
                values.first().map_or(RecordOutput::NoRows(none, name), RecordOutput::MoreRows)
            }
            EventKind::Export { what, name, hidden, keys } => {
                let name = name.as_deref();
                RecordOutput::ExportValues(ExportValues { what: *what, name, keys, hidden, values })
            }
            EventKind::PrintMap { .. }
            | EventKind::Clear { .. }
            | EventKind::Zero { .. }
            | EventKind::Exit => return None,
        };
        Some(printed)
    }
}

impl<'a> ExportValues<'a> {
    /// Name of the function in scripts: `span`.
    pub(crate) fn function(&self) -> &'static str {
        match self.what {
            Export::Span => "span",
            Export::Instant => "event",
            Export::Counter => "counter",
        }
    }

    /// The name: constant, among the values, or the function's.
    pub(crate) fn display_name(&self, context: Context) -> String {
        let value = || self.hidden(HiddenValue::Name).or(self.hidden(HiddenValue::Func));
        let text = || value().map(|value| context.text(value)).unwrap_or_default();
        self.name.map_or_else(text, str::to_owned)
    }

    /// A value that the compiler added.
    pub(crate) fn hidden(&self, which: HiddenValue) -> Option<&'a Value> {
        self.values.get(self.hidden.iter().position(|hidden| *hidden == which)?)
    }

    /// The values from the script, in the order of `keys`.
    pub(crate) fn own(&self) -> &'a [Value] {
        self.values.get(self.hidden.len()..).unwrap_or_default()
    }

    /// The values from the script with their names.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.keys.iter().map(String::as_str).zip(self.own())
    }

    /// A hidden value that is a number.
    pub(crate) fn number(&self, which: HiddenValue) -> Option<u64> {
        match self.hidden(which)? {
            Value::Uint(value, _) | Value::Pointer(value) => Some(*value),
            Value::Int(value, _) => Some(*value as u64),
            _ => None,
        }
    }

    /// Start of the enclosing call, if there is one.
    pub(crate) fn parent_start(&self) -> Option<u64> {
        self.number(HiddenValue::ParentStart).filter(|start| *start != 0)
    }
}

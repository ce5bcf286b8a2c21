//! Arguments of spans, as columns: one for each field of the spans that have the same fields.

use super::columns::{self, Column, zigzag};
use super::texts::Texts;
use crate::export::{Data, Record, json};
use crate::recording::summary::{is_graph, is_informative};
use std::fmt::Write as _;
use std::sync::Arc;

/// Number of shapes. Spans of further ones have all arguments in one text.
const SHAPES: usize = 1000;

/// Type of a field, as the page shows it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum FieldType {
    /// A number that is not negative.
    Unsigned,
    /// A number, by [`zigzag`].
    Signed,
    /// A number in hex.
    Handle,
    /// The number of a text.
    Text,
    /// The label of the span, as of a launch its kernel. There is no column of it.
    Label,
}

impl FieldType {
    fn of(record: &Record, name: &str, value: &Data) -> FieldType {
        match value {
            Data::Uint(_) => FieldType::Unsigned,
            Data::Int(_) => FieldType::Signed,
            Data::Handle(_) => FieldType::Handle,
            Data::Text(_) if name == "kernel" && !is_graph(record) => FieldType::Label,
            _ => FieldType::Text,
        }
    }

    /// One letter, for the page.
    fn letter(self) -> &'static str {
        match self {
            FieldType::Unsigned => "u",
            FieldType::Signed => "s",
            FieldType::Handle => "h",
            FieldType::Text => "t",
            FieldType::Label => "l",
        }
    }
}

/// Fields with their types, and the values of all spans that have these.
#[derive(Debug, Default)]
struct Shape {
    fields: Vec<(Arc<str>, FieldType)>,
    columns: Vec<Column>,
    spans: u32,
}

/// Arguments of all spans; see the module documentation.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    shapes: Vec<Shape>,
    texts: Texts,
    /// The field types of the current record.
    types: Vec<FieldType>,
}

/// The name of a launched kernel, or of the span.
pub(super) fn label(record: &Record) -> &Arc<str> {
    match (record.field("kernel"), record.field("cause")) {
        (Some(Data::Text(kernel)), _) if !is_graph(record) => kernel,
        (_, Some(Data::Enum(cause))) if record.is_idle() => cause.name.as_ref().unwrap_or(&record.name),
        _ => &record.name,
    }
}

/// Fields that the page shows.
fn fields(record: &Record) -> impl Iterator<Item = (&Arc<str>, &Data)> {
    record.fields.iter().filter(|(name, _)| is_informative(record, name))
}

impl Arguments {
    /// Adds the arguments of a span; returns the number of its shape, and its own among the spans of that shape.
    pub(super) fn add(&mut self, record: &Record) -> (u32, u32) {
        let Some(number) = self.shape(record) else { return self.add_as_text(record) };
        let shape = &mut self.shapes[number];
        for ((column, (_, ty)), (_, value)) in shape.columns.iter_mut().zip(&shape.fields).zip(fields(record))
        {
            let value = match (ty, value) {
                (FieldType::Label, _) => continue,
                (FieldType::Text, Data::Text(text)) => self.texts.number(text).into(),
                (FieldType::Text, other) => self.texts.number_of(&other.label()).into(),
                (_, Data::Int(value)) => zigzag(*value),
                (_, Data::Uint(value) | Data::Handle(value)) => *value,
                _ => 0,
            };
            column.push(value);
        }
        shape.spans += 1;
        (number as u32, shape.spans - 1)
    }

    fn add_as_text(&mut self, record: &Record) -> (u32, u32) {
        let words = fields(record).map(|(name, value)| format!("{name}={}", value.label()));
        let text = self.texts.number_of(&words.collect::<Vec<_>>().join(" "));
        if self.shapes.len() == SHAPES {
            let fields = vec![(Arc::from("arguments"), FieldType::Text)];
            self.shapes.push(Shape { fields, columns: vec![Column::default()], spans: 0 });
        }
        let shape = &mut self.shapes[SHAPES];
        shape.columns[0].push(text.into());
        shape.spans += 1;
        (SHAPES as u32, shape.spans - 1)
    }

    /// The shape of a record; `None` if there are too many. Recordings have few of them, since a statement of a script makes one.
    fn shape(&mut self, record: &Record) -> Option<usize> {
        self.types.clear();
        self.types.extend(fields(record).map(|(name, value)| FieldType::of(record, name, value)));
        let is_of = |shape: &Shape| {
            shape.fields.len() == self.types.len()
                && shape.fields.iter().zip(&self.types).all(|((_, ty), other)| ty == other)
                && shape
                    .fields
                    .iter()
                    .zip(fields(record))
                    .all(|((name, _), (other, _))| Arc::ptr_eq(name, other) || name == other)
        };
        // The newest first.
        if let Some(at) = self.shapes.iter().rposition(is_of) {
            return Some(at);
        }
        if self.shapes.len() >= SHAPES {
            return None;
        }
        let fields: Vec<_> =
            fields(record).map(|(name, _)| name.clone()).zip(self.types.iter().copied()).collect();
        let columns = fields.iter().map(|_| Column::default()).collect();
        self.shapes.push(Shape { fields, columns, spans: 0 });
        Some(self.shapes.len() - 1)
    }

    /// Members of the page's data: for each shape its fields, as names and letters of types, and the number of the texts.
    pub(super) fn header(&self, out: &mut String) {
        out.push_str(",\"shapes\":");
        json::list(out, self.shapes.iter(), |out, shape| {
            json::list(out, shape.fields.iter(), |out, (name, ty)| {
                json::list(out, [&**name, ty.letter()].into_iter(), json::string);
            });
        });
        let _ = write!(out, ",\"values\":{}", self.texts.len());
    }

    /// Passes each column with its name to `each`: `a2.0` is the first field of the third shape. `order` has for each shape the numbers
    /// of its spans in the order of the page.
    pub(super) fn columns(&self, order: &[Vec<u32>], mut each: impl FnMut(&str, &[u8])) {
        each("values", &self.texts.bytes());
        for (number, (shape, order)) in self.shapes.iter().zip(order).enumerate() {
            for (at, (column, (_, ty))) in shape.columns.iter().zip(&shape.fields).enumerate() {
                if *ty != FieldType::Label {
                    let values = order.iter().map(|span| column.get(*span as usize));
                    each(&format!("a{number}.{at}"), &columns::bytes(values));
                }
            }
        }
    }

    /// Number of shapes.
    pub(super) fn shapes(&self) -> usize {
        self.shapes.len()
    }
}

//! Tables of rows with named cells, as aligned columns or as objects.
//!
//! ```text
//! row(3, (calls = 3, took = time_text(41200), function = "cuInit"))
//!
//! CALLS     TOOK  FUNCTION
//!     3  41.2 us  cuInit
//! ```
//!
//! The title of a column is the name of its cells: `calls_per_s` is `CALLS/S`, `tiny_percent` is `TINY %`. Numbers are aligned to
//! the right. A cell of several lines, such as a stack, is printed below its row.

use wire::Value;
use wire::types::Lookup;

use crate::units;
use crate::value::Context;

/// The cells of a row, with the names of their columns.
pub type Cells = Vec<(String, Value)>;

/// Rows with the same columns; there is at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    name: String,
    rows: Vec<Cells>,
}

impl Table {
    /// A table of one row. The name is for programs that read it, and may be empty.
    pub fn new(name: &str, first: Cells) -> Table {
        Table { name: name.to_owned(), rows: vec![first] }
    }

    /// The name for programs that read it; empty for tables without.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a row; returns it if it has other columns.
    pub fn push(&mut self, row: Cells) -> Result<(), Cells> {
        let names = |row: &Cells| row.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        if names(&self.rows[0]) != names(&row) {
            return Err(row);
        }
        self.rows.push(row);
        Ok(())
    }

    /// The rows; each cell has the name of its column.
    pub fn rows(&self) -> &[Cells] {
        &self.rows
    }

    /// A line of titles, then the rows.
    pub fn draw(&self, context: Context) -> String {
        let cells = |row: &Cells| row.iter().map(|(_, value)| text(context, value)).collect();
        let mut texts: Vec<Vec<String>> = self.rows.iter().map(cells).collect();
        (0..self.rows[0].len()).for_each(|at| self.round_percents(at, &mut texts));
        let has_lines = |at: &usize| texts.iter().any(|row| row[*at].contains('\n'));
        let (below, inline): (Vec<usize>, Vec<usize>) = (0..self.rows[0].len()).partition(has_lines);
        let columns: Vec<Column> = inline.iter().map(|&at| self.column(at, &texts)).collect();
        let mut out = line(columns.iter().map(|column| (column, column.title.as_str())));
        for row in &texts {
            out += &line(columns.iter().map(|column| (column, row[column.at].as_str())));
            below.iter().for_each(|&at| out += row[at].strip_prefix('\n').unwrap_or(&row[at]));
        }
        out
    }

    /// Replaces the texts of percentages in a column, so that those of a whole add up.
    fn round_percents(&self, at: usize, texts: &mut [Vec<String>]) {
        let cells = self
            .rows
            .iter()
            .zip(texts)
            .filter_map(|(row, texts)| Some((tenths(&row[at].1)?, &mut texts[at])));
        let (tenths, texts): (Vec<i64>, Vec<&mut String>) = cells.unzip();
        let rounded = units::shares(&tenths);
        texts.into_iter().zip(rounded).for_each(|(text, share)| *text = share.to_string());
    }

    fn column(&self, at: usize, texts: &[Vec<String>]) -> Column {
        let title = title(&self.rows[0][at].0);
        let widths = texts.iter().map(|row| row[at].chars().count());
        let width = widths.chain([title.chars().count()]).max().unwrap_or(0);
        let mut values = self.rows.iter().map(|row| &row[at].1).filter(|value| !is_nothing(value)).peekable();
        let right = values.peek().is_some() && values.all(is_quantity);
        Column { at, title, width, right }
    }
}

struct Column {
    at: usize,
    title: String,
    width: usize,
    right: bool,
}

fn line<'a>(cells: impl Iterator<Item = (&'a Column, &'a str)>) -> String {
    let padded = |(column, text): (&Column, &str)| match column.right {
        true => format!("{text:>0$}", column.width),
        false => format!("{text:<0$}", column.width),
    };
    let line = cells.map(padded).collect::<Vec<_>>().join("  ");
    format!("{}\n", line.trim_end())
}

/// Title of a column: `calls_per_s` becomes `CALLS/S`.
fn title(name: &str) -> String {
    name.to_uppercase().replace("_PER_", "/").replace("_PERCENT", " %").replace('_', " ")
}

/// Whether a cell has no value.
pub fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Str(bytes, _) => bytes == b"-",
        Value::Either(_, value, _) => is_nothing(value),
        _ => false,
    }
}

/// The names of cells with their units, for readers that see numbers alone: `took` is `took_ns`, `copied_per_s` is `copied_bytes_per_s`.
pub fn names_with_units(rows: &[Cells]) -> Vec<String> {
    let first = &rows[0];
    let named = |(at, (name, _)): (usize, &(String, Value))| {
        let with_unit = rows.iter().find_map(|row| unit(&row[at].1)).map(|unit| with_unit(name, unit));
        // A script may have both names.
        let is_new = |with_unit: &String| first.iter().all(|(other, _)| other != with_unit);
        with_unit.filter(is_new).unwrap_or_else(|| name.clone())
    };
    first.iter().enumerate().map(named).collect()
}

fn with_unit(name: &str, unit: &str) -> String {
    match name.strip_suffix("_per_s") {
        _ if name.split('_').any(|word| word == unit) => name.to_owned(),
        Some(what) => format!("{what}_{unit}_per_s"),
        None => format!("{name}_{unit}"),
    }
}

/// The unit of a quantity, also of a cell that has none this time.
fn unit(value: &Value) -> Option<&'static str> {
    match value {
        Value::Lookup(what, _) | Value::Either(_, _, Some(what)) => what.unit(),
        _ => None,
    }
}

/// The number of a percentage.
fn tenths(value: &Value) -> Option<i64> {
    match value {
        Value::Lookup(Lookup::Percent, tenths) => Some(*tenths),
        Value::Either(_, value, _) => tenths(value),
        _ => None,
    }
}

fn is_quantity(value: &Value) -> bool {
    match value {
        Value::Int(..) | Value::Uint(..) | Value::Pointer(_) => true,
        Value::Lookup(what, _) => {
            matches!(what, Lookup::Size | Lookup::Time | Lookup::Percent | Lookup::Float | Lookup::Double)
        }
        Value::Either(_, value, _) => is_quantity(value),
        _ => false,
    }
}

fn text(context: Context, value: &Value) -> String {
    match value {
        Value::Record(members) => dimensions(members).unwrap_or_else(|| context.text(value)),
        Value::Either(_, value, _) => text(context, value),
        _ => context.text(value),
    }
}

/// `16`, `16x8`, `16x8x2` for a record with the members x, y, z.
fn dimensions(members: &[(String, Value)]) -> Option<String> {
    let [(x, width), (y, height), (z, depth)] = members else { return None };
    let [width, height, depth] = [number(width)?, number(height)?, number(depth)?];
    let is_grid = [x, y, z] == ["x", "y", "z"];
    is_grid.then(|| match (height, depth) {
        (1, 1) => width.to_string(),
        (_, 1) => format!("{width}x{height}"),
        _ => format!("{width}x{height}x{depth}"),
    })
}

fn number(value: &Value) -> Option<i128> {
    match value {
        Value::Int(number, _) => Some(i128::from(*number)),
        Value::Uint(number, _) => Some(i128::from(*number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fake, manifest};

    fn cells(cells: &[(&str, Value)]) -> Cells {
        cells.iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
    }

    fn text(text: &str) -> Value {
        Value::Str(text.into(), false)
    }

    fn drawn(table: &Table) -> String {
        let manifest = manifest();
        table.draw(Context { manifest: &manifest, names: &Fake, verbatim: false })
    }

    #[test]
    fn columns_line_up() {
        let grid = |x, y, z| {
            let member = |name: &str, n| (name.to_string(), Value::Uint(n, 4));
            Value::Record(vec![member("x", x), member("y", y), member("z", z)])
        };
        let row = |calls, grid, each, name| {
            cells(&[("calls_per_s", Value::Uint(calls, 8)), ("grid", grid), ("each", each), ("name", name)])
        };
        let some = Value::Either(0, Box::new(Value::Uint(7, 8)), None);
        let mut table = Table::new("", row(8, grid(16, 1, 1), some, text("a")));
        table.push(row(1234567, grid(4, 2, 1), text("-"), text("b"))).unwrap();
        assert_eq!(
            drawn(&table),
            "CALLS/S  GRID  EACH  NAME\n      8  16       7  a\n1234567  4x2      -  b\n"
        );
    }

    #[test]
    fn percentages_of_a_whole_add_up() {
        let share = |tenths| Value::Lookup(Lookup::Percent, tenths);
        let row = |tenths, name| cells(&[("share_percent", share(tenths)), ("name", text(name))]);
        let mut table = Table::new("", row(396, "a"));
        for (tenths, name) in [(254, "b"), (238, "c"), (56, "d"), (56, "e")] {
            table.push(row(tenths, name)).unwrap();
        }
        assert_eq!(
            drawn(&table),
            "SHARE %  NAME\n     40  a\n     25  b\n     24  c\n      6  d\n      5  e\n"
        );
    }

    #[test]
    fn stacks_are_below_their_rows() {
        let stack = Value::Stack { map: 0, id: 1, tgid: 7, mode: wire::types::StackMode::Bpftrace };
        let table = Table::new(
            "",
            cells(&[("tiny_percent", Value::Int(3, 8)), ("stack", stack), ("who", text("x"))]),
        );
        assert_eq!(
            drawn(&table),
            "TINY %  WHO\n     3  x\n        main+16@a.c:3\n        [inlined] f\n        0xff\n"
        );
    }

    #[test]
    fn other_columns_are_another_table() {
        let mut table = Table::new("", cells(&[("a", text("x"))]));
        assert!(table.push(cells(&[("b", text("x"))])).is_err());
    }
}

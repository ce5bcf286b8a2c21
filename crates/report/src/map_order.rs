//! The order in which entries of a map are printed: by value, the smallest first, if values are numbers; otherwise by key.
//! Entries with equal values are ordered by key, so that two runs can be compared. `top` keeps the largest.
//!
//! Rows of equal weight are ordered by the names in them. Keys and rows are compared as printed where a name is an id that differs
//! between runs.

use std::cmp::Ordering;
use std::ops::Range;

use wire::Value;
use wire::decode::Header;
use wire::types::Lookup;

use crate::value::Context;
use crate::{Cell, Snapshot};

/// An entry of a snapshot.
pub type Entry = (Vec<Value>, Cell);

/// The entries to show, in order.
pub fn shown<'s>(context: Context, snapshot: &'s Snapshot) -> Vec<&'s Entry> {
    let mut entries: Vec<&Entry> = snapshot.entries.iter().collect();
    entries.sort_by(|a, b| by_value(&a.1, &b.1));
    for range in equal(&entries, |a, b| by_value(&a.1, &b.1).is_eq()) {
        entries[range].sort_by_cached_key(|entry| parts(context, &entry.0));
    }
    let surplus = match snapshot.top as usize {
        0 => 0,
        top => entries.len().saturating_sub(top),
    };
    entries.split_off(surplus)
}

/// Sorts rows of equal weight by their names, then by their other values. The rows are already sorted by weight,
/// and only the first `kept` are considered.
pub fn rows(context: Context, rows: &mut [(Header, Vec<Value>)], kept: usize) {
    for range in equal(rows, |a, b| row_weight(&a.1) == row_weight(&b.1)) {
        if range.start < kept {
            rows[range].sort_by_cached_key(|(_, values)| names_first(context, values));
        }
    }
}

/// The weight of a row, its first value.
pub fn row_weight(values: &[Value]) -> i64 {
    match values.first() {
        Some(Value::Int(weight, _)) => *weight,
        _ => 0,
    }
}

/// Ranges of two or more equal neighbours.
fn equal<T>(items: &[T], same: impl Fn(&T, &T) -> bool) -> Vec<Range<usize>> {
    let mut at = 0;
    let ranges = items.chunk_by(same).map(|chunk| {
        at += chunk.len();
        at - chunk.len()..at
    });
    ranges.filter(|range| range.len() > 1).collect()
}

/// A sort key of a value.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Name(String),
    Plain(Value),
}

fn names_first(context: Context, values: &[Value]) -> Vec<Part> {
    let mut parts = parts(context, values);
    parts.sort_by_key(|part| matches!(part, Part::Plain(value) if !matches!(value, Value::Str(..))));
    parts
}

fn parts(context: Context, values: &[Value]) -> Vec<Part> {
    let mut all = Vec::new();
    values.iter().for_each(|value| add_parts(context, value, &mut all));
    all
}

/// Adds the sort keys of a value; compound values have those of all their parts.
fn add_parts(context: Context, value: &Value, all: &mut Vec<Part>) {
    match value {
        Value::Tuple(parts) | Value::Array(parts) => {
            parts.iter().for_each(|part| add_parts(context, part, all));
        }
        Value::Record(members) => members.iter().for_each(|(_, part)| add_parts(context, part, all)),
        Value::Either(_, value, _) => add_parts(context, value, all),
        Value::Lookup(Lookup::Size | Lookup::Time | Lookup::Percent | Lookup::Float | Lookup::Double, _) => {
            all.push(Part::Plain(value.clone()));
        }
        Value::Name(..) | Value::Usym { .. } | Value::Stack { .. } | Value::Lookup(..) => {
            all.push(Part::Name(context.text(value)));
        }
        plain => all.push(Part::Plain(plain.clone())),
    }
}

fn by_value(a: &Cell, b: &Cell) -> Ordering {
    match (weight(a), weight(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => Ordering::Equal,
    }
}

/// Sort key of a cell; `None` for text and similar values.
fn weight(cell: &Cell) -> Option<i128> {
    match cell {
        Cell::Plain(Value::Int(value, _)) => Some(i128::from(*value)),
        Cell::Plain(Value::Uint(value, _)) => Some(i128::from(*value)),
        Cell::Plain(_) => None,
        Cell::Number { bits, signed } | Cell::Stats { total: bits, signed, .. } => Some(wide(*bits, *signed)),
        Cell::Series(points) => points.last().map(|point| i128::from(point.start_ns)),
        Cell::Buckets { counts, .. } => Some(counts.iter().map(|&count| i128::from(count)).sum()),
    }
}

/// The number with these bits.
pub fn wide(bits: i64, signed: bool) -> i128 {
    if signed { i128::from(bits) } else { i128::from(bits as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(cells: &[(i64, Cell)], top: u32) -> Vec<i64> {
        let entries = cells.iter().map(|(key, cell)| (vec![Value::Int(*key, 8)], cell.clone())).collect();
        let snapshot = Snapshot { map: 0, entries, top, div: 0 };
        let key = |entry: &&Entry| match entry.0[0] {
            Value::Int(key, _) => key,
            _ => unreachable!("the keys above are integers"),
        };
        let (manifest, names) = (crate::testing::manifest(), &crate::testing::Fake);
        shown(Context { manifest: &manifest, names, verbatim: false }, &snapshot).iter().map(key).collect()
    }

    #[test]
    fn numbers_by_value_then_key_and_top_keeps_the_largest() {
        let cell = |n: u64| Cell::Plain(Value::Uint(n, 1));
        let cells = [(1, cell(10)), (2, cell(30)), (3, cell(20)), (4, cell(25)), (0, cell(10))];
        assert_eq!(order(&cells, 0), [0, 1, 3, 4, 2]);
        assert_eq!(order(&cells, 2), [4, 2]);
        assert_eq!(order(&cells, 9), [0, 1, 3, 4, 2]);
    }

    #[test]
    fn names_go_by_their_text_and_rows_by_their_names() {
        let (manifest, names) = (crate::testing::manifest(), &crate::testing::Fake);
        let context = Context { manifest: &manifest, names, verbatim: false };
        let kernel = |id| Value::Lookup(Lookup::Kernel, id);
        let count = |id| (vec![kernel(id)], Cell::Plain(Value::Uint(1, 8)));
        let entries = vec![count(3), count(11), count(2)];
        let snapshot = Snapshot { map: 0, entries, top: 0, div: 0 };
        let ids: Vec<&Value> = shown(context, &snapshot).iter().map(|entry| &entry.0[0]).collect();
        assert_eq!(ids, [&kernel(11), &kernel(2), &kernel(3)]);

        let header = Header { event: 0, cpu: 0, time_ns: 0, tgid: 1, tid: 1 };
        let row = |time, id| (header, vec![Value::Int(7, 8), Value::Uint(time, 8), kernel(id)]);
        let mut all = [row(1, 3), row(2, 11), row(3, 2)];
        rows(context, &mut all, 3);
        assert_eq!(all, [row(2, 11), row(3, 2), row(1, 3)]);
    }

    #[test]
    fn sign_counts() {
        let cell = |bits, signed| Cell::Number { bits, signed };
        assert_eq!(order(&[(1, cell(3, true)), (2, cell(-1, true))], 0), [2, 1]);
        assert_eq!(order(&[(1, cell(-1, false)), (2, cell(3, false))], 0), [2, 1]);
    }

    #[test]
    fn text_by_key_and_histograms_by_samples() {
        let text = |s: &str| Cell::Plain(Value::Str(s.into(), false));
        assert_eq!(order(&[(10, text("a")), (9, text("b"))], 0), [9, 10]);
        assert_eq!(
            order(
                &[
                    (1, Cell::Buckets { counts: vec![0, 5], sum: None }),
                    (2, Cell::Buckets { counts: vec![1, 1], sum: None })
                ],
                0
            ),
            [2, 1]
        );
    }
}

//! The order in which a map's entries are shown: by value, the smallest first, if values are numbers; else by key.
//! Equal values go by key, so that the same map always prints the same. `top` keeps the largest.

use std::cmp::Ordering;

use wire::Value;

use crate::{Cell, Snapshot};

/// An entry of a snapshot.
pub type Entry = (Vec<Value>, Cell);

/// The entries to show, in their order.
pub fn shown(snapshot: &Snapshot) -> Vec<&Entry> {
    let mut entries: Vec<&Entry> = snapshot.entries.iter().collect();
    entries.sort_by(|a, b| by_value(&a.1, &b.1).then_with(|| a.0.cmp(&b.0)));
    let surplus = match snapshot.top as usize {
        0 => 0,
        top => entries.len().saturating_sub(top),
    };
    entries.split_off(surplus)
}

fn by_value(a: &Cell, b: &Cell) -> Ordering {
    match (weight(a), weight(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => Ordering::Equal,
    }
}

/// What a cell is sorted by; none for text and the like.
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

/// Bits as the number that they are.
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
        shown(&snapshot).iter().map(key).collect()
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

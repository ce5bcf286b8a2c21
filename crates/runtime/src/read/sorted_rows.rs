//! Keeps lines of `row` until `rows` prints them in the order of their weights.
//!
//! ```text
//! row(3, "a")  row(7, "b")  rows()   ->   b  a
//! ```
//!
//! Each thread has its own lines: clauses of other threads may run at the same time.

use report::map_order;
use std::collections::BTreeMap;
use wire::decode::{Header, Place, Value};

/// Largest number of kept lines. Further ones are printed at once.
const LIMIT: usize = 1 << 18;

/// A record of `row`; the first value is the weight.
pub(crate) type Row = (Header, Vec<Value>);

/// The kept lines.
#[derive(Default)]
pub(crate) struct SortedRows {
    by_place: BTreeMap<Place, Vec<Row>>,
    count: usize,
}

impl SortedRows {
    /// Keeps a line; returns it if there is no room.
    pub(crate) fn keep(&mut self, header: Header, values: Vec<Value>) -> Result<(), Row> {
        if self.count == LIMIT {
            return Err((header, values));
        }
        self.count += 1;
        self.by_place.entry(header.place()).or_default().push((header, values));
        Ok(())
    }

    /// Takes the lines of a place, the largest weight first; `report::map_order` orders equal weights.
    pub(crate) fn take(&mut self, place: Place) -> Vec<Row> {
        let mut rows = self.by_place.remove(&place).unwrap_or_default();
        self.count -= rows.len();
        rows.sort_by_key(|(_, values)| std::cmp::Reverse(map_order::row_weight(values)));
        rows
    }

    /// Takes the lines of all places.
    pub(crate) fn take_all(&mut self) -> Vec<Row> {
        let places: Vec<Place> = self.by_place.keys().copied().collect();
        places.into_iter().flat_map(|place| self.take(place)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(tid: u32, cpu: u32) -> Header {
        Header { event: 0, cpu, time_ns: 0, tgid: 1, tid }
    }

    fn weights(rows: &[Row]) -> Vec<i64> {
        rows.iter().map(|(_, values)| map_order::row_weight(values)).collect()
    }

    #[test]
    fn each_thread_has_its_lines_by_weight_on_whichever_cpu() {
        let mut rows = SortedRows::default();
        for (tid, cpu, weight) in [(7, 0, 3), (8, 1, 5), (7, 1, -7), (7, 0, 9), (7, 0, 3)] {
            rows.keep(header(tid, cpu), vec![Value::Int(weight, 8), Value::Int(0, 8)]).unwrap();
        }
        assert_eq!(weights(&rows.take(header(7, 3).place())), [9, 3, 3, -7]);
        assert_eq!(weights(&rows.take(header(7, 0).place())), [0; 0]);
        assert_eq!(weights(&rows.take_all()), [5]);
        // The idle tasks of two CPUs.
        rows.keep(header(0, 0), vec![Value::Int(1, 8)]).unwrap();
        assert_eq!(weights(&rows.take(header(0, 1).place())), [0; 0]);
        assert_eq!(weights(&rows.take(header(0, 0).place())), [1]);
    }

    #[test]
    fn a_line_without_room_is_returned() {
        let mut rows = SortedRows::default();
        for weight in 0..LIMIT as i64 {
            rows.keep(header(1, 0), vec![Value::Int(weight, 8)]).unwrap();
        }
        assert!(rows.keep(header(1, 0), vec![Value::Int(1, 8)]).is_err());
        assert_eq!(rows.take(header(1, 0).place()).len(), LIMIT);
    }
}

//! Keeps lines of `row` until `rows` prints them in the order of their weights.
//!
//! ```text
//! row(3, "a")  row(7, "b")  rows()   ->   b  a
//! ```
//!
//! Each CPU has its own lines: a clause stays on one CPU, and clauses on other CPUs may run at the same time.

use report::map_order;
use std::collections::BTreeMap;
use wire::decode::{Header, Value};

/// Largest number of kept lines per CPU. Further lines are printed at once.
const LIMIT: usize = 1 << 16;

/// A record of `row`; the first value is the weight.
pub(crate) type Row = (Header, Vec<Value>);

/// The kept lines.
#[derive(Default)]
pub(crate) struct SortedRows {
    by_cpu: BTreeMap<u32, Vec<Row>>,
}

impl SortedRows {
    /// Keeps a line; returns it if there is no room.
    pub(crate) fn keep(&mut self, header: Header, values: Vec<Value>) -> Result<(), Row> {
        let rows = self.by_cpu.entry(header.cpu).or_default();
        if rows.len() >= LIMIT {
            return Err((header, values));
        }
        rows.push((header, values));
        Ok(())
    }

    /// Takes the lines of a CPU, the largest weight first; `report::map_order` orders equal weights.
    pub(crate) fn take(&mut self, cpu: u32) -> Vec<Row> {
        let mut rows = self.by_cpu.remove(&cpu).unwrap_or_default();
        rows.sort_by_key(|(_, values)| std::cmp::Reverse(map_order::row_weight(values)));
        rows
    }

    /// Takes the lines of all CPUs.
    pub(crate) fn take_all(&mut self) -> Vec<Row> {
        let cpus: Vec<u32> = self.by_cpu.keys().copied().collect();
        cpus.into_iter().flat_map(|cpu| self.take(cpu)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(cpu: u32) -> Header {
        Header { event: 0, cpu, time_ns: 0, tgid: 1, tid: 1 }
    }

    fn weights(rows: &[Row]) -> Vec<i64> {
        rows.iter().map(|(_, values)| map_order::row_weight(values)).collect()
    }

    #[test]
    fn each_cpu_has_its_lines_by_weight() {
        let mut rows = SortedRows::default();
        for (cpu, weight) in [(0, 3), (1, 5), (0, -7), (0, 9), (0, 3)] {
            rows.keep(header(cpu), vec![Value::Int(weight, 8), Value::Int(0, 8)]).unwrap();
        }
        assert_eq!(weights(&rows.take(0)), [9, 3, 3, -7]);
        assert_eq!(weights(&rows.take(0)), [0; 0]);
        assert_eq!(weights(&rows.take_all()), [5]);
    }

    #[test]
    fn a_line_without_room_is_returned() {
        let mut rows = SortedRows::default();
        for weight in 0..LIMIT as i64 {
            rows.keep(header(0), vec![Value::Int(weight, 8)]).unwrap();
        }
        assert!(rows.keep(header(0), vec![Value::Int(1, 8)]).is_err());
        assert_eq!(rows.take(0).len(), LIMIT);
    }
}

//! Lines of `row`, kept until `rows` asks for them in the order of their weights.
//!
//! ```text
//! row(3, "a")  row(7, "b")  rows()   ->   b  a
//! ```
//!
//! Each CPU has its own: a clause stays on one, and clauses of other CPUs may be doing the same at that moment.

use report::map_order;
use std::collections::BTreeMap;
use wire::decode::{Header, Value};

/// Lines of one CPU that are kept at most. What comes beyond is said at once, so that nothing is lost.
const MOST: usize = 1 << 16;

/// A record of `row`: its values begin with the weight.
pub type Row = (Header, Vec<Value>);

/// See the module.
#[derive(Default)]
pub struct Rows {
    by_cpu: BTreeMap<u32, Vec<Row>>,
}

impl Rows {
    /// Keeps a line; gives it back where there is no room.
    pub fn keep(&mut self, header: Header, values: Vec<Value>) -> Result<(), Row> {
        let rows = self.by_cpu.entry(header.cpu).or_default();
        if rows.len() >= MOST {
            return Err((header, values));
        }
        rows.push((header, values));
        Ok(())
    }

    /// The lines of a CPU, the largest weight first; `report::map_order` orders equal ones.
    pub fn take(&mut self, cpu: u32) -> Vec<Row> {
        let mut rows = self.by_cpu.remove(&cpu).unwrap_or_default();
        rows.sort_by_key(|(_, values)| std::cmp::Reverse(map_order::row_weight(values)));
        rows
    }

    /// The lines of all CPUs.
    pub fn take_all(&mut self) -> Vec<Row> {
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
        let mut rows = Rows::default();
        for (cpu, weight) in [(0, 3), (1, 5), (0, -7), (0, 9), (0, 3)] {
            rows.keep(header(cpu), vec![Value::Int(weight, 8), Value::Int(0, 8)]).unwrap();
        }
        assert_eq!(weights(&rows.take(0)), [9, 3, 3, -7]);
        assert_eq!(weights(&rows.take(0)), [0; 0]);
        assert_eq!(weights(&rows.take_all()), [5]);
    }

    #[test]
    fn what_finds_no_room_comes_back() {
        let mut rows = Rows::default();
        for weight in 0..MOST as i64 {
            rows.keep(header(0), vec![Value::Int(weight, 8)]).unwrap();
        }
        assert!(rows.keep(header(0), vec![Value::Int(1, 8)]).is_err());
        assert_eq!(rows.take(0).len(), MOST);
    }
}

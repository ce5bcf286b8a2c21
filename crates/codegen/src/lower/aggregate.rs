//! Aggregations: `@m[k] = hist(n)`, and reads of them over all CPUs.
//!
//! Another body may preempt a body on the same CPU. Cells are therefore updated atomically although they are per CPU. A minimum
//! or maximum is exact because the sample is compared again after it has been counted: while `n` is 0, an extreme of 0 may mean
//! "no sample"; afterwards it is a sample.

use super::arithmetic::Arithmetic;
use super::body::Body;
use super::module::Cx;
use super::operations::Operations;
use super::place::Place;
use crate::bpf::helper::Helper;
use crate::ir::{AtomicOp, Bin, Cmp, Operand, VReg, Width};
use lang::hir::{Expr, MapId};
use wire::CounterKind;
use wire::map::{Agg, Keeps, MapValue, SERIES_CLAIMED, SERIES_WORDS, lhist_steps};

/// De Bruijn constant: its products with 2^(n+1) - 1 differ in their top six bits for each n.
const DE_BRUIJN: u64 = 0x03f7_9d71_b4cb_0a89;

/// Attempts to store an extreme. Each failed attempt means that another thread has stored a more extreme sample.
const OFFERS: u32 = 8;

/// Table of n, indexed by the top six bits of the product.
fn log2_table() -> [u8; 64] {
    let mut table = [0; 64];
    for n in 0..64u8 {
        let filled = u64::MAX >> (63 - n);
        table[(filled.wrapping_mul(DE_BRUIJN) >> 58) as usize] = n;
    }
    table
}

impl Cx<'_> {
    fn log2_data(&mut self) -> u32 {
        let table = log2_table();
        match self.module.data.windows(table.len()).position(|bytes| bytes == table) {
            Some(at) => at as u32,
            None => self.data(&table),
        }
    }
}

impl Body<'_, '_> {
    /// `@m[k] = f(sample)`
    pub(super) fn aggregate(&mut self, map: MapId, key: &[Expr], arg: Option<&Expr>) {
        let key = self.key(map, key);
        let sample = arg.map(|arg| self.scalar(arg));
        let MapValue::Agg(agg) = self.cx.map(map).value.clone() else {
            unreachable!("checked: the map is an aggregation")
        };
        self.with_cell(map, key, |body, cell| {
            body.add_sample(&agg, cell, sample.unwrap_or(Operand::Const(0)))
        });
    }

    fn add_sample(&mut self, agg: &Agg, cell: VReg, sample: Operand) {
        match *agg {
            Agg::Count => self.add(cell, 0, 1.into()),
            Agg::Sum { .. } | Agg::Avg { .. } | Agg::Stats { .. } => {
                self.add(cell, 0, 1.into());
                self.add(cell, 8, sample);
            }
            Agg::Min { signed } => self.extreme(cell, sample, if signed { Cmp::Sle } else { Cmp::Ule }),
            Agg::Max { signed } => self.extreme(cell, sample, if signed { Cmp::Sge } else { Cmp::Uge }),
            Agg::Hist { bits, .. } => {
                self.add_to_sum(agg, cell, sample);
                let bucket = self.hist_bucket(sample, bits);
                self.add_to_bucket(cell, bucket, agg.buckets());
            }
            Agg::LHist { min, max, step, .. } => {
                self.add_to_sum(agg, cell, sample);
                let bucket = self.lhist_bucket(sample, min, max, step);
                self.add_to_bucket(cell, bucket, agg.buckets());
            }
            Agg::TSeries { interval, count, keeps, signed } => {
                self.add_to_series(cell, sample, interval, count, keeps, signed);
            }
        }
    }

    /// Adds a sample to the current interval. Its words may still belong to an earlier interval: the first body
    /// claims and resets them. A body that interrupts the reset cannot wait, so its sample is dropped and counted.
    fn add_to_series(
        &mut self,
        cell: VReg,
        sample: Operand,
        interval: u64,
        count: u32,
        keeps: Keeps,
        signed: bool,
    ) {
        let [inside, claim, ready, keep, left_out, after] = [false, false, false, false, true, false]
            .map(|cold| if cold { self.b().cold_block() } else { self.b().block() });
        let b = self.b();
        let now = b.call(Helper::KtimeGetBootNs, &[]);
        let number = b.bin(Bin::Div, now, interval as i64);
        let index = b.bin(Bin::Rem, number, i64::from(count));
        let epoch = b.bin(Bin::Add, number, 1);
        // The condition always holds; the verifier needs it as a bound.
        b.branch(Cmp::Ult, index, i64::from(count), inside, after);
        b.switch_to(inside);
        let offset = b.bin(Bin::Mul, index, i64::from(8 * SERIES_WORDS));
        let at = b.bin(Bin::Add, cell, offset);
        let old = b.load(at, 0, Width::B64, false);
        b.branch(Cmp::Eq, old, epoch, keep, claim);
        b.switch_to(claim);
        let claimed = b.reg(Operand::Const(SERIES_CLAIMED as i64));
        let taken = b.block();
        b.branch(Cmp::Eq, old, claimed, left_out, taken);
        b.switch_to(taken);
        let found = b.cmpxchg(at, 0, old, claimed);
        b.branch(Cmp::Eq, found, old, ready, left_out);
        b.switch_to(ready);
        for word in 1..SERIES_WORDS {
            self.store(Place::behind(at).plus(8 * word), Width::B64, 0);
        }
        self.store(Place::behind(at), Width::B64, epoch);
        self.b().fall_into(keep);
        self.keep_in_interval(at, sample, now, keeps, signed);
        self.b().jump(after);
        self.b().switch_to(left_out);
        self.count(CounterKind::LoopLimit);
        self.b().fall_into(after);
    }

    fn keep_in_interval(&mut self, at: VReg, sample: Operand, now: VReg, keeps: Keeps, signed: bool) {
        // The number of samples and the value have the layout of a cell of other aggregations.
        let samples = self.b().bin(Bin::Add, at, 8);
        match keeps {
            Keeps::Last => {
                self.add(samples, 0, 1.into());
                self.store(Place::behind(samples).plus(8), Width::B64, sample);
                self.store(Place::behind(samples).plus(16), Width::B64, now);
            }
            Keeps::Sum | Keeps::Avg => {
                self.add(samples, 0, 1.into());
                self.add(samples, 8, sample);
            }
            Keeps::Min => self.extreme(samples, sample, if signed { Cmp::Sle } else { Cmp::Ule }),
            Keeps::Max => self.extreme(samples, sample, if signed { Cmp::Sge } else { Cmp::Uge }),
        }
    }

    fn add(&mut self, cell: VReg, offset: i16, value: Operand) {
        let value = self.b().reg(value);
        self.b().atomic(AtomicOp::Add, cell, offset, value);
    }

    /// Updates an extreme. `settled` is the comparison of the old extreme with the sample that keeps the old one.
    fn extreme(&mut self, cell: VReg, sample: Operand, settled: Cmp) {
        let sample = self.b().reg(sample);
        self.offer(cell, sample, settled, true);
        self.add(cell, 0, 1.into());
        self.offer(cell, sample, settled, false);
    }

    /// Stores the sample as the extreme unless the old one is better. With `fresh`, 0 may mean that there is none.
    ///
    /// The loop handles concurrent updates: a value that another thread stored is a sample. Its iterations have exits,
    /// but no joins: from each join the verifier would follow all remaining iterations.
    fn offer(&mut self, cell: VReg, sample: VReg, settled: Cmp, fresh: bool) {
        let (done, replace) = (self.b().block(), self.b().block());
        let old = self.b().load(cell, 8, Width::B64, false);
        if fresh {
            let n = self.b().load(cell, 0, Width::B64, false);
            let used = self.b().bin(Bin::Or, n, old);
            self.go_on_unless(Cmp::Eq, used, 0, replace);
        }
        self.b().branch(settled, old, sample, done, replace);
        self.b().switch_to(replace);
        self.counted_loop(OFFERS, |body, _| {
            let found = body.b().cmpxchg(cell, 8, old, sample);
            body.go_on_unless(Cmp::Eq, found, old, done);
            body.b().set(old, found);
            body.go_on_unless(settled, old, sample, done);
        });
        self.count(CounterKind::LoopLimit);
        self.b().fall_into(done);
    }

    /// Adds to the sum of a histogram that has one.
    fn add_to_sum(&mut self, agg: &Agg, cell: VReg, sample: Operand) {
        if let Some(word) = agg.sum_word() {
            self.add(cell, 8 * word as i16, sample);
        }
    }

    fn add_to_bucket(&mut self, cell: VReg, bucket: VReg, buckets: u32) {
        // The condition always holds; the verifier needs it as a bound.
        let [inside, after] = std::array::from_fn(|_| self.b().block());
        self.b().branch(Cmp::Ult, bucket, i64::from(buckets), inside, after);
        self.b().switch_to(inside);
        let offset = self.b().bin(Bin::Shl, bucket, 3);
        let at = self.b().bin(Bin::Add, cell, offset);
        self.add(at, 0, 1.into());
        self.b().fall_into(after);
    }

    /// Computes the same bucket as `wire::map::hist_bucket`.
    fn hist_bucket(&mut self, sample: Operand, bits: u8) -> VReg {
        let bucket = self.b().copy(0);
        let sample = self.b().reg(sample);
        let sample = self.b().opaque(sample);
        let [positive, small, large, after] = std::array::from_fn(|_| self.b().block());
        self.b().branch(Cmp::Slt, sample, 0, after, positive);
        self.b().switch_to(positive);
        self.b().branch(Cmp::Ult, sample, 1 << bits, small, large);
        self.b().switch_to(small);
        let index = self.b().bin(Bin::Add, sample, 1);
        self.b().set(bucket, index);
        self.b().jump(after);
        self.b().switch_to(large);
        let octave = self.log2(sample);
        let b = self.b();
        let shift = if bits == 0 { octave } else { b.bin(Bin::Sub, octave, i64::from(bits)) };
        // With 0 bits, only the leading 1 of the sample is left.
        let (first, mantissa) = match bits {
            0 => (shift, Operand::Const(1)),
            _ => (b.bin(Bin::Shl, shift, i64::from(bits)), b.bin(Bin::Shr, sample, shift).into()),
        };
        let index = b.bin(Bin::Add, first, mantissa);
        let index = b.bin(Bin::Add, index, 1);
        b.set(bucket, index);
        b.fall_into(after);
        bucket
    }

    /// Number of the highest set bit of a non-zero value. Branches would multiply the verifier's paths, so there
    /// are none.
    fn log2(&mut self, value: VReg) -> VReg {
        let table = self.cx.log2_data();
        let b = self.b();
        let filled = b.copy(value);
        for shift in [1, 2, 4, 8, 16, 32] {
            let shifted = b.bin(Bin::Shr, filled, shift);
            b.update(Bin::Or, filled, shifted);
        }
        let product = b.bin(Bin::Mul, filled, DE_BRUIJN as i64);
        let index = b.bin(Bin::Shr, product, 58);
        let table = b.data_addr(table);
        let at = b.bin(Bin::Add, table, index);
        b.load(at, 0, Width::B8, false)
    }

    fn lhist_bucket(&mut self, sample: Operand, min: i64, max: i64, step: i64) -> VReg {
        let bucket = self.b().copy(0);
        let sample = self.b().reg(sample);
        let sample = self.b().opaque(sample);
        let [not_below, above, inside, after] = std::array::from_fn(|_| self.b().block());
        self.b().branch(Cmp::Slt, sample, min, after, not_below);
        self.b().switch_to(not_below);
        self.b().branch(Cmp::Sge, sample, max, above, inside);
        self.b().switch_to(above);
        self.b().set(bucket, i64::from(lhist_steps(min, max, step) + 1));
        self.b().jump(after);
        self.b().switch_to(inside);
        let b = self.b();
        let distance = b.bin(Bin::Sub, sample, min);
        let steps = b.bin(Bin::Div, distance, step);
        let index = b.bin(Bin::Add, steps, 1);
        b.set(bucket, index);
        b.fall_into(after);
        bucket
    }

    /// Runs `f` on the cell of a key on each CPU that has one.
    pub(super) fn each_cell(&mut self, map: MapId, key: Place, f: impl FnOnce(&mut Self, VReg)) {
        if let Some(cell) = self.only_cell(map) {
            return f(self, cell);
        }
        let per_cpu = self.cx.map(map).storage.is_per_cpu() && self.cx.options.features.percpu_lookup;
        let map = self.cx.maps[map.0 as usize];
        let cpus = if per_cpu { self.cx.options.cpus } else { 1 };
        self.counted_loop(cpus, |body, cpu| {
            let next = body.b().block();
            let cell = if per_cpu {
                let key = body.pointer(key);
                let map = body.b().map_addr(map);
                body.b().call(Helper::MapLookupPercpuElem, &[map.into(), key.into(), cpu.into()])
            } else {
                body.lookup_raw(map, key)
            };
            body.go_on_unless(Cmp::Eq, cell, 0, next);
            f(body, cell);
            body.b().fall_into(next);
        });
    }

    /// Count, sum, minimum, maximum or mean over all CPUs.
    pub(super) fn read_aggregation(&mut self, map: MapId, key: Place) -> VReg {
        let MapValue::Agg(agg) = self.cx.map(map).value.clone() else {
            unreachable!("checked by the caller")
        };
        match agg {
            Agg::Count => self.total(map, key, 0),
            Agg::Sum { .. } => self.total(map, key, 8),
            Agg::Min { signed } => self.read_extreme(map, key, if signed { Cmp::Sle } else { Cmp::Ule }),
            Agg::Max { signed } => self.read_extreme(map, key, if signed { Cmp::Sge } else { Cmp::Uge }),
            Agg::Avg { signed } | Agg::Stats { signed } => self.mean(map, key, signed),
            Agg::Hist { .. } | Agg::LHist { .. } | Agg::TSeries { .. } => {
                unreachable!("checked: a histogram has no one value")
            }
        }
    }

    fn total(&mut self, map: MapId, key: Place, offset: i16) -> VReg {
        let total = self.b().copy(0);
        self.each_cell(map, key, |body, cell| {
            let value = body.b().load(cell, offset, Width::B64, false);
            body.b().update(Bin::Add, total, value);
        });
        total
    }

    fn mean(&mut self, map: MapId, key: Place, signed: bool) -> VReg {
        let (n, total) = (self.b().copy(0), self.b().copy(0));
        self.each_cell(map, key, |body, cell| {
            for (sum, offset) in [(n, 0), (total, 8)] {
                let value = body.b().load(cell, offset, Width::B64, false);
                body.b().update(Bin::Add, sum, value);
            }
        });
        let mean = self.b().copy(0);
        let [some, after] = std::array::from_fn(|_| self.b().block());
        self.b().branch(Cmp::Ne, n, 0, some, after);
        self.b().switch_to(some);
        self.divide(Bin::Div, total.into(), n.into(), signed, mean);
        self.b().fall_into(after);
        mean
    }

    fn read_extreme(&mut self, map: MapId, key: Place, settled: Cmp) -> VReg {
        let (extreme, seen) = (self.b().copy(0), self.b().copy(0));
        self.each_cell(map, key, |body, cell| {
            let [used, compare, take, next] = std::array::from_fn(|_| body.b().block());
            let n = body.b().load(cell, 0, Width::B64, false);
            body.b().branch(Cmp::Ne, n, 0, used, next);
            body.b().switch_to(used);
            let value = body.b().load(cell, 8, Width::B64, false);
            body.b().branch(Cmp::Ne, seen, 0, compare, take);
            body.b().switch_to(compare);
            body.b().branch(settled, extreme, value, next, take);
            body.b().switch_to(take);
            body.b().set(extreme, value);
            body.b().set(seen, 1);
            body.b().fall_into(next);
        });
        extreme
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_knows_the_highest_bit_of_each_filled_word() {
        let table = log2_table();
        for n in 0..64u8 {
            let filled = u64::MAX >> (63 - n);
            assert_eq!(table[(filled.wrapping_mul(DE_BRUIJN) >> 58) as usize], n);
        }
    }
}

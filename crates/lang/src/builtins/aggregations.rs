//! Arguments of aggregations: `hist(n, bits)`, `lhist(n, min, max, step)`, `tseries(n, interval, count)`.

use crate::builtins::args::Args;
use crate::builtins::row::{BuiltinSpec, Check, call};
use crate::hir::{Agg, Keeps};
use crate::limits;
use crate::syntax::ast;
use Check::Aggregation;

pub(super) static ROWS: &[BuiltinSpec] = &[
    call(
        Aggregation(|_, _, _| Agg::Count),
        0..=0,
        "@map = count()",
        "number of calls",
        "uprobe:libcuda:cu* { @[func] = count() }",
    ),
    call(
        Aggregation(|_, _, signed| Agg::Sum { signed }),
        1..=1,
        "@map = sum(n)",
        "sum of the values",
        "uprobe:libcuda:cuMemAlloc { @[pid] = sum(args.bytesize) }",
    ),
    call(
        Aggregation(|_, _, signed| Agg::Avg { signed }),
        1..=1,
        "@map = avg(n)",
        "average of the values",
        "uprobe:libcuda:cuMemAlloc { @[pid] = avg(args.bytesize) }",
    ),
    call(
        Aggregation(|_, _, signed| Agg::Min { signed }),
        1..=1,
        "@map = min(n)",
        "smallest value",
        "uprobe:libcuda:cuMemAlloc { @[pid] = min(args.bytesize) }",
    ),
    call(
        Aggregation(|_, _, signed| Agg::Max { signed }),
        1..=1,
        "@map = max(n)",
        "largest value",
        "uprobe:libcuda:cuMemAlloc { @[pid] = max(args.bytesize) }",
    ),
    call(
        Aggregation(|_, _, signed| Agg::Stats { signed }),
        1..=1,
        "@map = stats(n)",
        "number, average and sum of the values",
        "uretprobe:libcuda:cu* { @[func] = stats(duration) }",
    ),
    call(
        Aggregation(|c, args, _| Agg::Hist { bits: c.hist_bits(args), summed: false }),
        1..=2,
        "@map = hist(n[, bits])",
        "histogram by powers of two, each in 2^bits parts, bits 0 to 5",
        "uretprobe:libcuda:cu* { @[func] = hist(duration) }",
    ),
    call(
        Aggregation(|c, args, _| {
            c.linear(args).unwrap_or(Agg::LHist { min: 0, max: 1, step: 1, summed: false })
        }),
        4..=4,
        "@map = lhist(n, min, max, step)",
        "histogram with buckets of one width",
        "uretprobe:libcuda:cuMemAlloc { @us = lhist(duration / 1000, 0, 100, 10) }",
    ),
    call(
        Aggregation(|c, args, signed| c.series(args, signed)),
        3..=4,
        "@map = tseries(n, interval, intervals[, \"avg|max|min|sum\"])",
        "values over time: the last value of each interval, or the function in the last argument",
        "uprobe:libcuda:cuMemAlloc { @ = tseries(args.bytesize, 100ms, 20, \"sum\") }",
    ),
];

impl dyn Args + '_ {
    pub(crate) fn hist_bits(&mut self, args: &[ast::Expr]) -> u8 {
        let Some(arg) = args.get(1) else { return 0 };
        match self.constant(arg, "the bits of `hist`") {
            Some(bits @ 0..=limits::HIST_BITS) => bits as u8,
            Some(bits) => {
                let message = format!("the bits of `hist` are from 0 to {}, found {bits}", limits::HIST_BITS);
                self.error("E0222", arg.span, message);
                0
            }
            None => 0,
        }
    }

    /// `tseries(n, interval, count[, "sum"])`
    pub(crate) fn series(&mut self, args: &[ast::Expr], signed: bool) -> Agg {
        let keeps = args.get(3).and_then(|arg| self.series_keeps(arg)).unwrap_or(Keeps::Last);
        let mut whole = Agg::TSeries { interval: 1, count: 1, keeps, signed };
        let [_, period, number, ..] = args else { return whole };
        let length = self.constant(period, "the interval of `tseries`");
        let most = limits::SERIES_INTERVALS;
        let total = self.constant(number, "the number of intervals of `tseries`");
        if length.is_some_and(|ns| ns < 1) {
            self.error("E0222", period.span, "an interval of `tseries` is at least 1 ns");
        }
        if total.is_some_and(|total| !(1..=most).contains(&total)) {
            let message = format!("`tseries` keeps from 1 to {most} intervals");
            self.error("E0222", number.span, message);
        }
        if let (Agg::TSeries { interval, count, .. }, Some(ns @ 1..), Some(total)) =
            (&mut whole, length, total)
        {
            (*interval, *count) = (ns as u64, total.clamp(1, most) as u32);
        }
        whole
    }

    fn series_keeps(&mut self, arg: &ast::Expr) -> Option<Keeps> {
        let text = self.text(arg, "the function of `tseries`")?;
        let found = Keeps::NAMES.iter().find(|(name, _)| name.as_bytes() == text).map(|(_, keeps)| *keeps);
        if found.is_none() {
            let error = self.error("E0210", arg.span, "unknown function for the samples of an interval");
            error.help("write \"avg\", \"max\", \"min\" or \"sum\"; without it the last sample is kept");
        }
        found
    }

    pub(crate) fn linear(&mut self, args: &[ast::Expr]) -> Option<Agg> {
        let [_, low, high, width] = args else { return None };
        let min = self.constant(low, "the lower end of `lhist`")?;
        let max = self.constant(high, "the upper end of `lhist`")?;
        let step = self.constant(width, "the step of `lhist`")?;
        if max <= min {
            self.error("E0222", high.span, "the upper end of `lhist` must be above the lower");
            return None;
        }
        if step <= 0 {
            self.error("E0222", width.span, "the step of `lhist` is at least 1");
            return None;
        }
        let buckets = (i128::from(max) - i128::from(min)) / i128::from(step);
        if buckets > i128::from(limits::LHIST_BUCKETS) {
            let message = format!("`lhist` would have {buckets} buckets, {} at most", limits::LHIST_BUCKETS);
            self.error("E0222", width.span, message).help("use a larger step");
            return None;
        }
        Some(Agg::LHist { min, max, step, summed: false })
    }
}

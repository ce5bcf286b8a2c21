//! Arguments of aggregations: `hist(n, bits)`, `lhist(n, min, max, step)`, `tseries(n, interval, count)`.

use crate::builtins::args::Args;
use crate::hir::{Agg, Keeps};
use crate::limits;
use crate::syntax::ast;

impl dyn Args + '_ {
    pub fn hist_bits(&mut self, args: &[ast::Expr]) -> u8 {
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
    pub fn series(&mut self, args: &[ast::Expr], signed: bool) -> Agg {
        let keeps = args.get(3).and_then(|arg| self.series_keeps(arg)).unwrap_or(Keeps::Last);
        let mut whole = Agg::TSeries { interval: 1, count: 1, keeps, signed };
        let [_, period, number, ..] = args else { return whole };
        let wanted = self.constant(period, "the interval of `tseries`");
        let most = limits::SERIES_INTERVALS;
        let kept = self.constant(number, "the number of intervals of `tseries`");
        if wanted.is_some_and(|ns| ns < 1) {
            self.error("E0222", period.span, "an interval of `tseries` is 1 ns at least");
        }
        if kept.is_some_and(|kept| !(1..=most).contains(&kept)) {
            let message = format!("`tseries` keeps from 1 to {most} intervals");
            self.error("E0222", number.span, message);
        }
        if let (Agg::TSeries { interval, count, .. }, Some(ns @ 1..), Some(kept)) = (&mut whole, wanted, kept)
        {
            (*interval, *count) = (ns as u64, kept.clamp(1, most) as u32);
        }
        whole
    }

    fn series_keeps(&mut self, arg: &ast::Expr) -> Option<Keeps> {
        let text = self.text(arg, "what `tseries` keeps of an interval")?;
        let found = Keeps::NAMES.iter().find(|(name, _)| name.as_bytes() == text).map(|(_, keeps)| *keeps);
        if found.is_none() {
            let error = self.error("E0210", arg.span, "unknown way to keep the samples of an interval");
            error.help("write \"avg\", \"max\", \"min\" or \"sum\"; without it the last sample is kept");
        }
        found
    }

    pub fn linear(&mut self, args: &[ast::Expr]) -> Option<Agg> {
        let [_, low, high, width] = args else { return None };
        let min = self.constant(low, "the lower end of `lhist`")?;
        let max = self.constant(high, "the upper end of `lhist`")?;
        let step = self.constant(width, "the step of `lhist`")?;
        if max <= min {
            self.error("E0222", high.span, "the upper end of `lhist` must lie above the lower");
            return None;
        }
        if step <= 0 {
            self.error("E0222", width.span, "the step of `lhist` is 1 at least");
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

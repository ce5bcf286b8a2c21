//! Checks what agents report. An agent is in a traced process, which can send any bytes in its place.
//!
//! A report that cannot come from an agent is an error, after which nothing of that process is read any more. What a process reports of itself within
//! these bounds cannot be checked here.

use agent::kind_set::KindSet;
use agent::message::{Operators, Report, State};
use agent::record::{KINDS, Kind};
use thiserror::Error;

/// Request to an agent for records.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RecordRequest {
    /// Kinds of records, and what they need.
    pub kinds: KindSet,
    /// Milliseconds between two batches.
    pub flush_ms: u32,
}

/// Largest total: a record a nanosecond for three days. Sums of all processes stay far below 2^64.
pub(super) const MOST: u64 = 1 << 48;
/// Largest `CUptiResult`, and largest number of a kind of CUPTI's records.
const LARGEST_ENUM: u32 = i32::MAX as u32;

/// Why a report is not that of an agent.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Error)]
pub enum ReportError {
    /// A packet of another size.
    #[error("a report of {0} bytes")]
    Size(usize),
    /// A report before the request.
    #[error("a report before the tracer's request")]
    Early,
    /// A state that does not exist, or does not follow the last one.
    #[error("state {0}")]
    State(u32),
    /// `CUPTI_API_VERSION`
    #[error("version {0} of CUPTI")]
    Version(u32),
    /// A result or a kind of CUPTI.
    #[error("number {0} for a result or a kind of CUPTI")]
    Enum(u32),
    /// A state of operators that does not exist.
    #[error("number {0} for operators")]
    Operators(u32),
    /// Records of a kind that was not requested.
    #[error("records of kind {0}")]
    Kind(usize),
    /// A total that is smaller than before, or too large.
    #[error("a total of {total} after {before}")]
    Total {
        /// In the last report.
        before: u64,
        /// In this one.
        total: u64,
    },
}

/// Checks a report. `last`: the one before of the same agent.
///
/// # Errors
/// The first fault.
pub(super) fn check(
    report: &Report,
    last: Option<&Report>,
    wanted: RecordRequest,
) -> Result<(), ReportError> {
    let state = state(report.state, last).ok_or(ReportError::State(report.state))?;
    check_cupti(report, last, state)?;
    if report.operators > Operators::Refused as u32 {
        return Err(ReportError::Operators(report.operators));
    }
    let is_extra = |kind: &Kind| report.passed[*kind as usize] > 0 && !wanted.kinds.contains(*kind);
    if let Some(kind) = Kind::ALL.into_iter().find(is_extra) {
        return Err(ReportError::Kind(kind as usize));
    }
    let before = last.map_or([0; TOTALS], totals);
    for (before, total) in before.into_iter().zip(totals(report)) {
        if total < before || total > MOST {
            return Err(ReportError::Total { before, total });
        }
    }
    Ok(())
}

/// The state, if an agent can have it after its last one.
fn state(number: u32, last: Option<&Report>) -> Option<State> {
    use State::{Collects, Ended, EndsLater, NoCupti, Refused};
    let follows: &[State] = match last.map(|last| last.state) {
        None => &[NoCupti, Refused, Collects],
        Some(before) if before == Collects as u32 => &[Collects, Ended, EndsLater],
        // No report follows the end.
        Some(_) => &[],
    };
    follows.iter().copied().find(|state| *state as u32 == number)
}

/// Checks CUPTI's results in a report.
fn check_cupti(report: &Report, last: Option<&Report>, state: State) -> Result<(), ReportError> {
    // Releases before CUDA 13 have small numbers, later ones 130000 and more. Without CUPTI it is 0.
    let is_plausible = matches!(report.version, 0..=999 | 100_000..=9_999_999);
    let is_same = last.is_none_or(|last| last.version == report.version);
    let is_needed = state == State::Collects;
    if !is_plausible || !is_same || is_needed && report.version == 0 {
        return Err(ReportError::Version(report.version));
    }
    let large = [report.status, report.kind].into_iter().find(|number| *number > LARGEST_ENUM);
    large.map_or(Ok(()), |number| Err(ReportError::Enum(number)))
}

const TOTALS: usize = KINDS + 5;

/// All numbers that only grow.
fn totals(report: &Report) -> [u64; TOTALS] {
    let Report { passed, dropped, refused, without_time, clock_steps, missed, .. } = *report;
    let mut totals = [0; TOTALS];
    totals[..KINDS].copy_from_slice(&passed);
    totals[KINDS..].copy_from_slice(&[dropped, refused, without_time, clock_steps, missed]);
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: RecordRequest = RecordRequest { kinds: KindSet::of(Kind::Kernel), flush_ms: 100 };

    fn passed(kernels: u64, copies: u64) -> [u64; KINDS] {
        std::array::from_fn(|kind| match kind {
            kind if kind == Kind::Kernel as usize => kernels,
            kind if kind == Kind::Memcpy as usize => copies,
            _ => 0,
        })
    }

    fn collects() -> Report {
        Report { state: State::Collects as u32, version: 130_001, ..Report::default() }
    }

    #[test]
    fn reports_of_agents_are_accepted() {
        let mut second = Report { passed: passed(5, 0), dropped: 3, ..collects() };
        assert_eq!(check(&collects(), None, WANTED), Ok(()));
        assert_eq!(check(&second, Some(&collects()), WANTED), Ok(()));
        let third = second;
        second.state = State::Ended as u32;
        assert_eq!(check(&second, Some(&third), WANTED), Ok(()));
        let none = Report { state: State::NoCupti as u32, ..Report::default() };
        assert_eq!(check(&none, None, WANTED), Ok(()));
        assert_eq!(check(&Report { version: 14, ..none }, None, WANTED), Ok(()), "it lacks functions");
        let refused = Report { state: State::Refused as u32, version: 28, status: 39, kind: 10, ..none };
        assert_eq!(check(&refused, None, WANTED), Ok(()));
    }

    #[test]
    fn each_fault_is_found() {
        let last = Report { passed: passed(5, 0), dropped: 3, ..collects() };
        let fault = |report: Report| check(&report, Some(&last), WANTED).expect_err("a fault").to_string();
        assert_eq!(fault(Report { state: 9, ..last }), "state 9");
        assert_eq!(fault(Report { state: State::Refused as u32, ..last }), "state 2");
        assert_eq!(fault(Report { version: 28, ..last }), "version 28 of CUPTI");
        assert_eq!(
            fault(Report { status: u32::MAX, ..last }),
            "number 4294967295 for a result or a kind of CUPTI"
        );
        assert_eq!(fault(Report { operators: 4, ..last }), "number 4 for operators");
        assert_eq!(fault(Report { passed: passed(5, 1), ..last }), "records of kind 1");
        assert_eq!(fault(Report { passed: passed(4, 0), ..last }), "a total of 4 after 5");
        assert_eq!(fault(Report { dropped: 2, ..last }), "a total of 2 after 3");
        assert_eq!(fault(Report { missed: 1 << 63, ..last }), "a total of 9223372036854775808 after 0");
        let first = |report: Report| check(&report, None, WANTED).is_err();
        assert!(first(Report { state: 0, ..last }) && first(Report { state: State::Ended as u32, ..last }));
        assert!(first(Report { version: 0, ..last }) && first(Report { version: 50_000, ..last }));
    }
}

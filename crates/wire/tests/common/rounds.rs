//! Repetition of tests whose input is random.

use std::time::{Duration, Instant};

/// Numbers of rounds: `count` rounds, or as many as fit in `CUDATRACE_FUZZ_SECONDS`.
pub(crate) fn rounds(count: usize) -> impl Iterator<Item = usize> {
    let seconds = std::env::var("CUDATRACE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    (0..).take_while(move |round| end.map_or(*round < count, |end| Instant::now() < end))
}

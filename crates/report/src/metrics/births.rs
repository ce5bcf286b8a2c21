//! New counters start at 0 for a scraper, so that their first events are an increase.
//!
//! For Prometheus, a series begins at its first value: the `increase` of a series that appears at 1 is 0, and an alert misses the
//! first failure. A series therefore shows 0 in the scrape in which it appears, and its count from the next scrape on.
//!
//! ```text
//! scrape 7   gpu_cuda_errors_total{error_type="CUDA_ERROR_OUT_OF_MEMORY"} 0    increase
//! scrape 8   gpu_cuda_errors_total{error_type="CUDA_ERROR_OUT_OF_MEMORY"} 1    1
//! ```
//!
//! This is not done after a long time without a scrape: counts of days would appear as an increase within seconds.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use super::{Family, Kind, Labels, Number, Reading};

/// The series that scrapers have seen.
#[derive(Debug, Default)]
pub struct Births {
    seen: HashSet<u64>,
}

impl Births {
    /// The families as a scraper sees them. `recent`: an unknown series began after the last scrape or the start
    /// of the run.
    pub fn shown(&mut self, families: &[Family], recent: bool) -> Vec<Family> {
        let mut families = families.to_vec();
        let mut seen = HashSet::new();
        for family in families.iter_mut().filter(|family| !family.kind.is_now()) {
            for point in &mut family.points {
                let id = id(&family.name, family.kind, &point.labels);
                if recent && !self.seen.contains(&id) {
                    point.value.clear();
                }
                seen.insert(id);
            }
        }
        self.seen = seen;
        families
    }
}

fn id(name: &str, kind: Kind, labels: &Labels) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one((name, kind as u8, labels))
}

impl Reading {
    fn clear(&mut self) {
        let zero = |number: &mut Number| number.whole = 0;
        match self {
            Reading::Number(number) => zero(number),
            Reading::Summary { count, sum } => {
                *count = 0;
                zero(sum);
            }
            Reading::Histogram { buckets, count, sum } => {
                buckets.iter_mut().for_each(|(_, up_to)| *up_to = 0);
                *count = 0;
                sum.iter_mut().for_each(zero);
            }
        }
    }
}

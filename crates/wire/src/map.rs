//! Maps as the script declared them, and the layout of their cells.
//!
//! A cell's words are u64 unless said otherwise:
//!
//! ```text
//! plain, in a hash        the value
//! plain, in an array      u64 set (0 or 1), then the value at 8
//! count                   n
//! sum                     n, total          (n is 0 if the key was never written)
//! min, max                n, extreme
//! avg, stats              n, total
//! hist                    buckets, see hist_buckets; then the samples' sum, if it is kept
//! lhist                   below min, buckets..., from max on; then the sum, if it is kept
//! tseries                 intervals, each of SERIES_WORDS; that with the number n at n modulo their count
//! ```

use crate::types::Type;
use serde::{Deserialize, Serialize};

/// A map of the script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    /// Name without the sigil; empty for `@`.
    pub name: String,
    /// Name of the BPF map in the object: at most 15 bytes, `[A-Za-z0-9_]`, unique.
    pub symbol: String,
    /// Parts of the key; empty for a scalar map.
    pub key: Vec<Type>,
    /// Content of a cell.
    pub value: MapValue,
    /// How it is stored.
    pub storage: Storage,
    /// Largest number of keys.
    pub max_entries: u32,
}

/// Prefix of the sections of direct maps; the map's name follows. A direct map is an array of one value whose
/// address programs contain.
pub const DIRECT_PREFIX: &str = ".data.";

/// Prefixes of the names of maps that the compiler adds.
const HIDDEN: [&str; 7] =
    ["__kernel_", "__alloc_", "__device_", "__launch_", "__torch_", "__ioctl_", "__nvidia_"];
/// Map from the number of a GPU kernel's name to its text.
pub const KERNEL_TEXTS: &str = "__kernel_texts";
/// Map from the number of a GPU kernel to the process and address of its host function, 8 bytes each.
pub const KERNEL_PLACES: &str = "__kernel_places";
/// Map from the number of a device to its UUID, 16 bytes.
pub const DEVICE_UUIDS: &str = "__device_uuids";
/// The map with the contexts of threads, by which scripts know their devices.
pub const CONTEXTS: &str = "__device_at";

/// Whether a map of this name was added by the compiler.
pub fn is_hidden(name: &str) -> bool {
    HIDDEN.iter().any(|start| name.starts_with(start))
}

impl Map {
    /// Whether the compiler added the map, so that it is not shown.
    pub fn is_hidden(&self) -> bool {
        is_hidden(&self.name)
    }
}

/// Content of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MapValue {
    /// A value.
    Plain(Type),
    /// An aggregation.
    Agg(Agg),
}

/// Kind of BPF map.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Storage {
    /// BPF_MAP_TYPE_HASH
    Hash,
    /// BPF_MAP_TYPE_PERCPU_HASH
    PerCpuHash,
    /// BPF_MAP_TYPE_LRU_HASH
    LruHash,
    /// BPF_MAP_TYPE_LRU_PERCPU_HASH
    PerCpuLruHash,
    /// BPF_MAP_TYPE_ARRAY: scalar maps (index 0).
    Array,
    /// BPF_MAP_TYPE_PERCPU_ARRAY: scalar aggregations, and those keyed by one dense small integer (a `Name`).
    PerCpuArray,
}

impl Storage {
    /// Whether cells exist from the start, so that unused ones must be recognised by their contents.
    pub fn is_array(self) -> bool {
        matches!(self, Storage::Array | Storage::PerCpuArray)
    }

    /// Whether a new key evicts the least recently used one.
    pub fn evicts(self) -> bool {
        matches!(self, Storage::LruHash | Storage::PerCpuLruHash)
    }

    /// Whether there is one cell per CPU.
    pub fn is_per_cpu(self) -> bool {
        matches!(self, Storage::PerCpuHash | Storage::PerCpuLruHash | Storage::PerCpuArray)
    }
}

/// An aggregation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Agg {
    /// `count()`: number of samples.
    Count,
    /// `sum(n)`
    Sum {
        /// Samples are signed.
        signed: bool,
    },
    /// `min(n)`: the smallest.
    Min {
        /// Samples are signed.
        signed: bool,
    },
    /// `max(n)`: the largest.
    Max {
        /// Samples are signed.
        signed: bool,
    },
    /// `avg(n)`: mean, rounded towards zero.
    Avg {
        /// Samples are signed.
        signed: bool,
    },
    /// `stats(n)`: count, mean and sum.
    Stats {
        /// Samples are signed.
        signed: bool,
    },
    /// `hist(n, bits)`: powers of two, divided into 2^bits parts each.
    Hist {
        /// 0..=5
        bits: u8,
        /// True if the samples are also summed. The code generator sets it; it is `false` in a checked script.
        summed: bool,
    },
    /// `lhist(n, min, max, step)`: equal steps.
    LHist {
        /// Lower bound.
        min: i64,
        /// Upper bound.
        max: i64,
        /// Width of a bucket.
        step: i64,
        /// See [`Agg::Hist`].
        summed: bool,
    },
    /// `tseries(n, interval, count, "sum")`: a value for each of the last `count` intervals.
    TSeries {
        /// Length of an interval in ns of the boot clock.
        interval: u64,
        /// Number of intervals.
        count: u32,
        /// Value of an interval.
        keeps: Keeps,
        /// Samples are signed.
        signed: bool,
    },
}

/// Value of an interval, computed from its samples.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keeps {
    /// The last one.
    Last,
    /// Their sum.
    Sum,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// Their mean, rounded towards zero.
    Avg,
}

impl Keeps {
    /// All modes with names, as in scripts. The default is the last sample.
    pub const NAMES: [(&'static str, Keeps); 4] =
        [("avg", Keeps::Avg), ("max", Keeps::Max), ("min", Keeps::Min), ("sum", Keeps::Sum)];
}

/// Words of an interval: its number since boot plus one (0: none yet), number of samples, value, time of the last
/// sample.
pub const SERIES_WORDS: u32 = 4;
/// Placeholder for the number of an interval while its words are reset.
pub const SERIES_CLAIMED: u64 = u64::MAX;

impl Agg {
    /// The aggregation, with or without a sum if it is a histogram.
    pub fn with_sums(mut self, sums: bool) -> Agg {
        if let Agg::Hist { summed, .. } | Agg::LHist { summed, .. } = &mut self {
            *summed = sums;
        }
        self
    }

    /// Size of a cell in words (u64).
    pub fn words(&self) -> u32 {
        match self {
            Agg::Count => 1,
            Agg::Sum { .. } | Agg::Min { .. } | Agg::Max { .. } | Agg::Avg { .. } | Agg::Stats { .. } => 2,
            Agg::Hist { summed, .. } | Agg::LHist { summed, .. } => self.buckets() + u32::from(*summed),
            Agg::TSeries { count, .. } => SERIES_WORDS * count,
        }
    }

    /// Number of buckets of a histogram; 0 for other aggregations.
    pub fn buckets(&self) -> u32 {
        match *self {
            Agg::Hist { bits, .. } => hist_buckets(bits),
            Agg::LHist { min, max, step, .. } => lhist_steps(min, max, step) + 2,
            _ => 0,
        }
    }

    /// Index of the word with the sum of a histogram's samples, if there is one.
    pub fn sum_word(&self) -> Option<u32> {
        match self {
            Agg::Hist { summed: true, .. } | Agg::LHist { summed: true, .. } => Some(self.buckets()),
            _ => None,
        }
    }
}

/// Number of steps between the two open buckets of an lhist; `max` may truncate the last step.
pub fn lhist_steps(min: i64, max: i64, step: i64) -> u32 {
    ((i128::from(max) - i128::from(min) + i128::from(step) - 1) / i128::from(step)) as u32
}

/// Number of buckets of a `hist` whose powers of two have 2^bits parts. Bucket 0 has negative samples, bucket 1 +
/// n the sample n for n < 2^(bits+1), and so on by [`hist_bucket`].
pub fn hist_buckets(bits: u8) -> u32 {
    // The largest sample is i64::MAX, with 63 significant bits.
    1 + hist_index(i64::MAX as u64, bits) + 1
}

/// The bucket of a sample.
pub fn hist_bucket(sample: i64, bits: u8) -> u32 {
    if sample < 0 { 0 } else { 1 + hist_index(sample as u64, bits) }
}

/// Index of a non-negative sample: the sample itself below 2^bits, otherwise the octave and the `bits` bits after
/// the leading one.
fn hist_index(sample: u64, bits: u8) -> u32 {
    if sample < 1 << bits {
        return sample as u32;
    }
    let shift = 63 - sample.leading_zeros() - u32::from(bits);
    (shift << bits) + (sample >> shift) as u32
}

/// Inclusive lower and exclusive upper bound of a bucket. Bucket 0 has no lower bound and ends before 0.
pub fn hist_range(bucket: u32, bits: u8) -> (Option<i64>, Option<i64>) {
    if bucket == 0 {
        return (None, Some(0));
    }
    let low = |index: u32| -> Option<i64> {
        let octaves = index >> bits;
        if octaves <= 1 {
            return Some(i64::from(index));
        }
        let shift = octaves - 1;
        let mantissa = i64::from((index & ((1 << bits) - 1)) | (1 << bits));
        mantissa.checked_shl(shift).filter(|low| low >> shift == mantissa)
    };
    (low(bucket - 1), low(bucket))
}

impl Map {
    /// Size of the BPF map's key in bytes.
    pub fn key_size(&self) -> u32 {
        crate::layout::key(&self.key).size
    }

    /// Offset of the value in a cell, in bytes.
    pub fn value_offset(&self) -> u32 {
        match (&self.value, self.storage) {
            (MapValue::Plain(_), Storage::Array | Storage::PerCpuArray) => 8,
            _ => 0,
        }
    }

    /// Size of a cell in bytes, a multiple of 8.
    pub fn value_size(&self) -> u32 {
        match &self.value {
            MapValue::Plain(ty) => (self.value_offset() + ty.size()).next_multiple_of(8),
            MapValue::Agg(agg) => 8 * agg.words(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_lies_in_its_bucket_and_buckets_follow_each_other() {
        for bits in 0..=5 {
            let mut samples: Vec<i64> =
                (0..63).flat_map(|s| [-1, 0, 1, 3].map(|d| (1i64 << s) + d)).collect();
            samples.push(i64::MAX);
            for sample in samples.into_iter().filter(|s| *s >= 0) {
                let bucket = hist_bucket(sample, bits);
                assert!(bucket < hist_buckets(bits));
                let (low, high) = hist_range(bucket, bits);
                assert!(
                    low.unwrap() <= sample && high.is_none_or(|h| sample < h),
                    "{sample} {bits} {low:?} {high:?}"
                );
            }
            for bucket in 1..hist_buckets(bits) - 1 {
                assert_eq!(hist_range(bucket, bits).1, hist_range(bucket + 1, bits).0, "{bucket} {bits}");
            }
        }
        assert_eq!(hist_buckets(0), 65);
    }
}

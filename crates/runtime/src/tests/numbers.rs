//! Random numbers, the same in each run.

/// Deterministic pseudo-random numbers. The seed is not 0.
pub(crate) struct Numbers(pub u64);

impl Numbers {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

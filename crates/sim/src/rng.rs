//! Deterministic random numbers: the same seed gives the same world and script on every machine.

/// SplitMix64 (Steele, Lea, Flood 2014): one word of state, any seed is valid.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator with a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    /// True with a probability of `percent` percent.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of the items; `items` is not empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// An integer: mostly small, sometimes at the limit of a width, sometimes arbitrary.
    pub fn interesting(&mut self) -> i64 {
        let edge = 1i64.checked_shl(self.below(64) as u32).unwrap_or(0);
        match self.below(10) {
            0..=4 => self.below(40) as i64 - 4,
            5 => edge,
            6 => edge.wrapping_sub(1),
            7 => edge.wrapping_neg(),
            8 => self.below(1 << 20) as i64,
            _ => self.bits() as i64,
        }
    }
}

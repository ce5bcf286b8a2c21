//! Sets of small numbers, and what of them is still wanted at each edge of a control flow graph. The IR's registers, the
//! machine's and stack slots are all followed with these.

/// A set of numbers below a fixed bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// The empty set of numbers below `len`.
    pub fn new(len: usize) -> Bits {
        Bits(vec![0; len.div_ceil(64)])
    }

    /// Adds a number.
    pub fn insert(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    /// Removes a number.
    pub fn remove(&mut self, at: usize) {
        self.0[at / 64] &= !(1 << (at % 64));
    }

    /// Whether a number is in the set.
    pub fn contains(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 != 0
    }

    /// Adds all of `other`; says whether that made a difference.
    pub fn union(&mut self, other: &Bits) -> bool {
        self.add(other.0.iter().copied())
    }

    /// Adds what is in `other` but not in `without`; says whether that made a difference.
    fn union_without(&mut self, other: &Bits, without: &Bits) -> bool {
        self.add(other.0.iter().zip(&without.0).map(|(there, not)| there & !not))
    }

    fn add(&mut self, words: impl Iterator<Item = u64>) -> bool {
        self.0.iter_mut().zip(words).fold(false, |changed, (word, more)| {
            let old = std::mem::replace(word, *word | more);
            changed | (*word != old)
        })
    }

    /// What is in both.
    pub fn both(&self, other: &Bits) -> Bits {
        Bits(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect())
    }

    /// In ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            // Each step clears the lowest bit.
            let words = std::iter::successors(Some(word), |left| Some(left & left.wrapping_sub(1)));
            let ones = words.take_while(|left| *left != 0);
            ones.map(move |left| 64 * at + left.trailing_zeros() as usize)
        })
    }
}

/// What a block reads before it writes it, and what it writes.
#[derive(Clone, Debug)]
pub struct Effect {
    /// Wanted at its start, whatever comes behind it.
    pub reads: Bits,
    /// Not wanted before it, unless read.
    pub writes: Bits,
}

impl Effect {
    /// Of no code, on numbers below `len`.
    pub fn new(len: usize) -> Effect {
        Effect { reads: Bits::new(len), writes: Bits::new(len) }
    }

    /// Takes note of a read, in the order of the code.
    pub fn read(&mut self, at: usize) {
        if !self.writes.contains(at) {
            self.reads.insert(at);
        }
    }

    /// Takes note of a write, in the order of the code.
    pub fn write(&mut self, at: usize) {
        self.writes.insert(at);
    }
}

/// By block: what is wanted at its start and at its end.
#[derive(Clone, Debug)]
pub struct Live {
    /// At the start.
    pub starts: Vec<Bits>,
    /// At the end.
    pub ends: Vec<Bits>,
}

/// Goes backwards through the blocks until nothing changes.
pub fn live<S: Iterator<Item = usize>>(
    effects: &[Effect],
    len: usize,
    successors: impl Fn(usize) -> S,
) -> Live {
    let mut starts: Vec<Bits> = effects.iter().map(|effect| effect.reads.clone()).collect();
    let mut ends = vec![Bits::new(len); effects.len()];
    let mut changed = true;
    while std::mem::take(&mut changed) {
        for block in (0..effects.len()).rev() {
            let more = successors(block).fold(false, |more, next| ends[block].union(&starts[next]) | more);
            changed |= more && starts[block].union_without(&ends[block], &effects[block].writes);
        }
    }
    Live { starts, ends }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_loop_reads_is_wanted_throughout_it() {
        // 0: writes 1; 1: reads 1, goes to itself or on; 2: reads 70
        let mut effects = vec![Effect::new(100); 3];
        effects[0].write(1);
        effects[1].read(1);
        effects[2].read(70);
        let ways = [vec![1], vec![1, 2], vec![]];
        let live = live(&effects, 100, |block| ways[block].clone().into_iter());
        let listed = |sets: &[Bits]| sets.iter().map(|set| set.iter().collect()).collect::<Vec<Vec<usize>>>();
        assert_eq!(listed(&live.starts), [vec![70], vec![1, 70], vec![70]]);
        assert_eq!(listed(&live.ends), [vec![1, 70], vec![1, 70], vec![]]);
    }
}

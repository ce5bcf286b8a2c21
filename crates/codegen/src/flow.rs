//! Sets of small numbers, and what of them is still wanted at each edge of a control flow graph. The IR's registers, the
//! machine's and stack slots are all followed with these.

use smallvec::{SmallVec, smallvec};

/// A set of numbers below a fixed bound. There is one or more for each block, and most functions are small.
#[derive(Clone, Debug, PartialEq)]
pub struct Bits(SmallVec<[u64; 6]>);

impl Bits {
    /// The empty set of numbers below `len`.
    pub fn new(len: usize) -> Bits {
        Bits(smallvec![0; len.div_ceil(64)])
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

/// A list for each number below a bound, all of them in one piece of memory.
#[derive(Clone, Debug)]
pub struct Lists<T> {
    items: Vec<T>,
    /// By number: where its list begins; and the end of the last.
    starts: Vec<u32>,
}

impl<T: Clone> Lists<T> {
    /// Sorts `entries` by their number, which is below `len`; those of one number keep their order.
    pub fn of(entries: &[(u32, T)], len: usize) -> Lists<T> {
        let mut starts = vec![0; len + 1];
        entries.iter().for_each(|(number, _)| starts[*number as usize + 1] += 1);
        (0..len).for_each(|number| starts[number + 1] += starts[number]);
        let (mut next, mut order) = (starts.clone(), vec![0; entries.len()]);
        for (at, (number, _)) in entries.iter().enumerate() {
            let next = &mut next[*number as usize];
            order[*next as usize] = at;
            *next += 1;
        }
        Lists { items: order.into_iter().map(|at| entries[at].1.clone()).collect(), starts }
    }

    /// The list of a number.
    pub fn get(&self, number: usize) -> &[T] {
        &self.items[self.starts[number] as usize..self.starts[number + 1] as usize]
    }
}

/// What the blocks of a function read and write, in the order of their code.
///
/// Most numbers are written and read within one block. Only the others, which some block reads before it writes them, can be
/// wanted at an edge, and sets have room for those alone.
#[derive(Clone, Debug)]
pub struct Effects {
    /// By number: the last block, from 1, that wrote it; and that read what it had not written.
    last: Vec<(u32, u32)>,
    blocks: u32,
    /// Block and number: read before it is written.
    reads: Vec<(u32, u32)>,
    /// Block and number.
    writes: Vec<(u32, u32)>,
}

impl Effects {
    /// Of no block, on numbers below `len`.
    pub fn new(len: usize) -> Effects {
        Effects { last: vec![(0, 0); len], blocks: 0, reads: Vec::new(), writes: Vec::new() }
    }

    /// What is read and written from now on is done by the next block.
    pub fn begin_block(&mut self) {
        self.blocks += 1;
    }

    /// Takes note of a read.
    pub fn read(&mut self, number: usize) {
        let (written, read) = &mut self.last[number];
        if *written != self.blocks && *read != self.blocks {
            *read = self.blocks;
            self.reads.push((self.blocks - 1, number as u32));
        }
    }

    /// Takes note of a write.
    pub fn write(&mut self, number: usize) {
        let (written, _) = &mut self.last[number];
        if *written != self.blocks {
            *written = self.blocks;
            self.writes.push((self.blocks - 1, number as u32));
        }
    }

    /// What is wanted at the start and end of each block. Goes backwards through the blocks until nothing changes.
    pub fn live<S: Iterator<Item = usize>>(self, successors: impl Fn(usize) -> S) -> Live {
        let Effects { last, blocks, reads, writes } = self;
        let mut numbers: Vec<u32> = Vec::new();
        let mut places: Vec<Option<u32>> = vec![None; last.len()];
        for (_, number) in &reads {
            places[*number as usize].get_or_insert_with(|| {
                numbers.push(*number);
                numbers.len() as u32 - 1
            });
        }
        let none = vec![Bits::new(numbers.len()); blocks as usize];
        let (mut starts, mut ends, mut written) = (none.clone(), none.clone(), none);
        for (sets, entries) in [(&mut starts, &reads), (&mut written, &writes)] {
            for (block, number) in entries {
                let place = places[*number as usize];
                place.into_iter().for_each(|place| sets[*block as usize].insert(place as usize));
            }
        }
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for block in (0..blocks as usize).rev() {
                let more =
                    successors(block).fold(false, |more, next| ends[block].union(&starts[next]) | more);
                changed |= more && starts[block].union_without(&ends[block], &written[block]);
            }
        }
        Live { numbers, starts, ends }
    }
}

/// What is wanted at the edges of blocks.
#[derive(Clone, Debug)]
pub struct Live {
    /// By place in a set: which number that is.
    numbers: Vec<u32>,
    starts: Vec<Bits>,
    ends: Vec<Bits>,
}

impl Live {
    /// At the start of a block.
    pub fn at_start(&self, block: usize) -> impl Iterator<Item = usize> + '_ {
        self.starts[block].iter().map(|place| self.numbers[place] as usize)
    }

    /// At the end of a block.
    pub fn at_end(&self, block: usize) -> impl Iterator<Item = usize> + '_ {
        self.ends[block].iter().map(|place| self.numbers[place] as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_loop_reads_is_wanted_throughout_it() {
        // 0: writes 1 and 5, reads 5; 1: reads 1, goes to itself or on; 2: reads 70
        let mut effects = Effects::new(100);
        effects.begin_block();
        effects.write(1);
        effects.write(5);
        effects.read(5);
        effects.begin_block();
        effects.read(1);
        effects.begin_block();
        effects.read(70);
        let ways = [vec![1], vec![1, 2], vec![]];
        let live = effects.live(|block| ways[block].clone().into_iter());
        let sorted = |found: &mut dyn Iterator<Item = usize>| {
            let mut list: Vec<usize> = found.collect();
            list.sort();
            list
        };
        let starts: Vec<_> = (0..3).map(|block| sorted(&mut live.at_start(block))).collect();
        let ends: Vec<_> = (0..3).map(|block| sorted(&mut live.at_end(block))).collect();
        assert_eq!(starts, [vec![70], vec![1, 70], vec![70]]);
        assert_eq!(ends, [vec![1, 70], vec![1, 70], vec![]]);
    }

    #[test]
    fn lists_keep_the_order_of_their_entries() {
        let lists = Lists::of(&[(2, 'a'), (0, 'b'), (2, 'c')], 4);
        assert_eq!(
            (0..4).map(|at| lists.get(at).iter().collect()).collect::<Vec<String>>(),
            ["b", "", "ac", ""]
        );
    }
}

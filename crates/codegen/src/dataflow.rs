//! Bit sets, and liveness at each edge of a control flow graph: of registers of the IR, machine registers and stack slots.

use smallvec::{SmallVec, smallvec};

/// A set of numbers below a fixed bound. Each block has at least one, and most functions are small.
#[derive(Debug, PartialEq)]
pub(crate) struct Bits(SmallVec<[u64; 6]>);

impl Clone for Bits {
    fn clone(&self) -> Bits {
        // The derived `clone` would copy word by word.
        Bits(SmallVec::from_slice(&self.0))
    }
}

impl Bits {
    /// The empty set of numbers below `len`.
    pub(crate) fn new(len: usize) -> Bits {
        Bits(smallvec![0; len.div_ceil(64)])
    }

    /// Adds a number.
    pub(crate) fn insert(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    /// Removes a number.
    pub(crate) fn remove(&mut self, at: usize) {
        self.0[at / 64] &= !(1 << (at % 64));
    }

    /// Whether a number is in the set.
    pub(crate) fn contains(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 != 0
    }

    /// Adds all of `other`; returns whether the set changed.
    pub(crate) fn union(&mut self, other: &Bits) -> bool {
        self.0.iter_mut().zip(&other.0).fold(false, |changed, (word, more)| {
            let old = std::mem::replace(word, *word | more);
            changed | (*word != old)
        })
    }

    /// Intersection.
    pub(crate) fn both(&self, other: &Bits) -> Bits {
        Bits(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect())
    }

    /// The numbers in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            // Each step clears the lowest bit.
            let words = std::iter::successors(Some(word), |left| Some(left & left.wrapping_sub(1)));
            let ones = words.take_while(|left| *left != 0);
            ones.map(move |left| 64 * at + left.trailing_zeros() as usize)
        })
    }
}

/// A list for each number below a bound, all in one allocation.
#[derive(Clone, Debug)]
pub(crate) struct Lists<T> {
    items: Vec<T>,
    /// Index of the first item of each list, then the number of all items.
    starts: Vec<u32>,
}

impl<T: Clone> Lists<T> {
    /// Groups `entries` by their number, which is below `len`; entries with the same number keep their order.
    pub(crate) fn of(entries: &[(u32, T)], len: usize) -> Lists<T> {
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

    /// Removes items from all lists.
    fn retain(&mut self, keeps: impl Fn(&T) -> bool) {
        let (mut from, mut kept) = (0, 0);
        for end in &mut self.starts[1..] {
            for at in from..*end as usize {
                if keeps(&self.items[at]) {
                    self.items.swap(kept, at);
                    kept += 1;
                }
            }
            from = std::mem::replace(end, kept as u32) as usize;
        }
        self.items.truncate(kept);
    }

    /// The list of a number.
    pub(crate) fn get(&self, number: usize) -> &[T] {
        &self.items[self.starts[number] as usize..self.starts[number + 1] as usize]
    }
}

/// Reads and writes of the blocks of a function, recorded in the order of the code.
#[derive(Clone, Debug)]
pub(crate) struct Effects {
    /// For each number: the last block, counted from 1, that wrote it, and the last block that read it before any
    /// write.
    last: Vec<(u32, u32)>,
    blocks: u32,
    /// Number and block of reads before any write in the block.
    reads: Vec<(u32, u32)>,
    /// Number and block of writes.
    writes: Vec<(u32, u32)>,
}

impl Effects {
    /// Starts without blocks; numbers are below `len`.
    pub(crate) fn new(len: usize) -> Effects {
        Effects { last: vec![(0, 0); len], blocks: 0, reads: Vec::new(), writes: Vec::new() }
    }

    /// Begins the next block; later reads and writes belong to it.
    pub(crate) fn begin_block(&mut self) {
        self.blocks += 1;
    }

    /// Records a read.
    pub(crate) fn read(&mut self, number: usize) {
        let (written, read) = &mut self.last[number];
        if *written != self.blocks && *read != self.blocks {
            *read = self.blocks;
            self.reads.push((number as u32, self.blocks - 1));
        }
    }

    /// Records a write.
    pub(crate) fn write(&mut self, number: usize) {
        let (written, _) = &mut self.last[number];
        if *written != self.blocks {
            *written = self.blocks;
            self.writes.push((number as u32, self.blocks - 1));
        }
    }

    /// Computes the live numbers at the start and end of each block. Each read is followed backwards to the writes
    /// of its number, so the time is proportional to the size of the result.
    pub(crate) fn live<S: Iterator<Item = usize>>(self, successors: impl Fn(usize) -> S) -> Live {
        let Effects { last, blocks, mut reads, mut writes } = self;
        // Most registers are live in one block only: they are not read before they are written.
        writes.retain(|(number, _)| last[*number as usize].1 != 0);
        reads.sort_unstable();
        writes.sort_unstable();
        let edges =
            (0..blocks).flat_map(|block| successors(block as usize).map(move |to| (to as u32, block)));
        let before = Lists::of(&edges.collect::<Vec<_>>(), blocks as usize);
        let seen = vec![[NOBODY; 3]; blocks as usize];
        let mut walk = Walk { seen, starts: Vec::new(), ends: Vec::new(), todo: Vec::new() };
        let mut writes = writes.chunk_by(|a, b| a.0 == b.0).peekable();
        for reads in reads.chunk_by(|a, b| a.0 == b.0) {
            while writes.next_if(|writes| writes[0].0 < reads[0].0).is_some() {}
            walk.back(reads, writes.next_if(|writes| writes[0].0 == reads[0].0).unwrap_or(&[]), &before);
        }
        Live {
            starts: Lists::of(&walk.starts, blocks as usize),
            ends: Lists::of(&walk.ends, blocks as usize),
        }
    }
}

/// A number that does not occur.
const NOBODY: u32 = u32::MAX;

/// Backward walk from the reads of one number at a time.
struct Walk {
    /// For each block: the last number that was found live at its start, live at its end, and written in it.
    seen: Vec<[u32; 3]>,
    /// Block and number of live starts.
    starts: Vec<(u32, u32)>,
    /// Block and number of live ends.
    ends: Vec<(u32, u32)>,
    /// Blocks at whose start the current number is live, and whose predecessors are not visited yet.
    todo: Vec<u32>,
}

impl Walk {
    /// Walks back from `reads` to `writes`, which are of one number.
    fn back(&mut self, reads: &[(u32, u32)], writes: &[(u32, u32)], before: &Lists<u32>) {
        let number = reads[0].0;
        writes.iter().for_each(|(_, block)| self.seen[*block as usize][2] = number);
        self.todo.extend(reads.iter().map(|(_, block)| *block));
        while let Some(block) = self.todo.pop() {
            let [at_start, _, _] = &mut self.seen[block as usize];
            if std::mem::replace(at_start, number) == number {
                continue;
            }
            self.starts.push((block, number));
            for &from in before.get(block as usize) {
                let [_, at_end, written] = &mut self.seen[from as usize];
                if std::mem::replace(at_end, number) != number {
                    self.ends.push((from, number));
                    self.todo.extend((*written != number).then_some(from));
                }
            }
        }
    }
}

/// Numbers that are live at the start and end of blocks.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    starts: Lists<u32>,
    ends: Lists<u32>,
}

impl Live {
    /// Numbers that are live at the start of a block, in ascending order.
    pub(crate) fn at_start(&self, block: usize) -> impl Iterator<Item = usize> + '_ {
        self.starts.get(block).iter().map(|number| *number as usize)
    }

    /// Removes numbers that no longer occur.
    pub(crate) fn forget(&mut self, is_gone: impl Fn(usize) -> bool) {
        for lists in [&mut self.starts, &mut self.ends] {
            lists.retain(|number| !is_gone(*number as usize));
        }
    }

    /// Numbers that are live at the end of a block, in ascending order.
    pub(crate) fn at_end(&self, block: usize) -> impl Iterator<Item = usize> + '_ {
        self.ends.get(block).iter().map(|number| *number as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_a_loop_reads_are_live_throughout_it() {
        // Block 0 writes 1 and 5 and reads 5; block 1 reads 1 and goes to itself or to 2; block 2 reads 70.
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
    fn lists_lose_what_is_forgotten() {
        let mut lists = Lists::of(&[(2, 'a'), (0, 'b'), (2, 'c'), (2, 'd'), (3, 'a')], 4);
        lists.retain(|item| *item != 'a' && *item != 'd');
        let kept: Vec<String> = (0..4).map(|at| lists.get(at).iter().collect()).collect();
        assert_eq!(kept, ["b", "", "c", ""]);
    }

    #[test]
    fn live_sets_grow_linearly_with_the_code() {
        const BLOCKS: usize = 3000;
        let mut effects = Effects::new(BLOCKS);
        for block in 0..BLOCKS {
            effects.begin_block();
            effects.write(block);
            block.checked_sub(1).into_iter().for_each(|earlier| effects.read(earlier));
        }
        let live = effects.live(|block| (block + 1..BLOCKS).take(1));
        assert_eq!(live.starts.items.len() + live.ends.items.len(), 2 * (BLOCKS - 1));
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

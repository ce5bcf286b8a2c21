//! Batches of records of a GPU in a random world: some of its calls become calls of the agent's functions.

use crate::rng::Rng;
use crate::world::{Callee, Reg, TEXTS, UNMAPPED, World};
use cuda::gpu::{MEMBERS, Member, RECORD_BYTES};

/// Address of the first batch.
const BATCHES: u64 = 0x5555_0200_0000;

/// Largest number of records of a batch.
const MOST: u64 = 6;

impl World {
    /// Turns about half of the calls into calls of these functions with batches of records.
    pub fn pass_records(&mut self, functions: &[Callee], seed: u64) {
        let mut rng = Rng::new(seed);
        let mut at = BATCHES;
        for call in &mut self.calls {
            if rng.chance(50) {
                continue;
            }
            let callee = rng.pick(functions);
            (call.file, call.function) = (callee.file, callee.function);
            let count = rng.below(MOST + 1);
            let bytes: Vec<u8> = (0..count).flat_map(|_| record(&mut rng)).collect();
            self.memory.write(at, &bytes);
            // A batch that cannot be read.
            let first = if rng.chance(5) { UNMAPPED } else { at };
            call.entry.set(Reg::Di, first);
            call.entry.set(Reg::Si, count);
            at += bytes.len() as u64;
        }
    }
}

/// A record whose numbers are small, so that keys and conditions meet, and whose name is a text or cannot be read.
fn record(rng: &mut Rng) -> Vec<u8> {
    let start = 1_000_000_000 + rng.below(1 << 20);
    let mut bytes = vec![0; RECORD_BYTES as usize];
    for Member { name, offset, bytes: size } in MEMBERS {
        let value = match *name {
            "start" => start,
            "end" => start + rng.below(5_000),
            "launch" if rng.chance(30) => 0,
            "launch" => start - rng.below(1_000),
            "kernel" | "func" | "range" if rng.chance(5) => UNMAPPED,
            "kernel" | "func" | "range" if rng.chance(5) => 0,
            "kernel" | "func" | "range" => TEXTS + 64 * rng.below(16),
            "value" => rng.below(4) << (16 * rng.below(2)),
            "bytes" => rng.interesting() as u64,
            _ => rng.below(12),
        };
        let place = *offset as usize..(offset + size) as usize;
        bytes[place].copy_from_slice(&value.to_le_bytes()[..*size as usize]);
    }
    bytes
}

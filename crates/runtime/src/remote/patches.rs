//! Jumps in the functions of another process, whose threads are all stopped.
//!
//! No thread may continue in the middle of the overwritten instructions. A thread that has stopped there continues in their copy. A
//! signal handler may return there: stacks are searched for such addresses, and a function that is found is not patched now; the caller may try again.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::error::RemoteError;
use super::stopped::StoppedProcess;
use linux::proc::Mapping;
use native::site::JUMP;

/// Bytes below the stack pointer that a function may use.
const RED_ZONE: u64 = 128;
/// Largest part of a stack that is searched, in bytes.
const MAX_STACK: u64 = 1 << 20;

/// A jump that overwrites whole instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Address of the jump.
    pub address: u64,
    /// The instructions that give way, from the file: 5 bytes at least.
    pub original: Vec<u8>,
    /// The jump.
    pub jump: [u8; JUMP],
    /// Offset of each instruction in `original`, and its address in the copy.
    pub moved: Vec<(u8, u64)>,
}

impl Patch {
    /// Addresses that must not be reached while the jump is there: all but the first.
    fn inside(&self) -> Range<u64> {
        self.address + 1..self.address + self.original.len() as u64
    }

    /// The address to which the jump leads.
    pub fn target(&self) -> u64 {
        let distance = i32::from_le_bytes(self.jump[1..].try_into().expect("an opcode and a distance"));
        (self.address + JUMP as u64).wrapping_add_signed(distance.into())
    }

    /// The address in the copy that corresponds to an address in the original.
    fn moved_to(&self, address: u64) -> Option<u64> {
        let moved = self.moved.iter().find(|(offset, _)| self.address + u64::from(*offset) == address)?;
        Some(moved.1)
    }
}

/// The reason why a function was left out.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// A thread will continue in the middle of the instructions. This passes.
    InUse,
    /// The bytes are those of another tool, such as a debugger's breakpoint or a uprobe in the middle.
    OtherBytes,
    /// The address is not in code that belongs to the process alone.
    NoPrivateCode,
    /// There is no room for code of ours near the function.
    NoRoom,
}

/// The result of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchOutcome {
    /// Number of functions that were changed.
    pub changed: usize,
    /// Number of threads that were sent to the copy of the instructions.
    pub moved_threads: usize,
    /// Bytes of stacks that were searched.
    pub searched: usize,
    /// Functions that were left out, by their index.
    pub skipped: Vec<(usize, SkipReason)>,
}

/// The patches of a process.
#[derive(Debug)]
pub struct Patches {
    list: Vec<Patch>,
    written: Vec<bool>,
    /// Indices in the order of the addresses.
    by_address: Vec<usize>,
}

impl Patches {
    /// Patches that are not written yet; their instructions do not overlap.
    ///
    /// # Panics
    /// If a patch has fewer bytes than a jump, or some overlap.
    pub fn new(list: Vec<Patch>) -> Patches {
        assert!(list.iter().all(|patch| patch.original.len() >= JUMP), "room for a jump");
        let mut by_address: Vec<usize> = (0..list.len()).collect();
        by_address.sort_unstable_by_key(|at| list[*at].address);
        let apart = |pair: &[usize]| list[pair[0]].inside().end <= list[pair[1]].address;
        assert!(by_address.windows(2).all(apart), "patches overlap");
        Patches { written: vec![false; list.len()], by_address, list }
    }

    /// Whether a patch is of this kind.
    pub fn any(&self, is_one: impl Fn(&Patch) -> bool) -> bool {
        self.list.iter().any(is_one)
    }

    /// Removes patches, whose jumps are not there any more; returns where they were.
    pub fn remove(&mut self, is_removed: impl Fn(&Patch) -> bool) -> Vec<usize> {
        let (mut list, mut written, mut removed) = (vec![], vec![], vec![]);
        for (at, patch) in std::mem::take(&mut self.list).into_iter().enumerate() {
            match is_removed(&patch) {
                true => removed.push(at),
                false => {
                    list.push(patch);
                    written.push(self.written[at]);
                }
            }
        }
        *self = Patches { written, ..Patches::new(list) };
        removed
    }

    /// Number of functions that are patched.
    pub fn written(&self) -> usize {
        self.written.iter().filter(|written| **written).count()
    }

    /// Writes the jumps that are not written yet. All threads of the process are stopped.
    ///
    /// # Errors
    /// [`RemoteError::Gone`] if the process is killed meanwhile; the errors of reading and writing its memory.
    pub fn write(&mut self, stopped: &StoppedProcess<'_>) -> Result<PatchOutcome, RemoteError> {
        self.write_where(stopped, |_| true)
    }

    /// Writes the jumps that are not there: not written yet, or gone with a file that was unmapped and mapped again. `is_mapped`:
    /// whether the file of a patch is mapped, by the index of the patch; others stay as they are.
    ///
    /// # Errors
    /// As for [`Patches::write`].
    pub fn write_again(
        &mut self,
        stopped: &StoppedProcess<'_>,
        is_mapped: impl Fn(usize) -> bool,
    ) -> Result<PatchOutcome, RemoteError> {
        for (at, patch) in self.list.iter().enumerate() {
            self.written[at] &=
                is_mapped(at) && !is_original(patch, |address, bytes| stopped.read(address, bytes));
        }
        self.write_where(stopped, is_mapped)
    }

    /// Whether a jump was written.
    pub fn is_written(&self, at: usize) -> bool {
        self.written[at]
    }

    /// Whether a jump that was written is gone, by the memory of the process, which may run.
    pub fn is_gone(&self, at: usize, memory: &File) -> bool {
        self.written[at] && is_original(&self.list[at], |address, bytes| memory.read_exact_at(bytes, address))
    }

    fn write_where(
        &mut self,
        stopped: &StoppedProcess<'_>,
        is_wanted: impl Fn(usize) -> bool,
    ) -> Result<PatchOutcome, RemoteError> {
        let is_new = |at: usize, written: &[bool]| !written[at] && is_wanted(at);
        if !(0..self.list.len()).any(|at| is_new(at, &self.written)) {
            return Ok(PatchOutcome::default());
        }
        let maps = stopped.maps()?;
        let mut outcome = PatchOutcome::default();
        let mut skipped: Vec<Option<SkipReason>> = Vec::with_capacity(self.list.len());
        for (at, patch) in self.list.iter().enumerate() {
            skipped.push(if is_new(at, &self.written) { unfit(stopped, &maps, patch)? } else { None });
        }
        for at in self.in_use(stopped, &maps, &mut outcome)? {
            skipped[at].get_or_insert(SkipReason::InUse);
        }
        let new: Vec<usize> =
            (0..self.list.len()).filter(|at| is_new(*at, &self.written) && skipped[*at].is_none()).collect();
        outcome.moved_threads = self.move_threads(stopped, &new)?;
        for at in new {
            stopped.write(self.list[at].address, &self.list[at].jump)?;
            self.written[at] = true;
            outcome.changed += 1;
        }
        let left_out = skipped.into_iter().enumerate().filter(|(at, _)| is_new(*at, &self.written));
        outcome.skipped = left_out.filter_map(|(at, why)| Some((at, why?))).collect();
        Ok(outcome)
    }

    /// Restores the original bytes. The code to which the jumps led stays: threads may be there.
    ///
    /// # Errors
    /// As for [`Patches::write`].
    pub fn restore(&mut self, stopped: &StoppedProcess<'_>) -> Result<PatchOutcome, RemoteError> {
        let mut outcome = PatchOutcome::default();
        for (at, patch) in self.list.iter().enumerate().filter(|(at, _)| self.written[*at]) {
            let mut now = [0; JUMP];
            stopped.read_if_there(patch.address, &mut now)?;
            // The other tool will restore the jump.
            if now != patch.jump {
                outcome.skipped.push((at, SkipReason::OtherBytes));
                continue;
            }
            stopped.write(patch.address, &patch.original[..JUMP])?;
            outcome.changed += 1;
        }
        for (at, written) in self.written.iter_mut().enumerate() {
            *written &= outcome.skipped.iter().any(|(skipped, _)| *skipped == at);
        }
        Ok(outcome)
    }

    /// The patch in whose middle an address is.
    fn around(&self, address: u64) -> Option<usize> {
        let after = self.by_address.partition_point(|at| self.list[*at].address < address);
        let at = self.by_address[after.checked_sub(1)?];
        self.list[at].inside().contains(&address).then_some(at)
    }

    /// Functions to whose middle a thread returns: from a signal handler, or to no known instruction.
    fn in_use(
        &self,
        stopped: &StoppedProcess<'_>,
        maps: &[Mapping],
        outcome: &mut PatchOutcome,
    ) -> Result<Vec<usize>, RemoteError> {
        let mut found = Vec::new();
        for tid in stopped.threads() {
            let registers = stopped.registers(*tid)?;
            let at_no_instruction = |at: &usize| self.list[*at].moved_to(registers.rip).is_none();
            found.extend(self.around(registers.rip).filter(at_no_instruction));
            let stack = stack(stopped, maps, registers.rsp);
            outcome.searched += stack.len();
            let words = stack.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
            // A thread that makes system calls for a tracer has its real position in a register.
            found.extend(words.chain([registers.r15]).filter_map(|word| self.around(word)));
        }
        Ok(found)
    }

    /// Sends threads that are in the middle of the patched instructions to their copy.
    fn move_threads(&self, stopped: &StoppedProcess<'_>, new: &[usize]) -> Result<usize, RemoteError> {
        let mut moved = 0;
        for tid in stopped.threads() {
            let mut registers = stopped.registers(*tid)?;
            let patch = self.around(registers.rip).filter(|at| new.binary_search(at).is_ok());
            if let Some(to) = patch.and_then(|at| self.list[at].moved_to(registers.rip)) {
                registers.rip = to;
                stopped.set_registers(*tid, &registers)?;
                moved += 1;
            }
        }
        Ok(moved)
    }
}

/// Restores the bytes that a jump has replaced; true if the jump is not there any more. Another tool may have overwritten a byte of it
/// for a while.
pub(super) fn restore(
    stopped: &StoppedProcess<'_>,
    address: u64,
    jump: &[u8; JUMP],
    original: &[u8; JUMP],
) -> Result<bool, RemoteError> {
    let mut now = [0; JUMP];
    stopped.read_if_there(address, &mut now)?;
    if now == *jump {
        stopped.write(address, original)?;
        return Ok(true);
    }
    let same = now.iter().zip(jump).filter(|(now, jump)| now == jump).count();
    Ok(now == *original || same < JUMP - 1)
}

/// Whether the memory has the instructions that a jump had replaced.
fn is_original<E>(patch: &Patch, read: impl Fn(u64, &mut [u8]) -> Result<(), E>) -> bool {
    let mut now = vec![0; patch.original.len()];
    read(patch.address, &mut now).is_ok() && now == patch.original
}

/// The reason why a jump cannot be written here at all.
fn unfit(
    stopped: &StoppedProcess<'_>,
    maps: &[Mapping],
    patch: &Patch,
) -> Result<Option<SkipReason>, RemoteError> {
    let end = patch.inside().end;
    let at = maps.partition_point(|map| map.end <= patch.address);
    let is_code = |map: &&Mapping| map.is_private_code() && map.start <= patch.address && end <= map.end;
    if maps.get(at).filter(is_code).is_none() {
        return Ok(Some(SkipReason::NoPrivateCode));
    }
    let mut now = vec![0; patch.original.len()];
    if !stopped.read_if_there(patch.address, &mut now)? {
        return Ok(Some(SkipReason::NoPrivateCode));
    }
    Ok((now != patch.original).then_some(SkipReason::OtherBytes))
}

/// The used part of a stack, as far as it can be read.
fn stack(stopped: &StoppedProcess<'_>, maps: &[Mapping], pointer: u64) -> Vec<u8> {
    let first = pointer.saturating_sub(RED_ZONE) & !7;
    let at = maps.partition_point(|map| map.end <= first);
    let Some(map) = maps.get(at).filter(|map| map.start <= first) else { return Vec::new() };
    let mut bytes = vec![0; (map.end - first).min(MAX_STACK) as usize];
    let length = stopped.read_some(first, &mut bytes).unwrap_or(0);
    bytes.truncate(length);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_are_removed_by_the_place_where_they_lead() {
        let jump = |address: u64, to: u64| Patch {
            address,
            original: vec![0x90; JUMP],
            jump: native::site::jump(address, to).expect("near"),
            moved: vec![(0, to)],
        };
        let (first, second, page) = (0x7f00_0000_1000, 0x7f00_0000_0000, 0x7eff_f000_0000);
        let mut patches = Patches::new(vec![
            jump(first, page),
            jump(second, 0x7f00_0100_0000),
            jump(0x7f00_0000_2000, page + 96),
        ]);
        assert_eq!(patches.remove(|patch| (page..page + 4096).contains(&patch.target())), [0, 2]);
        assert_eq!(
            (patches.list.len(), patches.around(second + 1), patches.around(first + 1)),
            (1, Some(0), None)
        );
        assert!(!patches.is_written(0));
    }
}

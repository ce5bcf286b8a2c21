//! Kernel memory as regions. The region is encoded in the address, so that running over the end of an object is detected. Some
//! regions record which bytes have been written.
//!
//! ```text
//! bit 63: kernel     bits 40..: region     bits 0..40: offset
//! ```

use super::trap::Trap;

const KERNEL: u64 = 1 << 63;
const OFFSET_BITS: u32 = 40;

/// Index of a region.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct RegionId(u32);

impl RegionId {
    /// Address of the byte at `offset`.
    pub fn address(self, offset: u64) -> u64 {
        (KERNEL | u64::from(self.0) << OFFSET_BITS).wrapping_add(offset)
    }
}

/// Kind of a region, which determines the permitted accesses.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Stack of a function, 512 bytes: aligned accesses, written before read.
    Stack,
    /// Context of a program: read-only, aligned accesses.
    Context,
    /// Constants.
    ReadOnly,
    /// Cell of a map.
    Value,
    /// A ring buffer record not yet submitted.
    Record,
    /// Map or function: an address that is only passed to helpers.
    Handle,
}

/// A region of memory; see the module documentation.
#[derive(Debug)]
pub(super) struct Region {
    /// Name in messages.
    pub name: String,
    /// Kind.
    pub kind: Kind,
    bytes: Vec<u8>,
    /// Bytes that were written; `None` if all of them were.
    written: Option<Vec<bool>>,
    alive: bool,
}

/// All regions.
#[derive(Debug, Default)]
pub struct Memory {
    regions: Vec<Region>,
    /// Stacks of functions that have returned.
    free_stacks: Vec<RegionId>,
}

impl Memory {
    /// Adds a region with these bytes.
    pub fn add(&mut self, name: impl Into<String>, kind: Kind, bytes: Vec<u8>) -> RegionId {
        let written = matches!(kind, Kind::Record | Kind::Stack).then(|| vec![false; bytes.len()]);
        self.regions.push(Region { name: name.into(), kind, bytes, written, alive: true });
        RegionId(self.regions.len() as u32 - 1)
    }

    /// Adds a stack frame, whose bytes are not written yet.
    pub fn push_stack(&mut self, size: usize) -> RegionId {
        let Some(id) = self.free_stacks.pop() else {
            return self.add("the stack", Kind::Stack, vec![0; size]);
        };
        let region = &mut self.regions[id.0 as usize];
        region.alive = true;
        region.written = Some(vec![false; size]);
        id
    }

    /// Removes a stack frame.
    pub fn pop_stack(&mut self, id: RegionId) {
        self.end(id);
        self.free_stacks.push(id);
    }

    /// Ends the lifetime of a region and returns its bytes.
    pub fn end(&mut self, id: RegionId) -> Vec<u8> {
        let region = &mut self.regions[id.0 as usize];
        region.alive = false;
        region.bytes.clone()
    }

    /// Marks the bytes from `from` on as not written.
    pub fn forget(&mut self, id: RegionId, from: usize) {
        let region = &mut self.regions[id.0 as usize];
        let from = from.min(region.bytes.len());
        region.bytes[from..].fill(0xa5);
        let mut written = vec![true; region.bytes.len()];
        written[from..].fill(false);
        region.written = Some(written);
    }

    /// The bytes of a region, written or not.
    pub fn bytes(&self, id: RegionId) -> &[u8] {
        &self.regions[id.0 as usize].bytes
    }

    /// Sets all bytes of a region, from outside of programs.
    pub fn fill(&mut self, id: RegionId, bytes: &[u8]) {
        let region = &mut self.regions[id.0 as usize];
        region.bytes.clear();
        region.bytes.extend_from_slice(bytes);
    }

    /// The region that contains an address or is next to it, and the offset.
    pub fn find(&self, address: u64) -> Result<(RegionId, i64), Trap> {
        // Small negative offsets borrow from the region's number; this undoes it.
        let at = (address & !KERNEL).wrapping_add(1 << (OFFSET_BITS - 1));
        let id = (at >> OFFSET_BITS) as usize;
        if address & KERNEL == 0 || id >= self.regions.len() {
            return Err(Trap::Wild(address));
        }
        let offset = (at & ((1 << OFFSET_BITS) - 1)) as i64 - (1 << (OFFSET_BITS - 1));
        Ok((RegionId(id as u32), offset))
    }

    fn locate(&self, address: u64, size: u64) -> Result<(usize, usize), Trap> {
        let (id, offset) = self.find(address)?;
        let region = &self.regions[id.0 as usize];
        if !region.alive {
            return Err(Trap::Dead(region.name.clone()));
        }
        let len = region.bytes.len();
        let inside = usize::try_from(offset).ok().filter(|o| (*o as u64).saturating_add(size) <= len as u64);
        match inside {
            Some(offset) => Ok((id.0 as usize, offset)),
            None => Err(Trap::Outside { region: region.name.clone(), offset, size, len }),
        }
    }

    /// Checks that a range is inside of a region.
    pub fn room(&self, address: u64, size: u64) -> Result<(), Trap> {
        self.locate(address, size).map(|_| ())
    }

    /// Reads bytes; refuses bytes that were not written.
    pub fn read(&self, address: u64, size: u64) -> Result<&[u8], Trap> {
        let (id, offset) = self.locate(address, size)?;
        let region = &self.regions[id];
        let range = offset..offset + size as usize;
        if let Some(at) = region.written.as_ref().and_then(|w| w[range.clone()].iter().position(|b| !b)) {
            return Err(Trap::Unwritten { region: region.name.clone(), offset: (offset + at) as i64 });
        }
        Ok(&region.bytes[range])
    }

    /// Writes bytes.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Trap> {
        let (id, offset) = self.locate(address, bytes.len() as u64)?;
        let region = &mut self.regions[id];
        if matches!(region.kind, Kind::Context | Kind::ReadOnly | Kind::Handle) {
            return Err(Trap::ReadOnly(region.name.clone()));
        }
        let range = offset..offset + bytes.len();
        region.bytes[range.clone()].copy_from_slice(bytes);
        if let Some(written) = &mut region.written {
            written[range].fill(true);
        }
        Ok(())
    }

    /// Checks the alignment of an access where the kernel requires it.
    pub fn aligned(&self, address: u64, size: u64, atomic: bool) -> Result<(), Trap> {
        let (id, offset) = self.find(address)?;
        let region = &self.regions[id.0 as usize];
        let strict = atomic || matches!(region.kind, Kind::Stack | Kind::Context);
        if strict && offset % size as i64 != 0 {
            return Err(Trap::Misaligned { region: region.name.clone(), offset, size });
        }
        Ok(())
    }

    /// Load instruction, zero-extended.
    pub fn load(&self, address: u64, size: u64) -> Result<u64, Trap> {
        self.aligned(address, size, false)?;
        let mut word = [0; 8];
        word[..size as usize].copy_from_slice(self.read(address, size)?);
        Ok(u64::from_le_bytes(word))
    }

    /// Store instruction.
    pub fn store(&mut self, address: u64, size: u64, value: u64) -> Result<(), Trap> {
        self.aligned(address, size, false)?;
        self.write(address, &value.to_le_bytes()[..size as usize])
    }
}

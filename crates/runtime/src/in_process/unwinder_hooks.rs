//! Patches in the functions by which unwinders of a traced process find tables, so that exceptions pass calls whose return is traced.

use super::outposts::ROOM;
use super::patch_sites::UnwinderSites;
use super::regions::{ALIGNMENT, PatchSite, PatchedRegion, recorded};
use crate::remote::{Entry, Patch, Patches, RemoteError, StoppedProcess};
use linux::proc::{self, MappingName};
use native::returns::{Hook, Returns, far_jump};
use native::site::JUMP;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Opcode of `jmp` with a displacement of 32 bits.
const JUMP_OPCODE: u8 = 0xe9;

impl PatchedRegion {
    /// Lets the unwinders that the process has mapped find the frames of calls whose return is traced. A function of another shape than
    /// the known ones stays as it is: exceptions do not pass traced calls then.
    pub(super) fn hook_unwinders(
        &mut self,
        stopped: &StoppedProcess<'_>,
        sites: UnwinderSites,
    ) -> Result<(), RemoteError> {
        let Some(returns) = self.returns.clone() else { return Ok(()) };
        let mut list = vec![];
        let maps = stopped.maps()?;
        for (patches, mapping) in &mut self.hooks {
            let is_mapped = maps.iter().any(|map| (map.inode, map.start) == *mapping);
            patches.write_again(stopped, |_| is_mapped)?;
        }
        for map in maps {
            // A file that is deleted cannot be opened by its path.
            let MappingName::File(name) = &map.name else { continue };
            let is_program = proc::executable(stopped.pid()).as_ref() == Some(name);
            let is_new = map.is_private_code() && (is_program || may_unwind(name));
            if !is_new || !self.searched.insert((map.inode, map.start)) {
                continue;
            }
            // The file as the process sees it.
            let mut path = OsString::from(format!("/proc/{}/root", stopped.pid()));
            path.push(name);
            let path = PathBuf::from(path);
            if std::fs::metadata(&path).map_or(0, |file| file.ino()) != map.inode {
                continue;
            }
            for (hook, site) in sites(&path) {
                let size = map.end - map.start;
                if (map.offset..map.offset + size).contains(&site.offset) {
                    let address = map.start + (site.offset - map.offset);
                    let patch = self.hook(stopped, &returns, hook, address, &site)?;
                    list.extend(patch.map(|patch| (patch, (map.inode, map.start))));
                }
            }
        }
        let entries: Vec<Entry> = list.iter().map(|(hook, _)| Entry::Hook(recorded(hook))).collect();
        self.record(stopped, &entries)?;
        for (patch, mapping) in list {
            let mut patches = Patches::new(vec![patch]);
            patches.write(stopped)?;
            self.hooks.push((patches, mapping));
        }
        Ok(())
    }

    /// Writes the detour of a function of an unwinder; returns its patch.
    fn hook(
        &mut self,
        stopped: &StoppedProcess<'_>,
        returns: &Returns,
        hook: Hook,
        address: u64,
        site: &PatchSite,
    ) -> Result<Option<Patch>, RemoteError> {
        let mut original = site.original.clone();
        stopped.read(address, &mut original)?;
        // A jump of an earlier session: a child of `fork` has inherited it, with the code to which it leads.
        let is_jump =
            original.first() == Some(&JUMP_OPCODE) && original.get(JUMP..) == site.original.get(JUMP..);
        if !is_jump {
            original.clone_from(&site.original);
        }
        let instructions = if is_jump { &original[..JUMP] } else { &original };
        // The region is near the script's functions. A program and its libraries are far from each other.
        // Without a hook exceptions end a program, so a page that may be unmapped with another library is better than none.
        let outpost = self.reserve_near(stopped, address, true)?;
        let at = self.code_end.next_multiple_of(ALIGNMENT);
        let entry = far_jump(self.region.base() + at);
        let moved_to = outpost + entry.len() as u64;
        let (Ok(moved), Ok(jump)) =
            (native::site::moved(instructions, address, moved_to), native::site::jump(address, outpost))
        else {
            return Ok(None);
        };
        let code = [entry, moved.code.clone()].concat();
        if code.len() as u64 > ROOM {
            return Ok(None);
        }
        stopped.write(outpost, &code)?;
        self.write(stopped, at, &hook.detour(returns, at, site.undo, moved_to))?;
        let moved = moved.starts.iter().map(|(from, to)| (*from, moved_to + u64::from(*to))).collect();
        Ok(Some(Patch { address, original, jump, moved }))
    }
}

/// Whether a library, by its name, has functions by which unwinders find tables: the C library, and libgcc.
pub(super) fn may_unwind(library: &Path) -> bool {
    let name = library.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    ["libc.so", "libc-2", "libgcc_s"].iter().any(|prefix| name.starts_with(prefix))
}

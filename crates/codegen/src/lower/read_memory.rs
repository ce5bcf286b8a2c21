//! Calls of the helpers that read memory of the process, of the kernel, or of the one in which the address is.

use super::operations::Operations;
use super::space::Space;
use crate::bpf::helper::Helper;
use crate::ir::{Cmp, Operand, VReg};

/// The helpers that do one thing for memory of the process and of the kernel.
#[derive(Copy, Clone)]
pub(super) struct Reader {
    user: Helper,
    kernel: Helper,
}

/// Reads a number of bytes; the result is negative if it fails, and the destination is then zero.
pub(super) const BYTES: Reader = Reader { user: Helper::ProbeReadUser, kernel: Helper::ProbeReadKernel };
/// Reads text; the result is its length with the NUL, or negative if it fails.
pub(super) const TEXT: Reader = Reader { user: Helper::ProbeReadUserStr, kernel: Helper::ProbeReadKernelStr };

/// Calls of the helpers.
pub(super) trait MemoryReads: Operations {
    /// Calls the reader for the space of `address`; returns its result.
    fn read_bytes(
        &mut self,
        reader: Reader,
        space: Space,
        to: VReg,
        size: Operand,
        address: Operand,
    ) -> VReg {
        let args = [to.into(), size, address];
        match space {
            Space::User => self.b().call(reader.user, &args),
            Space::Kernel => self.b().call(reader.kernel, &args),
            Space::ByAddress => {
                let [user, kernel, after] = std::array::from_fn(|_| self.b().block());
                let (result, address) = (self.b().vreg(), self.b().reg(address));
                self.b().branch(Cmp::Slt, address, 0, kernel, user);
                for (block, helper) in [(user, reader.user), (kernel, reader.kernel)] {
                    self.b().switch_to(block);
                    let read = self.b().call(helper, &args);
                    self.b().set(result, read);
                    self.b().jump(after);
                }
                self.b().switch_to(after);
                result
            }
        }
    }
}

impl<T: Operations> MemoryReads for T {}

//! The memory of our own. The compiler makes many small trees: the C library's allocator takes twice as long for them, and
//! mimalloc needs a third more instructions if it is asked for an alignment that it gives anyway.

use libmimalloc_sys as mi;
use std::alloc::{GlobalAlloc, Layout};

/// Every block that is no smaller lies at a multiple of this many bytes (`MI_MAX_ALIGN_SIZE`).
const ALIGNMENT: usize = 16;

/// mimalloc.
pub struct Allocator;

/// Whether a block of so many bytes is aligned without asking for it.
fn is_natural(bytes: usize, align: usize) -> bool {
    align <= ALIGNMENT && align <= bytes
}

// SAFETY: blocks are mimalloc's, which are as large as was asked for, aligned as said above or as was asked for, and stay
// until they are freed; all may be freed and moved by any of its functions.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (bytes, align) = (layout.size(), layout.align());
        // SAFETY: takes numbers; null means that there is no memory.
        let block = unsafe {
            if is_natural(bytes, align) { mi::mi_malloc(bytes) } else { mi::mi_malloc_aligned(bytes, align) }
        };
        block.cast()
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (bytes, align) = (layout.size(), layout.align());
        // SAFETY: as above.
        let block = unsafe {
            if is_natural(bytes, align) { mi::mi_zalloc(bytes) } else { mi::mi_zalloc_aligned(bytes, align) }
        };
        block.cast()
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller has the block from here.
        unsafe { mi::mi_free(block.cast()) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let (block, align) = (block.cast(), layout.align());
        // SAFETY: the caller has the block from here.
        let block = unsafe {
            if is_natural(bytes, align) {
                mi::mi_realloc(block, bytes)
            } else {
                mi::mi_realloc_aligned(block, bytes, align)
            }
        };
        block.cast()
    }
}

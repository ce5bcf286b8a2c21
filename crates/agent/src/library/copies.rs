//! State that the copies of this library in a process share: each tracer brings its own copy, and none is ever unloaded. The static of
//! the copy that was loaded first is used by all.

use core::ffi::CStr;
use core::ptr::{from_ref, null_mut};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::SeqCst;

use crate::sys;

/// The name by which the loader knows this library, as `build.rs` gives it.
const SONAME: &CStr = c"libcudatrace_gpu.so";

/// A shared static: its symbol, and that of this copy.
pub(crate) struct SharedStatic<T: 'static> {
    symbol: &'static CStr,
    own: &'static T,
    found: AtomicPtr<T>,
}

impl<T> SharedStatic<T> {
    /// `symbol` is the name of `own`. Another layout needs another name.
    pub(crate) const fn new(symbol: &'static CStr, own: &'static T) -> SharedStatic<T> {
        SharedStatic { symbol, own, found: AtomicPtr::new(null_mut()) }
    }

    /// That of the first copy.
    pub(crate) fn get(&self) -> &'static T {
        if self.found.load(SeqCst).is_null() {
            // SAFETY: texts that end with zero, and a library that is loaded.
            let first = unsafe {
                match sys::dlopen(SONAME.as_ptr(), sys::RTLD_LAZY | sys::RTLD_NOLOAD) {
                    library if library.is_null() => null_mut(),
                    library => sys::dlsym(library, self.symbol.as_ptr()),
                }
            };
            let first = if first.is_null() { from_ref(self.own).cast_mut() } else { first.cast() };
            self.found.store(first, SeqCst);
        }
        // SAFETY: a static of this or another copy. None is ever unloaded.
        unsafe { &*self.found.load(SeqCst) }
    }
}

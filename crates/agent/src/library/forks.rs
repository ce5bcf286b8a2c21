//! Forks of the program. A child of fork(2) has one thread, and a copy of all locks: one that another thread held at that moment is never
//! released there. While CUPTI is loaded, set up and ended, locks of the C library's loader are held that fork(2) does not reset in the child, so
//! that its next `dlopen` would wait forever. So forks wait for that, and that waits for forks.

use core::ffi::{CStr, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::SeqCst;

use crate::copies::SharedStatic;
use crate::sys;

/// Longest time that the one waits for the other, in ms: a lock of the program may be held meanwhile.
const PATIENCE: u32 = 1000;

/// State that all copies of this library in a process share: glibc cannot forget the functions below, nor have many of them while the
/// program forks.
#[repr(C)]
pub(crate) struct Forks {
    /// Forks under way.
    running: AtomicU32,
    /// The thread that keeps forks waiting; 0: none.
    holder: AtomicU32,
    /// 1 as soon as the program's forks are counted.
    is_counted: AtomicU32,
}

/// That of the first copy is used.
#[unsafe(no_mangle)]
#[used]
pub(crate) static cudatrace_forks: Forks =
    Forks { running: AtomicU32::new(0), holder: AtomicU32::new(0), is_counted: AtomicU32::new(0) };

static SHARED: SharedStatic<Forks> = SharedStatic::new(c"cudatrace_forks", &cudatrace_forks);

fn forks() -> &'static Forks {
    SHARED.get()
}

/// As long as it lives, forks wait.
pub(crate) struct NoForks(());

impl NoForks {
    /// Waits for the forks under way. `None` if another thread keeps them waiting for long.
    pub(crate) fn begin() -> Option<NoForks> {
        count();
        let no_forks = wait_for(NoForks::hold);
        wait_for(|| (forks().running.load(SeqCst) == 0).then_some(()));
        no_forks
    }

    /// `None` if a fork is under way.
    pub(crate) fn try_begin() -> Option<NoForks> {
        NoForks::hold().filter(|_| forks().running.load(SeqCst) == 0)
    }

    fn hold() -> Option<NoForks> {
        let held = forks().holder.compare_exchange(0, sys::gettid(), SeqCst, SeqCst);
        held.is_ok().then(|| NoForks(()))
    }
}

impl Drop for NoForks {
    fn drop(&mut self) {
        forks().holder.store(0, SeqCst);
    }
}

/// The first result within [`PATIENCE`].
fn wait_for<T>(mut get: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..PATIENCE {
        if let Some(got) = get() {
            return Some(got);
        }
        sys::sleep(1);
    }
    None
}

/// Makes fork(2) call the functions below, from now on and for as long as the process lives.
fn count() {
    type Handler = extern "C" fn();
    type Register = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void);
    if forks().is_counted.swap(1, SeqCst) != 0 {
        return;
    }
    // SAFETY: names that end with zero. The type is that of both functions: the second has no last argument, and does not see it.
    unsafe {
        let find = |name: &CStr| sys::dlsym(null_mut(), name.as_ptr());
        // glibc's has no other in its shared library, musl's has no first one.
        let functions = [c"__register_atfork", c"pthread_atfork"].map(find);
        if let Some(register) = functions.iter().find(|function| !function.is_null()) {
            let register: Register = transmute(*register);
            register(before, after, after_in_child, null_mut());
        }
    }
}

/// Called before a fork, by the thread that forks.
extern "C" fn before() {
    let Forks { running, holder, .. } = forks();
    let begin = || {
        running.fetch_add(1, SeqCst);
        let is_free = [0, sys::gettid()].contains(&holder.load(SeqCst));
        if !is_free {
            running.fetch_sub(1, SeqCst);
        }
        is_free.then_some(())
    };
    if wait_for(begin).is_none() {
        running.fetch_add(1, SeqCst);
    }
}

/// Called after a fork, in the parent, also if it has failed. Before glibc 2.37 also after one that was under way when this was registered, and
/// was not counted.
extern "C" fn after() {
    _ = forks().running.fetch_update(SeqCst, SeqCst, |running| running.checked_sub(1));
}

/// Called after a fork, in the child.
extern "C" fn after_in_child() {
    forks().running.store(0, SeqCst);
    forks().holder.store(0, SeqCst);
}

//! Switches all probes of `--in-process` off when the tracer ends, even if it is killed.
//!
//! Our code in the traced processes runs only while the word `ACTIVE` of the shared memory is not zero. It holds the id of a thread of the
//! tracer that does nothing else and has the word in its list of robust futexes (set_robust_list(2)): when it ends, for whatever reason,
//! the kernel clears the id. So scripts stop at once, the traced processes go on, and a later session sees that the tracer is gone.

use super::memory::SessionMemory;
use native::layout;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// `struct robust_list_head`, with the only element of the list.
#[repr(C)]
struct RobustList {
    first: *const RobustList,
    /// Distance of the word from the element.
    offset: isize,
    pending: *const RobustList,
    /// The element: a pointer to the next one, which is the head.
    element: *const RobustList,
}

/// Keeps the detours switched on until it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    memory: Arc<SessionMemory>,
    /// Id of the thread.
    id: u32,
    thread: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

impl Lease {
    /// Switches the detours on.
    ///
    /// # Errors
    /// There is no thread.
    pub(crate) fn start(memory: Arc<SessionMemory>) -> io::Result<Lease> {
        let (end, ends) = mpsc::channel::<()>();
        let (ready, is_ready) = mpsc::channel();
        let shared = Arc::clone(&memory);
        let work = move || {
            let _ = ready.send(hold(&shared));
            let _ = ends.recv();
        };
        let thread = std::thread::Builder::new().name("lease".into()).spawn(work)?;
        let id = is_ready.recv().map_err(io::Error::other)?;
        Ok(Lease { memory, id, thread: Some((end, thread)) })
    }

    /// Whether the word is as this value has left it. Every traced process can write there.
    pub(crate) fn holds(&self) -> bool {
        self.memory.word32(layout::ACTIVE).load(Ordering::Acquire) == self.id
    }
}

/// Makes the word that of the calling thread, whose id is returned. The kernel reads the list when the thread ends.
fn hold(memory: &SessionMemory) -> u32 {
    let word = memory.word32(layout::ACTIVE);
    // Never freed: the kernel reads it after the last function of the thread has returned.
    let list: &mut RobustList = Box::leak(Box::new(RobustList {
        first: std::ptr::null(),
        offset: 0,
        pending: std::ptr::null(),
        element: std::ptr::null(),
    }));
    let head: *const RobustList = &raw const *list;
    let element: *const RobustList = (&raw const list.element).cast();
    (list.first, list.element) = (element, head);
    list.offset = word.as_ptr().addr().wrapping_sub(element.addr()).cast_signed();
    let id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    word.store(id, Ordering::Release);
    // SAFETY: a list that lives as long as the process, and a word that outlives the thread. If the call fails, nothing but this
    // value's drop clears the word.
    unsafe { libc::syscall(libc::SYS_set_robust_list, head, 3 * size_of::<usize>()) };
    id
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.memory.word32(layout::ACTIVE).store(0, Ordering::Release);
        if let Some((end, thread)) = self.thread.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

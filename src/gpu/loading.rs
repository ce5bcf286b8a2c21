//! Makes processes load the agent, in threads beside the event loop: that takes a while, and threads of the process may wait for the tracer
//! meanwhile, with the loader's lock.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow};
use host::ElfFile;
use host::process;
use runtime::gpu_agent::{AgentFile, Connection, Injector};
use runtime::in_process::RemoteError;

use super::candidates::Found;
use super::cupti;
use crate::mailbox::{Mailbox, Post};

/// Files of C libraries with `dlopen`.
const LOADERS: [&str; 3] = ["libc.so.6", "libdl.so.2", "ld-musl-"];

/// A process that has loaded the agent, or could not.
pub struct Loaded {
    pub found: Found,
    pub connection: anyhow::Result<Connection>,
}

/// The threads that load agents, and what they have done.
pub struct Loading {
    post: Post<Loaded>,
    loaded: Mailbox<Loaded>,
    /// Number of processes that are being loaded into.
    expected: usize,
    /// No process is loaded into any more.
    is_over: Arc<AtomicBool>,
}

impl Loading {
    /// No threads yet.
    ///
    /// # Errors
    /// The errors of eventfd(2).
    pub fn new() -> io::Result<Loading> {
        let (post, loaded) = Mailbox::new()?;
        Ok(Loading { post, loaded, expected: 0, is_over: Arc::default() })
    }

    /// Makes a process load the agent, in a thread.
    ///
    /// # Errors
    /// There are too many open files or threads.
    pub fn start(&mut self, file: &AgentFile, found: Found) -> io::Result<()> {
        let (injector, post) = (file.injector()?, self.post.clone());
        let is_over = Arc::clone(&self.is_over);
        // Without a receiver the tracer ends, and so does the agent.
        let run = move || _ = post.send(load(&injector, found, &is_over));
        std::thread::Builder::new().spawn(run)?;
        self.expected += 1;
        Ok(())
    }

    /// Makes a process load the agent, and waits for that.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn load(&self, file: &AgentFile, found: Found) -> io::Result<Loaded> {
        Ok(load(&file.injector()?, found, &self.is_over))
    }

    /// The next process that a thread has dealt with.
    pub fn next(&mut self) -> Option<Loaded> {
        let loaded = self.loaded.take()?;
        self.expected -= 1;
        Some(loaded)
    }

    /// Lets threads end that still look for a way into their process.
    pub fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Whether no thread is at work.
    pub fn is_idle(&self) -> bool {
        self.expected == 0
    }
}

impl AsFd for Loading {
    /// Readable when there is a next one.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.loaded.as_fd()
    }
}

/// Makes a process load the agent.
fn load(injector: &Injector, found: Found, is_over: &AtomicBool) -> Loaded {
    let connection = dlopen_in(found.pid).and_then(|dlopen| {
        let user = process::file_user(found.pid).ok_or(RemoteError::Gone)?;
        injector
            .inject((found.pid, user), dlopen, is_over)
            .context("cannot load the library that reads GPU records")
    });
    Loaded { found, connection }
}

/// Address of `dlopen` in a process.
fn dlopen_in(pid: u32) -> anyhow::Result<u64> {
    let mappings = process::mappings(pid);
    if mappings.is_empty() {
        return Err(RemoteError::Gone.into());
    }
    let address = |loader: &&str| {
        let mapping = cupti::file_with(&mappings, loader).filter(|mapping| mapping.offset == 0)?;
        let path = process::open_path(pid, mapping.name.path()?);
        let elf = ElfFile::open(&mapping.link(pid)).or_else(|_| ElfFile::open(&path)).ok()?;
        let (address, _) = elf.symbol_of("dlopen")?;
        Some(mapping.start + address)
    };
    LOADERS.iter().find_map(address).ok_or_else(|| {
        anyhow!(
            "the program has no `dlopen`, since it is linked statically: no library can be loaded into it"
        )
    })
}

//! SIGUSR1 and SIGHUP flush the buffers of exports.

use runtime::Session;
use runtime::session::event_loop::{Next, Watch};
use std::io::{self, IsTerminal, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The signals that flush exports: on a terminal, SIGHUP keeps its default and ends the run.
pub fn flushing() -> Vec<i32> {
    let mut signals = vec![libc::SIGUSR1];
    if !io::stdin().is_terminal() {
        signals.push(libc::SIGHUP);
    }
    signals
}

/// Sets a flag when one of the signals arrives, and wakes the reader, which tests it.
pub struct FlushOn {
    pipe: UnixStream,
    flag: Arc<AtomicBool>,
}

impl FlushOn {
    /// Installs the handlers.
    pub fn signals(signals: &[i32], flag: Arc<AtomicBool>) -> io::Result<FlushOn> {
        let (pipe, sender) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        sender.set_nonblocking(true)?;
        for signal in signals {
            signal_hook::low_level::pipe::register(*signal, sender.try_clone()?)?;
        }
        Ok(FlushOn { pipe, flag })
    }
}

impl Watch for FlushOn {
    fn fd(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }

    fn ready(&mut self, _: &mut Session) -> Next {
        while (&self.pipe).read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
        self.flag.store(true, Ordering::Relaxed);
        Next::Continue
    }
}

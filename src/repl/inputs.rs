//! The channel from the thread that reads input to the session, which it wakes through a file descriptor.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Input of the user.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// A clause, a command, or several of them.
    Text(String),
    /// Ctrl-C on an empty line.
    Interrupt,
    /// Ctrl-D, or the end of the pipe.
    End,
}

/// The session's end of the channel.
pub struct Inputs {
    typed: Receiver<Input>,
    wake: Arc<OwnedFd>,
    /// A pipe waits for the end of the last command; a terminal does not.
    next: Option<Sender<()>>,
}

impl Inputs {
    /// Descriptor that is readable when there is input.
    pub fn fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    /// The next input.
    pub fn take(&self) -> Option<Input> {
        // An eventfd in semaphore mode counts down by one.
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        self.typed.try_recv().ok()
    }

    /// Marks the last input as processed.
    pub fn done(&self) {
        if let Some(next) = &self.next {
            let _ = next.send(());
        }
    }
}

/// The input thread's end of the channel.
pub struct InputSender {
    typed: Sender<Input>,
    wake: Arc<OwnedFd>,
}

impl InputSender {
    /// Sends input and wakes the session.
    pub fn send(&self, input: Input) {
        let _ = self.typed.send(input);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// Creates the channel; `next` is notified when an input was processed.
pub fn connect(next: Option<Sender<()>>) -> io::Result<(InputSender, Inputs)> {
    let wake =
        Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE)?);
    let (sender, receiver) = channel();
    Ok((InputSender { typed: sender, wake: Arc::clone(&wake) }, Inputs { typed: receiver, wake, next }))
}

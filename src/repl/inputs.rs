//! The channel from the thread that reads input to the session.

use linux::mailbox::{Mailbox, Post};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::mpsc::Sender;

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
    typed: Mailbox<Input>,
    /// A pipe waits for the end of the last command; a terminal does not.
    next: Option<Sender<()>>,
}

impl Inputs {
    /// Descriptor that is readable when there is input.
    pub fn fd(&self) -> RawFd {
        self.typed.as_fd().as_raw_fd()
    }

    /// The next input.
    pub fn take(&self) -> Option<Input> {
        self.typed.take()
    }

    /// Marks the last input as processed.
    pub fn done(&self) {
        if let Some(next) = &self.next {
            let _ = next.send(());
        }
    }
}

/// The input thread's end of the channel.
pub struct InputSender(Post<Input>);

impl InputSender {
    /// Sends input and wakes the session.
    pub fn send(&self, input: Input) {
        let _ = self.0.send(input);
    }
}

/// Creates the channel; `next` is notified when an input was processed.
pub fn connect(next: Option<Sender<()>>) -> io::Result<(InputSender, Inputs)> {
    let (post, typed) = Mailbox::new()?;
    Ok((InputSender(post), Inputs { typed, next }))
}

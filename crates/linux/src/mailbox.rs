//! A channel from other threads to an event loop, which polls a descriptor for it.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SendError, Sender, channel};

/// The end of the other threads.
#[derive(Debug)]
pub struct Post<T> {
    messages: Sender<T>,
    bell: Arc<OwnedFd>,
}

impl<T> Clone for Post<T> {
    fn clone(&self) -> Post<T> {
        Post { messages: self.messages.clone(), bell: Arc::clone(&self.bell) }
    }
}

impl<T> Post<T> {
    /// Sends a message and wakes the receiver.
    ///
    /// # Errors
    /// The receiver has ended.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        self.messages.send(message)?;
        // Fails only if there are more messages than the number can count.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        Ok(())
    }
}

/// The end of the event loop, which owns it.
#[derive(Debug)]
pub struct Mailbox<T> {
    messages: Receiver<T>,
    bell: Arc<OwnedFd>,
}

impl<T> Mailbox<T> {
    /// Creates both ends.
    ///
    /// # Errors
    /// The errors of eventfd(2).
    pub fn new() -> io::Result<(Post<T>, Mailbox<T>)> {
        // The descriptor counts the messages, each of which is taken by itself.
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        let bell = Arc::new(eventfd(0, flags)?);
        let (sender, messages) = channel();
        Ok((Post { messages: sender, bell: Arc::clone(&bell) }, Mailbox { messages, bell }))
    }

    /// The next message, if there is one.
    pub fn take(&self) -> Option<T> {
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
        self.messages.try_recv().ok()
    }
}

impl<T> AsFd for Mailbox<T> {
    /// Readable while there are messages.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_is_readable_until_the_last_message_is_taken() {
        let (post, mailbox) = Mailbox::new().unwrap();
        let is_readable = || {
            let mut fds = [rustix::event::PollFd::new(&mailbox, rustix::event::PollFlags::IN)];
            let now = rustix::event::Timespec::default();
            rustix::event::poll(&mut fds, Some(&now)).unwrap() == 1
        };
        assert!(!is_readable() && mailbox.take().is_none());
        post.clone().send(1).unwrap();
        post.send(2).unwrap();
        assert!(is_readable());
        assert_eq!(mailbox.take(), Some(1));
        assert!(is_readable());
        assert_eq!(mailbox.take(), Some(2));
        assert!(!is_readable() && mailbox.take().is_none());
        drop(mailbox);
        assert!(post.send(3).is_err());
    }
}

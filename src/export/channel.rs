//! The bounded channel from the reader of events to the thread of an exporter.
//!
//! The bound is the number of records, not of batches: a program that makes few calls has one batch per call. Metrics are cumulative,
//! so that the newest snapshot replaces older ones in the channel.

use report::export::Record;
use report::metrics::Family;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Largest number of queued records: about 20 MB.
pub const RECORDS: usize = 1 << 16;

/// A message to the thread of an export.
pub enum Message {
    /// Records in order.
    Records(Arc<Vec<Record>>),
    /// Metrics at a time of the boot clock.
    Metrics(Arc<Vec<Family>>, u64),
    /// Flush all buffers.
    Flush,
    /// End of the records.
    End,
}

impl Message {
    fn records(&self) -> usize {
        if let Message::Records(records) = self { records.len() } else { 0 }
    }
}

/// Queue between the reader and an export; see the module documentation.
#[derive(Default)]
pub struct Channel {
    waiting: Mutex<ChannelState>,
    /// Notified when a message was added or taken, or the receiver has ended.
    changed: Condvar,
}

#[derive(Default)]
struct ChannelState {
    messages: VecDeque<Message>,
    records: usize,
    /// True if the receiver has ended.
    ended: bool,
}

impl Channel {
    fn lock(&self) -> MutexGuard<'_, ChannelState> {
        self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Adds a message, if there is room.
    pub fn try_send(&self, message: Message) -> bool {
        let mut waiting = self.lock();
        let records = message.records();
        if waiting.ended || records > 0 && waiting.records > 0 && waiting.records + records > RECORDS {
            return false;
        }
        match message {
            Message::Metrics(..) => waiting.messages.retain(|known| !matches!(known, Message::Metrics(..))),
            Message::Flush if waiting.messages.iter().any(|known| matches!(known, Message::Flush)) => {
                return true;
            }
            _ => {}
        }
        waiting.records += records;
        waiting.messages.push_back(message);
        self.changed.notify_all();
        true
    }

    /// Waits for room and adds records; false if the receiver has ended.
    pub fn send(&self, records: &Arc<Vec<Record>>) -> bool {
        while !self.try_send(Message::Records(records.clone())) {
            let waiting = self.lock();
            if waiting.ended {
                return false;
            }
            drop(self.changed.wait_timeout(waiting, Duration::from_millis(20)));
        }
        true
    }

    /// Waits for the next message; `None` after `patience`.
    pub fn receive(&self, patience: Duration) -> Option<Message> {
        let until = Instant::now() + patience;
        let mut waiting = self.lock();
        loop {
            if let Some(message) = waiting.messages.pop_front() {
                waiting.records -= message.records();
                self.changed.notify_all();
                return Some(message);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let woken = self.changed.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    /// Marks the receiver as ended.
    pub fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Waits until the receiver has ended, at most `patience`; returns whether it has.
    pub fn wait_for_end(&self, patience: Duration) -> bool {
        let waiting = self.lock();
        let woken = self.changed.wait_timeout_while(waiting, patience, |waiting| !waiting.ended);
        woken.unwrap_or_else(|poisoned| poisoned.into_inner()).0.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::export::{Fields, Kind, Text};

    fn batch(records: usize) -> Message {
        let record = Record {
            kind: Kind::Text(Text::Output, String::new()),
            time_ns: 0,
            thread: None,
            site: Arc::default(),
            name: "".into(),
            fields: Fields::default(),
        };
        Message::Records(Arc::new(vec![record; records]))
    }

    #[test]
    fn records_bound_it_however_many_come_together() {
        let channel = Channel::default();
        for _ in 0..RECORDS {
            assert!(channel.try_send(batch(1)));
        }
        assert!(!channel.try_send(batch(1)), "it is full");
        assert!(channel.receive(Duration::ZERO).is_some());
        assert!(channel.try_send(batch(1)) && !channel.try_send(batch(1)));
    }

    #[test]
    fn newer_metrics_replace_those_that_wait() {
        let channel = Channel::default();
        for boot_ns in 1..=3 {
            assert!(channel.try_send(Message::Metrics(Arc::default(), boot_ns)));
            assert!(channel.try_send(Message::Flush));
        }
        let mut left = std::iter::from_fn(|| channel.receive(Duration::ZERO));
        assert!(matches!(left.next(), Some(Message::Flush)));
        assert!(matches!(left.next(), Some(Message::Metrics(_, 3))) && left.next().is_none());
    }
}

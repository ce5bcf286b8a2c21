//! The clock of programs in traced processes: the time stamp counter, converted to the monotonic clock by numbers that the tracer
//! keeps up to date in the shared memory.
//!
//! There are two sets of numbers; programs use the one that `CLOCK_NUMBER` selects, while the tracer writes the other. A new set
//! begins where the old one is at that moment, so that the time never steps back; it corrects the difference to the kernel's clock
//! over the next period.

use super::memory::SessionMemory;
use crate::kernel::clock::{Clock, SystemClock};
use native::layout;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time between two corrections.
const PERIOD: Duration = Duration::from_secs(1);
/// Time of the first measurement of the counter's frequency.
const FIRST: Duration = Duration::from_millis(5);
/// Attempts to read both clocks at the same time.
const ATTEMPTS: usize = 16;

/// A reading of both clocks.
#[derive(Copy, Clone, Debug)]
struct Reading {
    ticks: u64,
    ns: u64,
}

/// Keeps the clock of a session up to date.
#[derive(Debug)]
pub(crate) struct SharedClock {
    memory: Arc<SessionMemory>,
    first: Reading,
    rate: Rate,
    /// The number that selects it.
    number: u64,
    corrected: Instant,
}

/// ns = ticks * scale >> 32 + base
#[derive(Copy, Clone, Debug)]
struct Rate {
    scale: u64,
    base: u64,
}

impl Rate {
    fn ns(self, ticks: u64) -> u64 {
        (((u128::from(ticks) * u128::from(self.scale)) >> 32) as u64).wrapping_add(self.base)
    }

    /// The rate with this scale that has this time at these ticks.
    fn through(scale: u64, ticks: u64, ns: u64) -> Rate {
        let product = ((u128::from(ticks) * u128::from(scale)) >> 32) as u64;
        Rate { scale, base: ns.wrapping_sub(product) }
    }
}

impl SharedClock {
    /// Measures the counter and writes the first numbers.
    pub(crate) fn start(memory: Arc<SessionMemory>) -> SharedClock {
        let first = read();
        std::thread::sleep(FIRST);
        let now = read();
        let rate = Rate::through(scale(first, now), now.ticks, now.ns);
        let mut clock = SharedClock { memory, first, rate, number: 0, corrected: Instant::now() };
        clock.publish(rate);
        let ahead = SystemClock.boot_ns().wrapping_sub(SystemClock.monotonic_ns());
        clock.memory.word(layout::BOOT_AHEAD).store(ahead, Ordering::Relaxed);
        clock
    }

    /// Whether it is time to correct the clock: a second after the last time.
    pub(crate) fn is_due(&self) -> bool {
        self.corrected.elapsed() >= PERIOD
    }

    /// Corrects the clock.
    pub(crate) fn correct(&mut self) {
        let now = read();
        let shown = self.rate.ns(now.ticks);
        let true_scale = scale(self.first, now);
        // The difference is gone after a period, if it is less than a thousandth of it.
        let ahead = shown as i64 - now.ns as i64;
        let limit = PERIOD.as_nanos() as i64 / 1000;
        let correction =
            i128::from(ahead.clamp(-limit, limit)) * i128::from(true_scale) / PERIOD.as_nanos() as i128;
        let scale = (i128::from(true_scale) - correction) as u64;
        self.rate = Rate::through(scale, now.ticks, shown);
        self.publish(self.rate);
        let ahead = SystemClock.boot_ns().wrapping_sub(SystemClock.monotonic_ns());
        self.memory.word(layout::BOOT_AHEAD).store(ahead, Ordering::Relaxed);
        self.corrected = Instant::now();
    }

    fn publish(&mut self, rate: Rate) {
        self.number = 1 - self.number;
        let at = layout::CLOCKS + self.number * layout::CLOCK_SIZE;
        self.memory.word(at).store(rate.scale, Ordering::Relaxed);
        self.memory.word(at + 8).store(rate.base, Ordering::Relaxed);
        self.memory.word(layout::CLOCK_NUMBER).store(self.number, Ordering::Release);
    }

    /// Whether the numbers are as they were written. Every traced process can write there.
    pub(crate) fn is_as_published(&self) -> bool {
        let at = layout::CLOCKS + self.number * layout::CLOCK_SIZE;
        let words = [layout::CLOCK_NUMBER, at, at + 8].map(|at| self.memory.word(at).load(Ordering::Relaxed));
        words == [self.number, self.rate.scale, self.rate.base]
    }
}

/// Nanoseconds per tick, times 2^32.
fn scale(from: Reading, to: Reading) -> u64 {
    let ticks = to.ticks.wrapping_sub(from.ticks).max(1);
    ((u128::from(to.ns.wrapping_sub(from.ns)) << 32) / u128::from(ticks)) as u64
}

/// Both clocks; the attempt with the least time between two readings of the counter counts.
fn read() -> Reading {
    let attempt = || {
        let before = ticks();
        let ns = SystemClock.monotonic_ns();
        let after = ticks();
        (after - before, Reading { ticks: before + (after - before) / 2, ns })
    };
    let best = (0..ATTEMPTS).map(|_| attempt()).min_by_key(|(apart, _)| *apart);
    best.expect("at least one attempt").1
}

fn ticks() -> u64 {
    // SAFETY: reads a register.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Whether the kernel itself uses the counter as its clock: only then it is known to be steady and the same on all CPUs.
pub(crate) fn is_counter_steady() -> bool {
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(source).is_ok_and(|name| name.trim() == "tsc")
}

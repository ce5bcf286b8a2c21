//! Clocks: the boot clock, which stamps records, and its offsets to other clocks.
//!
//! The offset to the wall clock is read once, at the start, so that a step of the wall clock during a run does not reorder
//! the printed times. What sends times to other machines while a run goes on reads it again ([`Epoch::after_step`]).

use std::time::Duration;

/// Source of times.
pub trait Clock {
    /// Nanoseconds since boot, suspended time included (CLOCK_BOOTTIME).
    fn boot_ns(&self) -> u64;
    /// Nanoseconds since boot without suspended time (CLOCK_MONOTONIC).
    fn monotonic_ns(&self) -> u64;
    /// Nanoseconds since 1970 (CLOCK_REALTIME).
    fn wall_ns(&self) -> i128;
    /// Nanoseconds since 1970 without leap seconds (CLOCK_TAI).
    fn tai_ns(&self) -> i128;
}

/// The machine's clocks.
#[derive(Copy, Clone, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn boot_ns(&self) -> u64 {
        read(libc::CLOCK_BOOTTIME).as_nanos() as u64
    }

    fn monotonic_ns(&self) -> u64 {
        read(libc::CLOCK_MONOTONIC).as_nanos() as u64
    }

    fn wall_ns(&self) -> i128 {
        read(libc::CLOCK_REALTIME).as_nanos() as i128
    }

    fn tai_ns(&self) -> i128 {
        read(libc::CLOCK_TAI).as_nanos() as i128
    }
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the struct; these clocks exist on all supported kernels.
    unsafe { libc::clock_gettime(clock, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A clock minus the boot clock. The boot clock is read before and after the other one; the mean is used.
fn ahead_of_boot(clock: &dyn Clock, other: impl Fn(&dyn Clock) -> i128) -> i128 {
    let before = clock.boot_ns();
    let there = other(clock);
    let after = clock.boot_ns();
    there - i128::from(before + (after - before) / 2)
}

/// TAI minus the boot clock, ns.
pub fn tai_ahead_ns(clock: &dyn Clock) -> i128 {
    ahead_of_boot(clock, |clock| clock.tai_ns())
}

/// The boot clock minus the monotonic clock, ns: the time during which the machine was suspended.
pub fn suspended_ns(clock: &dyn Clock) -> u64 {
    let ahead = ahead_of_boot(clock, |clock| i128::from(clock.monotonic_ns()));
    // The readings are some ns apart; a suspension is longer.
    let ahead = (-ahead).max(0) as u64;
    if ahead < 1_000_000 { 0 } else { ahead }
}

/// The offset between the boot clock and the wall clock.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Wall-clock time of the boot, ns.
    boot_at_wall_ns: i128,
}

impl Epoch {
    /// Reads both clocks.
    pub fn new(clock: &dyn Clock) -> Epoch {
        Epoch { boot_at_wall_ns: ahead_of_boot(clock, |clock| clock.wall_ns()) }
    }

    /// The offset with this wall-clock time of the boot, in ns since 1970.
    pub fn of_boot(boot_at_wall_ns: i128) -> Epoch {
        Epoch { boot_at_wall_ns }
    }

    /// Wall-clock time of a boot-clock time, in ns since 1970.
    pub fn wall_ns(&self, boot_ns: u64) -> i128 {
        self.boot_at_wall_ns + i128::from(boot_ns)
    }

    /// The offset of now, if the wall clock was set since this one was read, and by how many ns. A smaller difference is that of two
    /// readings; a thread that is interrupted between the clocks reads again.
    pub fn after_step(self, clock: &dyn Clock) -> Option<(Epoch, i128)> {
        let step = |now: Epoch| now.boot_at_wall_ns - self.boot_at_wall_ns;
        let now = (0..READINGS).map(|_| Epoch::new(clock)).min_by_key(|now| step(*now).abs())?;
        (step(now).abs() >= LEAST_STEP_NS).then_some((now, step(now)))
    }
}

/// Smallest difference in ns between two readings of an offset that is a step of the wall clock.
const LEAST_STEP_NS: i128 = 1_000_000;
/// Number of readings of the clocks to find a step.
const READINGS: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    struct Fake(Cell<u64>);

    impl Clock for Fake {
        fn boot_ns(&self) -> u64 {
            self.0.set(self.0.get() + 10);
            self.0.get()
        }

        fn monotonic_ns(&self) -> u64 {
            self.0.get() + 5 - 20_000_000
        }

        fn wall_ns(&self) -> i128 {
            1_000_000 + i128::from(self.0.get()) + 5
        }

        fn tai_ns(&self) -> i128 {
            self.wall_ns() + 37
        }
    }

    #[test]
    fn the_wall_clock_is_taken_in_the_middle_of_two_boot_times() {
        let epoch = Epoch::new(&Fake(Cell::new(90)));
        // boot 100 and 110, wall 1_000_105 in between
        assert_eq!(epoch.wall_ns(105), 1_000_105);
        assert_eq!(epoch.wall_ns(0), 1_000_000);
        assert_eq!(tai_ahead_ns(&Fake(Cell::new(90))), 1_000_037);
        assert_eq!(suspended_ns(&Fake(Cell::new(20_000_000))), 20_000_000);
    }

    #[test]
    fn a_step_of_the_wall_clock_is_found() {
        struct SteppedClock(Fake, i128);

        impl Clock for SteppedClock {
            fn boot_ns(&self) -> u64 {
                self.0.boot_ns()
            }

            fn monotonic_ns(&self) -> u64 {
                self.0.monotonic_ns()
            }

            fn wall_ns(&self) -> i128 {
                self.0.wall_ns() + self.1
            }

            fn tai_ns(&self) -> i128 {
                self.0.tai_ns()
            }
        }

        let stepped = |by: i128| SteppedClock(Fake(Cell::new(90)), by);
        let epoch = Epoch::new(&stepped(0));
        assert_eq!(epoch.after_step(&stepped(1000)), None, "two readings differ");
        for by in [2_000_000_000, -2_000_000_000] {
            let (now, step) = epoch.after_step(&stepped(by)).expect("a step");
            assert_eq!((now.wall_ns(0) - epoch.wall_ns(0), step), (by, by));
        }
    }

    #[test]
    fn the_machines_clocks_agree_with_the_standard_library() {
        let epoch = Epoch::new(&SystemClock);
        let ours = epoch.wall_ns(SystemClock.boot_ns());
        let std = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as i128;
        assert!((std - ours).abs() < 1_000_000_000, "{ours} {std}");
    }
}

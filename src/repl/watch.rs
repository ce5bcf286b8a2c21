//! `:watch @m`: prints a map repeatedly until Ctrl-C.

use super::session::Repl;
use anyhow::Result;
use linux::timer::Timer;
use runtime::Session;
use runtime::session::event_loop::{Next, Watch};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Duration;

/// Smallest timer value, for showing the map before the first period.
const AT_ONCE: Duration = Duration::from_nanos(1);

struct MapWatch<'a> {
    repl: Rc<Repl<'a>>,
    map: u32,
    timer: Timer,
    /// Number of this `:watch`: another one, or Ctrl-C, ends it.
    number: u32,
}

/// Prints the map now and then every `seconds` seconds.
pub fn start(repl: &Rc<Repl>, map: u32, seconds: u32) -> Result<()> {
    let number = repl.watching.get().wrapping_add(1);
    repl.watching.set(number);
    repl.is_watching.set(true);
    let timer = Timer::new(AT_ONCE, Duration::from_secs(u64::from(seconds)))?;
    let live = MapWatch { repl: Rc::clone(repl), map, timer, number };
    repl.joining.borrow_mut().push(Box::new(live));
    Ok(())
}

impl Watch for MapWatch<'_> {
    fn fd(&self) -> RawFd {
        self.timer.fd()
    }

    fn ready(&mut self, session: &mut Session) -> Next {
        self.timer.take();
        if !self.repl.is_watching.get() || self.repl.watching.get() != self.number {
            return Next::Remove;
        }
        self.repl.print(&format!("-- {}\n", jiff::Zoned::now().strftime("%H:%M:%S")));
        match self.repl.show_map(session, self.map, 0) {
            Ok(()) => Next::Continue,
            Err(error) => {
                self.repl.fail(&error);
                Next::Remove
            }
        }
    }
}

//! `watchpoint:0x10000000:8:w`: accesses to a few bytes of memory, by a breakpoint of the processor.

use crate::hir::{Accesses, Trigger};
use crate::resolve::finder::Finder;
use crate::resolve::pattern::number;
use crate::resolve::provider::Provider;
use crate::resolve::spot::{Spots, wrong};
use crate::syntax::ast::{ProbeSpec, text};
use crate::syntax::parse::whole_number;

/// `watchpoint:ADDRESS:BYTES:ACCESSES`
pub(super) fn watchpoint(finder: &mut Finder, spec: &ProbeSpec, provider: &Provider) -> Spots {
    let parts: Vec<&str> = spec.parts.iter().map(|part| text(&part.node)).collect();
    let [address, bytes, accesses] = parts[..] else {
        return provider.malformed(spec.span, "expected an address, a number of bytes and accesses");
    };
    match trigger(address, bytes, accesses) {
        Ok(trigger) => Ok(vec![finder.event(trigger, &format!("{}:{}", provider.names[0], parts.join(":")))]),
        Err(Refusal { part, reason, help }) => wrong("E0130", spec.parts[part].span, reason, "", vec![help]),
    }
}

/// The reason why there is no such watchpoint.
#[derive(Debug)]
struct Refusal {
    /// Index of the wrong part.
    part: usize,
    reason: String,
    help: String,
}

fn trigger(address: &str, bytes: &str, accesses: &str) -> Result<Trigger, Refusal> {
    let refuse = |part, reason: String, help: &str| Err(Refusal { part, reason, help: help.into() });
    let Some(at) = number(address) else {
        let reason = format!("`{address}` is not an address");
        return refuse(0, reason, "write a number; the script's parameter `$1` may be one");
    };
    let Some(size @ (1 | 2 | 4 | 8)) = whole_number(bytes) else {
        return refuse(1, format!("cannot watch `{bytes}` bytes"), "a processor watches 1, 2, 4 or 8 bytes");
    };
    let Some(accesses) = Accesses::parse(accesses) else {
        let reason = format!("`{accesses}` are no accesses that a processor can watch");
        return refuse(2, reason, "write `w` for writes, `rw` for reads and writes, `x` for execution");
    };
    if at % size != 0 && accesses != Accesses::Execute {
        let reason = format!("`{address}` is not a multiple of {size}");
        return refuse(
            0,
            reason,
            "the watched bytes begin at a multiple of their number: use several watchpoints",
        );
    }
    Ok(Trigger::Watchpoint { address: at, bytes: size as u8, accesses })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wrong_part_is_named() {
        let part =
            |address, bytes, accesses| trigger(address, bytes, accesses).map_err(|refusal| refusal.part);
        let found = |accesses| Ok(Trigger::Watchpoint { address: 0x1000, bytes: 4, accesses });
        assert_eq!(part("0x1000", "4", "w"), found(Accesses::Write));
        assert_eq!(part("4096", "4", "wr"), found(Accesses::ReadWrite));
        assert_eq!(part("main", "4", "w"), Err(0));
        assert_eq!(part("0x1002", "4", "w"), Err(0));
        assert_eq!(part("0x1000", "3", "w"), Err(1));
        for none in ["", "r", "ww", "rx", "q"] {
            assert_eq!(part("0x1000", "4", none), Err(2), "{none}");
        }
    }
}

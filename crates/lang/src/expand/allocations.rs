//! `alloc_size(p)`, `alloc_base(p)`, `alloc_site(p)`: the allocation that contains an address.
//!
//! ```text
//! cuda:memcpy { @[alloc_size(args.dst)] = count() }
//!
//! cuda:memcpy { @[{ BASE looked up in @__alloc_pieces; @__alloc_bytes[pid, BASE] }] = count() }
//! cuda:alloc  { enters the block's pieces }    cuda:map, too
//! cuda:free   { takes them out again }
//! ```
//!
//! A block is stored as pieces: aligned, with sizes that are powers of two, so that a block of any size has few. A lookup tries
//! each size of piece once; at most one piece contains the address. Blocks start and end at multiples of 512 bytes: host
//! memory, which may start anywhere, is rounded to them. No block is larger than the address space of a process.

use crate::expand::template;
use crate::expand::template::{Own, expression};
use crate::syntax::ast::{Expr, ExprKind, Item, Script};
use crate::syntax::visit::change::{self as visit, Visit};

/// Names of the maps that know blocks begin so.
pub const MAPS: &str = "__alloc_";

/// The functions, and what is said of the block at `$base`.
static FUNCTIONS: &[(&str, &str)] = &[
    ("alloc_base", "(uint64)$base"),
    ("alloc_size", "@__alloc_bytes[pid, (uint64)$base]"),
    ("alloc_site", "@__alloc_site[pid, (uint64)$base]"),
];

const LOOKED_UP: &str = "{
    let $p = (int64)(uint64)ADDRESS;
    let $base = 0;
    for $k : 9..41 {
        if (has_key(@__alloc_pieces, (pid, $k, $p >> $k))) { $base = @__alloc_pieces[pid, $k, $p >> $k] }
    }
    SAID
}";

/// What goes through the pieces of a block of so many bytes.
const PIECES: &str = "
    $at = (int64)START & ~511;
    $end = ((int64)START + (int64)BYTES + 511) & ~511;
    while ($at < $end) {
        $k = 9;
        while ($k < 40 && ($at & ((2 << $k) - 1)) == 0 && $at + (2 << $k) <= $end) { $k++ }
        EACH;
        $at += 1 << $k;
    }";

/// Maps and clauses of a script that asks: arrays and physical memory have handles and no addresses, but what physical memory is
/// mapped to has. Several mappings may go at once.
const KEPT: &str = "
let @__alloc_pieces = hash(262144);
let @__alloc_bytes = hash(65536);
let @__alloc_site = hash(65536);
cuda:alloc / args.result == CUDA_SUCCESS && args.bytes < 1 << 47 && args.kind != \"physical\" && args.kind != \"array\" / {
    @__alloc_bytes[pid, args.ptr] = args.bytes;
    KEEP_SITE
    ENTER
}
cuda:map / args.kind == \"map\" && args.result == CUDA_SUCCESS / {
    @__alloc_bytes[pid, args.ptr] = args.bytes;
    KEEP_SITE
    ENTER
}
cuda:free / args.result == CUDA_SUCCESS && has_key(@__alloc_bytes, (pid, args.ptr)) / {
    $block = args.ptr;
    LEAVE
}
cuda:map / args.kind == \"unmap\" && args.result == CUDA_SUCCESS / {
    $block = args.ptr;
    while ($block < args.ptr + args.bytes && has_key(@__alloc_bytes, (pid, $block))) {
        $next = $block + @__alloc_bytes[pid, $block];
        LEAVE
        $block = $next;
    }
}";

/// Replaces all calls, and adds what they need.
pub(crate) fn expand(script: &mut Script) {
    let mut asked = LookupInserter { count: 0, sites: false };
    template::askers(script, &mut asked);
    if asked.count > 0 {
        script.items.extend(kept(asked.sites));
    }
}

fn kept(sites: bool) -> Vec<Item> {
    let pieces = |start: &str, bytes: &str, each: &str| {
        PIECES.replace("START", start).replace("BYTES", bytes).replace("EACH", each)
    };
    let site = |text: &'static str| if sites { text } else { "" };
    let enter = pieces("args.ptr", "args.bytes", "@__alloc_pieces[pid, $k, $at >> $k] = (int64)args.ptr");
    let leave =
        pieces("$block", "@__alloc_bytes[pid, $block]", "delete(@__alloc_pieces, (pid, $k, $at >> $k))");
    let forget = "delete(@__alloc_bytes, (pid, $block)); FORGET_SITE";
    let text = KEPT
        .replace("ENTER", &enter)
        .replace("LEAVE", &format!("{leave} {forget}"))
        .replace("KEEP_SITE", site("@__alloc_site[pid, args.ptr] = ustack(16);"))
        .replace("FORGET_SITE", site("delete(@__alloc_site, (pid, $block));"));
    let text = if sites { text } else { text.replace("let @__alloc_site = hash(65536);", "") };
    template::items("alloc", &text)
}

/// Puts the lookup where a block is asked for.
struct LookupInserter {
    count: u32,
    sites: bool,
}

impl Visit for LookupInserter {
    fn expr(&mut self, e: &mut Expr) {
        let ExprKind::Call { name, args } = &mut e.kind else { return };
        let Some((function, said)) = FUNCTIONS.iter().find(|(known, _)| *known == name.node) else { return };
        if args.len() != 1 {
            return;
        }
        let given = args.remove(0);
        self.count += 1;
        self.sites |= *function == "alloc_site";
        let mut lookup = expression(&LOOKED_UP.replace("SAID", said), e.span);
        let suffix = format!("alloc{}", self.count);
        visit::expr(&mut lookup, &mut Own { given: Some(("ADDRESS", given)), suffix });
        e.kind = lookup.kind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::span::Span;

    #[test]
    fn what_is_put_in_can_be_read() {
        for (_, said) in FUNCTIONS {
            expression(&LOOKED_UP.replace("SAID", said), Span::default());
        }
        let clauses = |items: Vec<Item>| items.iter().filter(|item| matches!(item, Item::Clause(_))).count();
        assert_eq!((clauses(kept(false)), clauses(kept(true))), (4, 4));
        assert_eq!((kept(false).len(), kept(true).len()), (6, 7));
    }
}

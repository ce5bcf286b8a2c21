//! Entry and return: the parts of each side of a program, and its sites.

use super::body::Body;
use super::cookie_layout::CookieLayout;
use crate::ir::BlockId;
use lang::hir::{Expr, Hook, Site};
use wire::manifest::{self, Side};

/// The parts of one side of a program.
pub(super) struct Parts<'a, 'c, 'p> {
    /// Code that runs first, and the target that it jumps to if the body must not run.
    pub before: &'a mut dyn FnMut(&mut Body<'c, 'p>, BlockId),
    /// Conditions, all of which must hold.
    pub predicate: Vec<&'a Expr>,
    /// Code that runs if they hold.
    pub body: &'a mut dyn FnMut(&mut Body<'c, 'p>),
    /// Return value in a process or run that is not traced.
    pub skipped: i64,
    /// Return value if the predicate does not hold.
    pub refused: i64,
    /// True if the side runs only in traced processes.
    pub filtered: bool,
    /// True for the side with the script's statements.
    pub variables: bool,
}

/// The section of a program at functions, and its attach point.
pub(super) struct ProgramPlace {
    /// The word with which the symbol of the program begins.
    pub word: &'static str,
    pub section: String,
    pub attach: manifest::Attach,
}

/// The attach sites with their cookies.
pub(super) fn functions(hook: Hook, side: Side, sites: &[Site], layout: &CookieLayout) -> manifest::Attach {
    let site = |site: &Site| {
        Some(manifest::Site {
            file: site.file?.0,
            offset: site.place.offset,
            cookie: layout.cookie(site),
            probe: site.probe.0,
            semaphore: site.semaphore,
        })
    };
    manifest::Attach::Functions { hook, side, sites: sites.iter().filter_map(site).collect() }
}

/// The sites with a file, grouped by the number of bytes that the prologue has pushed, if `matters`.
pub(super) fn by_shift(sites: &[Site], matters: bool) -> Vec<(u32, Vec<Site>)> {
    let mut groups: Vec<(u32, Vec<Site>)> = vec![];
    for site in sites.iter().filter(|site| site.file.is_some()) {
        let shift = if matters { site.place.stack_shift } else { 0 };
        match groups.iter_mut().find(|(known, _)| *known == shift) {
            Some((_, group)) => group.push(site.clone()),
            None => groups.push((shift, vec![site.clone()])),
        }
    }
    groups
}

pub(super) fn without_sites(attach: manifest::Attach) -> manifest::Attach {
    match attach {
        manifest::Attach::Functions { hook, side, .. } => {
            manifest::Attach::Functions { hook, side, sites: vec![] }
        }
        other => other,
    }
}

//! Subcommands, one file each, and the table of them. `trace` is the run without a subcommand.

pub mod completion;
pub mod doctor;
pub mod explain;
pub mod fmt;
pub mod help;
pub mod list;
pub mod man;
pub mod record;
pub mod repl;
pub mod report;
pub mod script_help;
pub mod scripts;
pub mod trace;

use crate::subcommand::{Listing, Subcommands};

/// All subcommands, in the order of `cudatrace -h`.
pub static SUBCOMMANDS: Subcommands = Subcommands(&[
    record::SUBCOMMAND,
    report::SUBCOMMAND,
    repl::SUBCOMMAND,
    scripts::SUBCOMMAND,
    help::SUBCOMMAND,
    doctor::SUBCOMMAND,
    fmt::SUBCOMMAND,
    completion::SUBCOMMAND,
    man::SUBCOMMAND,
]);

/// All options that print something in place of a trace. Of several on a command line, the first row is used.
pub static LISTINGS: &[Listing] = &[explain::LISTING, doctor::LISTING, fmt::LISTING, list::LISTING];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::definition;
    use crate::bundled;

    #[test]
    fn options_of_each_row_are_consistent_with_the_common_ones() {
        let common = definition::command(None);
        let has = |id: &&&str| common.get_arguments().any(|arg| arg.get_id() == **id);
        for subcommand in SUBCOMMANDS.0 {
            definition::command(Some(subcommand)).debug_assert();
            let unknown = subcommand.options.iter().chain(subcommand.hidden_options).find(|id| !has(id));
            assert_eq!(unknown, None, "no common option of `{}` has this id", subcommand.name);
        }
    }

    #[test]
    fn options_of_listings_exist() {
        let common = definition::command(None);
        let has = |id: &&&str| common.get_arguments().any(|arg| arg.get_id() == **id);
        for listing in LISTINGS {
            let ids = [&[listing.option], listing.options].concat();
            assert_eq!(ids.iter().find(|id| !has(id)), None, "no option has this id");
        }
    }

    #[test]
    fn names_are_unique_and_no_names_of_scripts() {
        let mut names = SUBCOMMANDS.names();
        names.dedup();
        assert_eq!(names.len(), SUBCOMMANDS.0.len(), "{names:?}");
        assert_eq!(names.iter().find(|name| bundled::find(name).is_some()), None);
    }
}

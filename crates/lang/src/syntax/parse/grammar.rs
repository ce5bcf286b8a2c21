//! The grammar, from which pest generates the rules.
#![allow(missing_docs)]

use pest::error::{Error, ErrorVariant, InputLocation};

#[derive(pest_derive::Parser)]
#[grammar = "syntax/grammar.pest"]
pub(crate) struct Grammar;

pub(crate) type Pair<'a> = pest::iterators::Pair<'a, Rule>;

/// The furthest position that pest reached.
pub(crate) fn position(error: &Error<Rule>) -> usize {
    match error.location {
        InputLocation::Pos(at) | InputLocation::Span((at, _)) => at,
    }
}

/// The rules that pest expected there.
pub(crate) fn expected(error: &Error<Rule>) -> &[Rule] {
    match &error.variant {
        ErrorVariant::ParsingError { positives, .. } => positives,
        ErrorVariant::CustomError { .. } => &[],
    }
}

//! Two ways to run a script without a kernel, for tests: its meaning ([`reference`], an interpreter of the checked program) and
//! its machine code ([`machine`], a BPF machine under [`session`]). Both run on the same [`world`] of simulated calls and yield
//! the same [`outcome`].
//!
//! ```text
//! script -> check -> hir::Program --------------------> reference --+
//!                        |                                          +-- equal Outcomes
//!                        +-> codegen -> object, manifest -> session +
//! ```
//!
//! Never shipped: only tests depend on it.

#![forbid(unsafe_code)]

pub mod agree;
pub mod catalog;
pub mod generate;
pub mod machine;
pub mod mutate;
pub mod outcome;
mod recency;
mod records;
pub mod reference;
pub mod rng;
mod series;
pub mod session;
pub mod world;

pub use outcome::Outcome;
pub use world::World;

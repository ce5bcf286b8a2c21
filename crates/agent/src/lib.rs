//! The library that is loaded into a traced process to collect records of what its GPU does (`src/library`), and the definitions that it shares
//! with the tracer: messages, and the layout of records.

pub mod kind_set;
pub mod message;
#[macro_use]
pub mod record;

// As in the library.
#[cfg(test)]
use library::*;

#[allow(missing_docs)]
mod places {
    include!(concat!(env!("OUT_DIR"), "/places.rs"));
}

/// Name of `int cudatrace_attach(int socket)` in the library.
pub const ATTACH: &str = "cudatrace_attach";

/// The library, an ELF file.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent.so"));

/// The library for a tracer: process `pid`, which listens at the abstract Unix socket `name`, and accepts agents with this secret.
///
/// # Panics
/// If the name has more than 56 bytes.
pub fn library(pid: u32, name: &str, secret: &[u8; message::SECRET]) -> Vec<u8> {
    const NAME_AT: usize = std::mem::offset_of!(message::Address, name);
    const SECRET_AT: usize = std::mem::offset_of!(message::Address, secret);
    assert!(name.len() <= message::TRACER_NAME, "`{name}` is too long");
    let mut bytes = LIBRARY.to_vec();
    let written = &mut bytes[places::WRITTEN_AT..][..size_of::<message::Address>()];
    written.fill(0);
    written[..4].copy_from_slice(&pid.to_ne_bytes());
    written[4..8].copy_from_slice(&(name.len() as u32).to_ne_bytes());
    written[NAME_AT..][..name.len()].copy_from_slice(name.as_bytes());
    written[SECRET_AT..].copy_from_slice(secret);
    bytes
}

/// The library's files, for their tests and for lints.
#[cfg(test)]
#[allow(dead_code)]
#[path = "library"]
mod library {
    pub(crate) mod activity;
    pub(crate) mod api_exit;
    pub(crate) mod batch;
    pub(crate) mod buffers;
    pub(crate) mod clock;
    pub(crate) mod collection;
    pub(crate) mod copies;
    pub(crate) mod counts;
    pub(crate) mod cupti;
    pub(crate) mod devices;
    pub(crate) mod driver;
    pub(crate) mod forks;
    pub(crate) mod graphs;
    pub(crate) mod idle;
    pub(crate) mod launches;
    pub(crate) mod leaving;
    pub(crate) mod names;
    pub(crate) mod operators;
    pub(crate) mod presence;
    pub(crate) mod ranges;
    pub(crate) mod sys;
    pub(crate) mod thread_id;
    pub(crate) mod threads;
    pub(crate) mod tracer;
    pub(crate) mod waiting;
    pub(crate) mod waits;
}

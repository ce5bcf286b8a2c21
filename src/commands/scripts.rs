//! `cudatrace scripts`: what the binary carries.

use crate::embedded::SCRIPTS;
use anyhow::Result;
use std::io::Write;

/// Lists the scripts with the question that each answers.
pub fn run() -> Result<u8> {
    let mut out = std::io::stdout().lock();
    for script in SCRIPTS {
        writeln!(out, "{:<11} {}", script.name, script.summary())?;
    }
    Ok(0)
}

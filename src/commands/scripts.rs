//! `cudatrace scripts`: lists the bundled scripts.

use crate::Failure;
use crate::bundled::BY_QUESTION;
use crate::subcommand::Subcommand;
use crate::{bundled, terminal};
use anyhow::Result;
use std::io::Write;

/// `cudatrace scripts`
pub const SUBCOMMAND: Subcommand = Subcommand {
    summary: Some(("scripts", "the scripts by the question that they answer")),
    examples: "`cudatrace NAME --help` shows the question that a script answers, and its options.",
    ..Subcommand::new("scripts", "Lists the bundled scripts", "cudatrace scripts", |_| {
        run().map_err(Failure::wrong)
    })
};

/// Lists the embedded scripts by purpose, with the question that each answers.
fn run() -> Result<u8> {
    std::io::stdout().lock().write_all(list(terminal::columns()).as_bytes())?;
    Ok(0)
}

fn list(columns: usize) -> String {
    const NAME: usize = 14;
    let mut text = String::new();
    for (question, names) in BY_QUESTION {
        text += &format!("{question}\n");
        for name in *names {
            let summary = bundled::find(name).map_or("", |script| script.summary());
            let summary = terminal::wrap(summary, columns.saturating_sub(NAME).max(20), 0);
            let summary = summary.replace('\n', &format!("\n{}", " ".repeat(NAME)));
            text += &format!("  {name:<width$}{summary}\n", width = NAME - 2);
        }
        text.push('\n');
    }
    text + "`cudatrace NAME -- COMMAND` runs one, `cudatrace help NAME` shows its options.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_is_listed_within_the_width() {
        let text = list(60);
        assert!(text.lines().all(|line| line.len() <= 60 || line.starts_with("`")), "{text}");
        for script in bundled::SCRIPTS {
            assert!(text.contains(&format!("\n  {} ", script.name)), "{}", script.name);
        }
    }
}

//! Clauses of the session: typed or loaded, numbered from 1, attached, stopped and dropped individually.
//!
//! Clauses that are entered together form one script and are compiled together. Line numbers continue from script to script:
//! `repl:7` is the seventh line of the session. Input without a clause (`#define`, `config`) applies to all later scripts. A clause
//! that is expanded to several, such as one of the operation `cuda:alloc`, has one number.

use super::session::{Clause, Clauses, Repl, ReportedError};
use crate::run::compiler::{Compiler, CompilerInputs, SourceClause};
use crate::run::unwind_updater::UnwindUpdater;
use crate::script::{self, Script};
use anyhow::{Result, anyhow, bail};
use lang::builtins::table;
use lang::builtins::table::Kind;
use lang::syntax::parse::tokens;
use lang::{Diagnostics, Source};
use runtime::Session;
use std::collections::HashSet;
use std::fmt::Write;
use wire::Manifest;
use wire::manifest::Attach;

impl Clauses {
    /// Attaches entered text.
    pub fn typed(&self, repl: &Repl, session: &mut Session, text: &str) -> Result<()> {
        let before = self.typed.borrow().clone();
        let source = Source::new("repl", before.clone() + text);
        let script = script::import(Script::alone(source, &[]), repl.messages).map_err(|_| ReportedError)?;
        let added = self.add(repl, session, script, before.len());
        let is_definition = added.as_ref().is_ok_and(|clauses| *clauses == 0);
        let mut typed = self.typed.borrow_mut();
        if is_definition {
            typed.push_str(text.trim_end());
            typed.push('\n');
        } else {
            typed.push_str(&"\n".repeat(text.lines().count()));
        }
        added.map(drop)
    }

    /// Attaches the part of a script from byte `from` on; returns its number of clauses.
    ///
    /// Errors of the script are reported here; the result is then [`ReportedError`].
    pub fn add(&self, repl: &Repl, session: &mut Session, script: Script, from: usize) -> Result<u32> {
        repl.machine.refresh();
        let mut compiler = Compiler::new(
            script,
            CompilerInputs { machine: repl.machine, cli: repl.cli, messages: repl.messages },
        );
        compiler.front(repl.scripts.session_state()).map_err(|_| ReportedError)?;
        let own = compiler.source().files()[0].end;
        let is_loaded = compiler.source().name != "repl";
        let written = compiler.written();
        if written.is_empty() {
            return Ok(0);
        }
        let mut definitions = definitions(&compiler.source().text, &written, from, own);
        let entry = |written: SourceClause| {
            let text = formatted(compiler.source().slice(written.span));
            (text, written.span.end as usize > own, written.parts)
        };
        let entries: Vec<(String, bool, Vec<u32>)> = written.into_iter().map(entry).collect();
        let count = entries.len() as u32;
        self.scripts.set(self.scripts.get() + 1);
        let number = self.scripts.get();
        repl.scripts.add(session, number, compiler)?;
        repl.walk_stacks(session);
        for (text, is_imported, parts) in entries {
            let attach_points = attach_points(session.manifest(), &parts);
            let clause = Clause {
                number: self.next_number(),
                script: number,
                parts,
                text,
                is_imported,
                is_loaded,
                definitions: std::mem::take(&mut definitions),
                attach_points,
                is_stopped: false,
            };
            self.enter(repl, clause);
        }
        repl.learn_maps(session.manifest());
        repl.gpu.take_records(&repl.surroundings(), session)?;
        Ok(count)
    }

    /// Runs statements once: `print(@)`, `@calls = 0`; an expression is printed.
    pub fn run_once(&self, repl: &Repl, session: &mut Session, statements: &str) -> Result<()> {
        let clause = format!("{}BEGIN {{\n{statements}\n}}", self.typed.borrow());
        let script = Script::alone(Source::new("repl", clause), &[]);
        let script = script::import(script, repl.messages).map_err(|_| ReportedError)?;
        let mut compiler = Compiler::new(
            script,
            CompilerInputs { machine: repl.machine, cli: repl.cli, messages: repl.messages },
        );
        compiler.front(repl.scripts.session_state()).map_err(|_| ReportedError)?;
        self.scripts.set(self.scripts.get() + 1);
        repl.scripts.add(session, self.scripts.get(), compiler)?;
        repl.scripts.remove(session, self.scripts.get());
        repl.learn_maps(session.manifest());
        Ok(())
    }

    /// The entered definitions.
    pub fn defined(&self) -> String {
        self.typed.borrow().clone()
    }

    fn next_number(&self) -> u32 {
        self.numbered.set(self.numbered.get() + 1);
        self.numbered.get()
    }

    fn enter(&self, repl: &Repl, clause: Clause) {
        repl.messages.note(&format!("clause {}: {}", clause.number, clause.state()));
        self.list.borrow_mut().push(clause);
    }

    /// Parses `3 5`, `3,5` and `3-5`; without numbers all clauses.
    pub fn numbers(&self, text: &str) -> Result<Vec<u32>> {
        let list = self.list.borrow();
        let all = || list.iter().map(|clause| clause.number);
        match text {
            "" => bail!("which clause? `:list` has their numbers"),
            "all" => return Ok(all().collect()),
            _ => {}
        }
        let mut numbers = Vec::new();
        for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let range =
                first.parse().ok().zip(last.parse().ok()).map(|(first, last): (u32, u32)| first..=last);
            let found = all().filter(|number| range.as_ref().is_some_and(|range| range.contains(number)));
            let before = numbers.len();
            numbers.extend(found);
            if numbers.len() == before {
                bail!("no clause {word}; `:list` has their numbers");
            }
        }
        Ok(numbers)
    }

    /// Removes a clause. Its END runs now.
    pub fn drop(&self, repl: &Repl, session: &mut Session, number: u32) -> Result<()> {
        let mut list = self.list.borrow_mut();
        let Some(at) = list.iter().position(|clause| clause.number == number) else { return Ok(()) };
        let clause = list.remove(at);
        if let Some(next) = list.iter_mut().find(|next| next.script == clause.script) {
            next.definitions.insert_str(0, &clause.definitions);
            let ended = repl.scripts.run_end_programs(session, clause.script, &clause.parts);
            repl.scripts.stop(session, clause.script, &clause.parts);
            return Ok(ended?);
        }
        let ended = repl.scripts.run_end_programs(session, clause.script, &clause.parts);
        repl.scripts.remove(session, clause.script);
        Ok(ended?)
    }

    /// Detaches the clauses that print, so that the terminal is quiet; returns their numbers.
    pub fn stop_printing(&self, repl: &Repl, session: &mut Session) -> Vec<u32> {
        let mut list = self.list.borrow_mut();
        let printing = list.iter_mut().filter(|clause| !clause.is_stopped && prints(&clause.text));
        let stop = |clause: &mut Clause| {
            repl.scripts.stop(session, clause.script, &clause.parts);
            clause.is_stopped = true;
            clause.number
        };
        printing.map(stop).collect()
    }

    /// The numbers of stopped clauses.
    pub fn stopped(&self) -> Vec<u32> {
        self.list.borrow().iter().filter(|clause| clause.is_stopped).map(|clause| clause.number).collect()
    }

    /// Attaches a stopped clause again.
    pub fn resume(&self, repl: &Repl, session: &mut Session, number: u32) -> Result<()> {
        let mut list = self.list.borrow_mut();
        let stopped = list.iter_mut().find(|clause| clause.number == number && clause.is_stopped);
        let clause = stopped.ok_or_else(|| anyhow!("clause {number} is not stopped"))?;
        repl.scripts.resume(session, clause.script, &clause.parts)?;
        clause.is_stopped = false;
        clause.attach_points = attach_points(session.manifest(), &clause.parts);
        repl.messages.note(&format!("clause {number}: {}", clause.state()));
        Ok(())
    }

    /// Attaches all clauses again, for the processes that are traced now.
    pub fn again(&self, repl: &Repl, session: &mut Session) {
        repl.machine.refresh();
        let mut list = self.list.borrow_mut();
        let scripts: HashSet<u32> = list.iter().map(|clause| clause.script).collect();
        for script in scripts {
            let attached = repl.scripts.again(session, script);
            for clause in list.iter_mut().filter(|clause| clause.script == script && !clause.is_stopped) {
                match &attached {
                    Ok(()) => clause.attach_points = attach_points(session.manifest(), &clause.parts),
                    Err(error) => {
                        clause.attach_points = 0;
                        repl.fail(&anyhow!("clause {} is not attached: {error:#}", clause.number));
                    }
                }
            }
        }
    }

    /// All clauses with their numbers, for `:list`.
    pub fn list(&self) -> String {
        let mut text = String::new();
        for clause in self.list.borrow().iter() {
            let lines =
                if clause.is_loaded { beginning(&clause.text) } else { clause.text.replace('\n', "\n     ") };
            let _ = writeln!(text, "{:>3}  {lines}  // {}", clause.number, clause.state());
        }
        if text.is_empty() { "no clauses yet\n".into() } else { text }
    }

    /// All clauses and definitions as a script.
    pub fn script(&self) -> String {
        let typed = self.typed.borrow();
        let mut text: String =
            typed.lines().filter(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect();
        for clause in self.list.borrow().iter() {
            text += &clause.definitions;
            if !clause.is_imported {
                text += &clause.text;
                text.push('\n');
            }
        }
        text
    }
}

/// The first line of a clause of a loaded script, with the number of the others.
fn beginning(text: &str) -> String {
    match text.split_once('\n') {
        Some((first, others)) => format!("{first} ... {} more lines }}", others.lines().count()),
        None => text.to_owned(),
    }
}

impl Repl<'_> {
    /// Attaches the clauses of a script file or an embedded script.
    pub fn load(&self, session: &mut Session, word: &str, params: &[String]) -> Result<()> {
        let script = script::import(script::open(self.cli, word, params)?, self.messages)?;
        self.clauses.add(self, session, script, 0).map(drop)
    }

    /// Starts stack walks by unwind tables when a clause first uses user stacks.
    fn walk_stacks(&self, session: &Session) {
        if self.extender.unwinder().is_some() {
            return;
        }
        let Some(maps) = session.unwind_maps() else { return };
        let mut traced = self.machine.scope().pids.clone();
        traced.extend(self.program.pid());
        self.extender.walk_stacks(maps, true).start_with(&traced);
        match UnwindUpdater::new(self.extender) {
            Ok(updater) => self.joining.borrow_mut().push(Box::new(updater)),
            Err(error) => self.messages.warning(&format!(
                "stacks of new processes may be too short, since their unwind tables cannot be read: {error}"
            )),
        }
    }
}

impl Clause {
    fn state(&self) -> String {
        match self.attach_points {
            _ if self.is_stopped => "stopped".into(),
            0 => "not attached".into(),
            1 => "1 attach point".into(),
            many => format!("{many} attach points"),
        }
    }
}

/// A formatted clause, without the indentation of the prompt.
fn formatted(clause: &str) -> String {
    let text = lang::format(&Source::new("repl", clause), &mut Diagnostics::default());
    text.map_or_else(|_| clause.to_owned(), |text| text.trim_end().to_owned())
}

/// The text of a script between byte `from` and `to` that is not part of a clause.
fn definitions(text: &str, written: &[SourceClause], from: usize, to: usize) -> String {
    let (mut rest, mut at) = (String::new(), from);
    for SourceClause { span, .. } in written.iter().filter(|written| (written.span.end as usize) <= to) {
        rest += text.get(at..span.start as usize).unwrap_or("");
        at = span.end as usize;
    }
    rest += text.get(at..to).unwrap_or("");
    let lines = rest.lines().map(str::trim_end).filter(|line| !line.trim().is_empty());
    lines.map(|line| format!("{line}\n")).collect()
}

/// Number of attach points of a clause in a module; entry and return of a function count once.
fn attach_points(manifest: &Manifest, parts: &[u32]) -> usize {
    let programs = manifest.programs.iter().filter(|program| parts.contains(&program.clause));
    let mut places = HashSet::new();
    let mut others = 0;
    for program in programs {
        match &program.attach {
            Attach::Functions { sites, .. } => {
                places.extend(sites.iter().map(|site| (site.file, site.probe)))
            }
            _ => others += 1,
        }
    }
    places.len() + others
}

/// Whether a clause prints.
fn prints(clause: &str) -> bool {
    let words = tokens::tokens(clause, 0).map(|token| &clause[token.start..token.end]);
    words.into_iter().any(|word| {
        let is_action = table::find(word).is_some_and(|builtin| builtin.kind == Kind::Action);
        is_action && !["clear", "zero", "exit"].contains(&word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_are_kept_formatted() {
        assert_eq!(formatted("cuda:alloc {\n    @ = count()\n    }"), "cuda:alloc {\n    @ = count();\n}");
        assert_eq!(
            formatted("a:b {\n      // why\n   if 1 {\n @ = 1 } }"),
            "a:b {\n    // why\n    if 1 {\n        @ = 1;\n    }\n}"
        );
    }

    #[test]
    fn clauses_that_print() {
        assert!(prints("interval:s:1 { print(@); clear(@) }"));
        assert!(prints("uprobe:libcuda:cuInit { printf(\"x\") }"));
        assert!(!prints("interval:s:1 { clear(@x); zero(@y) }"));
        assert!(!prints("uprobe:libcuda:cuInit { @print = count() }"));
    }
}

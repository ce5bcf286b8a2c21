//! Results of a script's tests or benches, and their text in bpftrace's form.
//!
//! ```text
//! [==========] Running 1 test.
//! [ RUN      ] sum
//! [       OK ] sum (12.3 us)
//! [==========] 1 test ran.
//! [  PASSED  ] 1 test.
//! ```

use crate::units;
use wire::trigger::TestKind;

/// Progress of tests or benches, in this order: a beginning, each test or bench, an end.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Tests or benches are about to run.
    Begin {
        /// Test or bench.
        kind: TestKind,
        /// Names in the order of the script.
        names: Vec<String>,
    },
    /// A test has finished.
    Test(TestResult),
    /// A bench has finished.
    Bench {
        /// Name.
        name: String,
        /// Average time of a run in nanoseconds.
        average_ns: u64,
        /// Number of runs.
        runs: u64,
    },
    /// All have finished.
    End {
        /// Test or bench.
        kind: TestKind,
        /// Number of tests or benches.
        count: usize,
        /// Names of the tests that failed.
        failed: Vec<String>,
    },
}

/// Result of a test.
#[derive(Clone, Debug, PartialEq)]
pub struct TestResult {
    /// Name.
    pub name: String,
    /// True if it passed.
    pub passed: bool,
    /// Duration in ns.
    pub ns: u64,
    /// Output.
    pub output: Vec<u8>,
}

/// Minimum width of the column of names.
const NAME_WIDTH: usize = 40;
/// Width of the column of times.
const TIME_WIDTH: usize = 15;

/// Layout state: the rows of benches are aligned.
#[derive(Clone, Copy, Debug, Default)]
pub struct Table {
    width: usize,
}

impl Table {
    /// The lines for one step.
    pub fn lines(&mut self, step: &Step) -> Vec<u8> {
        match step {
            Step::Begin { kind: TestKind::Test, names } => {
                format!("[==========] Running {}.\n", tests(names.len())).into_bytes()
            }
            Step::Begin { kind: TestKind::Bench, names } => {
                self.width = names.iter().map(String::len).chain([NAME_WIDTH]).max().unwrap_or(0) + 1;
                let head = self.row("Benchmark", "Time(ns)", "Iterations");
                format!("{head}{}\n", "-".repeat(head.len() - 1)).into_bytes()
            }
            Step::Test(tested) => lines_of(tested),
            Step::Bench { name, average_ns, runs } => {
                self.row(name, &average_ns.to_string(), &runs.to_string()).into_bytes()
            }
            Step::End { kind: TestKind::Test, count, failed } => summary(*count, failed).into_bytes(),
            Step::End { kind: TestKind::Bench, .. } => Vec::new(),
        }
    }

    fn row(&self, name: &str, time: &str, runs: &str) -> String {
        format!("{name:<0$}{time:<TIME_WIDTH$}{runs}\n", self.width)
    }
}

/// The lines for a test; its output is shown if it failed.
fn lines_of(TestResult { name, passed, ns, output }: &TestResult) -> Vec<u8> {
    let mut lines = format!("[ RUN      ] {name}\n").into_bytes();
    if !passed {
        lines.extend(output);
        if output.last().is_some_and(|last| *last != b'\n') {
            lines.push(b'\n');
        }
    }
    let verdict = if *passed { "[       OK ]" } else { "[  FAILED  ]" };
    let time = units::time(i64::try_from(*ns).unwrap_or(i64::MAX));
    lines.extend(format!("{verdict} {name} ({time})\n").into_bytes());
    lines
}

fn summary(count: usize, failed: &[String]) -> String {
    let mut text =
        format!("[==========] {} ran.\n[  PASSED  ] {}.\n", tests(count), tests(count - failed.len()));
    if !failed.is_empty() {
        text += &format!("[  FAILED  ] {}, listed below:\n", tests(failed.len()));
        failed.iter().for_each(|name| text += &format!("[  FAILED  ] {name}\n"));
    }
    text
}

fn tests(count: usize) -> String {
    format!("{count} test{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(steps: &[Step]) -> String {
        let mut table = Table::default();
        let bytes: Vec<u8> = steps.iter().flat_map(|step| table.lines(step)).collect();
        String::from_utf8(bytes).expect("text")
    }

    fn tested(name: &str, passed: bool, output: &str) -> Step {
        Step::Test(TestResult { name: name.into(), passed, ns: 1500, output: output.into() })
    }

    #[test]
    fn output_of_failed_tests_is_shown_and_their_names_are_repeated() {
        let steps = [
            Step::Begin { kind: TestKind::Test, names: vec!["a".into(), "b".into()] },
            tested("a", true, "unseen\n"),
            tested("b", false, "seen"),
            Step::End { kind: TestKind::Test, count: 2, failed: vec!["b".into()] },
        ];
        let expected = "[==========] Running 2 tests.\n[ RUN      ] a\n[       OK ] a (1.5 us)\n[ RUN      ] b\nseen\n\
                        [  FAILED  ] b (1.5 us)\n[==========] 2 tests ran.\n[  PASSED  ] 1 test.\n\
                        [  FAILED  ] 1 test, listed below:\n[  FAILED  ] b\n";
        assert_eq!(text(&steps), expected);
    }

    #[test]
    fn the_longest_name_makes_the_column_of_benches() {
        let name = "x".repeat(44);
        let steps = [
            Step::Begin { kind: TestKind::Bench, names: vec!["a".into(), name.clone()] },
            Step::Bench { name: "a".into(), average_ns: 7, runs: 100 },
            Step::Bench { name: name.clone(), average_ns: 12, runs: 5 },
        ];
        let text = text(&steps);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], format!("{:<45}Time(ns)       Iterations", "Benchmark"));
        assert_eq!(lines[1], "-".repeat(lines[0].len()));
        assert_eq!(lines[2], format!("{:<45}7              100", "a"));
        assert_eq!(lines[3], format!("{name} 12             5"));
    }
}

//! Messages for errors and losses in the kernel: nothing is lost in silence.

use wire::manifest::{Attach, Place, ProbeList, Program};
use wire::map::{Map, Storage};
use wire::{CounterKind, Manifest};

use crate::Loss;

/// A failure or loss as a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// One line, lower case.
    pub message: String,
    /// Number of occurrences.
    pub count: u64,
    /// True if records were lost.
    pub lost: bool,
    /// The probes whose calls were still running, which occurs in every session that is stopped.
    pub running: Option<String>,
    /// True if results look whole and are not.
    pub wrong: bool,
    /// Kernel helper that failed, and its result; `None` if no helper failed.
    pub helper: Option<(&'static str, i32)>,
    /// Position in the script that it refers to.
    pub place: Place,
}

/// The messages of a run. The first failed read of memory includes the reason.
pub fn findings(manifest: &Manifest, losses: &[Loss]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = losses.iter().map(|loss| finding(manifest, loss)).collect();
    if let Some(first) = losses.iter().position(|loss| loss.kind == CounterKind::UserRead) {
        findings[first].message += WHY_NOT_READ;
    }
    findings
}

/// Explanation, printed once. Programs cannot wait for the disk, so a page that was never accessed, such as that
/// of a text at its first use, is unreadable.
const WHY_NOT_READ: &str = " (an invalid address, or a page that is not loaded yet: a return probe can read what its \
    function has touched)";

fn finding(manifest: &Manifest, loss: &Loss) -> Finding {
    Finding {
        message: words(manifest, loss),
        count: loss.count,
        lost: matches!(loss.kind, CounterKind::LostEvent(_)),
        running: match loss.kind {
            CounterKind::Entered(clause) => Some(clause_text(manifest, clause, loss.place).to_owned()),
            _ => None,
        },
        wrong: matches!(loss.kind, CounterKind::NoCallSlot),
        helper: failed_helper(&loss.kind),
        place: loss.place,
    }
}

const STILL_RUNNING: &str = "still running when tracing stopped, or never returned";

/// One line for calls of several probes that were still running.
pub fn still_running(findings: &[Finding]) -> String {
    const SHOWN: usize = 3;
    let (shown, others) = findings.split_at(findings.len().min(SHOWN));
    let mut probes: Vec<String> =
        shown.iter().filter_map(|finding| Some(format!("`{}`", finding.running.as_ref()?))).collect();
    match (findings, others) {
        ([finding], _) => return finding.message.clone(),
        (_, []) => {}
        (_, [_]) => probes.push("1 other probe".into()),
        _ => probes.push(format!("{} other probes", others.len())),
    }
    let last = probes.pop().unwrap_or_default();
    let calls: u64 = findings.iter().map(|finding| finding.count).sum();
    format!("{calls} calls of {} and {last} were {STILL_RUNNING}", probes.join(", "))
}

fn failed_helper(kind: &CounterKind) -> Option<(&'static str, i32)> {
    const ENOENT: i32 = -2;
    const E2BIG: i32 = -7;
    const EFAULT: i32 = -14;
    match kind {
        CounterKind::UserRead => Some(("probe_read_user", EFAULT)),
        CounterKind::MapFull(_) => Some(("map_update_elem", E2BIG)),
        CounterKind::MissingKey(_) => Some(("map_delete_elem", ENOENT)),
        _ => None,
    }
}

/// Whether per-CPU cells may fail to be allocated: in large maps the kernel allocates on demand, and it can
/// allocate few while it handles an event.
fn may_lack_memory(map: &Map) -> bool {
    let bytes = u64::from(map.max_entries) * u64::from(map.value_size());
    map.storage == Storage::PerCpuHash && bytes > LARGE_PER_CPU
}

/// Size on one CPU in bytes. Smaller maps are preallocated on any machine.
const LARGE_PER_CPU: u64 = 256 << 10;

/// The probe list of a clause, of the last module or an earlier one.
fn clause_text(manifest: &Manifest, clause: u32, place: Place) -> &str {
    let is_wanted =
        |p: &&Program| (p.clause, p.place) == (clause, place) && !matches!(p.attach, Attach::Follow { .. });
    let of_last = manifest.programs.iter().find(is_wanted).map(|program| program.text.as_str());
    let is_earlier = |list: &&ProbeList| (list.clause, list.place) == (clause, place);
    let of_earlier = || manifest.earlier.iter().find(is_earlier).map(|list| list.text.as_str());
    of_last.or_else(of_earlier).unwrap_or("this probe")
}

fn words(manifest: &Manifest, loss: &Loss) -> String {
    let count = loss.count;
    let many = |one: &str, more: &str| format!("{count} {}", if count == 1 { one } else { more });
    let calls = || many("call", "calls");
    let program = |clause: u32| clause_text(manifest, clause, loss.place);
    let map = |id: u32| manifest.maps.get(id as usize).map_or("@", |map| map.name.as_str());
    match &loss.kind {
        CounterKind::LostEvent(_) => {
            format!("lost {}: the ring buffer was full", many("event", "events"))
        }
        CounterKind::MapFull(id) => {
            let (name, updates) = (map(*id), many("update", "updates"));
            let known = manifest.maps.get(*id as usize);
            let keys = known.map_or(0, |map| map.max_entries);
            let or = match known.is_some_and(may_lack_memory) {
                true => ", or the kernel could not allocate new keys fast enough",
                false => "",
            };
            let plural = if keys == 1 { "" } else { "s" };
            format!(
                "`@{name}` was full ({keys} key{plural}){or}: {updates} lost; declare a larger map, `let @{name} = hash(N);`, or \
                 raise `max_map_keys`"
            )
        }
        CounterKind::MapLocked(id) => format!(
            "{} of `@{}` {} lost: a thread that was updating such a key did not go on (its process is stopped, or its signal handler has \
             left by a longjmp)",
            many("update", "updates"),
            map(*id),
            if count == 1 { "was" } else { "were" },
        ),
        CounterKind::UserRead => {
            format!("{} of the program's memory failed, and gave 0 or \"\"", many("read", "reads"))
        }
        CounterKind::DivisionByZero => format!("{} by zero, which gave 1", many("division", "divisions")),
        CounterKind::OutOfBounds => {
            format!("{} out of the bounds of the array, and gave 0", many("index was", "indexes were"))
        }
        CounterKind::LoopLimit => {
            format!("{} cut off at the limit of iterations", many("loop was", "loops were"))
        }
        CounterKind::LostStack => format!("{} could not be stored", many("stack", "stacks")),
        CounterKind::NoUnwindTable => format!(
            "{} in code whose unwind table was not loaded yet: the frame pointer was used",
            many("stack frame was", "stack frames were")
        ),
        CounterKind::NoScratch => {
            format!("{} found no free scratch memory, and the body did not run", calls())
        }
        CounterKind::NoCallSlot => {
            let way_out = match manifest.in_process {
                true => "fewer functions, or without `--in-process`",
                false => "fewer functions",
            };
            format!(
                "{} had no memory for values of the entry: the return was ignored, and results are incomplete; trace {way_out}",
                calls()
            )
        }
        CounterKind::NoRoomAround => {
            format!("{} did not fit into the call stack of the thread, and enclose no other calls", calls())
        }
        CounterKind::Entered(id) => {
            let program = program(*id);
            let (calls, were) = (calls(), if count == 1 { "was" } else { "were" });
            format!("{calls} of `{program}` {were} {STILL_RUNNING}")
        }
        CounterKind::Returned(id) => format!("{} of `{}` returned", calls(), program(*id)),
        CounterKind::NoEntry(id) => {
            format!(
                "{} of `{}` returned without an entry seen, and the body did not run",
                calls(),
                program(*id)
            )
        }
        CounterKind::MissingKey(id) => {
            format!("{} of `@{}` found no such key", many("delete", "deletes"), map(*id))
        }
        CounterKind::Unfinished => {
            format!("lost {}: the process ended in the middle of it", many("event", "events"))
        }
        CounterKind::Missed => format!(
            "up to {} missed: the kernel runs no program of a tracepoint while its CPU is in another program or in an operation on a map",
            many("event was", "events were")
        ),
        CounterKind::UnsentSignal => format!("{} not sent", many("signal was", "signals were")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::manifest;

    #[test]
    fn the_reason_of_failed_reads_is_printed_once() {
        let loss = |kind, count| Loss { kind, count, place: Place { line: 3, column: 1, source: 0 } };
        let losses = [
            loss(CounterKind::Entered(0), 1),
            loss(CounterKind::UserRead, 2),
            loss(CounterKind::UserRead, 1),
        ];
        let messages: Vec<String> = findings(&manifest(), &losses).into_iter().map(|f| f.message).collect();
        assert_eq!(
            messages,
            [
                "1 call of `this probe` was still running when tracing stopped, or never returned",
                &format!("2 reads of the program's memory failed, and gave 0 or \"\"{WHY_NOT_READ}"),
                "1 read of the program's memory failed, and gave 0 or \"\"",
            ]
        );
    }

    #[test]
    fn calls_of_several_probes_that_are_still_running_are_one_line() {
        let probes = ["cuda:sync", "cuda:launch", "cudart:call", "cudart:error", "cuda:free"];
        let list = |(clause, text): (u32, &&str)| ProbeList {
            clause,
            place: Place::default(),
            text: (*text).into(),
        };
        let manifest = Manifest { earlier: (10..).zip(&probes).map(list).collect(), ..manifest() };
        let line = |count: u32| {
            let losses: Vec<Loss> = (10..10 + count)
                .map(|clause| Loss { kind: CounterKind::Entered(clause), count: 2, place: Place::default() })
                .collect();
            still_running(&findings(&manifest, &losses))
        };
        let end = "were still running when tracing stopped, or never returned";
        assert_eq!(line(1), format!("2 calls of `cuda:sync` {end}"));
        assert_eq!(line(2), format!("4 calls of `cuda:sync` and `cuda:launch` {end}"));
        assert_eq!(line(3), format!("6 calls of `cuda:sync`, `cuda:launch` and `cudart:call` {end}"));
        assert_eq!(
            line(5),
            format!("10 calls of `cuda:sync`, `cuda:launch`, `cudart:call` and 2 other probes {end}")
        );
    }
}

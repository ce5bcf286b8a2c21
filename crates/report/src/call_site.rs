//! A stack as the place that asked for a call: the line of Python that a reader looks for, its callers, then what the line calls.
//!
//! ```text
//! Trainer.step (/home/me/train.py:42)
//! <module> (/home/me/train.py:90)
//!   -> Linear.forward (/usr/lib/python3/dist-packages/torch/nn/modules/linear.py:125)
//!   -> at::_ops::addmm::call+354
//!   -> cuMemAlloc_v2+0
//! ```
//!
//! A stack without Python has its native frames, innermost first.

use crate::Frame;

/// Functions that start a program or a thread, in files with other functions of interest.
const STARTING: [&str; 3] = ["_start", "_bootstrap", "_bootstrap_inner"];

/// The begins of the names of files whose outermost frames start a program or a thread. The functions have no symbols in stripped files.
const STARTING_FILES: [&str; 5] = ["libc.so", "libc-", "libpthread", "ld-", "libstdc++"];

/// The begins of the names of files of the interpreter.
const INTERPRETERS: [&str; 2] = ["python", "libpython"];

/// The begins of the names of functions by which PyTorch's dispatcher calls the next one, without their parameters.
const DISPATCHER: &str = "c10::impl::wrap_kernel_functor";
/// The begin and the end of the name of a function that passes an operator on.
const PASSES_ON: [&str; 2] = ["at::_ops::", "::redispatch"];
/// Functions of PyTorch by which a module calls its `forward`, without their class.
const MODULE_CALLS: [&str; 2] = ["_wrapped_call_impl", "_call_impl"];

/// The begin of the path of a file that is compiled into the interpreter: such frames import modules, or run one.
const FROZEN: &str = "<frozen ";

/// The frames of a stack, in the order of its text.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct CallSite {
    /// The line and its callers, innermost first.
    pub callers: Vec<Frame>,
    /// Frames that the line calls, outermost first.
    pub calls: Vec<Frame>,
}

/// Takes a stack apart, innermost frame first.
pub(crate) fn of(mut frames: Vec<Frame>) -> CallSite {
    let outermost = frames.iter().rposition(|frame| !starts_program(frame));
    frames.truncate(outermost.map_or(frames.len(), |at| at + 1));
    if frames.iter().any(Frame::is_python) {
        frames.retain(|frame| !is_of_interpreter(frame) && !is_of_dispatch(frame));
        frames = without_starts_of_threads(&frames);
    }
    for frame in frames.iter_mut().filter(|frame| !frame.is_python()) {
        frame.symbol = frame.symbol.take().map(|name| shortened(&name));
    }
    let own = frames.iter().position(|frame| frame.is_python() && !is_of_library(frame));
    let line = own.or_else(|| frames.iter().position(Frame::is_python)).unwrap_or(0);
    let callers = frames.split_off(line);
    frames.reverse();
    CallSite { callers, calls: frames }
}

/// Leaves out the frames that start a thread which works for another one, whose frames of Python follow. A function of their files may itself be
/// called by Python: the innermost frames stay.
fn without_starts_of_threads(frames: &[Frame]) -> Vec<Frame> {
    let may_start = |frame: &Frame| has_begin(frame, &STARTING_FILES);
    let runs: Vec<&[Frame]> = frames.chunk_by(|one, next| may_start(one) == may_start(next)).collect();
    let is_called_by_python = |run: usize| runs.get(run + 1).is_some_and(|outer| outer[0].is_python());
    let starts = |run: usize| run > 0 && may_start(&runs[run][0]) && is_called_by_python(run);
    (0..runs.len()).filter(|run| !starts(*run)).flat_map(|run| runs[run].iter().cloned()).collect()
}

/// Longest arguments of a template that are shown, in bytes.
const LONGEST_ARGUMENTS: usize = 24;

/// The name of a function of C++ without its parameters and without long arguments of templates: `at::native::(anonymous namespace)::fill<...>`.
fn shortened(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let whole = ["(anonymous namespace)", "operator()", "operator<", "operator>", "operator-"];
        let (shown, length) = match (whole.into_iter().find(|part| rest.starts_with(part)), c) {
            (Some("(anonymous namespace)" | "operator()"), _) | (None, '<') => {
                let length = rest.find(['(', '<']).map_or(rest.len(), |at| at + enclosed(&rest[at..]));
                (if length > LONGEST_ARGUMENTS && c == '<' { "<...>" } else { &rest[..length] }, length)
            }
            // Its angles enclose nothing.
            (Some(_), _) => (rest, rest.len()),
            (None, '(') => ("", enclosed(rest)),
            (None, _) => (&rest[..c.len_utf8()], c.len_utf8()),
        };
        text.push_str(shown);
        rest = &rest[length..];
    }
    text.strip_suffix(" const").unwrap_or(&text).to_owned()
}

/// Length in bytes of the text from the first bracket to the one that closes it; all of the text if there is none.
fn enclosed(text: &str) -> usize {
    let mut open = 0;
    let closes = |(_, c): &(usize, char)| {
        open += i32::from(['(', '<'].contains(c)) - i32::from([')', '>'].contains(c));
        open == 0
    };
    text.char_indices().find(closes).map_or(text.len(), |(at, c)| at + c.len_utf8())
}

/// Whether an outermost frame starts a program or a thread.
fn starts_program(frame: &Frame) -> bool {
    let name = frame.symbol.as_deref().unwrap_or_default();
    let is_named = STARTING.contains(&name.rsplit('.').next().unwrap_or(name));
    is_named || has_begin(frame, &STARTING_FILES) || is_of_interpreter(frame)
}

/// Whether a frame is of the interpreter's own code.
fn is_of_interpreter(frame: &Frame) -> bool {
    match frame.is_python() {
        true => frame.module.as_deref().is_some_and(|path| path.starts_with(FROZEN)),
        false => has_begin(frame, &INTERPRETERS),
    }
}

/// Whether a frame only leads to the next one in PyTorch.
fn is_of_dispatch(frame: &Frame) -> bool {
    let name = frame.symbol.as_deref().unwrap_or_default();
    let [operator, passes_on] = PASSES_ON;
    match frame.is_python() {
        true => MODULE_CALLS.contains(&name.rsplit('.').next().unwrap_or(name)),
        false => {
            let name = name.split('(').next().unwrap_or(name);
            name.contains(DISPATCHER) || name.starts_with(operator) && name.ends_with(passes_on)
        }
    }
}

fn has_begin(frame: &Frame, names: &[&str]) -> bool {
    frame.file().is_some_and(|file| names.iter().any(|name| file.starts_with(name))) && !frame.is_python()
}

/// Whether a frame of Python is of a library, as programs tell it for `pyline(own)`.
fn is_of_library(frame: &Frame) -> bool {
    let path = frame.module.as_deref().unwrap_or_default().as_bytes();
    path.windows(8).any(|part| wire::python::OF_LIBRARIES.iter().any(|known| part == *known))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARY: &str = "/usr/lib/python3.11/site-packages/torch/nn.py";

    fn native(symbol: &str, module: &str) -> Frame {
        Frame { address: 0x10, symbol: Some(symbol.into()), module: Some(module.into()), ..Frame::default() }
    }

    fn python(symbol: &str, file: &str) -> Frame {
        let source = Some((file.to_owned(), 7));
        Frame { address: wire::python::TAG | 8, source, ..native(symbol, file) }
    }

    /// The names of the callers, and of what the line calls.
    fn names(frames: Vec<Frame>) -> (Vec<String>, Vec<String>) {
        let CallSite { callers, calls } = of(frames);
        let names =
            |frames: Vec<Frame>| frames.into_iter().filter_map(|frame| frame.symbol).collect::<Vec<_>>();
        (names(callers), names(calls))
    }

    #[test]
    fn the_line_comes_first_and_what_it_calls_last() {
        let (callers, calls) = names(vec![
            native("cuMemAlloc_v2", "/lib/libcuda.so.1"),
            native("at::empty", "/lib/libtorch.so"),
            native("void c10::impl::wrap_kernel_functor_unboxed_<f>::call(long)", "/lib/libtorch.so"),
            native("at::_ops::empty::redispatch(long)", "/lib/libtorch.so"),
            native("cfunction_call", "/usr/bin/python3.11"),
            python("Linear.forward", LIBRARY),
            python("Module._call_impl", LIBRARY),
            python("Module._wrapped_call_impl", LIBRARY),
            python("step", "/home/me/train.py"),
            native("pybind11::call", "/lib/libtorch_python.so"),
            python("<module>", "/home/me/train.py"),
            python("_run_code", "<frozen runpy>"),
            native("Py_RunMain", "/lib/libpython3.11.so.1.0"),
            Frame { module: Some("/lib/libc.so.6".into()), ..Frame::default() },
            native("_start", "/usr/bin/python3.11"),
        ]);
        assert_eq!(callers, ["step", "pybind11::call", "<module>"]);
        assert_eq!(calls, ["Linear.forward", "at::empty", "cuMemAlloc_v2"]);
    }

    #[test]
    fn a_thread_begins_at_its_function() {
        let (callers, calls) = names(vec![
            python("work", "/home/me/train.py"),
            python("Thread.run", "/usr/lib/python3.11/threading.py"),
            python("Thread._bootstrap_inner", "/usr/lib/python3.11/threading.py"),
            python("Thread._bootstrap", "/usr/lib/python3.11/threading.py"),
            native("thread_run", "/usr/bin/python3.11"),
            native("clone3", "/lib/libc.so.6"),
        ]);
        assert_eq!(callers, ["work", "Thread.run"]);
        assert_eq!(calls, [""; 0]);
    }

    #[test]
    fn a_thread_that_works_for_another_one_has_no_start() {
        let (callers, calls) = names(vec![
            native("cuMemAlloc_v2", "/lib/libcuda.so.1"),
            native("torch::autograd::Engine::thread_init", "/lib/libtorch_cpu.so"),
            native("execute_native_thread_routine", "/lib/libstdc++.so.6"),
            native("start_thread", "/lib/libc.so.6"),
            native("clone3", "/lib/libc.so.6"),
            python("backward", LIBRARY),
            python("step", "/home/me/train.py"),
        ]);
        assert_eq!(callers, ["step"]);
        assert_eq!(calls, ["backward", "torch::autograd::Engine::thread_init", "cuMemAlloc_v2"]);
        let called = names(vec![native("mktime", "/lib/libc.so.6"), python("step", "/home/me/train.py")]);
        assert_eq!(called, (vec!["step".into()], vec!["mktime".into()]));
    }

    #[test]
    fn without_an_own_line_it_is_the_innermost_one() {
        let (callers, calls) =
            names(vec![native("cuInit", "libcuda.so.1"), python("init", LIBRARY), python("main", LIBRARY)]);
        assert_eq!(callers, ["init", "main"]);
        assert_eq!(calls, ["cuInit"]);
    }

    #[test]
    fn names_of_functions_of_cpp_are_shortened() {
        for (name, expected) in [
            ("cuMemAlloc_v2", "cuMemAlloc_v2"),
            ("at::_ops::item::call(at::Tensor const&)", "at::_ops::item::call"),
            ("void fill<float, 4>(float*, long) const", "void fill<float, 4>"),
            (
                "wrap_<Into<Pointer<c10::Scalar (at::Tensor const&), &at::item>>, long>::call(long)",
                "wrap_<...>::call",
            ),
            ("at::(anonymous namespace)::create(long)", "at::(anonymous namespace)::create"),
            ("f(long)::{lambda(int)#1}::operator()(int) const", "f::{lambda#1}::operator()"),
            (
                "std::operator<< <std::char_traits<char>>(long)",
                "std::operator<< <std::char_traits<char>>(long)",
            ),
            ("cut<int, (a", "cut<int, (a"),
        ] {
            assert_eq!(shortened(name), expected);
        }
    }

    #[test]
    fn native_stacks_keep_their_order() {
        let frames = || {
            vec![
                native("cuInit", "/lib/libcuda.so.1"),
                native("qsort", "/lib/libc.so.6"),
                native("main", "/home/me/app"),
            ]
        };
        let all =
            [frames(), vec![native("__libc_start_main", "/lib/libc.so.6"), native("_start", "/home/me/app")]];
        assert_eq!(names(all.concat()), (vec!["cuInit".into(), "qsort".into(), "main".into()], Vec::new()));
        // Frames that start a program stay if there are no others.
        let only = vec![native("sem_wait", "/lib/libc.so.6"), native("clone3", "/lib/libc.so.6")];
        assert_eq!(names(only).0, ["sem_wait", "clone3"]);
        assert_eq!(of(Vec::new()), CallSite::default());
    }
}

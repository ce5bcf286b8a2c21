//! Settings of a script.

use wire::types::{MissingProbes, StackMode};

/// Settings that affect the generated code or the output.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `max_map_keys`, default 4096.
    pub max_map_keys: u32,
    /// `max_strlen`: capacity of `str()`, the NUL included, default 1024.
    pub max_strlen: u32,
    /// `str_trunc_trailer`, default `..`.
    pub str_trunc_trailer: String,
    /// `max_cat_bytes`: maximum number of bytes that `cat` prints of a file, default 10240.
    pub max_cat_bytes: u32,
    /// `print_maps_on_exit`, default true.
    pub print_maps_on_exit: bool,
    /// `stack_mode`
    pub stack_mode: StackMode,
    /// Maximum number of iterations of one `while`.
    pub max_loop_iterations: u32,
    /// `missing_probes`: `error` (default), `warn`, `ignore`.
    pub missing_probes: MissingProbes,
    /// `kernel_events`: programs of events other than calls also run in processes that are not traced, default false.
    pub events_of_all: bool,
    /// `in_process`: the script runs in the traced processes where it can, default false.
    pub in_process: bool,
    /// `max_probes`: maximum number of attach points; unlimited by default.
    pub max_probes: Option<u32>,
    /// `cpp_demangle`: symbols of C++ and Rust are printed demangled, default true.
    pub demangle: bool,
    /// `show_debug_info`: stacks include source lines and inlined functions, default false.
    pub source_lines: bool,
    /// `license`: the license that programs declare to the kernel, default `GPL`.
    pub license: &'static str,
    /// Ring buffer size in bytes, a power of two and a multiple of the page size; 0: chosen by the runtime.
    pub ring_bytes: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            max_map_keys: 4096,
            max_strlen: 1024,
            str_trunc_trailer: "..".into(),
            max_cat_bytes: 10 << 10,
            print_maps_on_exit: true,
            stack_mode: StackMode::default(),
            max_loop_iterations: 1 << 20,
            missing_probes: MissingProbes::default(),
            events_of_all: false,
            in_process: false,
            max_probes: None,
            demangle: true,
            source_lines: false,
            license: "GPL",
            ring_bytes: 0,
        }
    }
}

//! The kernel helpers that generated code calls: number, name, number of arguments, first kernel.
//!
//! Source: `include/uapi/linux/bpf.h` (numbers, arguments) and the kernel's history (versions). Not here: which helper a
//! program type may call; the verifier knows, and `Features` says what was found by trying.

/// A helper function of the kernel.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Helper {
    /// Number in the call instruction.
    pub id: u32,
    /// Without the `bpf_` in front.
    pub name: &'static str,
    /// Arguments, at most 5. Unused ones need not be set.
    pub args: u8,
    /// First kernel that has it: major, minor.
    pub since: (u8, u8),
}

macro_rules! table {
    ($($constant:ident $id:literal $name:literal $args:literal $major:literal $minor:literal;)*) => {
        $(
            #[doc = concat!("Number of `bpf_", $name, "`.")]
            pub const $constant: u32 = $id;
        )*
        /// All helpers known here, by number.
        pub const HELPERS: &[Helper] = &[
            $(Helper { id: $id, name: $name, args: $args, since: ($major, $minor) },)*
        ];
    };
}

table! {
    MAP_LOOKUP_ELEM          1   "map_lookup_elem"          2 3 19;
    MAP_UPDATE_ELEM          2   "map_update_elem"          4 3 19;
    MAP_DELETE_ELEM          3   "map_delete_elem"          2 3 19;
    KTIME_GET_NS             5   "ktime_get_ns"             0 4 1;
    TRACE_PRINTK             6   "trace_printk"             5 4 1;
    GET_PRANDOM_U32          7   "get_prandom_u32"          0 4 1;
    GET_SMP_PROCESSOR_ID     8   "get_smp_processor_id"     0 4 1;
    GET_CURRENT_PID_TGID     14  "get_current_pid_tgid"     0 4 2;
    GET_CURRENT_UID_GID      15  "get_current_uid_gid"      0 4 2;
    GET_CURRENT_COMM         16  "get_current_comm"         2 4 2;
    PERF_EVENT_OUTPUT        25  "perf_event_output"        5 4 4;
    GET_STACKID              27  "get_stackid"              3 4 6;
    GET_CURRENT_TASK         35  "get_current_task"         0 4 8;
    CURRENT_TASK_UNDER_CGROUP 37 "current_task_under_cgroup" 2 4 9;
    GET_NUMA_NODE_ID         42  "get_numa_node_id"         0 4 10;
    GET_STACK                67  "get_stack"                4 4 18;
    GET_CURRENT_CGROUP_ID    80  "get_current_cgroup_id"    0 4 18;
    SPIN_LOCK                93  "spin_lock"                1 5 1;
    SPIN_UNLOCK              94  "spin_unlock"              1 5 1;
    SEND_SIGNAL              109 "send_signal"              1 5 3;
    PROBE_READ_USER          112 "probe_read_user"          3 5 5;
    PROBE_READ_KERNEL        113 "probe_read_kernel"        3 5 5;
    PROBE_READ_USER_STR      114 "probe_read_user_str"      3 5 5;
    PROBE_READ_KERNEL_STR    115 "probe_read_kernel_str"    3 5 5;
    SEND_SIGNAL_THREAD       117 "send_signal_thread"       1 5 6;
    JIFFIES64                118 "jiffies64"                0 5 6;
    GET_NS_CURRENT_PID_TGID  120 "get_ns_current_pid_tgid"  4 5 7;
    KTIME_GET_BOOT_NS        125 "ktime_get_boot_ns"        0 5 8;
    RINGBUF_OUTPUT           130 "ringbuf_output"           4 5 8;
    RINGBUF_RESERVE          131 "ringbuf_reserve"          3 5 8;
    RINGBUF_SUBMIT           132 "ringbuf_submit"           2 5 8;
    RINGBUF_DISCARD          133 "ringbuf_discard"          2 5 8;
    RINGBUF_QUERY            134 "ringbuf_query"            2 5 8;
    COPY_FROM_USER           148 "copy_from_user"           3 5 10;
    GET_CURRENT_TASK_BTF     158 "get_current_task_btf"     0 5 11;
    KTIME_GET_COARSE_NS      160 "ktime_get_coarse_ns"      0 5 11;
    FOR_EACH_MAP_ELEM        164 "for_each_map_elem"        4 5 13;
    SNPRINTF                 165 "snprintf"                 5 5 13;
    GET_FUNC_IP              173 "get_func_ip"              1 5 15;
    GET_ATTACH_COOKIE        174 "get_attach_cookie"        1 5 15;
    TASK_PT_REGS             175 "task_pt_regs"             1 5 15;
    LOOP                     181 "loop"                     4 5 17;
    STRNCMP                  182 "strncmp"                  3 5 17;
    COPY_FROM_USER_TASK      191 "copy_from_user_task"      5 5 18;
    MAP_LOOKUP_PERCPU_ELEM   195 "map_lookup_percpu_elem"   3 5 19;
    KTIME_GET_TAI_NS         208 "ktime_get_tai_ns"         0 6 1;
}

/// The helper with this number, if generated code may call it.
pub fn by_id(id: u32) -> Option<&'static Helper> {
    HELPERS.binary_search_by_key(&id, |helper| helper.id).ok().map(|at| &HELPERS[at])
}

/// The helper with this name (without `bpf_`).
pub fn by_name(name: &str) -> Option<&'static Helper> {
    HELPERS.iter().find(|helper| helper.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_by_number_and_finds_each() {
        assert!(HELPERS.windows(2).all(|pair| pair[0].id < pair[1].id));
        for helper in HELPERS {
            assert_eq!(by_id(helper.id), Some(helper));
            assert_eq!(by_name(helper.name), Some(helper));
            assert!(helper.args <= 5);
        }
        assert_eq!(by_id(0), None);
    }
}

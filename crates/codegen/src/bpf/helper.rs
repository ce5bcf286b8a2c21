//! The kernel helpers that generated code calls: number, name, number of arguments, first kernel.
//!
//! Source: `include/uapi/linux/bpf.h` (numbers, arguments) and the kernel's history (versions). Not here: which helper a
//! program type may call; the verifier checks that, and `Features` records what the kernel accepted.

macro_rules! helpers {
    ($($variant:ident $number:literal $name:literal $args:literal $major:literal $minor:literal;)*) => {
        /// A helper function of the kernel; its value is the number in the call instruction.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Helper {
            $(
                #[doc = concat!("`bpf_", $name, "`, since Linux ", $major, ".", $minor)]
                $variant = $number,
            )*
        }

        impl Helper {
            /// All helpers, by number.
            pub const ALL: &[Helper] = &[$(Helper::$variant,)*];

            /// Name without the prefix `bpf_`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Helper::$variant => $name,)*
                }
            }

            /// Number of arguments, at most 5.
            pub fn args(self) -> u8 {
                match self {
                    $(Helper::$variant => $args,)*
                }
            }
        }
    };
}

helpers! {
    MapLookupElem 1 "map_lookup_elem" 2 3 19;
    MapUpdateElem 2 "map_update_elem" 4 3 19;
    MapDeleteElem 3 "map_delete_elem" 2 3 19;
    KtimeGetNs 5 "ktime_get_ns" 0 4 1;
    TracePrintk 6 "trace_printk" 5 4 1;
    GetPrandomU32 7 "get_prandom_u32" 0 4 1;
    GetSmpProcessorId 8 "get_smp_processor_id" 0 4 1;
    GetCurrentPidTgid 14 "get_current_pid_tgid" 0 4 2;
    GetCurrentUidGid 15 "get_current_uid_gid" 0 4 2;
    GetCurrentComm 16 "get_current_comm" 2 4 2;
    PerfEventOutput 25 "perf_event_output" 5 4 4;
    GetStackid 27 "get_stackid" 3 4 6;
    GetCurrentTask 35 "get_current_task" 0 4 8;
    CurrentTaskUnderCgroup 37 "current_task_under_cgroup" 2 4 9;
    GetNumaNodeId 42 "get_numa_node_id" 0 4 10;
    GetStack 67 "get_stack" 4 4 18;
    GetCurrentCgroupId 80 "get_current_cgroup_id" 0 4 18;
    SpinLock 93 "spin_lock" 1 5 1;
    SpinUnlock 94 "spin_unlock" 1 5 1;
    SendSignal 109 "send_signal" 1 5 3;
    ProbeReadUser 112 "probe_read_user" 3 5 5;
    ProbeReadKernel 113 "probe_read_kernel" 3 5 5;
    ProbeReadUserStr 114 "probe_read_user_str" 3 5 5;
    ProbeReadKernelStr 115 "probe_read_kernel_str" 3 5 5;
    SendSignalThread 117 "send_signal_thread" 1 5 6;
    Jiffies64 118 "jiffies64" 0 5 6;
    GetNsCurrentPidTgid 120 "get_ns_current_pid_tgid" 4 5 7;
    KtimeGetBootNs 125 "ktime_get_boot_ns" 0 5 8;
    RingbufOutput 130 "ringbuf_output" 4 5 8;
    RingbufReserve 131 "ringbuf_reserve" 3 5 8;
    RingbufSubmit 132 "ringbuf_submit" 2 5 8;
    RingbufDiscard 133 "ringbuf_discard" 2 5 8;
    RingbufQuery 134 "ringbuf_query" 2 5 8;
    CopyFromUser 148 "copy_from_user" 3 5 10;
    GetCurrentTaskBtf 158 "get_current_task_btf" 0 5 11;
    KtimeGetCoarseNs 160 "ktime_get_coarse_ns" 0 5 11;
    ForEachMapElem 164 "for_each_map_elem" 4 5 13;
    Snprintf 165 "snprintf" 5 5 13;
    GetFuncIp 173 "get_func_ip" 1 5 15;
    GetAttachCookie 174 "get_attach_cookie" 1 5 15;
    TaskPtRegs 175 "task_pt_regs" 1 5 15;
    Loop 181 "loop" 4 5 17;
    Strncmp 182 "strncmp" 3 5 17;
    GetFuncArg 183 "get_func_arg" 3 5 17;
    GetFuncRet 184 "get_func_ret" 2 5 17;
    CopyFromUserTask 191 "copy_from_user_task" 5 5 18;
    MapLookupPercpuElem 195 "map_lookup_percpu_elem" 3 5 19;
    KtimeGetTaiNs 208 "ktime_get_tai_ns" 0 6 1;
}

impl Helper {
    /// Number in the call instruction.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The helper with this number, if generated code may call it.
    pub fn by_number(number: u32) -> Option<Helper> {
        Helper::ALL.binary_search_by_key(&number, |helper| helper.number()).ok().map(|at| Helper::ALL[at])
    }

    /// The helper with this name (without the prefix `bpf_`).
    pub fn by_name(name: &str) -> Option<Helper> {
        Helper::ALL.iter().copied().find(|helper| helper.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_by_number_and_finds_each() {
        assert!(Helper::ALL.is_sorted_by_key(|helper| helper.number()));
        for &helper in Helper::ALL {
            assert_eq!(Helper::by_number(helper.number()), Some(helper));
            assert_eq!(Helper::by_name(helper.name()), Some(helper));
            assert!(helper.args() <= 5);
        }
        assert_eq!(Helper::by_number(0), None);
    }
}

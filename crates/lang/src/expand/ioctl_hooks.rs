//! Hooks for ioctls: places of the kernel that each ioctl of a device passes, as text of the clauses that are attached there.
//!
//! To add a hook, add a row to [`HOOKS`]. Not here: the choice of the hook (`resolve::ioctl_probes`).

use cuda::ioctls::Device;

/// A way to observe the ioctls of a device. The clauses of an ioctl have the same results with each hook.
#[derive(Debug)]
pub struct IoctlHook {
    /// In attach points of expanded clauses.
    pub name: &'static str,
    /// Requirement on the kernel.
    pub needs: Needs,
    /// Attach point at the entry of an ioctl.
    pub(super) enter: fn(&Device) -> &'static str,
    /// Attach point at its return.
    pub(super) exit: fn(&Device) -> &'static str,
    /// The command at the entry.
    pub(super) cmd: &'static str,
    /// The argument at the entry.
    pub(super) arg: &'static str,
    /// The result at the return.
    pub(super) retval: &'static str,
    /// A condition at the entry that holds for calls on the device.
    pub(super) condition: fn(&Device) -> &'static str,
    /// Statements at the entry, around those for a call on the device. They set `$device`, the number of the device file.
    /// `DRIVER` stands for the name of the device.
    pub(super) around: (&'static str, &'static str),
    /// Clauses that the hook needs once for each device.
    pub(super) support: fn(&Device) -> &'static str,
}

/// Requirement of a hook on the kernel.
#[derive(Clone, Copy, Debug)]
pub enum Needs {
    /// BTF, and that the driver's function for ioctls of the device can be probed.
    DriverFunction,
    /// BTF: the layouts of its structs.
    KernelTypes,
    /// Tracepoints of system calls, which the hooks without other needs use.
    Nothing,
}

/// All hooks, the best one first. The last one needs nothing.
pub static HOOKS: &[IoctlHook] = &[FUNCTION, DESCRIPTOR, NUMBER];

/// The driver's function for ioctls, which no other file has: programs cost nothing in other system calls.
pub const FUNCTION: IoctlHook = IoctlHook {
    name: "function",
    needs: Needs::DriverFunction,
    enter: |device| match device.magic {
        0 => "driver:uvm_ioctl:start",
        _ => "driver:ioctl:start",
    },
    exit: |device| match device.magic {
        0 => "driver:uvm_ioctl",
        _ => "driver:ioctl",
    },
    cmd: "(uint32)arg1",
    arg: "(uint64)arg2",
    retval: "retval",
    condition: |_| "true",
    around: ("$file = (struct file *)arg0; $device = (uint32)$file->f_inode->i_rdev;", ""),
    support: |_| "",
};

/// The system call, for descriptors of the device: the kernel's structs tell which file a descriptor is.
pub const DESCRIPTOR: IoctlHook = IoctlHook {
    name: "descriptor",
    needs: Needs::KernelTypes,
    enter: |_| "tracepoint:syscalls:sys_enter_ioctl",
    exit: |_| "tracepoint:syscalls:sys_exit_ioctl",
    cmd: "(uint32)args.cmd",
    arg: "(uint64)args.arg",
    retval: "args.ret",
    condition: |_| "true",
    around: (
        "$table = curtask->files->fdt;
         if ((uint32)args.fd < (uint32)$table->max_fds) {
             $file = $table->fd[(uint32)args.fd];
             if ((uint64)$file != 0) {
                 $device = (uint32)$file->f_inode->i_rdev;
                 if ($device >> 20 == __device_major(\"DRIVER\")) {",
        "}}}",
    ),
    support: |_| "",
};

/// The system call, without the kernel's structs: `nvidia` by the form of its commands, which others do not use; `nvidia-uvm` by
/// the path at the opening of the file, as its commands are small numbers.
pub const NUMBER: IoctlHook = IoctlHook {
    name: "number",
    needs: Needs::Nothing,
    condition: |device| match device.magic {
        0 => "has_key(@__nvidia_uvm, (pid, (uint32)args.fd))",
        _ => "(uint32)args.cmd >> 30 == 3",
    },
    around: ("$device = (uint32)0;", ""),
    support: |device| {
        match device.magic {
        0 => {
            "tracepoint:syscalls:sys_enter_openat { @__nvidia_open[tid] = (uint64)args.filename; }
             tracepoint:syscalls:sys_exit_openat / has_key(@__nvidia_open, tid) / {
                 if (args.ret >= 0 && strncmp(str((char *)@__nvidia_open[tid], 32), \"/dev/nvidia-uvm\", 15) == 0) {
                     @__nvidia_uvm[pid, (uint32)args.ret] = 1;
                 }
                 delete(@__nvidia_open, tid);
             }
             tracepoint:syscalls:sys_enter_close / has_key(@__nvidia_uvm, (pid, (uint32)args.fd)) / {
                 delete(@__nvidia_uvm, (pid, (uint32)args.fd));
             }"
        }
        _ => "",
    }
    },
    ..DESCRIPTOR
};

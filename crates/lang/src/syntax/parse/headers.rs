//! Headers that scripts include, and that are not read.

/// Headers of C, by the directory or the whole name, whose constants and types are in `builtins`, or are not used by scripts.
const C_HEADERS: &[&str] = &[
    "errno.h",
    "signal.h",
    "stdint.h",
    "inttypes.h",
    "stddef.h",
    "stdbool.h",
    "stdlib.h",
    "stdio.h",
    "string.h",
    "fcntl.h",
    "unistd.h",
    "sched.h",
    "syscall.h",
    "time.h",
    "limits.h",
    "socket.h",
    "sys/",
    "netinet/",
    "arpa/",
];

/// Directories of the kernel's headers: its types are in its BTF.
const KERNEL_HEADERS: &[&str] = &[
    "linux/",
    "uapi/",
    "asm/",
    "asm-generic/",
    "net/",
    "trace/",
    "scsi/",
    "drm/",
    "rdma/",
    "sound/",
    "kvm/",
    "vdso/",
    "xen/",
    "../",
    "vmlinux.h",
    "bpf/",
];

/// Whether the definitions of a header are known without reading it.
pub(crate) fn is_known(path: &str) -> bool {
    let known = C_HEADERS.iter().chain(KERNEL_HEADERS);
    is_cuda_header(path)
        || known.into_iter().any(|known| path == *known || known.ends_with('/') && path.starts_with(known))
}

/// Headers whose types the CUDA tables have.
fn is_cuda_header(path: &str) -> bool {
    const STEMS: &[&str] = &[
        "cuda", "cudnn", "cublas", "cufft", "curand", "cusparse", "cusolver", "nccl", "nvrtc", "nvml",
        "nvtx", "cupti",
    ];
    const OTHERS: &[&str] =
        &["driver_types.h", "vector_types.h", "builtin_types.h", "device_types.h", "library_types.h"];
    let file = path.rsplit('/').next().unwrap_or(path);
    let lower = file.to_ascii_lowercase();
    OTHERS.contains(&file) || STEMS.iter().any(|stem| lower.starts_with(stem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_kernel_and_of_c_are_known() {
        for known in ["linux/sched.h", "net/sock.h", "cuda.h", "sys/socket.h", "errno.h"] {
            assert!(is_known(known), "{known}");
        }
        assert!(!is_known("zlib.h"));
    }
}

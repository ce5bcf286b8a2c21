//! Constants that C and kernel headers define with `#define`: sockets, files, memory, processes.
//!
//! ```text
//! args.family == AF_INET          args.flags & O_CREAT
//! ```
//!
//! BTF has types and enums but no `#define`, and headers are not read. Not here: errors, signals and system calls (`posix`).

/// Names and numbers that are the same on x86-64 and aarch64.
static NUMBERS: &[(&str, i64)] = &[
    ("AF_UNSPEC", 0),
    ("AF_UNIX", 1),
    ("AF_LOCAL", 1),
    ("AF_INET", 2),
    ("AF_INET6", 10),
    ("AF_NETLINK", 16),
    ("AF_PACKET", 17),
    ("AF_VSOCK", 40),
    ("AF_XDP", 44),
    ("PF_UNIX", 1),
    ("PF_INET", 2),
    ("PF_INET6", 10),
    ("PF_NETLINK", 16),
    ("PF_PACKET", 17),
    ("SOCK_STREAM", 1),
    ("SOCK_DGRAM", 2),
    ("SOCK_RAW", 3),
    ("SOCK_SEQPACKET", 5),
    ("SOCK_NONBLOCK", 2048),
    ("SOCK_CLOEXEC", 524288),
    ("IPPROTO_IP", 0),
    ("IPPROTO_ICMP", 1),
    ("IPPROTO_TCP", 6),
    ("IPPROTO_UDP", 17),
    ("IPPROTO_IPV6", 41),
    ("IPPROTO_ICMPV6", 58),
    ("IPPROTO_RAW", 255),
    ("SOL_SOCKET", 1),
    ("SO_REUSEADDR", 2),
    ("SO_KEEPALIVE", 9),
    ("SO_REUSEPORT", 15),
    ("MSG_PEEK", 2),
    ("MSG_DONTWAIT", 64),
    ("MSG_NOSIGNAL", 16384),
    ("SHUT_RD", 0),
    ("SHUT_WR", 1),
    ("SHUT_RDWR", 2),
    ("TCP_NODELAY", 1),
    ("ETH_P_IP", 2048),
    ("ETH_P_ARP", 2054),
    ("ETH_P_IPV6", 34525),
    ("O_RDONLY", 0),
    ("O_WRONLY", 1),
    ("O_RDWR", 2),
    ("O_ACCMODE", 3),
    ("O_CREAT", 64),
    ("O_EXCL", 128),
    ("O_NOCTTY", 256),
    ("O_TRUNC", 512),
    ("O_APPEND", 1024),
    ("O_NONBLOCK", 2048),
    ("O_DSYNC", 4096),
    ("O_SYNC", 1052672),
    ("O_CLOEXEC", 524288),
    ("O_PATH", 2097152),
    ("O_NOATIME", 262144),
    ("AT_FDCWD", -100),
    ("AT_SYMLINK_NOFOLLOW", 256),
    ("AT_REMOVEDIR", 512),
    ("AT_EMPTY_PATH", 4096),
    ("F_DUPFD", 0),
    ("F_GETFD", 1),
    ("F_SETFD", 2),
    ("F_GETFL", 3),
    ("F_SETFL", 4),
    ("SEEK_SET", 0),
    ("SEEK_CUR", 1),
    ("SEEK_END", 2),
    ("R_OK", 4),
    ("W_OK", 2),
    ("X_OK", 1),
    ("F_OK", 0),
    ("S_IFMT", 61440),
    ("S_IFSOCK", 49152),
    ("S_IFLNK", 40960),
    ("S_IFREG", 32768),
    ("S_IFBLK", 24576),
    ("S_IFDIR", 16384),
    ("S_IFCHR", 8192),
    ("S_IFIFO", 4096),
    ("S_ISUID", 2048),
    ("S_ISGID", 1024),
    ("S_ISVTX", 512),
    ("PROT_NONE", 0),
    ("PROT_READ", 1),
    ("PROT_WRITE", 2),
    ("PROT_EXEC", 4),
    ("MAP_SHARED", 1),
    ("MAP_PRIVATE", 2),
    ("MAP_FIXED", 16),
    ("MAP_ANONYMOUS", 32),
    ("MAP_HUGETLB", 262144),
    ("MAP_POPULATE", 32768),
    ("MAP_LOCKED", 8192),
    ("MAP_NORESERVE", 16384),
    ("MAP_STACK", 131072),
    ("MADV_NORMAL", 0),
    ("MADV_RANDOM", 1),
    ("MADV_SEQUENTIAL", 2),
    ("MADV_WILLNEED", 3),
    ("MADV_DONTNEED", 4),
    ("MADV_FREE", 8),
    ("MADV_HUGEPAGE", 14),
    ("MADV_NOHUGEPAGE", 15),
    ("CLONE_VM", 256),
    ("CLONE_FS", 512),
    ("CLONE_FILES", 1024),
    ("CLONE_SIGHAND", 2048),
    ("CLONE_VFORK", 16384),
    ("CLONE_PARENT", 32768),
    ("CLONE_THREAD", 65536),
    ("CLONE_NEWNS", 131072),
    ("CLONE_NEWCGROUP", 33554432),
    ("CLONE_NEWUTS", 67108864),
    ("CLONE_NEWIPC", 134217728),
    ("CLONE_NEWUSER", 268435456),
    ("CLONE_NEWPID", 536870912),
    ("CLONE_NEWNET", 1073741824),
    ("SCHED_OTHER", 0),
    ("SCHED_FIFO", 1),
    ("SCHED_RR", 2),
    ("SCHED_BATCH", 3),
    ("SCHED_IDLE", 5),
    ("SCHED_DEADLINE", 6),
    ("CLOCK_REALTIME", 0),
    ("CLOCK_MONOTONIC", 1),
    ("CLOCK_BOOTTIME", 7),
    ("FUTEX_WAIT", 0),
    ("FUTEX_WAKE", 1),
    ("FUTEX_WAIT_BITSET", 9),
    ("FUTEX_WAKE_BITSET", 10),
    ("FUTEX_PRIVATE_FLAG", 128),
    ("FUTEX_CMD_MASK", -385),
    ("EPOLL_CTL_ADD", 1),
    ("EPOLL_CTL_DEL", 2),
    ("EPOLL_CTL_MOD", 3),
    ("WNOHANG", 1),
    ("WUNTRACED", 2),
    ("PATH_MAX", 4096),
    ("NAME_MAX", 255),
    ("TASK_RUNNING", 0),
    ("TASK_INTERRUPTIBLE", 1),
    ("TASK_UNINTERRUPTIBLE", 2),
    ("TASK_COMM_LEN", 16),
];

/// Flags with different numbers on different architectures.
#[cfg(target_arch = "x86_64")]
static OF_ARCHITECTURE: &[(&str, i64)] =
    &[("O_DIRECT", 0x4000), ("O_DIRECTORY", 0x10000), ("O_NOFOLLOW", 0x20000), ("O_TMPFILE", 0x410000)];
/// Flags with different numbers on different architectures.
#[cfg(not(target_arch = "x86_64"))]
static OF_ARCHITECTURE: &[(&str, i64)] =
    &[("O_DIRECT", 0x10000), ("O_DIRECTORY", 0x4000), ("O_NOFOLLOW", 0x8000), ("O_TMPFILE", 0x404000)];

/// `AF_INET`
pub fn constant(name: &str) -> Option<i64> {
    all().find(|(known, _)| *known == name).map(|(_, number)| number)
}

/// The names of [`constant`].
pub fn names() -> impl Iterator<Item = &'static str> {
    all().map(|(name, _)| name)
}

fn all() -> impl Iterator<Item = (&'static str, i64)> {
    NUMBERS.iter().chain(OF_ARCHITECTURE).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_headers() {
        for (name, number) in [("AF_INET6", 10), ("O_CREAT", 0o100), ("S_IFMT", 0o170000), ("AT_FDCWD", -100)]
        {
            assert_eq!(constant(name), Some(number), "{name}");
        }
        assert_eq!(constant("AF_NOTHING"), None);
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::HashSet<&str> = names().collect();
        assert_eq!(names.len(), NUMBERS.len() + OF_ARCHITECTURE.len());
    }
}

//! `%gr`: flags of the kernel's allocator by name, `GFP_KERNEL|__GFP_ZERO`.
//!
//! Names and order follow the kernel's `include/trace/events/mmflags.h`: combinations first, the largest of those first.
//! The bits are those of x86-64 since Linux 6.7, without KASAN's.

/// Names of one or several bits. The first entry whose bits are all set consumes them.
static FLAGS: &[(u64, &str)] = &[
    (0x1c_24ca, "GFP_TRANSHUGE"),
    (0x1c_20ca, "GFP_TRANSHUGE_LIGHT"),
    (0x10_0cca, "GFP_HIGHUSER_MOVABLE"),
    (0x10_0cc2, "GFP_HIGHUSER"),
    (0x10_0cc0, "GFP_USER"),
    (0x40_0cc0, "GFP_KERNEL_ACCOUNT"),
    (0xcc0, "GFP_KERNEL"),
    (0xc40, "GFP_NOFS"),
    (0x820, "GFP_ATOMIC"),
    (0xc00, "GFP_NOIO"),
    (0x2800, "GFP_NOWAIT"),
    (1, "GFP_DMA"),
    (1 << 1, "__GFP_HIGHMEM"),
    (1 << 2, "GFP_DMA32"),
    (1 << 3, "__GFP_MOVABLE"),
    (1 << 4, "__GFP_RECLAIMABLE"),
    (1 << 5, "__GFP_HIGH"),
    (1 << 6, "__GFP_IO"),
    (1 << 7, "__GFP_FS"),
    (1 << 8, "__GFP_ZERO"),
    (1 << 10, "__GFP_DIRECT_RECLAIM"),
    (1 << 11, "__GFP_KSWAPD_RECLAIM"),
    (1 << 12, "__GFP_WRITE"),
    (1 << 13, "__GFP_NOWARN"),
    (1 << 14, "__GFP_RETRY_MAYFAIL"),
    (1 << 15, "__GFP_NOFAIL"),
    (1 << 16, "__GFP_NORETRY"),
    (1 << 17, "__GFP_MEMALLOC"),
    (1 << 18, "__GFP_COMP"),
    (1 << 19, "__GFP_NOMEMALLOC"),
    (1 << 20, "__GFP_HARDWALL"),
    (1 << 21, "__GFP_THISNODE"),
    (1 << 22, "__GFP_ACCOUNT"),
    (1 << 23, "__GFP_ZEROTAGS"),
    (1 << 24, "__GFP_SKIP_ZERO"),
    (1 << 25, "__GFP_SKIP_KASAN"),
    (1 << 26, "__GFP_NO_OBJ_EXT"),
];

/// `GFP_KERNEL|__GFP_ZERO`; bits without a name in hex, 0 if no bit is set.
pub(crate) fn flags(mut bits: u64) -> String {
    let mut names = Vec::new();
    for (mask, name) in FLAGS {
        if bits & mask == *mask {
            names.push((*name).to_owned());
            bits &= !mask;
        }
    }
    match (bits, names.is_empty()) {
        (0, true) => names.push("0".into()),
        (0, false) => {}
        (rest, _) => names.push(format!("{rest:#x}")),
    }
    names.join("|")
}

#[cfg(test)]
mod tests {
    use super::flags;

    #[test]
    fn combinations_come_before_their_parts() {
        for (bits, text) in [
            (0, "0"),
            (1, "GFP_DMA"),
            (0xcc0, "GFP_KERNEL"),
            (0xdc0, "GFP_KERNEL|__GFP_ZERO"),
            (0x820, "GFP_ATOMIC"),
            (0x800, "__GFP_KSWAPD_RECLAIM"),
            (0x5_2cc0, "GFP_KERNEL|__GFP_NOWARN|__GFP_NORETRY|__GFP_COMP"),
            (0x10_0cca, "GFP_HIGHUSER_MOVABLE"),
            (0x200, "0x200"),
            (1 << 40 | 0xcc0, "GFP_KERNEL|0x10000000000"),
        ] {
            assert_eq!(flags(bits), text, "{bits:#x}");
        }
    }
}

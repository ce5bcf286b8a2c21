//! Tables of the phrases that generated scripts consist of: weight, condition, and text.
//!
//! Text between backticks is substituted: `` `i` `` by a phrase of the table [`INT`], one level less deep; `` `i1` `` by one of
//! depth 1 at most; `` `0..8` `` by one of these numbers; `` `+ - *` `` by one of these words; `` `arg` `` and `` `of` `` by an
//! argument of the probe's functions.

/// A row: weight, requirements (see [`super::Maker::allows`]), text.
pub(super) type Phrase = (u32, &'static str, &'static str);

/// Phrases for one kind of placeholder; at depth 0 only `leaves`.
pub(super) struct Table {
    /// Letter of the placeholder: `` `i` ``.
    pub letter: char,
    /// Phrases without nested placeholders of depth.
    pub leaves: &'static [Phrase],
    /// Phrases at greater depth, in addition to the leaves.
    pub deep: &'static [Phrase],
}

/// All tables.
pub(super) static TABLES: &[Table] =
    &[INT, UNSIGNED, STRING, MADE, KEY, ADDRESS, CONDITION, COLOR, RECORD, TUPLE, WORDS, FLAT];

/// An int64.
const INT: Table = Table {
    letter: 'i',
    leaves: &[(4, "", "(int64)`number`"), (2, "", "(int64)`arg`"), (2, "v", "$a"), (2, "v", "$b")],
    deep: &[
        (2, "", "`i0`"),
        (2, "d", "(`i` `/ %` `i`)"),
        (6, "", "(`i` `+ - * & | ^` `i`)"),
        (2, "", "(`i` `<< >>` (int64)`0..64`)"),
        (1, "", "(`c` ? `i` : `i`)"),
        (1, "", "(-`i`)"),
        (1, "", "(~`i`)"),
        (2, "", "(int64)(`int8 uint8 int16 uint16 int32 uint32 uint64 bool`)`i`"),
        (1, "", "@i[`k`]"),
        (1, "vm", "`$a++ (--$b) (int64)$n++ (int64)(++$k) @i[3]++ (--@i[5])`"),
        (1, "vm", "note(@i, 2)"),
        (1, "vm", "(int64)delete(@`i z l r`, `k`)"),
        (2, "v", "(int64)`$n $k @d $s[2] $p.x $p.tag $r.a $r.c.y $v.2.0 $v.0`"),
        (1, "v", "(int64)`pid tid uid gid cpu ncpus numaid jiffies cpid has_cpid elapsed cgroup rand`"),
        (
            1,
            "v",
            "(int64)`pid(init) tid(init) pid(curr_ns) nsecs(boot) nsecs(monotonic) nsecs(tai) nsecs(sw_tai)`",
        ),
        (1, "vn", "(int64)usermode"),
        (1, "vc", "(int64)`call_depth outermost device chosen_device context`"),
        (1, "va", "(int64)reg(\"`ax sp pc r12`\")"),
        (1, "v", "(int64)((struct bits *)`p`)->`low mid high wide`"),
        (1, "v", "(int64)((struct point *)`p`)->`y tag`"),
        (1, "v", "(int64)container_of(`p`, struct point, y)->`y tag`"),
        (1, "v", "(int64)((struct shape *)`p`)->`corners[1].x name[2] next->corners[0].y`"),
        (1, "v", "(int64)((struct odd *)`p`)->`l s`"),
        (1, "v", "(int64)((union both *)`p`)->bytes[SIX]"),
        (1, "v", "(int64)*(`int8 uint16 int32 uint64` *)uptr(`p`)"),
        (1, "v", "(int64)strlen(`m`)"),
        (1, "v", "(int64)strlen($long)"),
        (1, "v", "(int64)strstr(`s1`, \"`a 100 xpy main`\")"),
        (1, "v", "(int64)strstr(`s1`, \"\")"),
        (1, "v", "(int64)strstr(`m`, `s0`)"),
        (1, "v", "(int64)strncmp(`s0`, `s0`, `1..10`)"),
        (1, "v", "(int64)strcontains(`s1`, \"`i ma zz`\")"),
        (1, "v", "(int64)strcap(`s0`)"),
        (1, "v", "(int64)*(`float double` *)`p`"),
        (1, "v", "(int64)memcmp(`p`, `p`, `1..40`)"),
        (1, "v", "(int64)len(@`i z r`)"),
        (1, "v", "(int64)is_scalar(@`i z r`)"),
        (1, "vn", "(int64)len(`ustack kstack ustack(2)`)"),
        (1, "v", "clamp(`i`, (int64)-9, (int64)99)"),
        (1, "v", "(int64)digits(`u` & 65535)"),
        (1, "v", "({ $q = `i`; $q * 2 })"),
        (1, "v", "(`i` / { $q = `i`; $q | 1 })"),
        (1, "v", "(if `c` { `i` } else { `i` })"),
        (1, "v", "({ let $q: int64 = 0; for $j : 0..`1..6` { $q += $j ^ `i`; if ($q > 99) { break } } $q })"),
        (1, "v", "(int64)popcount(`u`)"),
        (1, "v", "(int64)bswap((`uint16 uint32 uint64`)`u`)"),
        (1, "v", "(int64)((uint8[8])`u`)[`i0` & 7]"),
        (1, "v", "(int64)(int32)((uint8[4])(uint32)`u`)"),
        (1, "v", "(int64)((uint8[])comm)[`i0` & 15]"),
        (1, "v", "(int64)(uint64)(int8[8])comm"),
        (1, "v", "(int64)@`m[2] a[1] c[(uint64)3] x[comm] d`"),
        (1, "v", "(int64)(sizeof(struct shape) + offsetof(struct shape, label) + sizeof($v))"),
        (1, "v", "(typeof($a))`u`"),
        (1, "v", "(int64)getopt(\"depth\", 7, \"how deep\")"),
        (1, "v", "(int64)cgroupid(\"/sys/fs/cgroup\")"),
        (1, "v", "(int64)`is_integer is_unsigned_integer is_literal is_err`(`i`)"),
        (1, "v", "(int64)`is_ptr is_str is_array`(`s0`)"),
        (1, "v", "(int64)default_str_length()"),
        (1, "v", "(int64)leader_tid"),
    ],
};

/// A uint64.
const UNSIGNED: Table = Table {
    letter: 'u',
    leaves: &[(1, "", "(uint64)`number`"), (2, "", "(uint64)`arg`"), (1, "v", "$u")],
    deep: &[
        (1, "", "`u0`"),
        (2, "d", "(`u` `/ %` `u`)"),
        (4, "", "(`u` `+ * & | ^` `u`)"),
        (1, "", "(`u` `<< >>` (uint64)`0..64`)"),
        (1, "", "(uint64)`i`"),
        (1, "", "@u"),
        (1, "", "(`c` ? `u` : `u`)"),
    ],
};

/// Text of at most 16 bytes.
const STRING: Table = Table {
    letter: 's',
    leaves: &[
        (3, "", "comm"),
        (1, "", "`leader_comm comm(program)`"),
        (1, "", "\"\""),
        (3, "", "\"`x main100 saxpy`\""),
        (1, "", "\"fifteen letters\""),
        (3, "v", "$s"),
    ],
    deep: &[
        (3, "", "`s0`"),
        (1, "", "@t[`k`, `s0`]"),
        (1, "", "(`c1` ? `s0` : `s0`)"),
        (1, "v", "({ @said++; `s0` })"),
        (2, "v", "str(`p`, `1..16`)"),
        (1, "v", "str(`p`, `u0`)[0] > 96 ? \"a letter\" : \"none\""),
    ],
};

/// Text computed from other text.
const MADE: Table = Table {
    letter: 'm',
    leaves: &[(1, "", "toupper(`s0`)")],
    deep: &[
        (1, "", "`toupper tolower`(`s1`)"),
        (1, "", "str_concat(`s1`, `s0`)"),
        (1, "", "str_concat(`s1`, \"-\")"),
        (1, "", "tolower(str_concat(`s0`, `s0`))"),
    ],
};

/// Few different keys, so that keys repeat.
const KEY: Table = Table { letter: 'k', leaves: &[(1, "", "(`i0` & 7)")], deep: &[(1, "", "(`i1` & 7)")] };

/// An address that may be mapped.
const ADDRESS: Table = Table {
    letter: 'p',
    leaves: &[
        (1, "t", "nsecs"),
        (1, "a", "arg`0..4`"),
        (1, "od", "args.bytes"),
        (1, "or", "`duration started`"),
    ],
    deep: &[],
};

const CONDITION: Table = Table {
    letter: 'c',
    leaves: &[
        (3, "", "`i0` `== != < <= > >=` `i0`"),
        (1, "", "tid % `1..4` == 0"),
        (1, "", "`s0` `== !=` `s0`"),
    ],
    deep: &[
        (1, "", "`c0`"),
        (3, "", "`i` `== != < <= > >=` `i`"),
        (1, "", "`u` `== != < <= > >=` `u`"),
        (2, "", "(`c` `&& ||` `c`)"),
        (1, "", "!(`c`)"),
        (1, "", "has_key(@i, `k`)"),
        (1, "v", "find(@i, `k`, $f)"),
        (1, "v", "strcontains(`s1`, str(`p`, `1..3`))"),
        (1, "v", "`e` == `e`"),
        (1, "v", "is_error((CUresult)`i`)"),
        (1, "v", "is_error((cudaError_t)`i`)"),
        (1, "v", "`m` == `m`"),
        (1, "v", "strerror(`i`) `== !=` \"Success\""),
        (1, "v", "signal_name(`i`) `== !=` signal_name(`i`)"),
        (1, "v", "(`i`, `s0`) `== !=` (`i`, comm)"),
        (1, "v", "$r `== !=` (c = (y = `i0`, x = `u0`), b = `s0`, a = `i0`)"),
        (1, "v", "$v != (`i0`, `s0`, (`u0`, `i0`))"),
        (1, "vn", "ustack(3) `== !=` ustack(`perf raw`, 3)"),
        (1, "vn", "`u0` > 9 && kstack(2) == kstack(raw, 2)"),
        (1, "R", "retval == `CUDA_SUCCESS CUDA_ERROR_OUT_OF_MEMORY CUDA_ERROR_INVALID_VALUE`"),
        (1, "R", "is_error(retval)"),
        (1, "c", "func == \"cuMemAlloc_v2\""),
        (1, "c", "strcontains(func, \"Mem\")"),
        (1, "c", "strncmp(func, \"cuMem\", 5) != 0"),
        (1, "c", "api == \"cuInit\""),
        (1, "c", "outermost"),
        (1, "c", "parent_func == \"`cuInit cudaMalloc`\""),
    ],
};

/// An enum.
const COLOR: Table = Table {
    letter: 'e',
    leaves: &[(1, "v", "$e"), (2, "", "`RED GREEN BLUE`")],
    deep: &[(2, "", "`e0`"), (1, "v", "((struct shape *)`p`)->color"), (1, "", "(enum color)`i`")],
};

const RECORD: Table = Table {
    letter: 'r',
    leaves: &[(1, "", "(a = `i0`, b = `s0`, c = (x = `u0`, y = (int16)`i0`))")],
    deep: &[(1, "", "(a = `i2`, b = `s1`, c = (x = `u1`, y = (int16)`i1`))")],
};

const TUPLE: Table = Table {
    letter: 'v',
    leaves: &[(1, "", "(`i0`, `s0`, ((uint8)`i0`, `u0`))")],
    deep: &[(1, "", "(`i2`, `s1`, ((uint8)`i1`, `u1`))")],
};

/// Any value that prints as a word.
const WORDS: Table = Table {
    letter: 'w',
    leaves: &[
        (1, "", "probe"),
        (1, "", "probetype"),
        (1, "", "username()"),
        (1, "c", "func"),
        (1, "c", "parent_func"),
        (1, "c", "`device_name device_uuid device_pci`"),
        (4, "c", "`of`"),
        (1, "n", "ustack"),
    ],
    deep: &[
        (4, "", "`w0`"),
        (1, "", "strerror(`i`)"),
        (1, "", "*(`float double` *)`p`"),
        (1, "", "error_text((CUresult)`i`)"),
        (1, "R", "error_text(retval)"),
        (1, "", "`signal_name syscall_name username size_text time_text`(`i`)"),
        (1, "", "percent_text(`i`, `i`)"),
        (1, "", "comm((uint32)`u`)"),
        (1, "", "cgroup_path(cgroup)"),
        (1, "", "ntop((uint32)$u)"),
        (1, "", "ntop(pton(\"`1.2.3.4 fe80::1`\"))"),
        (1, "", "macaddr((uint8 *)`p`)"),
        (1, "", "usym(`p`)"),
        (1, "f", "uaddr(\"counter\")"),
        (1, "", "strftime(\"`%H:%M:%S %f %Y`\", `u`)"),
        (1, "n", "folded(`ustack kstack`)"),
        (1, "n", "ustack(`bpftrace perf raw folded build_id`, `1..4`)"),
        (1, "n", "kstack(`bpftrace perf raw`, 2)"),
        (1, "", "buf(`p`, `1..20`)"),
        (1, "", "buf(((struct shape *)`p`)->name)"),
        (1, "", "`m`"),
        (1, "", "str(`p`)"),
    ],
};

/// Statements without nested statements.
const FLAT: Table = Table {
    letter: ';',
    leaves: &[],
    deep: &[
        // Variables.
        (6, "", "`$a $b` = `i`;"),
        (3, "", "$u = `u`;"),
        (3, "", "$n = (uint8)`i2`;"),
        (3, "", "$e = `e`;"),
        (4, "", "$s = `s2`;"),
        (1, "", "$long = str(`p`);"),
        (3, "", "$a `+= -= *= /= %= &= |= ^=` `i2`;"),
        (3, "", "$u `+= -= *= /= %= &= |= ^=` `u2`;"),
        (2, "", "$n `+= -= *= /= %= &= |= ^=` (uint8)`u2`;"),
        (2, "", "`$a++ --$b $n-- ++$k $u++`;"),
        (1, "", "$a <<= `0..64`;"),
        (1, "", "$u >>= `0..64`;"),
        (2, "", "swap($a, $b);"),
        (2, "", "let $a: int64 = `i`;"),
        (1, "", "let $b: int64; let $k: int16;"),
        // Structs, records and tuples.
        (1, "", "$p = *(struct point *)`p`;"),
        (1, "", "$p = ((struct shape *)`p`)->corners[`i1` & 1];"),
        (1, "", "$r = `r`;"),
        (1, "", "$v = `v`;"),
        (1, "m", "@r[`k`] = $r;"),
        (1, "m", "@v[`k`] = $v;"),
        (1, "m", "@p[`k`] = $p;"),
        (1, "m", "$r = @r[`k`]; $v = @v[`k`];"),
        // Maps.
        (4, "m", "@i[`k`] = `i3`;"),
        (2, "m", "@u = `u3`;"),
        (2, "m", "@z[`k`] = `i2`;"),
        (2, "m", "@l[`k`] = `i2`;"),
        (2, "m", "@t[`k`, `s1`] = `s2`;"),
        (1, "m", "@i[`k`]++;"),
        (2, "m", "@i[`k`] `+= -= *= /= &= |= ^=` `i2`;"),
        (1, "m", "@u `+= -= *= /= &= |= ^=` `u2`;"),
        (1, "m", "@z[`k`] `+= -= *= /= &= |= ^=` `i1`;"),
        (1, "m", "$a = note(@i, `k`);"),
        (1, "m", "$a = @i[`k`]--;"),
        (3, "m", "delete(@`i z l r a`, `k`);"),
        (1, "m", "delete(@i[`k`]);"),
        (1, "m", "if (find(@l, `k`, $g)) { $a += $g; }"),
        // Aggregations.
        (2, "", "@c[`u2`] = count();"),
        (2, "", "@d = sum(`i3`);"),
        (2, "", "@m[`k`] = min(`i3`);"),
        (2, "", "@x[`s1`] = max(`u2`);"),
        (2, "", "@h = hist(`i2`, 1);"),
        (2, "", "@hk[`k`] = hist(`i2`);"),
        (2, "", "@a[`k`] = avg(`i2`);"),
        (2, "", "@s[`k`] = stats(`i2`);"),
        (2, "", "@lh = lhist(`i2`, -10, 100, 7);"),
        (2, "", "@lk[`s0`] = lhist(`i2`, 0, 8, 1);"),
        (2, "", "@pc[`k`] = count();"),
        (2, "", "@ph[`k`] = sum(`u2`);"),
        (2, "", "@e[`e`] = count();"),
        (2, "", "@made[`m`] = count();"),
        (2, "", "@at[$p] = count();"),
        (1, "", "@odd[*(struct odd *)`p`, `k`] = hist(`i1`); print(@odd[*(struct odd *)`p`, 1]);"),
        (2, "", "@last = tseries(`i2`, 300us, 4);"),
        (2, "", "@total[`k`] = tseries(`u2`, 200us, 3, \"sum\");"),
        (1, "", "@least = tseries(`i2`, 400us, 6, \"min\");"),
        (1, "", "@most[`s0`] = tseries(`u2`, 500us, 2, \"max\");"),
        (1, "", "@mean = tseries(`i2`, 700us, 5, \"avg\");"),
        (1, "n", "@st[kstack(2)] = count();"),
        (1, "n", "@us[ustack(3), len(ustack)] = count();"),
        (1, "c", "@f[func] = count();"),
        (1, "c", "@api[api] = count();"),
        (1, "", "@on[probe] = count();"),
        (1, "c", "@within[parent_func, call_depth] = count();"),
        // Output.
        (2, "", "printf(\"%d %s\", `i`, `s2`);"),
        (1, "", "heading(\"%d %s\", `i`, `s2`); printf(\"%d %s\", (a = `i1`, b = `s1`));"),
        (2, "", "printf(\"`%x %08x %-9d %#o %c %p`\", `u`);"),
        (1, "", "printf(\"`%5d %+d %i`|%-12s|%.3s\", `i`, `w`, `m`);"),
        (2, "", "print((`i2`, `s1`));"),
        (2, "", "print(`u3`);"),
        (3, "", "print(`w`);"),
        (1, "", "print((`w0`, `e`, strerror(`i1`), `c2`));"),
        (1, "", "printf(\"%s %d\", `m`, strlen(`m`));"),
        (1, "", "printf(\"%r %rx %rh\", buf(`p`, `1..20`), `s1`, buf(`p`, `u1`));"),
        (1, "", "print(buf(`s0`, `1..20`));"),
        (1, "", "print(`$p $r $v $long`);"),
        (1, "", "print((`r`, $r.c));"),
        (1, "", "print((`v`, $v.2));"),
        (1, "", "print(*(struct point *)`p`);"),
        (1, "", "$o = *(struct odd *)`p`; print(($o, $o.words[`i1` & 1], $o.f));"),
        (1, "", "print(((union both *)`p`)->bits);"),
        (1, "", "print(((uint8[8])`u1`, ((struct shape *)`p`)->label));"),
        (1, "", "print(@`i r`[`k`]);"),
        (1, "", "print(@t[`k`, `s0`]);"),
        (1, "", "print(@c[`u1`]);"),
        (1, "", "print(@`a hk s total`[`k`]);"),
        (1, "c", "print(args);"),
        (1, "", "`errorf warnf`(\"%d: %s\", `i2`, `s1`);"),
        (1, "", "row(`i2`, \"%s %d\", `w0`, `i1`);"),
        (1, "", "rows(`0..4`);"),
        (1, "", "rows(`0..4`, \"none\");"),
        (1, "", "cat(\"/proc/%d/%s\", pid, `s1`);"),
        (1, "", "system(\"echo %d\", `i1`);"),
        (1, "", "join(`p`);"),
        (1, "", "time(\"`%H:%M %S`\");"),
        (1, "c", "signal(\"SIGUSR1\");"),
        (1, "c", "signal_thread(`i1` & 31);"),
        (1, "", "assert(`c` || `0..20` > 0, \"hardly ever\");"),
        (1, "", "static_assert(sizeof(struct point) == 8, \"two ints\");"),
        (1, "", "if (sizeof($s) > 1000) { fail(\"a name is short\"); }"),
        (1, "r", "span(n = `i1`, text = `s0`);"),
        (1, "n", "span(`s0`, start = nsecs, n = `u1`);"),
        (1, "", "event(\"seen\", n = `i1`, who = comm, color = `e0`);"),
        (1, "", "counter(\"level\", `i2`, cpu = cpu);"),
        // Maps as a whole.
        (2, "m", "print(@`i r h lh e made last total`);"),
        (1, "m", "print(@`c i m`, `1..4`);"),
        (1, "m", "print(@a, 2, 10);"),
        (2, "m", "clear(@`hk i l total z`);"),
        (2, "m", "zero(@`c z last i hk`);"),
        // Statements that leave a loop or the clause.
        (3, "l", "if (`c2`) { `break continue` }"),
        (1, "x", "if (`c2`) { `return exit(3)` }"),
        (2, "T", "if (`c2`) { return `i2`; }"),
    ],
};

#!/bin/bash
# What a hit of a probe at a function of the kernel costs: bench-kernel-probes.sh [NAME…], kernels of
# tests/kernels/kernels.txt; none: 6.1 and 6.12.
#
# Times in emulated machines mean little, but qemu counts the instructions that a machine executes, and its clock can be that count.
# A program repeats a cheap system call; the price of a probe is the number of instructions that it adds to a call, and
# is compared with the price of probes without body attached in the same way. Fails if a limit is exceeded.
# DUMP=yes also prints the programs.
set -euo pipefail
cd "$(dirname "$0")/.."
calls=100000

# NAME | SCRIPT | BASELINE | LIMIT. F is the function.
cases() {
    cat <<'EOF'
kprobe, empty|kprobe:F { }||
kprobe, count()|kprobe:F { @ = count() }|kprobe, empty|1.05
kprobe and kretprobe, empty|kprobe:F { } kretprobe:F { }||
kretprobe, hist(duration)|kretprobe:F { @ = hist(duration) }|kprobe and kretprobe, empty|1.30
fentry, empty|fentry:F { }||
fentry, count()|fentry:F { @ = count() }|fentry, empty|1.05
fentry and fexit, empty|fentry:F { } fexit:F { }||
fexit, hist(duration)|fexit:F { @ = hist(duration) }|fentry and fexit, empty|1.45
EOF
}

# Script for the machine: lines `price NAME|INSTRUCTIONS`, three rounds.
measure() {
    cat <<EOF
hammer="examples/build/hammer --function getpgid --calls $calls"
price() { sed -n 's/^cpu_ns_per_call //p'; }
for round in 1 2 3; do
    echo "price bare|\$(\$hammer | price)"
    while IFS='|' read -r name script base limit; do
        echo "price \$name|\$(target/release/cudatrace -q -e "\$script" -- \$hammer 2>&1 </dev/null | price)"
    done <<'CASES'
EOF
    cases | sed 's/:F /:__x64_sys_getpgid /g'
    printf 'CASES\ndone\n'
    [ -z "${DUMP:-}" ] || cases | sed 's/:F /:__x64_sys_getpgid /g' | while IFS='|' read -r name script base limit; do
        echo "target/release/cudatrace -d bpf --dry-run -q -e '$script' -- true 2>&1"
    done
}

# Medians, prices, and what exceeds its limit.
report() {
    awk -F'|' -v kernel="$1" '
        FNR == NR { order[++cases] = $1; base[$1] = $3; limit[$1] = $4; next }
        $1 ~ /^price / {
            sub(/^price /, "", $1)
            if ($2 == "") { missing = missing " " $1; next }
            values[$1, ++times[$1]] = $2
        }
        function median(name,    a, i, j, x, n) {
            n = times[name]
            for (i = 1; i <= n; i++) a[i] = values[name, i]
            for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j - 1] > a[j]; j--) { x = a[j]; a[j] = a[j - 1]; a[j - 1] = x }
            return a[int((n + 1) / 2)]
        }
        END {
            bare = median("bare")
            printf "%s, instructions per call: %.0f without a probe\n", kernel, bare
            printf "%-32s%10s%10s%8s  %s\n", "", "call", "probe", "ratio", "limit"
            for (i = 1; i <= cases; i++) {
                name = order[i]
                call = median(name); probe = call - bare
                ratio = base[name] == "" ? 1 : probe / (median(base[name]) - bare)
                over = limit[name] != "" && ratio > limit[name]
                failed += over || call == 0
                printf "%-32s%10.0f%10.0f%8.2f  %s%s\n", name, call, probe, ratio, limit[name], over ? "  TOO MUCH" : ""
            }
            if (missing != "") print "no result:" missing
            exit failed > 0
        }' <(cases) -
}

[ $# -gt 0 ] || set -- 6.1 6.12
failed=0
for kernel; do
    CLOCK=instructions COMMAND=$(measure) tools/test-kernels.sh "$kernel" >"target/bench-$kernel.log"
    report "$kernel" <"target/bench-$kernel.log" || failed=1
done
exit $failed

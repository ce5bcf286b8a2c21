#!/bin/bash
# Runs the live tests on other kernels: test-kernels.sh [NAME…], names of tests/kernels/kernels.txt or of KERNEL_DIR; none: all.
#
# A kernel is a package of Debian, unpacked under target/kernels and never installed, or a file of KERNEL_DIR. qemu boots it,
# without KVM, into an initramfs of busybox, libc, the release binary, the examples and the live tests' runner, all at the paths
# they have here. The runner's verdicts come back over a separate serial port. Root is needed only to install missing tools.
# Kernels that the table marks with `live` also get a stand-in for NVIDIA's kernel driver, see test-kernels-modules.sh.
#
# CASES: only the cases whose name contains this; a shell pattern (`memleak`, `scripts: *stacks`).
# KERNEL_DIR: a directory with further kernels, one file `vmlinuz-NAME` each. Only these are booted if no NAME is given.
# COMMAND: a script for busybox's shell that each machine runs in this directory instead of the cases; its output is printed.
# CLOCK=instructions: machines with one CPU, whose clock advances by 1 ns per instruction, for a COMMAND that measures.
# CUDATRACE_KERNEL_SECONDS: longest time without a further verdict (300). The machine is then ended, the current case has no
# verdict, and a new machine runs the cases after it.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=$root/target/kernels
table=tests/kernels/kernels.txt
directory=${KERNEL_DIR:-}
pattern=${CASES:-}
command=${COMMAND:-}
clock=${CLOCK:-}
silence=${CUDATRACE_KERNEL_SECONDS:-300}
# How often progress is told, in seconds.
report_every=60
machine=
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

die() { echo "test-kernels: $*" >&2; exit 1; }

# shellcheck source=tools/test-kernels-modules.sh
. tools/test-kernels-modules.sh

install_tools() {
    local missing=()
    command -v qemu-system-x86_64 >/dev/null || missing+=(qemu-system-x86)
    command -v busybox >/dev/null || missing+=(busybox-static)
    command -v pahole >/dev/null || missing+=(dwarves)
    command -v lz4 >/dev/null || missing+=(lz4)
    [ -e $keyring ] || missing+=(debian-archive-keyring)
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || die "please install ${missing[*]} (names of Debian's packages)"
    local sudo
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    $sudo apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# The address of Debian's archive among this machine's own apt sources. Empty if there is none.
debian_archive() {
    apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' |
        awk '$1 == "Debian" && $2 == "Debian" { print $3; exit }'
}

# apt with sources, lists and cache of its own for one suite, whose lists are fetched at the first call.
apt_of() {
    local suite=$1 tool=$2
    local state=$work/apt/$suite
    shift 2
    local options=(-qq -o Dir::Etc::SourceList="$state/sources" -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User="$(id -un)"
        -o Dir::State="$state" -o Dir::State::Lists="$state/lists" -o Dir::Cache="$state/cache" -o Acquire::Languages=none
        -o APT::Architecture=amd64 -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
    if [ ! -e "$state/fetched" ]; then
        mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
        touch "$state/status"
        echo "deb [signed-by=$keyring] $(debian_archive) $suite main" >"$state/sources"
        apt-get "${options[@]}" update 2>/dev/null || die "cannot fetch the package list of Debian $suite"
        touch "$state/fetched"
    fi
    "$tool" "${options[@]}" "$@"
}

# The package and those of its dependencies that may hold the kernel's image.
image_packages() {
    local suite=$1 package=$2
    echo "$package"
    apt_of "$suite" apt-cache depends "$package" |
        awk '/ Depends: linux-(image|binary)-/ { print $2 }' |
        while read -r next; do image_packages "$suite" "$next"; done
}

# Downloads and unpacks a kernel to $work/NAME/vmlinuz; one that is there is taken as it is.
fetch() {
    local name=$1 suite=$2 package=$3 dir=$work/$1 deb image
    [ ! -e "$dir/vmlinuz" ] || return 0
    rm -rf "$dir"
    mkdir -p "$dir"
    for package in $(image_packages "$suite" "$package"); do
        (cd "$dir" && apt_of "$suite" apt-get download "$package") || die "cannot download $package for $name"
    done
    for deb in "$dir"/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$dir" --wildcards './boot/vmlinuz-*' './usr/lib/modules/*/vmlinuz' 2>/dev/null || true
    done
    image=$(find "$dir" -name 'vmlinuz*' -type f | head -n 1)
    [ -n "$image" ] || die "no kernel image in the packages of $name"
    mv "$image" "$dir/vmlinuz"
    rm -rf "$dir"/*.deb "$dir/boot" "$dir/usr"
}

# Copies files to the same paths under the initramfs.
put() {
    local file
    for file in "$@"; do
        install -D "$file" "$work/initramfs$file"
    done
}

# The examples, links as links: a library's three names are one file.
put_examples() {
    mkdir -p "$work/initramfs$root/examples/build"
    find "$root/examples/build" -maxdepth 1 \( -type f -o -type l \) ! -name '*.a' \
        -exec cp -P {} "$work/initramfs$root/examples/build/" \;
}

# The dynamic loader and the libraries that these programs ask for.
libraries_of() {
    ldd "$@" 2>/dev/null | grep -o '/[^ ():]*' | grep -E '^/(usr/)?lib' | sort -u
}

# The path of the live tests' runner, built like the release binary.
runner() {
    cargo test --release --test live --no-run --message-format=json 2>"$work/build.log" |
        sed -n 's/.*"executable":"\([^"]*live-[^"]*\)".*/\1/p' | tail -n 1
}

build_initramfs() {
    local live fs=$work/initramfs
    mkdir -p "$work"
    live=$(runner)
    [ -x "$live" ] || die "the live tests do not build: $(tail -n 20 "$work/build.log")"
    rm -rf "$fs"
    mkdir -p "$fs"/{bin,proc,sys,dev,tmp,etc,root,lib/modules}
    install "$(command -v busybox)" "$fs/bin/busybox"
    put "$live" "$root/target/release/cudatrace" "$root/examples/bench.py"
    put "$root"/tests/live/*.test $(find "$root/tests/live/import" -type f) "$root"/tests/kernels/*.test
    put_examples
    put $(libraries_of "$live" "$root/target/release/cudatrace" "$root"/examples/build/workload_*)
    # glibc opens it by name when a thread ends itself.
    put "$(gcc -print-file-name=libgcc_s.so.1 | xargs realpath -s)"
    echo root:x:0:0::/root:/bin/sh >"$fs/etc/passwd"
    echo "$live" >"$fs/etc/runner"
    echo "$root" >"$fs/etc/root"
    install tools/test-kernels-init.sh "$fs/init"
    (cd "$fs" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initramfs.gz"
}

# The rows of KERNEL_DIR and of the table, NAME SUITE PACKAGE CASES, one per name. The suite of a file is its directory.
kernels() {
    local file
    {
        [ -z "$directory" ] || for file in "$directory"/vmlinuz-*; do
            echo "${file#"$directory"/vmlinuz-} $directory - live"
        done
        grep -v '^#' "$table"
    } | awk '!seen[$1]++'
}

# The case files for a kernel, as the runner wants them.
cases_of() {
    local name=$1 cases=$2 files=()
    [ "$cases" != live ] || files=("$root"/tests/live/*.test "$root/tests/kernels/common.test")
    [ ! -e "$work/$name/build/module/nvidia-uvm.ko" ] || files+=("$root/tests/kernels/module.test")
    [ ! -e "$root/tests/kernels/$name.test" ] || files+=("$root/tests/kernels/$name.test")
    (IFS=:; echo "${files[*]}")
}

# `FILE: NAME` of each case in these files, as the runner calls them.
names_of() {
    local IFS=:
    # shellcheck disable=SC2086
    awk '/^NAME[ \t]/ {
        file = FILENAME; sub(/.*\//, "", file); sub(/\.test$/, "", file)
        sub(/^NAME[ \t]+/, ""); sub(/[ \t]+$/, ""); print file ": " $0
    }' $1
}

# Writes the names of the cases that match `pattern`: to left-out those that a line `NAME TEXT` of skip.txt names, to wanted
# the others.
choose() {
    local name=$1 cases=$2 dir=$work/$1 case
    names_of "$(cases_of "$name" "$cases")" | while read -r case; do
        # shellcheck disable=SC2053
        [[ $case != *$pattern* ]] || echo "$case"
    done >"$dir/matching"
    sed -n "s/^$name  *//p" tests/kernels/skip.txt >"$dir/skip"
    grep -vFf "$dir/skip" "$dir/matching" >"$dir/wanted" || true
    grep -Ff "$dir/skip" "$dir/matching" >"$dir/left-out" || true
}

# What has no verdict yet.
remaining() {
    local dir=$work/$1
    sed 's/^[^ ]* //' "$dir/verdicts" | grep -vxFf - "$dir/wanted" || true
}

# A further piece of the initramfs: this kernel's modules, and the cases or the command to run.
write_order() {
    local name=$1 cases=$2 dir=$work/$1/order
    rm -rf "$dir"
    mkdir -p "$dir/etc" "$dir/lib/modules"
    [ ! -e "$work/$name/build/module/nvidia-uvm.ko" ] || cp "$work/$name"/build/module/*.ko "$dir/lib/modules/"
    cases_of "$name" "$cases" >"$dir/etc/cases"
    [ -z "$command" ] || echo "$command" >"$dir/etc/command"
    [ -n "$command" ] || remaining "$name" >"$dir/etc/order"
    (cd "$dir" && find . -type f | busybox cpio -o -H newc 2>/dev/null | gzip -1)
}

# The verdicts in what the runner has printed: `ok NAME`, `FAILED NAME`.
verdicts_in() {
    tr -d '\r' <"$1" | sed -nE 's/^test (.*[^ ]) +\.\.\. (ok|FAILED|ignored)$/\2 \1/p'
}

# How many lines of a file match.
count() { grep -cE "$1" "$2" || true; }

# Waits until the machine ends, or ends it when it says no more.
attend() {
    local name=$1 dir=$work/$1 size=0 now heard=$SECONDS told=$SECONDS
    while kill -0 "$machine" 2>/dev/null; do
        sleep 1
        now=$(stat -c %s "$dir/runner.log" 2>/dev/null || echo 0)
        [ "$now" = "$size" ] || heard=$SECONDS
        size=$now
        if [ $((SECONDS - told)) -ge $report_every ]; then
            told=$SECONDS
            echo "$name: $(($(wc -l <"$dir/verdicts") + $(verdicts_in "$dir/runner.log" | wc -l))) of $(wc -l <"$dir/wanted") cases"
        fi
        if [ $((SECONDS - heard)) -ge "$silence" ]; then
            echo "$name: nothing for $silence s"
            kill "$machine"
        fi
    done
    wait "$machine" 2>/dev/null || true
    machine=
}

# Starts a machine.
start_machine() {
    local name=$1 cases=$2 dir=$work/$1
    { cat "$work/initramfs.gz"; write_order "$name" "$cases"; } >"$dir/initrd"
    : >"$dir/runner.log"
    # Without cx16: qemu 7.2 spoils the flags behind a cmpxchg16b now and then, and the kernel dies in its allocator.
    local cpus=(-accel "tcg,thread=multi" -smp 2)
    [ "$clock" != instructions ] || cpus=(-accel "tcg,thread=single" -smp 1 -icount "shift=0,sleep=off")
    qemu-system-x86_64 "${cpus[@]}" -cpu max,-cx16 -m 1536 -nodefaults -display none -no-reboot \
        -serial "file:$dir/console.log" -serial "file:$dir/runner.log" -kernel "$dir/vmlinuz" -initrd "$dir/initrd" \
        -append "console=ttyS0 quiet panic=-1 oops=panic" </dev/null &
    machine=$!
}

# Boots a machine for what has no verdict yet, and adds to `verdicts`.
boot() {
    local name=$1 cases=$2 dir=$work/$1
    start_machine "$name" "$cases"
    attend "$name"
    verdicts_in "$dir/runner.log" >>"$dir/verdicts"
    tr -d '\r' <"$dir/runner.log" >>"$dir/printed.txt"
}

# The machine ended in the midst of a case, the first that has no verdict.
cut_off() {
    local name=$1 dir=$work/$1 case
    case=$(remaining "$name" | head -n 1)
    echo "none $case" >>"$dir/verdicts"
    echo "$name: the machine did not survive \`$case\`"
    cp "$dir/console.log" "$dir/console-$(count '^none' "$dir/verdicts").log"
}

# Boots until each case has a verdict or was one at which a machine ended. Two machines without a verdict are enough.
run_cases() {
    local name=$1 cases=$2 dir=$work/$1 before idle=0
    rm -f "$dir"/console*.log
    : >"$dir/verdicts"
    : >"$dir/printed.txt"
    while [ -n "$(remaining "$name")" ] && [ $idle -lt 2 ]; do
        before=$(wc -l <"$dir/verdicts")
        boot "$name" "$cases"
        idle=$([ "$(wc -l <"$dir/verdicts")" -gt "$before" ] && echo 0 || echo $((idle + 1)))
        [ -z "$(remaining "$name")" ] || cut_off "$name"
    done
}

# Boots a machine for COMMAND, and prints what that prints.
run_command() {
    local name=$1 cases=$2
    start_machine "$name" "$cases"
    tail -f --pid="$machine" -s 0.2 "$work/$name/runner.log" | tr -d '\r'
    wait "$machine" || true
    machine=
    grep -q '^command ended with 0' "$work/$name/runner.log"
}

# A kernel passes when every case was run and ok.
judge() {
    local name=$1 dir=$work/$1 passed failed unknown
    passed=$(count '^ok ' "$dir/verdicts")
    failed=$(count '^(FAILED|ignored) ' "$dir/verdicts")
    unknown=$(($(wc -l <"$dir/wanted") - passed - failed))
    echo "$name: Linux $(sed -n 's/^kernel //p' "$dir/printed.txt" | head -n 1): $passed passed, $failed failed," \
        "$unknown without a verdict, $(wc -l <"$dir/left-out") left out"
    [ $((failed + unknown)) -gt 0 ] || return 0
    sed -nE 's/^(FAILED|ignored) /  \1: /p' "$dir/verdicts"
    grep -vxFf <(sed -nE 's/^(ok|FAILED|ignored) //p' "$dir/verdicts") "$dir/wanted" | sed 's/^/  no verdict: /' || true
    sed -n '/^failures:$/,/^test result/p' "$dir/printed.txt"
    [ "$unknown" = 0 ] || tail -n 20 "$dir/console.log"
    return 1
}

# Takes the kernel from KERNEL_DIR or, by the table, from Debian, and runs its cases.
run_kernel() {
    local name=$1 suite=$2 package=$3 cases=$4
    if [ "$suite" = "$directory" ]; then
        rm -rf "$work/$name/build"
        install -D "$directory/vmlinuz-$name" "$work/$name/vmlinuz"
    elif [ -n "$(debian_archive)" ]; then
        fetch "$name" "$suite" "$package"
        [ "$cases" != live ] || build_modules "$name" "$suite"
    else
        echo "$name: this machine has no apt source of Debian: put a file vmlinuz-$name into a directory and set KERNEL_DIR"
        return 1
    fi
    if [ -n "$command" ]; then
        matched=yes
        run_command "$name" "$cases"
        return
    fi
    choose "$name" "$cases"
    if [ ! -s "$work/$name/matching" ]; then
        echo "$name: no case matches \`$pattern\`"
        return 0
    fi
    matched=yes
    run_cases "$name" "$cases"
    judge "$name"
}

trap '[ -z "$machine" ] || kill "$machine"' EXIT
install_tools
build_initramfs
known=" $(kernels | awk '{ printf "%s ", $1 }')"
for name in "$@"; do
    [[ $known == *" $name "* ]] || die "no kernel \`$name\`; there are$known"
done
failed=()
matched=
while read -r name suite package cases; do
    [[ $# = 0 && ( -z $directory || $suite = "$directory" ) || " $* " == *" $name "* ]] || continue
    run_kernel "$name" "$suite" "$package" "$cases" || failed+=("$name")
done < <(kernels)
[ -n "$matched" ] || die "no case matches \`$pattern\`"
[ ${#failed[@]} = 0 ] || die "failed on ${failed[*]}"

#!/bin/bash
# Runs the tests of other projects with and without cudatrace: test-survival.sh [SUITE…], of python, openssl, libstdcxx, callbacks;
# none: all. A table compares the results; tests with another result in the traced run are listed below it.
#
# The traced run counts the calls of every function of the library under test that can be patched, and reads every result and duration.
# All of that runs in the process, with the functions changed by jumps. The sources come from this machine's apt sources (Debian 12) and
# are built under target/survival. Needs root, about a gigabyte, and some hours on two CPUs.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=$root/target/survival
cudatrace=${CUDATRACE:-$root/target/release/cudatrace}
python=3.11
gcc=12
libraries=/usr/lib/x86_64-linux-gnu

die() { echo "test-survival: $*" >&2; exit 1; }

install_packages() {
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >"$work/install.log" 2>&1 ||
        die "cannot install $*: $(tail -n 3 "$work/install.log")"
}

# The functions of a file that begin with a push, which can be patched in any library.
pushing_functions() {
    objdump -d -j .text --no-show-raw-insn "$1" | awk '
        /^[0-9a-f]+ <.*>:$/ { name = $2; gsub(/^<|>:$|@.*/, "", name); is_first = 1; next }
        is_first && /endbr64/ { next }
        is_first { if ($2 == "push" && name ~ /^[A-Za-z0-9_]+$/) print name; is_first = 0 }' |
        grep -v -e '^_start$' -e '^initgroups$' | sort -u
}

# A script that probes calls and returns of these files.
script_for() {
    local file side
    for file in "$@"; do
        pushing_functions "$file" | sed "s|^|$file:|"
    done >"$work/functions"
    echo 'config = { max_probes = 100000; max_map_keys = 40000 }'
    for side in uprobe uretprobe; do
        sed "s|^|$side:|; \$!s|\$|,|" "$work/functions"
        [ $side = uprobe ] && echo '{ @calls = count(); @[func] = count() }'
    done
    echo '{ @result[func] = max(retval); @duration = hist(duration) }'
}

# Runs a function of this script twice: it writes a line per test, `NAME RESULT`, to the file that it gets as its last argument. Prints a
# row of the table.
compare() {
    local suite=$1 files=$2 out=$work/$1
    local run=(bash "$root/tools/test-survival.sh" "${@:3}")
    # shellcheck disable=SC2086 # a list of files
    script_for $files >"$out.ct"
    "${run[@]}" "$out.bare" >"$out.bare.log" 2>&1 </dev/null || true
    "$cudatrace" --in-process -o "$out.maps" "$out.ct" -- "${run[@]}" "$out.traced" >"$out.traced.log" 2>&1 </dev/null || true
    grep -q 'Traced .* without the kernel' "$out.traced.log" || die "$suite was not traced in the process: see $out.traced.log"
    row "$suite" "$(wc -l <"$out.bare")" "$(passed "$out.bare")" "$(passed "$out.traced")" "$(wc -l <"$work/functions")" \
        "$(sed -n 's/^@calls: //p' "$out.maps")"
    diff "$out.bare" "$out.traced" >"$out.diff" || sed "s/^/    $suite: /" "$out.diff"
}

passed() { grep -c ' ok$' "$1" || true; }
row() { printf '%-10s %7s %12s %14s %10s %14s\n' "$@"; }

# CPython: a program that uses the shared library, since Debian's python3 contains its own copy.
python() {
    install_packages "libpython$python-testsuite" "libpython$python-dev"
    echo '#include <Python.h>
        int main(int argc, char **argv) { return Py_BytesMain(argc, argv); }' >"$work/python.c"
    # shellcheck disable=SC2046 # a list of options
    gcc "$work/python.c" -o "$work/python$python" $("python$python-config" --includes) "-lpython$python"
    compare python "$(realpath "$libraries/libpython$python.so.1")" run_python
}

run_python() {
    local tests=(asyncgen call contextlib coroutines ctypes descr dict exceptions faulthandler fork1 functools gc generators hashlib
        itertools json mmap multiprocessing_fork posix queue re select selectors signal socket ssl struct subprocess thread
        threading threadsignals traceback unicode weakref zlib asyncio)
    mkdir -p "$work/python.run"
    cd "$work/python.run"
    # Sockets of virtual machines wait for ever where there are none.
    PYTHONHOME=/usr PYTHONHASHSEED=0 "$work/python$python" -m test -i '*VSOCK*' --timeout 600 --junit-xml "$1.xml" "${tests[@]/#/test_}" || true
    "/usr/bin/python$python" - "$1.xml" >"$1" <<'END'
import sys, xml.etree.ElementTree as tree
bad = lambda case: case.find("error") is not None or case.find("failure") is not None
print(*sorted(f'{case.get("name")} {"failed" if bad(case) else case.get("result")}'.replace("completed", "ok")
              for case in tree.parse(sys.argv[1]).iter("testcase")), sep="\n")
END
}

# OpenSSL, by its own makefile.
openssl() {
    install_packages dpkg-dev make perl
    fetch_openssl
    compare openssl "$work/openssl/libcrypto.so.3 $work/openssl/libssl.so.3" run_openssl
}

fetch_openssl() {
    [ ! -e "$work/openssl/built" ] || return 0
    local lists=$work/lists
    mkdir -p "$lists/partial" "$work/openssl"
    sed 's/^Types: deb$/Types: deb-src/; s/^deb /deb-src /' /etc/apt/sources.list.d/debian.sources >"$work/sources.sources"
    local options=(-qq -o Dir::Etc::SourceList="$work/sources.sources" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$lists" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update
    (cd "$work" && apt-get "${options[@]}" source --download-only --tar-only openssl)
    tar -xf "$work"/openssl_*.orig.tar.gz -C "$work/openssl" --strip-components=1
    (cd "$work/openssl" && ./Configure linux-x86_64 shared && make -j "$(nproc)" build_sw && touch built) >"$work/openssl.build.log" 2>&1
}

run_openssl() {
    # What is left out only runs the program `openssl` again and again, or needs files that are not there.
    (cd "$work/openssl" && make test HARNESS_JOBS=1 TESTS='-test_fuzz* -test_errstr -test_enc -test_pem* -test_*doc* -test_external* -test_fips*') |
        tee /dev/stderr | sed -n 's/^\([0-9]*-.*\.t\) \.* *\(ok\|skipped\|Dubious\|Failed\).*/\1 \2/p' >"$1"
}

# libstdc++: exceptions and threads, and every sixth test of the rest. Each is a program. One is left out: it compares the times of calls of
# the library with those of calls that the compiler has inlined.
libstdcxx() {
    install_packages "g++-$gcc" binutils
    build_libstdcxx
    compare libstdcxx "$(realpath "$libraries/libstdc++.so.6")" run_programs "$work/libstdcxx.tests"
}

build_libstdcxx() {
    [ ! -e "$work/libstdcxx.built" ] || return 0
    (cd "$work" && apt-get download -qq "gcc-$gcc-source" && dpkg-deb -x gcc-$gcc-source_*.deb gcc)
    tar -xf "$work"/gcc/usr/src/gcc-$gcc/gcc-$gcc*.tar.xz -C "$work/gcc" --strip-components=1 --wildcards '*/libstdc++-v3/testsuite/*'
    export suite=$work/gcc/libstdc++-v3/testsuite tests=$work/libstdcxx.tests
    mkdir -p "$tests"
    for part in hooks abi allocator character; do
        g++ -w -std=gnu++17 -I"$suite/util" -c "$suite/util/testsuite_$part.cc" -o "$work/testsuite_$part.o"
    done
    export objects="$work/testsuite_*.o"
    {
        find "$suite"/{18_support,30_threads} -name '*.cc' | sort
        find "$suite"/2[0-8]_* -name '*.cc' | sort | awk 'NR % 6 == 0'
    } | grep -v -e _neg -e future/members/poll.cc | xargs grep -lE 'dg-do run|^main|int main' | xargs -P "$(nproc)" -I{} bash -c '
        name=${1#"$suite"/}
        options=$(sed -n "s/.*dg-options \"\([^\"]*\)\".*/\1/p" "$1" | head -n 1)
        timeout 120 g++ -w -O1 -std=gnu++17 $options -I"$suite/util" "$1" $objects -o "$tests/${name//\//-}" -pthread -latomic' - {} \
        2>"$work/libstdcxx.build.log" || true
    touch "$work/libstdcxx.built"
}

# C++, Rust and Go code that is called by traced C functions, and ends these calls by exceptions and panics.
callbacks() {
    install_packages g++ golang-go
    local source=$root/tests/programs programs=$work/callbacks.tests
    mkdir -p "$programs" "$work/callbacks.go"
    gcc -O1 -fno-omit-frame-pointer -fexceptions -shared -fPIC "$source/callbacks.c" -o "$work/libcallbacks.so"
    g++ -O1 -pthread "$source/callbacks.cpp" -o "$programs/cpp" -L"$work" -lcallbacks -Wl,-rpath,"$work"
    rustc -O --edition 2021 "$source/callbacks.rs" -o "$programs/rust" -L "$work" -l callbacks -C link-arg=-Wl,-rpath,"$work"
    cp "$source/callbacks.go" "$work/callbacks.go/main.go"
    (cd "$work/callbacks.go" && CGO_LDFLAGS="-L$work -lcallbacks -Wl,-rpath,$work" GO111MODULE=off go build -o "$programs/go" main.go)
    compare callbacks "$work/libcallbacks.so" run_programs "$programs"
}

# Runs the programs of a folder. A result is the exit status, `ok` for 0.
run_programs() {
    local program status
    # Some tests of libstdc++ change their data.
    rm -rf "$work/programs.run"
    mkdir -p "$work/programs.run"
    cp -r "$work"/gcc/libstdc++-v3/testsuite/data/. "$work/programs.run" 2>/dev/null || true
    cd "$work/programs.run"
    for program in "$1"/*; do
        timeout 300 "$program" >/dev/null && status=ok || status=$?
        echo "${program##*/} $status"
    done >"$2"
}

# `compare` runs these.
case ${1:-} in run_*) "$@"; exit ;; esac
[ "$(id -u)" = 0 ] || die "needs root, to install packages"
[ -x "$cudatrace" ] || die "needs $cudatrace: make build"
mkdir -p "$work"
row suite tests 'passed bare' 'passed traced' functions calls
for suite in "${@:-}"; do
    case $suite in
    '') for suite in callbacks libstdcxx python openssl; do $suite; done ;;
    python | openssl | libstdcxx | callbacks) $suite ;;
    *) die "unknown suite $suite" ;;
    esac
done

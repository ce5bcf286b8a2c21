#!/bin/bash
# Installs what building needs and this machine lacks: a C compiler, make, static libelf and zlib, cargo.
set -eu
missing=()
command -v gcc >/dev/null || missing+=(gcc libc6-dev)
command -v python3 >/dev/null || missing+=(python3)
command -v pkg-config >/dev/null || missing+=(pkg-config)
dirs=$(echo /usr/lib/*-linux-gnu /usr/lib64 /usr/lib)
find_archive() { for dir in $dirs; do [ -e "$dir/$1" ] && return 0; done; return 1; }
find_archive libelf.a || missing+=(libelf-dev)
find_archive libz.a || missing+=(zlib1g-dev)
if [ ${#missing[@]} -gt 0 ]; then
    if ! command -v apt-get >/dev/null; then
        echo "please install: ${missing[*]} (names of Debian's packages)" >&2
        exit 1
    fi
    echo "installing ${missing[*]}" >&2
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    $sudo apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq "${missing[@]}" >/dev/null
fi
if ! command -v cargo >/dev/null; then
    echo "cargo is missing: install Rust, see https://rustup.rs" >&2
    exit 1
fi

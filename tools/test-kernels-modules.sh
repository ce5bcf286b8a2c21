# Sourced by test-kernels.sh: builds examples/cuda/module, the stand-in for NVIDIA's kernel driver, for one of Debian's kernels.
#
# The kernel's headers are unpacked beside it and never installed: target/kernels/NAME/{headers,build/module/*.ko}. Modules have
# BTF, which pahole writes from their debug information and the BTF of the kernel's image.

# The release of a bzImage, `6.1.0-50-cloud-amd64`.
release_of() {
    local at
    at=$(od -An -tu2 -j 526 -N 2 "$1")
    dd if="$1" bs=1 skip=$((at + 512)) count=100 status=none | tr '\0' ' ' | awk '{ print $1 }'
}

# The headers of a kernel, and the tools that build modules.
header_packages() {
    local suite=$1 headers=linux-headers-$2
    echo "$headers"
    apt_of "$suite" apt-cache depends "$headers" | awk '/ Depends: (linux-headers-.*-common|linux-kbuild-)/ { print $2 }'
}

# Downloads and unpacks the headers to $work/NAME/headers.
fetch_headers() {
    local name=$1 suite=$2 release=$3 dir=$work/$1/headers package
    [ ! -e "$dir/unpacked" ] || return 0
    rm -rf "$dir"
    mkdir -p "$dir"
    for package in $(header_packages "$suite" "$release"); do
        (cd "$dir" && apt_of "$suite" apt-get download "$package") ||
            die "cannot download $package: if Debian $suite has a newer kernel, remove $work/$name to take that one"
    done
    for package in "$dir"/*.deb; do dpkg-deb -x "$package" "$dir"; done
    rm -f "$dir"/*.deb
    # Makefiles name the folder that the package would be installed to.
    sed -i "s|/usr/src/|$dir/usr/src/|g" "$dir"/usr/src/linux-headers-*/Makefile
    run_tools_with_their_libc "$dir" "$suite"
    touch "$dir/unpacked"
}

# A newer Debian's tools need its libc, from which they are then started.
run_tools_with_their_libc() {
    local dir=$1 suite=$2 tool loader
    find "$dir"/usr/lib/linux-kbuild-* -type f -perm -100 | while read -r tool; do
        ldd "$tool" 2>&1 | grep -q "GLIBC_.* not found" || continue
        if [ ! -d "$dir/libc" ]; then
            (cd "$dir" && apt_of "${suite%-backports}" apt-get download libc6)
            dpkg-deb -x "$dir"/libc6_*.deb "$dir/libc"
            rm -f "$dir"/libc6_*.deb
        fi
        loader=$(find "$dir/libc" -name 'ld-linux-x86-64.so.2' -type f | head -n 1)
        mv "$tool" "$tool.elf"
        printf '#!/bin/sh\nexec %q --library-path %q %q "$@"\n' "$loader" "$(dirname "$loader")" "$tool.elf" >"$tool"
        chmod +x "$tool"
    done
}

# The kernel's image as an ELF file, for its BTF. Newer headers contain it.
vmlinux_of() {
    local image=$1 sectors at length
    sectors=$(od -An -tu1 -j 497 -N 1 "$image")
    at=$(od -An -tu4 -j $((0x248)) -N 4 "$image")
    length=$(od -An -tu4 -j $((0x24c)) -N 4 "$image")
    # The payload ends with its size, which the decompressor takes for more of it.
    dd if="$image" iflag=skip_bytes,count_bytes skip=$(((sectors + 1) * 512 + at)) count=$((length - 4)) status=none | lz4 -dc
}

# Options for a compiler that is older than the one that built the kernel.
compiler_options() {
    local options=()
    gcc -fmin-function-alignment=16 -E - </dev/null >/dev/null 2>&1 || options+=(CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT=)
    echo "${options[@]}"
}

# Builds the modules for an unpacked kernel.
build_modules() {
    local name=$1 suite=$2 dir=$work/$1 release tree module
    release=$(release_of "$dir/vmlinuz")
    fetch_headers "$name" "$suite" "$release"
    tree=$dir/headers/usr/src/linux-headers-$release
    [ -e "$tree/vmlinux" ] || vmlinux_of "$dir/vmlinuz" >"$tree/vmlinux" || die "cannot read the image of $name"
    mkdir -p "$dir/build/module" "$dir/build/include"
    cp -u examples/cuda/module/* "$dir/build/module/"
    cp -u examples/cuda/include/nvidia_ioctl.h "$dir/build/include/"
    # shellcheck disable=SC2046
    make -C "$tree" M="$dir/build/module" CC=gcc CONFIG_DEBUG_INFO_BTF_MODULES= $(compiler_options) modules \
        >"$dir/build/log" 2>&1 || die "the modules do not build for $name: $(tail -n 20 "$dir/build/log")"
    for module in "$dir"/build/module/*.ko; do
        LLVM_OBJCOPY=objcopy pahole -J --btf_base "$tree/vmlinux" "$module" >>"$dir/build/log" 2>&1 ||
            die "no BTF for $module: $(tail -n 5 "$dir/build/log")"
    done
}

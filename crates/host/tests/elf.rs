//! ELF files as compilers write them, and damaged ones.

mod common;
#[path = "../../wire/tests/common/rounds.rs"]
mod rounds;

use std::path::Path;

use common::{Random, gcc, library};
use host::{ElfError, ElfFile};
use rounds::rounds;

const VERSIONED: &str = r#"
    __attribute__((noinline)) static int hidden_helper(int a) { return a * 3; }
    int first(int a) { return hidden_helper(a) + 1; }
    int same(int a) __attribute__((alias("first")));
    int old(int a) { return a; }
    static int target_of_ifunc(int a) { return a; }
    static void *choose(void) { return target_of_ifunc; }
    int chosen(int) __attribute__((ifunc("choose")));
    int data = 3;
"#;

#[test]
fn functions_have_names_versions_and_offsets() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("libv.so.1");
    let script = dir.path().join("v.map");
    std::fs::write(&script, "LIBV_1 { global: first; same; old; chosen; local: *; };").expect("written");
    let map = format!("-Wl,--version-script={}", script.display());
    gcc(VERSIONED, &path, &["-shared", "-fPIC", "-Wl,-soname,libv.so.1", "-Wl,--build-id", &map]);
    let elf = ElfFile::open(&path).expect("opened");
    assert_eq!(elf.soname(), Some("libv.so.1"));
    assert_eq!(elf.build_id().map(<[u8]>::len), Some(20));
    let functions = elf.functions();
    let first = functions.list.iter().find(|f| f.names.contains(&"same".to_owned())).expect("same");
    assert_eq!(first.names, ["same", "first"], "one address, the shorter name first");
    assert_eq!(first.version.as_deref(), Some("LIBV_1"));
    assert!(functions.size_at(first.offset).expect("known") > 0);
    let names: Vec<&str> = functions.list.iter().map(|f| f.names[0].as_str()).collect();
    assert!(names.contains(&"hidden_helper"), "static functions are in .symtab: {names:?}");
    assert!(!names.contains(&"chosen") && !names.contains(&"data"), "{names:?}");
    assert!(names.is_sorted());
    assert!(elf.defines("first") && !elf.defines("firs") && !elf.defines("printf"));
}

#[test]
fn offsets_are_those_of_the_code_in_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("libm.so");
    // The pattern occurs in the code itself.
    library(
        "__asm__(\".globl mark\\n.type mark,@function\\nmark: .byte 0x90,0x90,0xb8,0x12,0x34,0x56,0x78,0xc3\\n.size mark,8\");",
        &path,
        "x",
    );
    let elf = ElfFile::open(&path).expect("opened");
    let mark = elf.functions().list.into_iter().find(|f| f.names[0] == "mark").expect("mark");
    let bytes = std::fs::read(&path).expect("read");
    assert_eq!(bytes[mark.offset as usize..][..8], [0x90, 0x90, 0xb8, 0x12, 0x34, 0x56, 0x78, 0xc3]);
}

#[test]
fn without_section_headers_the_exported_functions_are_found() {
    let dir = tempfile::tempdir().expect("a directory");
    for style in ["gnu", "sysv"] {
        let path = dir.path().join(format!("lib{style}.so"));
        let hash = format!("-Wl,--hash-style={style}");
        gcc("int one(void){return 1;} int two(void){return 2;}", &path, &["-shared", "-fPIC", &hash]);
        let mut image = std::fs::read(&path).expect("read");
        let whole = ElfFile::parse(image.clone(), &path).expect("parsed").functions();
        // e_shoff, e_shnum, e_shstrndx
        image[0x28..0x30].fill(0);
        image[0x3c..0x40].fill(0);
        let elf = ElfFile::parse(image, &path).expect("parsed");
        assert!(!elf.has_symtab());
        for name in ["one", "two"] {
            let at =
                |list: &[lang::catalog::Function]| list.iter().find(|f| f.names[0] == name).map(|f| f.offset);
            assert_eq!(at(&elf.functions().list), at(&whole.list), "{style} {name}");
            assert!(elf.defines(name));
        }
    }
}

#[test]
fn a_superseded_version_comes_behind_the_default_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("libold.so");
    let script = dir.path().join("v.map");
    std::fs::write(&script, "V1 { }; V2 { };").expect("written");
    let source =
        "int f1(void){return 1;} int f2(void){return 2;}\n__asm__(\".symver f1,f@V1\\n.symver f2,f@@V2\");";
    gcc(source, &path, &["-shared", "-fPIC", &format!("-Wl,--version-script={}", script.display())]);
    let functions = ElfFile::open(&path).expect("opened").functions().list;
    let versions: Vec<_> =
        functions.iter().filter(|f| f.names.contains(&"f".to_owned())).map(|f| f.version.clone()).collect();
    assert_eq!(versions.len(), 2, "{functions:?}");
    assert!(
        functions.iter().any(|f| f.names[0] == "f" && f.version.as_deref() == Some("V2")),
        "{functions:?}"
    );
}

#[test]
fn errors_say_what_is_wrong() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        ElfFile::open(&path).expect_err("unusable")
    };
    assert!(matches!(ElfFile::open(&dir.path().join("none")), Err(ElfError::NotFound { .. })));
    assert!(matches!(ElfFile::open(dir.path()), Err(ElfError::NotElf { .. })));
    assert!(matches!(file("empty", b""), ElfError::NotElf { .. }));
    assert!(matches!(file("text", b"#!/bin/sh\n"), ElfError::NotElf { .. }));
    assert!(matches!(file("cut", b"\x7fELF"), ElfError::Damaged { .. }));
    let narrow = file("narrow", b"\x7fELF\x01\x01\x01");
    assert!(narrow.to_string().contains("is a 32-bit file; only 64-bit"), "{narrow}");
    assert!(file("big", b"\x7fELF\x02\x02\x01").to_string().contains("big-endian"));
}

/// Calls every function that reads the file.
fn read_all(image: Vec<u8>) {
    let Ok(elf) = ElfFile::parse(image, Path::new("damaged")) else { return };
    let functions = elf.functions();
    for function in functions.list.iter().take(50) {
        assert!(!function.names.is_empty());
        let _ = (functions.next_after(function.offset), elf.code(function.offset, 64));
    }
    let _ = (elf.soname(), elf.needed().count(), elf.rpath(), elf.runpath(), elf.build_id());
    let _ = (elf.is_go(), elf.has_gpu_code(), elf.has_symtab(), elf.defines("first"), elf.contains(b"x"));
}

#[test]
fn damaged_files_are_refused_or_read_in_part_but_never_panic() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("libv.so");
    library(VERSIONED, &path, "libv.so");
    let image = std::fs::read(&path).expect("read");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in rounds(2000) {
        let mut damaged = image.clone();
        for _ in 0..1 + random.below(8) {
            // Every other change is in the headers, where it has the largest effect.
            let limit = if random.below(2) == 0 { 0x400 } else { damaged.len() };
            let at = random.below(limit);
            damaged[at] = [0, 1, 0x7f, 0x80, 0xff, random.below(256) as u8][random.below(6)];
        }
        if random.below(3) == 0 {
            damaged.truncate(random.below(damaged.len()));
        }
        read_all(damaged);
    }
    for end in (0..image.len()).step_by(97).chain(0..0x80) {
        read_all(image[..end].to_vec());
    }
    // Sets each 8-byte field of the dynamic table and the headers to extreme values.
    for at in (0..0x400).step_by(8) {
        for value in [u64::MAX, i64::MAX as u64, 1 << 32] {
            let mut damaged = image.clone();
            damaged[at..at + 8].copy_from_slice(&value.to_le_bytes());
            read_all(damaged);
        }
    }
}

/// Moves the symbol table of a file to its end, and extends it by a hole to the largest size of a file.
fn with_endless_symbols(path: &Path) {
    const SECTION: usize = 64;
    let mut image = std::fs::read(path).expect("read");
    let number = |image: &[u8], at: usize| u64::from_le_bytes(image[at..at + 8].try_into().expect("8 bytes"));
    let first = number(&image, 0x28) as usize;
    let count = u16::from_le_bytes([image[0x3c], image[0x3d]]) as usize;
    // sh_type is SHT_SYMTAB; then sh_offset and sh_size.
    let table = (0..count)
        .map(|n| first + n * SECTION)
        .find(|at| image[at + 4..at + 8] == [2, 0, 0, 0])
        .expect("one");
    let (start, size) = (number(&image, table + 24) as usize, number(&image, table + 32) as usize);
    let (symbols, moved) = (image[start..start + size].to_vec(), image.len().next_multiple_of(4096));
    image.resize(moved, 0);
    image.extend(symbols);
    let size = 24u64 << 31;
    image[table + 24..table + 32].copy_from_slice(&(moved as u64).to_le_bytes());
    image[table + 32..table + 40].copy_from_slice(&size.to_le_bytes());
    std::fs::write(path, &image).expect("written");
    std::fs::File::options()
        .write(true)
        .open(path)
        .and_then(|file| file.set_len(moved as u64 + size))
        .expect("a hole");
}

#[test]
fn an_endless_symbol_table_is_read_in_part() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("libendless.so");
    gcc(
        "static __attribute__((used)) int hidden(void){return 1;} int one(void){return 1;}",
        &path,
        &["-shared", "-fPIC"],
    );
    with_endless_symbols(&path);
    let start = std::time::Instant::now();
    let elf = ElfFile::open(&path).expect("opened");
    assert!(!elf.has_bounded_symbols(), "the symbolizer is not given it");
    assert!(elf.functions().list.iter().any(|function| function.names[0] == "hidden"));
    // Reading all of it would take half an hour.
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

//! Unwind tables from damaged `.eh_frame` sections.

mod common;
#[path = "../../wire/tests/common/rounds.rs"]
mod rounds;

use std::fs::{self, File};
use std::path::Path;

use common::{Random, library};
use host::ElfFile;
use host::eh_frame::Source;
use rounds::rounds;
use wire::unwind::row_address;

/// Frames of all kinds that compilers and linkers describe: a frame pointer, an aligned stack, saved registers, a PLT.
const FRAMES: &str = r#"
    void outside(void *);
    void plain(void) { char room[40]; outside(room); }
    void varying(int n) { char room[n]; outside(room); }
    __attribute__((force_align_arg_pointer)) void aligned(void) { _Alignas(64) char room[64]; outside(room); }
    long saved(long a, long b, long c, long d) { outside(&a); outside(&b); return a + b + c + d; }
"#;

/// Reads the rows of an image, as of a file of a traced process; the number of rows.
fn read(image: &[u8], path: &Path) -> usize {
    fs::write(path, image).expect("written");
    let Some(source) = Source::of_file(&File::open(path).expect("opened")) else { return 0 };
    let rows = source.rows();
    assert!(rows.is_sorted_by_key(|row| row_address(*row)));
    for offset in [0, 0x1000, u64::MAX] {
        let _ = source.segments().bias(0x7f00_0000_0000, offset);
    }
    rows.len()
}

/// Changes bytes of the section, and at times bytes of the ELF headers.
fn damage(image: &mut [u8], section: std::ops::Range<usize>, random: &mut Random) {
    const HEADERS: usize = 0x400;
    for _ in 0..1 + random.below(6) {
        let at = match random.below(8) {
            0 => random.below(HEADERS),
            _ => section.start + random.below(section.len()),
        };
        image[at] = [0, 1, 0x7f, 0x80, 0xff, random.below(256) as u8][random.below(6)];
    }
}

#[test]
fn damaged_unwind_information_is_read_in_part() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, damaged) = (dir.path().join("libframes.so"), dir.path().join("damaged"));
    library(FRAMES, &path, "libframes.so");
    let whole = fs::read(&path).expect("read");
    let elf = ElfFile::parse(whole.clone(), &path).expect("parsed");
    let bytes = elf.named_section(".eh_frame").expect("unwind information");
    let start = bytes.as_ptr() as usize - elf.code(0, u64::MAX).as_ptr() as usize;
    assert!(read(&whole, &damaged) > 8, "the undamaged file has rows");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut tries, mut with_rows) = (0, 0);
    for _ in rounds(2000) {
        let mut image = whole.clone();
        damage(&mut image, start..start + bytes.len(), &mut random);
        tries += 1;
        with_rows += usize::from(read(&image, &damaged) > 0);
    }
    assert!(2 * with_rows >= tries, "{with_rows} of {tries} files have rows: most damage is in the section");
}

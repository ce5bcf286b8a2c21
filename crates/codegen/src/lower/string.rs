//! Strings: read from the traced process, compared, searched, and written at the end of records.
//!
//! In memory a string is zero-filled after its NUL, so equal strings are equal bytes. In a record it has its actual length.

use super::loop_shape::literal;
use super::operations::Operations;
use super::place::{Base, Place};
use super::read_memory::{BYTES, MemoryReads, TEXT};
use super::space::Space;

use crate::bpf::helper::Helper;
use crate::ir::{Bin, BlockId, Cmp, Operand, VReg, Width};
use lang::hir::{Expr, ExprKind, HASH_FACTOR, HASH_SHIFT, HASH_START, Type};
use wire::CounterKind;
use wire::layout::LENGTH_TRUNCATED;

/// Longer strings are compared in a loop.
const UNROLLED_BYTES: u32 = 128;

/// Longest string that is searched with a branch per position: the verifier stores at most 8192 branches of a program.
const BRANCHED_BYTES: u32 = 4096;

/// The hash of a text that is searched for.
pub(super) struct NeedleHash {
    hash: VReg,
    /// Weight of a byte that leaves the window.
    power: VReg,
    /// Length of the text.
    length: VReg,
}

/// Lowering of strings.
pub(super) trait Strings: Operations {
    /// `str(p, n)` into memory of `capacity` bytes.
    fn read_string(&mut self, base: &Expr, limit: Option<&Expr>, to: Place, capacity: u32) {
        let address = self.scalar(base);
        let size = self.read_size(limit, capacity);
        self.zero(to, capacity);
        let at = self.pointer(to);
        let space = self.space(base);
        let read = self.read_bytes(TEXT, space, at, size, address);
        self.count_if(Cmp::Slt, read, 0, CounterKind::UserRead);
    }

    /// Largest number of bytes to read, NUL included, bounded for the verifier.
    fn read_size(&mut self, limit: Option<&Expr>, capacity: u32) -> Operand {
        let capacity = i64::from(capacity);
        let Some(limit) = limit else { return capacity.into() };
        if let Some(limit) = literal(limit) {
            return (limit as u64).min(capacity as u64).cast_signed().into();
        }
        let limit = self.scalar(limit);
        let limit = self.b().reg(limit);
        let size = self.b().opaque(limit);
        let (large, fine) = (self.b().block(), self.b().block());
        self.b().branch(Cmp::Ugt, size, capacity, large, fine);
        self.b().switch_to(large);
        self.b().set(size, capacity);
        self.b().fall_into(fine);
        size.into()
    }

    /// Jumps to `then` if the strings are equal up to a NUL or `limit` bytes.
    fn string_equal(
        &mut self,
        lhs: &Expr,
        rhs: &Expr,
        limit: Option<u32>,
        then: BlockId,
        otherwise: BlockId,
    ) {
        let limit = limit.unwrap_or(u32::MAX);
        match (&lhs.kind, &rhs.kind) {
            (ExprKind::Str(text), _) => self.equals_text(rhs, text, limit, otherwise),
            (_, ExprKind::Str(text)) => self.equals_text(lhs, text, limit, otherwise),
            _ => self.equals_string(lhs, rhs, limit, otherwise),
        }
        self.b().jump(then);
    }

    fn equals_text(&mut self, string: &Expr, text: &[u8], limit: u32, different: BlockId) {
        let capacity = self.size(&string.ty);
        let place = self.place_of_start(string, text.len() as u32 + 1);
        let mut bytes = text.to_vec();
        bytes.push(0);
        bytes.truncate(limit as usize);
        if bytes.len() as u32 > capacity {
            // The text does not fit in the string: no string of this capacity equals it or begins with it.
            return self.b().jump(different);
        }
        for (at, width) in super::place::chunks(place.off, bytes.len() as u32) {
            let mut word = [0; 8];
            let part = &bytes[at as usize..(at + width.bytes()) as usize];
            word[..part.len()].copy_from_slice(part);
            let found = self.load(place.plus(at), width, false);
            self.go_on_unless(Cmp::Ne, found, i64::from_le_bytes(word), different);
        }
    }

    /// Location of a string of which only the first bytes are used; no more bytes are read.
    fn place_of_start(&mut self, string: &Expr, bytes: u32) -> Place {
        let capacity = self.size(&string.ty);
        match &string.kind {
            ExprKind::ReadStr { base, limit } if bytes < capacity => {
                // One byte more than the text, so that a longer string does not compare equal.
                let size = (bytes + 1).next_multiple_of(8).min(capacity);
                let place = self.temp(size);
                self.at(string.span, |body| body.read_string(base, limit.as_deref(), place, size));
                place
            }
            _ => self.place(string),
        }
    }

    fn equals_string(&mut self, lhs: &Expr, rhs: &Expr, limit: u32, different: BlockId) {
        let bytes = self.size(&lhs.ty).min(self.size(&rhs.ty)).min(limit);
        let (a, b) = (self.place(lhs), self.place(rhs));
        // strncmp stops at a NUL; after it both strings are zero, so all bytes up to the limit must be equal.
        if bytes <= UNROLLED_BYTES {
            return self.compare_memory(a, b, bytes, different);
        }
        self.compare_in_loop(a, b, bytes, different);
    }

    fn compare_in_loop(&mut self, a: Place, b: Place, bytes: u32, different: BlockId) {
        let (left, right) = (self.pointer(a), self.pointer(b));
        self.counted_loop(bytes, |body, index| {
            let left = body.b().bin(Bin::Add, left, index);
            let right = body.b().bin(Bin::Add, right, index);
            let left = body.b().load(left, 0, Width::B8, false);
            let right = body.b().load(right, 0, Width::B8, false);
            body.go_on_unless(Cmp::Ne, left, right, different);
        });
    }

    /// Jumps to `then` if the haystack contains the needle.
    fn string_contains(&mut self, haystack: &Expr, needle: &[u8], then: BlockId, otherwise: BlockId) {
        if self.is_long(haystack) {
            let position = self.search_long(haystack, needle);
            return self.b().branch(Cmp::Slt, position, 0, otherwise, then);
        }
        self.search(haystack, needle, |body, _| body.b().jump(then));
        self.b().jump(otherwise);
    }

    /// `strstr(haystack, needle)`: index of the needle, or -1.
    fn string_find(&mut self, haystack: &Expr, needle: &[u8]) -> VReg {
        if self.is_long(haystack) {
            return self.search_long(haystack, needle);
        }
        let result = self.b().copy(-1);
        let after = self.b().block();
        self.search(haystack, needle, |body, index| {
            let index = body.b().opaque(index);
            body.b().set(result, index);
            body.b().jump(after);
        });
        self.b().fall_into(after);
        result
    }

    /// Whether a search with branches would exceed the verifier's limits.
    fn is_long(&mut self, haystack: &Expr) -> bool {
        self.size(&haystack.ty) > BRANCHED_BYTES && !self.options().in_process()
    }

    fn search_long(&mut self, haystack: &Expr, needle: &[u8]) -> VReg {
        let ty = Type::Str(needle.len() as u32 + 1);
        let needle = Expr { kind: ExprKind::Str(needle.to_vec()), ty, span: haystack.span };
        self.string_search(haystack, &needle)
    }

    /// Searches for the needle. `found` gets the index and leaves the loop; without a match, execution continues
    /// after it.
    fn search(&mut self, haystack: &Expr, needle: &[u8], found: impl FnOnce(&mut Self, VReg)) {
        let capacity = self.size(&haystack.ty);
        let place = self.place(haystack);
        let needle_len = needle.len() as u32;
        let starts = capacity.saturating_sub(needle_len);
        let start = self.pointer(place);
        if !self.options().features.bpf_loop {
            return self.search_straight(start, starts, needle, found);
        }
        self.counted_loop(starts, |body, index| {
            let at = body.b().bin(Bin::Add, start, index);
            let next = body.b().block();
            let first = body.b().load(at, 0, Width::B8, false);
            body.go_on_unless(Cmp::Ne, first, i64::from(needle[0]), next);
            body.rest_equals(at, needle, next);
            found(body, index);
            body.b().switch_to(next);
        });
    }

    /// Continues if the bytes after the first equal the needle's. All are tested at once: the verifier follows
    /// every branch of every iteration, and gives up at 8192.
    fn rest_equals(&mut self, at: VReg, needle: &[u8], different: BlockId) {
        if needle.len() == 1 {
            return;
        }
        let difference = self.difference(at, needle, 1);
        self.go_on_unless(Cmp::Ne, difference, 0, different);
    }

    /// 0 if the bytes from number `first` on equal the needle's, otherwise a number below 256.
    fn difference(&mut self, at: VReg, needle: &[u8], first: usize) -> VReg {
        let difference = self.b().copy(0);
        for (offset, byte) in needle.iter().enumerate().skip(first) {
            let found = self.b().load(at, offset as i16, Width::B8, false);
            let bits = self.b().bin(Bin::Xor, found, i64::from(*byte));
            self.b().update(Bin::Or, difference, bits);
        }
        difference
    }

    /// `search` for kernels before 5.17: their verifier follows all remaining iterations from each branch, and gives
    /// up at a million instructions with a long haystack. Iterations without a branch count the positions before the
    /// first match.
    fn search_straight(
        &mut self,
        start: VReg,
        starts: u32,
        needle: &[u8],
        found: impl FnOnce(&mut Self, VReg),
    ) {
        let (missing, before) = (self.b().copy(1), self.b().copy(0));
        self.counted_loop(starts, |body, index| {
            let at = body.b().bin(Bin::Add, start, index);
            let difference = body.difference(at, needle, 0);
            body.b().update(Bin::Add, difference, 255);
            body.b().update(Bin::Shr, difference, 8);
            body.b().update(Bin::And, missing, difference);
            body.b().update(Bin::Add, before, missing);
        });
        let nowhere = self.b().block();
        self.go_on_unless(Cmp::Ne, missing, 0, nowhere);
        found(self, before);
        self.b().switch_to(nowhere);
    }

    /// `strstr(haystack, needle)` of a needle that is not a literal: Rabin-Karp. The hash of the needle is
    /// compared with the hash of each part of the haystack of the same length. A collision of 64 bits is too
    /// improbable to matter. There are no branches, since the verifier would follow each one in every iteration.
    fn string_search(&mut self, haystack: &Expr, needle: &Expr) -> VReg {
        let (room, most) = (self.size(&haystack.ty), self.size(&needle.ty));
        let before = most.next_multiple_of(8);
        // Zeroes before the haystack are the bytes that leave the window while it is being filled.
        let text = self.temp(before + room);
        self.zero(text, before);
        self.store_value(haystack, text.plus(before));
        let needle = self.place(needle);
        let NeedleHash { hash, power, length } = self.needle_hash(needle, most);
        let result = self.b().copy(0);
        let after = self.b().block();
        self.go_on_unless(Cmp::Eq, length, 0, after);
        self.b().set(result, -1);
        let (first, start) = (self.pointer(text), self.pointer(text.plus(before)));
        let distance = self.b().copy(i64::from(before));
        self.b().update(Bin::Sub, distance, length);
        let leaves = self.b().bin(Bin::Add, first, distance);
        let (part, missing, iterations) = (self.b().copy(0), self.b().copy(1), self.b().copy(0));
        self.counted_loop(room, |body, index| {
            let b = body.b();
            let at = b.bin(Bin::Add, start, index);
            let next = b.load(at, 0, Width::B8, false);
            let at = b.bin(Bin::Add, leaves, index);
            let last = b.load(at, 0, Width::B8, false);
            let last = b.bin(Bin::Mul, last, power);
            b.update(Bin::Mul, part, HASH_FACTOR as i64);
            b.update(Bin::Add, part, next);
            b.update(Bin::Sub, part, last);
            // The sign bit of a number or of its negative is set unless the number is 0.
            let difference = b.bin(Bin::Xor, part, hash);
            let negative = b.copy(0);
            b.update(Bin::Sub, negative, difference);
            b.update(Bin::Or, negative, difference);
            b.update(Bin::Shr, negative, 63);
            b.update(Bin::And, missing, negative);
            b.update(Bin::Add, iterations, missing);
        });
        self.go_on_unless(Cmp::Ne, missing, 0, after);
        let place = self.b().bin(Bin::Add, iterations, 1);
        self.b().update(Bin::Sub, place, length);
        self.b().set(result, place);
        self.b().fall_into(after);
        result
    }

    /// The hash of a text of at most `most` bytes.
    fn needle_hash(&mut self, text: Place, most: u32) -> NeedleHash {
        let start = self.pointer(text);
        let (hash, power, length) = (self.b().copy(0), self.b().copy(1), self.b().copy(0));
        self.counted_loop(most, |body, index| {
            let b = body.b();
            let at = b.bin(Bin::Add, start, index);
            let byte = b.load(at, 0, Width::B8, false);
            // 1 before the NUL, 0 from there on; then the factor is 1.
            let counts = b.bin(Bin::Add, byte, 255);
            b.update(Bin::Shr, counts, 8);
            let factor = b.bin(Bin::Mul, counts, (HASH_FACTOR - 1) as i64);
            b.update(Bin::Add, factor, 1);
            b.update(Bin::Mul, hash, factor);
            b.update(Bin::Add, hash, byte);
            b.update(Bin::Mul, power, factor);
            b.update(Bin::Add, length, counts);
        });
        NeedleHash { hash, power, length }
    }

    /// `strlen(text)`: the helper that copies the text returns its length.
    fn string_length(&mut self, text: &Expr) -> VReg {
        let capacity = self.size(&text.ty);
        let from = self.place(text);
        let mark = self.mark();
        let to = self.temp(capacity);
        let (to, from) = (self.pointer(to), self.pointer(from));
        let length = self.copy_text(to, from, capacity);
        self.release(mark);
        length
    }

    /// Hash of a text, equal to `hir::text_hash`.
    fn string_hash(&mut self, text: &Expr) -> VReg {
        let words = self.size(&text.ty) / 8;
        let from = self.place(text);
        let from = self.pointer(from);
        let hash = self.b().copy(HASH_START as i64);
        self.counted_loop(words, |body, index| {
            let b = body.b();
            let offset = b.bin(Bin::Shl, index, 3);
            let at = b.bin(Bin::Add, from, offset);
            let word = b.load(at, 0, Width::B64, false);
            b.update(Bin::Xor, hash, word);
            b.update(Bin::Mul, hash, HASH_FACTOR as i64);
            let high = b.bin(Bin::Shr, hash, i64::from(HASH_SHIFT));
            b.update(Bin::Xor, hash, high);
        });
        hash
    }

    /// Copies a string of at most `capacity` bytes; returns its length without the NUL.
    fn copy_text(&mut self, to: VReg, from: VReg, capacity: u32) -> VReg {
        let args = [to.into(), i64::from(capacity).into(), from.into()];
        let read = self.b().call(Helper::ProbeReadKernelStr, &args);
        let length = self.b().copy(0);
        let (some, after) = (self.b().block(), self.b().block());
        self.b().branch(Cmp::Sgt, read, 0, some, after);
        self.b().switch_to(some);
        let without_nul = self.b().bin(Bin::Sub, read, 1);
        self.b().set(length, without_nul);
        self.b().fall_into(after);
        length
    }

    /// `str_concat(a, b)` into memory of `size` bytes.
    fn concat(&mut self, lhs: &Expr, rhs: &Expr, to: Place, size: u32) {
        let (first, second) = (self.place(lhs), self.place(rhs));
        self.zero(to, size);
        let (start, first) = (self.pointer(to), self.pointer(first));
        let capacity = self.size(&lhs.ty);
        let length = self.copy_text(start, first, capacity);
        let (start, second) = (self.pointer(to), self.pointer(second));
        let behind = self.b().bin(Bin::Add, start, length);
        let capacity = i64::from(self.size(&rhs.ty));
        self.b().call_void(Helper::ProbeReadKernelStr, &[behind.into(), capacity.into(), second.into()]);
    }

    /// `tolower(a)`, `toupper(a)`: without a branch per letter, since the verifier would follow each one in every
    /// iteration.
    fn change_case(&mut self, text: &Expr, upper: bool, to: Place, size: u32) {
        const OTHER_CASE: i64 = 0x20;
        let from = i64::from(if upper { b'a' } else { b'A' });
        self.store_value(text, to);
        let start = self.pointer(to);
        self.counted_loop(size, |body, index| {
            let at = body.b().bin(Bin::Add, start, index);
            let byte = body.b().load(at, 0, Width::B8, false);
            // 1 if the byte is below the letters, and 1 if it is below their end: the bits differ for letters
            // only.
            let below = body.b().bin(Bin::Sub, byte, from);
            let below_end = body.b().bin(Bin::Sub, byte, from + 26);
            let differ = body.b().bin(Bin::Xor, below, below_end);
            let letter = body.b().bin(Bin::Shr, differ, 63);
            let bit = body.b().bin(Bin::Mul, letter, OTHER_CASE);
            let changed = body.b().bin(Bin::Xor, byte, bit);
            body.store(Place::behind(at), Width::B8, changed);
        });
    }

    /// `buf(p, n)`: the length, followed by the bytes.
    fn read_buffer(&mut self, base: &Expr, len: &Expr, to: Place, ty: &Type) {
        let address = self.scalar(base);
        let Type::Buf(capacity) = ty else { unreachable!("`buf` makes a buffer") };
        let size = self.size(ty);
        let len = self.read_size(Some(len), *capacity);
        let len = self.b().copy(len);
        self.zero(to, size);
        self.store(to, Width::B32, len);
        let at = self.pointer(to.plus(4));
        let space = self.space(base);
        let failed = self.read_bytes(BYTES, space, at, len.into(), address);
        // The kernel refuses some addresses even if no byte is read.
        let has_failed = self.b().bin(Bin::Mul, failed, len);
        self.count_if(Cmp::Ne, has_failed, 0, CounterKind::UserRead);
    }

    /// Appends a string to the tail of `record` at offset `end`, which is advanced, and stores its length at
    /// `field`.
    fn append_string(&mut self, expr: &Expr, record: Place, field: u32, end: VReg) {
        let capacity = self.size(&expr.ty);
        match &expr.kind {
            ExprKind::Str(text) => self.append_text(text, record, field, end),
            ExprKind::ReadStr { base, limit } => {
                self.append_read(base, limit.as_deref(), capacity, record, field, end);
            }
            _ => self.append_memory(expr, capacity, record, field, end),
        }
    }

    fn tail(&mut self, record: Place, end: VReg) -> VReg {
        let start = self.pointer(record);
        self.b().bin(Bin::Add, start, end)
    }

    fn append_text(&mut self, text: &[u8], record: Place, field: u32, end: VReg) {
        let tail = self.tail(record, end);
        let len = text.len() as u32;
        self.store_unaligned(Place::behind(tail), text);
        self.store(record.plus(field), Width::B16, i64::from(len));
        self.b().update(Bin::Add, end, i64::from(len));
    }

    /// Stores bytes at an unknown alignment, where the verifier requires alignment on the stack. Few bytes are
    /// stored one by one.
    fn store_unaligned(&mut self, place: Place, bytes: &[u8]) {
        const FEW: usize = 16;
        if bytes.len() > FEW {
            let offset = self.data(bytes);
            let from = self.b().data_addr(offset);
            return self.copy_by_helper(place, from, bytes.len() as u32);
        }
        for (at, byte) in bytes.iter().enumerate() {
            self.store(place.plus(at as u32), Width::B8, i64::from(*byte));
        }
    }

    fn append_memory(&mut self, expr: &Expr, capacity: u32, record: Place, field: u32, end: VReg) {
        let from = self.place(expr);
        let (tail, from) = (self.tail(record, end), self.pointer(from));
        let args = [tail.into(), i64::from(capacity).into(), from.into()];
        let read = self.b().call(Helper::ProbeReadKernelStr, &args);
        let len = self.b().copy(0);
        let (some, after) = (self.b().block(), self.b().block());
        self.b().branch(Cmp::Sgt, read, 0, some, after);
        self.b().switch_to(some);
        let without_nul = self.b().bin(Bin::Sub, read, 1);
        self.b().set(len, without_nul);
        self.b().fall_into(after);
        self.store(record.plus(field), Width::B16, len);
        self.b().update(Bin::Add, end, len);
    }

    fn append_read(
        &mut self,
        base: &Expr,
        limit: Option<&Expr>,
        capacity: u32,
        record: Place,
        field: u32,
        end: VReg,
    ) {
        let address = self.scalar(base);
        let size = self.read_size(limit, capacity);
        let tail = self.tail(record, end);
        let space = self.space(base);
        let read = self.read_bytes(TEXT, space, tail, size, address);
        let (len, word) = (self.b().copy(0), self.b().copy(0));
        let [some, failed, after] =
            [false, true, false].map(|cold| if cold { self.b().cold_block() } else { self.b().block() });
        self.b().branch(Cmp::Sgt, read, 0, some, failed);
        self.b().switch_to(some);
        let without_nul = self.b().bin(Bin::Sub, read, 1);
        self.b().set(len, without_nul);
        self.b().set(word, len);
        // A string that the script itself has limited with `str(p, n)` is not truncated.
        if capacity == self.max_strlen() {
            let [cut, fine] = [self.b().cold_block(), self.b().block()];
            self.b().branch(Cmp::Eq, read, i64::from(capacity), cut, fine);
            self.b().switch_to(cut);
            self.flag_if_longer(address, capacity, word, space);
            self.b().fall_into(fine);
        }
        self.b().jump(after);
        self.b().switch_to(failed);
        self.count_if(Cmp::Slt, read, 0, CounterKind::UserRead);
        self.b().fall_into(after);
        self.store(record.plus(field), Width::B16, word);
        self.b().update(Bin::Add, end, len);
    }

    /// Flags a string as truncated if it fills its capacity and no NUL follows.
    fn flag_if_longer(&mut self, address: Operand, capacity: u32, word: VReg, space: Space) {
        let last = self.b().bin(Bin::Add, address, i64::from(capacity - 1));
        let mark = self.mark();
        let place = self.temp(8);
        let to = self.pointer(place);
        self.read_bytes(BYTES, space, to, 1.into(), last.into());
        let byte = self.load(place, Width::B8, false);
        self.release(mark);
        let (longer, after) = (self.b().cold_block(), self.b().cold_block());
        self.b().branch(Cmp::Ne, byte, 0, longer, after);
        self.b().switch_to(longer);
        self.b().update(Bin::Or, word, i64::from(LENGTH_TRUNCATED));
        self.b().fall_into(after);
    }
}

impl<T: Operations> Strings for T {}

/// Largest record that is built on the stack, in bytes.
pub(super) const STACK_RECORD: u32 = 96;

impl Place {
    /// Whether the location is on the stack.
    pub(super) fn on_stack(&self) -> bool {
        matches!(self.base, Base::Slot(_) | Base::Frame)
    }
}

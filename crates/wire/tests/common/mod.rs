//! Random types and bytes, the same in each run.

use wire::types::{Lookup, Member, NameKind, StackMode, Struct, Type};

/// Deterministic pseudo-random numbers.
pub(crate) struct Numbers(pub u64);

impl Numbers {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Bytes.
    pub(crate) fn bytes(&mut self, length: u64) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }

    /// A random type, nested at most `depth` deep.
    pub(crate) fn ty(&mut self, depth: u32) -> Type {
        match self.below(if depth == 0 { 14 } else { 19 }) {
            0 => Type::Bool,
            1 | 2 => self.int(),
            3 => Type::Enum { id: self.next() as u32, signed: self.next().is_multiple_of(2) },
            4 => Type::Pointer,
            5 => Type::Str(self.below(64) as u32),
            6 => Type::Name(NameKind::Func),
            7 => Type::Usym,
            8 => Type::Stack { map: self.next() as u32, mode: StackMode::Raw },
            9 => Type::Chars(self.below(64) as u32),
            10 => Type::Timestamp("%H".into()),
            11 => Type::Lookup(Lookup::Comm),
            12 => Type::Buf(self.below(64) as u32),
            13 => Type::Inet,
            14 => Type::Array(Box::new(self.ty(depth - 1)), self.below(9) as u32),
            15 => Type::Either(self.types(depth)),
            16 => {
                let parts = self.types(depth);
                Type::Record((0..parts.len()).map(|at| format!("p{at}")).collect(), parts)
            }
            17 => self.structure(depth),
            _ => Type::Tuple(self.types(depth)),
        }
    }

    fn int(&mut self) -> Type {
        Type::Int { bytes: 1 << self.below(4), signed: self.below(2) == 0 }
    }

    fn types(&mut self, depth: u32) -> Vec<Type> {
        (0..1 + self.below(4)).map(|_| self.ty(depth - 1)).collect()
    }

    /// A struct with members at random offsets, which may overlap or be outside of it.
    fn structure(&mut self, depth: u32) -> Type {
        let member = |numbers: &mut Numbers| {
            let bit_field = numbers.below(3) == 0;
            let ty = if bit_field { numbers.int() } else { numbers.ty(depth - 1) };
            let bits = 8 * ty.size() as u64;
            let first = numbers.below(bits.max(1));
            let count = 1 + numbers.below(bits.saturating_sub(first).max(1));
            Member {
                name: "m".into(),
                offset: numbers.below(80) as u32,
                ty,
                bits: bit_field.then_some((first as u8, count as u8)),
            }
        };
        let members = (0..self.below(4)).map(|_| member(self)).collect();
        Type::Struct(Struct { size: self.below(80) as u32, align: 8, members })
    }
}

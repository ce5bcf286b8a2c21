//! Debug information of the program of the test machines: a pool of requests, in two units.
//!
//! ```text
//! enum state { IDLE, BUSY = 4 };
//! struct request { struct request *next; char name[16]; enum state state; unsigned urgent : 1; double cost; struct hidden *h; };
//! struct pair { long a; double b; };
//! int serve(struct request *r, struct pair limits, double rate, unsigned char kind);
//! struct { long[4] } totals(int n);      returned in memory
//! int early(__int128 id, int n);         nobody can tell where
//! void main(void);
//! long traced_recurse(long depth, long us);      of another program
//! ```

use std::sync::Arc;

use lang::catalog::debug_info::{Absent, Field, Function, Kind, Param, Type, TypeId, Unsure};
use lang::catalog::{FileId, KERNEL};

const INT: u64 = 1;
const LONG: u64 = 2;
const DOUBLE: u64 = 3;
const CHAR: u64 = 4;
const STATE: u64 = 5;
const REQUEST: u64 = 6;
const POINTER: u64 = 7;
const NAME: u64 = 8;
const PAIR: u64 = 9;
const BYTE: u64 = 10;
const HIDDEN: u64 = 11;
const TO_HIDDEN: u64 = 12;
const FOUR: u64 = 13;
const TOTALS: u64 = 14;
const WIDE: u64 = 15;
const UNSIGNED: u64 = 16;
const TO_CHAR: u64 = 17;
/// The second unit declares all types again.
const UNIT: u64 = 100;

/// The declaration of a function of the program.
pub(crate) fn function(file: FileId, symbol: &str) -> Result<Arc<Function>, Absent> {
    let ty = |at| TypeId { file, at };
    let param = |name: &str, at| Param { name: name.into(), ty: ty(at) };
    let of = |declared: &str, params: Vec<Param>, ret: Option<u64>| Function {
        declared: declared.into(),
        params,
        ret: ret.map(ty),
        hidden: false,
        unsure: None,
    };
    let serve = "int serve(struct request *r, struct pair limits, double rate, unsigned char kind)";
    let served = |unit| {
        let places = [("r", POINTER), ("limits", PAIR), ("rate", DOUBLE), ("kind", BYTE)];
        places.map(|(name, at)| param(name, unit + at)).to_vec()
    };
    let unsure = |from, why: &str| Some(Unsure { from, why: why.into() });
    Ok(Arc::new(match symbol {
        "serve" => of(serve, served(0), Some(INT)),
        "serve_all" => of("int serve_all(struct request *r)", served(UNIT)[..1].to_vec(), Some(INT)),
        "serve.isra.0" => Function {
            unsure: unsure(
                0,
                "the compiler made this copy of `serve` with other parameters than those declared",
            ),
            ..of(serve, served(0), Some(INT))
        },
        "totals" => of("struct totals totals(int n)", vec![param("n", INT)], Some(TOTALS)),
        "early" => Function {
            unsure: unsure(0, "where a `__int128` is passed is not known here"),
            ..of("int early(__int128 id, int n)", vec![param("id", WIDE), param("n", INT)], Some(INT))
        },
        "main" => of("void main(void)", Vec::new(), None),
        "traced_recurse" => {
            let params = vec![param("depth", LONG), param("us", LONG)];
            of("long traced_recurse(long depth, long us)", params, Some(LONG))
        }
        _ => return Err(Absent::NotDescribed),
    }))
}

/// The declaration of a function of the kernel.
pub(crate) fn kernel_function(symbol: &str) -> Result<Arc<Function>, Absent> {
    let ty = |at| TypeId { file: KERNEL, at };
    let param = |name: &str, at| Param { name: name.into(), ty: ty(at) };
    let (declared, params) = match symbol {
        "vfs_read" => (
            "long int vfs_read(struct request *file, char *buf, unsigned int count)",
            vec![param("file", POINTER), param("buf", TO_CHAR), param("count", UNSIGNED)],
        ),
        "nvidia_open" => ("int nvidia_open(struct request *file)", vec![param("file", POINTER)]),
        _ => return Err(Absent::NotDescribed),
    };
    let ret = Some(ty(LONG));
    Ok(Arc::new(Function { declared: declared.into(), params, ret, hidden: false, unsure: None }))
}

/// A type of the program.
pub(crate) fn ty(id: TypeId) -> Arc<Type> {
    let unit = id.at / UNIT * UNIT;
    let to = |at| TypeId { at: unit + at, ..id };
    let field = |name: &str, offset, at, bits| Field { name: name.into(), offset, ty: to(at), bits };
    let int = |bytes, signed| Kind::Int { bytes, signed };
    let (name, kind) = match id.at % UNIT {
        INT => ("int", int(4, true)),
        UNSIGNED => ("unsigned int", int(4, false)),
        LONG => ("long", int(8, true)),
        CHAR => ("char", int(1, true)),
        BYTE => ("unsigned char", int(1, false)),
        DOUBLE => ("double", Kind::Float { bytes: 8 }),
        WIDE => ("__int128", Kind::Other { size: 16 }),
        STATE => {
            let variants = vec![("IDLE".into(), 0), ("BUSY".into(), 4)];
            ("state", Kind::Enum { bytes: 4, signed: false, variants })
        }
        TO_CHAR => ("", Kind::Pointer(Some(to(CHAR)))),
        POINTER => ("", Kind::Pointer(Some(to(REQUEST)))),
        TO_HIDDEN => ("", Kind::Pointer(Some(to(HIDDEN)))),
        HIDDEN => ("hidden", Kind::Struct { size: 0, fields: Vec::new() }),
        NAME => ("", Kind::Array(to(CHAR), 16)),
        FOUR => ("", Kind::Array(to(LONG), 4)),
        TOTALS => ("totals", Kind::Struct { size: 32, fields: vec![field("v", 0, FOUR, None)] }),
        PAIR => {
            let fields = vec![field("a", 0, LONG, None), field("b", 8, DOUBLE, None)];
            ("pair", Kind::Struct { size: 16, fields })
        }
        REQUEST => {
            let fields = vec![
                field("next", 0, POINTER, None),
                field("name", 8, NAME, None),
                field("state", 24, STATE, None),
                field("urgent", 28, UNSIGNED, Some((0, 1))),
                field("cost", 32, DOUBLE, None),
                field("h", 40, TO_HIDDEN, None),
            ];
            ("request", Kind::Struct { size: 48, fields })
        }
        _ => ("", Kind::Void),
    };
    Arc::new(Type { name: name.into(), kind })
}

/// The number of a type, by its name.
pub(crate) fn named(file: FileId, name: &str) -> Option<TypeId> {
    let at =
        [("request", REQUEST), ("pair", PAIR), ("state", STATE)].iter().find(|(known, _)| *known == name)?.1;
    Some(TypeId { file, at })
}

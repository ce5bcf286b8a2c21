"""Writes the tables under ../src/api from the cuda-bindings wheel and extra.toml.

Read from the wheel (Apache-2.0): functions from _internal/{driver,runtime}.pxd, types from {cydriver,cyruntime}.pxd,
the values of enums and preprocessor constants by importing cuda.bindings. Read from extra.toml: what the wheel lacks.
See README.md for how to run it. The output depends on these inputs alone: running it twice gives the same bytes.
"""

import importlib
import re
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
API = HERE.parent / "src" / "api"

# Kind and size of C's own types under LP64 (x86-64 and aarch64 Linux).
BASE = {
    "void": ("Void", 0),
    "bool": ("Bool", 1),
    "char": ("Int { bytes: 1, signed: true }", 1),
    "signed char": ("Int { bytes: 1, signed: true }", 1),
    "unsigned char": ("Int { bytes: 1, signed: false }", 1),
    "short": ("Int { bytes: 2, signed: true }", 2),
    "unsigned short": ("Int { bytes: 2, signed: false }", 2),
    "int": ("Int { bytes: 4, signed: true }", 4),
    "unsigned int": ("Int { bytes: 4, signed: false }", 4),
    "long": ("Int { bytes: 8, signed: true }", 8),
    "unsigned long": ("Int { bytes: 8, signed: false }", 8),
    "long long": ("Int { bytes: 8, signed: true }", 8),
    "unsigned long long": ("Int { bytes: 8, signed: false }", 8),
    "int8_t": ("Int { bytes: 1, signed: true }", 1),
    "uint8_t": ("Int { bytes: 1, signed: false }", 1),
    "int16_t": ("Int { bytes: 2, signed: true }", 2),
    "uint16_t": ("Int { bytes: 2, signed: false }", 2),
    "int32_t": ("Int { bytes: 4, signed: true }", 4),
    "uint32_t": ("Int { bytes: 4, signed: false }", 4),
    "int64_t": ("Int { bytes: 8, signed: true }", 8),
    "uint64_t": ("Int { bytes: 8, signed: false }", 8),
    "size_t": ("Int { bytes: 8, signed: false }", 8),
    "float": ("Float { bytes: 4 }", 4),
    "double": ("Float { bytes: 8 }", 8),
}


@dataclass
class Record:
    """A struct or union: its name and its (type, name) members, or none for an opaque one."""

    name: str
    is_union: bool
    members: list = field(default_factory=list)
    laid_out: tuple = None  # (size, align, [(name, offset, type)])


@dataclass
class Enum:
    name: str
    values: list  # (name, value) in the order of the definition


@dataclass
class Function:
    name: str
    ret: str
    params: list  # (type, name)
    majors: tuple = None


class World:
    """Everything read so far, by name."""

    def __init__(self):
        self.records, self.enums, self.typedefs, self.callbacks = {}, {}, {}, set()
        self.placed = {}  # nameless types that the wheel gave a name without a place
        self.functions = {"driver": [], "runtime": [], "nccl": []}
        self.macros = {}


# ---------------------------------------------------------------- reading


def split_declarator(text):
    """`const CUlaunchConfig* config` -> ("const CUlaunchConfig *", "config"); arrays become part of the type."""
    text = re.sub(r"\s+", " ", text.strip())
    m = re.fullmatch(r"(.*?[\s*])(\w+)((?:\[\d+\])*)", text)
    base, name, arrays = m[1], m[2], m[3]
    # `from` is a keyword of Python.
    name = "from" if name == "from_" else name
    return c_type(base + arrays), name


def c_type(text):
    """One spelling for each type: `const char**` -> `const char **`, `unsigned` -> `unsigned int`."""
    arrays = "".join(re.findall(r"\[\d+\]", text))
    text = re.sub(r"\[\d+\]", "", text)
    stars = text.count("*")
    base = re.sub(r"\b(struct|enum|union)\b|\*", " ", text)
    # `T *const *` says that the callee leaves the pointers alone: the const of the whole is what matters here.
    const = re.search(r"\bconst\b", base) is not None
    base = " ".join(re.sub(r"\bconst\b", " ", base).split())
    base = "unsigned int" if base == "unsigned" else base
    out = ("const " if const and stars else "") + base
    out += " " + "*" * stars if stars else ""
    return out + (" " + arrays if arrays else "")


def place_name(c_name):
    """The C name of a nameless type is a decltype expression; call it by its place: `CUDA_RESOURCE_DESC.res`."""
    m = re.search(r"\(\((\w+)\*\)0\)->([\w.]+)\)", c_name)
    return f"{m[1]}.{m[2]}" if m else None


def read_types(world, text, enum_values):
    """Reads the type definitions of a .pxd file."""
    text = re.sub(r"#.*", "", text)
    lines = text.split("\n")
    at = 0
    rename = {}
    while at < len(lines):
        line = lines[at].strip()
        at += 1
        if m := re.fullmatch(r"(?:cdef|ctypedef) (enum|struct|union) (\w+)(?: ['\"](.*)['\"])?:", line):
            what, tag, c_name = m.groups()
            indent = len(lines[at - 1]) - len(lines[at - 1].lstrip())
            body = []
            while at < len(lines) and (not lines[at].strip() or len(lines[at]) - len(lines[at].lstrip()) > indent):
                if lines[at].strip() not in ("", "pass"):
                    body.append(lines[at].strip())
                at += 1
            if what == "enum":
                world.enums.setdefault(tag, Enum(tag, enum_body(tag, body, enum_values)))
                continue
            name = (c_name and place_name(c_name)) or world.placed.get(tag, tag)
            rename[tag] = name
            members = [split_declarator(member) for member in body]
            known = world.records.get(name)
            if known is None or not known.members:
                world.records[name] = Record(name, what == "union", members)
        elif m := re.match(r"ctypedef [\w *]*?\(\*(\w+)", line):
            world.callbacks.add(m[1])
        elif m := re.fullmatch(r"ctypedef ([\w ]+?[\s*]+)(\w+)(?: ['\"]\w+['\"])?", line):
            world.typedefs.setdefault(m[2], c_type(m[1]))
    for record in world.records.values():
        record.members = [(renamed(t, rename), n) for t, n in record.members]
    for name, target in list(world.typedefs.items()):
        world.typedefs[name] = renamed(target, rename)


def renamed(text, rename):
    return re.sub(r"\w+", lambda m: rename.get(m[0], m[0]), text)


def enum_body(tag, body, enum_values):
    """Names from the file, values from the imported module, which has them as the headers define them.

    The file also has names that 12.9 had and 13.5 does not: their values are in extra.toml, or they are left out.
    """
    out = []
    for line in body:
        name, _, value = (part.strip() for part in re.sub(r'".*"', "", line).partition("="))
        if value or name in enum_values:
            out.append((name, int(value, 0) if value else enum_values[name]))
        else:
            print(f"left out: {name} of {tag} has no value in this version", file=sys.stderr)
    return out


def read_values(module_name):
    """The values of all enum members, and the preprocessor constants."""
    module = importlib.import_module(module_name)
    values, macros = {}, {}
    for name, thing in vars(module).items():
        if hasattr(thing, "__members__"):
            values.update({member: int(value) for member, value in thing.__members__.items()})
        elif isinstance(thing, int) and re.match(r"CU|cuda|MAX_PLANES", name) and not name.endswith("_AS_INT"):
            macros[name] = int(thing)
    return values, macros


def read_prototype(text):
    m = re.fullmatch(r"(.*?[\s*])(\w+)\((.*)\)", re.sub(r"\s+", " ", text.strip()))
    params = [split_declarator(p) for p in m[3].split(",") if p.strip() not in ("", "void")]
    return Function(m[2], c_type(m[1]), params)


def read_functions(text):
    """The wrappers of _internal/*.pxd: `cdef RET _SYMBOL(PARAMS) except ...`."""
    for m in re.finditer(r"^cdef (.*?[\s*])_(cu\w+)\((.*?)\) except", text, re.M):
        yield read_prototype(f"{m[1]}{m[2]}({m[3]})")


def read_extra(world, extra):
    world.typedefs.update({name: c_type(target) for name, target in extra["typedefs"].items()})
    for name in extra["opaque"]:
        world.records.setdefault(name, Record(name, False))
    for name, text in extra["structs"].items():
        world.records[name] = Record(name, False, [split_declarator(m) for m in text.split(";") if m.strip()])
    for name, values in extra["enums"].items():
        world.enums[name] = Enum(name, list(values.items()))
    for group in extra["functions"]:
        for line in filter(None, map(str.strip, group["prototypes"].split(";"))):
            function = read_prototype(line)
            function.majors = tuple(group["majors"]) if "majors" in group else None
            world.functions[group["library"]].append(function)


# ---------------------------------------------------------------- laying out


class Layout:
    """Sizes, alignments and offsets by the rules of the C ABI: natural alignment, size a multiple of the alignment."""

    def __init__(self, world, extra):
        self.world = world
        self.align_as = extra["align"]
        self.anonymous = extra["anonymous_unions"]

    def resolve(self, name):
        """Through typedefs, to a C type that is none."""
        seen = name
        while True:
            bare = re.sub(r"^const ", "", seen)
            if bare in self.world.typedefs:
                seen = self.world.typedefs[bare]
            else:
                return bare

    def size_align(self, t):
        if m := re.fullmatch(r"(.*?) ?\[(\d+)\](.*)", t):
            size, align = self.size_align((m[1] + (" " + m[3] if m[3] else "")).strip())
            return size * int(m[2]), align
        t = self.resolve(t)
        if t.endswith("]"):
            return self.size_align(t)
        if t.endswith("*") or t in self.world.callbacks:
            return 8, 8
        if t in BASE:
            return BASE[t][1], BASE[t][1]
        if t in self.world.enums:
            return 4, 4
        record = self.world.records[t]
        if not record.members:
            raise SystemExit(f"{t} has no members, so it has no size")
        size, align, _ = self.fields(record)
        return size, align

    def fields(self, record):
        if record.laid_out is None:
            record.laid_out = self.lay_out(record)
        return record.laid_out

    def lay_out(self, record):
        # Cython writes the members of a nameless union as if they followed each other. `anonymous_unions` says from
        # which to which member they overlay.
        spans = self.anonymous.get(record.name, [])
        names = [name for _, name in record.members]
        for span in spans:
            for end in span:
                if end not in names:
                    raise SystemExit(f"anonymous_unions: {record.name} has no member {end}")
        end, align, fields, overlay = 0, 1, [], None
        for t, name in record.members:
            size, member_align = self.size_align(t)
            align = max(align, member_align)
            for first, last in spans:
                if name == first:
                    inside = [s for s in record.members[names.index(first) : names.index(last) + 1]]
                    start = up(end, max(self.size_align(s)[1] for s, _ in inside))
                    overlay = (start, last)
            start = 0 if record.is_union else overlay[0] if overlay else up(end, member_align)
            end = max(end, start + size)
            fields.append((name, start, t))
            if overlay and overlay[1] == name:
                overlay = None
        align = self.align_as.get(record.name, align)
        return up(end, align), align, fields


def up(value, align):
    return -(-value // align) * align


# ---------------------------------------------------------------- directions


def direction(function, t, name, rules):
    """A non-const pointer to a typed thing is filled by the callee, unless extra.toml says otherwise."""
    if "*" not in t:
        return "i"
    for rule in rules["rule"]:
        if name in rule["params"] and re.fullmatch(rule["functions"], function):
            return rule["dir"]
    if re.fullmatch(r"const [\w .]+ \*", t) or t == "void *":
        return "i"
    if re.fullmatch(r"void \*+", t) and name in rules["void_in"]:
        return "i"
    return "o"


# ---------------------------------------------------------------- writing


class Writer:
    """Interns types and writes the tables."""

    def __init__(self, world, layout, rules):
        self.world, self.layout, self.rules = world, layout, rules
        self.idents, self.kinds = {}, {}  # by C type, in the order of first use
        self.canonical = self.canonical_names()
        self.records = sorted((r for r in world.records.values() if r.members), key=lambda r: self.canonical[r.name])
        self.record_ids = {r.name: at for at, r in enumerate(self.records)}
        self.enums = sorted(world.enums.values(), key=lambda e: self.canonical[e.name])
        self.enum_ids = {e.name: at for at, e in enumerate(self.enums)}

    def canonical_names(self):
        """Of tag and typedefs of a struct or enum, the one that C programs write."""
        aliases = {}
        for name, target in self.world.typedefs.items():
            target = self.layout.resolve(target)
            aliases.setdefault(target, []).append(name)
        out = {}
        for name in [*self.world.records, *self.world.enums]:
            others = aliases.get(name, [])
            stem = re.sub(r"_(st|enum|union|struct)$", "", name)
            preferred = [n for n in (stem, stem + "_t") if n in others]
            shortest = sorted(others, key=lambda n: (len(n), n))[:1]
            is_tag = stem != name or (name + "_t") in others
            out[name] = (preferred or shortest or [name])[0] if is_tag else name
        return out

    def type_id(self, t):
        """The Rust constant of a C type, interned."""
        if t not in self.idents:
            ident = t.replace("const ", "c_").replace(" *", "_p").replace("*", "p")
            self.idents[t] = re.sub(r"\W+", "_", ident).strip("_")
            self.kinds[t] = self.kind(t)
        return self.idents[t]

    def kind(self, t):
        if m := re.fullmatch(r"(.*?) ?\[(\d+)\](.*)", t):
            return f"Array({self.type_id((m[1] + (' ' + m[3] if m[3] else '')).strip())}, {m[2]})"
        bare = re.sub(r"^const ", "", t)
        if t == "const char *":
            return "String"
        if bare.endswith("*"):
            target = re.sub(r"^const (?=\w+ \*$)", "", t)[:-1].strip()
            if self.is_opaque(self.layout.resolve(target)):
                return "Handle"
            return f"Pointer({self.type_id(target)})"
        if bare in self.world.callbacks:
            return "Function"
        if bare in self.world.typedefs:
            return self.kind(self.layout.resolve(bare))
        if bare in BASE:
            return BASE[bare][0]
        if bare in self.world.enums:
            return f"Enum(EnumId({self.enum_ids[bare]}))"
        if self.is_opaque(bare):
            return "Void"
        if bare not in self.record_ids:
            raise SystemExit(f"{t}: unknown type")
        return f"Struct(StructId({self.record_ids[bare]}))"

    def is_opaque(self, name):
        record = self.world.records.get(name)
        return record is not None and not record.members

    def signature(self, function, majors):
        params = ", ".join(
            f'{direction(function.name, t, n, self.rules)}("{n}", {self.type_id(t)})' for t, n in function.params
        )
        return f's("{function.name}", {majors}, &[{params}], {self.type_id(function.ret)}),'

    def functions(self, library, constructor, static, doc):
        rows = {}
        for f in self.world.functions[library]:
            rows.setdefault(f.name, []).append(f)
        out = []
        for name in sorted(rows):
            bounded = [f for f in rows[name] if f.majors]
            newest = [f for f in rows[name] if not f.majors]
            if len(newest) > 1:
                raise SystemExit(f"{name} is defined twice")
            since = 1 + max((f.majors[1] for f in bounded), default=-1)
            for f in sorted(bounded, key=lambda f: f.majors):
                out.append(self.signature(f, f"({f.majors[0]}, {f.majors[1]})"))
            out += [self.signature(f, f"({since}, u32::MAX)" if since else "ALL") for f in newest]
        rows = "\n".join("    " + row for row in out)
        return f"""{doc}

use super::defs::*;
use super::{used(rows)};
use crate::library::Library;
use crate::types::TypeId;

const ALL: (u32, u32) = (0, u32::MAX);

const fn s(name: &'static str, majors: (u32, u32), params: &'static [Param], ret: TypeId) -> Signature {{
    Signature {{ name, library: Library::{constructor}, majors, params, ret }}
}}

/// Sorted by symbol, then by version.
pub(super) static {static}: &[Signature] = &[
{rows}
];
"""

    def structs(self):
        for r in self.records:
            size, align, fields = self.layout.fields(r)
            body = ", ".join(f'f("{n}", {offset}, {self.type_id(t)})' for n, offset, t in fields)
            yield (
                f'    Struct {{ name: "{self.canonical[r.name]}", size: {size}, align: {align}, '
                f"is_union: {'true' if r.is_union else 'false'}, fields: &[{body}] }},"
            )

    def enum_rows(self):
        for e in self.enums:
            signed = "true" if any(v < 0 for _, v in e.values) else "false"
            body = ", ".join(f'("{n}", {v})' for n, v in self.by_value(e))
            yield f'    Enum {{ name: "{self.canonical[e.name]}", signed: {signed}, variants: &[{body}] }},'

    @staticmethod
    def by_value(enum):
        return sorted(enum.values, key=lambda entry: entry[1])

    def constants(self):
        found = {}
        for at, e in enumerate(self.enums):
            for index, (name, value) in enumerate(self.by_value(e)):
                if name in found and found[name][2] != value:
                    raise SystemExit(f"{name} has two values")
                found.setdefault(name, (at, index, value))
        return [f"({at}, {index})" for _, (at, index, _) in sorted(found.items())]

    def names(self):
        """Every type that a script can name: typedefs, structs and enums by tag and by name, C's own."""
        out = {}
        for name in [*BASE, *self.world.typedefs, *self.world.records, *self.world.enums, *self.world.callbacks]:
            if not self.is_opaque(name) and "." not in name:
                out[name] = self.type_id(self.canonical.get(name, name))
        return [f'    ("{name}", {ident}),' for name, ident in sorted(out.items())]

    def defs(self, doc):
        for name in (self.canonical[n] for n in [*self.world.records, *self.world.enums]):
            if not self.is_opaque(self.layout.resolve(name)):
                self.type_id(name)
        structs, enums, names = list(self.structs()), list(self.enum_rows()), self.names()
        types = "\n".join(f'    {self.idents[t]} "{t}" {kind};' for t, kind in self.kinds.items())
        macros = "\n".join(f'    ("{n}", {v}),' for n, v in sorted(self.world.macros.items()))
        lines = "\n".join
        return f"""{doc}

#![allow(non_camel_case_types, non_upper_case_globals, missing_docs)]

use crate::types::{{Enum, EnumId, Field, Kind::*, Struct, StructId, Type, TypeId}};

/// Rows of the table of types: the constant with the id, the name in C, the kind.
macro_rules! types {{
    ($($id:ident $c_name:literal $kind:expr;)*) => {{
        enum Position {{ $($id),* }}
        $(pub(crate) const $id: TypeId = TypeId(Position::$id as u16);)*
        pub(crate) static TYPES: &[Type] = &[$(Type {{ c_name: $c_name, kind: $kind }}),*];
    }};
}}

types! {{
{types}
}}

const fn f(name: &'static str, offset: u32, ty: TypeId) -> Field {{
    Field {{ name, offset, ty }}
}}

pub(crate) static STRUCTS: &[Struct] = &[
{lines(structs)}
];

pub(crate) static ENUMS: &[Enum] = &[
{lines(enums)}
];

/// (enum, variant), sorted by the variant's name.
pub(crate) static CONSTANTS: &[(u16, u16)] = &[
{wrap(self.constants())}
];

/// Names of types, sorted.
pub(crate) static NAMES: &[(&str, TypeId)] = &[
{lines(names)}
];

/// Preprocessor constants, sorted by name.
pub(crate) static MACROS: &[(&str, i64)] = &[
{macros}
];
"""


def used(rows):
    """Of the argument constructors, those that a table uses."""
    names = [n for n in ("i", "io", "o") if re.search(rf"\b{n}\(", rows)]
    return "{" + ", ".join(["Param", "Signature", *names]) + "}"


def wrap(items, width=116):
    lines, line = [], "    "
    for item in items:
        if len(line) + len(item) + 2 > width:
            lines.append(line.rstrip())
            line = "    "
        line += item + ", "
    return "\n".join([*lines, line.rstrip()])


def header(what, version):
    return f"""//! {what}
//!
//! Generated by `gen/generate.py` from cuda-bindings {version} (Copyright NVIDIA CORPORATION & AFFILIATES, Apache-2.0),
//! which describes CUDA 12.9 to 13.5, and from `gen/extra.toml`. Do not edit."""


def main():
    if len(sys.argv) != 2:
        raise SystemExit("usage: generate.py DIR, where DIR holds the unzipped cuda-bindings and cuda-pathfinder")
    root = Path(sys.argv[1]) / "cuda" / "bindings"
    sys.path.insert(0, sys.argv[1])
    version = importlib.import_module("cuda.bindings").__version__
    extra = tomllib.loads((HERE / "extra.toml").read_text())

    world = World()
    world.placed = extra["placed"]
    for library, prefix in (("driver", "cydriver"), ("runtime", "cyruntime")):
        values, macros = read_values(f"cuda.bindings.{library}")
        world.macros.update(macros)
        values.update(extra["older_constants"])
        read_types(world, (root / f"{prefix}.pxd").read_text(), values)
        world.functions[library] += read_functions((root / "_internal" / f"{library}.pxd").read_text())
    world.functions["runtime"] += read_functions((root / "_lib" / "cyruntime" / "cyruntime.pxd").read_text())
    read_extra(world, extra)

    writer = Writer(world, Layout(world, extra), extra["directions"])
    write("driver.rs", writer.functions("driver", "Driver", "DRIVER", header("The driver API, libcuda.", version)))
    write("runtime.rs", writer.functions("runtime", "Runtime", "RUNTIME", header("The runtime API, libcudart.", version)))
    write("nccl.rs", writer.functions("nccl", "Nccl", "NCCL", header("NCCL, by hand from its documentation.", version)))
    write("defs.rs", writer.defs(header("Types, structs, enums and constants.", version)))


def write(name, text):
    (API / name).write_text(text)
    print(f"{name}: {len(text.splitlines())} lines")


main()

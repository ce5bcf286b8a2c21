"""Writes ../src/ioctls/tables.rs from the ctypes bindings of NVIDIA's open kernel modules in the tinygrad wheel (MIT), and
ioctls.toml. The bindings are one file per driver release. See README.md for how to run it.

The names of fields follow the rules in `field_name`. Of each struct, the fields with a simple type are kept: numbers,
addresses, UUIDs, text.
"""

import ast
import importlib
import re
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "src" / "ioctls" / "tables.rs"
RELEASES = (570, 580, 610)

KINDS = {
    "NvHandle": "U32",
    "NvU8": "U8",
    "NvU16": "U16",
    "NvU32": "U32",
    "NvV32": "U32",
    "NvU64": "U64",
    "NvS16": "I16",
    "NvS32": "I32",
    "NvBool": "Bool",
    "NvP64": "Pointer",
    "NV_STATUS": "Status",
    "NvProcessorUuid": "Uuid",
    "uint8_t": "U8",
    "uint64_t": "U64",
    "int32_t": "I32",
    "ctypes.c_int32": "I32",
}

# Kinds of fields whose type in the headers is only a number.
KINDS_BY_NAME = {"status": "Status", "class": "Class", "cmd": "Control", "fd": "I32", "uvm_fd": "I32"}

# The bare names that are not the result of the rules.
RENAMED = {
    "hObjectParent": "parent",
    "hRoot": "client",
    "hVASpace": "va_space",
    "pAllocParms": "params",
    "requestedBase": "base",
    "rmStatus": "status",
}


def field_name(c_name, renamed):
    """`hObjectNew` is `object_new`, `pMemory` is `memory`, `gpuUuid` is `gpu_uuid`."""
    if c_name in renamed or c_name in RENAMED:
        return renamed.get(c_name) or RENAMED[c_name]
    bare = re.sub(r"^(h|p|ph|b)(?=[A-Z])", "", c_name)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", bare).lower()


class Release:
    """The bindings of one driver release."""

    def __init__(self, bindings, number):
        self.number = number
        self.values = vars(importlib.import_module(f"tinygrad.runtime.autogen.nv_{number}"))
        self.text = (bindings / f"tinygrad/runtime/autogen/nv_{number}.py").read_text()
        self.structs, self.aliases = {}, {}
        for node in ast.parse(self.text).body:
            match node:
                case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "register_fields"), [ast.List(fields)])):
                    self.structs[name] = [
                        (f.elts[0].value, ast.unparse(f.elts[1]), f.elts[2].value) for f in fields if len(f.elts) == 3
                    ]
                case ast.AnnAssign(target=ast.Name(name), annotation=ast.Name("TypeAlias"), value=ast.Name(of)):
                    self.aliases[name] = of

    def fields(self, struct, renamed, base=0):
        """(name, offset, kind) of the fields with a simple type; a struct called `params` is taken apart."""
        struct = self.aliases.get(struct, struct)
        for c_name, ty, offset in self.structs[struct]:
            if c_name == "params" and ty in self.structs:
                yield from self.fields(ty, renamed, base + offset)
                continue
            name = field_name(c_name, renamed)
            text = re.fullmatch(r"c\.Array\[ctypes\.c_char, Literal\[(\d+)\]\]", ty)
            kind = f"Text({text[1]})" if text else KINDS.get(ty)
            if kind == "U32":
                kind = KINDS_BY_NAME.get(name, kind)
            if kind:
                yield name, base + offset, kind

    def form(self, struct, renamed):
        if self.aliases.get(struct, struct) not in self.structs:
            return None
        return self.values[struct].SIZE, tuple(self.fields(struct, renamed))

    def numbers(self, prefix):
        """Names and values of the constants that begin with a prefix, in the order of the headers."""
        names = re.findall(rf"^({prefix}\w+) = ", self.text, re.M)
        return {name: self.values[name] for name in names if isinstance(self.values[name], int)}

    def classes(self):
        """The constants of the header that lists all classes, which comes last."""
        return {name: self.values[name] for name in re.findall(r"^(\w+) = \(0x[0-9a-f]{8}\)$", self.after_last_level(), re.M)}

    def after_last_level(self):
        return self.text[self.text.rindex("\nNV_STATUS_LEVEL_") :]

    def controls(self):
        """Commands that a program can send, without those for the resource manager's own use and parts of commands."""

        def is_command(name, value):
            known = re.match(r"NV(?:_CONF_COMPUTE|([0-9A-F]{4}))_CTRL_(CMD_)?", name)
            of_class = int(known[1] or "CB33", 16) if known else -1
            if not known or not of_class and not known[2]:
                return False
            is_part = re.search(r"_INTERNAL|_SYSTEM_(GPS|PFM_REQ_HNDLR)_(SYS|DATA)_", name)
            return value >> 16 == of_class and value & 0xFF00 and value & 0xFF and not is_part

        written = re.findall(r"^(NV\w+) = \(0x[0-9a-f]+\)$", self.text, re.M)
        return {name: self.values[name] for name in written if is_command(name, self.values[name])}


def joined(tables):
    """The union of the releases' tables, the newest names and values first."""
    union = {}
    for table in reversed(list(tables)):
        union |= {name: value for name, value in table.items() if name not in union}
    return union


def forms(releases, structs, renamed, bare):
    """The layouts of an ioctl's argument, the newest first. `bare`: the number of the ioctl does not contain the size, and
    layouts are told apart by the first release that has them."""
    found = []
    for struct in structs:
        for release in releases:
            form = release.form(struct, renamed)
            if form is None:
                continue
            size, fields = form
            same = next((at for at, (known, _, _) in enumerate(found) if known == size and not bare), None)
            if bare and found and found[-1][2] == fields:
                continue
            if same is not None:
                # A field that was added in the padding of a release with the same layout.
                assert set(found[same][2]) <= set(fields), (struct, found[same], fields)
                found[same] = (size, found[same][1], fields)
            else:
                found.append((size, release.number if found and bare else 0, fields))
    return found[::-1]


def rust_ioctls(name, rows):
    lines = [f"pub(super) static {name}: &[Ioctl] = &["]
    for ioctl, number, layouts in rows:
        lines.append(f'    Ioctl {{ name: "{ioctl}", number: {number:#x}, forms: &[')
        for size, since, fields in layouts:
            lines.append(f"        Form {{ size: {size}, since: {since}, fields: &[")
            lines += [f'            f("{field}", {offset}, {kind}),' for field, offset, kind in fields]
            lines.append("        ] },")
        lines.append("    ] },")
    return lines + ["];", ""]


def rust_names(name, table):
    """One line per name, in the order of the numbers."""
    lines = [f"pub(super) static {name}: &str = \"\\"]
    rows = sorted(table.items(), key=lambda row: row[1])
    return lines + [f"{value:x} {known}\\n\\" for known, value in rows] + ['";', ""]


def main(bindings):
    sys.path.insert(0, str(bindings))
    releases = [Release(bindings, number) for number in RELEASES]
    given = tomllib.loads((HERE / "ioctls.toml").read_text())
    escapes = joined(release.numbers("NV_ESC_") for release in releases)
    nvidia = []
    for name, number in sorted(escapes.items(), key=lambda row: row[1]):
        if name in given["left_out"]:
            continue
        row = given["nvidia"].get(name, {})
        nvidia.append((name, number, forms(releases, row.get("structs", []), row.get("fields", {}), False)))
    unknown = set(given["nvidia"]) - {name for name, *_ in nvidia}
    assert not unknown, unknown

    def is_ioctl(release, name):
        return f"{name}_PARAMS" in release.structs or f"{name}_PARAMS" in release.aliases or name in given["without_argument"]

    numbers = {}
    for release in releases:
        known = release.numbers("UVM_")
        numbers |= {name: value for name, value in known.items() if is_ioctl(release, name)}
    uvm = []
    for name, number in sorted(numbers.items(), key=lambda row: row[1]):
        renamed = given["uvm"].get(name, {}).get("fields", {})
        uvm.append((name, number, forms(releases, [f"{name}_PARAMS"], renamed, True)))

    kinds = {}
    for name, _, layouts in nvidia + uvm:
        for _, _, fields in layouts:
            for field, _, kind in fields:
                group = re.sub(r"^[UI]\d+$", lambda m: m[0][0], kind)
                assert kinds.setdefault(field, group) == group, (name, field, kind, kinds[field])

    statuses = joined(
        {name: value for value, name in release.values["nv_status_codes"].items()} for release in releases
    )
    controls = joined([given["controls"], *(release.controls() for release in releases)])
    lines = [
        "//! Ioctls of NVIDIA's kernel driver, of the releases 570, 580 and 610.",
        "//!",
        "//! Generated by gen/ioctls.py: do not edit.",
        "",
        "use super::Kind::*;",
        "use super::{Form, I16, I32, Ioctl, U8, U32, U64, field as f};",
        "",
        *rust_ioctls("NVIDIA", nvidia),
        *rust_ioctls("UVM", uvm),
        *rust_names("STATUSES", statuses),
        *rust_names("CLASSES", joined(release.classes() for release in releases)),
        *rust_names("CONTROLS", controls),
    ]
    OUT.write_text("\n".join(lines[:-1]) + "\n")


main(Path(sys.argv[1]))

//! Ioctls of NVIDIA's kernel driver: names, numbers, the layouts of their arguments, and the names of the values in them.
//!
//! ```text
//! ioctl:nvidia:NV_ESC_RM_CONTROL   0x2a   cmd at 8, status at 28 ...     on /dev/nvidiactl, /dev/nvidia0 ...
//! ioctl:nvidia-uvm:UVM_MIGRATE     51     base at 0, length at 8 ...     on /dev/nvidia-uvm
//! ```
//!
//! The tables are those of NVIDIA's open kernel modules, releases 570 to 610; they are generated: see `gen/README.md`. The names of
//! fields are those of the headers without prefixes and in lower case: `hObjectNew` is `object_new`. Some that mean the same have one
//! name: `rmStatus` is `status`, `requestedBase` is `base`, `hRoot` is `client`.
//!
//! Not here: how an ioctl is observed (`lang::expand::ioctls`).

#[rustfmt::skip]
mod tables;

use std::sync::LazyLock;

use crate::types::Enum;

/// A kind of device file with ioctls.
#[derive(Debug)]
pub struct Device {
    /// `nvidia-uvm`, also in `/proc/devices`.
    pub name: &'static str,
    /// Other names in `/proc/devices`, of older drivers.
    pub aliases: &'static [&'static str],
    /// Beginning of the names that may be omitted.
    pub prefix: &'static str,
    /// Bits 8 to 15 of the command number; the low bits are the number of the ioctl, the high bits the size of its
    /// argument. 0: the command is the number of the ioctl and nothing else.
    pub magic: u32,
    /// Number of the ioctl whose argument contains the number, the size and the address of the argument of another.
    pub carrier: Option<u32>,
    /// The ioctls by number.
    pub ioctls: &'static [Ioctl],
}

/// An ioctl.
#[derive(Debug)]
pub struct Ioctl {
    /// `NV_ESC_RM_CONTROL`
    pub name: &'static str,
    /// Number on its device.
    pub number: u32,
    /// Layouts of its argument, the newest first. Empty: not known, or no argument.
    pub forms: &'static [Form],
}

/// A layout of an ioctl's argument.
#[derive(Debug)]
pub struct Form {
    /// Size in bytes. If the command contains it, it selects the form.
    pub size: u32,
    /// First driver release with this layout, for commands that do not contain the size; 0 for the oldest.
    pub since: u32,
    /// Fields in order.
    pub fields: &'static [Field],
}

/// A field of an ioctl's argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// `object_new`
    pub name: &'static str,
    /// Offset in bytes.
    pub offset: u32,
    /// Type.
    pub kind: Kind,
}

/// Type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number of this many bytes.
    Unsigned(u8),
    /// A number of this many bytes in two's complement.
    Signed(u8),
    /// One byte.
    Bool,
    /// An address in the process.
    Pointer,
    /// `NV_ERR_INVALID_ARGUMENT`
    Status,
    /// Class of an object: `FERMI_VASPACE_A`
    Class,
    /// Control command: `NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS`
    Control,
    /// UUID of a processor, 16 bytes.
    Uuid,
    /// Text in this many bytes.
    Text(u32),
}

const U8: Kind = Kind::Unsigned(1);
const U32: Kind = Kind::Unsigned(4);
const U64: Kind = Kind::Unsigned(8);
const I16: Kind = Kind::Signed(2);
const I32: Kind = Kind::Signed(4);

const fn field(name: &'static str, offset: u32, kind: Kind) -> Field {
    Field { name, offset, kind }
}

/// All devices.
pub static DEVICES: &[Device] = &[
    Device {
        name: "nvidia",
        aliases: &["nvidia-frontend"],
        prefix: "NV_ESC_",
        magic: 0x46,
        carrier: Some(0xd3),
        ioctls: tables::NVIDIA,
    },
    Device { name: "nvidia-uvm", aliases: &[], prefix: "UVM_", magic: 0, carrier: None, ioctls: tables::UVM },
];

impl Device {
    /// The device of this name.
    pub fn of(name: &str) -> Option<&'static Device> {
        DEVICES.iter().find(|device| device.name == name)
    }

    /// Value of an ioctl in the enum `nvidia_ioctl`, which has those of all devices.
    pub fn id(&self, number: u32) -> u32 {
        self.magic << 8 | number
    }
}

impl Ioctl {
    /// The field of this name, in the newest form that has it.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.all_fields().find(|field| field.name == name)
    }

    /// Fields of all forms, without repetition.
    pub fn all_fields(&self) -> impl Iterator<Item = &'static Field> {
        let forms = self.forms;
        let fields = forms.iter().enumerate().flat_map(|(at, form)| form.fields.iter().map(move |f| (at, f)));
        fields
            .filter(move |(at, field)| {
                !forms[..*at].iter().flat_map(|form| form.fields).any(|known| known.name == field.name)
            })
            .map(|(_, field)| field)
    }
}

/// Enums of the driver, in the order of their ids after those of the CUDA tables.
pub(crate) const ENUM_NAMES: [&str; 4] = ["nvidia_ioctl", "nvidia_status", "nvidia_class", "nvidia_control"];

/// The enums of [`ENUM_NAMES`].
pub(crate) static ENUMS: LazyLock<[Enum; 4]> = LazyLock::new(|| {
    let [ioctls, statuses, classes, controls] = ENUM_NAMES;
    let all = DEVICES.iter().flat_map(|device| {
        device.ioctls.iter().map(|ioctl| (ioctl.name, i64::from(device.id(ioctl.number))))
    });
    let mut numbers: Vec<(&'static str, i64)> = all.collect();
    numbers.sort_by_key(|&(_, value)| value);
    [
        named(ioctls, numbers),
        named(statuses, names(tables::STATUSES)),
        named(classes, names(tables::CLASSES)),
        named(controls, names(tables::CONTROLS)),
    ]
});

fn named(name: &'static str, variants: Vec<(&'static str, i64)>) -> Enum {
    Enum { name, signed: false, variants: variants.leak() }
}

/// Names and values of a table, one name per line.
fn names(table: &'static str) -> Vec<(&'static str, i64)> {
    let row = |line: &'static str| {
        let (value, name) = line.split_once(' ').unwrap_or_else(|| unreachable!("`{line}` is a row"));
        (name, i64::from_str_radix(value, 16).unwrap_or_else(|_| unreachable!("`{value}` is a number")))
    };
    table.lines().map(row).collect()
}

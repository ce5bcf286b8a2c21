//! The tables of ioctls: known facts, and what lookups rely on.

use std::collections::HashSet;

use cuda::ioctls::{DEVICES, Device, Form, Ioctl, Kind};

fn ioctl(name: &str) -> &'static Ioctl {
    let all = DEVICES.iter().flat_map(|device| device.ioctls);
    all.into_iter().find(|ioctl| ioctl.name == name).unwrap_or_else(|| panic!("{name} is in the tables"))
}

fn forms() -> impl Iterator<Item = (&'static Device, &'static Ioctl, &'static Form)> {
    DEVICES.iter().flat_map(|device| {
        device.ioctls.iter().flat_map(move |ioctl| ioctl.forms.iter().map(move |form| (device, ioctl, form)))
    })
}

/// Size of a form, and offset and type of a field in it.
fn at(name: &str, form: usize, field: &str) -> (u32, u32, Kind) {
    let form = &ioctl(name).forms[form];
    let field = form.fields.iter().find(|known| known.name == field).unwrap_or_else(|| panic!("{field}"));
    (form.size, field.offset, field.kind)
}

#[test]
fn layouts_are_those_that_other_tracers_decode() {
    for (name, number) in [
        ("NV_ESC_RM_ALLOC", 0x2b),
        ("NV_ESC_REGISTER_FD", 201),
        ("UVM_MIGRATE", 51),
        ("UVM_INITIALIZE", 0x3000_0001),
    ] {
        assert_eq!(ioctl(name).number, number, "{name}");
    }
    assert_eq!(at("NV_ESC_RM_CONTROL", 0, "cmd"), (32, 8, Kind::Control));
    assert_eq!(at("NV_ESC_RM_CONTROL", 0, "status"), (32, 28, Kind::Status));
    assert_eq!(at("NV_ESC_RM_ALLOC", 0, "status"), (48, 40, Kind::Status));
    assert_eq!(at("NV_ESC_RM_ALLOC", 1, "status"), (32, 28, Kind::Status));
    // Taken apart: the struct is the first member of another.
    assert_eq!(at("NV_ESC_RM_MAP_MEMORY", 0, "fd"), (56, 48, Kind::Signed(4)));
    assert_eq!(at("UVM_MAP_EXTERNAL_ALLOCATION", 0, "status"), (9264, 9260, Kind::Status));
    assert_eq!((ioctl("UVM_FREE").forms[0].since, ioctl("UVM_FREE").forms[1].since), (610, 0));
    assert!(ioctl("UVM_FREE").forms[0].fields.iter().all(|field| field.name != "length"));
    assert!(ioctl("UVM_FREE").field("length").is_some());
}

#[test]
fn a_form_is_selected_by_its_size_or_by_the_release() {
    for (device, ioctl, form) in forms() {
        let end = |kind: Kind| match kind {
            Kind::Bool => 1,
            Kind::Unsigned(bytes) | Kind::Signed(bytes) => u32::from(bytes),
            Kind::Status | Kind::Class | Kind::Control => 4,
            Kind::Pointer => 8,
            Kind::Uuid => 16,
            Kind::Text(bytes) => bytes,
        };
        for field in form.fields {
            assert!(field.offset + end(field.kind) <= form.size, "{} {}", ioctl.name, field.name);
        }
        let key = |form: &Form| if device.magic == 0 { form.since } else { form.size };
        assert!(ioctl.forms.is_sorted_by(|a, b| key(a) > key(b)), "{}", ioctl.name);
    }
}

#[test]
fn names_and_numbers_are_unique() {
    let mut ids = HashSet::new();
    for device in DEVICES {
        for ioctl in device.ioctls {
            assert!(ioctl.name.starts_with(device.prefix), "{}", ioctl.name);
            assert!(ids.insert(device.id(ioctl.number)), "{}", ioctl.name);
        }
    }
    let mut names: HashSet<&str> = cuda::constants().map(|constant| constant.name).collect();
    names.extend(cuda::macro_constants().map(|(name, _)| name));
    for cuda::EnumConstant { name, id, value } in cuda::driver_constants() {
        assert!(names.insert(name), "{name} has another meaning");
        assert_eq!(cuda::constant(name), Some((id, value)));
    }
}

#[test]
fn values_have_names() {
    let name = |of: &str, value| cuda::enum_def(cuda::find_enum(of).unwrap()).name_of(value);
    assert_eq!(name("nvidia_ioctl", 0x462a), Some("NV_ESC_RM_CONTROL"));
    assert_eq!(name("nvidia_ioctl", 51), Some("UVM_MIGRATE"));
    assert_eq!(name("nvidia_status", 0), Some("NV_OK"));
    assert_eq!(name("nvidia_status", 0x1f), Some("NV_ERR_INVALID_ARGUMENT"));
    assert_eq!(name("nvidia_class", 0x2080), Some("NV20_SUBDEVICE_0"));
    assert_eq!(name("nvidia_control", 0x0201), Some("NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS"));
    assert_eq!(name("nvidia_control", 0x2080_0000), None);
    let all = ["nvidia_ioctl", "nvidia_status", "nvidia_class", "nvidia_control"];
    for def in all.map(|name| cuda::enum_def(cuda::find_enum(name).unwrap())) {
        assert!(def.variants.is_sorted_by_key(|(_, value)| *value), "{}", def.name);
        assert!(def.variants.iter().all(|(_, value)| u32::try_from(*value).is_ok()), "{}", def.name);
    }
}

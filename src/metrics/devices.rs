//! CUDA devices of traced programs, from the maps of scripts that use `device`.

use crate::symbolize::MachineNames;
use report::metrics::Device;
use report::{Cell, Names, Snapshot};
use runtime::Session;
use std::collections::HashMap;
use std::io;
use wire::Value;
use wire::types::Lookup;

/// Devices by process and number.
type Devices = HashMap<(u32, u32), Device>;

/// The devices that all processes have queried so far.
pub fn queried(session: &Session, names: &MachineNames) -> io::Result<Devices> {
    let mut devices = Devices::new();
    for (device, value) in entries(session, "__device_uuid")? {
        let uuid = number(&value).map(|number| names.lookup(Lookup::DeviceUuid, number as i64));
        devices.entry(device).or_default().uuid = uuid;
    }
    for (device, value) in entries(session, "__device_name")? {
        if let Value::Str(name, _) = value {
            devices.entry(device).or_default().model = Some(report::value::escape(&name));
        }
    }
    Ok(devices)
}

/// The entries of a map by process and device; empty if the script does not have the map.
fn entries(session: &Session, name: &str) -> io::Result<Vec<((u32, u32), Value)>> {
    let maps = &session.manifest().maps;
    let Some(at) = maps.iter().position(|map| map.name == name) else { return Ok(Vec::new()) };
    let Snapshot { entries, .. } = session.snapshot(at as u32, 0, 0)?;
    let entry = |(key, cell): (Vec<Value>, Cell)| match (&key[..], cell) {
        ([pid, device], Cell::Plain(value)) => {
            let part = |value: &Value| number(value).and_then(|number| u32::try_from(number).ok());
            Some(((part(pid)?, part(device)?), value))
        }
        _ => None,
    };
    Ok(entries.into_iter().filter_map(entry).collect())
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Uint(number, _) => Some(*number),
        Value::Int(number, _) => u64::try_from(*number).ok(),
        _ => None,
    }
}

//! The devices of the process by their UUIDs: CUDA's numbers of devices differ between processes.

use core::cell::UnsafeCell;

use crate::driver::Driver;
use crate::record::Record;

/// Devices, by ordinal.
const DEVICES: usize = 64;
/// Size of the text of a UUID, which ends with zero.
const TEXT: usize = 41;

/// A device.
#[derive(Copy, Clone)]
struct Device {
    /// A number that other devices do not have; 0: not known.
    number: u64,
    /// `GPU-` or `MIG-`, and the UUID.
    text: [u8; TEXT],
    is_known: bool,
}

/// The texts, which probes read at any time.
struct Texts(UnsafeCell<[Device; DEVICES]>);
// SAFETY: only the agent's thread writes, and no device twice.
unsafe impl Sync for Texts {}
static TEXTS: Texts =
    Texts(UnsafeCell::new([Device { number: 0, text: [0; TEXT], is_known: false }; DEVICES]));

/// The devices, for the agent's thread.
pub(crate) struct Devices(Option<Driver>);

impl Devices {
    pub(crate) fn new() -> Devices {
        Devices(Driver::loaded())
    }

    /// Sets the device of a record.
    pub(crate) fn name(&self, record: &mut Record) {
        let ordinal = record.device as usize;
        // SAFETY: only this thread has references, and text that is known is not changed.
        let devices = unsafe { &mut *TEXTS.0.get() };
        let Some(device) = devices.get_mut(ordinal) else { return };
        if !device.is_known {
            *device = self.read(record.device);
        }
        record.gpu = device.number;
        record.uuid = if device.number == 0 { 0 } else { device.text.as_ptr().addr() as u64 };
    }

    fn read(&self, ordinal: u32) -> Device {
        let none = Device { number: 0, text: [0; TEXT], is_known: true };
        let Some((uuid, is_part)) = self.0.and_then(|driver| driver.uuid(ordinal)) else { return none };
        let [one, other] = [&uuid[..8], &uuid[8..]]
            .map(|half| half.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
        // Zero is for devices that are not known. Readers of JSON lose digits of larger numbers.
        let number = (one ^ other.rotate_left(32)) % (1 << 48);
        Device { number: number.max(1), text: text(&uuid, is_part), is_known: true }
    }
}

/// `GPU-01234567-89ab-cdef-0123-456789abcdef`; `is_part`: an instance of MIG.
fn text(uuid: &[u8; 16], is_part: bool) -> [u8; TEXT] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; TEXT];
    text[..4].copy_from_slice(if is_part { b"MIG-" } else { b"GPU-" });
    let mut at = 4;
    for (number, byte) in uuid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&number) {
            text[at] = b'-';
            at += 1;
        }
        text[at] = DIGITS[usize::from(byte >> 4)];
        text[at + 1] = DIGITS[usize::from(byte & 15)];
        at += 2;
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_device_has_the_name_that_nvidia_smi_gives_it() {
        let uuid =
            [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10];
        assert_eq!(&super::text(&uuid, false), b"GPU-01234567-89ab-cdef-fedc-ba9876543210\0");
        assert!(super::text(&uuid, true).starts_with(b"MIG-0123"));
    }
}

//! CUDA's driver. Names, types and numbers are those of cuda.h.

use core::ffi::{c_int, c_uint};
use core::mem::transmute_copy;

use crate::sys;

/// `CUresult`
type Status = c_int;
const SUCCESS: Status = 0;

/// Lists of functions, each with its symbol and type: those without which nothing is possible, and those that older drivers lack.
macro_rules! driver {
    ({$($field:ident: $name:literal fn($($arg:ty),*);)*} {$($newer:ident: $newer_name:literal fn($($newer_arg:ty),*);)*}) => {
        /// The driver's functions.
        #[derive(Copy, Clone)]
        pub(crate) struct Driver {
            $($field: unsafe extern "C" fn($($arg),*) -> Status,)*
            $($newer: Option<unsafe extern "C" fn($($newer_arg),*) -> Status>,)*
        }

        impl Driver {
            /// The functions of the loaded driver; `None` if it lacks one.
            pub(crate) fn loaded() -> Option<Driver> {
                // SAFETY: names that end with zero; the documented types of these functions; null is `None`.
                unsafe {
                    let library = sys::dlopen(c"libcuda.so.1".as_ptr(), sys::RTLD_LAZY | sys::RTLD_NOLOAD);
                    if library.is_null() {
                        return None;
                    }
                    let address = |name: &str| sys::dlsym(library, name.as_ptr().cast());
                    Some(Driver {
                        $($field: {
                            let address = address(concat!($name, "\0"));
                            if address.is_null() {
                                return None;
                            }
                            transmute_copy(&address)
                        },)*
                        $($newer: transmute_copy(&address(concat!($newer_name, "\0"))),)*
                    })
                }
            }
        }
    };
}

driver! {
    {
        count: "cuDeviceGetCount" fn(*mut c_int);
        state: "cuDevicePrimaryCtxGetState" fn(c_int, *mut c_uint, *mut c_int);
    }
    {
        uuid: "cuDeviceGetUuid" fn(*mut [u8; 16], c_int);
        uuid_of_part: "cuDeviceGetUuid_v2" fn(*mut [u8; 16], c_int);
    }
}

impl Driver {
    /// The UUID of a device; true for an instance of MIG, which has one of its own.
    pub(crate) fn uuid(&self, device: u32) -> Option<([u8; 16], bool)> {
        let read = |get: Option<unsafe extern "C" fn(*mut [u8; 16], c_int) -> Status>| {
            let mut uuid = [0; 16];
            // SAFETY: room for a UUID.
            (unsafe { get?(&raw mut uuid, device as c_int) } == SUCCESS).then_some(uuid)
        };
        match (read(self.uuid), read(self.uuid_of_part)) {
            (whole, Some(part)) => Some((part, whole.is_some_and(|whole| whole != part))),
            (whole, None) => whole.map(|whole| (whole, false)),
        }
    }

    /// Whether a device has a primary context.
    pub(crate) fn has_context(&self) -> bool {
        let mut count = 0;
        // SAFETY: a valid pointer.
        let status = unsafe { (self.count)(&raw mut count) };
        let has = |device| {
            let (mut flags, mut is_active) = (0, 0);
            // SAFETY: valid pointers.
            let status = unsafe { (self.state)(device, &raw mut flags, &raw mut is_active) };
            status == SUCCESS && is_active != 0
        };
        status == SUCCESS && (0..count).any(has)
    }
}

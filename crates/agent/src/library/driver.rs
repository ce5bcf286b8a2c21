//! CUDA's driver. Names, types and numbers are those of cuda.h.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::mem::transmute_copy;
use core::ptr::{null, null_mut};

use crate::sys;

/// `CUresult`
pub type Status = c_int;
pub const SUCCESS: Status = 0;
/// `CUDA_ERROR_NOT_READY`
pub const NOT_READY: Status = 600;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: calls of this thread spoil no capture of another one.
const RELAXED: c_int = 2;

/// Lists of functions, each with its symbol and type: those without which nothing is possible, and those that older drivers lack.
macro_rules! driver {
    ({$($field:ident: $name:literal fn($($arg:ty),*);)*} {$($newer:ident: $newer_name:literal fn($($newer_arg:ty),*);)*}) => {
        /// The driver's functions.
        #[derive(Copy, Clone)]
        pub struct Driver {
            $($field: unsafe extern "C" fn($($arg),*) -> Status,)*
            $($newer: Option<unsafe extern "C" fn($($newer_arg),*) -> Status>,)*
        }

        impl Driver {
            /// The functions of the loaded driver; `None` if it lacks one.
            pub fn loaded() -> Option<Driver> {
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
        current: "cuCtxGetCurrent" fn(*mut *mut c_void);
        device: "cuCtxGetDevice" fn(*mut c_int);
        create: "cuEventCreate" fn(*mut *mut c_void, c_uint);
        destroy: "cuEventDestroy_v2" fn(*mut c_void);
        record: "cuEventRecord" fn(*mut c_void, *mut c_void);
        query: "cuEventQuery" fn(*mut c_void);
        is_idle: "cuStreamQuery" fn(*mut c_void);
        elapsed: "cuEventElapsedTime" fn(*mut f32, *mut c_void, *mut c_void);
        is_capturing: "cuStreamIsCapturing" fn(*mut c_void, *mut c_int);
        exchange_mode: "cuThreadExchangeStreamCaptureMode" fn(*mut c_int);
        count: "cuDeviceGetCount" fn(*mut c_int);
        state: "cuDevicePrimaryCtxGetState" fn(c_int, *mut c_uint, *mut c_int);
    }
    {
        function_name: "cuFuncGetName" fn(*mut *const c_char, *mut c_void);
        kernel_name: "cuKernelGetName" fn(*mut *const c_char, *mut c_void);
        uuid: "cuDeviceGetUuid" fn(*mut [u8; 16], c_int);
        uuid_of_part: "cuDeviceGetUuid_v2" fn(*mut [u8; 16], c_int);
    }
}

/// Two events of a context.
#[derive(Copy, Clone)]
pub struct Events {
    pub before: *mut c_void,
    pub after: *mut c_void,
}

impl Driver {
    /// Lets calls of this thread spoil no capture, here or in another thread; the mode before. `None`: the driver is not initialised.
    pub fn relax(&self) -> Option<c_int> {
        let mut mode = RELAXED;
        // SAFETY: a valid pointer.
        (unsafe { (self.exchange_mode)(&raw mut mode) } == SUCCESS).then_some(mode)
    }

    /// Returns to the mode before [`Driver::relax`].
    pub fn restore(&self, mut mode: c_int) {
        // SAFETY: a valid pointer.
        unsafe { (self.exchange_mode)(&raw mut mode) };
    }

    /// The UUID of a device; true for an instance of MIG, which has one of its own.
    pub fn uuid(&self, device: u32) -> Option<([u8; 16], bool)> {
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
    pub fn has_context(&self) -> bool {
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

    /// The context of this thread, and its device.
    pub fn current(&self) -> Option<(*mut c_void, u32)> {
        let (mut context, mut device) = (null_mut(), 0);
        // SAFETY: valid pointers.
        let status = unsafe {
            match (self.current)(&raw mut context) {
                SUCCESS => (self.device)(&raw mut device),
                status => status,
            }
        };
        (status == SUCCESS).then_some((context, device as u32))
    }

    /// Creates events of the context of this thread.
    pub fn create_events(&self) -> Option<Events> {
        let (mut before, mut after) = (null_mut(), null_mut());
        // SAFETY: valid pointers, and an event that was created just now.
        unsafe {
            if (self.create)(&raw mut before, 0) != SUCCESS {
                return None;
            }
            if (self.create)(&raw mut after, 0) != SUCCESS {
                (self.destroy)(before);
                return None;
            }
        }
        Some(Events { before, after })
    }

    /// Destroys both.
    pub fn destroy_events(&self, events: Events) {
        // SAFETY: events of a context that exists.
        unsafe {
            (self.destroy)(events.before);
            (self.destroy)(events.after);
        }
    }

    /// Puts an event into a stream of the same context.
    pub fn record(&self, event: *mut c_void, stream: *mut c_void) -> bool {
        // SAFETY: an event and a stream of the same context.
        unsafe { (self.record)(event, stream) == SUCCESS }
    }

    /// Whether the work before an event is done, or an error.
    pub fn query(&self, event: *mut c_void) -> Status {
        // SAFETY: an event of a context that exists.
        unsafe { (self.query)(event) }
    }

    /// Nanoseconds between two events that are done.
    pub fn between(&self, events: Events) -> Option<u64> {
        let mut milliseconds = 0.0f32;
        // SAFETY: events of a context that exists.
        let status = unsafe { (self.elapsed)(&raw mut milliseconds, events.before, events.after) };
        (status == SUCCESS).then(|| (f64::from(milliseconds) * 1e6) as u64)
    }

    /// Whether a stream has nothing to do.
    pub fn is_idle(&self, stream: *mut c_void) -> bool {
        // SAFETY: a stream of the program.
        unsafe { (self.is_idle)(stream) == SUCCESS }
    }

    /// Whether a stream is captured, or that cannot be known.
    pub fn may_capture(&self, stream: *mut c_void) -> bool {
        let mut captures = 0;
        // SAFETY: a valid pointer, and a stream of the program.
        unsafe { (self.is_capturing)(stream, &raw mut captures) != SUCCESS || captures != 0 }
    }

    /// The mangled name of what is launched, a `CUfunction` or a `CUkernel`; null if the driver is older than 12.3.
    pub fn name(&self, kernel: *mut c_void) -> *const c_char {
        let mut name = null();
        for get in [self.function_name, self.kernel_name].into_iter().flatten() {
            // SAFETY: a valid pointer, and a handle that the program launches.
            if unsafe { get(&raw mut name, kernel) } == SUCCESS {
                return name;
            }
        }
        null()
    }
}

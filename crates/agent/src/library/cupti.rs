//! CUPTI: its functions as far as they are used, found by name at run time. The names and numbers are those of NVIDIA's CUPTI
//! documentation; they are the same in the releases 11.7 to 13.5.

use core::ffi::{c_char, c_int, c_void};
use core::mem::transmute_copy;

use crate::message::NAME;
use crate::sys;

/// `CUptiResult`
pub(crate) type Status = u32;
pub(crate) const SUCCESS: Status = 0;

/// `CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER`
const ZEROED_BUFFERS: u32 = 5;
/// `CUPTI_CB_DOMAIN_DRIVER_API`
pub(crate) const DRIVER_API: u32 = 1;
/// `CUPTI_API_ENTER`
pub(crate) const ENTER: u32 = 0;
/// Numbers of functions end before this one.
pub(crate) const FUNCTIONS: u32 = 2000;
/// `PATH_MAX`
const PATH: usize = 4096;

/// `CUpti_CallbackData`
#[repr(C)]
pub(crate) struct CallbackData {
    pub site: u32,
    pub function: *const c_char,
    arguments: *const c_void,
    result: *const Status,
    symbol: *const c_char,
    context: *const c_void,
    context_id: u32,
    data: *mut u64,
    pub correlation: u32,
}

impl CallbackData {
    /// Whether a call that returns has succeeded.
    pub(crate) fn succeeds(&self) -> bool {
        // SAFETY: CUPTI's pointer, at the exit of a call.
        !self.result.is_null() && unsafe { self.result.read() } == 0
    }

    /// Keeps a number from the begin of a call to its exit.
    pub(crate) fn keep(&self, number: u64) {
        if !self.data.is_null() {
            // SAFETY: CUPTI's memory for that, one for each call.
            unsafe { self.data.write(number) };
        }
    }

    /// The number that was kept; 0: none.
    pub(crate) fn kept(&self) -> u64 {
        // SAFETY: as above; it is 0 at first.
        if self.data.is_null() { 0 } else { unsafe { self.data.read() } }
    }
}

/// `CUpti_CallbackFunc`
pub(crate) type Callback =
    extern "C" fn(data: *mut c_void, domain: u32, number: u32, call: *const CallbackData);
/// `CUpti_BuffersCallbackRequestFunc`
pub(crate) type RequestBuffer = extern "C" fn(buffer: *mut *mut u8, size: *mut usize, records: *mut usize);
/// `CUpti_BuffersCallbackCompleteFunc`
pub(crate) type CompleteBuffer =
    extern "C" fn(context: *mut c_void, stream: u32, buffer: *mut u8, size: usize, used: usize);

/// `CUpti_SubscriberParams`
#[repr(C)]
struct SubscriberParams {
    size: usize,
    name: *const c_char,
    old_name: *mut u8,
    old_size: usize,
}

/// The type of `cuptiSubscribe_v2`.
type SubscribeV2 =
    unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void, *mut SubscriberParams) -> Status;

/// A list of functions, each with the name in CUPTI and its type.
macro_rules! functions {
    ($($field:ident: $name:literal fn($($arg:ty),*);)*) => {
        /// The functions of a loaded CUPTI.
        #[derive(Copy, Clone)]
        pub(crate) struct Cupti {
            /// `cuptiSubscribe_v2`, of 13.0 and later.
            subscribe_v2: Option<SubscribeV2>,
            $($field: unsafe extern "C" fn($($arg),*) -> Status,)*
        }

        impl Cupti {
            /// The functions of a library; `None` if it lacks one.
            fn of(library: *mut c_void) -> Option<Cupti> {
                // SAFETY: the name ends with zero.
                let subscribe_v2 = unsafe { sys::dlsym(library, c"cuptiSubscribe_v2".as_ptr()) };
                // SAFETY: the documented type of this function.
                let subscribe_v2 = (!subscribe_v2.is_null()).then(|| unsafe { transmute_copy(&subscribe_v2) });
                Some(Cupti { subscribe_v2, $($field: {
                    // SAFETY: the name ends with zero.
                    let address = unsafe { sys::dlsym(library, concat!($name, "\0").as_ptr().cast()) };
                    if address.is_null() {
                        return None;
                    }
                    // SAFETY: the documented type of this function.
                    unsafe { transmute_copy(&address) }
                },)* })
            }
        }
    };
}

functions! {
    get_version: "cuptiGetVersion" fn(*mut u32);
    subscribe: "cuptiSubscribe" fn(*mut *mut c_void, Callback, *mut c_void);
    unsubscribe: "cuptiUnsubscribe" fn(*mut c_void);
    enable_domain: "cuptiEnableDomain" fn(u32, *mut c_void, u32);
    enable_callback: "cuptiEnableCallback" fn(u32, *mut c_void, u32, u32);
    callback_name: "cuptiGetCallbackName" fn(u32, u32, *mut *const c_char);
    enable: "cuptiActivityEnable" fn(u32);
    disable: "cuptiActivityDisable" fn(u32);
    register: "cuptiActivityRegisterCallbacks" fn(RequestBuffer, CompleteBuffer);
    next_record: "cuptiActivityGetNextRecord" fn(*mut u8, usize, *mut *const u8);
    dropped: "cuptiActivityGetNumDroppedRecords" fn(*mut c_void, u32, *mut usize);
    flush: "cuptiActivityFlushAll" fn(u32);
    set_attribute: "cuptiActivitySetAttribute" fn(u32, *mut usize, *mut c_void);
    finalize: "cuptiFinalize" fn();
}

impl Cupti {
    /// The library that the process has, else the first of these paths that can be loaded. The list is text, its parts end with zero. The error
    /// is the version of a library that lacks functions; 0: there is none.
    pub(crate) fn load(paths: &[u8]) -> Result<Cupti, u32> {
        // The rest of the list is zeros, and an empty path is that of the program.
        let is_path = |path: &&[u8]| path.len() > 1 && path.ends_with(&[0]);
        let opened = paths.split_inclusive(|byte| *byte == 0).filter(is_path).map(|path| {
            // SAFETY: the path ends with zero.
            unsafe { sys::dlopen(path.as_ptr().cast(), sys::RTLD_LAZY) }
        });
        let mut old = 0;
        for library in core::iter::once_with(loaded).chain(opened).filter(|library| !library.is_null()) {
            match Cupti::of(library) {
                Some(cupti) => return Ok(cupti),
                None => old = version_of(library),
            }
        }
        Err(old)
    }

    /// `CUPTI_API_VERSION`
    pub(crate) fn version(&self) -> u32 {
        let mut version = 0;
        // SAFETY: a valid pointer.
        unsafe { (self.get_version)(&raw mut version) };
        version
    }

    /// Subscribes under the name of this tool, where CUPTI knows names. If another tool has the subscription, `holder` gets the name of that.
    pub(crate) fn subscribe(
        &self,
        callback: Callback,
        holder: &mut [u8; NAME],
    ) -> Result<Subscriber, Status> {
        let mut subscriber = core::ptr::null_mut();
        let mut params = SubscriberParams {
            size: size_of::<SubscriberParams>(),
            name: c"cudatrace".as_ptr(),
            old_name: holder.as_mut_ptr(),
            old_size: NAME,
        };
        let data = core::ptr::null_mut();
        // SAFETY: valid pointers, and a callback that lives as long as the library.
        let status = unsafe {
            match self.subscribe_v2 {
                Some(subscribe) => subscribe(&raw mut subscriber, callback, data, &raw mut params),
                None => (self.subscribe)(&raw mut subscriber, callback, data),
            }
        };
        holder[NAME - 1] = 0;
        if status == SUCCESS { Ok(Subscriber(subscriber)) } else { Err(status) }
    }

    pub(crate) fn unsubscribe(&self, subscriber: Subscriber) -> Status {
        // SAFETY: a subscriber.
        unsafe { (self.unsubscribe)(subscriber.0) }
    }

    /// Calls back at all functions of a domain; `on`: or no more.
    pub(crate) fn call_back_at(&self, subscriber: Subscriber, domain: u32, on: bool) -> Status {
        // SAFETY: a subscriber.
        unsafe { (self.enable_domain)(on.into(), subscriber.0, domain) }
    }

    /// Calls back at the functions of the driver whose names `choose` chooses, which gets their numbers, too; `on`: or no more.
    pub(crate) fn call_back_at_functions(
        &self,
        subscriber: Subscriber,
        choose: impl Fn(u32, &[u8]) -> bool,
        on: bool,
    ) {
        for number in 1..FUNCTIONS {
            let mut name = core::ptr::null();
            // SAFETY: a valid pointer.
            let status = unsafe { (self.callback_name)(DRIVER_API, number, &raw mut name) };
            if status != SUCCESS || name.is_null() {
                continue;
            }
            // SAFETY: CUPTI's name, which ends with zero.
            let name = unsafe { core::ffi::CStr::from_ptr(name) }.to_bytes();
            if choose(number, name) {
                // SAFETY: a subscriber.
                unsafe { (self.enable_callback)(u32::from(on), subscriber.0, DRIVER_API, number) };
            }
        }
    }

    /// The callbacks from which buffers come. These are zero when CUPTI gets them, so that it need not clear them on threads of the
    /// program.
    pub(crate) fn register(&self, request: RequestBuffer, completed: CompleteBuffer) -> Status {
        let (mut size, mut on) = (1, 1u8);
        // SAFETY: a byte and its size; callbacks that live as long as the library.
        unsafe {
            (self.set_attribute)(ZEROED_BUFFERS, &raw mut size, (&raw mut on).cast());
            (self.register)(request, completed)
        }
    }

    pub(crate) fn enable(&self, kind: u32) -> Status {
        // SAFETY: no pointers.
        unsafe { (self.enable)(kind) }
    }

    pub(crate) fn disable(&self, kind: u32) -> Status {
        // SAFETY: no pointers.
        unsafe { (self.disable)(kind) }
    }

    /// Makes CUPTI pass on the buffers whose records are complete; `all`: also the others.
    pub(crate) fn flush(&self, all: bool) -> Status {
        // SAFETY: no pointers.
        unsafe { (self.flush)(u32::from(all)) }
    }

    /// Ends CUPTI in this process; only at the exit of a call of the driver.
    pub(crate) fn finalize(&self) -> Status {
        // SAFETY: no pointers.
        unsafe { (self.finalize)() }
    }

    /// Number of records that were dropped since the last query.
    pub(crate) fn dropped(&self, context: *mut c_void, stream: u32) -> u64 {
        let mut dropped = 0;
        // SAFETY: a valid pointer, and a context that CUPTI has passed, or none.
        let status = unsafe { (self.dropped)(context, stream, &raw mut dropped) };
        if status == SUCCESS { dropped as u64 } else { 0 }
    }

    /// The record after this one in the used part of a buffer; the first one if it is null.
    pub(crate) fn next(&self, buffer: *mut u8, used: usize, record: *const u8) -> Option<*const u8> {
        let mut record = record;
        // SAFETY: a buffer that CUPTI has filled, and a record in it.
        let status = unsafe { (self.next_record)(buffer, used, &raw mut record) };
        (status == SUCCESS && !record.is_null()).then_some(record)
    }
}

/// `CUpti_SubscriberHandle`
#[derive(Copy, Clone)]
pub(crate) struct Subscriber(pub *mut c_void);

/// The CUPTI that the process has loaded.
fn loaded() -> *mut c_void {
    // The name is copied: other threads may unload the library after the walk, and in the walk, which has a lock of the loader, it cannot be
    // opened.
    extern "C" fn see(object: *const sys::LoadedObject, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: of the C library's walk.
        let name = unsafe { (*object).name };
        if name.is_null() || !is_cupti(name) {
            return 0;
        }
        // SAFETY: the name ends with zero, and `found` is that of the call below.
        let (name, path) = unsafe {
            (core::ffi::CStr::from_ptr(name).to_bytes_with_nul(), &mut *found.cast::<[u8; PATH]>())
        };
        if let Some(path) = path.get_mut(..name.len()) {
            path.copy_from_slice(name);
        }
        1
    }
    let mut path = [0; PATH];
    // SAFETY: `see` writes to `path`, which ends with zero; it is empty if there is none.
    unsafe {
        sys::dl_iterate_phdr(see, (&raw mut path).cast());
        match path[0] {
            0 => core::ptr::null_mut(),
            _ => sys::dlopen(path.as_ptr().cast(), sys::RTLD_LAZY | sys::RTLD_NOLOAD),
        }
    }
}

/// `CUPTI_API_VERSION` of a library that may lack any function; 0: it does not have this one.
fn version_of(library: *mut c_void) -> u32 {
    let mut version = 0;
    // SAFETY: the name ends with zero, and the function has the documented type.
    unsafe {
        let address = sys::dlsym(library, c"cuptiGetVersion".as_ptr());
        if !address.is_null() {
            let get: unsafe extern "C" fn(*mut u32) -> Status = transmute_copy(&address);
            get(&raw mut version);
        }
    }
    version
}

/// Whether the last part of a path begins with `libcupti.so`.
fn is_cupti(name: *const c_char) -> bool {
    // SAFETY: the name ends with zero.
    let path = unsafe { core::ffi::CStr::from_ptr(name) }.to_bytes();
    let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    file.starts_with(b"libcupti.so")
}

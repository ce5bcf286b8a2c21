//! The socket to the tracer, and the injected library of another tool.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem::transmute;

pub(crate) use crate::message::Address;
use crate::message::{Hello, NEXT, Request, SECRET, TRACER_NAME};
use crate::sys::{self, Credentials, Descriptor, PollFd, SocketAddress};

/// Milliseconds in which a tracer must make room for the last report.
const LAST_REPORT: c_int = 500;

/// The address that the tracer has written into the file.
#[repr(transparent)]
pub(crate) struct TracerAddress(UnsafeCell<Address>);

// SAFETY: never written by this process.
unsafe impl Sync for TracerAddress {}

impl TracerAddress {
    /// No address.
    pub(crate) const fn none() -> TracerAddress {
        TracerAddress(UnsafeCell::new(Address {
            pid: 0,
            length: 0,
            name: *b"no tracer: the file is written before it is loaded......",
            secret: [0; SECRET],
        }))
    }

    fn get(&self) -> Address {
        // SAFETY: never written by this process; the compiler must not use the value that it knows.
        unsafe { self.0.get().read_volatile() }
    }
}

/// The first packet for the tracer, which takes nothing else before.
pub(crate) fn hello(written: &TracerAddress) -> Hello {
    Hello { secret: written.get().secret }
}

/// Loads the library that the program had asked for before the tracer's was put in its place.
pub(crate) fn load_next(written: &TracerAddress) {
    let variable = variable(&written.get());
    // SAFETY: names that end with zero; the function is the one that the driver would call.
    unsafe {
        let path = sys::getenv(variable.as_ptr().cast());
        if path.is_null() {
            return;
        }
        let library = sys::dlopen(path, sys::RTLD_LAZY);
        let initialize = match library.is_null() {
            true => return,
            false => sys::dlsym(library, c"InitializeInjection".as_ptr()),
        };
        if !initialize.is_null() {
            let initialize: extern "C" fn() -> c_int = transmute(initialize);
            initialize();
        }
    }
}

/// Name of the variable that names this library; it ends with zero.
fn variable(address: &Address) -> [u8; NEXT.len() + TRACER_NAME + 1] {
    let mut variable = [0; NEXT.len() + TRACER_NAME + 1];
    variable[..NEXT.len()].copy_from_slice(NEXT.as_bytes());
    let length = (address.length as usize).min(TRACER_NAME);
    variable[NEXT.len()..][..length].copy_from_slice(&address.name[..length]);
    variable
}

/// Connects to the tracer; `None` if it is gone.
pub(crate) fn connect(written: &TracerAddress) -> Option<Descriptor> {
    let address = written.get();
    let length = (address.length as usize).min(address.name.len());
    if address.pid == 0 || length == 0 {
        return None;
    }
    let mut to = SocketAddress { family: sys::AF_UNIX as u16, path: [0; 108] };
    // An abstract name begins with zero.
    to.path[1..=length].copy_from_slice(&address.name[..length]);
    // SAFETY: valid pointers.
    let fd = unsafe { sys::socket(sys::AF_UNIX, sys::SOCK_SEQPACKET_CLOEXEC, 0) };
    if fd < 0 {
        return None;
    }
    let socket = Descriptor(fd);
    // SAFETY: valid pointers.
    let connected = unsafe { sys::connect(fd, &raw const to, 3 + length as u32) } == 0;
    if connected && socket.peer() == address.pid {
        return Some(socket);
    }
    socket.close();
    None
}

impl Descriptor {
    /// The process at the other end.
    fn peer(self) -> u32 {
        let (mut peer, mut size) = (Credentials::default(), size_of::<Credentials>() as u32);
        // SAFETY: valid pointers.
        unsafe {
            sys::getsockopt(self.0, sys::SOL_SOCKET, sys::SO_PEERCRED, &raw mut peer, &raw mut size);
        }
        peer.pid as u32
    }

    /// Closes the connection, also where a child of fork(2) has a copy of the descriptor.
    pub(crate) fn close(self) {
        // SAFETY: the descriptor is the agent's.
        unsafe {
            sys::shutdown(self.0, sys::SHUT_RDWR);
            sys::close(self.0);
        }
    }

    /// Waits for a message, or the end of the tracer.
    pub(crate) fn wait(self, milliseconds: c_int) -> bool {
        let mut poll = PollFd { fd: self.0, events: sys::POLLIN, revents: 0 };
        // SAFETY: a valid pointer.
        unsafe { sys::poll(&raw mut poll, 1, milliseconds) > 0 }
    }

    /// The tracer's request, and its memory for counters; `None` if it has ended.
    pub(crate) fn receive(self) -> Option<(Request, Option<Descriptor>)> {
        let mut request = Request { kinds: 0, flush_ms: 0, paths: [0; crate::message::PATHS] };
        let size = size_of::<Request>();
        let mut part = sys::Part { bytes: (&raw mut request).cast(), length: size };
        let mut passed = sys::PassedDescriptor::none();
        let mut message = sys::Message::new(&mut part, &mut passed);
        // SAFETY: the request has no invalid values, and the message points to values that live longer.
        let got = unsafe { sys::recvmsg(self.0, &raw mut message, sys::MSG_CMSG_CLOEXEC) };
        (got == size as isize).then(|| (request, passed.descriptor(message.control_length)))
    }

    /// Sends a [`Hello`] or a [`Report`](crate::message::Report): structs of numbers without padding. It is lost if the tracer has not read for so
    /// long that there is no room: a later report has all that an earlier one has.
    pub(crate) fn send<Message>(self, message: &Message) {
        let (size, flags) = (size_of::<Message>(), sys::MSG_NOSIGNAL | sys::MSG_DONTWAIT);
        // SAFETY: a valid pointer. If the tracer has ended, nobody misses the message.
        unsafe { sys::send(self.0, core::ptr::from_ref(message).cast(), size, flags) };
    }

    /// Sends the last report, for which the tracer gets some time to make room.
    pub(crate) fn send_last<Message>(self, message: &Message) {
        let mut poll = PollFd { fd: self.0, events: sys::POLLOUT, revents: 0 };
        // SAFETY: a valid pointer.
        unsafe { sys::poll(&raw mut poll, 1, LAST_REPORT) };
        self.send(message);
    }
}

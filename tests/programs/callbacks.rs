//! Rust that is called by traced C functions: panics pass them, in several threads.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

type Callback = unsafe extern "C-unwind" fn(*mut c_void, i32) -> i32;

#[allow(improper_ctypes)]
extern "C-unwind" {
    fn call(back: Callback, data: *mut c_void, n: i32) -> i32;
    fn call_twice(back: Callback, data: *mut c_void, n: i32) -> i32;
    fn sort(values: *mut i32, count: usize);
}

/// Counts what is dropped.
struct DropCount<'a>(&'a AtomicU64);

impl Drop for DropCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

unsafe extern "C-unwind" fn back(data: *mut c_void, n: i32) -> i32 {
    let _counted = DropCount(unsafe { &*data.cast::<AtomicU64>() });
    if n <= 0 {
        panic!("the last one");
    }
    if n % 3 == 0 {
        return catch_unwind(AssertUnwindSafe(|| unsafe { call(back, data, n - 2) })).unwrap_or(100);
    }
    unsafe { call(back, data, n - 1) }
}

fn work(seed: i32) -> (u64, i64, u64) {
    let dropped = AtomicU64::new(0);
    let data = (&raw const dropped).cast_mut().cast::<c_void>();
    let (mut caught, mut sum) = (0, 0);
    for n in 0..3000 {
        match catch_unwind(AssertUnwindSafe(|| unsafe { call_twice(back, data, n % 17) })) {
            Ok(result) => sum += i64::from(result),
            Err(_) => caught += 1,
        }
        if n % 100 == 0 {
            let _ = std::hint::black_box(std::backtrace::Backtrace::force_capture());
        }
    }
    let mut values: Vec<i32> = (0..1000).map(|n| (n * 7919 + seed) % 1009).collect();
    unsafe { sort(values.as_mut_ptr(), values.len()) };
    assert!(values.is_sorted());
    (caught, sum, dropped.load(Ordering::Relaxed))
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let threads: Vec<_> = (0..4).map(|seed| std::thread::spawn(move || work(seed))).collect();
    for thread in threads {
        assert_eq!(thread.join().expect("no panic leaves the work"), (708, 484_293, 37_185));
    }
}

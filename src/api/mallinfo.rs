//! glibc's statistics calls: `mallinfo`, `mallinfo2`, `malloc_info`.

use core::ffi::{c_int, c_void};

use crate::os::errno::{self, Errno};
use crate::os::stdio::{self, Stream};
use crate::runtime::stats;

/// glibc's struct, all fields `size_t`.
#[repr(C)]
#[derive(Default)]
#[allow(non_camel_case_types)]
pub struct mallinfo2_result {
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
}

/// The older form, all fields `int`: they saturate, where glibc's wrap.
#[repr(C)]
#[derive(Default)]
#[allow(non_camel_case_types)]
pub struct mallinfo_result {
    fields: [c_int; 10],
}

struct Sums {
    asked: usize,
    held: usize,
}

fn sums() -> Sums {
    let mut sums = Sums { asked: 0, held: 0 };
    for tier in stats::tiers().filter_map(stats::tier) {
        sums.held += tier.held.get();
        sums.asked += tier.asked.map_or(0, |b| b.get());
    }
    sums
}

/// `arena` is what all tiers hold, `uordblks` what live blocks take of it, `fordblks` the rest;
/// the other fields describe structures that do not exist here and are 0.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> mallinfo2_result {
    let s = sums();
    mallinfo2_result {
        arena: s.held,
        ordblks: 1,
        uordblks: s.asked,
        fordblks: s.held.saturating_sub(s.asked),
        ..mallinfo2_result::default()
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn mallinfo() -> mallinfo_result {
    let m = mallinfo2();
    let int = |n: usize| c_int::try_from(n).unwrap_or(c_int::MAX);
    mallinfo_result {
        fields: [
            int(m.arena),
            1,
            0,
            0,
            0,
            0,
            0,
            int(m.uordblks),
            int(m.fordblks),
            0,
        ],
    }
}

/// A short document in the form of glibc's, to a stdio stream. EINVAL for options other than 0.
///
/// # Safety
/// `stream` is an open stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, stream: *mut c_void) -> c_int {
    if options != 0 || stream.is_null() {
        errno::set(Errno::INVAL);
        return -1;
    }
    let s = sums();
    // SAFETY: the caller's promise.
    let stream = unsafe { Stream::from_raw(stream) };
    stdio::print(
        stream,
        format_args!(
            "<malloc version=\"1\">\n<total type=\"rest\" count=\"1\" size=\"{}\"/>\n\
             <system type=\"current\" size=\"{}\"/>\n<aspace type=\"total\" size=\"{}\"/>\n</malloc>\n",
            s.held.saturating_sub(s.asked),
            s.held,
            s.held,
        ),
    )
}

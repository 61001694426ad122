//! The kernel's own clock function, found in the page it maps into every process.
//!
//! libc's `clock_gettime` may be another library's (libfaketime, a tracer) that allocates, and a
//! sanitizer's is null until it has started. The system call would be refused by sandboxes that
//! only know programs which read the clock without one. The vDSO is neither.

use core::ffi::{CStr, c_char, c_int};

pub type ClockGettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;

#[cfg(target_arch = "x86_64")]
const NAME: &CStr = c"__vdso_clock_gettime";
#[cfg(not(target_arch = "x86_64"))]
const NAME: &CStr = c"__kernel_clock_gettime";

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;

#[repr(C)]
struct Dyn {
    tag: i64,
    value: u64,
}

/// The function, if this kernel has one.
pub fn clock_gettime() -> Option<ClockGettime> {
    // SAFETY: getauxval reads what the kernel gave the process.
    let image = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    if image == 0 {
        return None;
    }
    // SAFETY: the kernel maps a whole, valid ELF image there for the life of the process; tables
    // lie in it at the places its headers give.
    unsafe {
        let header = &*(image as *const libc::Elf64_Ehdr);
        let segments = core::slice::from_raw_parts(
            (image + header.e_phoff as usize) as *const libc::Elf64_Phdr,
            header.e_phnum as usize,
        );
        let load = segments.iter().find(|s| s.p_type == PT_LOAD)?;
        let dynamic = segments.iter().find(|s| s.p_type == PT_DYNAMIC)?;
        let bias = (image + load.p_offset as usize).wrapping_sub(load.p_vaddr as usize);
        let mut entry = (image + dynamic.p_offset as usize) as *const Dyn;
        let (mut names, mut symbols) = (0, 0);
        while (*entry).tag != 0 {
            match (*entry).tag {
                DT_STRTAB => names = bias.wrapping_add((*entry).value as usize),
                DT_SYMTAB => symbols = bias.wrapping_add((*entry).value as usize),
                _ => {}
            }
            entry = entry.add(1);
        }
        // The table of names follows that of symbols in every vDSO there is; where it did not,
        // there would be no count to go by.
        let count = names.checked_sub(symbols)? / size_of::<libc::Elf64_Sym>();
        if symbols == 0 || count > 256 {
            return None;
        }
        let symbols = core::slice::from_raw_parts(symbols as *const libc::Elf64_Sym, count);
        let found = symbols.iter().find(|s| {
            s.st_value != 0 && CStr::from_ptr((names + s.st_name as usize) as *const c_char) == NAME
        })?;
        let address = bias.wrapping_add(found.st_value as usize);
        Some(core::mem::transmute::<usize, ClockGettime>(address))
    }
}

//! What operator new needs of the C++ library when there is no memory: the program's new_handler,
//! and the function that throws bad_alloc. Looked up when needed, in a program that has no memory
//! left; a program without a C++ library never gets here by a C++ call.

use super::errno::KeepErrno;
use core::ffi::CStr;

/// A program's new_handler.
pub type NewHandler = unsafe extern "C" fn();

fn look_up(name: &CStr) -> *const () {
    let _keep = KeepErrno::new();
    // SAFETY: the names are terminated; neither call runs code of the library.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        if !found.is_null() {
            return found.cast();
        }
    }
    // Loaded by a plug-in, the library is not in the global scope.
    look_up_in_library(name)
}

/// The library's own function of this name, whatever stands before it in the global scope.
fn look_up_in_library(name: &CStr) -> *const () {
    let _keep = KeepErrno::new();
    // SAFETY: as above.
    unsafe {
        let library = libc::dlopen(
            c"libstdc++.so.6".as_ptr(),
            libc::RTLD_NOLOAD | libc::RTLD_LAZY,
        );
        if library.is_null() {
            core::ptr::null()
        } else {
            libc::dlsym(library, name.as_ptr()).cast_const().cast()
        }
    }
}

/// The C++ library's nothrow form of operator new that has this mangled name: it calls the plain
/// form and catches what that or the program's new_handler throws, which C++ code alone can.
pub fn library_new_nothrow(name: &CStr) -> Option<unsafe extern "C" fn(usize, usize) -> *mut u8> {
    let found = look_up_in_library(name);
    // SAFETY: the plain forms take a size and the address of `std::nothrow`, which they ignore,
    // the aligned ones a size, an alignment and that; an address left out is not read.
    (!found.is_null()).then(|| unsafe { core::mem::transmute(found) })
}

/// The program's new_handler, if it has set one.
pub fn new_handler() -> Option<NewHandler> {
    let get = look_up(c"_ZSt15get_new_handlerv");
    if get.is_null() {
        return None;
    }
    // SAFETY: `std::get_new_handler()` has this type.
    unsafe {
        let get =
            core::mem::transmute::<*const (), unsafe extern "C" fn() -> Option<NewHandler>>(get);
        get()
    }
}

/// `std::__throw_bad_alloc()`; null where there is no C++ library.
pub fn bad_alloc_thrower() -> *const () {
    look_up(c"_ZSt17__throw_bad_allocv")
}

//! How it begins: inside the first call that needs a heap, before libc or the program may be
//! ready, with raw system calls only. What needs libc comes after, once.

use super::{configure, fork};
use crate::arena;
use crate::base::config::Thp;
use crate::base::{Bytes, TierId};
use crate::heap::KindId;
use crate::heap::kind::{KINDS, Recipe};
use crate::os::{limits, report};
use crate::policy::{MAX_TIERS, Policy};
use crate::sync::{AtomicBool, AtomicU8, Ordering};

const NOT_YET: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(NOT_YET);

pub fn is_done() -> bool {
    // Acquire: pairs with the Release in `ensure`.
    STATE.load(Ordering::Acquire) == DONE
}

/// Starts the heap if that has not been done. Called in the guest's seat, so by one thread at a
/// time. False where there is no memory even for that.
pub fn ensure() -> bool {
    match STATE.load(Ordering::Acquire) {
        DONE => return true,
        FAILED => return false,
        _ => {}
    }
    let started = start();
    // Release: pairs with the Acquire above and in `is_done`.
    STATE.store(if started { DONE } else { FAILED }, Ordering::Release);
    if started {
        configure::from_environment();
    }
    started
}

fn start() -> bool {
    if !limits::page_size_is_supported() {
        report::line(format_args!(
            "this kernel's pages are not 4 KiB; there is no heap"
        ));
        return false;
    }
    if arena::start(Thp::System).is_err() {
        return false;
    }
    let dram = |strict| Recipe {
        policy: Policy::Dram,
        strict,
        owns_tiers: false,
        tiers: [TierId::DRAM; MAX_TIERS],
        weights: [1; MAX_TIERS],
        len: 1,
    };
    configure::set_recipe(KindId::DEFAULT, dram(false), Bytes::new(usize::MAX))
        && configure::set_recipe(KindId::DRAM, dram(false), Bytes::new(usize::MAX))
}

/// What may allocate or take locks of libc: once, by the first thread that has a heap.
pub fn late() {
    static LATE: AtomicBool = AtomicBool::new(false);
    // Relaxed: whoever comes second has nothing to wait for.
    if LATE.load(Ordering::Relaxed) || LATE.swap(true, Ordering::Relaxed) {
        return;
    }
    fork::register();
    super::exit::register();
}

const _: () = assert!(KINDS.len() > KindId::FIRST_FREE as usize);

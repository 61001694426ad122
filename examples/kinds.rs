//! Explicit kinds: an index in DRAM, its values in a slower tier.
//!
//! ```sh
//! cargo run --release --features allocator-api2 --example kinds -- /var/tmp
//! ```
//!
//! Each look-up touches the index and one value, so the index belongs into the fast memory.
//! The program's own allocator stays what it is: blocks come from a kind only where it is named.

use std::alloc::Layout;
use std::collections::HashMap;
use tierheap::{Kind, Tier, tier_of};

/// Bytes in a kind, by its own calls alone.
struct Value {
    start: *mut u8,
    len: usize,
}

impl Value {
    fn new(kind: Kind, bytes: &[u8]) -> Option<Value> {
        let start = kind.alloc(Layout::for_value(bytes));
        if start.is_null() {
            return None;
        }
        // SAFETY: a block of that length, not shared with anyone yet.
        unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Some(Value {
            start,
            len: bytes.len(),
        })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: written in `new`, freed in `drop`.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // Any kind frees blocks of all kinds.
        // SAFETY: made in `new`, and given up here.
        unsafe { Kind::DEFAULT.dealloc(self.start) }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = match std::env::args().nth(1) {
        Some(folder) => folder,
        None => std::env::temp_dir().display().to_string(),
    };
    // At most a gigabyte in the folder; strict, so that values never spill into DRAM.
    let values = Kind::new(&format!("cold=file:{folder},limit:1G;policy=cold;strict=1"))?;

    let mut store = HashMap::new();
    for key in 0..2000u32 {
        let bytes = vec![key as u8; 10_000];
        store.insert(key, Value::new(values, &bytes).ok_or("the folder is full")?);
    }
    for (key, value) in &store {
        assert_eq!(value.len, 10_000);
        assert!(value.bytes().iter().all(|b| *b == *key as u8));
    }
    let cold = store
        .values()
        .filter(|value| tier_of(value.start) > Some(Tier::DRAM))
        .count();
    println!("{cold} of {} values in the cold tier", store.len());
    drop(store);

    #[cfg(feature = "allocator-api2")]
    collections(values);

    // SAFETY: no block of the kind is left.
    assert!(unsafe { values.destroy() });
    Ok(())
}

/// The same without a line of unsafe code: collections that take an allocator.
#[cfg(feature = "allocator-api2")]
fn collections(values: Kind) {
    use allocator_api2::{boxed::Box, vec::Vec};

    // The index in DRAM, whatever the default kind does.
    let mut index: Vec<Box<[u8], Kind>, Kind> = Vec::new_in(Kind::DRAM);
    for key in 0..2000u32 {
        let mut value: Vec<u8, Kind> = Vec::new_in(values);
        value.resize(10_000, key as u8);
        index.push(value.into_boxed_slice());
    }
    assert_eq!(tier_of(index.as_ptr()), Some(Tier::DRAM));
    let cold = index
        .iter()
        .filter(|value| tier_of(value.as_ptr()) > Some(Tier::DRAM))
        .count();
    println!("{cold} of {} boxes in the cold tier", index.len());
}

//! The heap under test, each of its answers checked against what must hold of it: who owns which
//! bytes, and what stands in them.

use crate::ops::{Op, Target};
use std::collections::BTreeMap;
use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tierheap::api::c::*;

const KIB: usize = 1 << 10;

/// A live block. `id` is in its contents: each is filled in full, its slack included.
#[derive(Debug)]
pub struct Block {
    pub addr: usize,
    pub size: usize,
    pub usable: usize,
    pub target: Target,
    pub tier: i32,
    id: u64,
}

/// The heap with its kinds, and the intervals of all live blocks.
pub struct Heap {
    /// Handles, as numbers so that threads share them, and the cold tier of each.
    kinds: Mutex<[(usize, i32); Target::ALL.len()]>,
    spans: Mutex<BTreeMap<usize, usize>>,
    ids: AtomicU64,
    folder: PathBuf,
    /// Nobody but this model allocates: the statistics are those of its blocks.
    alone: bool,
}

pub fn set_errno(value: i32) {
    // SAFETY: the address of this thread's errno.
    unsafe { *libc::__errno_location() = value };
}

pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// The word of a block's contents at this index.
fn word(id: u64, index: usize) -> u64 {
    (id << 32 | 0x5bd1_e995).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (index as u64).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

impl Block {
    fn bytes(&self, from: usize, to: usize) -> &[u8] {
        // SAFETY: the block is live and belongs to whoever has the value.
        unsafe { std::slice::from_raw_parts((self.addr + from) as *const u8, to - from) }
    }

    fn fill(&mut self) {
        // SAFETY: as in `bytes`; the value is borrowed alone.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.addr as *mut u8, self.usable) };
        let (words, rest) = bytes.as_chunks_mut::<8>();
        for (i, bytes) in words.iter_mut().enumerate() {
            *bytes = word(self.id, i).to_le_bytes();
        }
        let last = word(self.id, words.len()).to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }

    fn expect_id(&self, id: u64, from: usize, to: usize) {
        let first = from / 8;
        let (words, rest) = self.bytes(first * 8, to).as_chunks::<8>();
        let expected = |i: usize| word(id, first + i).to_le_bytes();
        // Without a branch for each word: most of the time goes here.
        let differ = (words.iter().enumerate()).fold(0, |differ, (i, bytes)| {
            differ | (u64::from_le_bytes(*bytes) ^ word(id, first + i))
        });
        if differ != 0 || *rest != expected(words.len())[..rest.len()] {
            let wrong = words
                .iter()
                .enumerate()
                .position(|(i, w)| *w != expected(i));
            let at = (first + wrong.unwrap_or(words.len())) * 8;
            panic!("contents of {id:x} changed at byte {at} of {self:x?}");
        }
    }

    /// Writes it anew, so that its old contents are wrong from here on.
    pub fn rewrite(&mut self, heap: &Heap) {
        self.id = heap.next_id();
        self.fill();
    }

    /// All its bytes are as they were written.
    pub fn verify(&self) {
        self.expect_id(self.id, 0, self.usable);
    }

    /// The ends are, which is where neighbours reach.
    pub fn verify_ends(&self) {
        self.expect_id(self.id, 0, self.usable.min(64));
        self.expect_id(self.id, self.usable.saturating_sub(64), self.usable);
    }
}

impl Heap {
    /// With a folder for the tier that is made of files.
    pub fn new(folder: &Path, alone: bool) -> Heap {
        let heap = Heap {
            kinds: Mutex::new([(0, 0); Target::ALL.len()]),
            spans: Mutex::new(BTreeMap::new()),
            ids: AtomicU64::new(1),
            folder: folder.to_path_buf(),
            alone,
        };
        Target::ALL.into_iter().for_each(|t| heap.make(t));
        heap
    }

    fn make(&self, target: Target) {
        let spec = match target {
            Target::Default | Target::Dram | Target::Cold => None,
            Target::File => Some(format!("cold=file:{};policy=cold", self.folder.display())),
            Target::Sized => Some("cold=memfd;policy=size;threshold=1K".to_string()),
            Target::Small => Some("cold=memfd,limit:1M;policy=cold".to_string()),
            Target::Strict => Some("cold=memfd,limit:2M;policy=cold;strict=1".to_string()),
        };
        let kind = match (target, spec) {
            (_, Some(spec)) => {
                let text = CString::new(spec).unwrap();
                let mut kind = null_mut();
                // SAFETY: a string, and a place for the kind.
                let code = unsafe { tierheap_kind_create(text.as_ptr(), &mut kind) };
                assert_eq!(code, TIERHEAP_OK, "{text:?}");
                kind
            }
            (Target::Dram, None) => tierheap_kind_dram(),
            (Target::Cold, None) => tierheap_kind_cold(),
            (_, None) => tierheap_kind_default(),
        };
        assert!(!kind.is_null(), "{target:?}");
        // Large enough for every kind to take it from the tier that it prefers.
        let probe = tierheap_malloc(kind, 2 * KIB);
        let tier = tierheap_tier_of(probe);
        let cold = !matches!(target, Target::Default | Target::Dram);
        assert!(
            if cold { tier > 1 } else { tier == 1 },
            "{target:?}: {tier}"
        );
        // SAFETY: just made.
        unsafe { tierheap_free(probe) };
        self.kinds.lock().unwrap()[target as usize] = (kind as usize, tier);
    }

    fn next_id(&self) -> u64 {
        // Relaxed: only has to differ.
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    pub fn kind(&self, target: Target) -> *mut tierheap_kind {
        self.kinds.lock().unwrap()[target as usize].0 as *mut tierheap_kind
    }

    pub fn malloc(&self, target: Target, size: usize) -> Option<Block> {
        set_errno(0);
        let addr = tierheap_malloc(self.kind(target), size);
        self.born(target, addr, size, 16, true)
    }

    pub fn calloc(&self, target: Target, count: usize, size: usize) -> Option<Block> {
        set_errno(0);
        let addr = tierheap_calloc(self.kind(target), count, size);
        if !addr.is_null() {
            // SAFETY: a block of that many bytes.
            let bytes = unsafe { std::slice::from_raw_parts(addr.cast::<u8>(), count * size) };
            let dirty = bytes.iter().fold(0, |dirty, byte| dirty | byte);
            assert_eq!(dirty, 0, "calloc gave bytes that are not zero");
        }
        self.born(target, addr, count * size, 16, true)
    }

    pub fn aligned(&self, target: Target, align: usize, size: usize) -> Option<Block> {
        set_errno(0);
        let addr = tierheap_aligned_alloc(self.kind(target), align, size);
        self.born(target, addr, size, align, align <= 16)
    }

    pub fn posix(&self, target: Target, align: usize, size: usize) -> Option<Block> {
        let mut addr = null_mut();
        set_errno(77);
        // SAFETY: a place for the address.
        let code = unsafe { tierheap_posix_memalign(self.kind(target), &mut addr, align, size) };
        assert_eq!(errno(), 77, "posix_memalign changed errno");
        assert!(code == 0 || code == libc::ENOMEM, "{code}");
        assert_eq!(code == 0, !addr.is_null(), "posix_memalign returned {code}");
        set_errno(code);
        self.born(target, addr, size, align, align <= 16)
    }

    /// What must hold of a new block. `placed`: whether the policy has seen this very size.
    fn born(
        &self,
        target: Target,
        addr: *mut c_void,
        size: usize,
        align: usize,
        placed: bool,
    ) -> Option<Block> {
        if addr.is_null() {
            assert_eq!(target, Target::Strict, "no memory for {size} bytes");
            assert_eq!(errno(), libc::ENOMEM);
            return None;
        }
        // SAFETY: a live block.
        let usable = unsafe { tierheap_usable_size(addr) };
        let tier = tierheap_tier_of(addr);
        let mut block = Block {
            addr: addr as usize,
            size,
            usable,
            target,
            tier,
            id: self.next_id(),
        };
        assert!(usable >= size, "{block:x?}");
        let aligned = block.addr.is_multiple_of(align.max(16));
        assert!(aligned, "not to {align:x}: {block:x?}");
        assert_eq!(tierheap_kind_of(addr), self.kind(target), "{block:x?}");
        self.expect_tier(&block, placed);
        for at in [size / 2, size.saturating_sub(1)] {
            let here = tierheap_tier_of((block.addr + at) as *const c_void);
            assert_eq!(here, tier, "byte {at} of {block:x?}");
        }
        if tier > 1 && size >= 256 {
            // Whole write units of persistent memory.
            assert!(block.addr.is_multiple_of(256), "{block:x?}");
            assert!(usable.is_multiple_of(256), "{block:x?}");
        }
        self.claim(&block);
        block.fill();
        Some(block)
    }

    fn expect_tier(&self, block: &Block, placed: bool) {
        let cold = self.kinds.lock().unwrap()[block.target as usize].1;
        let fits = match block.target {
            Target::Small => block.tier == cold || block.tier == 1,
            Target::Sized if !placed => block.tier == cold || block.tier == 1,
            // Sizes up to 2 KiB are told apart by 16 bytes.
            Target::Sized => block.tier == if block.size > KIB - 16 { cold } else { 1 },
            _ => block.tier == cold,
        };
        assert!(fits, "wrong tier, {cold} is the cold one: {block:x?}");
    }

    /// Enters the block among the live ones: no byte of it may be another's.
    fn claim(&self, block: &Block) {
        // A block of no bytes still has an address of its own.
        let (start, end) = (block.addr, block.addr + block.usable.max(1));
        let mut spans = self.spans.lock().unwrap();
        if let Some((&other, &other_end)) = spans.range(..end).next_back() {
            assert!(
                other_end <= start,
                "{block:x?} is in {other:x}..{other_end:x}"
            );
        }
        spans.insert(start, end);
    }

    fn unclaim(&self, block: &Block) {
        let gone = self.spans.lock().unwrap().remove(&block.addr);
        assert!(gone.is_some(), "{block:x?} is not among the live blocks");
    }

    pub fn free(&self, block: Block) {
        block.verify();
        self.unclaim(&block);
        set_errno(77);
        // SAFETY: live, and given up.
        unsafe { tierheap_free(block.addr as *mut c_void) };
        assert_eq!(errno(), 77, "free changed errno");
    }

    /// The block as it is afterwards; none if size 0 freed it.
    pub fn realloc(&self, block: Block, size: usize, to: Option<Target>) -> Option<Block> {
        block.verify();
        self.unclaim(&block);
        let kind = to.map_or(null_mut(), |to| self.kind(to));
        set_errno(0);
        // SAFETY: live, and given up if it moves.
        let addr = unsafe { tierheap_realloc(kind, block.addr as *mut c_void, size) };
        if size == 0 {
            assert!(addr.is_null(), "realloc to 0 frees");
            return None;
        }
        let target = to.unwrap_or(block.target);
        if addr.is_null() {
            assert_eq!(target, Target::Strict, "no memory for {size} bytes");
            assert_eq!(errno(), libc::ENOMEM);
            self.claim(&block);
            block.verify();
            return Some(block);
        }
        let kept = Block {
            addr: addr as usize,
            ..block
        };
        kept.expect_id(block.id, 0, block.size.min(size));
        self.born(target, addr, size, 16, false)
    }

    /// Does one call; what came of it joins the live blocks.
    pub fn step(&self, live: &mut Vec<Block>, op: Op) {
        let block = match op.pick() {
            Some(pick) if !live.is_empty() => Some(live.swap_remove(pick % live.len())),
            _ => None,
        };
        live.extend(self.call(block, op));
    }

    /// Does one call with the block that it is about, if it is about one and there is one.
    pub fn call(&self, block: Option<Block>, op: Op) -> Option<Block> {
        match op {
            Op::Malloc(target, size) => self.malloc(target, size),
            Op::Calloc(target, count, size) => self.calloc(target, count, size),
            Op::Aligned(target, shift, size) => self.aligned(target, 1 << shift, size),
            Op::Posix(target, shift, size) => self.posix(target, 1 << shift, size),
            Op::Realloc(_, size, to) => self.realloc(block?, size, to),
            Op::Free(_) => {
                self.free(block?);
                None
            }
        }
    }

    /// With nobody else at work: the statistics add up to these blocks, and limits hold.
    pub fn audit<'a>(&self, live: impl Iterator<Item = &'a Block>) {
        let mut asked = BTreeMap::new();
        for block in live {
            *asked.entry(block.tier as u32).or_insert(0) += block.usable;
        }
        for tier in tierheap::stats().tiers() {
            let blocks = asked.remove(&tier.tier.number()).unwrap_or(0);
            let asked = tier.asked.unwrap();
            assert!(
                asked == blocks || self.is_shared(tier.tier) && asked > blocks,
                "live blocks have {blocks} bytes: {tier:?}"
            );
            assert!(tier.held >= blocks && tier.peak >= tier.held, "{tier:?}");
            assert!(
                tier.limit.is_none_or(|limit| tier.peak <= limit),
                "{tier:?}"
            );
        }
        assert!(asked.is_empty(), "blocks in tiers that are not: {asked:?}");
    }

    /// Others than this model may have blocks in it.
    pub fn is_shared(&self, tier: tierheap::Tier) -> bool {
        !self.alone && tier == tierheap::Tier::DRAM
    }

    /// Destroys a kind that was made, with these blocks, which are all that it has.
    fn destroy(&self, target: Target, gone: &[Block]) {
        let (kind, tier) = self.kinds.lock().unwrap()[target as usize];
        gone.iter().for_each(|b| self.unclaim(b));
        // SAFETY: no block of the kind is used any more.
        let code = unsafe { tierheap_kind_destroy(kind as *mut tierheap_kind) };
        assert_eq!(code, TIERHEAP_OK);
        let left = tierheap::stats()
            .tiers()
            .any(|t| t.tier.number() == tier as u32);
        assert!(!left, "tier {tier} is there after its kind");
        for block in gone.iter().filter(|b| self.alone || b.tier > 1) {
            let addr = block.addr as *const c_void;
            if block.tier > 2 {
                assert_eq!(tierheap_tier_of(addr), 0, "{block:x?}");
            }
            assert!(tierheap_kind_of(addr).is_null(), "{block:x?}");
        }
    }

    /// A kind is destroyed with all its blocks, and one like it made. No other thread may be at
    /// work.
    pub fn renew(&self, target: Target, gone: Vec<Block>) {
        if target.is_made() {
            self.destroy(target, &gone);
            self.make(target);
        } else {
            let kind = self.kind(target);
            // SAFETY: refused, as these kinds always exist.
            assert_eq!(unsafe { tierheap_kind_destroy(kind) }, TIERHEAP_EBUSY);
            gone.into_iter().for_each(|b| self.free(b));
        }
    }

    /// Destroys the kinds, some with blocks in them, and frees the other blocks.
    pub fn end(&self, live: Vec<Block>) {
        let mut rest = live;
        for target in Target::ALL.into_iter().filter(|t| t.is_made()) {
            let (gone, kept) = rest.into_iter().partition(|b| b.target == target);
            rest = kept;
            let gone: Vec<Block> = gone;
            self.destroy(target, &gone);
        }
        rest.into_iter().for_each(|b| self.free(b));
        assert!(self.spans.lock().unwrap().is_empty());
    }
}

/// With no block left the statistics say so.
pub fn expect_empty() {
    for tier in tierheap::stats().tiers() {
        assert_eq!(tier.asked, Some(0), "{tier:?}");
    }
}

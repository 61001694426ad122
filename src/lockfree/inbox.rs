//! Where threads put the blocks they free on behalf of the thread heap that owns them.

use core::marker::PhantomData;
use core::num::NonZeroUsize;

use super::const_unless_loom;
use crate::sync::{AtomicUsize, Ordering};

/// A handle to a record with room for one link to another of its kind. Records are pointers in
/// the heap and places of an array in a model.
///
/// # Safety
/// `from_word(into_word(x))` names the same record as `x`, and `next` returns what the last
/// `set_next` of the same record stored.
pub unsafe trait Link: Copy {
    fn into_word(self) -> NonZeroUsize;
    /// # Safety
    /// `word` comes from [`Link::into_word`] of a record that still exists.
    unsafe fn from_word(word: NonZeroUsize) -> Self;
    /// # Safety
    /// No other thread touches the record's link meanwhile.
    unsafe fn set_next(self, next: Option<Self>);
    /// # Safety
    /// As for [`Link::set_next`].
    unsafe fn next(self) -> Option<Self>;
}

/// A stack of records that any thread pushes to and that is only ever emptied as a whole.
///
/// Nothing is popped singly, so a pusher's compare-and-swap may succeed on a head that was taken
/// and pushed again in between (the ABA of Treiber stacks) and is still right: the link it wrote
/// names the head it replaces, and that is all there is to know.
#[derive(Debug)]
pub struct Inbox<B: Link> {
    /// The word of the record pushed last; 0 when empty.
    head: AtomicUsize,
    records: PhantomData<fn(B) -> B>,
}

impl<B: Link> Inbox<B> {
    const_unless_loom! {
        /// An empty inbox.
        pub fn new() -> Inbox<B> {
            Inbox {
                head: AtomicUsize::new(0),
                records: PhantomData,
            }
        }
    }

    /// Hands `record` over to whoever takes the chain next.
    ///
    /// # Safety
    /// The caller owns the record, may send it to another thread, and does not touch it again
    /// until it gets it back; the record exists until the inbox is emptied.
    pub unsafe fn push(&self, record: B) {
        let word = record.into_word().get();
        // Relaxed: the pusher does not follow the link, it only stores it.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // SAFETY: `head` is 0 or the word of a record that was pushed and, as the caller of
            // its push promised, still exists or has left together with this value of `head`, in
            // which case the exchange below fails or the value is current again.
            let next = NonZeroUsize::new(head).map(|w| unsafe { B::from_word(w) });
            // SAFETY: the caller owns the record until the exchange succeeds.
            unsafe { record.set_next(next) };
            // Release pairs with the Acquire in `take`: the taker sees the link and the record's
            // contents. Pushes in between are read-modify-writes, so each earlier pusher's Release
            // reaches the taker through them. Failure publishes nothing: Relaxed.
            match self
                .head
                .compare_exchange_weak(head, word, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes everything, latest first. The records are the caller's from here on.
    pub fn take(&self) -> Chain<B> {
        // An owner looks far more often than there is anything, and a swap would pull the cache
        // line over each time.
        if self.is_empty() {
            return Chain { next: None };
        }
        // Acquire: pairs with the Release in `push`.
        let head = self.head.swap(0, Ordering::Acquire);
        Chain {
            // SAFETY: a non-zero head is the word of a record that was pushed, and nobody else
            // can have taken it, since taking it replaces it.
            next: NonZeroUsize::new(head).map(|w| unsafe { B::from_word(w) }),
        }
    }

    pub fn is_empty(&self) -> bool {
        // Relaxed: a hint; `take` decides. Where missing a push would matter, the caller puts
        // a fence before (see `super::orphan`).
        self.head.load(Ordering::Relaxed) == 0
    }
}

/// Records taken from an inbox. What is not iterated is lost.
#[must_use = "records that are not iterated are lost"]
#[derive(Debug)]
pub struct Chain<B: Link> {
    next: Option<B>,
}

impl<B: Link> Iterator for Chain<B> {
    type Item = B;
    /// Reads the link before it hands out the record, which may then be reused at once.
    fn next(&mut self) -> Option<B> {
        let record = self.next?;
        // SAFETY: the chain was taken by one swap, so its records belong to this iterator alone
        // until it hands them out.
        self.next = unsafe { record.next() };
        Some(record)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use std::sync::Arc;
    use std::vec::Vec;

    use super::super::model::{Handle, records};
    use super::Inbox;

    /// Two threads push while the owner takes, and pushes what it took a second time: the same
    /// records come back at the same addresses under a pusher that still holds the old head.
    #[test]
    fn remote_frees_are_neither_lost_nor_doubled() {
        loom::model(|| {
            let all = records::<3>();
            let inbox = Arc::new(Inbox::new());
            let pusher = |places: core::ops::Range<usize>| {
                let (all, inbox) = (all.clone(), inbox.clone());
                loom::thread::spawn(move || {
                    for place in places {
                        let record = Handle::of(&*all, place);
                        record.write(10 + place as u32);
                        // SAFETY: each record is pushed by one thread; the array stays.
                        unsafe { inbox.push(record) };
                    }
                })
            };
            let threads = [pusher(0..2), pusher(2..3)];
            for record in inbox.take() {
                record.write(record.read() + 10);
                // SAFETY: taken, so it is this thread's to push.
                unsafe { inbox.push(record) };
            }
            for thread in threads {
                thread.join().unwrap();
            }
            let mut seen: Vec<u32> = inbox.take().map(Handle::read).collect();
            assert!(inbox.take().next().is_none());
            for value in &mut seen {
                assert!((10..13).contains(value) || (20..23).contains(value));
                *value %= 10;
            }
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2]);
        });
    }

    /// An owner and a claimant may both take: each record goes to one of them.
    #[test]
    fn two_takers_share_out_the_records() {
        loom::model(|| {
            let all = records::<2>();
            let inbox = Arc::new(Inbox::new());
            let pusher = {
                let (all, inbox) = (all.clone(), inbox.clone());
                loom::thread::spawn(move || {
                    for place in 0..2 {
                        // SAFETY: pushed once each; the array stays.
                        unsafe { inbox.push(Handle::of(&*all, place)) };
                    }
                })
            };
            let other = {
                let inbox = inbox.clone();
                loom::thread::spawn(move || inbox.take().map(Handle::read).collect::<Vec<_>>())
            };
            let mut seen: Vec<u32> = inbox.take().map(Handle::read).collect();
            pusher.join().unwrap();
            seen.extend(other.join().unwrap());
            seen.extend(inbox.take().map(Handle::read));
            seen.sort_unstable();
            assert_eq!(seen, [0, 1]);
        });
    }
}

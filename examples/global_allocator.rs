//! A program whose every allocation is tierheap's, without preloading anything:
//!
//! ```sh
//! TIERHEAP="cold=file:/var/tmp;policy=size;threshold=64K" cargo run --release --example global_allocator
//! ```
//!
//! It counts words on several threads and keeps the texts; the counts are small and often
//! touched, the texts large and seldom. Without a configuration all of it is in DRAM.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc;
use std::thread;
use tierheap::{Tier, TierHeap, tier_of};

#[global_allocator]
static HEAP: TierHeap = TierHeap::new();

const WORDS: [&str; 6] = ["hot", "cold", "tier", "slice", "slab", "block"];

/// A text of about a hundred kilobytes, grown piece by piece as programs do.
fn write_text(seed: usize) -> String {
    let mut text = String::new();
    for i in 0..20_000 {
        text.push_str(WORDS[(seed * 7 + i * i) % WORDS.len()]);
        text.push(' ');
    }
    text
}

fn count(text: &str) -> HashMap<&str, usize> {
    let mut counts = HashMap::new();
    for word in text.split_whitespace() {
        *counts.entry(word).or_insert(0) += 1;
    }
    counts
}

fn main() {
    let (sender, receiver) = mpsc::channel();
    let writers: Vec<_> = (0..4)
        .map(|thread| {
            let sender = sender.clone();
            thread::spawn(move || {
                for round in 0..25 {
                    // Made here, freed by the thread that receives it.
                    sender.send(write_text(thread * 25 + round)).unwrap();
                }
            })
        })
        .collect();
    drop(sender);

    let mut texts = Vec::new();
    let mut totals: BTreeMap<String, usize> = BTreeMap::new();
    for text in receiver {
        for (word, n) in count(&text) {
            *totals.entry(word.to_string()).or_default() += n;
        }
        texts.push(text.into_boxed_str());
    }
    for writer in writers {
        writer.join().unwrap();
    }

    assert_eq!(totals.values().sum::<usize>(), 100 * 20_000);
    let cold = texts
        .iter()
        .filter(|text| tier_of(text.as_ptr()) > Some(Tier::DRAM))
        .count();
    println!("{} texts, {cold} of them in a cold tier", texts.len());
    for (word, n) in &totals {
        assert_eq!(tier_of(word.as_ptr()), Some(Tier::DRAM));
        println!("{n:8} {word}");
    }
    for tier in tierheap::stats().tiers() {
        // Not all are known at all times: see `TierStats::asked`.
        let asked = tier
            .asked
            .map_or("?".to_string(), |bytes| (bytes >> 10).to_string());
        println!("tier {}: {asked} KiB in live blocks", tier.tier.number());
    }
}

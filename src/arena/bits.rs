//! The search for neighbouring unused segments in a bitmap. Pure.

/// The first run of `want` clear bits among the first `len` bits, looking from bit `from` on.
/// `word(i)` gives the bits `64 * i ..`.
pub fn find_clear_run(
    word: impl Fn(usize) -> u64,
    len: usize,
    want: usize,
    from: usize,
) -> Option<usize> {
    let mut at = from;
    let mut have = 0;
    while at < len {
        let bit = at % 64;
        let rest = word(at / 64) >> bit;
        let left = 64 - bit;
        if rest & 1 == 1 {
            // Skip the whole run of ones at once: a full heap is mostly ones.
            have = 0;
            at += (rest.trailing_ones() as usize).min(left);
            continue;
        }
        let zeros = (rest.trailing_zeros() as usize).min(left).min(len - at);
        have += zeros;
        at += zeros;
        if have >= want {
            return Some(at - have);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_clear_run_is_found(
            words in proptest::collection::vec(any::<u64>().prop_map(|w| w & w >> 1 & w >> 3), 1..5),
            cut in 0usize..64, want in 1usize..130, from in 0usize..100,
        ) {
            let len = words.len() * 64 - cut;
            let clear = |i: usize| words[i / 64] >> (i % 64) & 1 == 0;
            let naive = (from..len).find(|&s| s + want <= len && (s..s + want).all(clear));
            prop_assert_eq!(find_clear_run(|i| words[i], len, want, from), naive);
        }
    }
}

use super::*;
use proptest::prelude::*;
use std::vec::Vec;

/// The string that means `c`, in the grammar's own words.
fn render(c: &Config<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    for tier in c.cold.iter() {
        match tier.backing {
            Backing::FsDax(dir) => out.extend([b"cold=fsdax:", dir].concat()),
            Backing::File { dir, .. } => out.extend([b"cold=file:", dir].concat()),
            Backing::Node(set) => out.extend(format!("cold=node:{set}").bytes()),
            Backing::Memfd => out.extend(b"cold=memfd"),
            Backing::KmemNodes => unreachable!("only memtier's grammar says it"),
        }
        if let Some(limit) = tier.limit {
            out.extend(format!(",limit:{}", limit.get()).bytes());
        }
        out.push(b';');
    }
    if let Some(dram) = c.dram {
        out.extend(format!("dram={};", dram.get()).bytes());
    }
    out.extend(
        format!(
            "policy={};threshold={};",
            c.policy.as_str(),
            c.threshold.get()
        )
        .bytes(),
    );
    if !c.ratio.is_empty() {
        let weights: Vec<String> = c.ratio.iter().map(u32::to_string).collect();
        out.extend(format!("ratio={};", weights.join(":")).bytes());
    }
    match c.stats {
        Stats::Off => {}
        Stats::Stderr => out.extend(b"stats=1;"),
        Stats::Path(path) => out.extend([b"stats=", path, b";"].concat()),
    }
    match c.thp {
        Thp::System => {}
        Thp::Never => out.extend(b"thp=never;"),
        Thp::Madvise => out.extend(b"thp=madvise;"),
        Thp::Always => out.extend(b"thp=always;"),
    }
    out.extend(format!("strict={};abort={}", c.strict as u8, c.abort as u8).bytes());
    out
}

/// Any path: every byte but `;` and NUL; half of them with words of the grammar inside.
fn a_path() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_map(|b| if matches!(b, 0 | b';') { b',' } else { b });
    let piece = prop_oneof![
        proptest::collection::vec(byte, 1..12),
        prop_oneof![
            Just(",limit:4K"),
            Just(",limit:"),
            Just("limit:1/"),
            Just("cold=")
        ]
        .prop_map(|s| s.as_bytes().to_vec()),
    ];
    proptest::collection::vec(piece, 1..4).prop_map(|pieces| [b"/", &*pieces.concat()].concat())
}

#[derive(Debug, Clone)]
enum ABacking {
    FsDax(Vec<u8>),
    File(Vec<u8>),
    Node(Vec<u32>),
    Memfd,
}

/// A path without a limit ends in a slash: that keeps one that ends in a limit's words whole.
fn a_tier() -> impl Strategy<Value = (ABacking, Option<usize>)> {
    let backing = prop_oneof![
        a_path().prop_map(ABacking::FsDax),
        a_path().prop_map(ABacking::File),
        proptest::collection::vec(0..=NodeSet::MAX_NODE, 1..5).prop_map(ABacking::Node),
        Just(ABacking::Memfd),
    ];
    (
        backing,
        proptest::option::of(value::LEAST_LIMIT.get()..=usize::MAX >> 1),
    )
        .prop_map(|(mut backing, limit)| {
            if let (ABacking::FsDax(dir) | ABacking::File(dir), None) = (&mut backing, limit) {
                dir.push(b'/');
            }
            (backing, limit)
        })
}

const WORDS: [&str; 25] = [
    ";",
    "=",
    ":",
    ",",
    "-",
    " ",
    "cold=file:",
    "cold=node:",
    "/a",
    ",limit:",
    "dram=",
    "policy=size",
    "ratio=",
    "1",
    "99999999999",
    "K",
    "T",
    "memfd",
    "KIND:DRAM",
    "KIND:FS_DAX",
    ",RATIO:1",
    ",PATH:/a",
    ";POLICY:STATIC_RATIO",
    ";POLICY:DYNAMIC_THRESHOLD",
    "INIT_VAL:",
];

proptest! {
    #[test]
    fn a_rendering_parses_to_itself(
        tiers in proptest::collection::vec(a_tier(), 0..=MAX_COLD),
        dram in proptest::option::of(0..=usize::MAX >> 1),
        policy in 0..PolicyName::NAMES.len(),
        threshold in 0..=usize::MAX >> 1,
        weights in proptest::option::of(proptest::array::uniform9(any::<u32>())),
        stats in prop_oneof![Just(None), Just(Some(Vec::new())), a_path().prop_map(Some)],
        thp in 0..4usize,
        (strict, abort) in any::<(bool, bool)>(),
    ) {
        let mut config = Config {
            dram: dram.map(Bytes::new),
            threshold: Bytes::new(threshold),
            stats: match &stats {
                None => Stats::Off,
                Some(path) if path.is_empty() => Stats::Stderr,
                Some(path) => Stats::Path(path),
            },
            thp: [Thp::System, Thp::Never, Thp::Madvise, Thp::Always][thp],
            strict,
            abort,
            ..Config::default()
        };
        for (backing, limit) in &tiers {
            let backing = match backing {
                ABacking::FsDax(dir) => Backing::FsDax(dir),
                ABacking::File(dir) => Backing::File { dir, dax_expected: false },
                ABacking::Node(list) => Backing::Node(nodes(list)),
                ABacking::Memfd => Backing::Memfd,
            };
            config.cold.push(TierSpec { backing, limit: limit.map(Bytes::new) }).unwrap();
        }
        if !config.cold.is_empty() {
            config.policy = PolicyName::NAMES[policy].1;
        }
        if let Some(weights) = weights {
            let weights = &weights[..1 + config.cold.len()];
            if weights.iter().any(|&w| w > 0) {
                weights.iter().for_each(|&w| config.ratio.push(w).unwrap());
            }
        }
        let text = render(&config);
        prop_assert_eq!(Config::parse(&text), Ok(config), "{}", String::from_utf8_lossy(&text));
    }

    #[test]
    fn any_bytes_are_parsed_or_refused(text in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Config::parse(&text).map_err(|e| e.to_string());
        let _ = Config::from_memtier(&text, Some(&text)).map_err(|e| e.to_string());
    }

    /// Random bytes never reach the inner rules; random joinings of the grammar's words do.
    #[test]
    fn any_words_are_parsed_or_refused_by_a_word_of_theirs(
        words in proptest::collection::vec(proptest::sample::select(&WORDS[..]), 0..24),
    ) {
        let text = words.concat();
        for parsed in [
            Config::parse(text.as_bytes()),
            Config::from_memtier(text.as_bytes(), None),
            Config::from_memtier(b"KIND:DRAM,RATIO:1;POLICY:DYNAMIC_THRESHOLD", Some(text.as_bytes())),
        ] {
            match parsed {
                Ok(config) => {
                    prop_assert!(config.ratio.is_empty() || config.ratio.len() == 1 + config.cold.len());
                    prop_assert!(!config.cold.is_empty() || config.policy == PolicyName::Dram);
                    prop_assert!(config.cold.iter().all(|t| t.limit.is_none_or(|l| l >= value::LEAST_LIMIT)));
                }
                Err(e) => prop_assert!(text.contains(core::str::from_utf8(e.word).unwrap())),
            }
        }
    }
}

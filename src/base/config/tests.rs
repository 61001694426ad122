mod memtier;
mod properties;

use super::*;
use std::format;
use std::string::{String, ToString};

fn parse(text: &str) -> Config<'_> {
    Config::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn refused(text: &str) -> String {
    match Config::parse(text.as_bytes()) {
        Ok(config) => panic!("{text} was accepted: {config:?}"),
        Err(e) => e.to_string(),
    }
}

fn nodes(list: &[u32]) -> NodeSet {
    let mut set = NodeSet::EMPTY;
    assert!(list.iter().all(|&n| set.insert(n)));
    set
}

fn file(dir: &str) -> Backing<'_> {
    Backing::File {
        dir: dir.as_bytes(),
        dax_expected: false,
    }
}

#[test]
fn the_documents_own_example() {
    let c = parse("cold=fsdax:/mnt/pmem,limit:64G;dram=4G;policy=heat");
    let limit = Some(Bytes::new(64 << 30));
    assert_eq!(
        *c.cold,
        [TierSpec {
            backing: Backing::FsDax(b"/mnt/pmem"),
            limit
        }]
    );
    assert_eq!(c.dram, Some(Bytes::new(4 << 30)));
    assert_eq!(c.policy, PolicyName::Heat);
    assert_eq!(
        c,
        Config {
            cold: c.cold,
            dram: c.dram,
            policy: c.policy,
            ..Config::default()
        }
    );
}

#[test]
fn nothing_means_the_defaults_and_empty_pairs_nothing() {
    for text in ["", ";", ";;;", " ;\n", "\t"] {
        assert_eq!(parse(text), Config::default(), "{text:?}");
    }
    let c = Config::default();
    assert_eq!(
        (c.policy, c.threshold.get(), c.abort),
        (PolicyName::Dram, 65536, true)
    );
    assert!(!c.strict && c.dram.is_none() && c.cold.is_empty() && c.ratio.is_empty());
    assert_eq!(parse(";dram=1K;;strict=1;"), parse("dram=1K;strict=1"));
    assert_eq!(parse("dram=1K;\n  strict=1;\t"), parse("dram=1K;strict=1"));
}

#[test]
fn the_policy_follows_the_cold_tier_unless_named() {
    assert_eq!(parse("cold=memfd").policy, PolicyName::Heat);
    assert_eq!(parse("policy=dram;cold=memfd").policy, PolicyName::Dram);
    for (name, policy) in PolicyName::NAMES {
        assert_eq!(parse(&format!("policy={name};cold=memfd")).policy, policy);
        assert_eq!(policy.as_str(), name);
    }
    assert!(refused("policy=size;threshold=4K").contains("policy: \"size\" needs a cold tier"));
    let over = |text: &'static str| Config::parse_over(text.as_bytes(), 2).map(|c| c.policy);
    assert_eq!(over("policy=cold"), Ok(PolicyName::Cold));
    assert_eq!(over(""), Ok(PolicyName::Heat));
    assert_eq!(over("policy=ratio;ratio=1:2:3"), Ok(PolicyName::Ratio));
    assert!(over("policy=ratio;ratio=1:2").is_err());
    assert!(over("policy=ratio;ratio=1:2;cold=memfd").is_ok());
}

#[test]
fn every_tier_and_its_limit() {
    let backing = |value: &'static str| {
        let config = Config::parse_over(value.as_bytes(), 0).unwrap_or_else(|e| panic!("{e}"));
        let [tier] = *config.cold else {
            panic!("{config:?}")
        };
        (tier.backing, tier.limit.map(Bytes::get))
    };
    assert_eq!(backing("cold=memfd"), (Backing::Memfd, None));
    assert_eq!(
        backing("cold=memfd,limit:1T"),
        (Backing::Memfd, Some(1 << 40))
    );
    assert_eq!(backing("cold=file:/a b,c=d:e"), (file("/a b,c=d:e"), None));
    assert_eq!(backing("cold=file:/a,limit:64K"), (file("/a"), Some(65536)));
    assert_eq!(
        backing("cold=file:/a,limit:1K,limit:65537"),
        (file("/a,limit:1K"), Some(65537))
    );
    assert_eq!(
        backing("cold=file:/a,limit:1K/"),
        (file("/a,limit:1K/"), None)
    );
    assert_eq!(
        backing("cold=file:/a,limit:b/c"),
        (file("/a,limit:b/c"), None)
    );
    assert_eq!(
        backing("cold=file:/a "),
        (file("/a "), None),
        "a path may end in a blank"
    );
    assert_eq!(backing("cold=node:1"), (Backing::Node(nodes(&[1])), None));
    assert_eq!(
        backing("cold=node:1,2,limit:4M"),
        (Backing::Node(nodes(&[1, 2])), Some(4 << 20))
    );
    let far = nodes(&[0, 5, 6, 7, 1023]);
    assert_eq!(backing("cold=node:5-7,0,1023"), (Backing::Node(far), None));
    assert_eq!(far.to_string(), "0,5-7,1023");
    assert_eq!(far.words()[0], 0b1110_0001);
    assert_eq!(far.words()[15], 1 << 63);
}

#[test]
fn sizes_to_the_last_bit() {
    let size = |text: &str| parse(&format!("dram={text}")).dram.map(Bytes::get);
    assert_eq!(size("0"), Some(0));
    assert_eq!(size("007"), Some(7));
    assert_eq!(size("3K"), Some(3072));
    assert_eq!(size("9223372036854775807"), Some(usize::MAX >> 1));
    assert_eq!(size("8388607T"), Some(8388607 << 40));
    for text in [
        "9223372036854775808",
        "8388608T",
        "18446744073709551616K",
        "99999999999999999999",
    ] {
        assert!(
            refused(&format!("dram={text}")).contains("too large"),
            "{text}"
        );
    }
    for text in [
        "", "K", "4k", "4GB", "4GiB", "-1", "+1", "1.5G", "0x10", "4 G", "4G ", " 4G", "4G,",
    ] {
        let said = refused(&format!("dram={text}"));
        assert!(
            said.starts_with(&format!("dram: \"{text}\" is not a size")),
            "{said}"
        );
    }
}

#[test]
fn weights_are_one_a_tier() {
    let c = parse("cold=memfd;cold=file:/x;ratio=1:0:4294967295;policy=ratio");
    assert_eq!(*c.ratio, [1, 0, u32::MAX]);
    for (text, said) in [
        ("cold=memfd;ratio=1:2:3", "has 3 weights for 2 tiers: "),
        ("cold=memfd;ratio=1", "has 1 weight for 2 tiers: "),
        ("ratio=1:2", "has 2 weights for 1 tier: "),
    ] {
        assert!(refused(text).contains(said), "{text}: {}", refused(text));
    }
    assert!(refused("cold=memfd;ratio=0:0").contains("one weight at least"));
    for text in [
        "",
        ":",
        "1:",
        ":1",
        "1:x",
        "1:-1",
        "1: 2",
        "4294967296:1",
        "1,2",
    ] {
        assert!(
            refused(&format!("cold=memfd;ratio={text}")).contains("is not a ratio"),
            "{text}"
        );
    }
    assert!(refused("ratio=1:1:1:1:1:1:1:1:1:1").contains("is not a ratio"));
}

#[test]
fn the_other_keys() {
    let c = parse("strict=1;abort=0;thp=always;threshold=4K;stats=/var/log/x=1,2.json");
    assert!(c.strict && !c.abort);
    assert_eq!((c.thp, c.threshold), (Thp::Always, Bytes::kib(4)));
    assert_eq!(c.stats, Stats::Path(b"/var/log/x=1,2.json"));
    assert_eq!(parse("stats=1").stats, Stats::Stderr);
    assert_eq!(
        parse("stats=0;strict=0;abort=1;threshold=65536"),
        Config::default()
    );
    assert_eq!(parse("thp=never").thp, Thp::Never);
    assert_eq!(parse("thp=madvise").thp, Thp::Madvise);
}

#[test]
fn a_wrong_word_is_named_with_the_valid_ones() {
    let long = format!("cold=file:/{}", "x".repeat(4095));
    for (text, said) in [
        (
            "mmap=1",
            "\"mmap\" is an unknown key: the keys are cold, dram, policy, threshold, ratio, strict, stats, thp, abort",
        ),
        ("dram =1", "\"dram \" is an unknown key"),
        ("DRAM=1", "\"DRAM\" is an unknown key"),
        ("dram=1;junk", "\"junk\" is not a key=value pair"),
        ("=1", "\"\" is an unknown key"),
        ("dram=1;dram=1", "\"dram\" is given twice"),
        ("stats=1;cold=memfd;stats=0", "\"stats\" is given twice"),
        (
            "policy=hot",
            "policy: \"hot\" is an unknown policy: the policies are dram, size, ratio, auto, heat, cold",
        ),
        ("policy=", "policy: \"\" is an unknown policy"),
        (
            "cold=devdax:/dev/dax0.0,limit:1G",
            "cold: \"devdax:/dev/dax0.0\" is a devdax tier, not built yet: a tier is fsdax:DIR, file:DIR, node:LIST or memfd",
        ),
        (
            "cold=pmem:/x",
            "cold: \"pmem:/x\" is an unknown tier: a tier is fsdax:DIR",
        ),
        ("cold=", "cold: \"\" is an unknown tier"),
        ("cold=memfdx", "cold: \"memfdx\" is an unknown tier"),
        (
            "cold=memfd,limit:1G,limit:1G",
            "cold: \"memfd,limit:1G\" is an unknown tier",
        ),
        ("cold=file:", "cold: \"file:\" names no directory"),
        ("cold=fsdax:,limit:1G", "names no directory"),
        ("cold=file:/a\0b", "holds a NUL byte"),
        (long.as_str(), "longer than the 4095 bytes"),
        ("cold=memfd,limit:", "cold: \"\" is not a size"),
        ("cold=file:/a,limit:4GB", "cold: \"4GB\" is not a size"),
        (
            "cold=file:/a,limit:0",
            "cold: \"0\" leaves the tier no room",
        ),
        (
            "cold=memfd,limit:65535",
            "cold: \"65535\" is below 64K, the least limit: a tier takes memory in slices of 64K, so it could hold nothing",
        ),
        ("cold=file:/a,limit:4K", "cold: \"4K\" is below 64K"),
        ("cold=node:", "cold: \"\" is not a node list"),
        (
            "cold=node:1024",
            "cold: \"1024\" is not a node list: write 1 or 1,2 or 1-3, nodes 0 to 1023",
        ),
        ("cold=node:3-1", "\"3-1\" is not a node list"),
        ("cold=node:1-2-3", "is not a node list"),
        ("cold=node:1,", "is not a node list"),
        ("cold=node:1, 2", "is not a node list"),
        ("strict=yes", "strict: \"yes\" is neither 0 nor 1"),
        ("abort=", "abort: \"\" is neither 0 nor 1"),
        ("stats=", "stats: \"\" is neither 0, 1 nor a path"),
        (
            "thp=system",
            "thp: \"system\" is none of never, madvise, always",
        ),
    ] {
        let error = refused(text);
        assert!(
            error.contains(said),
            "{text}\n said    {error}\n, not {said}"
        );
    }
    let nine = "cold=memfd;".repeat(9);
    assert!(refused(&nine).contains("one cold tier more than 8"));
    assert_eq!(parse(&nine["cold=memfd;".len()..]).cold.len(), 8);
}

#[test]
fn a_kind_has_no_keys_of_the_heap_as_a_whole() {
    let kind = |text: &'static str| Config::parse_kind(text.as_bytes());
    let valid = "cold, policy, threshold, ratio, strict, thp";
    for key in KEYS {
        let text = format!("policy=dram;{key}=1");
        let of_a_kind = KIND_KEYS.contains(&key);
        assert_eq!(valid.contains(key), of_a_kind);
        let said = Config::parse_kind(text.as_bytes()).map_err(|e| e.to_string());
        let expected = format!("\"{key}\" is no key of a kind: the keys of a kind are {valid}");
        assert_eq!(said == Err(expected), !of_a_kind, "{said:?}");
    }
    for (text, said) in [
        ("cold=memfd;mmap=1", "\"mmap\" is no key of a kind: "),
        (
            "cold=memfd;junk",
            "\"junk\" is not a key=value pair: the keys of a kind are cold, policy",
        ),
        ("cold=disk", "\"disk\" is an unknown tier"),
    ] {
        let error = kind(text).expect_err("refused").to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
    let all = "cold=memfd;policy=ratio;threshold=4K;ratio=1:2;strict=1;thp=never";
    assert_eq!(kind(all), Ok(parse(all)));
    assert_eq!(kind(""), Ok(Config::default()));
}

#[test]
fn a_message_shows_any_bytes_on_one_line() {
    let said = |text: &[u8]| Config::parse(text).expect_err("refused").to_string();
    assert!(said(b"\xff\xc3\xa9\n\"'=1").starts_with("\"\\xff\u{e9}\\n\\\"'\" is an unknown key"));
    let long = said("k".repeat(5000).as_bytes());
    assert!(
        long.len() < 400 && long.contains("k\"... is not a key"),
        "{long}"
    );
}

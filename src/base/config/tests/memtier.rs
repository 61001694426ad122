use super::*;

fn memtier<'a>(tiers: &'a str, thresholds: Option<&'a str>) -> Result<Config<'a>, String> {
    Config::from_memtier(tiers.as_bytes(), thresholds.map(str::as_bytes)).map_err(|e| e.to_string())
}

#[test]
fn memtiers_words_mean_the_same_here() {
    let two = "KIND:DRAM,RATIO:1;KIND:FS_DAX,PATH:/mnt/pmem0,PMEM_SIZE_LIMIT:10G,RATIO:4;POLICY:STATIC_RATIO";
    let c = memtier(two, None).unwrap();
    let backing = Backing::File {
        dir: b"/mnt/pmem0",
        dax_expected: true,
    };
    assert_eq!(
        *c.cold,
        [TierSpec {
            backing,
            limit: Some(Bytes::new(10 << 30))
        }]
    );
    assert_eq!((c.policy, &*c.ratio), (PolicyName::Ratio, &[1, 4][..]));
    assert_eq!(c.threshold, DEFAULT_THRESHOLD);

    let c = memtier(
        "RATIO:3,KIND:KMEM_DAX;RATIO:2,KIND:DRAM;POLICY:DYNAMIC_THRESHOLD;",
        None,
    )
    .unwrap();
    assert_eq!(
        *c.cold,
        [TierSpec {
            backing: Backing::KmemNodes,
            limit: None
        }]
    );
    assert_eq!(
        (c.policy, &*c.ratio, c.threshold),
        (PolicyName::Auto, &[2, 3][..], Bytes::kib(1))
    );

    let c = memtier(
        "KIND:FS_DAX,RATIO:1,PATH:/a:b,PMEM_SIZE_LIMIT:0;POLICY:STATIC_RATIO",
        None,
    )
    .unwrap();
    assert_eq!(c.cold[0].limit, None);
    assert_eq!(
        c.cold[0].backing,
        Backing::File {
            dir: b"/a:b",
            dax_expected: true
        }
    );
    assert_eq!(*c.ratio, [0, 1]);
    assert_eq!(
        memtier("KIND:DRAM,RATIO:1;POLICY:STATIC_RATIO", None)
            .unwrap()
            .policy,
        PolicyName::Dram
    );

    let three = "KIND:DRAM,RATIO:1;KIND:FS_DAX,PATH:/a,RATIO:1;KIND:FS_DAX,PATH:/b,RATIO:1;POLICY:DYNAMIC_THRESHOLD";
    let thresholds = "INIT_VAL:2K,MIN_VAL:64,MAX_VAL:1M;INIT_VAL:1M";
    assert_eq!(
        memtier(three, Some(thresholds)).unwrap().threshold,
        Bytes::kib(2)
    );
    assert_eq!(
        memtier(three, Some("MAX_VAL:4K")).unwrap().threshold,
        Bytes::kib(1)
    );
}

#[test]
fn memtiers_wrong_words_are_named() {
    let fs = "KIND:FS_DAX,PATH:/a,RATIO:1";
    let many = format!("{}POLICY:STATIC_RATIO", format!("{fs};").repeat(9));
    for (tiers, said) in [
        ("", "\"\" is not the last part"),
        (
            "KIND:DRAM,RATIO:1",
            "is not the last part: a POLICY:STATIC_RATIO or",
        ),
        (
            "POLICY:STATIC_RATIO;KIND:DRAM,RATIO:1",
            "is not the last part",
        ),
        ("POLICY:STATIC_RATIO", "names no tier"),
        (
            "KIND:DRAM,RATIO:1;POLICY:RATIO",
            "POLICY: \"RATIO\" is an unknown policy: the policies are STATIC_RATIO",
        ),
        (
            "KIND:HBM,RATIO:1;POLICY:STATIC_RATIO",
            "KIND: \"HBM\" is an unknown kind",
        ),
        ("RATIO:1;POLICY:STATIC_RATIO", "has no KIND"),
        (
            "KIND:DRAM;POLICY:STATIC_RATIO",
            "\"KIND:DRAM\" has no RATIO",
        ),
        (
            "KIND:DRAM,RATIO:0;POLICY:STATIC_RATIO",
            "RATIO: \"0\" is not a RATIO",
        ),
        (
            "KIND:DRAM,RATIO:1x;POLICY:STATIC_RATIO",
            "RATIO: \"1x\" is not a RATIO",
        ),
        (
            "KIND:DRAM,RATIO:1,RATIO:1;POLICY:STATIC_RATIO",
            "\"RATIO:1\" is an unknown parameter",
        ),
        (
            "KIND:DRAM,SIZE:1,RATIO:1;POLICY:STATIC_RATIO",
            "\"SIZE:1\" is an unknown parameter",
        ),
        (
            "KIND:DRAM,RATIO:1;KIND:DRAM,RATIO:1;POLICY:STATIC_RATIO",
            "given for two tiers",
        ),
        (
            "KIND:KMEM_DAX,RATIO:1;KIND:KMEM_DAX,RATIO:1;POLICY:STATIC_RATIO",
            "given for two tiers",
        ),
        (
            "KIND:DRAM,PATH:/a,RATIO:1;POLICY:STATIC_RATIO",
            "only KIND:FS_DAX may",
        ),
        ("KIND:FS_DAX,RATIO:1;POLICY:STATIC_RATIO", "has no PATH"),
        (
            "KIND:FS_DAX,PATH:,RATIO:1;POLICY:STATIC_RATIO",
            "names no directory",
        ),
        (
            "KIND:FS_DAX,PATH:/a,PMEM_SIZE_LIMIT:1M,RATIO:1;POLICY:STATIC_RATIO",
            "\"1M\" is below 16M",
        ),
        (many.as_str(), "one cold tier more than 8"),
    ] {
        let error = memtier(tiers, None).expect_err(tiers);
        assert!(error.contains(said), "{tiers}\n said {error}\n not {said}");
    }
    let auto = format!("KIND:DRAM,RATIO:1;{fs};POLICY:DYNAMIC_THRESHOLD");
    let fixed = format!("KIND:DRAM,RATIO:1;{fs};POLICY:STATIC_RATIO");
    for (tiers, thresholds, said) in [
        (
            &auto,
            "INIT_VAL:1;INIT_VAL:2",
            "\"INIT_VAL:2\" is a threshold too many",
        ),
        (
            &auto,
            "VAL:1",
            "\"VAL:1\" is an unknown parameter: they are INIT_VAL",
        ),
        (&auto, "INIT_VAL:1,INIT_VAL:1", "is an unknown parameter"),
        (&auto, "INIT_VAL:1X", "INIT_VAL: \"1X\" is not a size"),
        (&auto, "MIN_VAL:2,INIT_VAL:1", "is out of order"),
        (&fixed, "INIT_VAL:1", "is for POLICY:DYNAMIC_THRESHOLD"),
    ] {
        let error = memtier(tiers, Some(thresholds)).expect_err(thresholds);
        assert!(
            error.contains(said),
            "{thresholds}\n said {error}\n not {said}"
        );
    }
}

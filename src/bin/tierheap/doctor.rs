//! `tierheap doctor`: what this machine offers, as tables or as JSON. One JSON value is made
//! first and the tables are drawn from it, so that the two never differ.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::{Value, json};

use crate::base::config::Config;
use crate::capabilities::{Capabilities, Userfaultfd, probe, rung};
use crate::machine::MemoryLimit;
use crate::tiers::{Tried, check};
use crate::{Refusal, machine, report, tiers};

#[derive(clap::Args)]
#[command(after_help = "\
Exit status: 0; 1 a tier given by --cold cannot be used; 2 a tier is not one by its words.")]
pub struct Options {
    /// A tier to try: fsdax:DIR, file:DIR, node:LIST or memfd, then ,limit:SIZE
    #[arg(long, value_name = "TIER")]
    cold: Vec<OsString>,
    /// JSON instead of tables
    #[arg(long)]
    json: bool,
}

const HEAT_TODAY: &str = "policy=heat places as policy=size in this version: \
                          nothing is sampled or migrated yet";

/// The exit status.
pub fn doctor(options: &Options) -> Result<i32, Refusal> {
    let asked = options
        .cold
        .iter()
        .map(try_word)
        .collect::<Result<Vec<_>, _>>()?;
    let unusable = asked.iter().any(|tried| tried.refused.is_some());
    let can = probe();
    // SAFETY: the call takes no argument and cannot fail.
    let user = unsafe { libc::geteuid() };
    let report = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "kernel": machine::kernel(),
        "user": user,
        "asked": asked.iter().map(tier_value).collect::<Vec<_>>(),
        "tiers": tiers_found(),
        "system": system(),
        "capabilities": capabilities(&can),
        "heat": heat(&can),
    });
    if options.json {
        println!("{report:#}");
    } else {
        print!("{}", text(&report));
    }
    Ok(i32::from(unusable))
}

fn try_word(tier: &OsString) -> Result<Tried, Refusal> {
    crate::run::one_value("cold", tier)?;
    let pair = [b"cold=", tier.as_bytes()].concat();
    let config = Config::parse(&pair).map_err(|error| Refusal::usage(error.to_string()))?;
    let [spec] = &*config.cold else {
        return Err(Refusal::usage(format!(
            "{:?} is not one tier",
            tier.to_string_lossy()
        )));
    };
    Ok(check(spec))
}

fn tier_value(tried: &Tried) -> Value {
    json!({
        "tier": tried.name,
        "what": tried.what,
        "usable": tried.refused.is_none(),
        "refused": tried.refused,
        "free": tried.free,
        "dax": tried.dax,
        "notes": tried.notes,
        "warnings": tried.warnings,
    })
}

/// A tier that this machine offers, asked for or not.
fn offer(tier: String, what: String, usable: bool, free: Option<u64>, notes: Vec<String>) -> Value {
    json!({ "tier": tier, "what": what, "usable": usable, "free": free, "notes": notes })
}

fn tiers_found() -> Vec<Value> {
    let mut found = Vec::new();
    for mount in machine::mounts() {
        let Some(option) = mount.dax() else { continue };
        let name = format!("fsdax:{}", mount.point.display());
        let what = format!("{} on {}, mounted {option}", mount.fstype, mount.source);
        let (usable, note) = match tiers::directory_is_dax(&mount.point) {
            Ok(true) => (true, "MAP_SYNC works: it is DAX".into()),
            Ok(false) => (false, "MAP_SYNC is refused: it is not DAX".into()),
            Err(why) => (false, format!("not tried: {why}")),
        };
        found.push(offer(
            name,
            what,
            usable,
            tiers::free_space(&mount.point),
            vec![note],
        ));
    }
    for disk in machine::pmem_disks() {
        let device = format!("/dev/{disk}");
        if !machine::mounts().iter().any(|mount| mount.source == device) {
            let note = format!("not mounted: mount -o dax=always {device} DIR makes it fsdax:DIR");
            found.push(offer(
                device,
                "persistent memory".into(),
                false,
                None,
                vec![note],
            ));
        }
    }
    for device in machine::dax_devices() {
        let name = format!("devdax:/dev/{}", device.name);
        let what = format!(
            "{} device, driver {}",
            report::size(device.size),
            device.driver
        );
        let note = match (device.driver.as_str(), device.target) {
            ("kmem", Some(node)) => format!("its memory is the tier node:{node}"),
            _ => format!(
                "devdax tiers are not built yet: daxctl reconfigure-device --mode=system-ram {} makes it a node",
                device.name
            ),
        };
        found.push(offer(name, what, false, None, vec![note]));
    }
    for node in machine::nodes().into_iter().filter(|node| node.total > 0) {
        let size = report::size(node.total);
        let (what, note) = if node.cpus.is_empty() {
            (
                format!("{size} without processors"),
                "far or slower memory, such as CXL: a cold tier",
            )
        } else {
            let what = format!("{size} with processors {}", node.cpus);
            (what, "fast memory: what dram means here, no colder tier")
        };
        found.push(offer(
            format!("node:{}", node.id),
            what,
            true,
            Some(node.free),
            vec![note.into()],
        ));
    }
    for word in ["memfd", "file:/dev/shm"] {
        if let Ok(tried) = try_word(&word.into())
            && (tried.refused.is_none() || word == "memfd")
        {
            let notes = tried.refused.iter().chain(&tried.notes).cloned().collect();
            found.push(offer(
                tried.name,
                tried.what,
                tried.refused.is_none(),
                tried.free,
                notes,
            ));
        }
    }
    let any =
        "any directory on a disk: its page cache counts against the control group's memory limit";
    found.push(offer(
        "file:DIR".into(),
        "ordinary file".into(),
        true,
        None,
        vec![any.into()],
    ));
    found
}

fn system() -> Value {
    let number = |path: &str| machine::read(path).and_then(|text| text.parse::<i64>().ok());
    let overcommit = number("/proc/sys/vm/overcommit_memory");
    json!({
        "memory": machine::memory_total(),
        "cgroup_memory_limit": match machine::memory_limit() {
            MemoryLimit::Bytes(bytes) => json!(bytes),
            MemoryLimit::Unlimited => Value::Null,
            unknown => json!(unknown.shown()),
        },
        "thp": machine::chosen("/sys/kernel/mm/transparent_hugepage/enabled"),
        "thp_shmem": machine::chosen("/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
        "overcommit": overcommit,
        "max_map_count": number("/proc/sys/vm/max_map_count"),
        "rlimit_as": machine::rlimit(libc::RLIMIT_AS),
        "rlimit_fsize": machine::rlimit(libc::RLIMIT_FSIZE),
    })
}

fn capabilities(can: &Capabilities) -> Value {
    let (userfaultfd, via) = match &can.userfaultfd {
        Userfaultfd::Full { via } => ("full", Some(via.to_string())),
        Userfaultfd::UserModeOnly => ("user-mode-only", None),
        Userfaultfd::None { why } => ("none", Some(why.clone())),
    };
    json!({
        "userfaultfd": userfaultfd,
        "userfaultfd_by": via,
        "event_remap": can.event_remap,
        "wp_unpopulated": can.wp_unpopulated,
        "wp_async": can.wp_async,
        "uffdio_move": can.uffdio_move,
        "pagemap": can.pagemap,
        "pagemap_scan": can.pagemap_scan,
        "move_pages": can.move_pages.is_ok(),
        "move_pages_refused": can.move_pages.as_ref().err(),
        "perf_event_paranoid": can.perf_event_paranoid,
        "precise_sampling": can.precise_sampling,
    })
}

fn heat(can: &Capabilities) -> Value {
    let rung = rung(can);
    json!({
        "places_as": "size",
        "today": HEAT_TODAY,
        "rung": rung.level,
        "of": 3,
        "would": rung.name,
        "next": rung.next,
    })
}

fn text(report: &Value) -> String {
    let mut out = format!(
        "tierheap {} on Linux {}, for user {}: others, and containers, may be allowed less\n\n",
        word(&report["version"]),
        word(&report["kernel"]),
        report["user"]
    );
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for (title, key) in [
        ("Tiers asked for", "asked"),
        ("Tiers on this machine", "tiers"),
    ] {
        let rows = list(&report[key]);
        if rows.is_empty() {
            continue;
        }
        let mut table = table(["tier", "what", "free", "usable", "to know"]);
        for tier in &rows {
            let lines = ["refused", "warnings", "notes"].map(|k| match &tier[k] {
                Value::String(why) => vec![why.clone()],
                other => list(other).iter().map(word).collect(),
            });
            let usable = if tier["usable"] == true { "yes" } else { "no" };
            table.add_row([
                word(&tier["tier"]),
                word(&tier["what"]),
                tier["free"].as_u64().map_or("-".into(), report::size),
                usable.into(),
                lines.concat().join("\n"),
            ]);
        }
        out += &format!("{title}\n{table}\n\n");
    }
    for (title, key, rows) in [
        ("System", "system", SYSTEM),
        ("Capabilities", "capabilities", ABLE),
    ] {
        let mut table = table(["name", "value", "meaning"]);
        for (name, meaning) in rows {
            let value = &report[key][name];
            let shown = match value {
                Value::Null if name.starts_with("rlimit") || name.starts_with("cgroup") => {
                    "unlimited".into()
                }
                Value::Null => "unknown".into(),
                Value::Bool(there) => if *there { "yes" } else { "no" }.into(),
                Value::Number(n) if BYTES.contains(name) => {
                    n.as_u64().map_or(n.to_string(), report::size)
                }
                other => word(other),
            };
            let because = match *name {
                "userfaultfd" => report[key]["userfaultfd_by"].as_str(),
                "move_pages" => report[key]["move_pages_refused"].as_str(),
                _ => None,
            };
            let shown = because.map_or(shown.clone(), |why| format!("{shown} ({why})"));
            table.add_row([name.to_string(), shown, meaning.to_string()]);
        }
        out += &format!("{title}\n{table}\n\n");
    }
    let heat = &report["heat"];
    out += "The policy heat\n";
    out += &format!("  {}.\n", word(&heat["today"]));
    out += &format!(
        "  It would stand on rung {} of 3 here: {}.\n",
        heat["rung"],
        word(&heat["would"])
    );
    for step in list(&heat["next"]) {
        out += &format!("  For the next rung: {}.\n", word(&step));
    }
    out += "  Node tiers need none of these: move_pages moves their pages.\n";
    out
}

const SYSTEM: &[(&str, &str)] = &[
    ("memory", "of this machine"),
    (
        "cgroup_memory_limit",
        "DRAM and the page cache of file tiers count against it",
    ),
    (
        "thp",
        "transparent huge pages; the key thp= sets it for the heap alone",
    ),
    ("thp_shmem", "the same for memfd and tmpfs"),
    (
        "overcommit",
        "2 refuses large reservations: the heap then reserves less",
    ),
    (
        "max_map_count",
        "mappings a process may have: migration's budget",
    ),
    ("rlimit_as", "ulimit -v: the heap reserves a part of it"),
    (
        "rlimit_fsize",
        "ulimit -f: the most that a file tier can hold",
    ),
];

const BYTES: &[&str] = &["memory", "cgroup_memory_limit", "rlimit_as", "rlimit_fsize"];

const ABLE: &[(&str, &str)] = &[
    (
        "userfaultfd",
        "full: live slices can be moved; user-mode-only and none: they cannot",
    ),
    (
        "event_remap",
        "promotion keeps its registration (Linux 4.11)",
    ),
    ("wp_unpopulated", "pages never touched can be frozen (6.4)"),
    (
        "wp_async",
        "written pages are counted without faults to serve (6.7)",
    ),
    (
        "uffdio_move",
        "DRAM is sampled with huge pages kept whole (6.8)",
    ),
    ("pagemap", "the cold tier's touched pages can be read"),
    ("pagemap_scan", "the same, as ranges and in one call (6.7)"),
    (
        "move_pages",
        "node tiers: pages change nodes at the same address",
    ),
    (
        "perf_event_paranoid",
        "2 or less lets a process sample itself",
    ),
    (
        "precise_sampling",
        "the processor samples loads and stores; rare in virtual machines",
    ),
];

fn word(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_string)
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_BORDERS_ONLY)
        .set_header(header);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none() {
        // Not a terminal: a width that mail and logs bear.
        table.set_width(100);
    }
    table
}

//! Databases: made, started on a Unix socket, loaded, and asked for what must hold.

use crate::everywhere::program;
use crate::server::{Server, need};
use crate::suite::{LONG, Outcome, Place, QUICK, Suite, number_after};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Starts a server in a place, its output going to files there.
#[track_caller]
fn start(place: &Place, what: &str, mut cmd: Command) -> Server {
    place.prepare(&mut cmd);
    Server::start(what, cmd, &place.dir)
}

/// Debian keeps several versions beside each other, none of them in the path.
#[track_caller]
fn postgresql(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let newest = versions
        .flatten()
        .map(|v| v.path().join("bin").join(name))
        .filter(|p| p.exists())
        .max();
    newest.unwrap_or_else(|| panic!("{name} is missing: apt-get install postgresql"))
}

/// What pgbench's transactions keep equal.
const BALANCES: &str = "select count(*) from pgbench_history; \
    select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history) \
       and (select sum(tbalance) from pgbench_tellers) = (select sum(delta) from pgbench_history) \
       and (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history)";

fn pgbench(place: &Place, scale: u32, each: u32) -> Outcome {
    const CLIENTS: u32 = 4;
    let mut initdb = program(postgresql("initdb"));
    initdb.args(["-D", "data", "-U", "bench", "-A", "trust", "--no-sync"]);
    place.output(initdb);
    let mut postgres = program(postgresql("postgres"));
    postgres.args(["-D", "data", "-c", "listen_addresses=", "-c", "fsync=off"]);
    postgres.args(["-c", "work_mem=16MB", "-c"]);
    // Its own working folder is the data's.
    postgres.arg(format!("unix_socket_directories={}", place.dir.display()));
    let mut server = start(place, "postgres", postgres);
    let client = |name: &str| {
        let mut cmd = program(postgresql(name));
        cmd.arg("-h").arg(&place.dir).args(["-U", "bench"]);
        cmd
    };
    let ready = place.dir.join(".s.PGSQL.5432");
    server.wait_for(QUICK, || {
        let mut cmd = client("psql");
        cmd.args(["-c", "select 1", "postgres"]);
        (ready.exists() && place.run(cmd).status.success()).then_some(())
    });
    let mut fill = client("pgbench");
    fill.args(["-i", "-q", "-s", &scale.to_string(), "postgres"]);
    place.output(fill);
    let mut load = client("pgbench");
    load.args([
        "-c",
        &CLIENTS.to_string(),
        "-j",
        "2",
        "-t",
        &each.to_string(),
    ]);
    let said = place.output({
        load.arg("postgres");
        load
    });
    let ran = number_after(&said, "number of transactions actually processed:");
    assert_eq!(number_after(&said, "number of failed transactions:"), 0);
    // A sort and a hash of all accounts use what a client's transactions do not.
    let mut sql = client("psql");
    let sorts = "select md5(string_agg(aid::text || filler, ',' order by md5(aid::text))) \
                 from pgbench_accounts where aid <= 50000";
    sql.args(["-At", "-c", BALANCES, "-c", sorts, "postgres"]);
    let answer = place.output(sql);
    let lines: Vec<&str> = answer.lines().collect();
    assert_eq!(lines[..2], [ran.to_string().as_str(), "t"], "{answer}");
    assert_eq!(ran, u64::from(CLIENTS * each));
    server.terminate();
    let status = server.wait(QUICK);
    assert!(status.success(), "{status:?}\n{}", server.said());
    Outcome::whole(ran)
}

#[track_caller]
fn postgresql_suite(limit: Duration, scale: u32, each: u32) {
    Suite::new("postgresql", limit)
        .unprivileged()
        .run(|place| pgbench(place, scale, each));
}

#[test]
fn postgresql_pgbench() {
    postgresql_suite(QUICK, 1, 250);
}

#[test]
#[ignore = "long: a million rows"]
fn postgresql_pgbench_long() {
    postgresql_suite(LONG, 10, 10_000);
}

fn sysbench(place: &Place, rows: u32, events: u32) -> Outcome {
    let data = place.dir.join("data");
    let socket = place.dir.join("s");
    let mut install = program(need("mariadb-install-db", "mariadb-server"));
    install.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
    install.arg("--skip-test-db");
    install.arg(format!("--datadir={}", data.display()));
    place.output(install);
    let mut mariadbd = program(need("mariadbd", "mariadb-server"));
    mariadbd.args(["--no-defaults", "--skip-networking", "--skip-name-resolve"]);
    mariadbd.args([
        "--innodb-buffer-pool-size=64M",
        "--innodb-log-file-size=32M",
    ]);
    // The disk is not what is tested.
    mariadbd.args(["--innodb-flush-log-at-trx-commit=0", "--datadir"]);
    mariadbd.arg(&data).arg("--socket").arg(&socket);
    let mut server = start(place, "mariadbd", mariadbd);
    let client = |name: &str| {
        let mut cmd = program(need(name, "mariadb-client"));
        cmd.args(["--no-defaults", "-u", "root", "--socket"])
            .arg(&socket);
        cmd
    };
    server.wait_for(QUICK, || {
        let mut cmd = client("mariadb");
        cmd.args(["-e", "create database if not exists sbtest"]);
        (socket.exists() && place.run(cmd).status.success()).then_some(())
    });
    let bench = |action: &str| {
        let mut cmd = program(need("sysbench", "sysbench"));
        cmd.args(["oltp_read_write", "--db-driver=mysql", "--mysql-user=root"]);
        cmd.arg(format!("--mysql-socket={}", socket.display()));
        cmd.args(["--tables=2", "--threads=4", "--time=0"]);
        cmd.arg(format!("--table-size={rows}"))
            .arg(format!("--events={events}"));
        cmd.arg(action);
        place.output(cmd)
    };
    bench("prepare");
    let said = bench("run");
    let ran = number_after(&said, "transactions:");
    assert_eq!(ran, u64::from(events), "{said}");
    let mut check = client("mariadb-check");
    check.args(["--extended", "sbtest"]);
    let checked = place.output(check);
    assert_eq!(checked.matches("OK").count(), 2, "{checked}");
    let mut sql = client("mariadb");
    // Transactions delete a row and put it back.
    let count = "select count(*) from sbtest1 union all select count(*) from sbtest2";
    sql.args(["-N", "-e", count, "sbtest"]);
    assert_eq!(place.output(sql), format!("{rows}\n{rows}\n"));
    server.terminate();
    let status = server.wait(QUICK);
    assert!(status.success(), "{status:?}\n{}", server.said());
    Outcome::whole(ran)
}

#[track_caller]
fn mariadb_suite(limit: Duration, rows: u32, events: u32) {
    Suite::new("mariadb", limit)
        .unprivileged()
        .run(|place| sysbench(place, rows, events));
}

#[test]
fn mariadb_sysbench() {
    mariadb_suite(QUICK, 2_000, 400);
}

#[test]
#[ignore = "long: a hundred thousand rows"]
fn mariadb_sysbench_long() {
    mariadb_suite(LONG, 100_000, 20_000);
}

//! Real programs' own test suites and checked loads, first without the library and then under it.
//! What counts is what a suite says of itself: as many of its tests must run as without the
//! library, and none may fail that does not fail there, too.

mod common;
// The comparison byte by byte is another test's; its judgement of tiers is used here.
#[allow(dead_code)]
#[path = "programs/everywhere.rs"]
mod everywhere;
#[path = "programs/resp.rs"]
mod resp;
#[path = "programs/server.rs"]
mod server;

#[path = "suites/databases.rs"]
mod databases;
#[path = "suites/memcached.rs"]
mod memcached;
#[path = "suites/python.rs"]
mod python;
#[path = "suites/redis.rs"]
mod redis;
#[path = "suites/suite.rs"]
mod suite;
#[path = "suites/tools.rs"]
mod tools;

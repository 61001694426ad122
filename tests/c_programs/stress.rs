//! The multi-threaded stress: briefly under every configuration, and for as long as one likes.

use crate::build::{Case, LIMIT};

#[test]
fn stress_threads() {
    Case::new("stress_threads")
        .arg("2")
        .arg("4")
        .plain()
        .matrix()
        .done();
}

#[test]
fn stress_threads_and_fork() {
    Case::new("stress_threads")
        .arg("2")
        .arg("4")
        .arg("fork")
        .plain()
        .matrix()
        .done();
}

/// More threads than processors, by far.
#[test]
#[ignore = "long: a minute for each configuration"]
fn stress_many_threads_long() {
    assert!(LIMIT.as_secs() > 70);
    Case::new("stress_threads")
        .arg("60")
        .arg("32")
        .matrix()
        .done();
}

#[test]
#[ignore = "long: a minute for each configuration"]
fn stress_threads_and_fork_long() {
    Case::new("stress_threads")
        .arg("60")
        .arg("6")
        .arg("fork")
        .matrix()
        .done();
}

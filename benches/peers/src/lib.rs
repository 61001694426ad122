//! Empty: the crates this one depends on are wanted for the archives that their build scripts make.

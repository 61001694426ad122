//! Property tests of whole runs of decisions.

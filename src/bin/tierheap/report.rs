//! How the command speaks.

/// Something the user should know; the program runs all the same.
pub fn warning(message: &str) {
    eprintln!("tierheap: warning: {message}");
}

/// 1536 is `1.5K`: the grammar's own units.
pub fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "";
    for next in ["K", "M", "G", "T"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit.is_empty() || value >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}{unit}")
    } else {
        format!("{value:.1}{unit}")
    }
}

/// The system's words for an error, without Rust's "(os error 2)".
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(at) => text[..at].to_string(),
        None => text,
    }
}

//! The versions of the CNI specification, in order.

/// All that there are.
pub const ALL: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// Those whose results list interfaces, addresses and routes.
pub const WITH_LISTS: &[&str] = &["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// Those that have CHECK.
pub const WITH_CHECK: &[&str] = &["0.4.0", "1.0.0", "1.1.0"];
/// Those that have GC and STATUS.
pub const WITH_GC: &[&str] = &["1.1.0"];
/// What Kubernetes nodes use: kube-flannel's, and the newest that every runtime knows.
pub const COMMON: &[&str] = &["0.3.1", "1.0.0"];

/// Whether a version is that one or a later one.
pub fn at_least(version: &str, oldest: &str) -> bool {
    let place = |version| ALL.iter().position(|known| *known == version);
    place(version) >= place(oldest)
}

/// The largest group of versions that write results alike and can read each other's.
pub fn family(version: &str) -> &'static [&'static str] {
    match version {
        "0.1.0" | "0.2.0" => &ALL[..2],
        "1.0.0" | "1.1.0" => &ALL[5..],
        _ => &ALL[2..5],
    }
}

//! How large the program is: it is read from disk for every pod.

use std::path::{Path, PathBuf};

use crate::figure::Figure;

const GOAL_KB: f64 = 1200.0;

/// The C library of the program that is shipped: a static program starts in a third of the time.
pub(super) const SHIPPED: &str = "musl";

/// The programs of the profile `cni` that were built, by C library; the one that is shipped first.
pub(super) fn programs() -> Vec<(&'static str, PathBuf)> {
    let target = format!("{}-unknown-linux-{SHIPPED}", std::env::consts::ARCH);
    let places = [
        (SHIPPED, Path::new("target").join(target).join("cni/flannel-cni")),
        ("glibc", PathBuf::from("target/cni/flannel-cni")),
    ];
    places.into_iter().filter(|(_, place)| place.is_file()).collect()
}

/// Looks at the programs that were built.
pub(super) fn measure() -> anyhow::Result<Vec<Figure>> {
    anyhow::ensure!(!programs().is_empty(), "there is no program to weigh: `make test-speed` builds it");
    let mut figures = Vec::new();
    for (library, place) in programs() {
        let bytes = f64::from(u32::try_from(std::fs::metadata(&place)?.len())?);
        let figure = Figure::new(format!("flannel-cni with {library}: size"), bytes / 1e3, "kB");
        figures.push(figure.at_most(GOAL_KB).note(place.display().to_string()));
    }
    Ok(figures)
}

//! What the command line asks for.

/// What is wished; what cargo passes for Rust's own harness is taken and ignored.
#[derive(Debug, Default)]
pub struct Wishes {
    filters: Vec<String>,
    /// Whether that is run too which needs the programs of `make peers`.
    pub peers: bool,
    /// Whether scenarios are only named.
    pub list: bool,
}

impl Wishes {
    /// Reads the command line.
    pub fn read() -> Self {
        let mut wishes = Self::default();
        for word in std::env::args().skip(1) {
            match &*word {
                "--peers" => wishes.peers = true,
                "--list" => wishes.list = true,
                _ if word.starts_with('-') => {}
                _ => wishes.filters.push(word),
            }
        }
        wishes
    }

    /// Whether the scenario of this path is to be run.
    pub fn want(&self, path: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| path.contains(filter))
    }
}

//! The ports that masquerade may choose from: `1024-29999,32768-65535`. Takes the text of `--to-ports`.

use std::fmt;

use serde::Serialize;

/// Ports from one to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct PortRange {
    pub first: u16,
    /// Not below the first.
    pub last: u16,
}

/// Why a text is no list of ports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortsFault {
    #[error("{0:?} is neither a port (1 to 65535) nor two with a dash between")]
    NoRange(String),
    #[error("{0:?} ends before it begins")]
    Backwards(String),
}

impl PortRange {
    /// Whether a port is one of them.
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// How many there are.
    pub fn size(self) -> u32 {
        u32::from(self.last.saturating_sub(self.first)) + 1
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { first, last } if first == last => write!(f, "{first}"),
            Self { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

/// Reads ranges with commas between; none of an empty text.
pub fn ranges(text: &str) -> Result<Vec<PortRange>, PortsFault> {
    if text.is_empty() { Ok(Vec::new()) } else { text.split(',').map(range).collect() }
}

/// Reads one port, or two with a dash between.
pub fn range(text: &str) -> Result<PortRange, PortsFault> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    match port(first).zip(port(last)) {
        None => Err(PortsFault::NoRange(text.to_owned())),
        Some((first, last)) if first > last => Err(PortsFault::Backwards(text.to_owned())),
        Some((first, last)) => Ok(PortRange { first, last }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_ranges_are_read_with_commas_between() {
        let words =
            |text| ranges(text).map(|ranges| ranges.iter().map(PortRange::to_string).collect::<Vec<_>>());
        assert_eq!(words(""), Ok(vec![]));
        assert_eq!(
            words("1024-29999,32768,65535-65535"),
            Ok(["1024-29999", "32768", "65535"].map(str::to_owned).into())
        );
        assert_eq!(ranges("1-65535").map(|ranges| ranges[0].size()), Ok(65535));
    }

    #[test]
    fn what_is_no_range_is_named() {
        for text in ["x", "1-2-3", "1,", "-1", "0", "65536", "1 - 2"] {
            assert!(matches!(ranges(text), Err(PortsFault::NoRange(_))), "{text}");
        }
        assert_eq!(ranges("1,9-8"), Err(PortsFault::Backwards("9-8".to_owned())));
    }
}

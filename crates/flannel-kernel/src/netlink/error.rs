//! The kernel's error: a number, and the kernel's own words where it has some.

use std::fmt;

use rustix::io::Errno;

/// Why the kernel did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetlinkError {
    pub errno: Errno,
    /// What the kernel said about it.
    pub message: Option<Box<str>>,
}

impl NetlinkError {
    pub(crate) fn is(&self, errno: Errno) -> bool {
        self.errno == errno
    }

    /// Whether the object is not there: nothing to do for a removal.
    pub(crate) fn says_absent(&self) -> bool {
        [Errno::NOENT, Errno::SRCH, Errno::NODEV, Errno::ADDRNOTAVAIL].contains(&self.errno)
    }
}

impl From<Errno> for NetlinkError {
    fn from(errno: Errno) -> Self {
        Self { errno, message: None }
    }
}

impl From<std::io::Error> for NetlinkError {
    fn from(error: std::io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => Self { errno: Errno::IO, message: Some(error.to_string().into()) },
        }
    }
}

impl std::error::Error for NetlinkError {}

impl fmt::Display for NetlinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.errno.to_string();
        f.write_str(text.split(" (os error").next().unwrap_or(&text))?;
        self.message.as_ref().map_or(Ok(()), |message| write!(f, ": {}", message.trim_end_matches('.')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_as_a_sentence() {
        assert_eq!(NetlinkError::from(Errno::PERM).to_string(), "Operation not permitted");
        let with_words =
            NetlinkError { errno: Errno::INVAL, message: Some("Nexthop has invalid gateway.".into()) };
        assert_eq!(with_words.to_string(), "Invalid argument: Nexthop has invalid gateway");
    }
}

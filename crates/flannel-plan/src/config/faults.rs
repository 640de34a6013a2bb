//! What is wrong with a net-conf: every fault by itself, and all of them as one error.

use std::fmt;

use crate::quoted::quoted;

/// One thing that is wrong with a net-conf.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigFault {
    /// The text is not a JSON object, so that no key can be read.
    #[error("line {line}, column {column}: {}", quoted(.problem))]
    Document {
        /// The line of the text, from 1.
        line: usize,
        /// The column of the line, from 1.
        column: usize,
        problem: String,
    },
    /// A key has a value that cannot be.
    #[error("{key} is {}, expected {expected}", quoted(.value))]
    Key {
        /// The key as it is usually written, with those it is inside of: `Backend.VNI`.
        key: String,
        /// Its value as JSON text, or `absent`.
        value: String,
        /// What the value should be, and why.
        expected: String,
    },
}

/// All that is wrong with a net-conf; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFaults(pub Vec<ConfigFault>);

impl fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the network configuration cannot be used")?;
        let mut mark = ": ";
        for fault in &self.0 {
            write!(f, "{mark}{fault}")?;
            mark = "; ";
        }
        Ok(())
    }
}

impl std::error::Error for ConfigFaults {}

//! What is wrong with a net-conf: every fault by itself, and all of them as one error.

use crate::quoted::quoted;

/// One thing that is wrong with a net-conf.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigFault {
    /// The text is not a JSON object, so that no key can be read.
    #[error("line {line}, column {column}: {}", quoted(.problem))]
    Document { line: usize, column: usize, problem: String },
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the network configuration cannot be used: {}", listed(.0))]
pub struct ConfigFaults(pub Vec<ConfigFault>);

/// All faults in one line.
pub(crate) fn listed(faults: &[ConfigFault]) -> String {
    faults.iter().map(ConfigFault::to_string).collect::<Vec<_>>().join("; ")
}

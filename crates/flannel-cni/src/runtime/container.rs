//! What is attached: a container, the name of its interface, and what the runtime wants to tell the plugins.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use sha2::{Digest, Sha512};

use crate::error::{CniError, code};
use crate::request::{AttachmentId, check_container_id, check_interface_name};

/// A container and how it is to be attached.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Container {
    pub id: String,
    /// Its network namespace; none if it is gone.
    pub netns: Option<PathBuf>,
    /// The name of the interface inside it.
    pub ifname: String,
    /// `CNI_ARGS`, in pairs.
    pub args: Vec<(String, String)>,
    /// What the runtime can tell plugins that are capable of it, such as `portMappings`.
    pub capabilities: Map<String, Value>,
}

impl Container {
    /// A container that is known by its namespace alone; its identity is the one that cnitool gives it, so that
    /// either can detach what the other attached.
    pub fn of_netns(netns: &Path, ifname: &str) -> Self {
        let hash = Sha512::digest(netns.as_os_str().as_encoded_bytes());
        let id = hash.iter().take(10).fold("cnitool-".to_owned(), |id, byte| format!("{id}{byte:02x}"));
        Self { id, netns: Some(netns.to_owned()), ifname: ifname.to_owned(), ..Self::default() }
    }

    /// What tells it apart from the others of a network.
    pub fn attachment(&self) -> AttachmentId {
        AttachmentId { container_id: self.id.clone(), ifname: self.ifname.clone() }
    }

    /// `CNI_ARGS` as one text.
    pub(super) fn args_text(&self) -> String {
        let pairs: Vec<String> = self.args.iter().map(|(key, value)| format!("{key}={value}")).collect();
        pairs.join(";")
    }

    /// Checks the names, which become files, interfaces and variables.
    pub(super) fn check(&self) -> Result<(), CniError> {
        if self.id.is_empty() {
            return Err(CniError::new(code::UNKNOWN_CONTAINER, "missing containerID"));
        }
        if self.ifname.is_empty() {
            return Err(CniError::new(code::INVALID_ENVIRONMENT, "interface name is empty"));
        }
        check_container_id(&self.id)?;
        check_interface_name(&self.ifname)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_become_something_else_are_refused() {
        let refusal = |id: &str, ifname: &str| {
            let container =
                Container { id: id.to_owned(), ifname: ifname.to_owned(), ..Container::default() };
            container.check().err().map(|why| (why.code, why.msg))
        };
        let because = |code, why: &str| Some((code, why.to_owned()));
        assert_eq!(refusal("a_B.9-", "eth0"), None);
        assert_eq!(refusal("", "eth0"), because(3, "missing containerID"));
        assert_eq!(refusal("../x", "eth0"), because(4, "invalid characters in containerID"));
        assert_eq!(refusal("a", ""), because(4, "interface name is empty"));
        assert_eq!(refusal("a", ".."), because(4, "interface name is . or .."));
    }

    #[test]
    fn a_namespace_has_the_identity_that_cnitool_gives_it() {
        let id = Container::of_netns(Path::new("/var/run/netns/testing"), "eth0").id;
        assert_eq!(id, "cnitool-77383ca0a0715733ca6f");
    }
}

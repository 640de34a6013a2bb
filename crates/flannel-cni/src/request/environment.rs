//! The `CNI_` variables: read from the process, checked as Go's skeleton checks them.

use std::ffi::OsString;

use super::Command;
use crate::error::{CniError, code};

/// The longest name that the kernel takes for an interface.
const LONGEST_INTERFACE_NAME: usize = 15;

/// The `CNI_` variables of one call; an empty one counts as missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `CNI_COMMAND`.
    pub command: String,
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_NETNS`.
    pub netns: OsString,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_ARGS`.
    pub args: String,
    /// `CNI_PATH`.
    pub path: OsString,
    /// `CNI_NETNS_OVERRIDE`.
    pub netns_override: String,
}

impl Environment {
    /// The variables of this process; bytes that are no text become a mark that no check lets pass.
    pub fn of_process() -> Self {
        let raw = |name| std::env::var_os(name).unwrap_or_default();
        let text = |name| match raw(name).into_string() {
            Ok(text) => text,
            Err(raw) => raw.to_string_lossy().into_owned(),
        };
        Self {
            command: text("CNI_COMMAND"),
            container_id: text("CNI_CONTAINERID"),
            netns: raw("CNI_NETNS"),
            ifname: text("CNI_IFNAME"),
            args: text("CNI_ARGS"),
            path: raw("CNI_PATH"),
            netns_override: text("CNI_NETNS_OVERRIDE"),
        }
    }

    /// Whether the caller says that a container in our own namespace is meant so.
    pub fn overrides_netns_check(&self) -> bool {
        self.netns_override == "1" || self.netns_override.eq_ignore_ascii_case("true")
    }

    /// Checks what the command needs: the first wrong one is told alone, missing ones together.
    pub fn check(&self) -> Result<(), CniError> {
        let command = Command::parse(&self.command);
        let attaches = matches!(command, Some(Command::Add | Command::Del | Command::Check));
        let calls = command.is_some_and(|command| command != Command::Version);
        let enters = matches!(command, Some(Command::Add | Command::Check));
        let mut missing = Vec::new();
        let mut need = |name: &'static str, is_needed: bool, is_empty: bool| {
            if is_needed && is_empty {
                missing.push(name);
            }
            is_needed && !is_empty
        };
        need("CNI_COMMAND", true, self.command.is_empty());
        if need("CNI_CONTAINERID", attaches, self.container_id.is_empty()) {
            check_container_id(&self.container_id)?;
        }
        need("CNI_NETNS", enters, self.netns.is_empty());
        if need("CNI_IFNAME", attaches, self.ifname.is_empty()) {
            check_interface_name(&self.ifname)?;
            if enters {
                refuse_pattern(&self.ifname)?; // what was never attached by that name may still be freed
            }
        }
        need("CNI_PATH", calls, self.path.is_empty());
        match &missing[..] {
            [] => Ok(()),
            missing => Err(wrong(format!("required env variables [{}] missing", missing.join(",")))),
        }
    }
}

/// Whether a text may name a container or a network: it becomes a part of paths.
fn is_plain_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    name.bytes().all(is_plain) && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
}

/// Checks the name of a container.
pub fn check_container_id(id: &str) -> Result<(), CniError> {
    if is_plain_name(id) { Ok(()) } else { Err(wrong("invalid characters in containerID").details(id)) }
}

/// Checks the name of a network.
pub fn check_network_name(name: &str) -> Result<(), CniError> {
    if is_plain_name(name) {
        return Ok(());
    }
    let wrong = |text: &str| CniError::new(code::INVALID_CONFIG, text);
    if name.is_empty() {
        return Err(wrong("missing network name"));
    }
    Err(wrong("invalid characters found in network name").details(name))
}

/// Checks the name of an interface.
pub fn check_interface_name(name: &str) -> Result<(), CniError> {
    if name.len() > LONGEST_INTERFACE_NAME {
        let most = LONGEST_INTERFACE_NAME + 1;
        let details = format!("interface name should be less than {most} characters");
        return Err(wrong("interface name is too long").details(details));
    }
    if name == "." || name == ".." {
        return Err(wrong("interface name is . or .."));
    }
    if name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace()) {
        return Err(wrong("interface name contains / or : or whitespace characters"));
    }
    if name.contains(char::REPLACEMENT_CHARACTER) {
        return Err(wrong("interface name is not a text in UTF-8"));
    }
    Ok(())
}

/// The kernel makes `eth0` of `eth%d`, or the next that is free: then nobody would know the interface's name.
fn refuse_pattern(name: &str) -> Result<(), CniError> {
    if name.contains('%') {
        let details = "the kernel would put a number in its place";
        return Err(wrong(format!("interface name {name:?} contains %")).details(details));
    }
    Ok(())
}

fn wrong(msg: impl Into<String>) -> CniError {
    CniError::new(code::INVALID_ENVIRONMENT, msg)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(command: &str) -> Environment {
        Environment {
            command: command.into(),
            container_id: "c0ffee01".into(),
            netns: "/run/netns/pod1".into(),
            ifname: "eth0".into(),
            path: "/opt/cni/bin".into(),
            ..Environment::default()
        }
    }

    #[test]
    fn each_command_needs_its_own_variables_and_missing_ones_are_told_together() {
        let missing = |command: &str| {
            let empty = Environment { command: command.into(), ..Environment::default() };
            empty.check().err().map(|refusal| refusal.msg)
        };
        let all =
            Some("required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH] missing".into());
        assert_eq!(missing("ADD"), all);
        assert_eq!(missing("CHECK"), all);
        let del = "required env variables [CNI_CONTAINERID,CNI_IFNAME,CNI_PATH] missing";
        assert_eq!(missing("DEL").as_deref(), Some(del));
        assert_eq!(missing("GC").as_deref(), Some("required env variables [CNI_PATH] missing"));
        assert_eq!(missing("STATUS").as_deref(), Some("required env variables [CNI_PATH] missing"));
        assert_eq!(missing("VERSION"), None);
        assert_eq!(missing("FOO"), None);
        assert_eq!(missing("").as_deref(), Some("required env variables [CNI_COMMAND] missing"));
    }

    #[test]
    fn a_wrong_value_is_told_before_a_missing_one_and_only_where_it_is_needed() {
        let wrong = Environment { container_id: "../x".into(), ifname: String::new(), ..environment("ADD") };
        let refusal = wrong.check().unwrap_err();
        assert_eq!((&*refusal.msg, &*refusal.details), ("invalid characters in containerID", "../x"));
        assert_eq!(Environment { command: "GC".into(), ..wrong }.check(), Ok(()));
    }

    #[test]
    fn hostile_container_ids_are_refused() {
        for id in ["../x", "a/b", "-a", ".a", "_a", "a\n", "a b", "ä", "a\u{fffd}"] {
            assert_eq!(check_container_id(id).unwrap_err().code, code::INVALID_ENVIRONMENT, "{id:?}");
        }
        for id in ["a", "0", "A_b.c-d", &"x".repeat(300)] {
            assert_eq!(check_container_id(id), Ok(()));
        }
    }

    #[test]
    fn interface_names_are_what_the_kernel_takes() {
        let words = |name: &str| check_interface_name(name).err().map(|refusal| refusal.msg);
        assert_eq!(words("averyverylongname0").as_deref(), Some("interface name is too long"));
        for name in [".", ".."] {
            assert_eq!(words(name).as_deref(), Some("interface name is . or .."));
        }
        for name in ["a/b", "a:b", "a b", "a\tb", "a\n", "a\u{a0}b"] {
            let text = "interface name contains / or : or whitespace characters";
            assert_eq!(words(name).as_deref(), Some(text), "{name:?}");
        }
        assert_eq!(words("a\u{fffd}").as_deref(), Some("interface name is not a text in UTF-8"));
        assert_eq!(words("exactly15bytes."), None);
    }

    #[test]
    fn a_name_that_the_kernel_would_complete_is_refused_unless_something_is_to_be_freed() {
        let check = |command: &str| Environment { ifname: "eth%d".into(), ..environment(command) }.check();
        let refusal = CniError::new(code::INVALID_ENVIRONMENT, "interface name \"eth%d\" contains %")
            .details("the kernel would put a number in its place");
        assert_eq!((check("ADD"), check("CHECK")), (Err(refusal.clone()), Err(refusal)));
        assert_eq!((check("DEL"), check("GC")), (Ok(()), Ok(())));
    }

    #[test]
    fn the_name_of_a_network_is_plain() {
        assert_eq!(check_network_name("cbr0"), Ok(()));
        assert_eq!(check_network_name("").map_err(|why| why.code), Err(7));
        assert_eq!(check_network_name("a/b").map_err(|why| why.code), Err(7));
    }

    #[test]
    fn the_netns_check_is_overridden_by_1_and_true_only() {
        let overrides = |text: &str| {
            Environment { netns_override: text.into(), ..environment("ADD") }.overrides_netns_check()
        };
        assert_eq!(["1", "true", "TRUE", "True"].map(overrides), [true; 4]);
        assert_eq!(["", "0", "yes", "false"].map(overrides), [false; 4]);
    }
}

//! The names of flannel's keys in etcd. Takes the prefix, gives keys and the parts of them that name leases.

/// The keys below one prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    pub config: String,
    /// What the keys of all leases begin with, the slash included: Go leaves it out and so reads keys of others.
    pub subnets: String,
}

impl Keys {
    pub(super) fn below(prefix: &str) -> Self {
        Self { config: cleaned(&[prefix, "config"]), subnets: cleaned(&[prefix, "subnets"]) + "/" }
    }

    /// The whole key of a lease.
    pub(super) fn lease(&self, name: &str) -> String {
        format!("{}{name}", self.subnets)
    }

    /// The part of a key that names a lease; nothing if it is no lease's key.
    pub(super) fn lease_name<'a>(&self, key: &'a [u8]) -> Option<std::borrow::Cow<'a, str>> {
        key.strip_prefix(self.subnets.as_bytes()).map(String::from_utf8_lossy)
    }
}

/// Where the range of all keys that begin so ends.
pub(super) fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0] // all keys from there on
}

/// Joins parts as Go's `path.Join` does: without empty, doubled or dotted parts.
fn cleaned(parts: &[&str]) -> String {
    let joined = parts.join("/");
    let rooted = parts.iter().find(|part| !part.is_empty()).is_some_and(|part| part.starts_with('/'));
    let mut kept: Vec<&str> = Vec::new();
    for part in joined.split('/') {
        match part {
            "" | "." => {}
            ".." if kept.last().is_some_and(|last| *last != "..") => drop(kept.pop()),
            ".." if rooted => {}
            part => kept.push(part),
        }
    }
    format!("{}{}", if rooted { "/" } else { "" }, kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_go_however_the_prefix_is_written() {
        for prefix in [
            "/coreos.com/network",
            "/coreos.com/network/",
            "//coreos.com//./network//",
            "/x/../coreos.com/network",
        ] {
            let keys = Keys::below(prefix);
            assert_eq!(keys.config, "/coreos.com/network/config", "{prefix}");
            assert_eq!(keys.lease("10.1.2.0-24"), "/coreos.com/network/subnets/10.1.2.0-24", "{prefix}");
        }
        assert_eq!(Keys::below("plain").config, "plain/config");
        assert_eq!(Keys::below("").subnets, "subnets/");
        assert_eq!(Keys::below("/").subnets, "/subnets/");
        assert_eq!(Keys::below("/..").config, "/config");
        assert_eq!(Keys::below("../up").config, "../up/config");
    }

    #[test]
    fn only_keys_below_the_slash_name_leases() {
        let keys = Keys::below("/n");
        assert_eq!(keys.lease_name(b"/n/subnets/10.1.2.0-24").as_deref(), Some("10.1.2.0-24"));
        assert_eq!(keys.lease_name(b"/n/subnets/a\xff").as_deref(), Some("a\u{fffd}"));
        assert_eq!(keys.lease_name(b"/n/subnetsother/10.1.2.0-24"), None);
        assert_eq!(keys.lease_name(b"/n/config"), None);
    }

    #[test]
    fn a_range_ends_before_the_next_prefix() {
        assert_eq!(end_of("/n/subnets/"), b"/n/subnets0");
        assert_eq!(end_of("10.1.2.0-"), b"10.1.2.0.");
        assert_eq!(end_of(""), [0]);
    }
}

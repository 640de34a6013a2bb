//! Kernel settings below `/proc/sys`: read and write. Those below `net` are of this thread's namespace.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Component, Path, PathBuf};

use flannel_plan::state::Sysctl;
use rustix::io::Errno;

use crate::netlink::NetlinkError;

/// The setting at a path. One that cannot be read is left out: writing it will tell why.
pub(crate) fn read(path: &str) -> Option<Sysctl> {
    let text = std::fs::read_to_string(file(path).ok()?).ok()?;
    Some(Sysctl { path: path.into(), value: text.trim().into() })
}

/// Gives the setting at a path below `/proc/sys` a value.
pub fn set(path: &str, value: &str) -> Result<(), NetlinkError> {
    let mut file = OpenOptions::new().write(true).open(file(path)?)?;
    // The kernel takes a value only whole, in one write.
    Ok(file.write_all(format!("{value}\n").as_bytes())?)
}

/// Whether the setting at a path below `/proc/sys` has a value; one that cannot be read has none.
pub fn is(path: &str, value: &str) -> bool {
    read(path).is_some_and(|sysctl| *sysctl.value == *value)
}

fn file(path: &str) -> Result<PathBuf, NetlinkError> {
    let plain = |part: Component| matches!(part, Component::Normal(_));
    if path.is_empty() || !Path::new(path).components().all(plain) {
        let message = Some("not a path below /proc/sys".into());
        return Err(NetlinkError { errno: Errno::INVAL, message });
    }
    Ok(Path::new("/proc/sys").join(path))
}

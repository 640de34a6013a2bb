//! Kernel settings below `/proc/sys`: read and write. Those below `net` are of this thread's namespace.

use std::path::{Component, Path, PathBuf};

use flannel_plan::state::Sysctl;
use rustix::io::Errno;

use crate::netlink::Refusal;

/// The setting at a path, if the kernel has it.
pub(crate) fn read(path: &str) -> Result<Option<Sysctl>, Refusal> {
    match std::fs::read_to_string(file(path)?) {
        Ok(text) => Ok(Some(Sysctl { path: path.into(), value: text.trim().into() })),
        Err(error) => match Refusal::from(error) {
            why if why.says_absent() => Ok(None),
            why => Err(why),
        },
    }
}

/// Sets a setting.
pub(crate) fn write(sysctl: &Sysctl) -> Result<(), Refusal> {
    Ok(std::fs::write(file(&sysctl.path)?, format!("{}\n", sysctl.value))?)
}

fn file(path: &str) -> Result<PathBuf, Refusal> {
    let plain = |part: Component| matches!(part, Component::Normal(_));
    if path.is_empty() || !Path::new(path).components().all(plain) {
        let message = Some("not a path below /proc/sys".into());
        return Err(Refusal { errno: Errno::INVAL, message });
    }
    Ok(Path::new("/proc/sys").join(path))
}

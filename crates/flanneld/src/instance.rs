//! Which daemon of this host we are: by the real folder of the subnet file, whatever path leads there.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use flannel_files::folder_of;
use flannel_kernel::living::SignOfLife;
use flannel_plan::inputs::NodeOptions;
use tracing::warn;

use crate::options::{Options, RuleOptions};

/// What the operator chose for this node, and which daemon it is.
pub fn node_options(options: &Options) -> NodeOptions {
    let RuleOptions { ip_masq, forward: forward_rules, blackhole: blackhole_route, .. } = options.rules;
    let path = Path::new(&options.subnet_file);
    NodeOptions {
        subnet_file: options.subnet_file.as_str().into(),
        folder: real_folder(folder_of(path)).into(),
        former: former(path),
        ip_masq,
        forward_rules,
        blackhole_route,
    }
}

/// Lets other daemons of this host know that this one lives. Without it another one that wants the same device takes it
/// for left behind, which is no reason not to run.
pub fn give_sign_of_life(node: &NodeOptions) -> Option<SignOfLife> {
    let sign = SignOfLife::give(&node.instance());
    let warn = |why: &std::io::Error| {
        warn!(
            "does another flanneld run with {}? No telling others that this one lives: {why}",
            node.subnet_file
        );
    };
    sign.inspect_err(warn).ok()
}

/// The folder's file system and number there; nothing if it cannot be made, which writing will tell.
fn real_folder(folder: &Path) -> String {
    let _ = fs::create_dir_all(folder);
    fs::metadata(folder).map(|found| format!("{:x}:{:x}", found.dev(), found.ino())).unwrap_or_default()
}

/// The paths by which version 0.1 may have been called: as we are, and the real one.
fn former(path: &Path) -> Vec<Box<str>> {
    let real =
        fs::canonicalize(folder_of(path)).ok().zip(path.file_name()).map(|(folder, name)| folder.join(name));
    let mut paths: Vec<PathBuf> = real.into_iter().chain([path.to_owned()]).collect();
    paths.dedup();
    paths.iter().map(|path| path.to_string_lossy().into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_folder_is_the_same_by_every_path_and_another_one_in_its_place_is_not() {
        let base = std::env::temp_dir().join(format!("instance-{}", std::process::id()));
        let (real, other) = (base.join("real"), base.join("other"));
        let first = real_folder(&real);
        symlink(&real, base.join("link")).unwrap();
        assert_eq!(real_folder(&base.join("link")), first);
        assert_ne!(real_folder(&other), first);
        let paths = [real.join("a.env"), base.join("link/a.env")].map(|path| path.to_string_lossy().into());
        assert_eq!(former(&base.join("link/a.env")), paths);
        fs::remove_dir_all(base).unwrap();
    }
}

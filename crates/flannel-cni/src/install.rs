//! Puts this program into a folder under the names of its plugins.
//!
//! A runtime may call a plugin at any moment: each name is replaced in one step, so it is always the old
//! program or the new one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::plugins::Plugin;

/// Why a name could not be put in place.
#[derive(Debug, thiserror::Error)]
#[error("cannot install {}: {source}", .path.display())]
pub struct InstallError {
    path: PathBuf,
    source: std::io::Error,
}

/// The name of the program's own file.
const OWN: &str = "flannel-cni";

/// Copies the program into the folder once, and links the names of the plugins to that copy: then a plugin
/// finds itself behind the others' names and calls them without starting a process. Gives all paths that lead to it.
pub fn install(program: &Path, folder: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let because = |path: &Path| {
        let path = path.to_owned();
        move |source| InstallError { path, source }
    };
    fs::create_dir_all(folder).map_err(because(folder))?;
    let own = folder.join(OWN);
    let copy = |to: &Path| {
        fs::copy(program, to)?;
        fs::set_permissions(to, fs::Permissions::from_mode(0o755))
    };
    place(&own, copy).map_err(because(&own))?;
    let mut placed = vec![own.clone()];
    for plugin in Plugin::ALL {
        let name = folder.join(plugin.name());
        // A file system without hard links gets copies; they find each other by running each other.
        place(&name, |to| fs::hard_link(&own, to).or_else(|_| copy(to))).map_err(because(&name))?;
        placed.push(name);
    }
    Ok(placed)
}

/// Makes a file beside the name and renames it.
fn place(name: &Path, make: impl Fn(&Path) -> std::io::Result<()>) -> std::io::Result<()> {
    let file = name.file_name().unwrap_or_default().to_string_lossy();
    let draft = name.with_file_name(format!(".{file}.{}", std::process::id()));
    let _ = fs::remove_file(&draft); // of a run that was killed
    let placed = make(&draft).and_then(|()| fs::rename(&draft, name));
    // Renaming onto another link of the same file does nothing and keeps the draft.
    let _ = fs::remove_file(&draft);
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn all_names_lead_to_one_file_and_a_second_run_replaces_them() {
        let folder = tempfile::tempdir().unwrap();
        let (program, bin) = (folder.path().join("program"), folder.path().join("a/bin"));
        for content in ["one", "two", "two"] {
            fs::write(&program, content).unwrap();
            let placed = install(&program, &bin).unwrap();
            assert_eq!((&placed[0], placed.len()), (&bin.join("flannel-cni"), 6));
            assert_eq!(
                names(&bin),
                ["bridge", "flannel", "flannel-cni", "host-local", "loopback", "portmap"]
            );
            let own = fs::metadata(bin.join("flannel-cni")).unwrap();
            assert_eq!((own.nlink(), own.mode() & 0o777), (6, 0o755));
            assert_eq!(fs::read_to_string(bin.join("bridge")).unwrap(), content);
        }
    }

    #[test]
    fn what_cannot_be_placed_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("program"), "x").unwrap();
        fs::create_dir(folder.path().join("bridge")).unwrap();
        let error = install(&folder.path().join("program"), folder.path()).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("cannot install {}/bridge: ", folder.path().display())),
            "{error}"
        );
    }
}

//! Networks in a folder such as /etc/cni/net.d: by name as libcni finds them, or the first as CRI runtimes do.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::network::{Network, NetworkError, Plugin};

/// Why a network could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file or folder cannot be read.
    #[error("error reading {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file holds no network.
    #[error("{}: {source}", path.display())]
    Content { path: PathBuf, source: NetworkError },
    /// There are networks, but none of that name.
    #[error("no net configuration with name {name:?} in {}", folder.display())]
    NotFound { folder: PathBuf, name: String },
    /// There is nothing.
    #[error("no net configurations found in {}", .0.display())]
    Nothing(PathBuf),
}

impl Network {
    /// Reads a `.conflist`, and the plugins that are in a folder of the network's name beside it.
    pub fn read(file: &Path) -> Result<Self, LoadError> {
        let mut network = Self::parse(&read(file)?).map_err(content(file))?;
        if !network.only_inlined {
            let folder = file.parent().unwrap_or(Path::new("")).join(&network.name);
            for file in files(&folder, &[".conf"])? {
                network.plugins.push(read_plugin(&file)?);
            }
        }
        if network.plugins.is_empty() {
            return Err(content(file)(NetworkError::NoPlugins));
        }
        Ok(network)
    }

    /// Finds a network by its name: lists first, then single plugins; a broken file on the way is an error.
    pub fn find(folder: &Path, name: &str) -> Result<Self, LoadError> {
        let lists = files(folder, &[".conflist"])?;
        for file in &lists {
            let network = Self::read(file)?;
            if network.name == name {
                return Ok(network);
            }
        }
        let singles = files(folder, &[".conf", ".json"])?;
        for file in &singles {
            let plugin = read_plugin(file)?;
            if plugin.name == name {
                return Self::of_plugin(&plugin).map_err(content(file));
            }
        }
        if lists.is_empty() && singles.is_empty() {
            return Err(LoadError::Nothing(folder.to_owned()));
        }
        Err(LoadError::NotFound { folder: folder.to_owned(), name: name.to_owned() })
    }

    /// The network that a Kubernetes node uses: that of the first file by name.
    pub fn first(folder: &Path) -> Result<Self, LoadError> {
        let files = files(folder, &[".conf", ".conflist", ".json"])?;
        let file = files.first().ok_or_else(|| LoadError::Nothing(folder.to_owned()))?;
        if file.as_os_str().as_encoded_bytes().ends_with(b".conflist") {
            return Self::read(file);
        }
        Self::of_plugin(&read_plugin(file)?).map_err(content(file))
    }
}

fn read_plugin(file: &Path) -> Result<Plugin, LoadError> {
    Plugin::parse(&read(file)?).map_err(content(file))
}

/// The files of a folder with one of the endings, by name; no folder has none.
fn files(folder: &Path, endings: &[&str]) -> Result<Vec<PathBuf>, LoadError> {
    let failed = |source| LoadError::Read { path: folder.to_owned(), source };
    let entries = match fs::read_dir(folder) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let fits = |ending: &&str| name.as_encoded_bytes().ends_with(ending.as_bytes());
        if endings.iter().any(fits) && !entry.file_type().map_err(failed)?.is_dir() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn read(file: &Path) -> Result<Vec<u8>, LoadError> {
    fs::read(file).map_err(|source| LoadError::Read { path: file.to_owned(), source })
}

fn content(file: &Path) -> impl FnOnce(NetworkError) -> LoadError {
    let path = file.to_owned();
    move |source| LoadError::Content { path, source }
}

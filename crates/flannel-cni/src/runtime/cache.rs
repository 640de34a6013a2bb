//! What a runtime remembers of what it attached, in the files and the form of libcni, so that either can detach
//! what the other attached.
//!
//! Takes and gives [`Record`]s. A file is written whole and then renamed: one that was cut short by a power
//! failure made older runtimes try a DEL for ever.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::container::Container;
use crate::json::Object;
use crate::request::AttachmentId;

/// What marks a record among the bare results that old runtimes wrote.
const KIND: &str = "cniCacheV1";

/// One attachment.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub network: String,
    /// The container, with all that the plugins were told at ADD.
    pub container: Container,
    /// The text of the network's configuration at ADD.
    pub config: Vec<u8>,
    /// What the last plugin answered.
    pub result: Option<Map<String, Value>>,
}

/// Why something is not remembered.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// A file cannot be read or written.
    #[error("cannot {act} {}: {source}", path.display())]
    File { act: &'static str, path: PathBuf, source: io::Error },
    /// A file does not hold what it should.
    #[error("{}: {why}", path.display())]
    Content { path: PathBuf, why: String },
}

/// The folder with the files.
pub(super) struct Cache {
    folder: PathBuf,
}

impl Cache {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder: folder.join("results") }
    }

    /// A record, and where it is written before it is renamed; that starts with a dot, as the name of no record does.
    fn files(&self, network: &str, of: &AttachmentId) -> [PathBuf; 2] {
        ["", "."].map(|dot| self.folder.join(format!("{dot}{network}-{}-{}", of.container_id, of.ifname)))
    }

    pub(super) fn write(&self, record: &Record) -> Result<(), CacheError> {
        let [file, draft] = self.files(&record.network, &record.container.attachment());
        let folder = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        folder.map_err(failed("create", &self.folder))?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options.open(&draft).and_then(|mut open| open.write_all(record.json().as_bytes()));
        written.map_err(failed("write", &draft))?;
        fs::rename(&draft, &file).map_err(failed("write", &file))
    }

    /// What is remembered of an attachment; an error if its file cannot be understood.
    pub(super) fn read(&self, network: &str, of: &AttachmentId) -> Result<Option<Record>, CacheError> {
        let [path, _] = self.files(network, of);
        let bytes = match fs::read(&path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(failed("read", &path))?,
        };
        let parsed = serde_json::from_slice(&bytes).map_err(|why| why.to_string());
        let parsed = parsed.and_then(|map| match is_record(&map) {
            true => Record::parse(&map),
            false => Ok(Record::bare(network, of, map)),
        });
        parsed.map(Some).map_err(|why| CacheError::Content { path, why })
    }

    pub(super) fn is_there(&self, network: &str, of: &AttachmentId) -> bool {
        self.files(network, of)[0].exists()
    }

    pub(super) fn remove(&self, network: &str, of: &AttachmentId) -> Result<(), CacheError> {
        let [path, draft] = self.files(network, of);
        // A draft is left by a power failure only, and nobody would miss it.
        let _ = fs::remove_file(draft);
        match fs::remove_file(&path) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => Err(failed("remove", &path)(why)),
            _ => Ok(()),
        }
    }

    /// All that can be understood; bare results do not say whose they are.
    pub(super) fn records(&self) -> Result<Vec<Record>, CacheError> {
        let entries = match fs::read_dir(&self.folder) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed("read", &self.folder))?,
        };
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|file| !file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")));
        files.sort();
        let record = |file: PathBuf| {
            let map = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
            Record::parse(&map).ok().filter(|_| is_record(&map))
        };
        Ok(files.into_iter().filter_map(record).collect())
    }
}

impl Record {
    /// The keys in the order of libcni, and below them in that of the alphabet; what is empty is left out.
    fn json(&self) -> String {
        let container = &self.container;
        let mut map = Map::new();
        let mut put = |key: &str, value: Value| map.insert(key.to_owned(), value);
        put("kind", KIND.into());
        put("containerId", container.id.clone().into());
        put("config", STANDARD.encode(&self.config).into());
        put("ifName", container.ifname.clone().into());
        put("networkName", self.network.clone().into());
        if let Some(netns) = &container.netns {
            put("netns", netns.to_string_lossy().into());
        }
        if !container.args.is_empty() {
            put("cniArgs", container.args.iter().map(|(key, value)| json!([key, value])).collect());
        }
        if !container.capabilities.is_empty() {
            put("capabilityArgs", container.capabilities.clone().into());
        }
        if let Some(result) = &self.result {
            put("result", result.clone().into());
        }
        let mut record = Value::Object(map);
        for key in ["capabilityArgs", "result"] {
            record.get_mut(key).into_iter().for_each(Value::sort_all_objects);
        }
        record.to_string()
    }

    fn parse(map: &Map<String, Value>) -> Result<Self, String> {
        let object = Object::new(map);
        let said = |why: crate::error::CniError| why.msg;
        let text = |key| object.text(key).map(|text| text.unwrap_or_default().to_owned()).map_err(said);
        let copy = |key| object.object(key).map(|inner| inner.map(|inner| inner.map().clone())).map_err(said);
        let netns = text("netns")?;
        let container = Container {
            id: text("containerId")?,
            netns: (!netns.is_empty()).then(|| netns.into()),
            ifname: text("ifName")?,
            args: args(object.get("cniArgs"))?,
            capabilities: copy("capabilityArgs")?.unwrap_or_default(),
        };
        let network = text("networkName")?;
        if container.ifname.is_empty() || network.is_empty() {
            return Err("neither networkName nor ifName may be empty".to_owned());
        }
        let config = STANDARD.decode(text("config")?).map_err(|_| "config is not Base64")?;
        Ok(Self { network, container, config, result: copy("result")? })
    }

    /// A file of an old runtime, which is the result and nothing else.
    fn bare(network: &str, of: &AttachmentId, result: Map<String, Value>) -> Self {
        let container =
            Container { id: of.container_id.clone(), ifname: of.ifname.clone(), ..Container::default() };
        Self { network: network.to_owned(), container, config: Vec::new(), result: Some(result) }
    }
}

fn is_record(map: &Map<String, Value>) -> bool {
    Object::new(map).get("kind").and_then(Value::as_str) == Some(KIND)
}

fn args(pairs: Option<&Value>) -> Result<Vec<(String, String)>, String> {
    let Some(pairs) = pairs else { return Ok(Vec::new()) };
    serde_json::from_value(pairs.clone()).map_err(|why| format!("cniArgs: {why}"))
}

fn failed(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CacheError {
    let path = path.to_owned();
    move |source| CacheError::File { act, path, source }
}

//! One call of a plugin: environment and standard input, read and checked once.

mod args;
mod environment;

use std::path::PathBuf;

use serde_json::{Map, Value};

pub use environment::{Environment, check_container_id, check_interface_name, check_network_name};

use crate::error::{CniError, code};
use crate::json::Object;
use crate::result::Attachment;
use crate::version::{Version, numbers};

/// What a plugin is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Attach a container.
    Add,
    /// Detach it, and free everything.
    Del,
    /// Is it attached as it should be?
    Check,
    /// Free what belongs to no container.
    Gc,
    /// Can containers be attached?
    Status,
    /// Which versions are spoken?
    Version,
}

impl Command {
    /// The command of a text.
    pub fn parse(text: &str) -> Option<Self> {
        let all = [Self::Add, Self::Del, Self::Check, Self::Gc, Self::Status, Self::Version];
        all.into_iter().find(|command| command.as_str() == text)
    }

    /// Its text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
        }
    }

    /// The first version that has it, where that is not the first of all.
    fn since(self) -> Option<Version> {
        match self {
            Self::Check => Some(Version::V0_4_0),
            Self::Gc | Self::Status => Some(Version::V1_1_0),
            Self::Add | Self::Del | Self::Version => None,
        }
    }
}

/// One call of a plugin.
#[derive(Clone, Debug)]
pub struct Request {
    pub command: Command,
    /// The container; empty for GC and STATUS.
    pub container_id: String,
    /// The container's network namespace; none if the runtime does not know it (any more).
    pub netns: Option<PathBuf>,
    /// The name of the interface inside the container; empty for GC and STATUS.
    pub ifname: String,
    /// `CNI_ARGS`, as it is.
    pub args: String,
    /// `CNI_PATH`, split.
    pub path: Vec<PathBuf>,
    pub version: Version,
    pub network: String,
    pub config: Map<String, Value>,
}

/// A container and one of its interfaces: what a runtime calls an attachment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttachmentId {
    pub container_id: String,
    pub ifname: String,
}

impl Request {
    /// Reads standard input behind an environment that was checked; the order of the checks is Go's.
    pub fn read(environment: &Environment, stdin: &[u8]) -> Result<Self, CniError> {
        let config = config(stdin)?;
        let object = Object::new(&config);
        let network = network_name(object)?.to_owned();
        let unknown = || {
            let text = format!("unknown CNI_COMMAND: {}", environment.command);
            CniError::new(code::INVALID_ENVIRONMENT, text)
        };
        let command = Command::parse(&environment.command).ok_or_else(unknown)?;
        let version = version(command, object)?;
        Ok(Self {
            command,
            container_id: environment.container_id.clone(),
            netns: Some(PathBuf::from(&environment.netns)).filter(|path| !path.as_os_str().is_empty()),
            ifname: environment.ifname.clone(),
            args: environment.args.clone(),
            path: std::env::split_paths(&environment.path).collect(),
            version,
            network,
            config,
        })
    }

    /// The same call with another configuration: what a delegate is asked.
    pub fn with_config(&self, command: Command, config: &Map<String, Value>) -> Result<Self, CniError> {
        let object = Object::new(config);
        Ok(Self {
            command,
            version: version(command, object)?,
            network: network_name(object)?.to_owned(),
            config: config.clone(),
            container_id: self.container_id.clone(),
            netns: self.netns.clone(),
            ifname: self.ifname.clone(),
            args: self.args.clone(),
            path: self.path.clone(),
        })
    }

    /// The configuration, to be read as Go reads it.
    pub fn config(&self) -> Object<'_> {
        Object::new(&self.config)
    }

    /// What the plugins before us in the chain made; none if we are the first.
    pub fn prev_result(&self) -> Result<Option<Attachment>, CniError> {
        let Some(previous) = self.config().get("prevResult") else { return Ok(None) };
        let unreadable = |why: CniError| CniError::internal(why.msg).context("could not parse prevResult");
        let object = || CniError::internal("it must be an object");
        let previous = previous.as_object().ok_or_else(object).map_err(unreadable)?;
        Attachment::from_previous(previous, self.version).map(Some).map_err(unreadable)
    }

    /// A key of `CNI_ARGS`, of which the plugin knows the keys `known`.
    pub fn cni_arg(&self, key: &str, known: &[&str]) -> Result<Option<&str>, CniError> {
        args::value_of(&self.args, key, known)
    }

    /// GC: the attachments that are to stay. None is not an empty list: then nothing may be deleted.
    pub fn valid_attachments(&self) -> Result<Option<Vec<AttachmentId>>, CniError> {
        let config = self.config();
        let key = "cni.dev/valid-attachments";
        // libcni sends an older name of the key as well.
        let Some(list) =
            config.list(key)?.map_or_else(|| config.list("cni.dev/attachments"), |list| Ok(Some(list)))?
        else {
            return Ok(None);
        };
        let wrong = || {
            let text = format!("failed to parse config: {key} must be a list of containerID and ifname");
            CniError::new(code::DECODING_FAILURE, text)
        };
        let read = |item: &Value| {
            let item = Object::new(item.as_object().ok_or_else(wrong)?);
            let text = |key| item.text(key).map(|text| text.unwrap_or_default().to_owned());
            let id = AttachmentId { container_id: text("containerID")?, ifname: text("ifname")? };
            if id.container_id.is_empty() { Err(wrong()) } else { Ok(id) }
        };
        list.iter().map(read).collect::<Result<_, _>>().map(Some)
    }
}

fn config(stdin: &[u8]) -> Result<Map<String, Value>, CniError> {
    let unreadable = |why: String| {
        CniError::new(code::DECODING_FAILURE, format!("error unmarshall network config: {why}"))
    };
    match serde_json::from_slice(stdin).map_err(|error| unreadable(error.to_string()))? {
        Value::Object(config) => Ok(config),
        Value::Null => Ok(Map::new()),
        _ => Err(unreadable("it must be a JSON object".into())),
    }
}

fn network_name(config: Object<'_>) -> Result<&str, CniError> {
    let unreadable = |why: CniError| {
        CniError::new(code::DECODING_FAILURE, why.msg).context("error unmarshall network config")
    };
    let name = config.text("name").map_err(unreadable)?.unwrap_or_default();
    check_network_name(name).map(|()| name)
}

/// The version of the configuration, which must have the command.
fn version(command: Command, config: Object<'_>) -> Result<Version, CniError> {
    let text = config.text("cniVersion")?.unwrap_or_default();
    if let Some(since) = command.since() {
        let asked = numbers(text)?;
        let refuse = |who: &str| {
            let text = format!("{who} version does not allow {}", command.as_str());
            Err(CniError::new(code::INCOMPATIBLE_VERSION, text))
        };
        if asked < numbers(since.as_str())? {
            return refuse("config");
        }
        if asked > numbers(Version::NEWEST.as_str())? {
            return refuse("plugin");
        }
    }
    Version::parse(text)
}

#[cfg(test)]
mod tests;

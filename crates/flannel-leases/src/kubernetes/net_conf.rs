//! The net-conf in a file: read at the start, and again whenever its folder changes. A ConfigMap that is mounted
//! changes by a link that is swapped beside the file, so the folder is watched and not the file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use flannel_plan::config::NetworkConfig;
use tokio::time::sleep;
use tracing::debug;

use crate::Fault;
use crate::inotify::{GONE, Inotify};

/// How often to look at a file that cannot be watched.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The net-conf in a file.
#[derive(Debug)]
pub(super) struct NetConf {
    path: PathBuf,
    notices: Option<Inotify>,
    /// What was read last, to the byte; none if nothing could be read.
    text: Option<String>,
    config: Option<NetworkConfig>,
    fault: Option<Fault>,
}

impl NetConf {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, notices: None, text: None, config: None, fault: None }
    }

    /// The config in force, or why there has been none so far.
    pub(super) fn config(&self) -> Result<&NetworkConfig, Fault> {
        self.config
            .as_ref()
            .ok_or_else(|| self.fault.clone().unwrap_or_else(|| self.wrong("has not been read")))
    }

    /// What is wrong with the file while an older config is in force.
    pub(super) fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref().filter(|_| self.config.is_some())
    }

    /// Reads the file, and says whether anything is new.
    pub(super) fn look(&mut self) -> bool {
        if self.notices.is_none() {
            self.notices = self.begin();
        }
        let before = (self.config.clone(), self.fault.clone());
        match std::fs::read_to_string(&self.path) {
            Err(cause) => {
                self.text = None;
                self.fault = Some(self.wrong(&format!("cannot be read: {cause}")));
            }
            Ok(text) if self.text.as_ref() == Some(&text) => {}
            Ok(text) => {
                match NetworkConfig::parse_without_subnets(&text) {
                    Ok(config) => (self.config, self.fault) = (Some(config), None),
                    Err(faults) => self.fault = Some(self.wrong(&format!("cannot be used: {faults}"))),
                }
                self.text = Some(text);
            }
        }
        before != (self.config.clone(), self.fault.clone())
    }

    fn begin(&self) -> Option<Inotify> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let begun = Inotify::new().and_then(|notices| {
            notices.watch(folder.unwrap_or(Path::new(".")))?;
            Ok(notices)
        });
        begun
            .inspect_err(|error| debug!(%error, file = %self.path.display(), "the net-conf is not watched"))
            .ok()
    }

    /// Waits until it is worth a look.
    pub(super) async fn noticed(&mut self) {
        loop {
            let Some(notices) = &self.notices else {
                sleep(LOOK_AGAIN).await;
                return;
            };
            let (mut touched, mut lost) = (false, false);
            let name = self.path.file_name().map(|name| name.as_encoded_bytes()).unwrap_or_default();
            let waited = notices.wait(|event| {
                let file = event.file_name().map(|name| name.to_bytes()).unwrap_or_default();
                // Everything that Kubernetes swaps in a mounted volume begins with two dots.
                touched |= file.is_empty() || file == name || file.starts_with(b"..");
                lost |= event.events().intersects(GONE);
            });
            if waited.await.is_err() || lost {
                self.notices = None;
            } else if touched {
                return;
            }
        }
    }

    fn wrong(&self, reason: &str) -> Fault {
        Fault { file: self.path.clone(), reason: reason.to_owned() }
    }
}

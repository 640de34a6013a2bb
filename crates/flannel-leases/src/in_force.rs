//! Garbage is not absence: what could be read last stays in force while its source cannot be read, and that is a fault.

use std::path::Path;
use std::sync::Arc;

use flannel_plan::config::NetworkConfig;
use flannel_plan::finding::Code;
use flannel_plan::lease::Lease;

use crate::Fault;

/// The net-conf in force, and what is wrong with its source now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NetConf {
    config: Option<NetworkConfig>,
    fault: Option<Fault>,
}

impl NetConf {
    /// Takes what was read now, and says whether anything is new.
    pub(crate) fn take(&mut self, file: &Path, read: Result<NetworkConfig, String>) -> bool {
        let new = match read {
            Ok(config) => Self { config: Some(config), fault: None },
            Err(reason) => Self {
                config: self.config.clone(),
                fault: Some(Fault::new(Code::NetConfUnusable, file, reason)),
            },
        };
        replace(self, new)
    }

    /// Takes a text that was read now, in the same way.
    pub(crate) fn take_text(&mut self, file: &Path, text: Result<impl AsRef<str>, String>) -> bool {
        let parsed = text.and_then(|text| {
            NetworkConfig::parse(text.as_ref()).map_err(|wrong| format!("holds no net-conf: {wrong}"))
        });
        let is_known = self.config.is_some();
        self.take(file, parsed.map_err(|reason| staying(reason, is_known)))
    }

    /// The config in force, or why there has been none so far.
    pub(crate) fn config(&self) -> Result<&NetworkConfig, Fault> {
        let unread = || Fault::new(Code::NetConfUnusable, "net-conf", "has not been read");
        self.config.as_ref().ok_or_else(|| self.fault.clone().unwrap_or_else(unread))
    }

    /// What is wrong while an older config is in force.
    pub(crate) fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref().filter(|_| self.config.is_some())
    }
}

/// The lease that is in force after one was read anew, and why that could not be read. The same lease stays the same
/// allocation, which older snapshots share.
pub(crate) fn lease(
    read: Result<Lease, String>,
    before: Option<&Arc<Lease>>,
) -> (Option<Arc<Lease>>, Option<String>) {
    match read {
        Ok(lease) => {
            let same = before.filter(|before| ***before == lease).cloned();
            (Some(same.unwrap_or_else(|| lease.into())), None)
        }
        Err(reason) => (before.cloned(), Some(staying(reason, before.is_some()))),
    }
}

/// A reason, and that what was known before stays, if anything was.
fn staying(reason: String, is_known: bool) -> String {
    if is_known { reason + "; what it said before stays in force" } else { reason }
}

/// Puts a value in place of another one, and says whether it is a new one.
pub(crate) fn replace<T: PartialEq>(slot: &mut T, value: T) -> bool {
    let is_new = *slot != value;
    *slot = value;
    is_new
}

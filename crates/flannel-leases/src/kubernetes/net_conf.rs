//! The net-conf in a file: read at the start, and again whenever it may have changed.

use std::path::PathBuf;
use std::time::Duration;

use flannel_files::MOST_BY_HAND;
use flannel_files::watch::FileWatch;
use flannel_plan::config::NetworkConfig;
use tokio::time::sleep;
use tracing::debug;

use crate::in_force::NetConf;
use crate::readable::Readable;

/// How often to read a file that cannot be watched.
const POLL_EVERY: Duration = Duration::from_secs(5);

/// The net-conf in a file.
#[derive(Debug)]
pub(super) struct NetConfFile {
    path: PathBuf,
    watch: Option<Readable<FileWatch>>,
    /// What was read last, to the byte; none if nothing could be read.
    text: Option<String>,
    pub in_force: NetConf,
}

impl NetConfFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, watch: None, text: None, in_force: NetConf::default() }
    }

    /// Reads the file, and says whether anything is new.
    pub(super) fn read(&mut self) -> bool {
        if self.watch.is_none() {
            self.watch = self.begin();
        }
        let read = flannel_files::read_text(&self.path, MOST_BY_HAND);
        if read.as_ref().ok() == self.text.as_ref() && read.is_ok() {
            return false;
        }
        let parsed = match &read {
            Err(cause) => Err(format!("cannot be read: {cause}")),
            Ok(text) => NetworkConfig::parse_without_subnets(text)
                .map_err(|faults| format!("cannot be used: {faults}")),
        };
        self.text = read.ok();
        self.in_force.take(&self.path, parsed)
    }

    fn begin(&self) -> Option<Readable<FileWatch>> {
        FileWatch::new(&self.path)
            .and_then(Readable::new)
            .inspect_err(|error| debug!(%error, file = %self.path.display(), "the net-conf is not watched"))
            .ok()
    }

    /// Waits until it is worth reading.
    pub(super) async fn noticed(&mut self) {
        while let Some(watch) = &mut self.watch {
            match watch.read(FileWatch::read).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(_) => self.watch = None,
            }
        }
        sleep(POLL_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use flannel_plan::family::Family;

    use super::*;

    const V4: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#;
    const V6: &str =
        r#"{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00::/48","Backend":{"Type":"vxlan"}}"#;

    async fn noticed(net_conf: &mut NetConfFile) -> bool {
        tokio::time::timeout(Duration::from_secs(20), net_conf.noticed())
            .await
            .expect("it should be noticed");
        net_conf.read()
    }

    #[tokio::test]
    async fn a_file_that_changes_is_read_and_a_bad_one_leaves_the_last_good_one_in_force() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("net-conf.json");
        let mut net_conf = NetConfFile::new(path.clone());
        assert!(net_conf.read());
        let missing = net_conf.in_force.config().unwrap_err().to_string();
        assert!(missing.contains("net-conf.json cannot be read: No such file"), "{missing}");
        assert_eq!(net_conf.in_force.fault(), None);
        fs::write(dir.path().join("something-else"), V4).unwrap();
        fs::write(&path, V4).unwrap();
        assert!(noticed(&mut net_conf).await);
        assert_eq!(net_conf.in_force.config().unwrap().families(), [Family::V4]);
        fs::write(&path, "{").unwrap();
        assert!(noticed(&mut net_conf).await);
        assert_eq!(net_conf.in_force.config().unwrap().families(), [Family::V4]);
        assert!(net_conf.in_force.fault().unwrap().reason.starts_with("cannot be used: "));
        fs::write(&path, V6).unwrap();
        assert!(noticed(&mut net_conf).await);
        assert_eq!(
            (net_conf.in_force.config().unwrap().families(), net_conf.in_force.fault()),
            (vec![Family::V6], None)
        );
        fs::remove_file(&path).unwrap();
        assert!(noticed(&mut net_conf).await);
        assert_eq!(net_conf.in_force.config().unwrap().families(), [Family::V6]);
        assert!(net_conf.in_force.fault().is_some() && !net_conf.read());
    }
}

//! The daemon on a node: start, stop, kill, wait until it is ready, read what it said.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use crate::node::Node;
use crate::service::Service;
use crate::{LabError, Result, Signal, program};

/// Where flanneld answers for its health.
pub(crate) const HEALTH_PORT: u16 = 8081;
/// What flanneld writes for the CNI plugins, as the node sees it.
pub(crate) const SUBNET_FILE: &str = "/run/flannel/subnet.env";
/// The name under which a node runs its daemon.
const SERVICE: &str = "flanneld";

impl Node {
    /// Starts flanneld with the lab's arguments and these.
    pub fn start_flanneld<A: AsRef<str>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<()> {
        self.start_as(SERVICE, &program::find_flanneld()?, arguments)
    }

    /// Starts a program with flanneld's arguments: as `flanneld` in its place (Go's, for example), or as a further
    /// [`Service`] beside it. That one must be told a subnet file and a health port of its own: of an argument that is
    /// given twice, the second holds.
    pub fn start_as<A: AsRef<str>>(
        &self,
        service: &str,
        daemon: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<()> {
        let own = arguments.into_iter().map(|argument| argument.as_ref().to_owned());
        self.start_words(service, daemon, self.daemon.args.iter().cloned().chain(own))
    }

    /// Starts flanneld on another store than the lab's, which the arguments tell.
    pub fn start_on_store<A: AsRef<str>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<()> {
        let own = arguments.into_iter().map(|argument| argument.as_ref().to_owned());
        self.start_words(SERVICE, &program::find_flanneld()?, own)
    }

    fn start_words(
        &self,
        service: &str,
        daemon: &Path,
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<()> {
        let port = HEALTH_PORT.to_string();
        let common = ["--iface", "eth0", "--subnet-file", SUBNET_FILE, "--healthz-ip", "127.0.0.1"];
        let common = common.into_iter().chain(["--healthz-port", &port, "-v", "1"]).map(str::to_owned);
        let mut words = vec![daemon.display().to_string()];
        words.extend(common.chain(arguments));
        self.service(service).start(&words, |command| {
            // The caller's own settings for some flanneld are not for this one.
            let of_flanneld = |name: &OsString| name.to_string_lossy().starts_with("FLANNELD_");
            let names = std::env::vars_os().map(|(name, _)| name).filter(of_flanneld);
            names.for_each(|name| _ = command.env_remove(name));
            let own = self.daemon.env.iter().map(|(name, value)| (&**name, &**value));
            command.env("NODE_NAME", self.name()).envs(own);
        })
    }

    /// Its flanneld, whether it runs or not.
    pub fn flanneld(&self) -> Service<'_> {
        self.service(SERVICE)
    }

    /// Stops flanneld as systemd does, and starts it again with the lab's arguments.
    pub fn restart_flanneld(&self) -> Result<()> {
        self.flanneld().stop(Signal::TERM)?;
        self.start_flanneld([] as [&str; 0])
    }

    /// Whether flanneld says that it is ready; if not, why in a few words.
    pub fn readiness(&self) -> std::result::Result<(), String> {
        if !self.flanneld().lives() {
            return Err("not running".to_owned());
        }
        match self.http_get(HEALTH_PORT, "/readyz") {
            Ok((200, _)) => Ok(()),
            Ok((code, body)) => Err(format!("{code} {}", body.trim())),
            Err(why) => Err(why.to_string()),
        }
    }

    /// Waits until flanneld says that it is ready.
    pub fn wait_ready(&self, limit: Duration) -> Result<()> {
        let what = format!("flanneld on {} to be ready", self.name());
        let ready = self.daemon.interrupt.wait_for(&what, limit, || {
            if !self.flanneld().lives() {
                return Ok(Err(LabError::FlanneldEnded {
                    node: self.name().to_owned(),
                    log: self.flanneld().last_words(),
                }));
            }
            self.readiness().map(Ok).map_err(|why| format!("{why}\n{}", self.flanneld().last_words()))
        });
        ready?
    }

    /// All that flanneld has written on this node, since the lab came up.
    pub fn log(&self) -> String {
        self.flanneld().log()
    }
}

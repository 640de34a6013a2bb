//! A real firewalld on a node of a lab: with files and a message bus of its own, of which the host notices nothing.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use cluster_tests::wait_until;
use flannel_lab::Node;

/// A bus that starts nobody, and on which everybody may speak: there is only firewalld.
const BUS: &str = r#"<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_type="*"/><allow receive_type="*"/>
<allow send_destination="*"/></policy></busconfig>"#;

/// A firewalld on a node; it dies with the lab.
#[derive(Debug)]
pub struct Firewalld<'a> {
    node: &'a Node,
    outer: Child,
}

impl<'a> Firewalld<'a> {
    /// Starts one that keeps its rules in a backend: `nftables` or `iptables`.
    pub fn start(node: &'a Node, backend: &str) -> Self {
        let unpacked = unpacked().display().to_string();
        let lower = format!("lowerdir={unpacked}/usr:/usr");
        node.run("mount", ["-n", "-t", "overlay", "overlay", "-o", &lower, "/usr"]).unwrap();
        node.run("cp", ["-a", &format!("{unpacked}/etc/firewalld"), "/etc/"]).unwrap();
        let choice = format!("s/^FirewallBackend=.*/FirewallBackend={backend}/");
        node.run("sed", ["-i", &choice, "/etc/firewalld/firewalld.conf"]).unwrap();
        fs::create_dir(node.path("/run/dbus")).unwrap();
        fs::write(node.path("/run/bus.conf"), BUS).unwrap();
        node.run("dbus-daemon", ["--config-file=/run/bus.conf", "--fork"]).unwrap();
        let words = ["/usr/sbin/firewalld", "--nofork", "--nopid", "--log-target", "console"];
        let log = File::create(node.path("/run/firewalld.out")).unwrap();
        let mut command = node.command("/usr/bin/python3", words);
        let outer = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let firewalld = Self { node, outer };
        wait_until("firewalld to run", || firewalld.ask("--state"));
        firewalld
    }

    fn ask(&self, words: &str) -> Result<(), String> {
        let said = self.node.run("firewall-cmd", words.split_whitespace()).map_err(|why| why.to_string());
        let log = || fs::read_to_string(self.node.path("/run/firewalld.out")).unwrap_or_default();
        said.map(drop).map_err(|why| format!("{why}\n{}", log()))
    }

    /// Has it make all its rules anew. Its ebtables-restore may give up when somebody else, such as flanneld that puts
    /// its rules back, changes any in the same moment; an operator calls again then.
    pub fn reload(&self) {
        wait_until("firewalld to reload", || self.ask("--reload"));
    }
}

impl Drop for Firewalld<'_> {
    fn drop(&mut self) {
        // The one inside goes with the lab, which knows its processes by their mark.
        let _ = self.outer.kill();
        let _ = self.outer.wait();
    }
}

/// Where `make test-peers` unpacks it, beside the folder of this program.
fn unpacked() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let folder = own.ancestors().map(|folder| folder.join("peers/firewalld")).find(|path| path.is_dir());
    folder.expect("firewalld is unpacked by `make test-peers`")
}

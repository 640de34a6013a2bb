//! Catches one packet on a cable: tcpdump in the switch's network, one frame out.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::machine::Machine;
use crate::{LabError, Result, program};

/// A ping from pod to pod, bare or inside flannel's vxlan: the inner protocol is 39 bytes, the type of the
/// message 50 bytes after the start of the UDP header.
pub const PING: &str = "icmp[icmptype] = icmp-echo or (udp port 8472 and udp[39] = 1 and udp[50] = 8)";

/// The file header of a capture, and the header of its first packet.
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;

/// A capture that is running.
#[derive(Debug)]
pub struct Capture {
    child: Child,
    what: String,
    limit: Duration,
}

impl Capture {
    /// Begins to listen on a port of a machine; when this returns, no later packet is missed.
    pub fn start(machine: &Machine, port: &str, filter: &str, limit: Duration) -> Result<Self> {
        let what = format!("a packet on {} of {}", port, machine.name());
        let mut command = program::command("timeout");
        command.args(["--foreground", &limit.as_secs().max(1).to_string()]);
        command.args(["tcpdump", "-i", port, "-n", "-U"]);
        command.args(["--immediate-mode", "-c", "1", "-Z", "root", "-w", "-", filter]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed = |why: String| LabError::failed("`tcpdump` failed", why);
        let mut child = machine.inside(|| command.spawn())?.map_err(|why| failed(why.to_string()))?;
        let mut said = String::new();
        if let Some(errors) = child.stderr.as_mut() {
            let mut lines = BufReader::new(errors);
            while !said.contains("listening on") {
                if lines.read_line(&mut said).map_err(|why| failed(why.to_string()))? == 0 {
                    return Err(failed(said));
                }
            }
        }
        Ok(Self { child, what, limit })
    }

    /// The frame that was caught.
    pub fn frame(mut self) -> Result<Vec<u8>> {
        let mut file = Vec::new();
        if let Some(mut output) = self.child.stdout.take() {
            // Whatever goes wrong here leaves the file too short, which is told below.
            let _ = output.read_to_end(&mut file);
        }
        let nothing =
            || LabError::Timeout { what: self.what.clone(), limit: self.limit, last: "none came".to_owned() };
        file.get(FILE_HEADER + PACKET_HEADER..)
            .filter(|frame| !frame.is_empty())
            .map(<[u8]>::to_vec)
            .ok_or_else(nothing)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

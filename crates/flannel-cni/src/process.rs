//! Running a plugin as a program: start it, converse with it, and understand its failure.
//!
//! Takes a prepared command and its input, gives its output. Used by plugins that call plugins, and by the
//! runtime side.

use std::io;
use std::process::{Child, Command as Process, Output};
use std::thread;
use std::time::{Duration, Instant};

use flannel_kernel::child;
use serde_json::Value;

use crate::error::{CniError, code};
use crate::json::Object;

/// How long a program may be busy: somebody is writing it anew, as an installer does.
pub(crate) const BUSY_LIMIT: Duration = Duration::from_secs(6);
/// How often it is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// How long a plugin may take: kubelet waits no longer for a whole pod.
const LIMIT: Duration = Duration::from_secs(240);

/// Runs a program to its end.
pub(crate) fn run(process: &mut Process, input: &[u8]) -> io::Result<Output> {
    child::converse(spawn(process, BUSY_LIMIT)?, input, LIMIT)
}

/// Starts a program; one that is being written is tried again for a while, and is an error in the end.
pub(crate) fn spawn(process: &mut Process, limit: Duration) -> io::Result<Child> {
    let start = Instant::now();
    loop {
        match child::start(process) {
            Err(why) if why.kind() == io::ErrorKind::ExecutableFileBusy && start.elapsed() < limit => {
                thread::sleep(BUSY_PAUSE);
            }
            started => return started,
        }
    }
}

/// What a plugin wrote, if it did not fail.
pub(crate) fn stdout(output: Output) -> Result<Vec<u8>, CniError> {
    if output.status.success() { Ok(output.stdout) } else { Err(failure(&output)) }
}

/// What a plugin that failed has to say: an error object, or anything else that could help.
fn failure(output: &Output) -> CniError {
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let status = output.status.to_string().replace("exit status: ", "exit status ");
    if stdout.is_empty() && stderr.is_empty() {
        return CniError::internal(format!("netplugin failed with no error message: {status}"));
    }
    if stdout.is_empty() {
        return CniError::internal(format!("netplugin failed: {stderr:?}: {status}"));
    }
    read_error(&output.stdout).unwrap_or_else(|why| {
        let unread = "netplugin failed but error parsing its diagnostic message";
        CniError::internal(format!("{unread} {stdout:?}: {why}"))
    })
}

/// The error that a plugin printed.
fn read_error(stdout: &[u8]) -> Result<CniError, String> {
    let value: Value = serde_json::from_slice(stdout).map_err(|error| error.to_string())?;
    let object = Object::new(value.as_object().ok_or("it must be an object")?);
    let text = |key| object.text(key).map_err(|error| error.msg).map(Option::unwrap_or_default);
    let number = object.number("code").map_err(|error| error.msg)?.unwrap_or_default();
    let code = u32::try_from(number).map_err(|_| format!("code cannot be {number}"))?;
    // 0 says nothing, and would be taken for success by those who look at the code alone.
    let code = if code == 0 { code::INTERNAL } else { code };
    Ok(CniError::new(code, text("msg")?).details(text("details")?))
}

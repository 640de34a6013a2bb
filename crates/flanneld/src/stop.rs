//! The end: a signal rings for it, and comes true whatever the loop does.

use std::io;
use std::thread;
use std::time::Duration;

use flannel_kernel::signals::StopSignals;
use tracing::{error, warn};

use crate::exit;
use crate::wake::{Bell, Wake};

/// How long the loop may take to come round and end by itself. Being cut off is as safe.
const PATIENCE: Duration = Duration::from_secs(2);
/// A log that nobody reads must not keep the process alive.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Rings for the end when somebody asks for it, and ends the process soon after. To be called before anything else.
pub fn on_signal(bell: Bell) -> io::Result<()> {
    let signals = StopSignals::catch()?;
    let work = move || {
        if let Err(error) = signals.wait() {
            return error!(%error, "signals cannot be heard: end flanneld with SIGKILL, which is just as safe");
        }
        bell.ring(Wake::Stop);
        thread::sleep(PATIENCE);
        let tell = || warn!("the loop has not ended within {PATIENCE:?}: it is cut off");
        if thread::Builder::new().spawn(tell).is_ok() {
            thread::sleep(LAST_WORDS);
        }
        std::process::exit(exit::FINE.into());
    };
    thread::Builder::new().name("signals".into()).spawn(work).map(drop)
}

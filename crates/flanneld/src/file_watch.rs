//! Rings when somebody touches a file that the loop reads or keeps: the subnet file, without which pods cannot start, and
//! that of ip-masq-agent.

use std::path::Path;
use std::time::Duration;
use std::{fs, thread};

use flannel_files::folder_of;
use flannel_files::watch::FileWatch;
use tracing::warn;

use crate::wake::{Bell, Wake};
use crate::watching::{self, Failures, Named};

/// How often a file is read where the kernel tells nothing: many hosts have too few inotify instances.
const POLL: Duration = Duration::from_secs(1);

/// Watches the subnet file: its loss must not wait for the safety look.
pub fn start(file: &Path, bell: Bell, failures: Failures) {
    let file = file.to_owned();
    let named =
        Named { name: "file-watch", without: "the loss of the subnet file is seen once a minute only" };
    let folder = folder_of(&file).to_owned();
    // Made here rather than with the first file: the file may get lost right after.
    let open = move || fs::create_dir_all(folder_of(&file)).and_then(|()| FileWatch::new(&file));
    watching::keep(named, failures, bell, open, move |watch| {
        watch.wait().and_then(|()| fs::create_dir_all(&folder))
    });
}

/// Watches the file of ip-masq-agent; where that is not possible, it is read every second until it is.
pub fn start_or_poll(file: &Path, bell: Bell) {
    let file = file.to_owned();
    let work = move || {
        let mut told = false;
        loop {
            let Err(error) = watching::listen(&bell, || FileWatch::new(&file), FileWatch::wait);
            if !std::mem::replace(&mut told, true) {
                let way_out = "raise fs.inotify.max_user_instances and max_user_watches";
                warn!(file = %file.display(), %error, way_out, "the file cannot be watched: it is read every second");
            }
            thread::sleep(POLL);
            bell.ring(Wake::Observation);
        }
    };
    if let Err(error) = thread::Builder::new().name("file-watch".into()).spawn(work) {
        warn!(%error, "no thread to watch the file: it is read every resyncInterval only");
    }
}

//! Ctrl-C, SIGTERM and a closed terminal become an interrupt of the lab, so that the lab is taken down in order.

use std::io::{self, Write};
use std::thread;

use anyhow::Context;
use flannel_lab::Interrupt;
use tokio::signal::unix::{SignalKind, signal};

/// Listens for signals in the background: the first raises the interrupt, the second ends the program at once.
pub fn listen() -> anyhow::Result<Interrupt> {
    let interrupt = Interrupt::default();
    let raised = interrupt.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let runtime = runtime.context("cannot listen for signals")?;
    thread::spawn(move || {
        let _ = runtime.block_on(wait(&raised));
    });
    Ok(interrupt)
}

async fn wait(lab: &Interrupt) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    for told in
        ["stopping: what was made is taken down", "stopped: `flannelctl lab down --all` removes the rest"]
    {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
            _ = interrupt.recv() => {}
        }
        let _ = writeln!(io::stderr(), "\n{}: {told}", crate::program());
        if lab.is_raised() {
            std::process::exit(130);
        }
        lab.raise();
    }
    Ok(())
}

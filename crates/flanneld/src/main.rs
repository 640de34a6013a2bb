//! The node daemon: wires its threads together and turns results into exit codes.
//!
//! This thread runs the loop in blocking calls; one listens to the kernel, one to its rules, one to the subnet
//! file, one to signals; one runs the lease store and HTTP on a small async runtime. They only ever say "look again"
//! to each other.

mod assemble;
mod clock;
mod corrections;
mod culprits;
mod daemon;
mod damper;
mod fast_path;
mod file_watch;
mod firewall_backend;
mod gather;
mod http;
mod identity;
mod in_force;
mod instance;
mod ip_masq_agent;
mod logging;
mod metrics;
mod notes;
mod notify;
mod options;
mod pace;
mod planned;
mod reconcile;
mod remembered;
mod report;
mod start;
mod stop;
mod store_link;
mod throttled_file;
mod trial;
mod wake;
mod watching;

use std::io::Write;
use std::process::ExitCode;

use options::{Options, Parsed, Source};
use wake::Bell;

/// The exit codes, in one place.
mod exit {
    /// Told to stop, or asked for help.
    pub const FINE: u8 = 0;
    /// Something outside of the command line is wrong.
    pub const FAILED: u8 = 1;
    /// The command line or the environment is wrong.
    pub const USAGE: u8 = 2;
}

fn main() -> ExitCode {
    flannel_kernel::memory::use_one_pool();
    let bell = Bell::default();
    let (code, text) = match stop::on_signal(bell.clone()) {
        Ok(()) => chosen_mode(bell),
        Err(error) => (exit::FAILED, format!("flanneld cannot start: signals cannot be heard: {error}\n")),
    };
    // Nobody is left to be told of a standard error that is gone.
    let _ = std::io::stderr().write_all(text.as_bytes());
    ExitCode::from(code)
}

fn chosen_mode(bell: Bell) -> (u8, String) {
    let source = Source::of_this_process();
    match source.words.split_first() {
        Some((word, rest)) if word == ip_masq_agent::NAME => ip_masq_agent::main(rest, bell),
        _ => node_daemon(&source, &bell),
    }
}

fn node_daemon(source: &Source, bell: &Bell) -> (u8, String) {
    match options::parse(source) {
        Ok(Parsed::Help) => (exit::FINE, options::usage("flanneld")),
        Ok(Parsed::Version) => (exit::FINE, format!("{}\n", options::VERSION)),
        Ok(Parsed::Run(options)) => run(*options, bell),
        Err(faults) => (exit::USAGE, options::report("flanneld", &faults)),
    }
}

fn run(options: Options, bell: &Bell) -> (u8, String) {
    if let Err(fault) = logging::start(options.verbosity, options.log_format) {
        return (exit::USAGE, format!("flanneld cannot start: {fault}\n"));
    }
    match start::run(options, bell) {
        Ok(()) => (exit::FINE, String::new()),
        Err(error) => (exit::FAILED, format!("flanneld cannot start: {error:#}\n")),
    }
}

//! What a scenario is: a sentence about behaviour, what it needs, and a function that tries it.

use std::cell::Cell;

/// What a scenario cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// What `make test-peers` builds: the newest etcd, and Kubernetes.
    Peers,
    /// A Go flanneld, in `$GO_FLANNELD`.
    GoFlanneld,
}

/// A sentence about behaviour and how it is tried.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The module, which tells what it is about.
    pub module: &'static str,
    /// The sentence.
    pub name: &'static str,
    /// What it needs.
    pub needs: &'static [Need],
    /// Tries it; a panic is a failure.
    pub play: fn(),
}

impl Scenario {
    /// The module and the name of the function, as the command line knows it.
    pub fn path(&self) -> String {
        scenario_harness::path(self.module, self.name)
    }

    /// The module and the sentence, to be read.
    pub fn title(&self) -> String {
        scenario_harness::title(self.module, self.name)
    }
}

thread_local! {
    /// The scenario that this thread plays.
    pub(crate) static PLAYED: Cell<&'static str> = const { Cell::new("") };
}

/// Prints a figure that a scenario found, with its name: how long something took, how much it cost.
#[allow(clippy::print_stdout, reason = "figures are for the one who runs the tests")]
pub fn tell(figure: impl AsRef<str>) {
    println!("figure   {}: {}", PLAYED.get(), figure.as_ref());
}

/// Lists the scenarios of a module, each with what it needs.
#[macro_export]
macro_rules! scenarios {
    ($($needs:expr => $($name:ident),+;)+) => {
        /// The scenarios of this file.
        pub const SCENARIOS: &[$crate::Scenario] = &[$($($crate::Scenario {
            module: module_path!(),
            name: stringify!($name),
            needs: $needs,
            play: $name,
        }),+),+];
    };
}

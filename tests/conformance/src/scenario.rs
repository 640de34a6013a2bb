//! What a scenario is: a sentence about behaviour, the versions it is true for, and a function that tries it.

use serde_json::{Value, json};

use crate::{Call, Plugins, Site, version};

/// Where a scenario plays: on which plugins, in which version.
#[derive(Debug)]
pub struct Stage<'a> {
    /// The plugins under test.
    pub plugins: &'a Plugins,
    /// The version that configurations name.
    pub version: &'static str,
    /// A host of its own.
    pub site: Site,
}

impl Stage<'_> {
    /// A call of one of the plugins, as `c0ffee01` with `eth0` in `pod1`.
    pub fn call(&self, command: &str, plugin: &str, config: &Value) -> Call<'_> {
        Call::new(&self.site, &self.plugins.folder, plugin, command).config(config)
    }

    /// A configuration of this version: a network's name and type, and what is given.
    pub fn config(&self, name: &str, kind: &str, rest: Value) -> Value {
        let mut config = json!({"cniVersion": self.version, "name": name, "type": kind});
        let Value::Object(rest) = rest else { panic!("a configuration is an object") };
        config.as_object_mut().unwrap().extend(rest);
        config
    }

    /// Whether the version is that one or a later one.
    pub fn at_least(&self, oldest: &str) -> bool {
        version::at_least(self.version, oldest)
    }
}

/// A sentence about behaviour and how it is tried.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The module, which tells the plugin.
    pub module: &'static str,
    /// The sentence.
    pub name: &'static str,
    /// The plugin that must be there.
    pub plugin: &'static str,
    /// The versions it is tried in.
    pub versions: &'static [&'static str],
    /// Whether it needs what only `make test-peers` has.
    pub peers: bool,
    /// Tries it; a panic is a failure.
    pub play: fn(&Stage),
}

impl Scenario {
    /// The module and the name of the function, as `known.rs` and the command line know it.
    pub fn path(&self) -> String {
        scenario_harness::path(self.module, self.name)
    }

    /// The module and the sentence, to be read.
    pub fn title(&self) -> String {
        scenario_harness::title(self.module, self.name)
    }
}

/// Scenarios, and what is known about plugins on which they are not true.
#[derive(Debug, Default)]
pub struct Suite {
    /// In the order they are told.
    pub scenarios: Vec<Scenario>,
    /// What is not true on all plugins.
    pub known: &'static [Known],
}

/// A scenario that is not true on some plugins, and why. If it is true after all, the run fails: the table is
/// kept honest.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Which plugins.
    pub on: Others,
    /// `module::name` of the scenario.
    pub scenario: &'static str,
    /// Why it differs.
    pub why: &'static str,
}

/// On which plugins something is not true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// All of Go's.
    Go,
    /// Go's before 1.2, which do not speak CNI 1.1.0.
    OldGo,
    /// Go's since 1.2, which speak CNI 1.1.0.
    NewGo,
    /// All of Go's, but only now and then: a race, or a matter of the order of a map.
    GoSometimes,
    /// Ours: what Go's do and we do otherwise on purpose, which other scenarios assert.
    Ours,
}

impl Known {
    /// Whether it is about this scenario on these plugins.
    pub fn is_about(&self, scenario: &Scenario, plugins: &Plugins) -> bool {
        let new = plugins.speaks("host-local", "1.1.0");
        let concerned = match self.on {
            Others::Go | Others::GoSometimes => !plugins.is_ours(),
            Others::OldGo => !plugins.is_ours() && !new,
            Others::NewGo => !plugins.is_ours() && new,
            Others::Ours => plugins.is_ours(),
        };
        concerned && self.scenario == scenario.path()
    }
}

/// Lists the scenarios of a module: the plugin they are about, and the versions they are tried in.
#[macro_export]
macro_rules! scenarios {
    (peers $plugin:literal: $($versions:expr => $($name:ident),+;)+) => {
        $crate::scenarios!(@list true, $plugin, $($versions => $($name),+;)+);
    };
    ($plugin:literal: $($versions:expr => $($name:ident),+;)+) => {
        $crate::scenarios!(@list false, $plugin, $($versions => $($name),+;)+);
    };
    (@list $peers:literal, $plugin:literal, $($versions:expr => $($name:ident),+;)+) => {
        /// The scenarios of this file.
        pub const SCENARIOS: &[$crate::Scenario] = &[$($($crate::Scenario {
            module: module_path!(),
            name: stringify!($name),
            plugin: $plugin,
            versions: $versions,
            peers: $peers,
            play: $name,
        }),+),+];
    };
}

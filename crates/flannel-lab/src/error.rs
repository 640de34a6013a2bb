//! What can go wrong in a lab, with the object, the cause and the way out in words.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use flannel_cni::runtime::{LoadError, RuntimeError};

/// Why the lab could not do something.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Namespaces need root.
    #[error("a lab is made of namespaces, which only root may create: run it with sudo")]
    NotRoot,
    /// Programs that the lab runs are not installed.
    #[error("missing programs: {programs}; install them with: apt-get install {packages}")]
    MissingPrograms {
        /// The names, separated by commas.
        programs: String,
        /// The Debian packages that hold them.
        packages: String,
    },
    /// A program to be tested is not built.
    #[error("no {name} found ({looked}): build it with `cargo build -p {name}`, or name it in ${variable}")]
    NoProgram {
        /// Its name.
        name: &'static str,
        /// The variable that can name another.
        variable: &'static str,
        /// Where it was looked for.
        looked: String,
    },
    /// A name that is not made of small letters, digits and dashes.
    #[error("{name:?} is no name for a {what}: use 1 to {most} small letters, digits and dashes")]
    BadName {
        /// What was to be named.
        what: &'static str,
        /// The name.
        name: String,
        /// How long it may be.
        most: usize,
    },
    /// A shape that the address plan cannot number.
    #[error("no topology of {racks} racks and {nodes} nodes: {why}")]
    Topology {
        /// The wanted number of racks.
        racks: usize,
        /// The wanted number of nodes.
        nodes: usize,
        /// Which rule it breaks.
        why: &'static str,
    },
    /// A program that a lease store needs is not there.
    #[error("{} is no program: install one with `apt-get install {package}`, or name it in ${variable}", looked.display())]
    NoServer {
        /// What was looked for.
        looked: PathBuf,
        /// The variable that can name one.
        variable: &'static str,
        /// The Debian package that holds it.
        package: &'static str,
    },
    /// The programs of Kubernetes are not there.
    #[error("no kube-apiserver in {}: build it with `make peers`, or name its folder in $KUBE_PEERS", .0.display())]
    NoKubernetes(PathBuf),
    /// An etcd of too few or too many members.
    #[error("no etcd of {0} members: 1, 3 or 5 make sense")]
    Members(usize),
    /// The lab has another store.
    #[error("lab {lab} keeps its leases in {store}, not in {wanted}")]
    OtherStore {
        /// The lab.
        lab: String,
        /// The store that it has.
        store: &'static str,
        /// The one that was asked for.
        wanted: &'static str,
    },
    /// The name is in use.
    #[error("lab {0} is there already: take it down with `flannelctl lab down --name {0}`")]
    Exists(String),
    /// There is no such lab.
    #[error("no lab {0}: bring one up with `flannelctl lab up --name {0}`")]
    NoLab(String),
    /// The lab has no node or router of that name.
    #[error("lab {lab} has no {name}: it has {known}")]
    NoMachine {
        /// The lab.
        lab: String,
        /// The name that was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The command was run inside one of the lab's own nodes.
    #[error("this shell is inside the lab ({0}): leave it first")]
    Inside(String),
    /// The node is powered off.
    #[error("{0} is powered off: power it on with `flannelctl lab heal {0}`")]
    PoweredOff(String),
    /// The node's namespaces could not be made.
    #[error("cannot boot {name}: {why}")]
    Boot {
        /// The node or router.
        name: String,
        /// What its start script said.
        why: String,
    },
    /// A program ended with a failure.
    #[error("`{command}` failed: {why}")]
    Failed {
        /// The command line.
        command: String,
        /// What it wrote.
        why: String,
    },
    /// A file could not be read or written.
    #[error("cannot {act} {}: {source}", path.display())]
    File {
        /// What was tried.
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{}: {why}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The namespace of a node cannot be entered.
    #[error("cannot enter the network of {name}: {source}")]
    Enter {
        /// The node or router.
        name: String,
        /// What the system says.
        source: io::Error,
    },
    /// The configurations of the node's networks are wrong.
    #[error(transparent)]
    Network(#[from] LoadError),
    /// The plugins could not do it.
    #[error("cannot {act} {pod} on {node}: {source}")]
    Attach {
        /// What was tried.
        act: &'static str,
        /// The pod.
        pod: String,
        /// Its node.
        node: String,
        /// What the plugins say.
        source: Box<RuntimeError>,
    },
    /// The daemon ended by itself.
    #[error("flanneld on {node} has ended; its last words:\n{log}")]
    FlanneldEnded {
        /// The node.
        node: String,
        /// The end of its log.
        log: String,
    },
    /// The wanted damage makes no sense here.
    #[error("cannot break {node} so: {why}")]
    Unbreakable {
        /// The node.
        node: String,
        /// Why not.
        why: String,
    },
    /// No answer came.
    #[error("{from} gets no answer from {to}: {why}")]
    NoAnswer {
        /// Who asked.
        from: String,
        /// Who was asked.
        to: String,
        /// What the asking program said.
        why: String,
    },
    /// A condition did not come true in time.
    #[error("waited {limit:?} for {what}: {last}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
        /// The state at the end.
        last: String,
    },
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl LabError {
    /// Turns an I/O error into one that names the file.
    pub(crate) fn file(act: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { act, path, source }
    }
}

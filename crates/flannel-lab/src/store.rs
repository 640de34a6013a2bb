//! The lease store of a lab: which one, on which servers, and what flanneld is told of it.
//!
//! Takes a [`Store`], gives the lab's servers, flanneld's arguments, and a store that holds the lab's net-conf.

use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::etcd::Etcd;
use crate::lab::Lab;
use crate::machine::STORE;
use crate::topology::NodeSpec;
use crate::{LabError, Result, kubernetes, program};

/// The most members of an etcd that the lab starts.
const MOST_MEMBERS: usize = 5;

/// Where the nodes of a lab keep their leases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Store {
    /// In a folder that every node sees.
    #[default]
    Directory,
    /// In an etcd on servers of its own.
    Etcd {
        members: usize,
        /// The program; else what `$ETCD` names, else the one on the PATH.
        program: Option<PathBuf>,
        /// Arguments for each member, besides the lab's own; of one that is given twice, the second holds.
        arguments: Vec<String>,
    },
    /// In the nodes of a Kubernetes on a server of its own.
    Kubernetes {
        /// The folder of its programs; else what `$KUBE_PEERS` names, else the one that `make peers` fills.
        programs: Option<PathBuf>,
    },
}

impl Store {
    /// An etcd of so many members, as it is found on this machine.
    pub fn etcd(members: usize) -> Self {
        Self::Etcd { members, program: None, arguments: Vec::new() }
    }

    /// The name by which a person chooses it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Etcd { .. } => "etcd",
            Self::Kubernetes { .. } => "kubernetes",
        }
    }

    pub(crate) fn servers(&self) -> usize {
        match self {
            Self::Directory => 0,
            Self::Etcd { members, .. } => *members,
            Self::Kubernetes { .. } => 1,
        }
    }

    /// What tells a flanneld to use it, on these servers.
    pub(crate) fn flanneld_args(&self, servers: &[NodeSpec]) -> Vec<String> {
        match self {
            Self::Directory => vec!["--lease-dir".to_owned(), STORE.to_owned()],
            Self::Etcd { .. } => {
                let endpoints = servers.iter().map(Etcd::endpoint).collect::<Vec<_>>().join(",");
                vec!["--etcd-endpoints".to_owned(), endpoints]
            }
            Self::Kubernetes { .. } => kubernetes::STORE_ARGS.map(str::to_owned).to_vec(),
        }
    }

    /// Finds its programs, and refuses what cannot be, before anything is made.
    pub(crate) fn found(self) -> Result<Self> {
        match self {
            Self::Directory => Ok(self),
            Self::Etcd { members, .. } if !(1..=MOST_MEMBERS).contains(&members) => {
                Err(LabError::Members(members))
            }
            Self::Etcd { members, program, arguments } => {
                let program = Some(program::find_elsewhere("etcd", program, "ETCD", "etcd-server")?);
                Ok(Self::Etcd { members, program, arguments })
            }
            Self::Kubernetes { programs } => {
                program::check_programs(&[("curl", "curl"), ("openssl", "openssl")])?;
                Ok(Self::Kubernetes { programs: Some(kubernetes::find_programs(programs)?) })
            }
        }
    }

    /// The etcd that it runs, if it runs one: the program, and what a user adds to its arguments.
    pub(crate) fn etcd_program(&self) -> Result<(PathBuf, &[String])> {
        match self {
            Self::Etcd { program: Some(program), arguments, .. } => Ok((program.clone(), arguments)),
            Self::Kubernetes { programs: Some(folder) } if folder.join("etcd").is_file() => {
                Ok((folder.join("etcd"), &[]))
            }
            _ => Ok((program::find_elsewhere("etcd", None, "ETCD", "etcd-server")?, &[])),
        }
    }
}

impl FromStr for Store {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        match name {
            "directory" => Ok(Self::Directory),
            "etcd" => Ok(Self::etcd(1)),
            "kubernetes" => Ok(Self::Kubernetes { programs: None }),
            _ => Err("the lab knows directory, etcd, kubernetes".to_owned()),
        }
    }
}

impl Lab {
    pub(crate) fn other_store(&self, wanted: &str) -> LabError {
        let (lab, store) = (self.name(), self.store_kind().name());
        LabError::Missing(format!("lab {lab} keeps its leases in {store}, not in {wanted}"))
    }

    /// Starts the store's servers, and waits until they serve this net-conf.
    pub(crate) fn start_store(&self, net_conf: &str) -> Result<()> {
        match self.store_kind() {
            Store::Directory => {}
            Store::Etcd { .. } => self.etcd()?.start_all()?,
            Store::Kubernetes { .. } => {
                self.kubernetes()?.start_all()?;
                self.kubernetes()?.populate(net_conf)?;
            }
        }
        self.write_net_conf(net_conf)
    }

    /// Writes a new net-conf.json into the store.
    pub fn write_net_conf(&self, text: &str) -> Result<()> {
        match self.store_kind() {
            Store::Directory => program::write(self.store().join("config.json"), text),
            Store::Etcd { .. } => self.etcd()?.put(&format!("{}/config", Etcd::PREFIX), text),
            Store::Kubernetes { .. } => self.kubernetes()?.write_net_conf(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_store_is_found_by_its_name() {
        for store in [Store::Directory, Store::etcd(1), Store::Kubernetes { programs: None }] {
            assert_eq!(store.name().parse(), Ok(store));
        }
        assert_eq!("consul".parse::<Store>(), Err("the lab knows directory, etcd, kubernetes".to_owned()));
    }

    #[test]
    fn an_etcd_of_no_members_is_refused() {
        assert!(matches!(Store::etcd(0).found(), Err(LabError::Members(0))));
    }
}

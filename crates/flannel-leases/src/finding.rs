//! Which findings the troubles of a store are: each error by its variant, with the way out that its sentence ends with.

use flannel_plan::finding::{Code, Finding};

use crate::etcd::EtcdError;
use crate::kubernetes::{CallFault, KubernetesError, NoPodCidr};
use crate::rival::Rival;
use crate::{Fault, StoreError};

impl StoreError {
    /// The same to be told.
    pub fn finding(&self) -> Finding {
        let finding = Finding::new(self.finding_code(), "lease store", self);
        match self {
            Self::Rival(rival) => rival.finding(),
            Self::NoConfig(fault) => finding.about(fault.file.display()),
            error => {
                let way_out = error.way_out().trim_start_matches(": ");
                finding.with_parts(None, Some(way_out.to_owned()).filter(|text| !text.is_empty()))
            }
        }
    }

    fn finding_code(&self) -> Code {
        match self {
            Self::NoStore { .. }
            | Self::Disk { .. }
            | Self::Watch { .. }
            | Self::Vanished(_)
            | Self::Locked { .. }
            | Self::Slow { .. } => Code::StoreSilent,
            Self::NoOwner => Code::StoreUnusable,
            Self::NoConfig(_) => Code::NetConfUnusable,
            Self::NoSubnetLeft { .. } => Code::RangeExhausted,
            Self::NotHeld { .. } | Self::Occupied(_) | Self::Unwritable { .. } | Self::NoAnswer(_) => {
                Code::StoreRefuses
            }
            Self::Etcd(error) => error.finding_code(),
            Self::Kubernetes(error) => error.finding_code(),
            Self::Rival(_) => Code::Rival,
        }
    }
}

impl EtcdError {
    fn finding_code(&self) -> Code {
        match self {
            Self::NoEndpoint
            | Self::Endpoint { .. }
            | Self::TlsFile { .. }
            | Self::Tls { .. }
            | Self::HalfIdentity(_)
            | Self::Proxy(_) => Code::StoreUnusable,
            Self::Away(_) => Code::StoreSilent,
            Self::Login { .. } => Code::Forbidden,
            Self::Refused { .. } | Self::Outraced { .. } | Self::Exists(_) | Self::Malformed(_) => {
                Code::StoreRefuses
            }
        }
    }
}

impl KubernetesError {
    fn finding_code(&self) -> Code {
        match self {
            Self::Kubeconfig { .. }
            | Self::NoServer
            | Self::Url { .. }
            | Self::NoName
            | Self::OddName(_)
            | Self::Credential { .. }
            | Self::Proxy(_) => Code::StoreUnusable,
            Self::Homeless { .. } | Self::NoNode(_) => Code::NoNode,
            Self::Unreachable { .. } => Code::StoreSilent,
            Self::Call { fault, .. } => match fault {
                CallFault::Broken(_) | CallFault::Slow(_) => Code::StoreSilent,
                CallFault::Refused(401 | 403, _) => Code::Forbidden,
                CallFault::Refused(..) | CallFault::Garbled(_) => Code::StoreRefuses,
            },
            Self::NoPodCidr { cause: NoPodCidr::Exhausted(_), .. } => Code::RangeExhausted,
            Self::NoPodCidr { .. } | Self::NoFamily { .. } | Self::BadPodCidr { .. } => Code::NoAllocator,
            Self::Outside { .. } => Code::OutsideNetwork,
        }
    }
}

impl Rival {
    /// The same to be told.
    pub fn finding(&self) -> Finding {
        let (cause, remedy) = (format!("the other says {}", self.says), self.way_out.clone().into_owned());
        Finding::new(Code::Rival, &self.object, self).with_parts(Some(cause), Some(remedy))
    }
}

impl Fault {
    /// The same to be told.
    pub fn finding(&self) -> Finding {
        Finding::new(self.code, self.file.display(), self).with_parts(Some(self.reason.clone()), None)
    }
}

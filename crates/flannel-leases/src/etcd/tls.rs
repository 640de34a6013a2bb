//! Certificates and keys from files, as they are at the moment. Takes their names, gives what TLS needs.

use std::path::PathBuf;

use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::EtcdOptions;
use super::error::EtcdError;

const CA: &str = "--etcd-cafile";
const CERT: &str = "--etcd-certfile";
const KEY: &str = "--etcd-keyfile";

/// Where certificates and keys are.
pub(super) struct TlsFiles {
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
}

/// What they say.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct TlsContent {
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl TlsFiles {
    pub(super) fn of(options: &EtcdOptions) -> Result<Self, EtcdError> {
        let identity = match (options.cert_file.clone(), options.key_file.clone()) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (Some(_), None) => return Err(EtcdError::HalfIdentity(CERT)),
            (None, Some(_)) => return Err(EtcdError::HalfIdentity(KEY)),
            (None, None) => None,
        };
        Ok(Self { ca: options.ca_file.clone(), identity })
    }

    /// Whether there is a client certificate.
    pub(super) fn has_identity(&self) -> bool {
        self.identity.is_some()
    }

    /// Reads them now.
    pub(super) fn read(&self) -> Result<TlsContent, EtcdError> {
        let ca = self.ca.as_ref().map(|path| read(path, CA, "BEGIN CERTIFICATE")).transpose()?;
        let identity = match &self.identity {
            Some((cert, key)) => {
                Some((read(cert, CERT, "BEGIN CERTIFICATE")?, read(key, KEY, "PRIVATE KEY")?))
            }
            None => None,
        };
        Ok(TlsContent { ca, identity })
    }
}

fn read(path: &PathBuf, role: &'static str, sign: &str) -> Result<Vec<u8>, EtcdError> {
    let wrong = |reason: String| EtcdError::TlsFile { path: path.clone(), role, reason };
    let content =
        flannel_files::read(path, flannel_files::MOST_BY_HAND).map_err(|cause| wrong(cause.to_string()))?;
    if !String::from_utf8_lossy(&content).contains(sign) {
        return Err(wrong(format!("it has no line \"{sign}\": expected PEM")));
    }
    Ok(content)
}

impl TlsContent {
    /// The authorities that are ours, as PEM text; none if those of the system count.
    pub(super) fn authorities(&self) -> &[u8] {
        self.ca.as_deref().unwrap_or_default()
    }

    /// The settings of a connection to a host: its authority is ours, or else one of the system's.
    pub(super) fn settings(&self, host: &str) -> ClientTlsConfig {
        // An IPv6 address is in brackets in a URL, and without them in a certificate.
        let settings = ClientTlsConfig::new().domain_name(host.trim_matches(['[', ']']));
        let settings = match &self.ca {
            Some(ca) => settings.ca_certificate(Certificate::from_pem(ca)),
            None => settings.with_native_roots(),
        };
        match &self.identity {
            Some((cert, key)) => settings.identity(Identity::from_pem(cert, key)),
            None => settings,
        }
    }
}

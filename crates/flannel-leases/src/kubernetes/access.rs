//! Where the API server is, and how this node shows who it is: from flags, a kubeconfig, or the pod's own files.

use std::fmt;
use std::path::{Path, PathBuf};

use flannel_plan::secret::Secret;
use http::Uri;
use http::uri::Scheme;

use super::error::KubernetesError;
use super::kubeconfig;
use crate::proxy::{Proxies, Proxy};

const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Where the API server is, and how this node shows who it is.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub server: Server,
    /// The name in the server's certificate, if it is not the host's.
    pub server_name: Option<String>,
    pub trust: Trust,
    pub certificate: Option<Certificate>,
    pub credentials: Credentials,
    /// The proxy that leads there, if one does.
    pub proxy: Option<Proxy>,
}

/// The address of an API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub tls: bool,
    pub host: String,
    pub port: u16,
    /// What comes before every path, without a slash at its end.
    pub path: String,
}

/// Which servers are believed to be the right one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Those with a certificate of an authority that this host trusts.
    Host,
    /// Those with a certificate of this authority.
    Authority(Material),
    /// All of them.
    Anybody,
}

/// The certificate of a client, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certificate {
    pub chain: Material,
    pub key: Material,
}

/// PEM text, or a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Material {
    /// In a file, which may change at any time.
    File(PathBuf),
    /// In the kubeconfig itself.
    Inline(Secret),
}

/// What every request carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Credentials {
    Nothing,
    Token(Material),
    Password { user: String, password: Secret },
}

impl Material {
    /// What it says now.
    pub(super) fn read(&self, what: &'static str) -> Result<String, KubernetesError> {
        match self {
            Self::Inline(text) => Ok(text.reveal().to_owned()),
            Self::File(path) => flannel_files::read_text(path, flannel_files::MOST_BY_HAND)
                .map_err(|cause| self.wrong(what, cause)),
        }
    }

    /// Why it cannot be used.
    pub(super) fn wrong(&self, what: &'static str, reason: impl ToString) -> KubernetesError {
        let place = match self {
            Self::File(path) => path.display().to_string(),
            Self::Inline(_) => "in the kubeconfig".to_owned(),
        };
        KubernetesError::Credential { what, place, reason: reason.to_string() }
    }
}

impl Access {
    /// As Go does: the flags if there are any, else the host and the port that Kubernetes tells every pod.
    pub(super) fn find(
        kubeconfig: Option<&Path>,
        api_url: Option<&str>,
        pod: Option<(&str, &str)>,
    ) -> Result<Self, KubernetesError> {
        match (kubeconfig, api_url, pod) {
            (Some(path), url, _) => kubeconfig::read(path, url),
            (None, Some(url), _) => Ok(Self::anonymous(url.parse()?)),
            (None, None, Some((host, port))) => Self::of_pod(host, port, Path::new(SERVICE_ACCOUNT)),
            (None, None, None) => Err(KubernetesError::NoServer),
        }
    }

    fn anonymous(server: Server) -> Self {
        let (trust, credentials) = (Trust::Host, Credentials::Nothing);
        Self { server, server_name: None, trust, certificate: None, credentials, proxy: None }
    }

    fn of_pod(host: &str, port: &str, files: &Path) -> Result<Self, KubernetesError> {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        Ok(Self {
            trust: Trust::Authority(Material::File(files.join("ca.crt"))),
            credentials: Credentials::Token(Material::File(files.join("token"))),
            ..Self::anonymous(format!("https://{host}:{port}").parse()?)
        })
    }

    /// The same by way of the proxy that the environment names for the server, unless the kubeconfig names one.
    pub(super) fn through(self, proxies: &Proxies) -> Result<Self, KubernetesError> {
        let Server { tls, host, port, .. } = &self.server;
        let proxy = match self.proxy {
            Some(proxy) => Some(proxy),
            None => proxies.way_to(*tls, host, *port)?,
        };
        Ok(Self { proxy, ..self })
    }
}

impl std::str::FromStr for Server {
    type Err = KubernetesError;

    /// Takes what client-go takes: without a scheme it is plain HTTP.
    fn from_str(text: &str) -> Result<Self, KubernetesError> {
        // A password may stand before the `@`.
        let shown = text.rsplit('@').next().unwrap_or_default();
        let wrong = |reason: &str| KubernetesError::Url { url: shown.to_owned(), reason: reason.to_owned() };
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = whole.parse().map_err(|cause: http::uri::InvalidUri| wrong(&cause.to_string()))?;
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(wrong("it is neither http nor https")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("a user or password in it is not used"));
        }
        let (host, port) = authority.as_str().split_at(authority.host().len());
        if host.is_empty() || authority.port().is_none() && !["", ":"].contains(&port) {
            return Err(wrong("it names no host, or no port that can be"));
        }
        Ok(Self {
            tls,
            host: host.trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            path: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

impl Server {
    /// Host and port, as in a URL.
    pub(super) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> String {
        url.parse::<Server>().map_or_else(|wrong| wrong.to_string(), |server| server.to_string())
    }

    #[test]
    fn addresses_are_taken_as_client_go_takes_them() {
        for (given, taken) in [
            ("https://10.0.0.1", "https://10.0.0.1:443"),
            ("http://localhost:8080/", "http://localhost:8080"),
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("https://[fd00::1]/k8s/clusters/c-1/", "https://[fd00::1]:443/k8s/clusters/c-1"),
        ] {
            assert_eq!(read(given), taken);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_without_showing_a_password() {
        for url in
            ["", "ftp://h", "https://", "https://me:planted@h", ":h//path", "https://:443", "http://h:x"]
        {
            let wrong = read(url);
            assert!(
                wrong.contains("is no address of an API server") && !wrong.contains("planted"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_pod_uses_what_kubernetes_gives_it() {
        let access = Access::of_pod("fd00:96::1", "443", Path::new("/files")).unwrap();
        assert_eq!(access.server.to_string(), "https://[fd00:96::1]:443");
        assert_eq!(access.trust, Trust::Authority(Material::File("/files/ca.crt".into())));
        assert_eq!(access.credentials, Credentials::Token(Material::File("/files/token".into())));
        assert!(matches!(Access::find(None, None, None), Err(KubernetesError::NoServer)));
        let alone = Access::find(None, Some("http://h:1"), Some(("10.96.0.1", "443")));
        assert_eq!(alone.unwrap().server.to_string(), "http://h:1");
    }
}

//! TLS towards the API server. Files are read for every connection, so that new certificates are used at once.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::access::{Access, Certificate, Material, Trust};
use super::error::KubernetesError;

/// What a connection needs to be believed on both ends.
pub(super) fn config(access: &Access) -> Result<ClientConfig, KubernetesError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|cause| wrong("the TLS library", "of this program".to_owned(), cause))?;
    let builder = match roots(&access.trust)? {
        Some(roots) => builder.with_root_certificates(roots),
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider))),
    };
    match &access.certificate {
        None => Ok(builder.with_no_client_auth()),
        Some(certificate) => {
            let place = place(&certificate.chain);
            builder
                .with_client_auth_cert(chain("client certificate", &certificate.chain)?, key(certificate)?)
                .map_err(|cause| wrong("client certificate", place, cause))
        }
    }
}

/// The authority that the operator names for a server, as PEM text; nothing if there is none.
pub(super) fn authorities(access: &Access) -> String {
    match &access.trust {
        // What cannot be read makes every connection fail, and is told then.
        Trust::Authority(material) if access.server.tls => pem("CA", material).unwrap_or_default(),
        _ => String::new(),
    }
}

/// Whose signature makes a server's certificate good; none if nobody's is asked for.
fn roots(trust: &Trust) -> Result<Option<RootCertStore>, KubernetesError> {
    let mut roots = RootCertStore::empty();
    match trust {
        Trust::Anybody => return Ok(None),
        Trust::Host => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Trust::Authority(material) => {
            for certificate in chain("CA", material)? {
                roots.add(certificate).map_err(|cause| wrong("CA", place(material), cause))?;
            }
        }
    }
    Ok(Some(roots))
}

fn chain(what: &'static str, material: &Material) -> Result<Vec<CertificateDer<'static>>, KubernetesError> {
    let pem = pem(what, material)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match read {
        Ok(chain) if chain.is_empty() => Err(wrong(what, place(material), "there is no certificate in it")),
        Ok(chain) => Ok(chain),
        Err(cause) => Err(wrong(what, place(material), cause)),
    }
}

fn key(certificate: &Certificate) -> Result<PrivateKeyDer<'static>, KubernetesError> {
    let pem = pem("client key", &certificate.key)?;
    // The reader's own message might quote a line of the key.
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| {
        wrong("client key", place(&certificate.key), "there is no private key in it that we know")
    })
}

fn pem(what: &'static str, material: &Material) -> Result<String, KubernetesError> {
    match material {
        Material::Inline(pem) => Ok(pem.reveal().to_owned()),
        Material::File(path) => flannel_files::read_text(path, flannel_files::MOST_BY_HAND)
            .map_err(|cause| wrong(what, place(material), cause)),
    }
}

fn place(material: &Material) -> String {
    match material {
        Material::File(path) => path.display().to_string(),
        Material::Inline(_) => "in the kubeconfig".to_owned(),
    }
}

fn wrong(what: &'static str, place: String, reason: impl ToString) -> KubernetesError {
    KubernetesError::Credential { what, place, reason: reason.to_string() }
}

/// Believes every server: `insecure-skip-tls-verify` in a kubeconfig.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

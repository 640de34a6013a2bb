//! What a server is known by before it has answered, so that what one said is never taken for another's.

use std::collections::BTreeSet;

use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};

/// Where a server is, and whose signature makes it believed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its addresses, of which each is as good as the others.
    addresses: BTreeSet<String>,
    /// The fingerprints of the authorities that sign its certificates; none if those of the host do.
    authorities: BTreeSet<String>,
}

impl Server {
    /// A server at these addresses; the authorities are PEM text.
    pub(crate) fn new(addresses: impl IntoIterator<Item = String>, authorities: &[u8]) -> Self {
        let certificates = CertificateDer::pem_slice_iter(authorities).flatten();
        let fingerprint = |certificate: CertificateDer<'_>| {
            let digest = digest(&SHA256, &certificate);
            digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
        };
        Self {
            addresses: addresses.into_iter().collect(),
            authorities: certificates.map(fingerprint).collect(),
        }
    }

    /// Whether it may be the same: both are known at some address and by some authority alike. Members of a cluster
    /// come and go, and a new authority is trusted beside the old one before it takes its place.
    pub fn may_be(&self, other: &Self) -> bool {
        let meet = |a: &BTreeSet<String>, b: &BTreeSet<String>| a == b || !a.is_disjoint(b);
        meet(&self.addresses, &other.addresses) && meet(&self.authorities, &other.authorities)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(name: &str) -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        rcgen::CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap().pem()
    }

    fn server(addresses: &[&str], authorities: &str) -> Server {
        Server::new(addresses.iter().map(|address| (*address).to_owned()), authorities.as_bytes())
    }

    #[test]
    fn a_server_is_the_same_while_some_address_and_some_authority_stay() {
        let (old, new) = (authority("old"), authority("new"));
        let before = server(&["a", "b"], &old);
        assert!(before.may_be(&server(&["b", "c"], &format!("{old}{new}"))));
        assert!(!before.may_be(&server(&["c"], &old)), "another address");
        assert!(!before.may_be(&server(&["a", "b"], &new)), "another authority: a cluster made anew");
        assert!(!before.may_be(&server(&["a", "b"], "")), "that of the host");
        assert!(server(&["a"], "").may_be(&server(&["a"], "")));
        assert!(Server::default().may_be(&Server::default()), "a folder has none");
    }
}

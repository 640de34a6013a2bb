//! Certificates for tests, made by openssl: good ones, and ones that have expired.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An authority with a folder of its own, which goes with it.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
}

/// How long a certificate is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// A month.
    Good,
    /// It ended yesterday.
    Expired,
}

const KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

impl Authority {
    /// A new one; servers and nodes of a lab see its folder where it is.
    pub fn new() -> Self {
        let folder = std::env::temp_dir().join(flannel_lab::unique_name("certificates"));
        fs::create_dir_all(&folder).unwrap();
        let authority = Self { folder };
        let files = ["-keyout", "ca.key", "-out", "ca.crt", "-days", "30", "-subj", "/CN=store-tests"];
        authority.openssl(["req", "-x509"].into_iter().chain(KEY).chain(files));
        authority
    }

    /// The path of one of its files: `ca.crt`, or `NAME.crt` and `NAME.key`.
    pub fn path(&self, file: &str) -> String {
        self.folder.join(file).display().to_string()
    }

    /// Makes `NAME.crt` and `NAME.key`, or replaces them at once, for a server at an address or for a client.
    pub fn issue(&self, name: &str, address: &str, life: Life) {
        let (request, subject) = (format!("{name}.csr"), format!("/CN={name}"));
        let (key, draft) = (format!("{name}.new.key"), format!("{name}.new.crt"));
        let words = ["-keyout", &key, "-out", &request, "-subj", &subject];
        self.openssl(["req"].into_iter().chain(KEY).chain(words));
        let uses = format!("subjectAltName=IP:{address}\nextendedKeyUsage=serverAuth,clientAuth\n");
        fs::write(self.folder.join("extensions"), uses).unwrap();
        let days = if life == Life::Good { "30" } else { "-1" };
        let signed = ["-req", "-in", &request, "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"];
        let rest = ["-days", days, "-extfile", "extensions", "-out", &draft];
        self.openssl(["x509"].into_iter().chain(signed).chain(rest));
        for (draft, kind) in [(&key, "key"), (&draft, "crt")] {
            fs::rename(self.folder.join(draft), self.folder.join(format!("{name}.{kind}"))).unwrap();
        }
    }

    fn openssl<'a>(&self, words: impl IntoIterator<Item = &'a str>) {
        let output = Command::new("openssl").args(words).current_dir(&self.folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

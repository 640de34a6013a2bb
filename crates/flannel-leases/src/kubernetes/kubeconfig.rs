//! Kubeconfig files: YAML (or JSON, which is YAML), of which the current context's cluster and user count.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flannel_plan::secret::Secret;
use yaml_rust2::Yaml;

use super::access::{Access, Certificate, Credentials, Material, Server, Trust};
use super::error::KubernetesError;
use crate::proxy::Proxy;
use crate::yaml::{self, Aliases};

/// Reads a kubeconfig; a URL that is given beside it stands for that of its cluster. Paths in it begin at its own
/// folder.
pub(super) fn read(path: &Path, url: Option<&str>) -> Result<Access, KubernetesError> {
    let wrong = |reason: String| KubernetesError::Kubeconfig { path: path.to_owned(), reason };
    let text = flannel_files::read_text(path, flannel_files::MOST_BY_HAND)
        .map_err(|cause| wrong(cause.to_string()))?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    parse(&text, folder, url.map(str::parse).transpose()?).map_err(wrong)
}

pub(super) fn parse(text: &str, folder: &Path, url: Option<Server>) -> Result<Access, String> {
    // The reader's own message quotes nothing of the text, which holds secrets.
    let documents = yaml::load(text, Aliases::Taken)?;
    let document = documents.first().ok_or("it is empty")?;
    let context = current(document)?;
    let cluster = text_of(context, "cluster")?.unwrap_or_default();
    let cluster = match named(document, "clusters", "cluster", cluster) {
        Err(_) if url.is_some() => &Yaml::BadValue,
        found => found?,
    };
    let user = match text_of(context, "user")? {
        Some(name) => named(document, "users", "user", name)?,
        None => &Yaml::BadValue,
    };
    Ok(Access {
        server: match url {
            Some(url) => url,
            None => server(cluster)?,
        },
        server_name: text_of(cluster, "tls-server-name")?.map(str::to_owned),
        trust: trust(cluster, folder)?,
        certificate: certificate(user, folder)?,
        credentials: credentials(user, folder)?,
        proxy: proxy(cluster)?,
    })
}

fn proxy(cluster: &Yaml) -> Result<Option<Proxy>, String> {
    let named = text_of(cluster, "proxy-url")?.map(str::parse).transpose();
    named.map_err(|reason: &str| format!("its proxy-url cannot be used: {reason}: expected http://HOST:PORT"))
}

fn server(cluster: &Yaml) -> Result<Server, String> {
    let server = text_of(cluster, "server")?.ok_or("its cluster has no `server`")?;
    server.parse().map_err(|wrong: KubernetesError| wrong.to_string())
}

fn current(document: &Yaml) -> Result<&Yaml, String> {
    let name = text_of(document, "current-context")?
        .ok_or("it has no current-context: choose one with `kubectl config use-context`")?;
    named(document, "contexts", "context", name)
}

/// The entry of that name in one of the lists of a kubeconfig.
fn named<'a>(document: &'a Yaml, list: &str, inside: &str, name: &str) -> Result<&'a Yaml, String> {
    let entries = document[list].as_vec().map(Vec::as_slice).unwrap_or_default();
    entries
        .iter()
        .find(|entry| text_of(entry, "name") == Ok(Some(name)))
        .map(|entry| &entry[inside])
        .ok_or_else(|| format!("it has no entry {name:?} in {list}"))
}

/// The text of a field, if it has any. A number is none, as for kubectl: it may have lost zeros by being read as one.
fn text_of<'a>(yaml: &'a Yaml, key: &str) -> Result<Option<&'a str>, String> {
    match &yaml[key] {
        Yaml::BadValue | Yaml::Null => Ok(None),
        Yaml::String(text) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        _ => Err(format!("{key} is no text: put it in quotes")),
    }
}

/// PEM text, inside or in a file; what is inside counts where both are given.
fn material(yaml: &Yaml, key: &str, folder: &Path) -> Result<Option<Material>, String> {
    let inline = format!("{key}-data");
    if let Some(encoded) = text_of(yaml, &inline)? {
        let decoded = STANDARD.decode(encoded.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let pem = decoded.ok_or_else(|| format!("{inline} is not PEM in base64"))?;
        return Ok(Some(Material::Inline(Secret::new(pem))));
    }
    Ok(text_of(yaml, key)?.map(|path| Material::File(folder.join(path))))
}

fn trust(cluster: &Yaml, folder: &Path) -> Result<Trust, String> {
    if cluster["insecure-skip-tls-verify"].as_bool() == Some(true) {
        return Ok(Trust::Anybody);
    }
    Ok(material(cluster, "certificate-authority", folder)?.map_or(Trust::Host, Trust::Authority))
}

fn certificate(user: &Yaml, folder: &Path) -> Result<Option<Certificate>, String> {
    match (material(user, "client-certificate", folder)?, material(user, "client-key", folder)?) {
        (Some(chain), Some(key)) => Ok(Some(Certificate { chain, key })),
        (None, None) => Ok(None),
        (Some(_), None) => Err("its user has a client-certificate but no client-key".to_owned()),
        (None, Some(_)) => Err("its user has a client-key but no client-certificate".to_owned()),
    }
}

fn credentials(user: &Yaml, folder: &Path) -> Result<Credentials, String> {
    for program in ["exec", "auth-provider"] {
        if !user[program].is_badvalue() && !user[program].is_null() {
            return Err(format!(
                "its user is known by a program ({program}), which flannel does not run: use a token, a token \
                 file or a client certificate, such as those of a service account"
            ));
        }
    }
    if let Some(path) = text_of(user, "tokenFile")? {
        return Ok(Credentials::Token(Material::File(folder.join(path))));
    }
    if let Some(token) = text_of(user, "token")? {
        return Ok(Credentials::Token(Material::Inline(Secret::new(token))));
    }
    match (text_of(user, "username")?, text_of(user, "password")?) {
        // As in Go, a user may have no password.
        (Some(name), password) => Ok(Credentials::Password {
            user: name.to_owned(),
            password: Secret::new(password.unwrap_or_default()),
        }),
        (None, Some(_)) => Err("its user has a password but no username".to_owned()),
        (None, None) => Ok(Credentials::Nothing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLDER: &str = "/etc/cluster";

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: here\npreferences: {{}}\n\
             contexts:\n- context: {{cluster: c, user: u}}\n  name: here\n- {{name: there, context: {{}}}}\n\
             clusters:\n- name: other\n  cluster: {{server: 'https://192.0.2.1'}}\n- cluster:\n    {cluster}\n  name: c\n\
             users:\n- name: u\n  user:\n    {user}\n"
        )
    }

    fn read(cluster: &str, user: &str) -> Result<Access, String> {
        parse(&kubeconfig(cluster, user), Path::new(FOLDER), None)
    }

    fn file(name: &str) -> Material {
        Material::File(Path::new(FOLDER).join(name))
    }

    const SERVER: &str = "server: https://10.0.0.1:6443";

    #[test]
    fn the_cluster_and_the_user_of_the_current_context_are_taken() {
        let access =
            read(&format!("{SERVER}\n    certificate-authority: pki/ca.crt"), "tokenFile: token").unwrap();
        assert_eq!(access.server.to_string(), "https://10.0.0.1:6443");
        assert_eq!(access.trust, Trust::Authority(file("pki/ca.crt")));
        assert_eq!(access.credentials, Credentials::Token(file("token")));
        let access = read(SERVER, "client-certificate: a.crt\n    client-key: /b.key").unwrap();
        assert_eq!(access.trust, Trust::Host);
        let key = Material::File("/b.key".into());
        assert_eq!(access.certificate, Some(Certificate { chain: file("a.crt"), key }));
        assert_eq!(access.credentials, Credentials::Nothing);
        let access = read(&format!("{SERVER}\n    insecure-skip-tls-verify: true"), "token: abc").unwrap();
        assert_eq!(access.trust, Trust::Anybody);
        assert_eq!(access.credentials, Credentials::Token(Material::Inline(Secret::new("abc"))));
    }

    #[test]
    fn what_stands_inside_counts_before_a_file() {
        let cluster = format!("{SERVER}\n    certificate-authority: x\n    certificate-authority-data: UEVN");
        let access = read(&cluster, "token: t").unwrap();
        assert_eq!(access.trust, Trust::Authority(Material::Inline(Secret::new("PEM"))));
        let wrong = read(&format!("{SERVER}\n    certificate-authority-data: '%'"), "token: t").unwrap_err();
        assert_eq!(wrong, "certificate-authority-data is not PEM in base64");
    }

    #[test]
    fn what_shows_who_we_are_is_used_or_an_error_and_never_nothing() {
        for field in ["token: 0123456789", "token: 1e5", "token: true", "tokenFile: 7", "username: 42"] {
            let key = field.split(':').next().unwrap();
            assert_eq!(read(SERVER, field).unwrap_err(), format!("{key} is no text: put it in quotes"));
        }
        let wrong = read(SERVER, "username: me\n    password: 0042").unwrap_err();
        assert_eq!(wrong, "password is no text: put it in quotes");
        assert!(read(SERVER, "password: alone").unwrap_err().contains("no username"));
        let user = Credentials::Password { user: "me".to_owned(), password: Secret::new("") };
        assert_eq!(read(SERVER, "username: me").unwrap().credentials, user);
        assert_eq!(
            read(SERVER, "token: '0123'").unwrap().credentials,
            Credentials::Token(Material::Inline(Secret::new("0123")))
        );
        assert_eq!(read(SERVER, "token: null").unwrap().credentials, Credentials::Nothing);
    }

    #[test]
    fn json_is_taken_and_so_is_an_address_in_place_of_the_files() {
        let json = r#"{"current-context":"a","contexts":[{"name":"a","context":{"cluster":"b","user":"c"}}],
            "clusters":[{"name":"b","cluster":{"server":"https://h:1/base/","tls-server-name":"kubernetes"}}],
            "users":[{"name":"c","user":{"username":"me","password":"planted"}}]}"#;
        let access = parse(json, Path::new(FOLDER), None).unwrap();
        assert_eq!((access.server.port, access.server.path.as_str()), (1, "/base"));
        assert_eq!(access.server_name.as_deref(), Some("kubernetes"));
        assert!(!format!("{access:?}").contains("planted"), "{access:?}");
        let url = "https://[fd00::1]:6443".parse().unwrap();
        assert_eq!(
            parse(json, Path::new(FOLDER), Some(url)).unwrap().server.to_string(),
            "https://[fd00::1]:6443"
        );
    }

    #[test]
    fn what_cannot_be_used_is_refused_and_the_way_out_is_named() {
        let wrong = |cluster: &str, user: &str| read(cluster, user).unwrap_err();
        assert!(wrong(SERVER, "exec: {command: aws}").contains("use a token"));
        assert!(wrong(SERVER, "auth-provider: {name: gcp}").contains("auth-provider"));
        assert!(wrong(SERVER, "client-certificate: a").contains("no client-key"));
        assert!(wrong("certificate-authority: a", "token: t").contains("no `server`"));
        assert!(wrong(&format!("{SERVER}\n    proxy-url: socks5://p"), "token: t").contains("its proxy-url"));
        assert!(wrong("server: ftp://h", "token: t").contains("neither http nor https"));
        let parsed = |text: &str| parse(text, Path::new(FOLDER), None).unwrap_err();
        assert_eq!(parsed(""), "it is empty");
        assert!(parsed("a: b").contains("current-context"));
        assert!(parsed("current-context: x").contains("no entry \"x\" in contexts"));
        let secret = parsed("token: planted-secret\n  - : [\n");
        assert!(secret.starts_with("it is not YAML") && !secret.contains("planted"), "{secret}");
    }
}

//! What flanneld wrote for the plugin, and, when it did not, why not: in flanneld's own words.

use std::io::ErrorKind;

use flannel_files::{MOST_BY_HAND, MOST_BY_PROGRAM};
use flannel_plan::report::report_path;
use flannel_plan::subnet_env::SubnetEnv;
use ipnet::IpNet;
use serde::Deserialize;

use crate::error::{CniError, code, finding};
use crate::sandbox::words;

/// The lists of networks in the file.
const NETS: [&str; 4] = ["FLANNEL_NETWORK", "FLANNEL_SUBNET", "FLANNEL_IPV6_NETWORK", "FLANNEL_IPV6_SUBNET"];

/// Reads subnet.env. A file that is not there yet is worth another try; one that is wrong is not.
pub(super) fn load(path: &str) -> Result<SubnetEnv, CniError> {
    let text = match flannel_files::read(path, MOST_BY_HAND) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => {
            let is_missing = error.kind() == ErrorKind::NotFound;
            let code = if is_missing { code::TRY_AGAIN_LATER } else { code::INTERNAL };
            let errno = rustix::io::Errno::from_io_error(&error);
            let why = errno.map_or_else(|| error.to_string(), words);
            return Err(failure(code, path, &format!("open {path}: {why}")));
        }
    };
    parse(&text, path).map_err(|why| failure(code::INTERNAL, path, &why))
}

fn parse(text: &str, path: &str) -> Result<SubnetEnv, String> {
    // A family with a subnet that cannot be read would silently be left out of the pods.
    if let Some(wrong) = wrong_net(text) {
        return Err(format!("{path}: invalid CIDR address: {wrong}"));
    }
    SubnetEnv::parse(text).map_err(|error| format!("{path} is missing {}", error.missing.join(", ")))
}

/// The first value in a list of networks that is none.
fn wrong_net(text: &str) -> Option<&str> {
    let is_list = |key: &str| NETS.contains(&key.trim().trim_start_matches("export").trim());
    let lists = text.lines().filter_map(|line| line.split_once('=')).filter(|(key, _)| is_list(key));
    let items = lists.flat_map(|(_, value)| value.split('#').next().unwrap_or_default().split(','));
    let quotes = |c: char| c.is_whitespace() || c == '"' || c == '\'';
    items
        .map(|item| item.trim_matches(quotes))
        .find(|item| !item.is_empty() && item.parse::<IpNet>().is_err())
}

/// Operators look for this sentence; what flanneld says stands behind it.
fn failure(code: u32, path: &str, why: &str) -> CniError {
    let text =
        format!("failed to load flannel 'subnet.env' file: {why}. Check the flannel pod log for this node.");
    CniError::new(code, text).details(reasons(path)).found(finding::NOT_READY)
}

/// The part of flanneld's report that we need.
#[derive(Deserialize)]
struct Report {
    reasons: Vec<String>,
}

/// Why the node is not ready, from flanneld's report beside the file.
fn reasons(path: &str) -> String {
    let report = report_path(path);
    match flannel_files::read(&report, MOST_BY_PROGRAM).map(|bytes| serde_json::from_slice::<Report>(&bytes))
    {
        Ok(Ok(Report { reasons })) if !reasons.is_empty() => format!("flanneld says: {}", reasons.join("; ")),
        Ok(Ok(_)) => format!("flanneld gives no reason in {report}"),
        Err(error) if error.kind() != ErrorKind::NotFound => {
            format!("flanneld's report {report} cannot be read: {error}")
        }
        Ok(Err(_)) => format!("flanneld's report {report} cannot be read"),
        Err(_) => format!("there is no report of flanneld in {report}: is flanneld running on this node?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const GOOD: &str = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";

    fn told(text: &str) -> String {
        parse(text, "FILE").unwrap_err()
    }

    #[test]
    fn what_is_missing_is_told_in_the_words_of_go() {
        let all = "FILE is missing FLANNEL_NETWORK, FLANNEL_IPV6_NETWORK, FLANNEL_SUBNET, \
                   FLANNEL_IPV6_SUBNET, FLANNEL_MTU, FLANNEL_IPMASQ";
        assert_eq!(told(""), all);
        assert_eq!(told("# nothing\n\nOTHER=1\n"), all);
        assert_eq!(told(&GOOD.replace("FLANNEL_MTU=1450\n", "")), "FILE is missing FLANNEL_MTU");
        assert_eq!(told(&GOOD.replace("FLANNEL_MTU=1450", "FLANNEL_MTU")), "FILE is missing FLANNEL_MTU");
        assert_eq!(told(&GOOD.replace("1450", "many")), "FILE is missing FLANNEL_MTU");
        let subnets = "FILE is missing FLANNEL_SUBNET, FLANNEL_IPV6_SUBNET";
        assert_eq!(told(&GOOD.replace("SUBNET", "OTHER")), subnets);
    }

    #[test]
    fn a_network_that_is_none_is_told_also_if_the_other_family_has_one() {
        let v6 = "FLANNEL_IPV6_NETWORK=fd00::/48\nFLANNEL_IPV6_SUBNET=fd00:0:0:3::1/64\n";
        let wrong = |from: &str, to: &str| told(&format!("{}{v6}", GOOD.replace(from, to)));
        assert_eq!(wrong("10.244.3.1/24", "10.244.3.1"), "FILE: invalid CIDR address: 10.244.3.1");
        assert_eq!(wrong("10.244.0.0/16", "10.244.0.0/16,x/8"), "FILE: invalid CIDR address: x/8");
    }

    #[test]
    fn what_a_person_writes_is_read_too() {
        let odd = format!("\u{feff}# ours\r\nexport FLANNEL_SUBNET=\"10.244.3.1/24\"\r\n{GOOD}")
            .replace('\n', "\r\n");
        assert_eq!(parse(&odd, "FILE"), parse(GOOD, "FILE"));
        let masked = parse(GOOD, "FILE").unwrap();
        assert_eq!(masked.subnets.v4, "10.244.3.0/24".parse().ok());
        assert_eq!((masked.mtu, masked.ip_masq), (1450, true));
    }

    #[test]
    fn what_is_no_file_is_named_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("subnet.env").to_str().unwrap().to_owned();
        let pipe = |path: &str| {
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
        };
        pipe(&path);
        pipe(&report_path(&path));
        let error = load(&path).unwrap_err();
        let text = format!("open {path}: it is a pipe, not a regular file");
        assert!(error.code == code::INTERNAL && error.msg.contains(&text), "{error:?}");
        assert!(error.details.contains("cannot be read"), "{error:?}");
    }

    #[test]
    fn a_missing_file_is_worth_another_try_and_tells_what_flanneld_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("subnet.env").to_str().unwrap().to_owned();
        let report = folder.path().join("state.json").to_str().unwrap().to_owned();
        let text = format!(
            "failed to load flannel 'subnet.env' file: open {path}: no such file or directory. \
             Check the flannel pod log for this node."
        );
        for (content, details) in [
            (None, format!("there is no report of flanneld in {report}: is flanneld running on this node?")),
            (Some("{"), format!("flanneld's report {report} cannot be read")),
            (Some(r#"{"reasons":7}"#), format!("flanneld's report {report} cannot be read")),
            (Some(r#"{"reasons":[]}"#), format!("flanneld gives no reason in {report}")),
            (
                Some(r#"{"x":1,"reasons":["no podCIDR","no peer"]}"#),
                "flanneld says: no podCIDR; no peer".into(),
            ),
        ] {
            if let Some(content) = content {
                fs::write(&report, content).unwrap();
            }
            let expected =
                CniError::new(code::TRY_AGAIN_LATER, text.clone()).details(details).found(finding::NOT_READY);
            assert_eq!(load(&path), Err(expected));
        }
        fs::write(&path, "FLANNEL_MTU=1450").unwrap();
        assert_eq!(load(&path).unwrap_err().code, code::INTERNAL);
        fs::write(&path, GOOD).unwrap();
        assert_eq!(load(&path).map_err(|error| error.msg), parse(GOOD, "FILE"));
    }
}

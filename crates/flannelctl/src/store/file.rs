//! What a store holds, as a JSON file: the net-conf as it was written, and every lease.

use anyhow::{Context, bail};
use flannel_plan::lease::Lease;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// A file of another format is not read.
const FORMAT: u32 = 1;

/// Everything that a store holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// The net-conf as it is written there; none if there is none.
    pub config: Option<String>,
    /// All leases that can be read.
    pub leases: Vec<Held>,
    /// What cannot be read, in words.
    pub faults: Vec<String>,
}

/// A lease, and whether it is for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    #[serde(flatten)]
    pub lease: Lease,
    /// Whether etcd keeps it without a time to live.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reserved: bool,
}

impl<'de> Deserialize<'de> for Held {
    // In two readings: a lease holds raw JSON, which cannot be had from inside a flattened struct.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Reservation {
            #[serde(default)]
            reserved: bool,
        }
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let lease = serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
        let Reservation { reserved } = serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
        Ok(Self { lease, reserved })
    }
}

#[derive(Serialize, Deserialize)]
struct File {
    format: u32,
    config: Option<Box<RawValue>>,
    leases: Vec<Held>,
}

impl Holdings {
    /// The text of an export.
    pub fn to_json(&self) -> anyhow::Result<String> {
        let raw = |text: &String| RawValue::from_string(text.trim().to_owned());
        let config = self.config.as_ref().map(raw).transpose().context("the net-conf is no JSON")?;
        Ok(serde_json::to_string_pretty(&File { format: FORMAT, config, leases: self.leases.clone() })?)
    }

    /// Reads an export.
    pub fn from_json(text: &str) -> anyhow::Result<Self> {
        let file: File = serde_json::from_str(text)?;
        if file.format != FORMAT {
            bail!(
                "it has format {}, and this flannelctl reads {FORMAT}: use the one that wrote it",
                file.format
            );
        }
        let config = file.config.map(|config| config.get().to_owned());
        Ok(Self { config, leases: file.leases, faults: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use flannel_plan::lease::Announcement;

    use super::*;

    fn held(key: &str, value: &str) -> Held {
        let announcement = Announcement::from_etcd(key, value).unwrap();
        let subnets = flannel_plan::lease::subnets_from_key(key).unwrap();
        Held { lease: Lease { owner: "worker1".into(), subnets, announcement, since: 7 }, reserved: false }
    }

    #[test]
    fn an_export_is_read_back_to_the_byte() {
        let leases = vec![
            held(
                "10.244.10.0-24&fd00:244:0:29::-64",
                r#"{"PublicIP":"30.0.0.23","PublicIPv6":"fd00:30::23","BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"72:0f:7a:19:e7:3a"},"BackendV6Data":{"VNI":1,"VtepMAC":"92:e2:f7:ce:46:92"}}"#,
            ),
            Held {
                reserved: true,
                ..held("10.244.27.0-24", r#"{"PublicIP":"10.0.0.22","PublicIPv6":null}"#)
            },
        ];
        let config =
            Some("{\"network\": \"10.244.0.0/16\",\n \"Backend\": {\"Type\": \"vxlan\"}}".to_owned());
        let holdings = Holdings { config, leases, faults: Vec::new() };
        assert_eq!(Holdings::from_json(&holdings.to_json().unwrap()).unwrap(), holdings);
    }

    #[test]
    fn a_file_of_another_format_is_refused() {
        let error = Holdings::from_json(r#"{"format":2,"config":null,"leases":[]}"#).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it has format 2, and this flannelctl reads 1: use the one that wrote it"
        );
        assert!(Holdings::from_json("{}").is_err());
    }
}

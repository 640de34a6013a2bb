//! Reads a result in the form of its version, keys without regard to case, unknown ones ignored.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::{IpNet, Ipv4Net};
use serde_json::{Map, Value};

use super::{Attachment, Dns, Interface, Ip, Route};
use crate::error::CniError;
use crate::json::Object;
use crate::version::{Shape, Version};

impl Attachment {
    /// Reads `prevResult`, whose version must be written like that of the configuration; without one of its
    /// own it has that of the configuration.
    pub fn from_previous(map: &Map<String, Value>, config: Version) -> Result<Self, CniError> {
        let object = Object::new(map);
        let shape = config.shape();
        match object.text("cniVersion")?.unwrap_or_default() {
            "" => {}
            text if Version::find(text).is_some_and(|version| version.shape() == shape) => {}
            text => {
                let known = match shape {
                    Shape::Single => "[ 0.1.0 0.2.0]",
                    Shape::Lists => "[0.3.0 0.3.1 0.4.0]",
                    Shape::Modern => "[1.0.0 1.1.0]",
                };
                let text = format!("result type supports {known} but unmarshalled CNIVersion is {text:?}");
                return Err(CniError::internal(text));
            }
        }
        read(object, shape)
    }

    /// Reads what a plugin printed, by its own version; without one it has that of the configuration.
    pub fn from_output(map: &Map<String, Value>, config: Version) -> Result<Self, CniError> {
        let object = Object::new(map);
        let version = match object.text("cniVersion")?.unwrap_or_default() {
            "" => config,
            text => Version::find(text)
                .ok_or_else(|| CniError::internal(format!("unsupported CNI result version {text:?}")))?,
        };
        read(object, version.shape())
    }
}

fn read(object: Object<'_>, shape: Shape) -> Result<Attachment, CniError> {
    let dns = object.object("dns")?.map(dns).transpose()?.unwrap_or_default();
    if shape == Shape::Single {
        let mut attachment = Attachment { dns, ..Attachment::default() };
        for key in ["ip4", "ip6"] {
            if let Some(config) = object.object(key)? {
                read_single(config, &mut attachment)?;
            }
        }
        return Ok(attachment);
    }
    Ok(Attachment {
        interfaces: all(object, "interfaces", |item| interface(item, shape))?,
        ips: all(object, "ips", ip)?,
        routes: all(object, "routes", route)?,
        dns,
    })
}

fn read_single(config: Object<'_>, attachment: &mut Attachment) -> Result<(), CniError> {
    let address = required(net(config, "ip")?, "ip")?;
    attachment.ips.push(Ip { interface: None, address, gateway: config.address("gateway")? });
    attachment.routes.extend(all(config, "routes", route)?);
    Ok(())
}

fn interface(object: Object<'_>, shape: Shape) -> Result<Interface, CniError> {
    let text = |key| object.text(key).map(|text| text.unwrap_or_default().to_owned());
    let sandbox = object.text("sandbox")?.filter(|path| !path.is_empty()).map(PathBuf::from);
    let old = Interface { name: text("name")?, mac: text("mac")?, sandbox, ..Interface::default() };
    match shape {
        Shape::Modern => Ok(Interface {
            mtu: number(object, "mtu")?.unwrap_or(0),
            socket_path: text("socketPath")?,
            pci_id: text("pciID")?,
            ..old
        }),
        Shape::Single | Shape::Lists => Ok(old),
    }
}

fn ip(object: Object<'_>) -> Result<Ip, CniError> {
    Ok(Ip {
        interface: object.number("interface")?,
        address: required(net(object, "address")?, "address")?,
        gateway: object.address("gateway")?,
    })
}

fn route(object: Object<'_>) -> Result<Route, CniError> {
    Ok(Route {
        dst: required(net(object, "dst")?, "dst")?,
        gw: object.address("gw")?,
        mtu: number(object, "mtu")?.unwrap_or(0),
        advmss: number(object, "advmss")?.unwrap_or(0),
        priority: number(object, "priority")?.unwrap_or(0),
        table: number(object, "table")?,
        scope: number(object, "scope")?,
    })
}

fn dns(object: Object<'_>) -> Result<Dns, CniError> {
    Ok(Dns {
        nameservers: object.texts("nameservers")?.unwrap_or_default(),
        domain: object.text("domain")?.unwrap_or_default().to_owned(),
        search: object.texts("search")?.unwrap_or_default(),
        options: object.texts("options")?.unwrap_or_default(),
    })
}

fn all<T>(
    object: Object<'_>,
    key: &str,
    read: impl Fn(Object<'_>) -> Result<T, CniError>,
) -> Result<Vec<T>, CniError> {
    let Some(list) = object.list(key)? else { return Ok(Vec::new()) };
    let item = |item: &Value| {
        let object = || CniError::internal(format!("{key} must be an array of objects, not of {item}"));
        read(Object::new(item.as_object().ok_or_else(object)?))
    };
    list.iter().map(item).collect()
}

fn required<T>(value: Option<T>, key: &str) -> Result<T, CniError> {
    value.ok_or_else(|| CniError::internal(format!("{key} is missing")))
}

fn number<T: TryFrom<i64>>(object: Object<'_>, key: &str) -> Result<Option<T>, CniError> {
    let Some(number) = object.number(key)? else { return Ok(None) };
    let wrong = |_| CniError::internal(format!("{key} cannot be {number}"));
    T::try_from(number).map(Some).map_err(wrong)
}

/// A network with its host bits; an IPv4 address in IPv6 clothes is an IPv4 address, as in Go.
fn net(object: Object<'_>, key: &str) -> Result<Option<IpNet>, CniError> {
    let Some(text) = object.text(key)? else { return Ok(None) };
    let wrong = |_| CniError::internal(format!("invalid CIDR address: {text}"));
    let net: IpNet = text.parse().map_err(wrong)?;
    let IpAddr::V4(mapped) = net.addr().to_canonical() else { return Ok(Some(net)) };
    let length = if net.addr().is_ipv4() { Some(net.prefix_len()) } else { net.prefix_len().checked_sub(96) };
    Ok(length.and_then(|length| Ipv4Net::new(mapped, length).ok()).map(IpNet::V4).or(Some(net)))
}

impl Dns {
    /// Reads the text of a `resolv.conf`; lines that mean nothing to us are passed over.
    pub fn from_resolv_conf(text: &str) -> Self {
        let mut dns = Self::default();
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
            let mut fields = line.split_whitespace().map(str::to_owned);
            let (Some(key), Some(first)) = (fields.next(), fields.next()) else { continue };
            match key.as_str() {
                "nameserver" => dns.nameservers.push(first),
                "domain" => dns.domain = first,
                "search" => dns.search.extend([first].into_iter().chain(fields)),
                "options" => dns.options.extend([first].into_iter().chain(fields)),
                _ => {}
            }
        }
        dns
    }
}

#[cfg(test)]
mod tests;

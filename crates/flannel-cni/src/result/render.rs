//! Writes an attachment in the form of a version: keys, their order and what is left out are Go's.

use ipnet::IpNet;
use serde_json::{Map, Value};

use super::{Attachment, Dns, Interface, Ip, Route};
use crate::error::CniError;
use crate::version::{Shape, Version};

impl Attachment {
    /// The result as a version writes it.
    pub fn to_json(&self, version: Version) -> Result<Value, CniError> {
        let mut map = Map::new();
        put(&mut map, "cniVersion", version.as_str());
        match version.shape() {
            Shape::Single => self.write_single(&mut map)?,
            shape => {
                put_all(&mut map, "interfaces", &self.interfaces, |item| interface(item, shape));
                put_all(&mut map, "ips", &self.ips, |item| ip(item, shape));
                put_all(&mut map, "routes", &self.routes, route);
            }
        }
        let dns = dns(&self.dns);
        if version.shape() != Shape::Modern || !dns.is_empty() {
            put(&mut map, "dns", dns);
        }
        let mut json = Value::Object(map);
        if version.shape() == Shape::Modern {
            // Go reads these back into a map, which it writes in the order of the alphabet.
            json.sort_all_objects();
        }
        Ok(json)
    }

    /// The first address of each family, with the routes of that family; the rest has no place here.
    fn write_single(&self, map: &mut Map<String, Value>) -> Result<(), CniError> {
        for (key, is_v4) in [("ip4", true), ("ip6", false)] {
            let is_same = |net: &IpNet| net.addr().is_ipv4() == is_v4;
            let Some(ip) = self.ips.iter().find(|ip| is_same(&ip.address)) else { continue };
            let mut config = Map::new();
            put(&mut config, "ip", ip.address.to_string());
            put_some(&mut config, "gateway", ip.gateway.map(|gateway| gateway.to_string()));
            let routes: Vec<_> = self.routes.iter().filter(|route| is_same(&route.dst)).collect();
            put_all(&mut config, "routes", &routes, |route| destination(route));
            put(map, key, config);
        }
        if map.contains_key("ip4") || map.contains_key("ip6") {
            return Ok(());
        }
        Err(CniError::internal("cannot convert: no valid IP addresses"))
    }
}

fn interface(interface: &Interface, shape: Shape) -> Map<String, Value> {
    let mut map = Map::new();
    put(&mut map, "name", &*interface.name);
    put_text(&mut map, "mac", &interface.mac);
    if shape == Shape::Modern {
        put_number(&mut map, "mtu", interface.mtu);
    }
    if let Some(sandbox) = &interface.sandbox {
        put_text(&mut map, "sandbox", &sandbox.to_string_lossy());
    }
    if shape == Shape::Modern {
        put_text(&mut map, "socketPath", &interface.socket_path);
        put_text(&mut map, "pciID", &interface.pci_id);
    }
    map
}

fn ip(ip: &Ip, shape: Shape) -> Map<String, Value> {
    let mut map = Map::new();
    if shape == Shape::Lists {
        put(&mut map, "version", if ip.address.addr().is_ipv4() { "4" } else { "6" });
    }
    put_some(&mut map, "interface", ip.interface);
    put(&mut map, "address", ip.address.to_string());
    put_some(&mut map, "gateway", ip.gateway.map(|gateway| gateway.to_string()));
    map
}

fn route(route: &Route) -> Map<String, Value> {
    let mut map = destination(route);
    put_number(&mut map, "mtu", route.mtu);
    put_number(&mut map, "advmss", route.advmss);
    put_number(&mut map, "priority", route.priority);
    put_some(&mut map, "table", route.table);
    put_some(&mut map, "scope", route.scope);
    map
}

fn destination(route: &Route) -> Map<String, Value> {
    let mut map = Map::new();
    put(&mut map, "dst", route.dst.to_string());
    put_some(&mut map, "gw", route.gw.map(|gw| gw.to_string()));
    map
}

fn dns(dns: &Dns) -> Map<String, Value> {
    let mut map = Map::new();
    put_all(&mut map, "nameservers", &dns.nameservers, String::clone);
    put_text(&mut map, "domain", &dns.domain);
    put_all(&mut map, "search", &dns.search, String::clone);
    put_all(&mut map, "options", &dns.options, String::clone);
    map
}

fn put(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    map.insert(key.into(), value.into());
}

fn put_text(map: &mut Map<String, Value>, key: &str, text: &str) {
    if !text.is_empty() {
        put(map, key, text);
    }
}

fn put_number(map: &mut Map<String, Value>, key: &str, number: u32) {
    if number != 0 {
        put(map, key, number);
    }
}

fn put_some(map: &mut Map<String, Value>, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        put(map, key, value);
    }
}

fn put_all<T, V: Into<Value>>(map: &mut Map<String, Value>, key: &str, items: &[T], write: impl Fn(&T) -> V) {
    if !items.is_empty() {
        put(map, key, items.iter().map(|item| write(item).into()).collect::<Vec<Value>>());
    }
}

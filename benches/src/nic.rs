//! How soon changes of the external interface are followed, counted from the moment that it is usable again.

use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::figure::Figure;

const TIMES: usize = 10;
const GOAL_MS: f64 = 100.0;

/// Takes the interface's address, cable and existence away and gives them back.
pub fn measure() -> anyhow::Result<Vec<Figure>> {
    let cluster = Cluster::up(20)?;
    let node = cluster.node()?;
    let address = node.v4();
    let mut returns = Vec::new();
    for _ in 0..TIMES {
        node.ip("address flush dev eth0")?;
        returns.push(timed(&cluster, || {
            node.ip(&format!("address add {address}/16 dev eth0"))?;
            Ok(())
        })?);
    }
    let address_back = Figure::median("the NIC's address is back", returns).at_most(GOAL_MS);
    let mut plugged = Vec::new();
    for _ in 0..TIMES {
        node.ip("link del eth0")?;
        plugged.push(timed(&cluster, || {
            node.ip("link add eth0 type veth peer name bench0")?;
            node.ip("link set bench0 up")?;
            node.ip(&format!("address add {address}/16 dev eth0"))?;
            node.ip("link set eth0 up")?;
            Ok(())
        })?);
    }
    Ok(vec![address_back, Figure::median("a new NIC of the same name is up", plugged).at_most(GOAL_MS)])
}

fn timed(cluster: &Cluster, mend: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    mend()?;
    let usable = Instant::now();
    cluster.inside(|eye| eye.until_healed(usable))
}

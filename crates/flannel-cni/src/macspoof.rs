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
use crate::firewall::{change, delete, failure, names};
use crate::request::Request;

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
    fn of(id: &str) -> Self {
        let interface = format!("{INTERFACE_CHAIN}{id}");
        Self { mac: format!("{interface}-mac"), interface, comment: format!("{COMMENT}{id}") }
    }

    fn of_request(request: &Request) -> Self {
        Self::of(&format!("{}-{}", request.container_id, request.ifname))
    }
}

/// Drops what comes in through the host's end of the cable and does not carry this address.
pub fn set_up(request: &Request, host_veth: &str, mac: Mac) -> Result<(), CniError> {
    let names = Names::of_request(request);
    let attempt = |nft: &mut Nft| {
        let mut transaction = Transaction::default();
        for listed in nft.rules(TABLE, PREROUTING)?.iter().filter(|listed| is_of(&names, listed)) {
            transaction.push(TABLE, listed.deletion());
        }
        let is_new = !nft.has_chain(TABLE, &names.interface)?;
        transaction.extend(TABLE, additions(request, &names, host_veth, mac, is_new));
        nft.commit(&transaction)
    };
    change(attempt).map_err(|why| failure("failed to setup spoof-check", &why))
}

/// Removes the rules of an attachment.
pub fn tear_down(request: &Request) -> Result<(), CniError> {
    let names = Names::of_request(request);
    let chains = [names.interface.as_str(), names.mac.as_str()];
    delete(|nft| leftovers(nft, |listed| is_of(&names, listed), &chains))
        .map_err(|why| failure("failed to teardown spoof-check", &why))
}

/// Removes the rules of all attachments of this network but the valid ones: container and interface. Rules of
/// Go's plugin do not say which network they belong to.
pub fn gc(request: &Request, valid: &[(&str, &str)]) -> Result<(), CniError> {
    let is_garbage = |listed: &Listed| {
        let Rule { comment: Some(comment), tag: Some(tag), .. } = &listed.rule else { return false };
        let is_valid =
            valid.iter().any(|(id, ifname)| Names::of(&format!("{id}-{ifname}")).comment == **comment);
        names::ifname_in(tag, &request.network).is_some() && !is_valid
    };
    delete(|nft| leftovers(nft, is_garbage, &[]))
        .map_err(|why| failure("failed to collect spoof-checks", &why))
}

fn is_of(names: &Names, listed: &Listed) -> bool {
    listed.rule.comment.as_deref() == Some(names.comment.as_str())
        || listed.rule.target() == Some(names.interface.as_str())
}

fn additions(request: &Request, names: &Names, host_veth: &str, mac: Mac, is_new: bool) -> Vec<Edit> {
    let mut edits = vec![
        Edit::AddTable(None),
        Edit::AddChain(Chain::base(PREROUTING, ChainType::Filter, Hook::Prerouting, -300)),
        Edit::AddChain(Chain::plain(names.interface.as_str())),
        Edit::AddChain(Chain::plain(names.mac.as_str())),
    ];
    if !is_new {
        edits.extend([&names.interface, &names.mac].map(|chain| Edit::FlushChain(chain.as_str().into())));
    }
    let rule = |chain: &str, matches: &[Match], action: Action| {
        let rule = Rule::new(matches, action).comment(names.comment.as_str()).tag(names::tag(request));
        Edit::AppendRule(chain.into(), rule)
    };
    let comes_from = Match::InLink(Is::Equal, host_veth.into());
    let is_right = Match::EtherSource(Is::Equal, mac);
    edits.extend([
        rule(PREROUTING, &[comes_from], Action::jump(names.interface.as_str())),
        rule(&names.interface, &[], Action::jump(names.mac.as_str())),
        rule(&names.mac, &[is_right], Action::Return),
        rule(&names.mac, &[], Action::Drop),
    ]);
    edits
}

/// What has to be deleted: entries with the chains that they lead to, and these chains, where they are.
fn leftovers(
    nft: &mut Nft,
    is_meant: impl Fn(&Listed) -> bool,
    chains: &[&str],
) -> Result<Transaction, NftError> {
    let mut steps = Transaction::default();
    let mut chains: BTreeSet<String> = chains.iter().map(|chain| (*chain).to_owned()).collect();
    for listed in nft.rules(TABLE, PREROUTING)?.iter().filter(|listed| is_meant(listed)) {
        steps.push(TABLE, listed.deletion());
        if let Some(chain) = listed.rule.target().filter(|chain| chain.starts_with(INTERFACE_CHAIN)) {
            chains.extend([chain.to_owned(), format!("{chain}-mac")]);
        }
    }
    let mut present = Vec::new();
    for chain in chains {
        if nft.has_chain(TABLE, &chain)? {
            present.push(chain);
        }
    }
    // The first leads to the second, so all are emptied before one can go.
    steps.extend(TABLE, present.iter().map(|chain| Edit::FlushChain(chain.as_str().into())));
    steps.extend(TABLE, present.into_iter().map(|chain| Edit::DeleteChain(chain.into())));
    Ok(steps)
}

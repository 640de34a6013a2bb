//! Keeps a container from sending with another hardware address than its own (`macspoofchk` of bridge): frames
//! that come in through the host's end of its cable are dropped unless they carry it.
//!
//! The chains, rules and comments are those of Go's plugin; ours name their network as well, in a tag.

use flannel_kernel::firewall::nft::{
    Chain, Direction, Family, Hook, Is, Kind, Listed, Nft, NftError, Rule, Statement, Step, Table,
    Transaction, Verdict,
};
use flannel_plan::mac::Mac;

use crate::error::CniError;
use crate::firewall::{change, delete, failure, names};
use crate::request::Request;

const TABLE: Table = Table { family: Family::Bridge, name: "nat" };
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
            transaction.push(deletion(listed));
        }
        let is_new = !nft.has_chain(TABLE, &names.interface)?;
        transaction.extend(additions(request, &names, host_veth, mac, is_new));
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
            valid.iter().any(|(id, ifname)| Names::of(&format!("{id}-{ifname}")).comment == *comment);
        names::ifname_in(tag, &request.network).is_some() && !is_valid
    };
    delete(|nft| leftovers(nft, is_garbage, &[]))
        .map_err(|why| failure("failed to collect spoof-checks", &why))
}

fn is_of(names: &Names, listed: &Listed) -> bool {
    listed.rule.comment.as_ref() == Some(&names.comment)
        || listed.rule.target() == Some(names.interface.as_str())
}

fn deletion(listed: &Listed) -> Step {
    Step::DeleteRule(TABLE, listed.chain.clone(), listed.handle)
}

fn additions(request: &Request, names: &Names, host_veth: &str, mac: Mac, is_new: bool) -> Vec<Step> {
    let mut steps = vec![
        Step::AddTable(TABLE, None),
        Step::AddChain(TABLE, Chain::base(PREROUTING, Kind::Filter, Hook::Prerouting, -300)),
        Step::AddChain(TABLE, Chain::plain(names.interface.as_str())),
        Step::AddChain(TABLE, Chain::plain(names.mac.as_str())),
    ];
    if !is_new {
        steps.extend([&names.interface, &names.mac].map(|chain| Step::FlushChain(TABLE, chain.clone())));
    }
    let rule = |chain: &str, statements: &[Statement]| {
        let rule = Rule::new(statements).comment(names.comment.as_str()).tag(names::tag(request));
        Step::AddRule(TABLE, chain.to_owned(), rule)
    };
    let comes_from = Statement::Device(Direction::In, Is::Equal, host_veth.to_owned());
    let is_right = Statement::EtherSource(Is::Equal, mac);
    steps.extend([
        rule(PREROUTING, &[comes_from, Statement::jump(names.interface.as_str())]),
        rule(&names.interface, &[Statement::jump(names.mac.as_str())]),
        rule(&names.mac, &[is_right, Statement::Verdict(Verdict::Return)]),
        rule(&names.mac, &[Statement::Verdict(Verdict::Drop)]),
    ]);
    steps
}

/// What has to be deleted: entries with the chains that they lead to, and these chains, where they are.
fn leftovers(
    nft: &mut Nft,
    is_meant: impl Fn(&Listed) -> bool,
    chains: &[&str],
) -> Result<Vec<Step>, NftError> {
    let mut steps = Vec::new();
    let mut chains: Vec<String> = chains.iter().map(|chain| (*chain).to_owned()).collect();
    for listed in nft.rules(TABLE, PREROUTING)?.iter().filter(|listed| is_meant(listed)) {
        steps.push(deletion(listed));
        if let Some(chain) = listed.rule.target().filter(|chain| chain.starts_with(INTERFACE_CHAIN)) {
            chains.extend([chain.to_owned(), format!("{chain}-mac")]);
        }
    }
    chains.sort_unstable();
    chains.dedup();
    let mut present = Vec::new();
    for chain in chains {
        if nft.has_chain(TABLE, &chain)? {
            present.push(chain);
        }
    }
    // The first leads to the second, so all are emptied before one can go.
    steps.extend(present.iter().map(|chain| Step::FlushChain(TABLE, chain.clone())));
    steps.extend(present.into_iter().map(|chain| Step::DeleteChain(TABLE, chain)));
    Ok(steps)
}

//! Masquerade by nftables: one table for both families, a rule an address. The names and comments are Go's.

use flannel_kernel::firewall::nft::{Listed, Nft, NftError, Table, TableFamily};
use flannel_plan::family::Family;
use flannel_plan::rules::chain::{Chain, ChainType, Hook};
use flannel_plan::rules::edit::Edit;
use flannel_plan::rules::{Action, Is, Match, Rule, SourcePorts, multicast};
use ipnet::IpNet;

use crate::error::CniError;
use crate::firewall::{Meant, change, names};
use crate::request::{AttachmentId, Request};

pub(super) const TABLE: Table = Table { family: TableFamily::Inet, name: "cni_plugins_masquerade" };
const TABLE_COMMENT: &str = "Masquerading for plugins from github.com/containernetworking/plugins";
const CHECKS: &str = "masq_checks";
const CHECKS_COMMENT: &str =
    "Masquerade traffic from certain IPs to any (non-multicast) IP outside their subnet";
const POSTROUTING: &str = "postrouting";
const LONGEST_COMMENT: usize = 128;

/// Makes the rules of an attachment; made again, they are the same.
pub(super) fn set_up(request: &Request, addresses: &[IpNet]) -> Result<(), CniError> {
    let comment = comment(&request.network, &request.ifname, &request.container_id);
    let own: Vec<_> = addresses.iter().map(|address| rule(*address).comment(comment.as_str())).collect();
    change("cannot set up masquerading", |nft, transaction| {
        let listed = nft.all_rules(TABLE)?;
        let postrouting = listed.iter().filter(|listed| listed.chain == POSTROUTING);
        if !postrouting.map(|listed| &listed.rule).eq(&base_rules()) {
            transaction.extend(TABLE, base());
        }
        let stale: Vec<_> = listed.iter().filter(|listed| is_of(request, listed)).collect();
        if !stale.iter().map(|listed| &listed.rule).eq(&own) {
            transaction.extend(TABLE, stale.into_iter().map(Listed::deletion));
            transaction.extend(TABLE, own.iter().map(|rule| Edit::AppendRule(CHECKS.into(), rule.clone())));
        }
        Ok(())
    })
}

/// What has to be deleted.
pub(super) fn leftovers(nft: &mut Nft, meant: Meant<'_>) -> Result<Vec<Edit>, NftError> {
    let is_meant = |listed: &&Listed| match meant {
        Meant::Attachment(owner) => is_of(owner.request, listed),
        Meant::AllBut(network, valid) => is_garbage(network, valid, listed),
    };
    Ok(nft.rules(TABLE, CHECKS)?.iter().filter(is_meant).map(Listed::deletion).collect())
}

/// Whether a rule is the attachment's: by the container and the interface, whatever its network was called.
fn is_of(request: &Request, listed: &Listed) -> bool {
    let comment = listed.rule.comment.as_deref().unwrap_or_default();
    let hashed = comment.split(',').next().and_then(|hashes| hashes.split_once('-'));
    listed.chain == CHECKS
        && hashed.is_some_and(|(_, own)| own == attachment_hash(&request.ifname, &request.container_id))
}

fn is_garbage(network: &str, valid: &[AttachmentId], listed: &Listed) -> bool {
    let comment_of = |id: &AttachmentId| comment(network, &id.ifname, &id.container_id);
    listed.rule.comment.as_ref().is_some_and(|comment| {
        comment.starts_with(&names::hash(network, 16))
            && !valid.iter().any(|valid| comment_of(valid) == **comment)
    })
}

fn base() -> Vec<Edit> {
    let mut edits = vec![
        Edit::AddTable(Some(TABLE_COMMENT.into())),
        Edit::AddChain(Chain::plain(CHECKS).comment(CHECKS_COMMENT)),
        Edit::RenewChain(Chain::base(POSTROUTING, ChainType::Nat, Hook::Postrouting, 100)),
    ];
    edits.extend(base_rules().into_iter().map(|rule| Edit::AppendRule(POSTROUTING.into(), rule)));
    edits
}

fn base_rules() -> [Rule; 3] {
    let [v4, v6] =
        Family::BOTH.map(|family| Rule::new([Match::destination(multicast(family))], Action::Return));
    [v4, v6, Rule::new([], Action::Goto(CHECKS.into()))]
}

fn rule(address: IpNet) -> Rule {
    let matches = [Match::source(address.addr()), Match::Destination(Is::Different, address.trunc())];
    Rule::new(matches, Action::masquerade(SourcePorts::Kept))
}

fn attachment_hash(ifname: &str, container: &str) -> String {
    names::hash(&format!("{ifname}:{container}"), 16)
}

/// Two hashes for programs, then three names for people.
fn comment(network: &str, ifname: &str, container: &str) -> String {
    let hashes = format!("{}-{}", names::hash(network, 16), attachment_hash(ifname, container));
    let mut comment = format!("{hashes}, net: {network}, if: {ifname}, id: {container}").replace('"', "");
    comment.truncate(comment.floor_char_boundary(LONGEST_COMMENT));
    comment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comment_is_the_one_of_go() {
        let expected = "6fd94d501e58f0aa-287fc69eff0574a2, net: unit-test, if: eth0, id: one";
        assert_eq!(comment("unit-test", "eth0", "one"), expected);
        assert_eq!(comment("unit-test", "eth0", &"x".repeat(200)).len(), 128);
    }
}

//! What masquerade and port mappings share: which firewall is used, by which names a rule says whose it is, and
//! how a change is tried again.

pub(crate) mod backend;
pub(crate) mod names;
mod nat_table;
mod owner;
mod turn;

use flannel_kernel::firewall::iptables::IptablesError;
use flannel_kernel::firewall::nft::{Nft, NftError, Transaction};

use crate::error::{CniError, OrInternal};
pub(crate) use nat_table::{
    NAT, NatTable, clean_legacy, holds, in_nft, leftovers, observe, restore, without_chains,
};
pub(crate) use owner::{Meant, Owner};
pub(crate) use turn::in_turn;

/// How often a change is tried when others change the same objects.
const MOST_TRIES: usize = 8;

/// Makes in one transaction the edits that are told; tells them again while others change the same objects.
pub(crate) fn change(
    what: &str,
    edits: impl FnMut(&mut Nft, &mut Transaction) -> Result<(), NftError>,
) -> Result<(), CniError> {
    commit(edits).map_err(|why| failure(what, &why))
}

/// The same for edits that only delete: where the kernel has no nftables there is nothing to delete.
pub(crate) fn delete(
    what: &str,
    edits: impl FnMut(&mut Nft, &mut Transaction) -> Result<(), NftError>,
) -> Result<(), CniError> {
    match commit(edits) {
        Err(why) if why.says_there_is_none() => Ok(()),
        outcome => outcome.map_err(|why| failure(what, &why)),
    }
}

fn commit(mut edits: impl FnMut(&mut Nft, &mut Transaction) -> Result<(), NftError>) -> Result<(), NftError> {
    // Closed when others have their turn already: after a deletion the kernel makes the one who closes wait.
    let mut nft = Nft::open()?;
    let attempt = || {
        let mut transaction = Transaction::default();
        edits(&mut nft, &mut transaction)?;
        nft.commit(&transaction)
    };
    retried(attempt, NftError::is_a_race)
}

/// Tries again what failed: iptables does not say whether others changed the same rules meanwhile.
pub(crate) fn again(what: &str, attempt: impl FnMut() -> Result<(), IptablesError>) -> Result<(), CniError> {
    let may_be_a_race = |why: &IptablesError| matches!(why, IptablesError::Failed { .. });
    retried(attempt, may_be_a_race).or_internal(format_args!("{what}"))
}

fn retried<E>(mut attempt: impl FnMut() -> Result<(), E>, is_a_race: fn(&E) -> bool) -> Result<(), E> {
    in_turn(|| {
        for _ in 1..MOST_TRIES {
            match attempt() {
                Err(why) if is_a_race(&why) => {}
                outcome => return outcome,
            }
        }
        attempt()
    })
}

/// An error of nftables, with what an operator can do about it.
pub(crate) fn failure(what: &str, why: &NftError) -> CniError {
    CniError::internal(format!("{what}: {why}")).details(why.hint().unwrap_or_default())
}

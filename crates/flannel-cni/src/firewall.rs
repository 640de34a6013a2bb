//! What masquerade and port mappings share: which firewall is used, by which names a rule says whose it is, and
//! how a change is tried again.

pub(crate) mod backend;
pub(crate) mod names;
mod nat_table;
mod turn;

use flannel_kernel::firewall::iptables::IptablesError;
use flannel_kernel::firewall::nft::{Nft, NftError, Transaction};

use crate::error::CniError;
pub(crate) use nat_table::{NAT, NatTable, clean_legacy, holds, in_nft, observe, restore, without_chains};
pub(crate) use turn::in_turn;

/// How often a change is tried when others change the same objects.
const MOST_TRIES: usize = 8;

/// Looks and changes; tries again while others change the same objects.
pub(crate) fn change<T>(mut attempt: impl FnMut(&mut Nft) -> Result<T, NftError>) -> Result<T, NftError> {
    // Closed when others have their turn already: after a deletion the kernel makes the one who closes wait.
    let mut nft = Nft::open()?;
    in_turn(|| {
        for _ in 1..MOST_TRIES {
            match attempt(&mut nft) {
                Err(why) if why.is_a_race() => {}
                outcome => return outcome,
            }
        }
        attempt(&mut nft)
    })
}

/// Deletes what is told, in one transaction; where the kernel has no nftables there is nothing to delete.
pub(crate) fn delete(
    mut leftovers: impl FnMut(&mut Nft) -> Result<Transaction, NftError>,
) -> Result<(), NftError> {
    let attempt = |nft: &mut Nft| {
        let transaction = leftovers(nft)?;
        nft.commit(&transaction)
    };
    match change(attempt) {
        Err(why) if why.says_there_is_none() => Ok(()),
        outcome => outcome,
    }
}

/// Tries again what failed: iptables does not say whether others changed the same rules meanwhile.
pub(crate) fn again<T>(mut attempt: impl FnMut() -> Result<T, IptablesError>) -> Result<T, IptablesError> {
    in_turn(|| {
        for _ in 1..MOST_TRIES {
            match attempt() {
                Err(IptablesError::Failed { .. }) => {}
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

//! All tables at once, for a daemon that keeps rules: one program to look, one to change, and what it can do.

use std::process::Command;

use flannel_plan::family::Family;

use super::{Flavour, Iptables, IptablesError, ask};

/// The first version whose masquerade chooses ports at random.
const RANDOM_PORTS: [u32; 3] = [1, 6, 2];

impl Iptables {
    /// The programs of the flavour of nftables, by whatever name.
    pub fn find_nft(family: Family) -> Option<Self> {
        let is_nft = |found: &Self| found.flavour == Flavour::Nftables;
        let named = || {
            let found = Self::find_named(family, "-nft")?;
            Some(Self { flavour: Flavour::Nftables, ..found })
        };
        Self::find(family).filter(is_nft).or_else(named)
    }

    /// What the program prints of all its tables; of the legacy flavour only those that are in use.
    pub fn save_all(&self) -> Result<String, IptablesError> {
        let output = self.checked(&mut Command::new(self.program("-save")), None)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Makes all changes of a script or none, table by table; waits so many seconds for others to finish.
    pub fn restore_within(&self, script: &str, seconds: u32) -> Result<(), IptablesError> {
        if script.is_empty() {
            return Ok(());
        }
        let mut command = Command::new(self.program("-restore"));
        command.args(["-w", &seconds.to_string(), "-n"]);
        self.checked(&mut command, Some(script)).map(|_| ())
    }

    /// Whether a script would be understood; none of it is done. None if others did not finish within so many seconds,
    /// which says nothing about the script.
    pub fn would_restore(&self, script: &str, seconds: u32) -> Option<bool> {
        let mut command = Command::new(self.program("-restore"));
        command.args(["-w", &seconds.to_string(), "-n", "--test"]);
        match self.checked(&mut command, Some(script)) {
            Err(why) if why.is_of_the_lock() => None,
            outcome => Some(outcome.is_ok()),
        }
    }

    /// Whether its masquerade can choose ports at random.
    pub fn knows_random_ports(&self) -> bool {
        let output = ask(Command::new(self.program("")).arg("--version"));
        let text =
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        version(&text).is_some_and(|version| version >= RANDOM_PORTS)
    }
}

/// The version in a text such as `iptables v1.8.9 (nf_tables)`.
fn version(text: &str) -> Option<[u32; 3]> {
    let word = text.split_whitespace().find_map(|word| word.strip_prefix('v'))?;
    let mut numbers = word.split('.').map(|number| {
        let digits = number.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(number.len());
        number[..digits].parse().unwrap_or(0)
    });
    Some([numbers.next()?, numbers.next()?, numbers.next().unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_and_compared_number_by_number() {
        assert_eq!(version("iptables v1.8.9 (nf_tables)\n"), Some([1, 8, 9]));
        assert_eq!(version("ip6tables v1.10 (legacy)"), Some([1, 10, 0]));
        assert!(version("iptables v1.6.10").unwrap() >= RANDOM_PORTS);
        assert!(version("iptables v1.6.1").unwrap() < RANDOM_PORTS);
        assert_eq!(version("busybox"), None);
    }
}

//! iptables by its programs: one `iptables-save` to look, one `iptables-restore` to change.
//!
//! There are two flavours. That of nftables keeps its rules where [`super::nft`] finds them, too: what only has
//! to be looked up or deleted needs no program. The legacy one keeps them in tables of its own.

mod legacy;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use flannel_plan::family::Family;
use flannel_plan::rules::{SourcePorts, System};

pub use legacy::legacy_table;

use super::nft::{Nft, Table};
use crate::child;

/// Where programs are looked for if nobody says.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How long a program may take for an answer of a line, the wait for others to finish included,
const LONGEST_ANSWER: Duration = Duration::from_secs(5);
/// and for whole tables: a hundred thousand rules take seconds.
const LONGEST_WORK: Duration = Duration::from_secs(20);

/// How a program of iptables ends that waited for the lock in vain.
const LOCKED: i32 = 4;

/// Seconds that a daemon waits for the lock: it has other things to do.
const PATIENCE: &str = "5";

/// The first version whose masquerade chooses ports at random.
const RANDOM_PORTS: [u32; 3] = [1, 6, 2];

/// The name that the programs of a family begin with.
fn program_of(family: Family) -> &'static str {
    match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    }
}

/// What follows in the names of a system's programs, whatever a host calls by the plain ones.
fn infix_of(system: System) -> &'static str {
    if system == System::IptablesLegacy { "-legacy" } else { "-nft" }
}

/// The name of the program of a system and a family.
pub(super) fn name_of(system: System, family: Family) -> String {
    format!("{}{}", program_of(family), infix_of(system))
}

/// The table `nat` of the flavour of nftables.
pub fn nat(family: Family) -> Table {
    Table::of(family, "nat")
}

/// What cannot be done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum IptablesError {
    /// A program cannot be run.
    #[error("cannot run {program}: {why}")]
    Run { program: String, why: String },
    /// A program failed.
    #[error("{program} failed: {words}")]
    Failed { program: String, words: String },
    /// The table holds rules that iptables cannot read, so what it shows is not what is there.
    #[error("{program} cannot read table {table}: it holds rules that another program wrote by nftables")]
    Incompatible { program: String, table: String },
}

impl IptablesError {
    /// Whether another program kept the lock of legacy iptables.
    pub(super) fn is_of_the_lock(&self) -> bool {
        matches!(self, Self::Failed { words, .. } if words.contains("xtables lock"))
    }
}

/// The programs of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iptables {
    /// Where the rules are.
    pub system: System,
    pub family: Family,
    folder: PathBuf,
    /// What stands between `iptables` and `-save` in the names: nothing, `-nft` or `-legacy`.
    infix: &'static str,
}

impl Iptables {
    /// The programs that this host calls by their plain names; none if it has none.
    pub fn find(family: Family) -> Option<Self> {
        let mut found = Self::find_named("", System::IptablesLegacy, family)?;
        if found.is_nft() {
            found.system = System::IptablesNft;
        }
        Some(found)
    }

    /// The programs of a system, by whatever name.
    pub fn find_of(system: System, family: Family) -> Option<Self> {
        let named = || Self::find_named(infix_of(system), system, family);
        Self::find(family).filter(|found| found.system == system).or_else(named)
    }

    fn find_named(infix: &'static str, system: System, family: Family) -> Option<Self> {
        let restore = format!("{}{infix}-restore", program_of(family));
        let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
        let folder = std::env::split_paths(&path).find(|folder| is_program(&folder.join(&restore)))?;
        Some(Self { system, family, folder, infix })
    }

    /// Most hosts have links to one program of many names, which tells the flavour; else it has to be asked.
    fn is_nft(&self) -> bool {
        let real = std::fs::canonicalize(self.program("-restore")).unwrap_or_default();
        let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.contains("nft") || !name.contains("legacy") && self.version().contains("nf_tables")
    }

    /// What the program says of itself, like `iptables v1.8.9 (nf_tables)`.
    fn version(&self) -> String {
        let output = ask(Command::new(self.program("")).arg("--version"));
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
    }

    /// How its masquerade can choose ports.
    pub fn source_ports(&self) -> SourcePorts {
        match version(&self.version()) {
            Some(version) if version >= RANDOM_PORTS => SourcePorts::Randomised,
            _ => SourcePorts::Kept,
        }
    }

    /// Whether the kernel can do what the programs want of it.
    pub fn is_usable(&self) -> bool {
        match self.system {
            System::IptablesLegacy => legacy::names(self.family).is_some() || self.lists_a_chain(),
            System::IptablesNft | System::Nftables => {
                Nft::open().and_then(|mut nft| nft.generation()).is_ok()
            }
        }
    }

    /// The kernel may have to load what it needs, which only the program makes it do.
    fn lists_a_chain(&self) -> bool {
        let mut command = Command::new(self.program(""));
        command.args(["-w", "2", "-t", "filter", "-S", "INPUT"]);
        // One that only waits for another program's lock could list it.
        ask(&mut command).is_ok_and(|output| output.status.success() || output.status.code() == Some(LOCKED))
    }

    /// What the program prints of a table.
    pub fn save(&self, table: &str) -> Result<String, IptablesError> {
        let output = self.run("-save", &["-t", table], "")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr);
        if text.contains("is incompatible, use 'nft'") || said.contains("is incompatible, use 'nft'") {
            let program = self.program("-save").display().to_string();
            return Err(IptablesError::Incompatible { program, table: table.to_owned() });
        }
        Ok(text)
    }

    /// Makes all changes of a script or none; chains that it does not name stay as they are.
    pub fn restore(&self, script: &str) -> Result<(), IptablesError> {
        self.run("-restore", &["-w", "-n"], script).map(|_| ())
    }

    /// What the program prints of all its tables; of the legacy flavour only those that are in use.
    pub fn save_all(&self) -> Result<String, IptablesError> {
        let output = self.run("-save", &[], "")?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Makes all changes of a script or none, table by table, unless others do not finish soon.
    pub fn restore_soon(&self, script: &str) -> Result<(), IptablesError> {
        if script.is_empty() {
            return Ok(());
        }
        self.run("-restore", &["-w", PATIENCE, "-n"], script).map(|_| ())
    }

    /// Whether a script would be understood; none of it is done. None if others do not finish soon, which says
    /// nothing about the script.
    pub fn would_restore(&self, script: &str) -> Option<bool> {
        match self.run("-restore", &["-w", PATIENCE, "-n", "--test"], script) {
            Err(why) if why.is_of_the_lock() => None,
            outcome => Some(outcome.is_ok()),
        }
    }

    /// Whether a rule is there, in the program's own eyes.
    pub fn has_rule(&self, table: &str, chain: &str, rule: &[String]) -> Result<bool, IptablesError> {
        let program = self.program("");
        let mut command = Command::new(&program);
        command.args(["-w", "-t", table, "-C", chain]).args(rule);
        ask(&mut command).map(|output| output.status.success()).map_err(|why| IptablesError::Run {
            program: program.display().to_string(),
            why: why.to_string(),
        })
    }

    fn program(&self, suffix: &str) -> PathBuf {
        self.folder.join(format!("{}{}{suffix}", program_of(self.family), self.infix))
    }

    /// Runs one of the programs to its end, which must be a good one.
    fn run(&self, suffix: &str, arguments: &[&str], script: &str) -> Result<Output, IptablesError> {
        let path = self.program(suffix);
        let program = path.display().to_string();
        match child::run(Command::new(path).args(arguments), script.as_bytes(), LONGEST_WORK) {
            Ok(output) if output.status.success() => Ok(output),
            Ok(output) => {
                let words = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
                Err(IptablesError::Failed { program, words })
            }
            Err(why) => Err(IptablesError::Run { program, why: why.to_string() }),
        }
    }
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn ask(command: &mut Command) -> Result<Output, std::io::Error> {
    child::run(command, b"", LONGEST_ANSWER)
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

//! iptables by its programs: one `iptables-save` to look, one `iptables-restore` to change.
//!
//! There are two flavours. That of nftables keeps its rules where [`super::nft`] finds them, too: what only has
//! to be looked up or deleted needs no program. The legacy one keeps them in tables of its own.

mod legacy;
mod whole;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use flannel_plan::family::Family;

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

/// The name that the programs of a family begin with.
fn program_of(family: Family) -> &'static str {
    match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    }
}

/// The table `nat` of the flavour of nftables.
pub fn nat(family: Family) -> Table {
    Table::of(family, "nat")
}

/// Where the rules of a program are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    Nftables,
    /// In tables of its own.
    Legacy,
}

/// What cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum IptablesError {
    /// A program cannot be run.
    #[error("cannot run {program}: {why}")]
    Run { program: String, why: std::io::Error },
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
    family: Family,
    folder: PathBuf,
    /// What stands between `iptables` and `-save` in the names: nothing, or `-legacy`.
    infix: &'static str,
    flavour: Flavour,
}

impl Iptables {
    /// The programs that this host calls by their plain names; none if it has none.
    pub fn find(family: Family) -> Option<Self> {
        let mut found = Self::find_named(family, "")?;
        found.flavour = found.ask_flavour();
        Some(found)
    }

    /// The programs of the legacy flavour, by whatever name.
    pub fn find_legacy(family: Family) -> Option<Self> {
        let is_legacy = |found: &Self| found.flavour == Flavour::Legacy;
        Self::find(family).filter(is_legacy).or_else(|| Self::find_named(family, "-legacy"))
    }

    fn find_named(family: Family, infix: &'static str) -> Option<Self> {
        let restore = format!("{}{infix}-restore", program_of(family));
        let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
        let folder = std::env::split_paths(&path).find(|folder| is_program(&folder.join(&restore)))?;
        Some(Self { family, infix, flavour: Flavour::Legacy, folder })
    }

    /// Most hosts have links to one program of many names, which tells the flavour; else it has to be asked.
    fn ask_flavour(&self) -> Flavour {
        let real = std::fs::canonicalize(self.program("-restore")).unwrap_or_default();
        let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let version = || match ask(Command::new(self.program("")).arg("--version")) {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            Err(_) => String::new(),
        };
        let is_nftables = name.contains("nft") || !name.contains("legacy") && version().contains("nf_tables");
        if is_nftables { Flavour::Nftables } else { Flavour::Legacy }
    }

    /// Where the rules are.
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// The family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Whether the kernel can do what the programs want of it.
    pub fn is_usable(&self) -> bool {
        match self.flavour {
            Flavour::Nftables => Nft::open().and_then(|mut nft| nft.generation()).is_ok(),
            Flavour::Legacy => legacy::is_loaded(self.family) || self.lists_a_chain(),
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
        let program = self.program("-save");
        let output = self.checked(Command::new(&program).args(["-t", table]), None)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr);
        if text.contains("is incompatible, use 'nft'") || said.contains("is incompatible, use 'nft'") {
            let program = program.display().to_string();
            return Err(IptablesError::Incompatible { program, table: table.to_owned() });
        }
        Ok(text)
    }

    /// Makes all changes of a script or none; chains that it does not name stay as they are.
    pub fn restore(&self, script: &str) -> Result<(), IptablesError> {
        let program = self.program("-restore");
        self.checked(Command::new(&program).args(["-w", "-n"]), Some(script)).map(|_| ())
    }

    /// Whether a rule is there, in the program's own eyes.
    pub fn has_rule(&self, table: &str, chain: &str, rule: &[String]) -> Result<bool, IptablesError> {
        let program = self.program("");
        let mut command = Command::new(&program);
        command.args(["-w", "-t", table, "-C", chain]).args(rule);
        ask(&mut command)
            .map(|output| output.status.success())
            .map_err(|why| IptablesError::Run { program: program.display().to_string(), why })
    }

    fn program(&self, suffix: &str) -> PathBuf {
        self.folder.join(format!("{}{}{suffix}", program_of(self.family), self.infix))
    }

    fn checked(&self, command: &mut Command, script: Option<&str>) -> Result<Output, IptablesError> {
        let program = Path::new(command.get_program()).display().to_string();
        match child::run(command, script.unwrap_or_default().as_bytes(), LONGEST_WORK) {
            Ok(output) if output.status.success() => Ok(output),
            Ok(output) => {
                let words = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
                Err(IptablesError::Failed { program, words })
            }
            Err(why) => Err(IptablesError::Run { program, why }),
        }
    }
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn ask(command: &mut Command) -> Result<Output, std::io::Error> {
    child::run(command, b"", LONGEST_ANSWER)
}

//! The file of ip-masq-agent, followed while it changes. Takes its path, gives the configuration that holds.
//!
//! A file that is gone means the defaults, as with the original; but programs replace files by removing or emptying
//! them first, so a loss is believed only after a moment. A file with faults changes nothing.

use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use flannel_files::MOST_BY_HAND;
use flannel_plan::masq_agent::config::{AgentConfig, AgentFaults};

use super::flags::AgentOptions;
use super::yaml;

/// How long a file has to be gone or empty before that is believed.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileFault {
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// It is larger than any that is meant.
    #[error("it is larger than 1 MiB")]
    TooLarge,
    #[error("{0}")]
    NoObject(String),
    #[error(transparent)]
    Faults(#[from] AgentFaults),
}

/// What a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// There is none, or nothing in it: the defaults.
    Nothing(AgentConfig),
    Config(AgentConfig),
}

impl Said {
    /// The configuration that holds.
    pub fn config(&self) -> &AgentConfig {
        match self {
            Self::Nothing(config) | Self::Config(config) => config,
        }
    }
}

/// Reads the file as it is now.
pub fn read(options: &AgentOptions) -> Result<Said, FileFault> {
    let defaults = || AgentConfig::without_file(options.default_networks);
    match text(&options.config)?.filter(|text| !text.trim().is_empty()) {
        None => Ok(Said::Nothing(defaults())),
        Some(text) => {
            let json = yaml::to_json(&text).map_err(FileFault::NoObject)?;
            Ok(Said::Config(AgentConfig::parse(&json, options.default_networks, &options.families)?))
        }
    }
}

/// The text of the file; none if there is none.
fn text(path: &Path) -> Result<Option<String>, FileFault> {
    match flannel_files::read_text(path, MOST_BY_HAND) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == ErrorKind::FileTooLarge => Err(FileFault::TooLarge),
        text => Ok(Some(text?)),
    }
}

/// What the file said last, and since when it says nothing.
#[derive(Debug, Default)]
pub struct Followed {
    last: Option<Said>,
    lost: Option<Instant>,
}

impl Followed {
    /// Takes in what a reading gave at a moment; gives it if it is new. After a fault the last one holds.
    pub fn take(&mut self, read: Result<Said, FileFault>, now: Instant) -> Result<Option<&Said>, FileFault> {
        let lost = self.lost.take();
        let said = read?;
        if matches!((&said, &self.last), (Said::Nothing(_), Some(Said::Config(_)))) {
            let since = lost.unwrap_or(now);
            if now < since + PATIENCE {
                self.lost = Some(since);
                return Ok(None);
            }
        }
        Ok(if self.last.as_ref() == Some(&said) { None } else { Some(self.last.insert(said)) })
    }

    /// The configuration that holds; none before the first good one.
    pub fn said(&self) -> Option<&Said> {
        self.last.as_ref()
    }

    /// When a loss will be believed.
    pub fn next_reading(&self) -> Option<Instant> {
        self.lost.map(|since| since + PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::super::flags::{AgentParsed, parse};
    use super::*;
    use std::fs;

    fn options(path: &Path) -> AgentOptions {
        let words = [OsString::from("--config"), path.into()];
        let Ok(AgentParsed::Run(options)) = parse(&words) else { panic!("{words:?}") };
        options
    }

    /// What is read of a text in a file.
    fn said(text: &[u8]) -> Result<Said, String> {
        let folder = folder(text.len());
        let path = folder.join("file");
        fs::write(&path, text).unwrap();
        let said = read(&options(&path)).map_err(|fault| fault.to_string());
        fs::remove_dir_all(folder).unwrap();
        said
    }

    fn folder(number: usize) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("ip-masq-agent-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn count(said: &Said) -> usize {
        said.config().non_masquerade.len()
    }

    #[test]
    fn a_file_is_yaml_or_json_and_none_or_an_empty_one_means_the_defaults() {
        let yaml = said(b"nonMasqueradeCIDRs:\n- 10.0.0.0/8\n").unwrap();
        assert_eq!((count(&yaml), matches!(yaml, Said::Config(_))), (1, true));
        assert_eq!(said(br#"{"nonMasqueradeCIDRs":["10.0.0.0/8"]}"#).unwrap(), yaml);
        let nothing = read(&options(Path::new("/nonexistent/file"))).unwrap();
        assert_eq!((count(&nothing), matches!(nothing, Said::Nothing(_))), (3, true));
        assert_eq!(said(b" \n").unwrap(), nothing);
    }

    #[test]
    fn the_file_of_the_document_says_the_defaults() {
        let document = include_str!("../../../../docs/ip-masq-agent.md");
        let (_, rest) = document.split_once("```text ip-masq-agent\n").unwrap();
        let said = said(rest.split_once("```").unwrap().0.as_bytes()).unwrap();
        let defaults = AgentConfig::without_file(Default::default());
        assert_eq!(said, Said::Config(AgentConfig { nftables: Some(false), ..defaults }));
    }

    #[test]
    fn a_file_that_cannot_be_used_says_why() {
        let fault = |text: &[u8]| said(text).unwrap_err();
        assert!(fault(b"nonMasqueradeCIDRs: [abcdefg]").starts_with("nonMasqueradeCIDRs[0] is \"abcdefg\""));
        assert!(fault(b"nonMasqueradeCIDRs: [").starts_with("it is not YAML"));
        assert!(fault(&[0xff, 0xfe, 0x00]).starts_with("it cannot be read: "));
        assert_eq!(fault(&vec![b'#'; (1 << 20) + 1]), "it is larger than 1 MiB");
        let folder = std::env::temp_dir();
        assert!(read(&options(&folder)).unwrap_err().to_string().starts_with("it cannot be read: "));
    }

    #[test]
    fn a_loss_is_believed_after_a_moment_and_a_fault_changes_nothing() {
        let config = |text: &str| {
            let (networks, families) = (Default::default(), flannel_plan::family::Family::BOTH);
            Said::Config(AgentConfig::parse(text, networks, &families).unwrap())
        };
        let nothing = || Ok(Said::Nothing(AgentConfig::without_file(Default::default())));
        let (mut followed, start) = (Followed::default(), Instant::now());
        let first = config(r#"{"masqLinkLocal":true}"#);
        let is_new = |followed: &mut Followed, said, at| followed.take(said, at).unwrap().is_some();
        assert!(is_new(&mut followed, Ok(first.clone()), start));
        assert!(!is_new(&mut followed, Ok(first.clone()), start));
        assert!(followed.take(Err(FileFault::TooLarge), start).is_err());
        assert!(!is_new(&mut followed, nothing(), start));
        assert_eq!((followed.said(), followed.next_reading()), (Some(&first), Some(start + PATIENCE)));
        assert!(!is_new(&mut followed, Ok(first.clone()), start + PATIENCE));
        assert_eq!(followed.next_reading(), None);
        assert!(!is_new(&mut followed, nothing(), start + PATIENCE));
        assert!(is_new(&mut followed, nothing(), start + PATIENCE * 2));
        assert_eq!(followed.said(), nothing().ok().as_ref());
        assert!(!is_new(&mut followed, nothing(), start + PATIENCE * 3));
    }
}

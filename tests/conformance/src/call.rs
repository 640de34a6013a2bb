//! One call of a plugin, as a runtime makes it, and the answer.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::Site;

/// No plugin may take longer; the slowest of Go takes a tenth.
const LIMIT: &str = "60";

/// What a plugin reads.
#[derive(Clone, Debug)]
enum Input {
    Text(String),
    /// Something that cannot be read.
    Unreadable,
}

/// One call of a plugin.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    site: &'a Site,
    plugin: String,
    environment: BTreeMap<&'static str, String>,
    input: Input,
}

impl<'a> Call<'a> {
    /// A call of a plugin of a folder, as `c0ffee01` with `eth0` in `pod1`.
    pub fn new(site: &'a Site, folder: &Path, plugin: &str, command: &str) -> Self {
        let environment = [
            ("CNI_COMMAND", command.to_owned()),
            ("CNI_CONTAINERID", "c0ffee01".to_owned()),
            ("CNI_NETNS", "/run/netns/pod1".to_owned()),
            ("CNI_IFNAME", "eth0".to_owned()),
            ("CNI_PATH", folder.display().to_string()),
        ];
        let plugin = folder.join(plugin).display().to_string();
        Self { site, plugin, environment: environment.into(), input: Input::Text(String::new()) }
    }

    /// The configuration on standard input.
    pub fn config(self, config: &Value) -> Self {
        let text = config.to_string();
        self.text(text)
    }

    /// Any text on standard input.
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.input = Input::Text(text.into());
        self
    }

    /// A standard input that cannot be read.
    pub fn unreadable(mut self) -> Self {
        self.input = Input::Unreadable;
        self
    }

    /// Sets a variable.
    pub fn set(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.environment.insert(name, value.into());
        self
    }

    /// Takes a variable away.
    pub fn unset(mut self, name: &'static str) -> Self {
        self.environment.remove(name);
        self
    }

    /// Another container.
    pub fn container(self, id: &str) -> Self {
        self.set("CNI_CONTAINERID", id)
    }

    /// Another pod of the site.
    pub fn pod(self, name: &str) -> Self {
        self.set("CNI_NETNS", format!("/run/netns/{name}"))
    }

    /// Another interface.
    pub fn interface(self, name: &str) -> Self {
        self.set("CNI_IFNAME", name)
    }

    /// The result of an earlier plugin, or of an earlier ADD, in the configuration.
    pub fn previous(mut self, result: &Value) -> Self {
        let Input::Text(text) = &self.input else { panic!("a call with a configuration") };
        let mut config: Value = serde_json::from_str(text).unwrap();
        config["prevResult"] = result.clone();
        self.input = Input::Text(config.to_string());
        self
    }

    /// Makes the call and waits for the answer.
    pub fn run(self) -> Answer {
        self.start().wait()
    }

    /// Makes the call.
    pub fn start(self) -> Running {
        let mut command = self.site.command("timeout");
        command.args(["-k", "5", LIMIT, &self.plugin]).env_clear();
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").envs(&self.environment);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let what = format!("{} {}", self.environment.get("CNI_COMMAND").map_or("", |verb| verb), self.plugin);
        let child = match &self.input {
            Input::Unreadable => command.stdin(File::open("/").unwrap()).spawn().unwrap(),
            Input::Text(text) => {
                let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
                // A plugin that does not read is not a failure of the call.
                let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
                child
            }
        };
        Running { what, child }
    }
}

/// A call that is under way.
#[derive(Debug)]
pub struct Running {
    what: String,
    child: Child,
}

impl Running {
    /// Waits for the answer.
    pub fn wait(self) -> Answer {
        let output = self.child.wait_with_output().unwrap();
        Answer {
            what: self.what,
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// What a plugin said.
#[derive(Clone, Debug)]
pub struct Answer {
    what: String,
    /// Its exit status.
    pub status: i32,
    /// What it printed for the runtime.
    pub stdout: String,
    /// What it printed for a person.
    pub stderr: String,
}

impl Answer {
    /// The result of a call that must succeed with one.
    #[track_caller]
    pub fn result(&self) -> Value {
        assert_eq!(self.status, 0, "{}: {}{}", self.what, self.stdout, self.stderr);
        self.json()
    }

    /// For a call that must succeed and has nothing to say.
    #[track_caller]
    pub fn nothing(&self) {
        assert_eq!((self.status, &*self.stdout), (0, ""), "{}: {}", self.what, self.stderr);
    }

    /// The code of a call that must fail, and its words.
    #[track_caller]
    pub fn error(&self) -> (u64, String) {
        assert_eq!(self.status, 1, "{}: {}{}", self.what, self.stdout, self.stderr);
        let error = self.json();
        let words = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        let code = error["code"].as_u64();
        (
            code.unwrap_or_else(|| panic!("no code in {error}")),
            format!("{} {}", words("msg"), words("details")),
        )
    }

    /// For a call that must fail with a code and words that contain these.
    #[track_caller]
    pub fn fails(&self, code: u64, words: &str) {
        let (told_code, told) = self.error();
        assert!(
            told_code == code && told.contains(words),
            "{}: {told_code} {told}, not {code} {words}",
            self.what
        );
    }

    #[track_caller]
    fn json(&self) -> Value {
        let text = &self.stdout;
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{}: {error}: {text}", self.what))
    }
}

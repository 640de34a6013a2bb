//! One call of a plugin, as a runtime makes it: environment, standard input, and the answer, if it lives to give one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

/// One call of a plugin.
#[derive(Clone, Debug)]
pub struct Call {
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// All variables that it sees.
    pub environment: BTreeMap<OsString, OsString>,
    /// What it reads.
    pub stdin: Vec<u8>,
}

impl Call {
    /// A call of the plugin at a path.
    pub fn new(plugin: PathBuf, command: &str) -> Self {
        let mut environment = BTreeMap::from([("PATH".into(), "/usr/sbin:/usr/bin:/sbin:/bin".into())]);
        environment.insert("CNI_PATH".into(), plugin.parent().unwrap().into());
        environment.insert("CNI_COMMAND".into(), command.into());
        Self { program: vec![plugin.into()], environment, stdin: Vec::new() }
    }

    /// The same with a variable.
    pub fn set(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }

    /// The same without a variable.
    pub fn unset(mut self, name: &str) -> Self {
        self.environment.remove(&OsString::from(name));
        self
    }

    /// The same with a configuration.
    pub fn config(self, config: &Value) -> Self {
        self.stdin(config.to_string())
    }

    /// The same with any bytes on standard input.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// The same, run by another program: `words` in front.
    pub fn under(mut self, words: &[&str]) -> Self {
        self.program.splice(0..0, words.iter().map(OsString::from));
        self
    }

    /// Starts it, in a process group of its own.
    pub fn start(&self) -> Running {
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]).env_clear().envs(&self.environment).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("cannot run {:?}: {error}", self.program));
        let (mut pipe, bytes) = (child.stdin.take().unwrap(), self.stdin.clone());
        // A plugin that does not read to the end closes the pipe, which is its right.
        let mut write = move || drop(pipe.write_all(&bytes));
        if self.stdin.len() > 32 * 1024 {
            std::thread::spawn(write);
        } else {
            write();
        }
        Running { what: format!("{:?} {:?}", self.program, self.environment), child }
    }

    /// Starts it and waits for the answer.
    pub fn run(&self) -> Answer {
        self.start().wait()
    }
}

/// A call under way.
#[derive(Debug)]
pub struct Running {
    what: String,
    child: Child,
}

impl Running {
    /// Kills the plugin; what it started lives on.
    pub fn kill(&self) {
        // One that has just ended is still ours to wait for: its number is nobody else's.
        let _ = kill_process(Pid::from_child(&self.child), Signal::KILL);
    }

    /// Kills the plugin and what it started.
    pub fn kill_all(&self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }

    /// Whether it has ended, or waits for a lock that another has. Not by `/proc/locks`: that leaves out every lock
    /// whose holder is dead, which lives on in what the holder started.
    pub fn has_ended_or_waits(&mut self) -> bool {
        let waits_for =
            std::fs::read_to_string(format!("/proc/{}/wchan", self.child.id())).unwrap_or_default();
        self.child.try_wait().unwrap().is_some() || waits_for.starts_with("locks_lock")
    }

    /// Waits for the end.
    pub fn wait(self) -> Answer {
        let output = self.child.wait_with_output().unwrap();
        Answer {
            what: self.what,
            status: output.status.code(),
            signal: output.status.signal(),
            stdout: String::from_utf8(output.stdout).expect("an answer in UTF-8"),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// How a call ended.
#[derive(Clone, Debug)]
pub struct Answer {
    what: String,
    /// The exit status, if it ended by itself.
    pub status: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What it printed for the runtime.
    pub stdout: String,
    /// What it printed for a person.
    pub stderr: String,
}

impl Answer {
    /// Whether it was killed before it ended by itself.
    pub fn was_killed(&self) -> bool {
        self.signal == Some(Signal::KILL.as_raw())
    }

    /// The result of a call that must succeed.
    #[track_caller]
    pub fn result(&self) -> Value {
        assert_eq!(self.status, Some(0), "{}: {}{}", self.what, self.stdout, self.stderr);
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{}: {error}: {}", self.what, self.stdout))
    }

    /// For a call that must succeed and has nothing to say.
    #[track_caller]
    pub fn nothing(&self) {
        assert_eq!((self.status, &*self.stdout), (Some(0), ""), "{}: {}", self.what, self.stderr);
    }

    /// The code and the words of a call that must fail, as the specification wants a failure told.
    #[track_caller]
    pub fn error(&self) -> (u64, String) {
        let (what, told) = (&self.what, &self.stdout);
        assert_eq!(self.status, Some(1), "{what}: signal {:?}: {told}{}", self.signal, self.stderr);
        let error: Value =
            serde_json::from_str(told).unwrap_or_else(|error| panic!("{what}: {error}: {told}"));
        let words = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        let (msg, details) = (words("msg"), words("details"));
        assert!(!msg.is_empty(), "{what}: no message in {told}");
        let code = error["code"].as_u64().filter(|code| *code != 0);
        (code.unwrap_or_else(|| panic!("{what}: no code in {told}")), format!("{msg}; {details}"))
    }
}

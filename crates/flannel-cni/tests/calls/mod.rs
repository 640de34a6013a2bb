//! Calls of the built program by the names of its plugins, in a folder, an environment and namespaces of their
//! own, and what Go's plugins answered to the same calls.
#![allow(dead_code, reason = "each test file uses a part of it")]

#[path = "../own_run/mod.rs"]
mod own_run;

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

use flannel_kernel::netns::{Namespace, run_inside};
use serde_json::Value;

use own_run::hide_run;

/// The names of the plugins.
pub const PLUGINS: [&str; 5] = ["flannel", "bridge", "host-local", "portmap", "loopback"];

/// A folder of a test: `bin` holds the plugins.
pub struct Stage {
    folder: tempfile::TempDir,
}

/// What a call gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub exit: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    /// What was printed, which must be JSON, or nothing.
    pub fn json(&self) -> Value {
        match &*self.stdout {
            "" => Value::from(""),
            text => text.parse().unwrap_or_else(|error| panic!("{error}: {text:?}")),
        }
    }

    /// The code and the message of an error.
    pub fn error(&self) -> (i64, String) {
        assert_eq!(self.exit, 1, "{self:?}");
        let json = self.json();
        (json["code"].as_i64().unwrap(), json["msg"].as_str().unwrap().to_owned())
    }
}

/// One call, which is made by `run`.
#[derive(Clone)]
pub struct Call {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(String, OsString)>,
    stdin: Vec<u8>,
}

impl Stage {
    /// A folder whose `bin` has all plugins.
    pub fn new() -> Self {
        let stage = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(stage.path("bin")).unwrap();
        for plugin in PLUGINS {
            symlink(env!("CARGO_BIN_EXE_flannel-cni"), stage.path("bin").join(plugin)).unwrap();
        }
        stage
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub fn text(&self, file: &str) -> String {
        self.path(file).to_str().unwrap().to_owned()
    }

    pub fn write(&self, file: &str, content: &str) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    /// The names in a folder; none if it is not there.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(folder)) else { return Vec::new() };
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Puts a script in the place of a plugin.
    pub fn script(&self, plugin: &str, script: &str) {
        let path = self.path("bin").join(plugin);
        let _ = fs::remove_file(&path);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A call of a plugin for the container `c0ffee01` and its `eth0`, whose namespace is gone.
    pub fn call(&self, plugin: &str, command: &str) -> Call {
        let call = self.bare(plugin).env("CNI_COMMAND", command).env("CNI_PATH", self.text("bin"));
        let call = call.env("CNI_CONTAINERID", "c0ffee01").env("CNI_IFNAME", "eth0");
        call.env("CNI_NETNS", self.text("gone"))
    }

    /// A call of a plugin without any variable.
    pub fn bare(&self, plugin: &str) -> Call {
        let program = self.path("bin").join(plugin);
        Call { program, arguments: Vec::new(), environment: Vec::new(), stdin: Vec::new() }
    }
}

impl Call {
    pub fn env(mut self, key: &str, value: impl Into<OsString>) -> Self {
        self.environment.retain(|(known, _)| known != key);
        self.environment.push((key.into(), value.into()));
        self
    }

    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// The same with another folder in the place of `/run`.
    pub fn run_folder(mut self, folder: PathBuf) -> Self {
        fs::create_dir_all(&folder).unwrap();
        let plugin = std::mem::replace(&mut self.program, "/usr/bin/unshare".into());
        let script = "mount --bind \"$0\" /run && exec \"$1\"";
        let arguments: [OsString; 6] =
            ["-m".into(), "sh".into(), "-c".into(), script.into(), folder.into(), plugin.into()];
        self.arguments.splice(0..0, arguments);
        self
    }

    pub fn config(self, config: &Value) -> Self {
        self.stdin(config.to_string())
    }

    /// Makes the call, in the network namespace of this thread, and with a `/run` of its own.
    pub fn run(&self) -> Outcome {
        let with_own_run = || {
            hide_run();
            self.run_here()
        };
        std::thread::scope(|scope| scope.spawn(with_own_run).join().unwrap())
    }

    fn run_here(&self) -> Outcome {
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .envs(self.environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let output = std::thread::scope(|scope| {
            // One that does not read to the end closes the pipe.
            scope.spawn(move || drop(pipe.write_all(&self.stdin)));
            child.wait_with_output().unwrap()
        });
        Outcome {
            exit: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Runs a test in a namespace that is its host, with the path of another that is its pod.
pub fn with_a_pod(test: impl FnOnce(&Path) + Send) {
    run_inside(&Namespace::Fresh, || {
        std::thread::scope(|scope| {
            let (tell, hear) = channel();
            let (end, ended) = channel::<()>();
            scope.spawn(move || {
                run_inside(&Namespace::Fresh, move || {
                    let thread = rustix::thread::gettid().as_raw_nonzero();
                    tell.send(format!("/proc/{}/task/{thread}/ns/net", std::process::id())).unwrap();
                    let _ = ended.recv();
                })
                .unwrap();
            });
            let end = end; // dropped when the test is over, however it ends
            test(Path::new(&hear.recv().unwrap()));
            drop(end);
        });
    })
    .unwrap();
}

/// Runs something inside the namespace of a path.
pub fn inside<T: Send>(netns: &Path, work: impl FnOnce() -> T + Send) -> T {
    run_inside(&Namespace::AtPath(netns.to_owned()), work).unwrap()
}

/// What Go's plugins were asked, what they answered and what they left.
pub fn golden(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.json"));
    fs::read_to_string(path).unwrap().parse().unwrap()
}

/// The steps of a golden case.
pub fn steps(case: &Value) -> &[Value] {
    case["steps"].as_array().unwrap()
}

/// A step as a call, with other paths than Go's.
pub fn call_of(stage: &Stage, step: &Value) -> Call {
    let mut call = stage.bare(step["plugin"].as_str().unwrap()).env("CNI_PATH", stage.text("bin"));
    for (key, value) in step["env"].as_object().unwrap() {
        call = call.env(key, value.as_str().unwrap());
    }
    match &step["stdin"] {
        Value::String(text) => call.stdin(text.clone()),
        config => call.config(config),
    }
}

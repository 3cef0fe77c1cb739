//! The output of a process, and its end.

use std::process::{ExitStatus, Output};
use std::time::Duration;

use serde_json::Value;

/// The end of one run of the plugin, or of another program.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The command, for messages.
    pub what: String,
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    pub elapsed: Duration,
}

impl Outcome {
    pub fn new(what: String, output: Output, elapsed: Duration) -> Self {
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Self { what, status: output.status, stdout, stderr, elapsed }
    }

    /// stdout as the one JSON document that it must be.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("no JSON on stdout ({error}): {self}"))
    }

    pub fn succeeded(&self) -> bool {
        self.status.success()
    }

    /// It succeeded; its output.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert!(self.succeeded(), "should have succeeded: {self}");
        if self.stdout.trim().is_empty() { Value::Null } else { self.json() }
    }

    /// It succeeded and said nothing on stdout, as DEL, CHECK, GC and STATUS do.
    #[track_caller]
    pub fn silent(&self) {
        assert!(self.succeeded(), "should have succeeded: {self}");
        assert!(self.stdout.is_empty(), "should have printed nothing: {self}");
    }

    /// It failed with this CNI error; the error object.
    #[track_caller]
    pub fn error(&self, code: u64) -> Value {
        assert_eq!(self.status.code(), Some(1), "should have failed with exit status 1: {self}");
        let error = self.json();
        assert_eq!(error["code"].as_u64(), Some(code), "should have been error {code}: {self}");
        assert!(error["msg"].as_str().is_some_and(|msg| !msg.is_empty()), "an error has a msg: {self}");
        error
    }

    /// The code of the error, if it failed with one.
    pub fn error_code(&self) -> Option<u64> {
        serde_json::from_str::<Value>(&self.stdout).ok()?["code"].as_u64()
    }

    /// The addresses of a successful ADD with their prefix lengths, in any CNI version's shape.
    #[track_caller]
    pub fn addresses(&self) -> Vec<String> {
        let result = self.ok();
        let old = [&result["ip4"]["ip"], &result["ip6"]["ip"]];
        let new = result["ips"].as_array().into_iter().flatten().map(|ip| &ip["address"]);
        old.into_iter().chain(new).filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// The only address of a successful ADD, without its prefix length.
    #[track_caller]
    pub fn address(&self) -> String {
        let addresses = self.addresses();
        assert_eq!(addresses.len(), 1, "should be one address: {self}");
        addresses[0].split('/').next().expect("split yields at least one part").to_owned()
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, status, stdout, stderr, elapsed } = self;
        write!(f, "{what}: {status} after {elapsed:?}\nstdout: {stdout}\nstderr: {stderr}")
    }
}

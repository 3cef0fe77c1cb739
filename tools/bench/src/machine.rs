//! The machine on which was measured: times mean nothing without it. Its name is left out.

use std::fmt;
use std::fs;
use std::process::Command;
use std::time::SystemTime;

use support::{metes, tool};

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    pub(crate) etcd: String,
    pub(crate) metes: String,
    pub(crate) at: String,
}

impl Machine {
    pub(crate) fn here() -> Self {
        Self {
            processor: processor(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            etcd: first_line(&mut Command::new(tool("etcd"))),
            metes: first_line(&mut Command::new(metes())),
            at: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processor, cores, kernel, etcd, metes, at } = self;
        write!(f, "{metes}, {etcd}, {cores} x {processor}, Linux {kernel}, {at}")
    }
}

fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = info.lines().find(|line| line.starts_with("model name"));
    named.and_then(|line| line.split(": ").nth(1)).unwrap_or("an unknown processor").to_owned()
}

/// Of `--version`.
fn first_line(program: &mut Command) -> String {
    let output = program.arg("--version").output().expect("a program tells its version");
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().replace(" Version:", "")
}

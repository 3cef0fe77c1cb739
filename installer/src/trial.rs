//! Tries the plugin of this image on its node before it takes the place of the one that is there.
//!
//! Both run as the runtime runs them, with the host file that is in place. What this pod has not mounted, or not at its
//! path on the node, is not there for them: without node state, STATUS judges etcd as of this moment, leaves nothing,
//! and fails at once if etcd is away. So an outage blocks nothing: both fail.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::log::one_line;

/// The time for one run: far above STATUS's deadline of 1 s.
const RUN_MAX: Duration = Duration::from_secs(10);
/// The time in which all that a run has printed is read after its end.
const PIPE_MAX: Duration = Duration::from_secs(1);
/// The pause between two looks whether a run has ended.
const PAUSE: Duration = Duration::from_millis(5);
/// The bytes that are read of what a run prints.
const PRINTED_BYTES: u64 = 64 << 10;

/// Where the plugins run.
pub(crate) struct Trial<'a> {
    /// The folder of the plugins.
    pub(crate) bin_dir: &'a Path,
    /// The host file of this node.
    pub(crate) host_file: &'a Path,
}

/// Why a run did not succeed.
struct Failed {
    what: String,
    remedy: &'static str,
}

impl Trial<'_> {
    /// Fails if the `new` plugin must not take the place of the `old` one: it does not run here, or its STATUS fails
    /// while that of the old one succeeds. Returns how its STATUS ends, if it fails and that blocks nothing.
    pub(crate) fn judge(&self, new: &Path, old: &Path) -> Result<Option<String>, Failure> {
        self.version(new).map_err(|Failed { what, remedy }| {
            Failure::new(format!(
                "the plugin of this image is refused, because it does not run here: VERSION {what}: {remedy}"
            ))
        })?;
        let Err(said) = self.status(new) else { return Ok(None) };
        if !old.exists() {
            return Ok(Some(said.what));
        }
        // Between two runs, an outage may begin or end: only what is so twice counts.
        for _ in 0..2 {
            let is_worse = self.status(old).is_ok() && self.status(new).is_err();
            if !is_worse {
                return Ok(Some(said.what));
            }
        }
        Err(Failure::new(format!(
            "the plugin of this image is refused, because its STATUS fails and that of the present one succeeds: \
             STATUS {}: correct what it names, or go back to the image before",
            said.what
        )))
    }

    fn version(&self, plugin: &Path) -> Result<(), Failed> {
        let printed = self.run(plugin, "VERSION", &json!({"cniVersion": "1.1.0"}))?;
        let answer: Value = serde_json::from_slice(&printed).unwrap_or_default();
        match answer["supportedVersions"].as_array() {
            Some(versions) if !versions.is_empty() => Ok(()),
            _ => Err(Failed {
                what: format!("lists no versions: {}", told(&printed)),
                remedy: "the image has another program in its place",
            }),
        }
    }

    fn status(&self, plugin: &Path) -> Result<(), Failed> {
        let config = json!({
            "cniVersion": "1.1.0", "name": "metes-install", "type": "metes", "ipam": {"type": "metes"},
        });
        self.run(plugin, "STATUS", &config).map(|_| ())
    }

    /// Runs one verb to its end, and returns what it has printed.
    fn run(&self, plugin: &Path, verb: &str, config: &Value) -> Result<Vec<u8>, Failed> {
        let mut command = Command::new(plugin);
        command
            .env_clear()
            .env("CNI_COMMAND", verb)
            .env("CNI_PATH", self.bin_dir)
            .env("METES_CONF", self.host_file);
        run_to_end(&mut command, config.to_string().as_bytes())
    }
}

/// The version that a plugin says it has, if it says one.
pub(crate) fn version_of(plugin: &Path) -> Option<String> {
    let printed = run_to_end(Command::new(plugin).env_clear().arg("--version"), b"").ok()?;
    let version = told(&printed).split(' ').next_back()?.to_owned();
    version.starts_with(|first: char| first.is_ascii_digit()).then_some(version)
}

/// What a program prints that succeeds in time.
fn run_to_end(command: &mut Command, input: &[u8]) -> Result<Vec<u8>, Failed> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // So that what it has started ends with it.
        .process_group(0);
    let mut child = command.spawn().map_err(|e| not_started(&e))?;
    if let Some(mut stdin) = child.stdin.take() {
        // It fits into a pipe; a plugin that reads nothing has closed it.
        let _ = stdin.write_all(input);
    }
    let (stdout, stderr) = (child.stdout.take().map(read), child.stderr.take().map(read));
    let ended = wait(&mut child);
    // What it has left running may hold the pipes open.
    let printed = |pipe: Option<Receiver<Vec<u8>>>| {
        pipe.and_then(|pipe| pipe.recv_timeout(PIPE_MAX).ok()).unwrap_or_default()
    };
    let (stdout, stderr) = (printed(stdout), printed(stderr));
    let said = || told(if stdout.is_empty() { &stderr } else { &stdout });
    match ended {
        Ok(Some(status)) if status.success() => Ok(stdout),
        Ok(Some(status)) => Err(Failed {
            what: format!("ends with {status}: {}", said()),
            remedy: "the image is damaged, or for other nodes than this one",
        }),
        Ok(None) => Err(Failed {
            what: format!("has not ended within {} s and was killed: {}", RUN_MAX.as_secs(), said()),
            remedy: "look at the load of this node, or go back to the image before",
        }),
        Err(e) => Err(Failed { what: format!("cannot be waited for: {e}"), remedy: "it is tried again" }),
    }
}

fn not_started(e: &io::Error) -> Failed {
    let remedy = match Errno::from_io_error(e) {
        Some(Errno::NOEXEC) => "the image is for another architecture than this node's",
        Some(Errno::ACCESS) => {
            "the folder of the plugins is mounted with noexec, or SELinux or AppArmor forbids this pod to run it"
        }
        Some(Errno::NOENT) => "it needs a loader that is not there: take the image's static program",
        _ => "the image is damaged, or this node lacks memory or processes",
    };
    Failed { what: format!("cannot be started: {e}"), remedy }
}

/// The status of a child that has ended in time; none if it was killed.
fn wait(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let until = Instant::now() + RUN_MAX;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= until {
            kill_group(child);
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(PAUSE);
    }
}

/// Kills a child that nobody has waited for yet, and all that it has started.
fn kill_group(child: &Child) {
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        // It may just have ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

fn read(pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (done, all) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut pipe = pipe.take(PRINTED_BYTES);
        let _ = pipe.read_to_end(&mut bytes);
        // Nobody waits for it any more.
        let _ = done.send(bytes);
        let _ = io::copy(&mut pipe.into_inner(), &mut io::sink());
    });
    all
}

/// What a run has printed, in one line of a log: the text of an error, if it is one of CNI.
fn told(printed: &[u8]) -> String {
    let error: Value = serde_json::from_slice(printed).unwrap_or_default();
    let text = match (error["msg"].as_str(), error["details"].as_str()) {
        (Some(msg), Some(details)) => format!("{msg}; {details}"),
        (Some(msg), None) => msg.to_owned(),
        _ => String::from_utf8_lossy(printed).trim().to_owned(),
    };
    if text.is_empty() {
        return "it prints nothing".to_owned();
    }
    one_line(&text)
}

//! One run of the plugin: its environment and stdin, and the process while it runs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::ioctl_fionread;
use rustix::process::Signal;
use serde_json::Value;

use super::outcome::Outcome;
use super::process::{signal, state, stop};
use super::wait::wait_for;

/// Longer than every deadline of the plugin.
const RUN_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_micros(20);
/// The bytes that a pipe takes without a reader.
const PIPE_BYTES: usize = 32 * 1024;

/// A run that is being prepared. Its environment is PATH and the variables that are set here, nothing else.
#[derive(Clone, Debug)]
pub struct Run {
    program: PathBuf,
    arguments: Vec<String>,
    env: BTreeMap<String, OsString>,
    stdin: Vec<u8>,
    keeps_stdin_open: bool,
    folder: Option<PathBuf>,
}

/// Runs in a mount namespace of its own, with another machine id.
const ELSEWHERE: &str = r#"
    mount --bind "$0" /etc/machine-id
    [ ! -f /var/lib/dbus/machine-id ] || mount --bind "$0" /var/lib/dbus/machine-id
    exec "$@""#;

impl Run {
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let env = BTreeMap::from([("PATH".to_owned(), path)]);
        Self {
            program: program.into(),
            arguments: Vec::new(),
            env,
            stdin: Vec::new(),
            keeps_stdin_open: false,
            folder: None,
        }
    }

    /// Another build of it.
    pub fn program(self, program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), ..self }
    }

    /// Runs it on a machine whose id is this; it may be empty. A file of the id is left in the folder.
    pub fn on_machine(self, folder: &Path, id: &str) -> Outcome {
        let file = folder.join("machine-id");
        fs::write(&file, id).expect("written");
        let file = file.display().to_string();
        let program = self.program.display().to_string();
        let before = ["--mount", "sh", "-e", "-c", ELSEWHERE, &file, &program].map(str::to_owned);
        let arguments = before.into_iter().chain(self.arguments.clone()).collect();
        Self { program: "unshare".into(), arguments, ..self }.run()
    }

    pub fn arguments<S: AsRef<str>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.insert(name.to_owned(), value.into());
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.env.remove(name);
        self
    }

    pub fn container(self, id: &str) -> Self {
        self.env("CNI_CONTAINERID", id)
    }

    pub fn ifname(self, name: &str) -> Self {
        self.env("CNI_IFNAME", name)
    }

    pub fn netns(self, path: impl AsRef<Path>) -> Self {
        self.env("CNI_NETNS", path.as_ref())
    }

    pub fn cni_path(self, path: impl AsRef<Path>) -> Self {
        self.env("CNI_PATH", path.as_ref())
    }

    /// CNI_ARGS as written.
    pub fn args(self, args: &str) -> Self {
        self.env("CNI_ARGS", args)
    }

    /// CNI_ARGS as container runtimes write them for a pod.
    pub fn pod(self, namespace: &str, name: &str, uid: &str) -> Self {
        let pod = format!("K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_UID={uid}");
        self.args(&format!("IgnoreUnknown=1;{pod}"))
    }

    /// The network configuration on stdin.
    pub fn config(self, config: &Value) -> Self {
        self.stdin(config.to_string())
    }

    /// stdin as it is, for texts that are no valid configuration.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Its current folder.
    pub fn within(self, folder: &Path) -> Self {
        Self { folder: Some(folder.to_owned()), ..self }
    }

    /// stdin is not closed as long as it runs.
    pub fn keeps_stdin_open(self) -> Self {
        Self { keeps_stdin_open: true, ..self }
    }

    #[track_caller]
    pub fn run(self) -> Outcome {
        self.spawn().wait()
    }

    #[track_caller]
    pub fn spawn(self) -> Running {
        let what = self.describe();
        let start = Instant::now();
        let folder = self.folder.as_deref().unwrap_or(Path::new("."));
        let mut child = Command::new(&self.program)
            .current_dir(folder)
            .args(&self.arguments)
            .env_clear()
            .envs(&self.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", self.program.display()));
        let stdin = child.stdin.take().expect("stdin is piped");
        let open = if self.keeps_stdin_open { stdin.as_fd().try_clone_to_owned().ok() } else { None };
        feed(stdin, self.stdin);
        let stdout = read_all(child.stdout.take().expect("stdout is piped"));
        let stderr = read_all(child.stderr.take().expect("stderr is piped"));
        Running { child, what, start, stdout, stderr, _open: open }
    }

    fn describe(&self) -> String {
        let named = |name: &str| self.env.get(name).map(|value| value.to_string_lossy().into_owned());
        let verb = named("CNI_COMMAND").unwrap_or_default();
        let container = named("CNI_CONTAINERID").unwrap_or_default();
        let program = self.program.file_name().unwrap_or_default().to_string_lossy();
        format!("{program} {} {verb} {container}", self.arguments.join(" "))
    }
}

/// A plugin may end without reading all of it, and the rest may fill the pipe.
fn feed(mut stdin: ChildStdin, bytes: Vec<u8>) {
    if bytes.len() <= PIPE_BYTES {
        // A plugin that has ended already has closed the pipe.
        let _ = stdin.write_all(&bytes);
    } else {
        thread::spawn(move || stdin.write_all(&bytes));
    }
}

fn read_all(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (done, all) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // A pipe breaks only with its process; the bytes before that count.
        let _ = pipe.read_to_end(&mut bytes);
        // Nobody waits for a run that was given up.
        let _ = done.send(bytes);
    });
    all
}

/// A run under way. Dropped without [`Running::wait`], it is killed.
#[derive(Debug)]
pub struct Running {
    child: Child,
    what: String,
    start: Instant,
    stdout: Receiver<Vec<u8>>,
    stderr: Receiver<Vec<u8>>,
    /// Its stdin, held open.
    _open: Option<OwnedFd>,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGSTOP; it has stopped when this returns.
    pub fn stop(&self) {
        stop(&self.child);
    }

    /// SIGCONT.
    pub fn resume(&self) {
        signal(&self.child, Signal::CONT);
    }

    /// SIGTERM; [`Running::wait`] tells how it ended.
    pub fn terminate(&self) {
        signal(&self.child, Signal::TERM);
    }

    /// SIGINT; [`Running::wait`] tells how it ended.
    pub fn interrupt(&self) {
        signal(&self.child, Signal::INT);
    }

    /// SIGKILL; [`Running::wait`] tells how it ended.
    pub fn kill(&mut self) {
        self.child.kill().expect("an own child can be killed");
    }

    /// True if it has stopped itself; an end is none.
    pub fn has_stopped(&self) -> bool {
        state(&self.child) == Some('T')
    }

    /// Waits until it has stopped itself.
    #[track_caller]
    pub fn wait_until_stopped(&mut self) {
        wait_for("it to stop itself", RUN_MAX, || {
            assert!(self.is_running(), "it ended and did not stop itself: {}", self.what);
            if self.has_stopped() { Ok(()) } else { Err("it runs".to_owned()) }
        });
    }

    /// True if it has read all of its stdin, or has ended. A plugin has taken its start by then.
    pub fn has_read_stdin(&self) -> bool {
        // The file of a process that has ended cannot be opened.
        let stdin = File::open(format!("/proc/{}/fd/0", self.child.id()));
        stdin.map_or(true, |pipe| ioctl_fionread(&pipe).expect("a pipe counts its bytes") == 0)
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("an own child can be asked").is_none()
    }

    #[track_caller]
    pub fn wait(mut self) -> Outcome {
        let [stdout, stderr] = [&self.stdout, &self.stderr].map(|pipe| {
            pipe.recv_timeout(RUN_MAX).unwrap_or_else(|_| panic!("not done in {RUN_MAX:?}: {}", self.what))
        });
        // With both pipes closed it is about to end: a coarser pause would be measured as its work.
        let closed = Instant::now();
        while self.is_running() {
            assert!(closed.elapsed() < RUN_MAX, "closed its output but runs on: {}", self.what);
            thread::sleep(POLL);
        }
        let elapsed = self.start.elapsed();
        let status = self.child.wait().expect("it has ended");
        Outcome::new(std::mem::take(&mut self.what), Output { status, stdout, stderr }, elapsed)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself, and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

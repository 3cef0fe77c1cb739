//! Servers that end with the test process, however that ends.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use std::{env, fs, process, thread};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::tool::root;
use super::wait::wait_for;

const STOP_MAX: Duration = Duration::from_secs(5);

type Request = (Command, Sender<io::Result<Child>>);

/// Starts `program` so that the kernel kills it when this process dies.
///
/// A parent-death signal counts the death of the *thread* that started the child, and test threads end with
/// their test: a thread that never ends starts them all.
pub fn spawn_bound(program: &Path, configure: impl FnOnce(&mut Command)) -> io::Result<Child> {
    static KEEPER: OnceLock<Mutex<Sender<Request>>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| Mutex::new(start_keeper()));
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    configure(&mut command);
    let (answer, answered) = mpsc::channel();
    keeper.lock().expect("sending does not panic").send((command, answer)).expect("the keeper never ends");
    answered.recv().expect("the keeper answers")
}

fn start_keeper() -> Sender<Request> {
    let (requests, requested) = mpsc::channel::<Request>();
    thread::Builder::new()
        .name("keeper".to_owned())
        .spawn(move || {
            for (mut command, answer) in requested {
                // Nobody listens only when the asking test has panicked.
                let _ = answer.send(command.spawn());
            }
        })
        .expect("a thread starts");
    requests
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("a child that was not waited for can be signalled");
}

/// SIGSTOP, and waits until it has stopped (or ended), so that the test finds it stopped.
pub(crate) fn stop(child: &Child) {
    signal(child, Signal::STOP);
    wait_for("a process to stop", STOP_MAX, || match state(child) {
        Some(state @ ('R' | 'S' | 'D')) => Err(format!("its state is {state}")),
        _ => Ok(()),
    });
}

/// The state letter that follows the command's name in brackets.
pub(crate) fn state(child: &Child) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// A name that no other test and no other run has at this time.
pub(crate) fn unique(stem: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{stem}{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A new folder that is removed with its value; the folder of a killed run goes with the next one.
pub fn temporary() -> TempDir {
    static BASE: OnceLock<PathBuf> = OnceLock::new();
    let base = BASE.get_or_init(|| {
        let base = folder_base();
        prepare(&base);
        base
    });
    temporary_of_run(base)
}

/// The same in memory, for files that in truth are on many disks: none of them waits for the disk of this machine.
pub fn temporary_in_memory() -> TempDir {
    let base = Path::new("/dev/shm/metes-tests");
    prepare(base);
    temporary_of_run(base)
}

fn prepare(base: &Path) {
    fs::create_dir_all(base).expect("the folder of all test folders can be made");
    sweep(base);
}

fn temporary_of_run(base: &Path) -> TempDir {
    TempDir::with_prefix_in(format!("{}-", process::id()), base).expect("a temporary folder can be made")
}

/// On the disk of the target folder, which hack/bench names: a folder in memory would make fsync free.
fn folder_base() -> PathBuf {
    let given = env::var_os("METES_TEST_FOLDER").map(PathBuf::from);
    let target = || env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    given.unwrap_or_else(|| target().join("tmp")).join("run")
}

/// Removes the folders of processes that are gone: `<process id>-<random>`.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).expect("the folder was just made").flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Another test process may be sweeping too: a folder may be gone already.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

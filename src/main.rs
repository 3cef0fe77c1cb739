//! The `metes` binary: a CNI plugin if CNI_COMMAND is set, else a tool for people.

use std::io::{self, Write};
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use metes::plugin::{self, Failed, Input};
use metes_config::cni::{Code, Environment, Error, Verb};
use metes_core::limits;
use metes_node::core;
use metes_node::node;
use metes_node::runs::RunLine;
use metes_node::setup;
use metes_node::stdin;
use tokio::time::Instant;

/// Whether the caller has its answer.
static ANSWERED: AtomicBool = AtomicBool::new(false);
/// Where this run leaves its line, once that is known.
static STATE_FOLDER: OnceLock<PathBuf> = OnceLock::new();

fn main() -> ExitCode {
    let start = node::start();
    let began = Instant::now();
    let parent = parent_id();
    core::keep_secret();
    let environment = Environment::from_lookup(|name| std::env::var(name).ok());
    if environment.command.is_empty() {
        return metes_ctl::start::main();
    }
    let verb = environment.verb();
    // The caller must get an answer, and release builds abort after this.
    #[allow(clippy::disallowed_methods, reason = "a panic returns to nobody")]
    std::panic::set_hook(Box::new(move |panic| {
        let _ = writeln!(io::stderr(), "metes has panicked: {panic}");
        if ANSWERED.load(Ordering::Relaxed) {
            std::process::exit(0);
        }
        let error = Error::new(Code::Internal, "metes has failed unexpectedly")
            .with_details("stderr says where; please report it");
        fail(Failed::from(error), verb);
        std::process::exit(1);
    }));
    let run = || {
        let until = began + verb.map_or(limits::STATUS_DEADLINE, Verb::deadline);
        let stdin = match verb {
            // VERSION needs nothing from there, and other plugins do not read it either.
            Some(Verb::Version) => Ok(Vec::new()),
            _ => stdin::read(limits::INPUT_BYTES, until.into_std()),
        };
        let host_file = std::env::var("METES_CONF").ok();
        let is_nad_etcd_allowed = setup::is_nad_etcd_allowed();
        let input = Input {
            start,
            until,
            parent,
            environment,
            host_file,
            is_nad_etcd_allowed,
            stdin,
            answered: &ANSWERED,
            state_folder: &STATE_FOLDER,
        };
        let runtime = runtime()?;
        let done = runtime.block_on(plugin::run(input, &mut io::stdout()));
        // The process ends now. Shutting the runtime down would take time for nothing, and longer than any deadline if
        // a resolver does not answer.
        std::mem::forget(runtime);
        done
    };
    let error = run().err().map(|failed| fail(failed, verb));
    leave_line(verb, error.as_ref(), began);
    if error.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Leaves a line of this run for the metrics of its node. No caller hears if that fails: it has its answer.
fn leave_line(verb: Option<Verb>, error: Option<&Error>, began: Instant) {
    let (Some(verb), Some(folder)) = (verb, STATE_FOLDER.get()) else { return };
    if let Err(e) = RunLine::of(verb, error, began.elapsed()).leave(folder) {
        tracing::debug!(folder = %folder.display(), error = %e, "this run leaves no line for metrics");
    }
}

/// Answers with an error, and returns it.
fn fail(failed: Failed, verb: Option<Verb>) -> Error {
    let error = if verb == Some(Verb::Del) { failed.error.for_del() } else { failed.error };
    let text = error.to_json(failed.version.map(|version| version.name()));
    // If nobody reads it any more, the exit code says the same.
    let _ = writeln!(io::stdout(), "{text}");
    error
}

fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::io(format!("this process cannot wait for the network: {e}")))
}

//! `metes-install`: the program that the pods of manifests/ run to install metes and its etcd.
//!
//! Its image has no shell and no other program, so each of its verbs is one step of an installation.

mod arguments;
mod care;
mod certificates;
mod client;
mod crl;
mod environment;
mod etcd;
mod failure;
mod files;
mod identity;
mod install;
mod issued;
mod issuing;
mod kubernetes;
mod log;
mod member;
mod metrics;
mod request;
mod restore;
mod revoke;
mod roles;
mod runtime;
mod seat;
mod signer;
mod snapshots;
mod stop;
mod template;
mod trial;
mod uninstall;

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use arguments::{Arguments, InstallArgs, SnapshotsArgs, UninstallArgs, Verb};
use clap::Parser;
use failure::Failure;
use install::Passed;
use log::{say, tell};
use request::Asker;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// The pause between two comparisons of the node with its target state.
const PAUSE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    keep_secret();
    match run(&Arguments::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            say(&e.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Prevents core files of this process, which makes the CA's key. The limit prevents files, and the flag also prevents
/// that a program gets the core over a pipe.
fn keep_secret() {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

fn run(verb: &Verb) -> Result<(), Failure> {
    match verb {
        Verb::Install(arguments) if arguments.check => install::check(arguments),
        Verb::Install(arguments) if arguments.once => install_once(arguments),
        Verb::Install(arguments) => install_for_ever(arguments),
        Verb::Uninstall(arguments) if arguments.check => uninstall::check(&arguments.place),
        Verb::Uninstall(arguments) if arguments.wait => uninstall_when_allowed(arguments),
        Verb::Uninstall(arguments) => uninstall::pass(arguments).map(|done| tell(&done)),
        Verb::Certificates(arguments) => certificates::make(arguments),
        Verb::Signer(arguments) => signer::run(arguments),
        Verb::Etcd(arguments) => etcd::run(arguments),
        Verb::EtcdCare(arguments) => care::run(arguments),
        Verb::EtcdRoles(arguments) => care::set_roles(arguments),
        Verb::Revoke(arguments) => revoke::run(arguments),
        Verb::EtcdSnapshot(arguments) => care::take_snapshot(arguments),
        Verb::EtcdDefragment(arguments) => care::defragment(arguments),
        Verb::Snapshots(arguments) => list_snapshots(arguments),
        Verb::SnapshotCopy(arguments) => snapshots::copy(arguments).map(|done| say(&done)),
        Verb::SnapshotPrint(arguments) => snapshots::print(arguments),
        Verb::EtcdRestore(arguments) => restore::restore(arguments).map(|done| tell(&[done])),
        Verb::Stay => stop::unless_terminated(std::future::pending::<()>()).map(drop),
        Verb::Copy(arguments) => files::copy_this_program(&arguments.out),
    }
}

fn list_snapshots(arguments: &SnapshotsArgs) -> Result<(), Failure> {
    snapshots::list(arguments)?;
    if !arguments.stay {
        return Ok(());
    }
    loop {
        thread::sleep(PAUSE);
    }
}

fn install_once(arguments: &InstallArgs) -> Result<(), Failure> {
    tell(install::pass(arguments, &mut Asker::default())?.doubt.as_slice());
    Ok(())
}

/// The files on the node stay when this process is stopped, at any moment.
fn install_for_ever(arguments: &InstallArgs) -> ! {
    let metrics = metrics::serve(arguments);
    let mut told = None;
    let mut asker = Asker::default();
    loop {
        let passed = install::pass(arguments, &mut asker);
        if let Some(metrics) = &metrics {
            metrics.passed(passed.as_ref().is_ok_and(|passed| passed.is_complete));
        }
        match passed {
            // Once, and not with each pass.
            Ok(Passed { doubt, .. }) if doubt == told => {}
            Ok(Passed { doubt, .. }) => {
                tell(doubt.as_slice());
                told = doubt;
            }
            Err(e) => say(&format!("not installed, what is there stays: {e}")),
        }
        thread::sleep(PAUSE);
    }
}

fn uninstall_when_allowed(arguments: &UninstallArgs) -> Result<(), Failure> {
    loop {
        match uninstall::pass(arguments) {
            Ok(done) => tell(&done),
            Err(e) => say(&e.to_string()),
        }
        thread::sleep(PAUSE);
    }
}

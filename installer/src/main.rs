//! `metes-install`: the program that the pods of manifests/ run to install metes and its etcd.
//!
//! Its image has no shell and no other program, so each of its verbs is one step of an installation.

mod arguments;
mod certificates;
mod etcd_config;
mod failure;
mod files;
mod install;
mod kubernetes;
mod template;
mod uninstall;

use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use arguments::{Arguments, InstallArgs, UninstallArgs, Verb};
use clap::Parser;
use failure::Failure;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// How often the node is compared with what it should be.
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
        Verb::Install(arguments) if arguments.once => install::pass(arguments).map(|done| tell(&done)),
        Verb::Install(arguments) => install_for_ever(arguments),
        Verb::Uninstall(arguments) if arguments.check => uninstall::check(&arguments.place),
        Verb::Uninstall(arguments) if arguments.wait => uninstall_when_allowed(arguments),
        Verb::Uninstall(arguments) => uninstall::pass(arguments).map(|done| tell(&done)),
        Verb::Certificates(arguments) => certificates::make(arguments),
        Verb::EtcdConfig(arguments) => etcd_config::write(arguments),
    }
}

/// What is on the node stays when this process is stopped, at any moment.
fn install_for_ever(arguments: &InstallArgs) -> ! {
    loop {
        match install::pass(arguments) {
            Ok(done) => tell(&done),
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

fn tell(lines: &[String]) {
    lines.iter().for_each(|line| say(line));
}

fn say(line: &str) {
    // If stderr is closed, nobody reads it.
    let _ = writeln!(io::stderr().lock(), "metes-install: {line}");
}

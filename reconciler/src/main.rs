//! The program: from the command line to an exit code.

use std::process::ExitCode;

use clap::Parser;
use metes_reconciler::cli::Cli;
use metes_reconciler::once::{self, fail};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return fail(&e.to_string()),
    };
    runtime.block_on(run(&cli))
}

async fn run(cli: &Cli) -> ExitCode {
    let ended = match &cli.command {
        Some(command) => match *command {},
        None => once::run(cli).await,
    };
    ended.unwrap_or_else(|e| fail(&e.to_string()))
}

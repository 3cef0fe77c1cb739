//! The program: from the command line to an exit code.

use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};
use metes_node::core;
use metes_reconciler::cli::Cli;
use metes_reconciler::command;
use metes_reconciler::once::{self, fail};
use metes_reconciler::serve;

fn main() -> ExitCode {
    core::keep_secret();
    let cli = Cli::try_parse().unwrap_or_else(|wrong| without_force(wrong).exit());
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return fail(&e.to_string()),
    };
    let code = runtime.block_on(run(&cli));
    // A resolver that does not answer would be waited for.
    runtime.shutdown_background();
    code
}

/// The flag that overrules the brake is no similar argument: a hand that types `--once` wants the opposite.
fn without_force(mut wrong: clap::Error) -> clap::Error {
    let is_force = |value: &ContextValue| matches!(value, ContextValue::String(flag) if flag == "--force");
    if wrong.get(ContextKind::SuggestedArg).is_some_and(is_force) {
        wrong.remove(ContextKind::SuggestedArg);
        // It has the flag, too.
        wrong.remove(ContextKind::Usage);
    }
    wrong
}

async fn run(cli: &Cli) -> ExitCode {
    let ended = match (&cli.command, &cli.serve.listen) {
        (Some(command), _) => command::run(cli, command).await,
        (None, Some(listen)) => serve::run(cli, listen).await.map(|()| ExitCode::SUCCESS),
        (None, None) => once::run(cli).await.map_err(|e| e.to_string()),
    };
    ended.unwrap_or_else(|why| fail(&why))
}

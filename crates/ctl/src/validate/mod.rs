//! `metes validate`: says what is wrong with networks, host files and pools before any pod starts.
//!
//! - `texts`: what stands in a file; `judge`: what is wrong with it. Both pure.
//! - `print`: for people, for programs, and as SARIF.
//!
//! It opens no store. Exit codes: 0 nothing is wrong, 1 something is, 2 something cannot be read.

mod judge;
mod print;
pub(super) mod texts;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::input::read_text;
use super::{CliError, Terminal};
use judge::Judgement;
use metes_config::Source;
use metes_config::validate::Severity;
use metes_core::limits;
use metes_node::setup;

/// Something cannot be read.
const UNREADABLE: u8 = 2;

pub(super) const VALIDATE_AFTER_HELP: &str = "\
All networks of a cluster:

  kubectl get network-attachment-definitions -A -o yaml | metes validate";

#[derive(Debug, Args)]
pub(super) struct ValidateArgs {
    /// Files; - for stdin
    #[arg(value_name = "FILE", default_value = "-")]
    files: Vec<PathBuf>,
    /// How to print
    #[arg(short = 'o', long = "output", value_enum, default_value_t = ValidateFormat::Table)]
    format: ValidateFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ValidateFormat {
    /// For people
    Table,
    /// For programs
    Json,
    /// For code hosts, which show it beside the lines
    Sarif,
}

/// Judges the files; `host_file` is that of the nodes.
pub(super) fn validate(
    host_file: Option<&Path>,
    args: &ValidateArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let named = host_file.map(|path| path.to_string_lossy());
    let source = match setup::host_file(named.as_deref(), None) {
        // The nodes have one, wherever this is run.
        Ok(host) => Source::of(host, setup::is_nad_etcd_allowed()).unwrap_or_default(),
        Err(e) => {
            terminal.tell(&format!("metes: {e}"));
            return Ok(ExitCode::from(UNREADABLE));
        }
    };
    let mut judgement = Judgement::new(source);
    for path in &args.files {
        match read_text(path, limits::VALIDATED_BYTES) {
            Ok((name, text)) => judgement.file(&name, &text),
            Err(e) => judgement.unreadable(e.to_string()),
        }
    }
    let judged = judgement.done();
    terminal.answer(&print::printed(&judged, args.format))?;
    judged.unreadable.iter().for_each(|why| terminal.tell(&format!("metes: {why}")));
    terminal.tell(&print::summary(&judged));
    let is_wrong = |severity| severity != Severity::Note;
    Ok(match judged.findings.iter().any(|finding| is_wrong(finding.issue.id.severity())) {
        _ if !judged.unreadable.is_empty() => ExitCode::from(UNREADABLE),
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

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
use judge::{Judged, Judgement};
use metes_config::validate::Severity;
use metes_config::{HostFile, Source, allowed};
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
    /// Print "allowed" of a host file that lets these definitions work
    #[arg(long, conflicts_with = "format")]
    print_allowed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ValidateFormat {
    /// For people
    Table,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
    /// For code hosts, which show it beside the lines
    Sarif,
}

/// A host file that refuses no definition: it is judged before there is a decision about it.
const UNDECIDED: &[u8] = br#"{"cluster": "any", "allowed": "any"}"#;

/// Judges the files; `host_file` is that of the nodes.
pub(super) fn validate(
    host_file: Option<&Path>,
    args: &ValidateArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    if args.print_allowed {
        return print_allowed(args, terminal);
    }
    let named = host_file.map(|path| path.to_string_lossy());
    let source = match setup::host_file(named.as_deref(), None) {
        // The nodes have one, wherever this is run.
        Ok(host) => Source::of(host, setup::is_nad_etcd_allowed()).unwrap_or_default(),
        Err(e) => {
            terminal.tell(&format!("metes: {e}"));
            return Ok(ExitCode::from(UNREADABLE));
        }
    };
    let judged = judged(args, source);
    match args.format {
        ValidateFormat::Table => terminal.answer(&print::text(&judged))?,
        ValidateFormat::Json => terminal.answer_json(&print::answer(&judged))?,
        ValidateFormat::Yaml => terminal.answer_yaml(&print::answer(&judged))?,
        ValidateFormat::Sarif => terminal.answer_json(&print::sarif(&judged))?,
    }
    judged.unreadable.iter().for_each(|why| terminal.tell(&format!("metes: {why}")));
    terminal.tell(&print::summary(&judged));
    let is_wrong = |severity| severity != Severity::Note;
    Ok(match judged.findings.iter().any(|finding| is_wrong(finding.issue.id.severity())) {
        _ if !judged.unreadable.is_empty() => ExitCode::from(UNREADABLE),
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

fn judged(args: &ValidateArgs, source: Source) -> Judged {
    let mut judgement = Judgement::new(source);
    for path in &args.files {
        match read_text(path, limits::VALIDATED_BYTES) {
            Ok((name, text)) => judgement.file(&name, &text),
            Err(e) => judgement.unreadable(e.to_string()),
        }
    }
    judgement.done()
}

/// Prints `allowed` for the definitions in the files, or nothing, and tells what is wrong with them.
fn print_allowed(args: &ValidateArgs, terminal: &mut Terminal<'_>) -> Result<ExitCode, CliError> {
    let host = HostFile::parse(UNDECIDED).map_err(|e| CliError::Refused(e.to_string()))?;
    let mut judged = judged(args, Source::HostFile(Box::new(host)));
    judged.findings.retain(|finding| finding.issue.id.severity() != Severity::Note);
    print::text(&judged).lines().for_each(|line| terminal.tell(line));
    let has_error = judged.findings.iter().any(|finding| finding.issue.id.severity() == Severity::Error);
    if judged.needs.is_empty() && judged.unreadable.is_empty() && !has_error {
        let files: Vec<_> = args.files.iter().map(|file| file.display().to_string()).collect();
        judged
            .unreadable
            .push(format!("there is no definition of a network that uses metes in {}", files.join(", ")));
    }
    judged.unreadable.iter().for_each(|why| terminal.tell(&format!("metes: {why}")));
    if !judged.unreadable.is_empty() {
        return Ok(ExitCode::from(UNREADABLE));
    }
    if has_error {
        return Ok(ExitCode::FAILURE);
    }
    let (text, told) = allowed::printed(&judged.needs);
    // A namespace may be none that Kubernetes can have.
    HostFile::parse(format!("{{{text}}}").as_bytes()).map_err(|e| CliError::Refused(e.to_string()))?;
    terminal.answer(&text)?;
    told.iter().for_each(|line| terminal.tell(&format!("metes: {line}")));
    Ok(ExitCode::SUCCESS)
}

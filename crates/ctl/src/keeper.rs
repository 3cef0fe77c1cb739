//! The file that keeps what `metes check --mend` deletes and replaces.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf, absolute};

use super::{CliError, Terminal};
use metes_audit::mend::kept::{Heading, KeptEntry, line};
use metes_audit::{MetaState, Report};
use metes_core::keys::Keys;
use metes_node::files;
use metes_node::node;

/// Makes the file when the first mend needs it.
pub(super) struct Keeper {
    path: PathBuf,
    file: Option<File>,
}

impl Keeper {
    /// In this file; by default in one of the current folder.
    pub(super) fn new(backup: Option<&Path>) -> Self {
        let time = node::timestamp().replace(['-', ':'], "");
        let default = || PathBuf::from(format!("metes-mended-{time}-{}.jsonl", std::process::id()));
        Self { path: backup.map_or_else(default, Path::to_owned), file: None }
    }

    /// Writes what a mend will delete and replace to disk. Where that fails, nothing may be mended.
    pub(super) fn keep(
        &mut self,
        keys: &Keys,
        report: &Report,
        kept: &[KeptEntry],
        terminal: &mut Terminal<'_>,
    ) -> Result<(), CliError> {
        if kept.is_empty() {
            return Ok(());
        }
        let is_new = self.file.is_none();
        let lines: String = kept.iter().map(line).collect();
        self.write(keys, report, &lines).map_err(|e| {
            CliError::Refused(format!(
                "it was not mended: what the mend deletes cannot be kept in {}: {e}; --backup FILE names another file",
                self.path.display()
            ))
        })?;
        if is_new {
            terminal.tell(&format!("metes: what is deleted or replaced is kept in {}", self.path.display()));
        }
        Ok(())
    }

    fn write(&mut self, keys: &Keys, report: &Report, lines: &str) -> io::Result<()> {
        if self.file.is_none() {
            self.path = absolute(&self.path)?;
            let mut file = files::make_new(&self.path)?;
            file.write_all(line(&heading(keys, report)).as_bytes())?;
            self.file = Some(file);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(lines.as_bytes())?;
        file.sync_all()
    }

    /// Where it is kept, if anything is.
    pub(super) fn words(&self) -> Option<String> {
        let path = self.path.display();
        self.file.as_ref().map(|_| {
            format!("kept what was deleted or replaced in {path}: `metes check --restore FILE` puts it back")
        })
    }
}

fn heading(keys: &Keys, report: &Report) -> Heading {
    Heading::new(keys, store_id(report), &node::timestamp())
}

/// The id of the store that was audited, if its meta can be read.
pub(super) fn store_id(report: &Report) -> Option<&str> {
    match &report.meta {
        MetaState::Known(meta, _) => Some(&meta.id),
        MetaState::Missing | MetaState::Unreadable => None,
    }
}

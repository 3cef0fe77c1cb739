//! Texts that a person gives to a command.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::CliError;
use metes_core::limits;
use metes_node::files::read_bounded;

/// True if a file is stdin.
fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// Refuses to read `content` from stdin, because somebody must answer a question there.
pub(super) fn answers_come_from_stdin(path: &Path, undone: &str, content: &str) -> Result<(), CliError> {
    if !is_stdin(path) {
        return Ok(());
    }
    Err(CliError::Refused(format!(
        "{undone}: stdin has {content}, so it cannot have the answer to a question; give --yes"
    )))
}

/// Parses each line of a file, without blank ones and comments. `undone` begins the refusal of a wrong line. Also
/// returns the file's name, for people.
pub(super) fn read_lines<T>(
    path: &Path,
    undone: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<(String, Vec<T>), CliError> {
    let (name, text) = read_text(path, limits::INPUT_BYTES)?;
    let lines = text.lines().enumerate().map(|(at, line)| (at, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let parse = |(at, line)| {
        parse(line).map_err(|why| CliError::Refused(format!("{undone}: {name}, line {}: {why}", at + 1)))
    };
    let parsed = lines.map(parse).collect::<Result<_, _>>()?;
    Ok((name, parsed))
}

/// A file's name, for people, and its text of at most so many bytes; `-` is stdin.
pub(super) fn read_text(path: &Path, most: u64) -> Result<(String, String), CliError> {
    let is_stdin = is_stdin(path);
    let name = if is_stdin { "stdin".to_owned() } else { path.display().to_string() };
    let bytes = match is_stdin {
        true => read_bounded(io::stdin().lock(), most),
        false => File::open(path).and_then(|file| read_bounded(file, most)),
    };
    let text = bytes
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8 text")));
    let text = text.map_err(|e| CliError::Refused(format!("cannot read {name}: {e}")))?;
    Ok((name, text))
}

/// A duration as people write it.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "expected a duration, such as 30s, 5m or 1h 30m".to_owned())
}

/// A number of rows.
pub(super) fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "expected a number from 1".to_owned())
}

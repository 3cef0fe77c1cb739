//! One run of the plugin, in one way through: parse what was given, connect to the store, carry out the command, and
//! print its answer. Each stage hands a value to the next one.

mod answer;
mod parse;
mod work;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use tokio::time::Instant;

use self::answer::VerbAnswer;
use self::parse::parse;
use self::work::work;
use metes_config::cni::{Environment, Error, Json, Version};
use metes_core::pool::RunStart;

/// The input of a run.
pub struct Input {
    /// When it began.
    pub start: Result<RunStart, Error>,
    /// By when it must have answered.
    pub until: Instant,
    /// The process that called, as it was when the run began.
    pub parent: u32,
    /// The CNI_* variables.
    pub environment: Environment,
    /// METES_CONF.
    pub host_file: Option<String>,
    /// True if METES_ALLOW_NAD_ETCD lets networks say where etcd is, on a node without a host file.
    pub is_nad_etcd_allowed: bool,
    /// Stdin, up to its bound.
    pub stdin: io::Result<Vec<u8>>,
    /// Set as soon as the caller has its answer: what fails after that is not answered once more.
    pub answered: &'static AtomicBool,
    /// Set as soon as it is known: the folder of the node's state.
    pub state_folder: &'static OnceLock<PathBuf>,
}

/// A failed run: the error and the version that it is told in, if that is known.
pub struct Failed {
    /// The error.
    pub error: Error,
    /// The configuration's version.
    pub version: Option<Version>,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, version: None }
    }
}

/// Carries out one command of CNI and prints its answer to `out`.
///
/// # Errors
/// [`Failed`]; then nothing was printed.
pub async fn run(input: Input, out: &mut impl Write) -> Result<(), Failed> {
    let done = match parse(&input) {
        Ok(None) => VerbAnswer::Versions.print(out, input.answered),
        Ok(Some((call, notes))) => work(&input, call, out).await.map_err(|e| e.with_notes(&notes)),
        Err(e) => Err(e),
    };
    done.map_err(|error| Failed { error, version: version_of(&input) })
}

/// The version that a configuration asks to be answered in, valid or not otherwise.
fn version_of(input: &Input) -> Option<Version> {
    let config = Json::parse(input.stdin.as_ref().ok()?).ok()?;
    Version::exactly(config.get("cniVersion")?.text()?)
}

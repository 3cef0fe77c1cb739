//! Writes the manual pages of `metes` from the command line that the program parses.

use std::{env, fs, io};

use metes_ctl::start::described;

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).ok_or_else(|| io::Error::other("say into which folder"))?;
    fs::create_dir_all(&folder)?;
    clap_mangen::generate_to(described(), &folder)
}

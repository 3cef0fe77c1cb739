//! Keeps the memory of this process, in which keys and passwords are, to itself.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// No core file is ever made of this process, and no other process of its user may read its memory.
///
/// The limit is for where core files are files; a program that takes them over a pipe is not asked for a
/// limit, and gets none because the process is not dumpable.
pub fn keep_secret() {
    // Neither is refused to anybody, and neither is a reason to leave a pod without an address.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

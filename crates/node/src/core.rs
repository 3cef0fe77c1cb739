//! Keeps the keys and passwords in the memory of this process secret.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// From here on no core file is made of this process, and no other process of its user may read its memory.
///
/// The limit stops core files that the kernel writes. Where the kernel pipes them to a program, the limit does not
/// count; that program gets none because the process is not dumpable.
pub fn keep_secret() {
    // The kernel refuses neither, and a failure would be no reason to leave a pod without an address.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

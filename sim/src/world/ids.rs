//! The numbers by which a world knows its processes and sandboxes.

/// Tells the processes of a world apart.
pub(crate) type ProcessId = u32;

/// The position of a sandbox in the list of all sandboxes.
pub(crate) type SandboxId = usize;

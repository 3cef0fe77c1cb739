//! What a CNI runtime says, and what it hears.

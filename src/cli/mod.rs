//! The verbs for people.

//! The flags that say how an answer is printed.

use clap::{Args, ValueEnum};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ListFormat {
    /// For people
    Table,
    /// A table with all columns, and nothing shortened
    Wide,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
    /// Only names, in the form that other commands take
    Name,
}

#[derive(Debug, Args)]
pub(super) struct ListOutput {
    /// How to print
    #[arg(short = 'o', long = "output", value_enum, default_value_t = ListFormat::Table)]
    pub(super) format: ListFormat,
    /// Leave out the first line, which has the names of the columns
    #[arg(long)]
    pub(super) no_headers: bool,
    /// The column to sort by
    #[arg(long, value_name = "FIELD")]
    pub(super) sort_by: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    Table,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
}

#[derive(Debug, Args)]
pub(super) struct Output {
    /// How to print
    #[arg(short = 'o', long = "output", value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
}

/// The word that means a value on the command line.
pub(super) fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

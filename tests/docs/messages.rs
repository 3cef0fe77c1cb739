//! All that the programs say: errors, warnings, logs and help, in one listing that is written to the target folder, for
//! people who want to read it in one go.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, Group, Literal, TokenStream, TokenTree};
use support::root;

use crate::layout::sources::rust_files;

/// Where programs are.
const FOLDERS: [&str; 4] = ["crates", "installer/src", "reconciler/src", "src"];
/// A message is a sentence, and not a name or a format.
const BLANKS_MIN: usize = 2;

struct Message {
    place: String,
    text: String,
}

/// The text literals of the programs that have some words, in the order of the sources.
fn messages() -> Vec<Message> {
    let mut messages = Vec::new();
    for folder in FOLDERS {
        let mut files = rust_files(&root().join(folder));
        files.sort();
        for file in files {
            let name = file.strip_prefix(root()).expect("it is in there").to_string_lossy().into_owned();
            if name.contains("/tests") {
                continue;
            }
            let text = fs::read_to_string(&file).expect("a source");
            let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
            collect(tokens, &name, &mut messages);
        }
    }
    messages
}

fn collect(tokens: TokenStream, file: &str, messages: &mut Vec<Message>) {
    let mut is_of_tests = false;
    let mut is_attribute = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                if is_attribute && group.stream().to_string() == "cfg (test)" {
                    is_of_tests = true;
                } else if is_of_tests && group.delimiter() == Delimiter::Brace {
                    is_of_tests = false;
                } else if !is_comment(&group) {
                    collect(group.stream(), file, messages);
                }
                is_attribute = false;
            }
            TokenTree::Literal(literal) => {
                let text = text_of(&literal);
                if text.matches(' ').count() >= BLANKS_MIN {
                    messages.push(Message { place: format!("{file}:{}", literal.span().start().line), text });
                }
            }
            TokenTree::Punct(punct) if punct.as_char() == '#' => is_attribute = true,
            TokenTree::Punct(punct) if punct.as_char() == ';' => is_of_tests = false,
            _ => {}
        }
    }
}

/// Comments of items are attributes to the compiler. Those of arguments are help, but a comment reads as help does.
fn is_comment(group: &Group) -> bool {
    group.delimiter() == Delimiter::Bracket && group.stream().to_string().starts_with("doc = ")
}

/// As a person reads it: a line that goes on has one blank.
fn text_of(literal: &Literal) -> String {
    let source = literal.to_string();
    let Some(inner) = source.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return String::new();
    };
    let lines: Vec<&str> = inner.split("\\\n").collect();
    lines.iter().enumerate().map(|(at, line)| if at == 0 { line } else { line.trim_start() }).collect()
}

#[test]
fn messages_are_listed() {
    let messages = messages();
    assert!(messages.len() > 1500, "{}", messages.len());
    let mut listing = String::new();
    for Message { place, text } in &messages {
        writeln!(listing, "{place}: {text}").expect("a text takes it");
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("messages.txt");
    fs::write(&path, listing).expect("it can be written");
}

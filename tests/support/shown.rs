//! The commands that documents show: their blocks, and output in which everything that differs from run to run stands
//! by its form alone.

use std::fs;

use super::tool::root;

/// A fenced block of a document, without its indentation.
#[derive(Clone, Debug)]
pub struct Block {
    pub language: String,
    pub lines: Vec<String>,
}

/// A command of a block, and the output that the document shows below it.
#[derive(Clone, Debug)]
pub struct Shown {
    pub command: String,
    pub output: String,
}

impl Block {
    /// All blocks of a document, in order.
    pub fn all(file: &str) -> Vec<Self> {
        let text = fs::read_to_string(root().join(file)).expect(file);
        let mut lines = text.lines();
        let mut blocks = Vec::new();
        while let Some(line) = lines.next() {
            let Some(language) = line.trim_start().strip_prefix("```") else { continue };
            let indent = line.len() - line.trim_start().len();
            let inside = lines.by_ref().take_while(|line| line.trim_start() != "```");
            let lines = inside.map(|line| line.get(indent..).unwrap_or_default().to_owned()).collect();
            blocks.push(Self { language: language.to_owned(), lines });
        }
        blocks
    }

    pub fn text(&self) -> String {
        self.lines.join("\n")
    }

    /// The commands typed after `$ ` or `# `. A command goes on after a backslash.
    pub fn commands(&self) -> Vec<Shown> {
        let mut commands: Vec<Shown> = Vec::new();
        for line in &self.lines {
            match (line.strip_prefix("$ ").or(line.strip_prefix("# ")), commands.last_mut()) {
                (Some(command), _) => {
                    commands.push(Shown { command: command.to_owned(), output: String::new() });
                }
                (None, Some(last)) if last.command.ends_with('\\') && last.output.is_empty() => {
                    last.command += &format!("\n{line}");
                }
                (None, Some(last)) => last.output += &format!("{line}\n"),
                (None, None) => panic!("no command before {line}"),
            }
        }
        commands
    }
}

/// The words of each line; a time, an address of etcd, an id of a store, a version, a revision and a duration by their
/// names alone.
pub fn normalized(text: &str) -> Vec<String> {
    text.lines().map(|line| words(line).join(" ")).collect()
}

fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let form = form(word, words.last().map(String::as_str));
        // A duration may have several parts.
        if form != "DURATION" || words.last() != Some(&form) {
            words.push(form);
        }
    }
    words
}

fn form(word: &str, before: Option<&str>) -> String {
    let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_duration = bare.strip_suffix(['s', 'm', 'h', 'd']).is_some_and(is_digits);
    let name = match bare {
        _ if bare.len() == 20 && bare.ends_with('Z') && bare.contains('T') => "TIME",
        _ if bare.starts_with("http") => "ENDPOINT",
        _ if bare.len() == 32 && bare.bytes().all(|b| b.is_ascii_hexdigit()) => "STORE",
        _ if bare.split('.').count() == 3 && bare.split('.').all(is_digits) => "VERSION",
        _ if before == Some("revision") && is_digits(bare) => "REVISION",
        _ if is_duration => "DURATION",
        _ => return word.to_owned(),
    };
    word.replacen(bare, name, 1)
}

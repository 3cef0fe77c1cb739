//! Prometheus' text format. Pure.

use std::fmt::{Display, Write as _};

/// The content type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Text to which one metric after the other is added.
#[derive(Debug, Default)]
pub struct Exposition(pub String);

impl Exposition {
    /// The text.
    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }

    /// A gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "gauge", help);
        self.sample(name, &[], value);
    }

    /// A metric with one label.
    pub fn labelled(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (impl AsRef<str>, impl Display)>,
    ) {
        self.head(name, kind, help);
        for (of, value) in values {
            self.sample(name, &[(label, of.as_ref())], value);
        }
    }

    /// The lines before the samples of a metric: its help and its type.
    pub fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing into a String does not fail.
        let _ = writeln!(self.0, "# HELP {name} {}\n# TYPE {name} {kind}", escaped(help, false));
    }

    /// A sample. A label without a value is left out, because for Prometheus that is the same.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        let labels = labels.iter().filter(|(_, value)| !value.is_empty());
        for (at, (label, value)) in labels.clone().enumerate() {
            let _ = write!(self.0, "{}{label}=\"{}\"", if at == 0 { '{' } else { ',' }, escaped(value, true));
        }
        let end = if labels.count() == 0 { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }
}

fn escaped(text: &str, is_quoted: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '"' if is_quoted => escaped.push_str("\\\""),
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_empty_ones_left_out() {
        let mut text = Exposition::default();
        text.gauge("plain", "One \"line\"\nof C:\\help.", 1);
        text.labelled("some_total", "counter", "Some.", "what", [("a\\b\"c\nd", 2), ("", 3)]);
        text.sample("more", &[("one", ""), ("two", "x"), ("three", "y")], 0.5);
        let expected = "# HELP plain One \"line\"\\nof C:\\\\help.\n# TYPE plain gauge\nplain 1\n\
            # HELP some_total Some.\n# TYPE some_total counter\nsome_total{what=\"a\\\\b\\\"c\\nd\"} 2\nsome_total 3\n\
            more{two=\"x\",three=\"y\"} 0.5\n";
        assert_eq!(text.into_text(), expected);
    }
}

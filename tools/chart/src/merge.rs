//! One template of many texts that differ in a few lines.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff_slices};

use crate::choices::{Choices, FACTORS, Factor};

/// A text for each combination of the choices that matter to an object; `None` where there is no such object.
pub type Variants = BTreeMap<Choices, Option<String>>;

/// The template that gives each of the texts under its choices. Choices that no variant names count as their defaults.
pub fn merge(variants: &Variants) -> String {
    let factors = Factors::of(variants.keys());
    let texts: BTreeMap<Choices, Vec<&str>> = variants
        .iter()
        .filter_map(|(choices, text)| Some((*choices, text.as_deref()?.lines().collect())))
        .collect();
    let body = merge_lines(&factors, &texts);
    let presence: BTreeMap<Choices, String> = variants
        .iter()
        .map(|(choices, text)| (*choices, text.iter().map(|_| body.as_str()).collect()))
        .collect();
    factors.conditional(&presence)
}

fn merge_lines(factors: &Factors, texts: &BTreeMap<Choices, Vec<&str>>) -> String {
    let Some(reference) = texts.values().next() else { return String::new() };
    let diffs: BTreeMap<Choices, Vec<DiffOp>> = texts
        .iter()
        .map(|(choices, text)| (*choices, capture_diff_slices(Algorithm::Myers, reference, text)))
        .collect();
    let mut template = String::new();
    let mut done = 0;
    for region in regions(diffs.values().flatten()) {
        template += &joined(&reference[done..region.start]);
        let parts = texts
            .iter()
            .map(|(choices, text)| (*choices, joined(&text[counterpart(&diffs[choices], &region)])))
            .collect();
        template += &factors.conditional(&parts);
        done = region.end;
    }
    template + &joined(&reference[done..])
}

fn joined(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Where the reference differs from any text. Differences that touch are one region.
fn regions<'a>(all: impl Iterator<Item = &'a DiffOp>) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> =
        all.filter(|one| !matches!(one, DiffOp::Equal { .. })).map(DiffOp::old_range).collect();
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut merged: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// What a text has in place of these lines of the reference. A region begins and ends between differences, or where
/// one begins or ends.
fn counterpart(diff: &[DiffOp], region: &Range<usize>) -> Range<usize> {
    let mut found: Option<Range<usize>> = None;
    for one in diff {
        let (old, new) = (one.old_range(), one.new_range());
        let part = match one {
            DiffOp::Equal { .. } => {
                let (start, end) = (region.start.max(old.start), region.end.min(old.end));
                if start > end {
                    continue;
                }
                new.start + (start - old.start)..new.start + (end - old.start)
            }
            _ if region.start <= old.start && old.end <= region.end => new,
            _ => continue,
        };
        found = Some(match found {
            Some(before) => before.start.min(part.start)..before.end.max(part.end),
            None => part,
        });
    }
    found.unwrap_or_default()
}

/// The factors that matter to an object, each with the options that do.
struct Factors(BTreeMap<usize, BTreeSet<usize>>);

impl Factors {
    fn of<'a>(all: impl Iterator<Item = &'a Choices>) -> Self {
        let mut options: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for choices in all {
            for factor in 0..FACTORS.len() {
                options.entry(factor).or_default().insert(choices.of(factor));
            }
        }
        options.retain(|_, options| options.len() > 1);
        Self(options)
    }

    /// Each part behind the condition under which it is the text, by as few factors as possible.
    fn conditional(&self, parts: &BTreeMap<Choices, String>) -> String {
        let deciding = self.deciding(parts);
        let mut by_text: BTreeMap<&str, BTreeSet<Vec<usize>>> = BTreeMap::new();
        for (choices, text) in parts {
            let options = deciding.iter().map(|factor| choices.of(*factor)).collect();
            by_text.entry(text).or_default().insert(options);
        }
        // The usual text needs no condition of its own.
        let Some(usual) = parts.values().next().map(String::as_str) else { return String::new() };
        let usual = if by_text.contains_key("") && by_text.len() == 2 { "" } else { usual };
        let mut template = String::new();
        for (text, options) in by_text.iter().filter(|(text, _)| **text != usual) {
            let word = if template.is_empty() { "if" } else { "else if" };
            template += &format!("{{{{- {word} {} }}}}\n{text}", self.any(&deciding, options));
        }
        match (template.is_empty(), usual.is_empty()) {
            (true, _) => usual.to_owned(),
            (false, true) => template + "{{- end }}\n",
            (false, false) => format!("{template}{{{{- else }}}}\n{usual}{{{{- end }}}}\n"),
        }
    }

    /// The smallest set of factors that the text is a function of.
    fn deciding(&self, parts: &BTreeMap<Choices, String>) -> Vec<usize> {
        let all: Vec<usize> = self.0.keys().copied().collect();
        let mut subsets: Vec<Vec<usize>> = (0_u32..1 << all.len())
            .map(|bits| (0..all.len()).filter(|at| bits >> at & 1 == 1).map(|at| all[at]).collect())
            .collect();
        subsets.sort_by_key(Vec::len);
        let decides = |subset: &Vec<usize>| {
            let mut texts: BTreeMap<Vec<usize>, &str> = BTreeMap::new();
            parts.iter().all(|(choices, text)| {
                let options = subset.iter().map(|factor| choices.of(*factor)).collect();
                texts.entry(options).or_insert(text) == text
            })
        };
        subsets.into_iter().find(decides).unwrap_or(all)
    }

    fn any(&self, factors: &[usize], options: &BTreeSet<Vec<usize>>) -> String {
        let all: Vec<String> = options.iter().map(|one| self.all(factors, one)).collect();
        joined_by("or", &all)
    }

    fn all(&self, factors: &[usize], options: &[usize]) -> String {
        let all: Vec<String> =
            factors.iter().zip(options).map(|(factor, option)| self.is(*factor, *option)).collect();
        joined_by("and", &all)
    }

    /// The default of a factor stands for all of its options that make no difference.
    fn is(&self, factor: usize, option: usize) -> String {
        let Factor { name, options } = &FACTORS[factor];
        match (*name, option) {
            ("ipv6", 0) => "not (include \"metes.ipv6\" .)".to_owned(),
            ("ipv6", _) => "include \"metes.ipv6\" .".to_owned(),
            _ if options.len() == 2 => format!("{}.Values.{name}", if option == 0 { "not " } else { "" }),
            (_, 0) => {
                let others: Vec<String> = self.0[&factor]
                    .iter()
                    .filter(|one| **one != 0)
                    .map(|one| format!("{:?}", options[*one]))
                    .collect();
                format!("not (has .Values.{name} (list {}))", others.join(" "))
            }
            _ => format!("eq .Values.{name} {:?}", options[option]),
        }
    }
}

/// A single condition needs no word.
fn joined_by(word: &str, conditions: &[String]) -> String {
    match conditions {
        [one] => one.clone(),
        _ => format!("{word} ({})", conditions.join(") (")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Choices by their names, and the text under them.
    type Named<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>);

    fn variants(texts: &[Named<'_>]) -> Variants {
        texts
            .iter()
            .map(|(named, text)| {
                let choices = named.iter().fold(Choices::default(), |choices, (factor, option)| {
                    choices.with_named(factor, option).expect("it exists")
                });
                (choices, text.map(str::to_owned))
            })
            .collect()
    }

    #[test]
    fn equal_texts_need_no_condition() {
        let merged = merge(&variants(&[(&[], Some("a\nb\n")), (&[("events", "true")], Some("a\nb\n"))]));
        assert_eq!(merged, "a\nb\n");
    }

    #[test]
    fn a_line_that_one_choice_adds_stands_behind_it() {
        let merged = merge(&variants(&[(&[], Some("a\nc\n")), (&[("events", "true")], Some("a\nb\nc\n"))]));
        assert_eq!(merged, "a\n{{- if .Values.events }}\nb\n{{- end }}\nc\n");
    }

    #[test]
    fn a_line_depends_on_the_choices_that_change_it_alone() {
        let merged = merge(&variants(&[
            (&[], Some("a\nb\nc\n")),
            (&[("distribution", "k3s")], Some("a\nk3s\nc\n")),
            (&[("hostNetwork", "true")], Some("a\nb\nc\nhost\n")),
            (&[("distribution", "k3s"), ("hostNetwork", "true")], Some("a\nk3s\nc\nhost\n")),
        ]));
        let expected = "a\n{{- if eq .Values.distribution \"k3s\" }}\nk3s\n{{- else }}\nb\n{{- end }}\nc\n\
                        {{- if .Values.hostNetwork }}\nhost\n{{- end }}\n";
        assert_eq!(merged, expected);
    }

    #[test]
    fn lines_that_meet_have_a_condition_of_both() {
        let merged = merge(&variants(&[
            (&[], Some("a\n")),
            (&[("events", "true")], Some("a\nb\n")),
            (&[("webhook", "true")], Some("a\nc\n")),
            (&[("events", "true"), ("webhook", "true")], Some("a\nb\nc\n")),
        ]));
        let expected = "a\n{{- if and (.Values.events) (not .Values.webhook) }}\nb\n\
                        {{- else if and (.Values.events) (.Values.webhook) }}\nb\nc\n\
                        {{- else if and (not .Values.events) (.Values.webhook) }}\nc\n{{- end }}\n";
        assert_eq!(merged, expected);
    }

    #[test]
    fn an_object_that_is_missing_has_one_condition() {
        let merged = merge(&variants(&[(&[], Some("a\n")), (&[("ownEtcd", "true")], None)]));
        assert_eq!(merged, "{{- if not .Values.ownEtcd }}\na\n{{- end }}\n");
    }
}

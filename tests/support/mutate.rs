//! Input that is a little wrong, the same for the same seed.

use serde_json::{Value, json};

/// Changes some bytes; none of them becomes zero, because no variable can hold that.
pub fn mutate_bytes(dice: &mut Dice, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let at = dice.below(bytes.len() as u64 + 1) as usize;
    let end = (at + dice.below(8) as usize).min(bytes.len());
    match dice.below(6) {
        0 => drop(bytes.drain(at..end)),
        1 => bytes.truncate(at),
        2 => {
            let copy = bytes[at..end].to_vec();
            bytes.splice(at..at, copy);
        }
        3 => drop(bytes.splice(at..end, dice.pick(&TOKENS).bytes())),
        4 => drop(bytes.splice(at..at, dice.pick(&TOKENS).bytes())),
        _ => {
            let odd = 1 + dice.below(255) as u8;
            bytes.splice(at..end.min(at + 1), [odd]);
        }
    }
    bytes
}

const TOKENS: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    ",",
    ":",
    "null",
    "true",
    "-1",
    "1e999",
    "99999999999999999999",
    "\\u0000",
    "\\ud800",
    "::ffff:10.0.0.1",
    "/33",
    "/0",
    "255.255.255.255",
    ";",
    "=",
    "..",
    "/",
    "\"subnet\":5,",
    "\u{7f}\u{e9}\u{2028}",
];

/// Changes one value, or one key, of a document; one that is none stays as it is.
pub fn mutate_json(dice: &mut Dice, text: &[u8]) -> Vec<u8> {
    let Ok(mut document) = serde_json::from_slice::<Value>(text) else { return text.to_vec() };
    let mut paths = Vec::new();
    collect_paths(&document, String::new(), &mut paths);
    let (donor, path) = (dice.pick(&paths), dice.pick(&paths));
    let donor = document.pointer(&donor).cloned().unwrap_or_default();
    let Some(node) = document.pointer_mut(&path) else { return text.to_vec() };
    match (dice.below(5), node) {
        (0, Value::Object(keys)) if !keys.is_empty() => drop(keys.remove(&some_key(dice, keys))),
        (1, Value::Object(keys)) if !keys.is_empty() => {
            let value = keys.remove(&some_key(dice, keys)).unwrap_or_default();
            keys.insert(dice.pick(&KEYS).to_owned(), value);
        }
        (2, Value::Object(keys)) => _ = keys.insert(dice.pick(&KEYS).to_owned(), donor),
        (3, Value::Array(items)) => items.push(donor),
        (3, node) => *node = donor,
        (_, Value::String(text)) if dice.below(2) == 0 => {
            *text = String::from_utf8_lossy(&mutate_bytes(dice, text.as_bytes())).into_owned();
        }
        (_, node) => *node = odd_value(dice),
    }
    document.to_string().into_bytes()
}

fn some_key(dice: &mut Dice, keys: &serde_json::Map<String, Value>) -> String {
    keys.keys().nth(dice.below(keys.len() as u64) as usize).cloned().unwrap_or_default()
}

const KEYS: [&str; 22] = [
    "range",
    "range_start",
    "range_end",
    "exclude",
    "ipRanges",
    "subnet",
    "rangeStart",
    "rangeEnd",
    "ranges",
    "gateway",
    "addresses",
    "address",
    "routes",
    "dst",
    "gw",
    "order",
    "network_name",
    "type",
    "name",
    "cniVersion",
    "IPAM",
    "odd",
];

/// The paths of all values of a document, the document itself last.
fn collect_paths(value: &Value, path: String, paths: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                collect_paths(item, format!("{path}/{at}"), paths);
            }
        }
        Value::Object(keys) => {
            for (key, inner) in keys {
                collect_paths(inner, format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), paths);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    paths.push(path);
}

fn odd_value(dice: &mut Dice) -> Value {
    let texts = [
        "",
        "x",
        "10.0.0.0/24",
        "10.0.0.9",
        "fd00::/64",
        "::/0",
        "0.0.0.0/0",
        "10.0.0.255",
        "next",
        "/etc/hostname",
    ];
    let text = dice.pick(&texts);
    match dice.below(8) {
        0 => Value::Null,
        1 => json!(dice.below(2) == 0),
        2 => json!(-1),
        3 => json!(1u64 << dice.below(64)),
        4 => json!(1.5e300),
        5 => json!([text]),
        6 => json!({ "range": text }),
        _ => json!(text),
    }
}

/// Numbers that follow from a seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }
}

//! What happens to a chat before a template sees it, as Hugging Face transformers does it, and the
//! marks that keep control-token text of the caller apart from the template's own.

use serde_json::{Map, Value};

use crate::tokenizer::{Mode, TextTokenizer};

/// Names under which templates look for a message's reasoning.
const REASONING_KEYS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// Removes null-valued keys of each message (unless they are to be kept), and gives a message's
/// reasoning under every name.
pub fn prepare(messages: &mut Value, keep_nulls: bool) {
    let Some(list) = messages.as_array_mut() else {
        return;
    };
    for message in list {
        if let Some(fields) = message.as_object_mut() {
            if !keep_nulls {
                fields.retain(|_, value| !value.is_null());
            }
            mirror_reasoning(fields);
        }
    }
}

fn mirror_reasoning(fields: &mut Map<String, Value>) {
    let reasoning =
        REASONING_KEYS.iter().find_map(|key| fields.get(*key).filter(|v| !v.is_null())).cloned();
    if let Some(reasoning) = reasoning {
        for key in REASONING_KEYS {
            fields.entry(key).or_insert_with(|| reasoning.clone());
        }
    }
}

/// Two characters that frame control-token text; neither occurs in the caller's strings.
#[derive(Clone, Copy)]
pub struct Marks {
    begin: char,
    end: char,
}

impl Marks {
    /// Picks two noncharacters that no string of `values` has.
    pub fn choose(values: &[&Value]) -> Result<Marks, String> {
        let mut free: Vec<char> = ('\u{fdd0}'..='\u{fdef}').collect();
        for value in values {
            for_each_string(value, &mut |s| {
                if s.chars().any(crate::python::is_mark) {
                    free.retain(|c| !s.contains(*c));
                }
            });
        }
        match free[..] {
            [begin, end, ..] => Ok(Marks { begin, end }),
            _ => Err("the messages use nearly all noncharacters U+FDD0 to U+FDEF; \
                      leave some of them out"
                .into()),
        }
    }

    /// Frames the text of every added token in every string of `value`, keys too.
    pub fn frame(self, value: &mut Value, tokenizer: &TextTokenizer) {
        match value {
            Value::String(s) => {
                if let Some(framed) = self.framed(s, tokenizer) {
                    *s = framed;
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.frame(item, tokenizer);
                }
            }
            Value::Object(fields) => {
                for item in fields.values_mut() {
                    self.frame(item, tokenizer);
                }
                if fields.keys().any(|key| self.framed(key, tokenizer).is_some()) {
                    *fields = std::mem::take(fields)
                        .into_iter()
                        .map(|(key, item)| (self.framed(&key, tokenizer).unwrap_or(key), item))
                        .collect();
                }
            }
            _ => {}
        }
    }

    fn framed(self, s: &str, tokenizer: &TextTokenizer) -> Option<String> {
        let mut out = String::new();
        let mut done = 0;
        tokenizer.for_each_control_token(s, |start, end| {
            out.push_str(&s[done..start]);
            out.push(self.begin);
            out.push_str(&s[start..end]);
            out.push(self.end);
            done = end;
        });
        if done == 0 {
            return None;
        }
        out.push_str(&s[done..]);
        Some(out)
    }

    /// Encodes rendered text: framed control-token text as plain text, the rest with control tokens
    /// recognised. A template may cut strings, so a mark may stand alone; it only separates then.
    pub fn encode(self, text: &str, tokenizer: &TextTokenizer) -> Result<Vec<u32>, String> {
        let mut ids = Vec::new();
        let mut framed = false;
        for (piece, mark) in pieces(text, self) {
            let closes = mark == Some(self.end);
            let plain = framed && closes && tokenizer.is_control_token(piece);
            let mode = if plain { Mode::PlainAll } else { Mode::ParseSpecial };
            if !piece.is_empty() {
                ids.extend(tokenizer.encode(piece, mode, false)?);
            }
            framed = mark == Some(self.begin);
        }
        Ok(ids)
    }
}

/// The runs of `text` between marks, each with the mark that ends it.
fn pieces(text: &str, marks: Marks) -> impl Iterator<Item = (&str, Option<char>)> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let current = rest?;
        match current.char_indices().find(|(_, c)| *c == marks.begin || *c == marks.end) {
            Some((at, mark)) => {
                rest = Some(&current[at + mark.len_utf8()..]);
                Some((&current[..at], Some(mark)))
            }
            None => {
                rest = None;
                Some((current, None))
            }
        }
    })
}

fn for_each_string(value: &Value, visit: &mut impl FnMut(&str)) {
    match value {
        Value::String(s) => visit(s),
        Value::Array(items) => items.iter().for_each(|item| for_each_string(item, visit)),
        Value::Object(fields) => {
            for (key, item) in fields {
                visit(key);
                for_each_string(item, visit);
            }
        }
        _ => {}
    }
}

//! Values printed as Python prints them: str, repr and json.dumps.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use unicode_categories::UnicodeCategories;

/// Deeper values are an error: printing recurses.
const MAX_DEPTH: usize = 128;

fn too_deep() -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("a value nests deeper than {MAX_DEPTH}"))
}

/// Noncharacters that messages.rs may use as marks; they pass through escaping untouched.
pub fn is_mark(c: char) -> bool {
    ('\u{fdd0}'..='\u{fdef}').contains(&c)
}

/// Python's str.isspace, which also counts four ASCII separators.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// str(value).
pub fn str_of(value: &Value) -> Result<String, Error> {
    if let Some(s) = value.as_str() {
        return Ok(s.to_string());
    }
    let mut out = String::new();
    match value.kind() {
        ValueKind::Undefined => {}
        _ => write_repr(&mut out, value, 0)?,
    }
    Ok(out)
}

fn write_repr(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => write_str_repr(out, value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            let tuple = value.is_tuple();
            out.push(if tuple { '(' } else { '[' });
            let mut count = 0;
            for item in value.try_iter()? {
                if count > 0 {
                    out.push_str(", ");
                }
                write_repr(out, &item, depth + 1)?;
                count += 1;
            }
            if tuple && count == 1 {
                out.push(',');
            }
            out.push(if tuple { ')' } else { ']' });
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_repr(out, &key, depth + 1)?;
                out.push_str(": ");
                write_repr(out, &value.get_item(&key)?, depth + 1)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(x) => float(x, "nan", "inf", "-inf"),
        Err(_) => value.to_string(),
    }
}

/// repr(float): the shortest digits that read back, with an exponent below 1e-4 and from 1e16 on.
fn float(x: f64, nan: &str, plus: &str, minus: &str) -> String {
    if x.is_nan() {
        return nan.into();
    }
    if x.is_infinite() {
        return if x > 0.0 { plus } else { minus }.into();
    }
    let scientific = format!("{x:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let fixed = format!("{x}");
        return if fixed.contains('.') { fixed } else { fixed + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

fn is_printable(c: char) -> bool {
    c == ' '
        || !(c.is_other_control()
            || c.is_other_format()
            || c.is_other_private_use()
            || c.is_separator_line()
            || c.is_separator_paragraph()
            || c.is_separator_space())
}

fn write_str_repr(out: &mut String, s: &str) {
    let quote = if s.contains('\'') && !s.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in s.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if is_printable(c) || is_mark(c) => out.push(c),
            c if (c as u32) < 0x100 => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if (c as u32) < 0x10000 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push_str(&format!("\\U{:08x}", c as u32)),
        }
    }
    out.push(quote);
}

/// The arguments of json.dumps that templates use.
pub struct JsonStyle {
    pub ensure_ascii: bool,
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

/// json.dumps(value).
pub fn json_of(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let mut out = String::new();
    write_json(&mut out, value, style, 0)?;
    Ok(out)
}

fn write_json(
    out: &mut String,
    value: &Value,
    style: &JsonStyle,
    depth: usize,
) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&json_number(value)),
        ValueKind::String => write_json_str(out, value.as_str().unwrap_or_default(), style),
        ValueKind::Seq | ValueKind::Iterable => {
            let mut items = Vec::new();
            for item in value.try_iter()? {
                items.push((None, item));
            }
            write_json_items(out, &items, ('[', ']'), style, depth)?;
        }
        ValueKind::Map => {
            let mut items = Vec::new();
            for key in value.try_iter()? {
                items.push((Some(json_key(&key)?), value.get_item(&key)?));
            }
            if style.sort_keys {
                items.sort_by(|a, b| a.0.cmp(&b.0));
            }
            write_json_items(out, &items, ('{', '}'), style, depth)?;
        }
        kind => {
            return Err(Error::new(
                ErrorKind::BadSerialization,
                format!("a value of type {kind} is not JSON serializable"),
            ))
        }
    }
    Ok(())
}

fn write_json_items(
    out: &mut String,
    items: &[(Option<String>, Value)],
    brackets: (char, char),
    style: &JsonStyle,
    depth: usize,
) -> Result<(), Error> {
    let new_line = |out: &mut String, level: usize| {
        if let Some(indent) = &style.indent {
            out.push('\n');
            for _ in 0..level {
                out.push_str(indent);
            }
        }
    };
    out.push(brackets.0);
    for (i, (key, item)) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(&style.item_separator);
        }
        new_line(out, depth + 1);
        if let Some(key) = key {
            write_json_str(out, key, style);
            out.push_str(&style.key_separator);
        }
        write_json(out, item, style, depth + 1)?;
    }
    if !items.is_empty() {
        new_line(out, depth);
    }
    out.push(brackets.1);
    Ok(())
}

fn json_number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(x) => float(x, "NaN", "Infinity", "-Infinity"),
        Err(_) => value.to_string(),
    }
}

fn json_key(key: &Value) -> Result<String, Error> {
    Ok(match key.kind() {
        ValueKind::String => key.as_str().unwrap_or_default().to_string(),
        ValueKind::None => "null".into(),
        ValueKind::Bool => if key.is_true() { "true" } else { "false" }.into(),
        ValueKind::Number => json_number(key),
        kind => {
            return Err(Error::new(
                ErrorKind::BadSerialization,
                format!("a key of type {kind} is not JSON serializable"),
            ))
        }
    })
}

fn write_json_str(out: &mut String, s: &str, style: &JsonStyle) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c if style.ensure_ascii && (c as u32) >= 0x7f && !is_mark(c) => {
                if c == '\u{7f}' {
                    out.push(c);
                    continue;
                }
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

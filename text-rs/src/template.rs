//! Chat templates rendered as Hugging Face transformers renders them with jinja2: minijinja with
//! Python's printing, methods and JSON, and a budget for templates that nobody has vetted.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{from_args, Kwargs, Serde, Tuple, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior};
use serde_json::{Map, Value as Json};

use crate::clock::format_local_time;
use crate::messages::{self, Marks};
use crate::python::{self, JsonStyle};
use crate::tokenizer::TextTokenizer;

const NAME: &str = "chat template";

/// The largest published templates have some 30 KB.
const MAX_SOURCE_BYTES: usize = 512 << 10;

/// Work that a render may do: one unit is an instruction or 64 bytes of text. A usual template
/// takes about a hundred for a message.
const FUEL_BASE: u64 = 2_000_000;
const FUEL_PER_REQUEST_BYTE: u64 = 8;
const FUEL_MOST: u64 = 3_800_000;

/// Renders run on a stack of their own: a template can build values that nest as deep as its
/// budget allows (a level takes 8 units), and comparing or freeing one recurses, with up to 1.1 KB a
/// level. Only touched pages take memory.
const STACK_BYTES: usize = 512 << 20;

/// Templates choose the text of their errors.
const MAX_ERROR_CHARS: usize = 500;

pub struct ChatTemplate {
    environment: Environment<'static>,
}

/// The parsed request of a render.
struct Request {
    messages: Json,
    tools: Json,
    variables: Json,
    special_tokens: Map<String, Json>,
    add_generation_prompt: bool,
    fuel: u64,
}

impl ChatTemplate {
    pub fn new(source: &str) -> Result<ChatTemplate, String> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(format!(
                "it has {} bytes, at most {MAX_SOURCE_BYTES} are read",
                source.len()
            ));
        }
        // Chains such as a.b.c nest in the parser's tree as deep as they are long.
        on_own_stack(|| ChatTemplate::compile(source))
    }

    fn compile(source: &str) -> Result<ChatTemplate, String> {
        let mut environment = Environment::new();
        environment.set_syntax(
            SyntaxConfig::builder()
                .trim_blocks(true)
                .lstrip_blocks(true)
                .build()
                .map_err(one_line)?,
        );
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_recursion_limit(150);
        environment.set_formatter(|out, _, value| {
            out.write_str(&python::str_of(value)?).map_err(Error::from)
        });
        environment.set_unknown_method_callback(unknown_method);
        environment.add_filter("tojson", tojson);
        environment.add_filter("string", |value: &Value| python::str_of(value));
        // minijinja's own indents without bound.
        environment.add_filter("pprint", |value: &Value| python::str_of(value));
        environment.remove_global("debug");
        environment.add_filter("trim", trim);
        environment.add_test("iterable", |v: &Value| !v.is_none() && v.try_iter().is_ok());
        environment.add_test("sequence", is_sequence);
        environment.add_function("raise_exception", |message: &Value| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, python::str_of(message)?))
        });
        environment
            .add_template_owned(NAME, without_generation_blocks(source))
            .map_err(one_line)?;
        Ok(ChatTemplate { environment })
    }

    pub fn render(&self, request: &str, now: i64) -> Result<String, String> {
        let request = Request::parse(request)?;
        on_own_stack(|| self.render_request(request, now))
    }

    /// Rendered and encoded; control-token text of the caller stays text.
    pub fn encode(
        &self,
        tokenizer: &TextTokenizer,
        request: &str,
        now: i64,
    ) -> Result<Vec<u32>, String> {
        let mut request = Request::parse(request)?;
        let marks = Marks::choose(&[&request.messages, &request.tools, &request.variables])?;
        for value in [&mut request.messages, &mut request.tools, &mut request.variables] {
            marks.frame(value, tokenizer);
        }
        let text = on_own_stack(|| self.render_request(request, now))?;
        marks.encode(&text, tokenizer)
    }

    fn render_request(&self, request: Request, now: i64) -> Result<String, String> {
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(request.fuel));
        environment.add_function("strftime_now", move |format: &str| {
            format_local_time(format, now)
                .map_err(|message| Error::new(ErrorKind::InvalidOperation, message))
        });
        let mut context = request.special_tokens;
        if let Json::Object(variables) = request.variables {
            context.extend(variables);
        }
        context.entry("documents").or_insert(Json::Null);
        context.insert("messages".into(), request.messages);
        context.insert("tools".into(), request.tools);
        context.insert("add_generation_prompt".into(), request.add_generation_prompt.into());
        let template = environment.get_template(NAME).map_err(one_line)?;
        template.render(Value::from(Serde(&context))).map_err(one_line)
    }
}

impl Request {
    fn parse(text: &str) -> Result<Request, String> {
        let parsed: Json =
            serde_json::from_str(text).map_err(|e| format!("the chat is not valid JSON: {e}"))?;
        let Json::Object(mut fields) = parsed else {
            return Err("the chat is not a JSON object".into());
        };
        let flag = |fields: &Map<String, Json>, key: &str| {
            fields.get(key).and_then(Json::as_bool).unwrap_or(false)
        };
        let keep_nulls = flag(&fields, "keep_nulls");
        let add_generation_prompt = flag(&fields, "add_generation_prompt");
        let mut messages = fields.remove("messages").unwrap_or_default();
        if !messages.is_array() {
            return Err("messages must be a list".into());
        }
        messages::prepare(&mut messages, keep_nulls);
        let variables = fields.remove("variables").unwrap_or_default();
        if !variables.is_object() && !variables.is_null() {
            return Err("the template's variables must be an object".into());
        }
        let special_tokens = match fields.remove("special_tokens") {
            Some(Json::Object(map)) => map,
            _ => Map::new(),
        };
        Ok(Request {
            messages,
            tools: fields.remove("tools").unwrap_or_default(),
            variables,
            special_tokens,
            add_generation_prompt,
            fuel: (FUEL_BASE + FUEL_PER_REQUEST_BYTE * text.len() as u64).min(FUEL_MOST),
        })
    }
}

/// Runs `f` on a thread with a deep stack; a panic there becomes an error.
fn on_own_stack<T: Send>(f: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("template".into())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || crate::ffi::guard(f))
            .map_err(|e| format!("cannot start a thread for the chat template: {e}"))?
            .join()
            .unwrap_or_else(|_| Err("the chat template's thread failed".into()))
    })
}

fn one_line(error: Error) -> String {
    let mut message = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        message.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    message.chars().take(MAX_ERROR_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// transformers knows a block `{% generation %}` that only marks assistant text: here it is a
/// condition that always holds.
fn without_generation_blocks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        rest = tag;
        let Some(end) = tag.find("%}") else {
            break;
        };
        let inner = &tag[..end];
        let word = inner.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        let replacement = match word {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => continue,
        };
        out.push_str(&inner.replacen(word, replacement, 1));
        rest = &tag[end..];
    }
    out.push_str(rest);
    out
}

/// jinja2 asks for a length and indexing, which strings and mappings have too.
fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Undefined
    ) || (value.kind() == ValueKind::Iterable && value.len().is_some())
}

fn strip<'a>(s: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let wanted = |c: char| match chars {
        Some(set) => set.contains(c),
        None => python::is_space(c),
    };
    let s = if left { s.trim_start_matches(wanted) } else { s };
    if right {
        s.trim_end_matches(wanted)
    } else {
        s
    }
}

fn trim(value: &Value, chars: Option<&str>) -> Result<String, Error> {
    Ok(strip(&python::str_of(value)?, chars, true, true).to_string())
}

/// json.dumps as transformers gives it to templates.
fn tojson(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent = match kwargs.get::<Option<Value>>("indent")? {
        None => None,
        Some(v) if v.is_none() => None,
        Some(v) => match v.as_str() {
            Some(s) => Some(s.to_string()),
            None => {
                let width = usize::try_from(v.as_i64().unwrap_or(0).clamp(0, 64)).unwrap_or(0);
                Some(" ".repeat(width))
            }
        },
    };
    let item_default = if indent.is_some() { "," } else { ", " };
    let (item_separator, key_separator) = match kwargs.get::<Option<Value>>("separators")? {
        Some(pair) if !pair.is_none() => {
            let part = |i: usize| -> Result<String, Error> {
                let value = pair.get_item_by_index(i)?;
                value.as_str().map(str::to_string).ok_or_else(|| {
                    Error::new(ErrorKind::InvalidOperation, "separators must be two strings")
                })
            };
            (part(0)?, part(1)?)
        }
        _ => (item_default.to_string(), ": ".to_string()),
    };
    let style = JsonStyle {
        ensure_ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        indent,
        item_separator,
        key_separator,
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    kwargs.assert_all_used()?;
    Ok(Value::from(python::json_of(value, &style)?))
}

/// Python's methods: those of strings that minijinja's own set lacks or trims by another rule, then
/// that set.
fn unknown_method(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let Some(s) = value.as_str() else {
        return minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args);
    };
    match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            Ok(Value::from(strip(s, chars, method != "rstrip", method != "lstrip")))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(s.strip_prefix(prefix).unwrap_or(s)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(s.strip_suffix(suffix).unwrap_or(s)))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            if separator.is_empty() {
                return Err(Error::new(ErrorKind::InvalidOperation, "empty separator"));
            }
            let from_left = method == "partition";
            let cut =
                if from_left { s.split_once(separator) } else { s.rsplit_once(separator) };
            let parts = match cut {
                Some((left, right)) => [left, separator, right],
                None if from_left => [s, "", ""],
                None => ["", "", s],
            };
            let parts: Vec<Value> = parts.into_iter().map(Value::from).collect();
            Ok(Value::from(Tuple::from(parts)))
        }
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args),
    }
}

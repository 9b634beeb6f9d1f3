//! The C functions of include/millrace_text.h: conversions of arguments and results, and the wall
//! that keeps panics from unwinding into the caller.

use std::cell::Cell;
use std::io::Read;
use std::os::raw::{c_char, c_int};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

use crate::gguf_vocabulary::{self, Vocabulary};
use crate::template::ChatTemplate;
use crate::tokenizer::{Mode, TextTokenizer};

#[repr(C)]
#[derive(Clone, Copy)]
pub struct View {
    data: *const c_char,
    size: usize,
}

#[repr(C)]
pub struct Text {
    data: *mut c_char,
    size: usize,
    capacity: usize,
}

#[repr(C)]
pub struct Ids {
    data: *mut u32,
    size: usize,
    capacity: usize,
}

#[repr(C)]
pub struct GgufVocabulary {
    model: View,
    pre: View,
    tokens: *const View,
    num_tokens: usize,
    merges: *const View,
    num_merges: usize,
    token_types: *const i32,
    scores: *const f32,
    add_space_prefix: i32,
}

impl View {
    /// # Safety
    /// `data` points to `size` readable bytes that outlive the use of the result.
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        slice(self.data as *const u8, self.size)
    }

    /// # Safety
    /// As for `bytes`.
    unsafe fn text<'a>(self, what: &str) -> Result<&'a str, String> {
        std::str::from_utf8(self.bytes()).map_err(|e| {
            format!("{what} is not UTF-8: bad byte at offset {}", e.valid_up_to())
        })
    }
}

/// # Safety
/// `data` points to `size` readable elements, or `size` is 0.
unsafe fn slice<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if size == 0 || data.is_null() {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

/// # Safety
/// `out` is null or writable.
unsafe fn give_text(out: *mut Text, bytes: Vec<u8>) {
    if out.is_null() {
        return;
    }
    let mut bytes = std::mem::ManuallyDrop::new(bytes);
    *out = Text {
        data: bytes.as_mut_ptr() as *mut c_char,
        size: bytes.len(),
        capacity: bytes.capacity(),
    };
}

/// # Safety
/// `out` is writable.
unsafe fn give_ids(out: *mut Ids, ids: Vec<u32>) {
    let mut ids = std::mem::ManuallyDrop::new(ids);
    *out = Ids {
        data: ids.as_mut_ptr(),
        size: ids.len(),
        capacity: ids.capacity(),
    };
}

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Panics inside `guard` become errors, so their message must not also go to stderr.
fn quiet_guarded_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !GUARDED.with(|g| g.get()) {
                previous(info);
            }
        }));
    });
}

/// Runs `f`; a panic becomes an error like any other.
pub fn guard<T>(f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    quiet_guarded_panics();
    let outer = GUARDED.with(|g| g.replace(true));
    let outcome = catch_unwind(AssertUnwindSafe(f));
    GUARDED.with(|g| g.set(outer));
    outcome.unwrap_or_else(|panic| {
        let detail = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("unknown cause");
        Err(format!("the text library failed: {detail}"))
    })
}

/// # Safety
/// `error` is null or writable.
unsafe fn report(outcome: Result<(), String>, error: *mut Text) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(message) => {
            let line = message.replace(['\n', '\r'], " ");
            give_text(error, line.into_bytes());
            1
        }
    }
}

/// # Safety
/// `error` is null or writable.
unsafe fn report_handle<T>(outcome: Result<T, String>, error: *mut Text) -> *mut T {
    match outcome {
        Ok(value) => Box::into_raw(Box::new(value)),
        Err(message) => {
            report(Err(message), error);
            std::ptr::null_mut()
        }
    }
}

/// # Safety
/// `text` came from this library and is given back once.
#[no_mangle]
pub unsafe extern "C" fn mrt_text_free(text: Text) {
    if !text.data.is_null() {
        drop(Vec::from_raw_parts(text.data as *mut u8, text.size, text.capacity));
    }
}

/// # Safety
/// `ids` came from this library and is given back once.
#[no_mangle]
pub unsafe extern "C" fn mrt_ids_free(ids: Ids) {
    if !ids.data.is_null() {
        drop(Vec::from_raw_parts(ids.data, ids.size, ids.capacity));
    }
}

/// # Safety
/// `json` is readable, `error` null or writable.
#[no_mangle]
pub unsafe extern "C" fn mrt_tokenizer_from_json(
    json: View,
    error: *mut Text,
) -> *mut TextTokenizer {
    report_handle(guard(|| TextTokenizer::from_json(json.bytes())), error)
}

/// # Safety
/// Every pointer of `vocabulary` is readable for the given lengths; `error` null or writable.
#[no_mangle]
pub unsafe extern "C" fn mrt_tokenizer_from_gguf(
    vocabulary: *const GgufVocabulary,
    error: *mut Text,
) -> *mut TextTokenizer {
    let outcome = guard(|| {
        let raw = &*vocabulary;
        let texts = |views: &[View], what: &str| -> Result<Vec<&str>, String> {
            views
                .iter()
                .enumerate()
                .map(|(i, v)| v.text(&format!("{what} {i}")))
                .collect()
        };
        let types_len = if raw.token_types.is_null() { 0 } else { raw.num_tokens };
        let scores_len = if raw.scores.is_null() { 0 } else { raw.num_tokens };
        gguf_vocabulary::build(&Vocabulary {
            model: raw.model.text("tokenizer.ggml.model")?,
            pre: raw.pre.text("tokenizer.ggml.pre")?,
            tokens: texts(slice(raw.tokens, raw.num_tokens), "token")?,
            merges: texts(slice(raw.merges, raw.num_merges), "merge")?,
            token_types: slice(raw.token_types, types_len),
            scores: slice(raw.scores, scores_len),
            add_space_prefix: raw.add_space_prefix != 0,
        })
    });
    report_handle(outcome, error)
}

/// # Safety
/// `tokenizer` came from this library and is given back once, or is null.
#[no_mangle]
pub unsafe extern "C" fn mrt_tokenizer_free(tokenizer: *mut TextTokenizer) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

/// # Safety
/// Pointers are valid as the header says.
#[no_mangle]
pub unsafe extern "C" fn mrt_tokenizer_encode(
    tokenizer: *const TextTokenizer,
    text: View,
    mode: c_int,
    add_special_tokens: c_int,
    ids: *mut Ids,
    error: *mut Text,
) -> c_int {
    let outcome = guard(|| {
        let mode = Mode::from_code(mode)?;
        let text = text.text("the text")?;
        (*tokenizer).encode(text, mode, add_special_tokens != 0)
    });
    report(outcome.map(|v| give_ids(ids, v)), error)
}

/// # Safety
/// Pointers are valid as the header says.
#[no_mangle]
pub unsafe extern "C" fn mrt_tokenizer_decode(
    tokenizer: *const TextTokenizer,
    ids: *const u32,
    num_ids: usize,
    skip_special_tokens: c_int,
    text: *mut Text,
    error: *mut Text,
) -> c_int {
    let outcome = guard(|| (*tokenizer).decode(slice(ids, num_ids), skip_special_tokens != 0));
    report(outcome.map(|v| give_text(text, v.into_bytes())), error)
}

/// # Safety
/// `tokenizer` is a live handle.
#[no_mangle]
pub unsafe extern "C" fn mrt_tokenizer_vocabulary_size(tokenizer: *const TextTokenizer) -> usize {
    (*tokenizer).vocabulary_size()
}

/// # Safety
/// `tokenizer` is a live handle.
#[no_mangle]
pub unsafe extern "C" fn mrt_tokenizer_token_flags(
    tokenizer: *const TextTokenizer,
    id: u32,
) -> c_int {
    guard(|| Ok((*tokenizer).token_flags(id))).unwrap_or(0)
}

/// # Safety
/// Pointers are valid as the header says.
#[no_mangle]
pub unsafe extern "C" fn mrt_tokenizer_token_id(
    tokenizer: *const TextTokenizer,
    token: View,
    id: *mut u32,
) -> c_int {
    let found = guard(|| Ok((*tokenizer).token_id(token.text("the token")?)));
    match found {
        Ok(Some(value)) => {
            *id = value;
            0
        }
        _ => 1,
    }
}

/// # Safety
/// Pointers are valid as the header says.
#[no_mangle]
pub unsafe extern "C" fn mrt_tokenizer_piece(
    tokenizer: *const TextTokenizer,
    id: u32,
    piece: *mut Text,
) {
    let value = guard(|| Ok((*tokenizer).piece(id).unwrap_or_default())).unwrap_or_default();
    give_text(piece, value.into_bytes());
}

/// # Safety
/// Pointers are valid as the header says.
#[no_mangle]
pub unsafe extern "C" fn mrt_tokenizer_token_bytes(
    tokenizer: *const TextTokenizer,
    id: u32,
    bytes: *mut Text,
) {
    let value = guard(|| Ok((*tokenizer).token_bytes(id))).unwrap_or_default();
    give_text(bytes, value);
}

/// # Safety
/// `tokenizer` is a live handle.
#[no_mangle]
pub unsafe extern "C" fn mrt_tokenizer_strips_leading_space(
    tokenizer: *const TextTokenizer,
) -> c_int {
    (*tokenizer).strips_leading_space() as c_int
}

/// # Safety
/// Pointers are valid as the header says.
#[no_mangle]
pub unsafe extern "C" fn mrt_template_new(source: View, error: *mut Text) -> *mut ChatTemplate {
    let outcome = guard(|| ChatTemplate::new(source.text("the chat template")?));
    report_handle(outcome, error)
}

/// # Safety
/// `chat_template` came from this library and is given back once, or is null.
#[no_mangle]
pub unsafe extern "C" fn mrt_template_free(chat_template: *mut ChatTemplate) {
    if !chat_template.is_null() {
        drop(Box::from_raw(chat_template));
    }
}

/// # Safety
/// Pointers are valid as the header says.
#[no_mangle]
pub unsafe extern "C" fn mrt_template_render(
    chat_template: *const ChatTemplate,
    request: View,
    now: i64,
    text: *mut Text,
    error: *mut Text,
) -> c_int {
    let outcome = guard(|| (*chat_template).render(request.text("the chat")?, now));
    report(outcome.map(|v| give_text(text, v.into_bytes())), error)
}

/// # Safety
/// Pointers are valid as the header says.
#[no_mangle]
pub unsafe extern "C" fn mrt_template_encode(
    chat_template: *const ChatTemplate,
    tokenizer: *const TextTokenizer,
    request: View,
    now: i64,
    ids: *mut Ids,
    error: *mut Text,
) -> c_int {
    let outcome =
        guard(|| (*chat_template).encode(&*tokenizer, request.text("the chat")?, now));
    report(outcome.map(|v| give_ids(ids, v)), error)
}

/// # Safety
/// Pointers are valid as the header says.
#[no_mangle]
pub unsafe extern "C" fn mrt_gunzip(
    packed: View,
    limit: usize,
    unpacked: *mut Text,
    error: *mut Text,
) -> c_int {
    let outcome = guard(|| {
        let mut bytes = Vec::new();
        flate2::read::MultiGzDecoder::new(packed.bytes())
            .take(limit as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| format!("not valid gzip data: {e}"))?;
        if bytes.len() > limit {
            return Err(format!("unpacks to more than {limit} bytes"));
        }
        Ok(bytes)
    });
    report(outcome.map(|v| give_text(unpacked, v)), error)
}

//! A tokenizer that is immutable after creation: encoding with three ways to read the text of
//! added tokens, decoding, and the bytes behind each token.

use ahash::AHashMap;
use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::tokenizer::pre_tokenizer::PreTokenizedString;
use tokenizers::tokenizer::{Model, NormalizedString, Normalizer, OffsetType, PreTokenizer};
use tokenizers::{AddedVocabulary, Tokenizer};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Every added token is recognised.
    ParseSpecial,
    /// Special tokens are plain text; other added tokens are recognised.
    PlainSpecial,
    /// No added token is recognised.
    PlainAll,
}

impl Mode {
    pub fn from_code(code: i32) -> Result<Mode, String> {
        match code {
            0 => Ok(Mode::ParseSpecial),
            1 => Ok(Mode::PlainSpecial),
            2 => Ok(Mode::PlainAll),
            other => Err(format!("unknown encoding mode {other}")),
        }
    }
}

/// How the text of a token becomes bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bytes {
    /// Characters stand for bytes (GPT-2's table).
    ByteLevel,
    /// U+2581 stands for a space and `<0xNN>` for a byte.
    SentencePiece,
    /// The token's UTF-8.
    Plain,
}

pub struct TextTokenizer {
    inner: Tokenizer,
    /// The added tokens again, with the special ones not recognised.
    plain_special: AddedVocabulary,
    vocabulary_size: usize,
    bytes: Bytes,
    strips_leading_space: bool,
    byte_of_char: AHashMap<char, u8>,
    /// Finds the text of added tokens, longest first; none if there are no added tokens.
    control_tokens: Option<AhoCorasick>,
}

const EXISTS: i32 = 1;
const ADDED: i32 = 2;
const SPECIAL: i32 = 4;

impl TextTokenizer {
    pub fn from_json(json: &[u8]) -> Result<TextTokenizer, String> {
        let tokenizer = Tokenizer::from_bytes(json).map_err(|e| e.to_string())?;
        let last = tokenizer.get_vocab(true).values().copied().max();
        match last {
            None => Err("the vocabulary is empty".into()),
            // Ids index arrays elsewhere, so an absurd one must not pass.
            Some(id) if id >= 1 << 24 => Err(format!("token id {id} is beyond 16777215")),
            Some(id) => Ok(TextTokenizer::new(tokenizer, id as usize + 1)),
        }
    }

    pub fn new(mut inner: Tokenizer, vocabulary_size: usize) -> TextTokenizer {
        // A model's limits are the engine's business: text is never cut or padded here.
        let _ = inner.with_truncation(None);
        inner.with_padding(None);
        let mut plain_special = inner.get_added_vocabulary().clone();
        plain_special.set_encode_special_tokens(true);
        let decoder = inner
            .get_decoder()
            .and_then(|d| serde_json::to_value(d).ok())
            .unwrap_or(serde_json::Value::Null);
        let (bytes, strips_leading_space) = decoding(&decoder);
        let mut patterns: Vec<String> = inner
            .get_added_tokens_decoder()
            .into_values()
            .map(|t| t.content)
            .filter(|t| !t.is_empty())
            .collect();
        patterns.sort();
        let control_tokens = if patterns.is_empty() {
            None
        } else {
            AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&patterns).ok()
        };
        TextTokenizer {
            inner,
            plain_special,
            vocabulary_size,
            bytes,
            strips_leading_space,
            byte_of_char: byte_of_char(),
            control_tokens,
        }
    }

    pub fn encode(&self, text: &str, mode: Mode, add_special: bool) -> Result<Vec<u32>, String> {
        let error = |e: tokenizers::Error| e.to_string();
        let normalizer = self.inner.get_normalizer();
        let mut pieces = match mode {
            Mode::ParseSpecial => {
                self.inner.get_added_vocabulary().extract_and_normalize(normalizer, text)
            }
            Mode::PlainSpecial => self.plain_special.extract_and_normalize(normalizer, text),
            Mode::PlainAll => {
                let mut whole = NormalizedString::from(text);
                if let Some(n) = normalizer {
                    n.normalize(&mut whole).map_err(error)?;
                }
                PreTokenizedString::from(whole)
            }
        };
        if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces).map_err(error)?;
        }
        let model = self.inner.get_model();
        pieces.tokenize(|piece| model.tokenize(piece.get())).map_err(error)?;
        let encoding = pieces.into_encoding(None, 0, OffsetType::None).map_err(error)?;
        if !add_special {
            return Ok(encoding.get_ids().to_vec());
        }
        let encoding = self.inner.post_process(encoding, None, true).map_err(error)?;
        Ok(encoding.get_ids().to_vec())
    }

    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, String> {
        self.inner.decode(ids, skip_special).map_err(|e| e.to_string())
    }

    pub fn vocabulary_size(&self) -> usize {
        self.vocabulary_size
    }

    pub fn strips_leading_space(&self) -> bool {
        self.strips_leading_space
    }

    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    pub fn piece(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    pub fn token_flags(&self, id: u32) -> i32 {
        let added = self.inner.get_added_vocabulary().get_added_tokens_decoder().get(&id);
        match added {
            Some(token) if token.special => EXISTS | ADDED | SPECIAL,
            Some(_) => EXISTS | ADDED,
            None if self.inner.id_to_token(id).is_some() => EXISTS,
            None => 0,
        }
    }

    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        let Some(piece) = self.piece(id) else {
            return Vec::new();
        };
        match self.bytes {
            Bytes::Plain => piece.into_bytes(),
            Bytes::ByteLevel => {
                let mapped: Option<Vec<u8>> =
                    piece.chars().map(|c| self.byte_of_char.get(&c).copied()).collect();
                mapped.unwrap_or_else(|| piece.into_bytes())
            }
            Bytes::SentencePiece => match byte_token(&piece) {
                Some(byte) => vec![byte],
                None => piece.replace('\u{2581}', " ").into_bytes(),
            },
        }
    }

    /// Calls `found(start, end)` for each added token's text in `text`, left to right.
    pub fn for_each_control_token(&self, text: &str, mut found: impl FnMut(usize, usize)) {
        if let Some(finder) = &self.control_tokens {
            for m in finder.find_iter(text) {
                found(m.start(), m.end());
            }
        }
    }

    /// True if `text` is exactly the text of an added token.
    pub fn is_control_token(&self, text: &str) -> bool {
        self.inner.get_added_vocabulary().get_vocab().contains_key(text)
    }
}

/// `<0x0A>` -> 10.
fn byte_token(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// The way of a tokenizer.json decoder from tokens to bytes, and whether a leading space goes.
fn decoding(decoder: &serde_json::Value) -> (Bytes, bool) {
    let mut kinds = Vec::new();
    let mut strips = false;
    let mut open = vec![decoder];
    while let Some(d) = open.pop() {
        let kind = d.get("type").and_then(|t| t.as_str()).unwrap_or("");
        if kind == "Strip" {
            strips |= d.get("content").and_then(|c| c.as_str()) == Some(" ")
                && d.get("start").and_then(|s| s.as_u64()).unwrap_or(0) > 0;
        }
        if kind == "Metaspace" {
            strips |= d.get("prepend_scheme").and_then(|s| s.as_str()) != Some("never");
        }
        kinds.push(kind.to_string());
        if let Some(list) = d.get("decoders").and_then(|l| l.as_array()) {
            open.extend(list.iter());
        }
    }
    let has = |name: &str| kinds.iter().any(|k| k == name);
    if has("ByteLevel") {
        (Bytes::ByteLevel, false)
    } else if has("ByteFallback") || has("Metaspace") {
        (Bytes::SentencePiece, strips)
    } else {
        (Bytes::Plain, false)
    }
}

/// GPT-2's table backwards: printable bytes stand for themselves, the others for U+0100 and on.
fn byte_of_char() -> AHashMap<char, u8> {
    let stands_for_itself =
        |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut table = AHashMap::new();
    let mut next = 0x100u32;
    for byte in 0..=255u8 {
        if stands_for_itself(byte) {
            table.insert(byte as char, byte);
        } else if let Some(c) = char::from_u32(next) {
            table.insert(c, byte);
            next += 1;
        }
    }
    table
}

//! A tokenizer from the vocabulary of a GGUF file, built directly, with no tokenizer.json between.

use ahash::AHashMap;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as DecoderSequence;
use tokenizers::decoders::strip::Strip;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::prepend::Prepend;
use tokenizers::normalizers::replace::Replace;
use tokenizers::normalizers::utils::Sequence as NormalizerSequence;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer};

use crate::pre_tokenizers;
use crate::tokenizer::TextTokenizer;

pub struct Vocabulary<'a> {
    pub model: &'a str,
    pub pre: &'a str,
    pub tokens: Vec<&'a str>,
    pub merges: Vec<&'a str>,
    /// Empty, or one entry a token (llama.cpp's token types).
    pub token_types: &'a [i32],
    /// Empty, or one entry a token.
    pub scores: &'a [f32],
    pub add_space_prefix: bool,
}

const TYPE_UNKNOWN: i32 = 2;
const TYPE_CONTROL: i32 = 3;
const TYPE_USER_DEFINED: i32 = 4;

/// SentencePiece's stand-in for a space.
const SPACE: &str = "\u{2581}";

pub fn build(vocabulary: &Vocabulary) -> Result<TextTokenizer, String> {
    if vocabulary.tokens.is_empty() {
        return Err("tokenizer.ggml.tokens is empty".into());
    }
    let ids: AHashMap<String, u32> =
        vocabulary.tokens.iter().enumerate().map(|(i, t)| (t.to_string(), i as u32)).collect();
    let mut tokenizer = match vocabulary.model {
        "gpt2" => byte_level(vocabulary, ids)?,
        "llama" => sentence_piece(vocabulary, ids)?,
        other => {
            return Err(format!(
                "tokenizer.ggml.model is \"{}\"; known are gpt2 and llama: give the model's \
                 tokenizer.json instead",
                shorten(other)
            ))
        }
    };
    let added: Vec<AddedToken> = vocabulary
        .token_types
        .iter()
        .zip(&vocabulary.tokens)
        .filter_map(|(&kind, &token)| match kind {
            _ if token.is_empty() => None,
            TYPE_CONTROL | TYPE_UNKNOWN => Some(AddedToken::from(token, true).normalized(false)),
            TYPE_USER_DEFINED => Some(AddedToken::from(token, false).normalized(false)),
            _ => None,
        })
        .collect();
    tokenizer.add_tokens(added).map_err(|e| e.to_string())?;
    Ok(TextTokenizer::new(tokenizer, vocabulary.tokens.len()))
}

fn byte_level(vocabulary: &Vocabulary, ids: AHashMap<String, u32>) -> Result<Tokenizer, String> {
    let rules = pre_tokenizers::resolve(vocabulary.pre)?;
    if vocabulary.merges.is_empty() {
        return Err("tokenizer.ggml.merges is missing or empty".into());
    }
    let mut merges = Vec::with_capacity(vocabulary.merges.len());
    for (i, merge) in vocabulary.merges.iter().enumerate() {
        let (left, right) = split_merge(merge)
            .ok_or_else(|| format!("merge {i} (\"{}\") is not two tokens", shorten(merge)))?;
        for part in [left, right] {
            if !ids.contains_key(part) {
                return Err(format!("merge {i} has \"{}\", which is no token", shorten(part)));
            }
        }
        merges.push((left.to_string(), right.to_string()));
    }
    let model = BPE::builder()
        .vocab_and_merges(ids, merges)
        .ignore_merges(rules.ignore_merges)
        .build()
        .map_err(|e| e.to_string())?;
    let mut tokenizer = Tokenizer::new(model);
    tokenizer.with_normalizer(rules.normalizer).map_err(|e| e.to_string())?;
    tokenizer.with_pre_tokenizer(Some(rules.pre_tokenizer));
    tokenizer.with_decoder(Some(ByteLevel::new(false, true, false)));
    Ok(tokenizer)
}

/// A merge is two tokens with a space between; a token may begin with a space, so the first
/// character is never the separator.
fn split_merge(merge: &str) -> Option<(&str, &str)> {
    let first = merge.chars().next()?.len_utf8();
    let at = first + merge[first..].find(' ')?;
    let (left, right) = (&merge[..at], &merge[at + 1..]);
    (!right.is_empty()).then_some((left, right))
}

fn sentence_piece(
    vocabulary: &Vocabulary,
    ids: AHashMap<String, u32>,
) -> Result<Tokenizer, String> {
    if vocabulary.scores.is_empty() {
        return Err("tokenizer.ggml.scores is missing: a llama vocabulary needs it".into());
    }
    let merges = merges_from_scores(vocabulary, &ids);
    let unknown = vocabulary
        .token_types
        .iter()
        .position(|&kind| kind == TYPE_UNKNOWN)
        .map(|i| vocabulary.tokens[i].to_string());
    let mut builder =
        BPE::builder().vocab_and_merges(ids, merges).byte_fallback(true).fuse_unk(true);
    if let Some(token) = unknown {
        builder = builder.unk_token(token);
    }
    let mut tokenizer = Tokenizer::new(builder.build().map_err(|e| e.to_string())?);

    let text_error = |e: tokenizers::Error| e.to_string();
    let mut normalizers = Vec::new();
    if vocabulary.add_space_prefix {
        normalizers.push(NormalizerWrapper::Prepend(Prepend::new(SPACE.into())));
    }
    normalizers.push(NormalizerWrapper::Replace(Replace::new(" ", SPACE).map_err(text_error)?));
    tokenizer
        .with_normalizer(Some(NormalizerSequence::new(normalizers)))
        .map_err(text_error)?;

    let mut decoders = vec![
        DecoderWrapper::Replace(Replace::new(SPACE, " ").map_err(text_error)?),
        DecoderWrapper::ByteFallback(ByteFallback::new()),
        DecoderWrapper::Fuse(Fuse::new()),
    ];
    if vocabulary.add_space_prefix {
        decoders.push(DecoderWrapper::Strip(Strip::new(' ', 1, 0)));
    }
    tokenizer.with_decoder(Some(DecoderSequence::new(decoders)));
    Ok(tokenizer)
}

/// SentencePiece joins the pair whose result has the best score. As ranked merges: every way to cut
/// a token into two tokens, best score first.
fn merges_from_scores(
    vocabulary: &Vocabulary,
    ids: &AHashMap<String, u32>,
) -> Vec<(String, String)> {
    struct Cut<'a> {
        score: f32,
        left: &'a str,
        right: &'a str,
        order: (u32, u32, u32),
    }
    let mut cuts = Vec::new();
    for (i, token) in vocabulary.tokens.iter().enumerate() {
        let is_word = vocabulary.token_types.get(i).is_none_or(|&kind| kind == 1);
        if !is_word {
            continue;
        }
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if let (Some(&l), Some(&r)) = (ids.get(left), ids.get(right)) {
                let score = vocabulary.scores[i];
                cuts.push(Cut { score, left, right, order: (i as u32, l, r) });
            }
        }
    }
    cuts.sort_by(|a, b| {
        b.score
            .total_cmp(&a.score)
            .then_with(|| b.left.chars().count().cmp(&a.left.chars().count()))
            .then_with(|| b.right.chars().count().cmp(&a.right.chars().count()))
            .then_with(|| a.order.cmp(&b.order))
    });
    cuts.into_iter().map(|c| (c.left.to_string(), c.right.to_string())).collect()
}

pub fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}

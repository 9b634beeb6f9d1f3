//! Splitting rules of byte-level vocabularies, by the name that GGUF files give in
//! `tokenizer.ggml.pre`.

use tokenizers::normalizers::unicode::NFC;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::SplitDelimiterBehavior;

use crate::gguf_vocabulary::shorten;

/// What a `pre` name stands for.
pub struct Rules {
    pub pre_tokenizer: PreTokenizerWrapper,
    pub normalizer: Option<NormalizerWrapper>,
    /// A whole piece that is a token is taken as it is, before any merge.
    pub ignore_merges: bool,
}

const KNOWN: &str =
    "gpt-2, smollm, llama-bpe (llama3, llama-v3), qwen2 (deepseek-r1-qwen), glm4, glm5, \
     chatglm-bpe, deepseek-v3, default";

const GPT2: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The family of llama-bpe and qwen2: one pattern that differs in how many digits stay together.
fn words_with_digit_runs(digits: &str) -> Vec<String> {
    vec![format!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )]
}

fn deepseek_v3() -> Vec<String> {
    vec![
        r"\p{N}{1,3}".into(),
        "[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+".into(),
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##
            .into(),
    ]
}

fn default_rules() -> Vec<String> {
    vec![
        r"[\p{P}\$\+<=>\^~\|]+".into(),
        GPT2.into(),
        r"\p{N}+".into(),
        r"[0-9][0-9][0-9]".into(),
    ]
}

fn splits(patterns: Vec<String>) -> Result<PreTokenizerWrapper, String> {
    let mut steps = Vec::new();
    for pattern in patterns {
        let split = Split::new(SplitPattern::Regex(pattern), SplitDelimiterBehavior::Isolated, false)
            .map_err(|e| e.to_string())?;
        steps.push(PreTokenizerWrapper::Split(split));
    }
    steps.push(PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, false)));
    Ok(PreTokenizerWrapper::Sequence(Sequence::new(steps)))
}

/// The rules of a name, or an error that names it and the known ones.
pub fn resolve(pre: &str) -> Result<Rules, String> {
    let byte_level = || PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, true));
    let mut normalizer = None;
    let mut ignore_merges = false;
    let pre_tokenizer = match pre {
        "gpt-2" => byte_level(),
        "smollm" => PreTokenizerWrapper::Sequence(Sequence::new(vec![
            PreTokenizerWrapper::Digits(Digits::new(true)),
            byte_level(),
        ])),
        "llama-bpe" | "llama3" | "llama-v3" | "glm4" | "glm5" => {
            ignore_merges = true;
            splits(words_with_digit_runs(r"\p{N}{1,3}"))?
        }
        "chatglm-bpe" => splits(words_with_digit_runs(r"\p{N}{1,3}"))?,
        "qwen2" | "deepseek-r1-qwen" => {
            normalizer = Some(NormalizerWrapper::NFC(NFC));
            splits(words_with_digit_runs(r"\p{N}"))?
        }
        "deepseek-v3" => splits(deepseek_v3())?,
        "" | "default" => splits(default_rules())?,
        other => {
            return Err(format!(
                "tokenizer.ggml.pre is \"{}\", whose splitting rules are not known here \
                 (known: {KNOWN}); give the model's tokenizer.json instead",
                shorten(other)
            ))
        }
    };
    Ok(Rules { pre_tokenizer, normalizer, ignore_merges })
}

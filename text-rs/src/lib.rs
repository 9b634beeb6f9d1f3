//! Tokenizers and chat templates of Millrace behind the C interface of include/millrace_text.h.

mod clock;
mod ffi;
mod gguf_vocabulary;
mod messages;
mod pre_tokenizers;
mod python;
mod template;
mod tokenizer;

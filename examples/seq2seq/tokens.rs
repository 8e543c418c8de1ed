//! The tokens, which are learnt from the lines.

use std::error::Error;

use accelerate::Accelerator;
use accelerate_models::TextTokenizer;

use crate::pairs::Pair;

/// The token that fills up shorter lines, and that the decoder begins with.
pub(crate) const PADDING: i64 = 0;
/// The token that ends a line.
pub(crate) const END: i64 = 1;

const SPECIAL: [&str; 2] = ["<pad>", "</s>"];

/// Learns the tokens on the main process, which tells the others.
///
/// # Collective
/// Every rank calls this.
pub(crate) fn learn(
    accelerator: &Accelerator,
    pairs: &[Pair],
    vocab_size: usize,
) -> Result<TextTokenizer, Box<dyn Error>> {
    // A failure of the main process goes round as text, so that no rank waits for it.
    let mut json: Vec<Result<String, String>> = vec![Ok(String::new())];
    if accelerator.is_main_process() {
        let texts: Vec<&str> = pairs
            .iter()
            .flat_map(|pair| [pair.source.as_str(), pair.target.as_str()])
            .collect();
        let texts = texts.iter().copied();
        let learnt = TextTokenizer::train_byte_level_bpe(texts, vocab_size, &SPECIAL)
            .and_then(|tokenizer| tokenizer.to_json());
        json = vec![learnt.map_err(|error| with_causes(&error))];
    }
    accelerator.broadcast_object_list(&mut json, 0)?;
    let json = json.pop().ok_or("the main process sent no tokenizer")??;
    Ok(TextTokenizer::from_json(&json)?)
}

fn with_causes(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", with_causes(cause)),
        None => error.to_string(),
    }
}

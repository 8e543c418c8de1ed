//! The shapes of models, as their public configurations and checkpoints have them.

use serde_json::{Value, json};

/// A kind of model with its sizes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    Gpt2(Sizes),
    Llama(Sizes),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    vocabulary: usize,
    positions: usize,
    width: usize,
    inner: usize,
    layers: usize,
    heads: usize,
}

/// 1,557,611,200 parameters: 6.2 GB in float32.
const GPT2_XL: Sizes = Sizes {
    vocabulary: 50257,
    positions: 1024,
    width: 1600,
    inner: 6400,
    layers: 48,
    heads: 25,
};

/// 777,856,512 parameters: 3.1 GB in float32, seven files of at most 500 MB.
const LLAMA: Sizes = Sizes {
    vocabulary: 32000,
    positions: 2048,
    width: 1536,
    inner: 4096,
    layers: 24,
    heads: 12,
};

/// Written and run in a moment.
const TINY: Sizes = Sizes {
    vocabulary: 512,
    positions: 128,
    width: 64,
    inner: 256,
    layers: 4,
    heads: 4,
};

impl Shape {
    pub(crate) const NAMES: [&'static str; 4] =
        ["gpt2-xl", "llama-0.8b", "gpt2-tiny", "llama-tiny"];

    pub(crate) fn named(name: &str) -> Result<Self, String> {
        Ok(match name {
            "gpt2-xl" => Self::Gpt2(GPT2_XL),
            "llama-0.8b" => Self::Llama(LLAMA),
            "gpt2-tiny" => Self::Gpt2(TINY),
            "llama-tiny" => Self::Llama(TINY),
            other => {
                let known = Self::NAMES.join("`, `");
                return Err(format!("expected a shape of `{known}`, found `{other}`"));
            }
        })
    }

    /// The configuration, for weights of a type that PyTorch calls so.
    ///
    /// Nothing ends a text: a run makes as many tokens as it is asked for.
    pub(crate) fn config(&self, kind: &str) -> Value {
        match self {
            Self::Gpt2(sizes) => json!({
                "model_type": "gpt2",
                "architectures": ["GPT2LMHeadModel"],
                "torch_dtype": kind,
                "vocab_size": sizes.vocabulary,
                "n_positions": sizes.positions,
                "n_embd": sizes.width,
                "n_inner": sizes.inner,
                "n_layer": sizes.layers,
                "n_head": sizes.heads,
                "activation_function": "gelu_new",
                "layer_norm_epsilon": 1e-5,
                "bos_token_id": 0,
                "eos_token_id": null,
                "tie_word_embeddings": true,
            }),
            Self::Llama(sizes) => json!({
                "model_type": "llama",
                "architectures": ["LlamaForCausalLM"],
                "torch_dtype": kind,
                "vocab_size": sizes.vocabulary,
                "max_position_embeddings": sizes.positions,
                "hidden_size": sizes.width,
                "intermediate_size": sizes.inner,
                "num_hidden_layers": sizes.layers,
                "num_attention_heads": sizes.heads,
                "num_key_value_heads": sizes.heads,
                "hidden_act": "silu",
                "rms_norm_eps": 1e-5,
                "rope_theta": 10000.0,
                "bos_token_id": 0,
                "eos_token_id": null,
                "tie_word_embeddings": false,
            }),
        }
    }

    /// Names and shapes in the order of the module tree.
    pub(crate) fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        match self {
            Self::Gpt2(sizes) => sizes.gpt2(),
            Self::Llama(sizes) => sizes.llama(),
        }
    }
}

impl Sizes {
    /// The head has the weights of the token embeddings and is not stored.
    fn gpt2(&self) -> Vec<(String, Vec<usize>)> {
        let (width, inner) = (self.width, self.inner);
        let mut all = vec![
            (
                "transformer.wte.weight".to_owned(),
                vec![self.vocabulary, width],
            ),
            (
                "transformer.wpe.weight".to_owned(),
                vec![self.positions, width],
            ),
        ];
        for layer in 0..self.layers {
            for (name, shape) in [
                ("ln_1.weight", vec![width]),
                ("ln_1.bias", vec![width]),
                ("attn.c_attn.weight", vec![width, 3 * width]),
                ("attn.c_attn.bias", vec![3 * width]),
                ("attn.c_proj.weight", vec![width, width]),
                ("attn.c_proj.bias", vec![width]),
                ("ln_2.weight", vec![width]),
                ("ln_2.bias", vec![width]),
                ("mlp.c_fc.weight", vec![width, inner]),
                ("mlp.c_fc.bias", vec![inner]),
                ("mlp.c_proj.weight", vec![inner, width]),
                ("mlp.c_proj.bias", vec![width]),
            ] {
                all.push((format!("transformer.h.{layer}.{name}"), shape));
            }
        }
        all.push(("transformer.ln_f.weight".to_owned(), vec![width]));
        all.push(("transformer.ln_f.bias".to_owned(), vec![width]));
        all
    }

    fn llama(&self) -> Vec<(String, Vec<usize>)> {
        let (width, inner) = (self.width, self.inner);
        let mut all = vec![(
            "model.embed_tokens.weight".to_owned(),
            vec![self.vocabulary, width],
        )];
        for layer in 0..self.layers {
            for (name, shape) in [
                ("self_attn.q_proj.weight", vec![width, width]),
                ("self_attn.k_proj.weight", vec![width, width]),
                ("self_attn.v_proj.weight", vec![width, width]),
                ("self_attn.o_proj.weight", vec![width, width]),
                ("mlp.gate_proj.weight", vec![inner, width]),
                ("mlp.up_proj.weight", vec![inner, width]),
                ("mlp.down_proj.weight", vec![width, inner]),
                ("input_layernorm.weight", vec![width]),
                ("post_attention_layernorm.weight", vec![width]),
            ] {
                all.push((format!("model.layers.{layer}.{name}"), shape));
            }
        }
        all.push(("model.norm.weight".to_owned(), vec![width]));
        all.push(("lm_head.weight".to_owned(), vec![self.vocabulary, width]));
        all
    }
}

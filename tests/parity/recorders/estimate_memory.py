"""How large the original's memory estimate finds a model to be, from its `config.json` alone."""

from .fixture_file import write

LABELS_7 = {"id2label": {str(number): f"LABEL_{number}" for number in range(7)}}

#: (class, or None for the class that the original picks itself; content of a `config.json`)
CASES = [
    # The keys that the public files hold, among them old spellings.
    (None, {"model_type": "bert", "vocab_size": 28996}),
    (None, {"model_type": "bert", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096, "vocab_size": 30522}),
    ("BertForMaskedLM", {"model_type": "bert", "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}),
    ("BertForSequenceClassification", {"model_type": "bert", "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536, **LABELS_7}),
    ("BertForTokenClassification", {"model_type": "bert", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024, "num_labels": 9}),
    ("BertForQuestionAnswering", {"model_type": "bert", "max_position_embeddings": 1024, "type_vocab_size": 4}),
    ("BertForMultipleChoice", {"model_type": "bert", "num_hidden_layers": 3}),
    ("BertForNextSentencePrediction", {"model_type": "bert", "num_hidden_layers": 1}),
    ("BertLMHeadModel", {"model_type": "bert", "num_hidden_layers": 2, "is_decoder": True, "add_cross_attention": True}),
    (None, {"model_type": "roberta", "vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}),
    ("RobertaForCausalLM", {"model_type": "roberta", "num_hidden_layers": 2, "is_decoder": True}),
    ("RobertaForSequenceClassification", {"model_type": "roberta", "num_hidden_layers": 2, "type_vocab_size": 1, **LABELS_7}),
    ("RobertaForTokenClassification", {"model_type": "roberta", "num_hidden_layers": 2}),
    ("RobertaForQuestionAnswering", {"model_type": "roberta", "num_hidden_layers": 2}),
    ("RobertaForMultipleChoice", {"model_type": "roberta", "num_hidden_layers": 2}),
    (None, {"model_type": "xlm-roberta", "vocab_size": 250002, "max_position_embeddings": 514, "type_vocab_size": 1}),
    ("XLMRobertaForMaskedLM", {"model_type": "xlm-roberta", "vocab_size": 250002, "num_hidden_layers": 2}),
    (None, {"model_type": "distilbert", "dim": 512, "hidden_dim": 2048, "n_layers": 3, "n_heads": 8, "vocab_size": 119547}),
    ("DistilBertForMaskedLM", {"model_type": "distilbert"}),
    ("DistilBertForSequenceClassification", {"model_type": "distilbert", "n_layers": 2, **LABELS_7}),
    ("DistilBertForTokenClassification", {"model_type": "distilbert", "n_layers": 2}),
    ("DistilBertForQuestionAnswering", {"model_type": "distilbert", "n_layers": 2, "sinusoidal_pos_embds": True}),
    ("DistilBertForMultipleChoice", {"model_type": "distilbert", "n_layers": 2}),
    (None, {"model_type": "gpt2"}),
    (None, {"model_type": "gpt2", "n_embd": 1280, "n_layer": 36, "n_head": 20, "n_inner": 2000}),
    ("GPT2LMHeadModel", {"model_type": "gpt2", "n_layer": 2, "add_cross_attention": True}),
    ("GPT2DoubleHeadsModel", {"model_type": "gpt2", "n_layer": 2}),
    ("GPT2ForSequenceClassification", {"model_type": "gpt2", "n_layer": 2, **LABELS_7}),
    ("GPT2ForTokenClassification", {"model_type": "gpt2", "n_layer": 2}),
    ("GPT2ForQuestionAnswering", {"model_type": "gpt2", "n_layer": 2}),
    (None, {"model_type": "gpt_neox"}),
    ("GPTNeoXForCausalLM", {"model_type": "gpt_neox", "hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8, "num_hidden_layers": 6, "vocab_size": 50304, "rotary_pct": 0.25, "rotary_emb_base": 10000}),
    ("GPTNeoXForSequenceClassification", {"model_type": "gpt_neox", "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 2, "attention_bias": False, "rotary_pct": 1.0}),
    ("GPTNeoXForTokenClassification", {"model_type": "gpt_neox", "hidden_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2}),
    ("GPTNeoXForQuestionAnswering", {"model_type": "gpt_neox", "hidden_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2}),
    (None, {"model_type": "opt", "hidden_size": 1024, "ffn_dim": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "word_embed_proj_dim": 512, "do_layer_norm_before": False}),
    (None, {"model_type": "opt", "hidden_size": 2048, "ffn_dim": 8192, "num_hidden_layers": 24, "num_attention_heads": 32, "word_embed_proj_dim": 2048}),
    ("OPTForCausalLM", {"model_type": "opt", "num_hidden_layers": 2, "_remove_final_layer_norm": True, "enable_bias": False, "layer_norm_elementwise_affine": False}),
    ("OPTForSequenceClassification", {"model_type": "opt", "num_hidden_layers": 2}),
    ("OPTForQuestionAnswering", {"model_type": "opt", "num_hidden_layers": 2}),
    (None, {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}),
    (None, {"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8, "num_hidden_layers": 80, "vocab_size": 128256}),
    ("LlamaForCausalLM", {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 16, "head_dim": 64, "vocab_size": 128256, "tie_word_embeddings": True}),
    ("LlamaForSequenceClassification", {"model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_hidden_layers": 2, "attention_bias": True, "mlp_bias": True, **LABELS_7}),
    ("LlamaForTokenClassification", {"model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_hidden_layers": 2}),
    ("LlamaForQuestionAnswering", {"model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_hidden_layers": 2}),
    (None, {"model_type": "mistral", "hidden_size": 5120, "head_dim": 128, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 40, "vocab_size": 131072}),
    ("MistralForSequenceClassification", {"model_type": "mistral", "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 8, "num_hidden_layers": 2}),
    ("MistralForTokenClassification", {"model_type": "mistral", "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 8, "num_hidden_layers": 2}),
    ("MistralForQuestionAnswering", {"model_type": "mistral", "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 8, "num_hidden_layers": 2}),
    (None, {"model_type": "mixtral", "num_hidden_layers": 4}),
    ("MixtralForCausalLM", {"model_type": "mixtral", "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2, "num_hidden_layers": 3, "num_local_experts": 4, "head_dim": 64}),
    ("MixtralForSequenceClassification", {"model_type": "mixtral", "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "num_hidden_layers": 1}),
    ("MixtralForQuestionAnswering", {"model_type": "mixtral", "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "num_hidden_layers": 1}),
    (None, {"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14, "num_key_value_heads": 2, "num_hidden_layers": 24, "vocab_size": 151936, "tie_word_embeddings": True}),
    ("Qwen2ForCausalLM", {"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28, "num_key_value_heads": 4, "num_hidden_layers": 28, "vocab_size": 152064}),
    ("Qwen2ForQuestionAnswering", {"model_type": "qwen2", "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_hidden_layers": 2, "head_dim": 64}),
    ("Qwen3ForCausalLM", {"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 28, "head_dim": 128, "tie_word_embeddings": True}),
    ("Qwen3ForQuestionAnswering", {"model_type": "qwen3", "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_hidden_layers": 2, "attention_bias": True}),
    (None, {"model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384, "num_attention_heads": 8, "num_key_value_heads": 1, "num_hidden_layers": 18}),
    ("GemmaForSequenceClassification", {"model_type": "gemma", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "attention_bias": True}),
    ("Gemma2ForCausalLM", {"model_type": "gemma2", "num_hidden_layers": 4}),
    (None, {"model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240, "num_attention_heads": 32, "num_hidden_layers": 32, "partial_rotary_factor": 0.4}),
    ("PhiForCausalLM", {"model_type": "phi", "num_hidden_layers": 2, "qk_layernorm": True, "num_key_value_heads": 8}),
    ("PhiForSequenceClassification", {"model_type": "phi", "num_hidden_layers": 2}),
    ("PhiForTokenClassification", {"model_type": "phi", "num_hidden_layers": 2}),
    ("Phi3ForCausalLM", {"model_type": "phi3", "num_hidden_layers": 3, "num_key_value_heads": 8}),
    (None, {"model_type": "t5"}),
    (None, {"model_type": "t5", "d_model": 1024, "d_kv": 64, "d_ff": 2816, "num_heads": 16, "num_layers": 24, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    ("T5ForConditionalGeneration", {"model_type": "t5", "num_layers": 2, "num_decoder_layers": 3, "d_kv": 32}),
    ("T5EncoderModel", {"model_type": "t5", "num_layers": 2}),
    ("T5ForSequenceClassification", {"model_type": "t5", "num_layers": 2, **LABELS_7}),
    ("T5ForTokenClassification", {"model_type": "t5", "num_layers": 2}),
    ("T5ForQuestionAnswering", {"model_type": "t5", "num_layers": 2}),
    ("MT5ForConditionalGeneration", {"model_type": "mt5"}),
    (None, {"model_type": "vit"}),
    (None, {"model_type": "vit", "hidden_size": 192, "num_hidden_layers": 12, "num_attention_heads": 3, "intermediate_size": 768, "image_size": [224, 192], "patch_size": 32, "qkv_bias": False, "pooler_output_size": 100}),
    ("ViTForImageClassification", {"model_type": "vit", "image_size": 384, "num_channels": 1, **LABELS_7}),
    ("ViTForMaskedImageModeling", {"model_type": "vit", "num_hidden_layers": 2}),
    (None, {"model_type": "resnet"}),
    ("ResNetForImageClassification", {"model_type": "resnet", "depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, 512], "layer_type": "basic", "num_labels": 1000}),
    ("ResNetForImageClassification", {"model_type": "resnet", "depths": [3, 8, 36, 3], "downsample_in_first_stage": True, **LABELS_7}),
    ("ResNetModel", {"model_type": "resnet", "depths": [2, 1], "hidden_sizes": [32, 48], "embedding_size": 32, "downsample_in_bottleneck": True}),
]


def record(out):
    """Writes `estimate_memory.json`: bytes in float32 and the names of the largest layers."""
    write(out / "estimate_memory.json", {"cases": [case(*chosen) for chosen in CASES]})


def case(architecture, config):
    import torch
    import transformers
    from accelerate import init_empty_weights
    from accelerate.utils import calculate_maximum_sizes

    settings = transformers.AutoConfig.for_model(**config)
    builder = getattr(transformers, architecture)._from_config if architecture else transformers.AutoModel.from_config
    with init_empty_weights():
        model = builder(settings, dtype=torch.float32)
    total, (largest, names) = calculate_maximum_sizes(model)
    return {
        "config": config,
        "architecture": architecture,
        "built": type(model).__name__,
        "total_bytes": total,
        "largest_layer_bytes": largest,
        "largest_layers": names,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }

"""Generation: the tokens of greedy search, sampling and beam search, and what happens to scores."""

import torch
from transformers import GenerationConfig, LogitsProcessorList

from . import fixture_file
from .decoders import GPT2, LLAMA, build
from .fixture_file import floats

SPREAD = 0.6
#: A run says itself what ends it; else the original takes it from the model.
NO_ENDS = {"bos_token_id": None, "eos_token_id": None}
MODELS = {
    "gpt2": ("GPT2LMHeadModel", {**GPT2, "n_positions": 32, **NO_ENDS}),
    "llama": ("LlamaForCausalLM", {**LLAMA, "max_position_embeddings": 32, **NO_ENDS}),
}
ONE = [[3, 7, 1, 29]]
#: 27 is padding.
THREE = [[3, 7, 1, 29, 12], [27, 27, 8, 8, 21], [27, 5, 6, 4, 2]]
#: No end token, so that every sequence is as long as can be.
LONG = {"max_new_tokens": 16, "pad_token_id": 27}
ENDING = {"max_new_tokens": 14, "pad_token_id": 27, "eos_token_id": [2, 9, 14, 19, 26]}
#: Ends that beams meet soon.
SOON = {**ENDING, "eos_token_id": [13, 18, 21]}

CASES = [
    ("greedy", ONE, LONG),
    ("greedy, batch", THREE, LONG),
    ("greedy, batch with ends", THREE, ENDING),
    ("repetition penalty", THREE, {**LONG, "repetition_penalty": 1.7}),
    ("no run of two twice", THREE, {**LONG, "no_repeat_ngram_size": 2}),
    ("at least nine new tokens", THREE, {**ENDING, "min_new_tokens": 9}),
    ("at least ten tokens", ONE, {**ENDING, "min_length": 10}),
    ("at most seven tokens", ONE, {"max_length": 7, "pad_token_id": 27}),
    ("sample", ONE, {**LONG, "do_sample": True, "seed": 1}),
    ("sample, batch with ends", THREE, {**ENDING, "do_sample": True, "seed": 2}),
    ("sample, cooler", THREE, {**LONG, "do_sample": True, "temperature": 0.6, "top_k": 5, "seed": 3}),
    ("sample, nucleus", THREE, {**LONG, "do_sample": True, "temperature": 1.4, "top_p": 0.7, "top_k": 0, "seed": 4}),
    ("sample, least part", THREE, {**LONG, "do_sample": True, "min_p": 0.2, "repetition_penalty": 1.3, "seed": 5}),
    ("sample, three of each", THREE, {**ENDING, "do_sample": True, "num_return_sequences": 3, "seed": 6}),
    ("beams", ONE, {**LONG, "num_beams": 3}),
    ("beams, batch with ends", THREE, {**ENDING, "num_beams": 4}),
    ("beams, all returned", THREE, {**SOON, "num_beams": 3, "num_return_sequences": 3}),
    ("beams, long ones", THREE, {**SOON, "num_beams": 3, "length_penalty": 2.0, "num_return_sequences": 2}),
    ("beams, short ones", THREE, {**ENDING, "num_beams": 3, "length_penalty": -1.0, "num_return_sequences": 2}),
    ("beams, until complete", THREE, {**SOON, "num_beams": 3, "early_stopping": True, "num_return_sequences": 3}),
    ("beams, never early", THREE, {**SOON, "num_beams": 3, "early_stopping": "never", "length_penalty": 0.5,
                                   "num_return_sequences": 3}),
    ("beams, repetition penalty", THREE, {**ENDING, "num_beams": 2, "repetition_penalty": 1.4,
                                          "no_repeat_ngram_size": 3}),
    ("beams, sampled", THREE, {**SOON, "num_beams": 3, "do_sample": True, "temperature": 1.2, "top_k": 8, "seed": 7}),
    ("beams, one end", THREE, {**LONG, "eos_token_id": 9, "num_beams": 3, "num_return_sequences": 2}),
    ("bad words and biases", THREE,
     {**LONG, "bad_words_ids": [[7], [2, 5], [13, 18, 4]], "sequence_bias": [[[11], -1.5], [[8, 21], 2.5]]}),
    ("forced end, likelier and likelier", THREE,
     {**ENDING, "forced_eos_token_id": [9, 14], "exponential_decay_length_penalty": [4, 1.4]}),
    ("suppressed tokens", THREE,
     {**LONG, "suppress_tokens": [5, 11, 13, 21], "begin_suppress_tokens": [2, 9, 18, 20, 26]}),
    ("nothing of the prompt twice", THREE,
     {**LONG, "encoder_no_repeat_ngram_size": 2, "encoder_repetition_penalty": 1.5}),
    ("sample, typical", THREE, {**LONG, "do_sample": True, "typical_p": 0.6, "seed": 8}),
    ("sample, cut off", THREE,
     {**LONG, "do_sample": True, "epsilon_cutoff": 0.03, "eta_cutoff": 0.1, "top_k": 0, "seed": 9}),
    ("sample, by entropy", THREE,
     {**ENDING, "do_sample": True, "top_h": 0.6, "renormalize_logits": True, "seed": 10}),
    ("beams, normalised", THREE,
     {**SOON, "num_beams": 3, "num_return_sequences": 2, "renormalize_logits": True, "bad_words_ids": [[13], [4, 4]],
      "encoder_no_repeat_ngram_size": 1, "forced_eos_token_id": 18}),
]

SETTINGS = [
    {"temperature": 0.7},
    {"top_k": 4},
    {"top_p": 0.6, "top_k": 0},
    {"top_p": 0.3, "top_k": 6, "temperature": 1.5},
    {"min_p": 0.3, "top_k": 0},
    {"top_p": 0.2, "top_k": 1, "num_beams": 2, "eos_token_id": [1, 2]},
    {"repetition_penalty": 2.0, "top_k": 0},
    {"repetition_penalty": 0.5, "no_repeat_ngram_size": 2, "top_k": 0},
    {"min_new_tokens": 2, "eos_token_id": [3, 11], "top_k": 0},
    {"sequence_bias": [[[4], 1.5], [[5, 1, 6], -2.0], [[2, 8], 3.0], [[1, 8], 0.5]], "top_k": 0},
    {"bad_words_ids": [[3], [9], [0, 2, 4], [1, 5], [5, 1, 7]], "eos_token_id": [9], "top_k": 0},
    {"encoder_repetition_penalty": 1.5, "top_k": 0},
    {"encoder_repetition_penalty": 0.8, "encoder_no_repeat_ngram_size": 2, "top_k": 0},
    {"encoder_no_repeat_ngram_size": 1, "top_k": 0},
    {"encoder_no_repeat_ngram_size": 6, "top_k": 0},
    {"forced_bos_token_id": 3, "forced_eos_token_id": [2, 5], "max_length": 6, "top_k": 0},
    {"forced_eos_token_id": 2, "max_length": 7, "top_k": 0},
    {"exponential_decay_length_penalty": [0, 1.5], "eos_token_id": [3, 6], "top_k": 0},
    {"exponential_decay_length_penalty": [1, 1.5], "eos_token_id": [3, 6], "top_k": 0},
    {"suppress_tokens": [1, 4, 40], "begin_suppress_tokens": [6], "top_k": 0},
    {"suppress_tokens": [1], "begin_suppress_tokens": [6, 7], "prompt_tokens": 5, "top_k": 0},
    {"top_h": 0.4, "top_k": 0},
    {"top_h": 0.9, "top_k": 3},
    {"typical_p": 0.3, "top_k": 0},
    {"typical_p": 0.8, "top_k": 0, "num_beams": 2, "eos_token_id": [1, 2], "bad_words_ids": [[6]]},
    {"epsilon_cutoff": 0.08, "top_k": 0},
    {"eta_cutoff": 0.3, "top_k": 0, "suppress_tokens": [0]},
    {"epsilon_cutoff": 0.9, "top_k": 0, "num_beams": 3},
    {"renormalize_logits": True, "top_k": 5},
    {"repetition_penalty": 1.3, "typical_p": 0.7, "epsilon_cutoff": 0.02, "top_p": 0.9, "min_p": 0.05,
     "sequence_bias": [[[2], 1.0]], "renormalize_logits": True, "temperature": 0.8, "top_k": 9},
]


def record(out):
    runs = [one_run(model, *case) for model in MODELS for case in CASES]
    fixture_file.write(
        out / "generation.json",
        {
            "spread": SPREAD,
            "models": {name: {"architecture": kind, "config": config} for name, (kind, config) in MODELS.items()},
            "runs": runs,
            "scores": scores(),
        },
    )


def one_run(model_name, name, prompt, settings):
    model = build(*MODELS[model_name], SPREAD).eval()
    settings = dict(settings)
    seed = settings.pop("seed", None)
    if seed is not None:
        torch.manual_seed(seed)
    ids = torch.tensor(prompt)
    made = model.generate(
        ids,
        attention_mask=(ids != 27).long(),
        generation_config=GenerationConfig(**settings, return_dict_in_generate=True, output_scores=True),
    )
    found = getattr(made, "sequences_scores", None)
    return {
        "model": model_name,
        "name": name,
        "prompt": prompt,
        "settings": settings,
        "seed": seed,
        "sequences": made.sequences.tolist(),
        "scores": None if found is None else floats(found),
    }


def scores():
    """What is left of scores; what is ruled out is null."""
    ids = torch.tensor([[5, 1, 3, 5, 1], [2, 2, 7, 0, 2]])
    logits = torch.tensor([[((7 * row + 5 * i + i * i) % 23) / 5 - 2 for i in range(12)] for row in range(2)])
    model = build("GPT2LMHeadModel", {**GPT2, "vocab_size": 12}, SPREAD)
    cases = []
    for settings in SETTINGS:
        # Wherever a recorded run of the original leaves a value open, it has its own default.
        given = {"temperature": 1.0, "top_k": 50, "top_p": 1.0, "num_beams": 1, "repetition_penalty": 1.0,
                 "no_repeat_ngram_size": 0, "min_length": 0, "do_sample": True, **settings}
        prompt_tokens = given.pop("prompt_tokens", 4)
        config = GenerationConfig(**given)
        if "eos_token_id" in settings:
            config._eos_token_tensor = torch.tensor(settings["eos_token_id"])
        else:
            config._eos_token_tensor = None
        processors = model._get_logits_processor(config, input_ids_seq_length=prompt_tokens, model_kwargs={},
                                                 encoder_input_ids=ids[:, :4], device="cpu",
                                                 logits_processor=LogitsProcessorList())
        left = processors(ids, logits.clone())
        rows = [[None if value == float("-inf") else value for value in row] for row in floats(left)]
        cases.append({"settings": settings, "left": rows})
    return {"sequences": ids.tolist(), "logits": floats(logits), "cases": cases}

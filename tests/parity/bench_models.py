#!/usr/bin/env python
"""The Python side of the example `model_pace`: training steps, generation and the start of an encoder.

Sizes are in `bench_models.json`, which both sides read. `measures` are in seconds; `checks` must
equal those of the other side, for only then both did the same work.
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path

clock = time.perf_counter

SIZES = Path(__file__).with_name("bench_models.json")
GENERATORS = ("gpt2", "llama", "t5")
WARM_UP, LEAST_STEPS, MOST_STEPS, SECONDS = 3, 5, 40, 2.0
PROMPT, NEW = 32, 48


def main():
    parts = {"train": train, "generate": generate, "start": start}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=parts)
    parser.add_argument("--bench-json", required=True, metavar="PATH")
    arguments = parser.parse_args()
    numbers = {"measures": {}, "checks": {}}
    parts[arguments.part](numbers["measures"], numbers["checks"])
    with open(f"{arguments.bench_json}.rank0.json", "w", encoding="utf-8") as file:
        json.dump(numbers, file)


def each(names=None):
    """Name, size and shapes of each model."""
    for name, sizes in json.loads(SIZES.read_text()).items():
        for size, shape in sizes.items():
            if names is None or name in names:
                yield name, size, shape


def make(name, config):
    import torch
    import transformers

    classes = {
        "bert": (transformers.BertConfig, transformers.BertForSequenceClassification),
        "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel),
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "mixtral": (transformers.MixtralConfig, transformers.MixtralForCausalLM),
        "t5": (transformers.T5Config, transformers.T5ForConditionalGeneration),
        "resnet": (transformers.ResNetConfig, transformers.ResNetForImageClassification),
        "vit": (transformers.ViTConfig, transformers.ViTForImageClassification),
    }
    configuration, model = classes[name]
    torch.manual_seed(0)
    return model(configuration(**config))


def token_ids(shape, tokens):
    import torch

    count = shape["rows"] * tokens
    return (torch.arange(count) * 7 % (shape["config"]["vocab_size"] - 3) + 2).view(shape["rows"], tokens)


def batch(name, shape):
    import torch

    if "pixels" in shape:
        count = shape["rows"] * 3 * shape["pixels"] ** 2
        pixels = torch.arange(count, dtype=torch.float32).remainder(251.0).div(125.0).sub(1.0)
        images = pixels.view(shape["rows"], 3, shape["pixels"], shape["pixels"])
        return {"pixel_values": images, "labels": torch.arange(shape["rows"])}
    ids = token_ids(shape, shape["tokens"])
    if name == "bert":
        return {"input_ids": ids, "labels": torch.arange(shape["rows"]) % 2}
    return {"input_ids": ids, "labels": ids}


def train(measures, checks):
    import torch

    torch.set_num_threads(1)
    for name, size, shape in each():
        model = make(name, shape["config"]).train()
        inputs = batch(name, shape)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

        def step():
            loss = model(**inputs).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.item()

        checks[f"{name}_{size}_parameters"] = float(sum(one.numel() for one in model.parameters()))
        checks[f"{name}_{size}_loss"] = float(round(step() * 100))
        measures[f"{name}_{size}_step_s"] = median_of(step)


def median_of(work):
    for _ in range(WARM_UP):
        work()
    times, begin = [], clock()
    while len(times) < LEAST_STEPS or (len(times) < MOST_STEPS and clock() - begin < SECONDS):
        start = clock()
        work()
        times.append(clock() - start)
    return statistics.median(times)


def generate(measures, checks):
    import torch
    from transformers import GenerationConfig

    torch.set_num_threads(1)
    for name, size, shape in each(GENERATORS):
        model = make(name, shape["config"]).eval()
        prompt = token_ids(shape, PROMPT)
        for beams in (1, 4):
            settings = GenerationConfig(
                max_new_tokens=NEW, num_beams=beams, pad_token_id=0, decoder_start_token_id=0, do_sample=False
            )

            def run():
                return model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=settings)

            key = f"{name}_{size}_{beams}_beams"
            made = run()
            checks[f"{key}_tokens"] = float(made[:, -NEW:].numel())
            if beams == 1:
                checks[f"{key}_sum"] = float(made[:, -NEW:].sum())
            measures[f"{key}_token_s"] = fastest_of(run) / NEW


def fastest_of(work):
    times = []
    for _ in range(3):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def start(measures, checks):
    """From the start of the program to the first vector of a text."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(".data/minilm")
    model = AutoModel.from_pretrained(".data/minilm").eval()
    tokens = tokenizer(["a warm and funny film"], return_tensors="pt")
    with torch.no_grad():
        vector = model(**tokens).last_hidden_state.mean(1)
    measures["minilm_start_s"] = time.time() - float(os.environ["ACCELERATE_BENCH_T0"])
    checks["width"] = float(vector.shape[-1])


if __name__ == "__main__":
    main()

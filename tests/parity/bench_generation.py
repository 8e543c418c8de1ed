#!/usr/bin/env python
"""The Python side of the example `generation_pace`: milliseconds for each new token of a GPT-2 of 6 layers."""

import time

import torch
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

ROWS, PROMPT, NEW = 4, 64, 128


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=8000, n_layer=6, n_embd=384, n_head=6, n_positions=512, bos_token_id=None, eos_token_id=None
    )
    model = GPT2LMHeadModel(config).eval()
    prompt = torch.randint(config.vocab_size, (ROWS, PROMPT))
    for beams in (1, 4):
        for new in (8, NEW):
            settings = GenerationConfig(max_new_tokens=new, num_beams=beams, pad_token_id=0)
            start = time.perf_counter()
            model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=settings)
            if new == NEW:
                print(f"{beams} beams {(time.perf_counter() - start) * 1e3 / NEW:>8.2f}")


if __name__ == "__main__":
    main()

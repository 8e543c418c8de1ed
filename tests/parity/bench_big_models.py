#!/usr/bin/env python
"""The original's side of the example `big_model`: a model from a folder, dispatched, and its tokens.

Prints one line of JSON. `--device_map` is `auto`, which is all of it in memory here, or a JSON file.
`cargo xtask bench-peers --big-models` runs both sides.
"""

import argparse
import json
import os
import time
from pathlib import Path

clock = time.perf_counter
BEGIN = clock()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", required=True, help="token ids with commas between them")
    parser.add_argument("--max_new_tokens", type=int, required=True)
    parser.add_argument("--device_map", required=True)
    parser.add_argument("--offload_folder")
    parser.add_argument("--json", action="store_true", required=True)
    arguments = parser.parse_args()

    import torch
    from accelerate import init_empty_weights, load_checkpoint_and_dispatch
    from transformers import AutoConfig, AutoModelForCausalLM, StoppingCriteria, StoppingCriteriaList

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    config = AutoConfig.from_pretrained(arguments.model)
    with init_empty_weights():
        model = AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    device_map = {"": "cpu"}
    if arguments.device_map != "auto":
        device_map = json.loads(Path(arguments.device_map).read_text())
    loading = clock()
    model = load_checkpoint_and_dispatch(
        model, arguments.model, device_map=device_map, offload_folder=arguments.offload_folder
    )
    loaded = clock()
    model.eval()

    times = []

    class Clock(StoppingCriteria):
        def __call__(self, input_ids, scores, **kwargs):
            times.append(clock())
            return torch.zeros(input_ids.shape[0], dtype=torch.bool)

    prompt = torch.tensor([[int(token) for token in arguments.prompt.split(",")]])
    with torch.no_grad():
        made = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=arguments.max_new_tokens,
            do_sample=False,
            pad_token_id=0,
            stopping_criteria=StoppingCriteriaList([Clock()]),
        )
    tokens = made[0, prompt.shape[1] :].tolist()
    pace = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 1.0 / (times[0] - loaded)
    print(
        json.dumps(
            {
                "load_seconds": loaded - loading,
                "first_token_seconds": times[0] - BEGIN,
                "tokens_per_second": pace,
                "peak_private_bytes": private_bytes(),
                "tokens": tokens,
            }
        )
    )


def private_bytes():
    """What the process has now; who started it watches it all the time."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    main()

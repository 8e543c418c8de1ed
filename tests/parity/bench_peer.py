#!/usr/bin/env python
"""The job of `examples/nlp` in Python, as people write it: accelerate, transformers, PyTorch.

Fine-tunes MiniLM for sentiment on film review snippets and writes, for each rank, how long it
took to `PATH.rank{r}.json`. ACCELERATE_BENCH_T0 holds the time of launch in seconds since 1970,
so that starting the interpreter and loading the libraries counts as it does for the other side.

More than one process: start it with `torchrun --nproc_per_node N`. The original's own
`accelerate launch --cpu --num_processes N` starts a single process where no MPI is set up.
"""

import argparse
import json
import os
import resource
import sys
import time

PROCESS_START = time.time()

# The models are local folders; nothing may wait for the network.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
# One thread, as for the other side; without this the tokenizer uses all processors.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    get_linear_schedule_with_warmup,
)

#: So many snippets, evenly spread, are kept for evaluation, which is no part of the measurement.
HELD_OUT = 1000
WARMUP_SHARE = 0.1


def main():
    arguments = parse_arguments()
    accelerator = Accelerator(cpu=True)
    set_seed(arguments.seed)
    model, optimizer, loader, scheduler = prepared(accelerator, arguments)
    measured = train(accelerator, model, optimizer, loader, scheduler, arguments)
    with open(f"{arguments.bench_json}.rank{accelerator.process_index}.json", "w", encoding="utf-8") as file:
        json.dump(measured, file)
    accelerator.wait_for_everyone()
    accelerator.end_training()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder with config.json, model.safetensors and tokenizer.json")
    parser.add_argument("--data", required=True, help="movieReviewSnippets_GroundTruth.txt")
    parser.add_argument("--bench-json", required=True, metavar="PATH", help="results go to PATH.rank0.json and so on")
    parser.add_argument("--max-steps", type=int, default=0, help="stop after this many optimizer steps; 0: all")
    parser.add_argument("--batch-size", type=int, default=16, help="samples per rank and step")
    parser.add_argument("--max-length", type=int, default=64, help="longest text in tokens")
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--fused", action="store_true", help="use the optimizer's fused kernel, which is not the default on CPU")
    return parser.parse_args()


def read_snippets(path):
    """A list of (text, label). Lines: id, mean rating from -4 to 4, text, split by tabs.

    The file is UTF-8 with CRLF line ends and has no header; the last line has no line end.
    Label 1 is a rating above 0 (37 of the 10,605 ratings are exactly 0 and count as label 0).
    """
    snippets = []
    with open(path, encoding="utf-8", newline="\r\n") as file:
        for number, line in enumerate(file, start=1):
            fields = line.rstrip("\r\n").split("\t", 2)
            if len(fields) != 3:
                sys.exit(f"`{path}` line {number}: expected 3 fields split by tabs, found {len(fields)}")
            snippets.append((fields[2], int(float(fields[1]) > 0)))
    if len(snippets) <= HELD_OUT:
        sys.exit(f"`{path}`: expected more than {HELD_OUT} snippets, found {len(snippets)}")
    return snippets


def prepared(accelerator, arguments):
    """Model, optimizer, loader and schedule, ready for this rank."""
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)

    def collate(rows):
        texts, labels = zip(*rows)
        # Padding only to the longest text of the batch: both sides then do equal work.
        batch = tokenizer(list(texts), truncation=True, max_length=arguments.max_length, padding="longest", return_tensors="pt")
        batch["labels"] = torch.tensor(labels)
        return batch

    snippets = read_snippets(arguments.data)
    held_out = {k * len(snippets) // HELD_OUT for k in range(HELD_OUT)}
    snippets = [snippet for index, snippet in enumerate(snippets) if index not in held_out]
    loader = DataLoader(snippets, batch_size=arguments.batch_size, shuffle=True, collate_fn=collate)
    model = AutoModelForSequenceClassification.from_pretrained(arguments.model, num_labels=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr, fused=arguments.fused or None)
    # The prepared schedule moves once per rank at each step, so it is as long as the unprepared loader.
    total = len(loader) * arguments.epochs
    scheduler = get_linear_schedule_with_warmup(optimizer, int(total * WARMUP_SHARE), total)
    return accelerator.prepare(model, optimizer, loader, scheduler)


def train(accelerator, model, optimizer, loader, scheduler, arguments):
    """The training loop; each step is measured from the end of the one before, loading included."""
    model.train()
    first_step = None
    durations, losses = [], []
    last = time.perf_counter()
    for batch in steps(loader, arguments):
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if first_step is None:
            first_step = time.time() - launch_time()
        losses.append(loss.item())
        now = time.perf_counter()
        durations.append(now - last)
        last = now
    return {
        "first_step_s": first_step,
        "step_s": durations,
        # Linux counts in KiB, macOS in bytes.
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        "losses": losses,
        "threads": torch.get_num_threads(),
    }


def steps(loader, arguments):
    """The batches of all epochs, at most `--max-steps` of them."""
    done = 0
    for _ in range(arguments.epochs):
        for batch in loader:
            yield batch
            done += 1
            if done == arguments.max_steps:
                return


def launch_time():
    """When the launcher was started; without the variable, when this script began."""
    given = os.environ.get("ACCELERATE_BENCH_T0")
    return float(given) if given else PROCESS_START


if __name__ == "__main__":
    main()

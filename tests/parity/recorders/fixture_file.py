"""How a fixture is written: readable JSON with exact numbers and the machine's kind."""

import hashlib
import json
import platform
from importlib.metadata import version
from pathlib import Path

import torch

PACKAGES = ("torch", "transformers", "accelerate", "tokenizers")


def write(path, content):
    """Writes `content` (a dict) as JSON, with `made_with` in front. Same input, same bytes."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = layout({"made_with": made_with(), **content})
    path.write_text(text + "\n", encoding="utf-8")


def made_with():
    """What the bits depend on: package versions, processor and thread count.

    Checksums can only be equal where all of these are.
    """
    names = {name: version(name) for name in PACKAGES}
    kernels = torch.backends.cpu.get_cpu_capability()
    return {**names, "processor": processor(), "kernels": kernels, "threads": torch.get_num_threads()}


def processor():
    """The processor's make and model: matrix kernels are chosen by it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def layout(value, depth=0):
    """JSON with one line for each list of plain values, so that changes read well in a diff."""
    pad = "  " * (depth + 1)
    end = "\n" + "  " * depth
    if isinstance(value, dict) and value:
        rows = [f"{pad}{json.dumps(key)}: {layout(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(rows) + end + "}"
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        rows = [pad + layout(item, depth + 1) for item in value]
        return "[\n" + ",\n".join(rows) + end + "]"
    # `allow_nan=False`: a number that is not finite would be a broken recording.
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def floats(tensor):
    """A float32 tensor as nested lists; every number is exact, as float64 holds float32."""
    return tensor.detach().to(torch.float64).tolist()


def sha256(tensors):
    """SHA-256 over the tensors' bytes (row-major, little-endian), one after another."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()

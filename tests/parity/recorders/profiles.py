"""One training step in PyTorch's profiler: what libtorch recorded, and the tables that PyTorch makes of it.

Times differ in each recording, so `record.py` leaves this one out; made by
`python -m recorders.profiles OUT.json` in this folder's parent.
"""

import json
import sys

import torch
from torch.profiler import ProfilerActivity, profile, record_function

TABLES = [
    {"sort_by": "cpu_time_total", "row_limit": 10},
    {"sort_by": "self_cpu_memory_usage", "row_limit": 12},
    {"sort_by": "flops", "row_limit": 5, "header": "operations"},
    {"sort_by": "count", "row_limit": 20, "group_by_input_shape": True},
    {"sort_by": None, "row_limit": -1, "time_unit": "us"},
]


def one_event(event):
    return {
        "name": event.name(),
        "start_ns": event.start_ns(),
        "duration_ns": event.duration_ns(),
        "thread": event.start_thread_id(),
        "is_async": event.is_async() or event.start_thread_id() != event.end_thread_id(),
        "is_cpu": event.device_type() == torch.autograd.DeviceType.CPU,
        "correlation": event.correlation_id(),
        "linked_correlation": event.linked_correlation_id(),
        "shapes": event.shapes(),
        "flops": event.flops(),
        "bytes": event.nbytes(),
        "user_range": event.is_user_annotation(),
        "is_hidden": event.is_hidden_event(),
    }


def table(recording, sort_by, row_limit, group_by_input_shape=False, header=None, time_unit=None):
    averages = recording.key_averages(group_by_input_shape=group_by_input_shape)
    return averages.table(sort_by=sort_by, row_limit=row_limit, header=header, time_unit=time_unit)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 4))
    images, labels = torch.randn(2, 3, 16, 16), torch.tensor([1, 3])
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True, with_flops=True) as recording:
        with record_function("a step"):
            loss = torch.nn.functional.cross_entropy(network(images), labels)
            loss.backward()
        torch.ones(1000)
    events = [one_event(event) for event in recording.profiler.kineto_results.events()]
    tables = [{**options, "text": table(recording, **options)} for options in TABLES]
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump({"events": events, "tables": tables}, file, indent=None, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()

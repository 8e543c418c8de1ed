"""The recorders: one module for each fixture, each with a function `record(out)`."""

from . import (
    bert_finetune,
    ddp_buckets,
    estimate_memory,
    loader_order,
    minilm,
    optimizers,
    yaml_text,
)

#: Name on the command line -> function that writes the fixture into a folder.
RECORDERS = {
    "bert_finetune": bert_finetune.record,
    "minilm_forward": minilm.record,
    "linear_schedule": optimizers.record_schedules,
    "adamw_sgd": optimizers.record_optimizers,
    "ddp_buckets": ddp_buckets.record,
    "dataloader_order": loader_order.record,
    "yaml_text": yaml_text.record,
    "estimate_memory": estimate_memory.record,
}

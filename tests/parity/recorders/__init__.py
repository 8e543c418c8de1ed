"""The recorders: one module for each fixture, each with a function `record(out)`."""

from . import (
    accumulation,
    bert_finetune,
    comm_hooks,
    ddp_buckets,
    dispatched_loader,
    estimate_memory,
    join,
    loader_order,
    minilm,
    operations,
    optimizers,
    schedule_free,
    schedules,
    samplers,
    precision,
    yaml_text,
)

#: Name on the command line -> function that writes the fixture into a folder.
RECORDERS = {
    "bert_finetune": bert_finetune.record,
    "minilm_forward": minilm.record,
    "linear_schedule": optimizers.record_schedules,
    "adamw_sgd": optimizers.record_optimizers,
    "optimizer_rules": optimizers.record_rules,
    "schedules": schedules.record,
    "schedule_free": schedule_free.record,
    "ddp_buckets": ddp_buckets.record,
    "comm_hooks": comm_hooks.record,
    "join": join.record,
    "dataloader_order": loader_order.record,
    "operations": operations.record,
    "samplers": samplers.record,
    "dispatched_loader": dispatched_loader.record,
    "yaml_text": yaml_text.record,
    "accumulation": accumulation.record,
    "clipping": precision.record_clipping,
    "autocast_bf16": precision.record_autocast,
    "grad_scaler": precision.record_scaler,
    "estimate_memory": estimate_memory.record,
}

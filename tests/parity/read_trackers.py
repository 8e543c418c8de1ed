"""Reads with their own readers what the trackers wrote, and prints what they found as JSON.

usage: read_trackers.py tensorboard|mlflow|dvclive|wandb FOLDER
"""

import json
import math
import os
import sys
from pathlib import Path


def tensorboard(folder):
    """Scalars, texts, pictures and histograms by TensorBoard's own loader, and the hyper-parameters."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    found = {"scalars": {}, "texts": {}, "images": {}, "histograms": {}, "hparams": {}}
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        events = EventAccumulator(str(path))
        events.Reload()
        tags = events.Tags()
        where = str(path.parent.relative_to(folder))
        for tag in tags["scalars"]:
            key = tag if where == "." else f"{where}:{tag}"
            found["scalars"][key] = [[e.step, e.value] for e in events.Scalars(tag)]
        for tag in tags["tensors"]:
            if tag.endswith("/text_summary"):
                texts = [e.tensor_proto.string_val[0].decode() for e in events.Tensors(tag)]
                found["texts"][tag] = texts
        for tag in tags["images"]:
            found["images"][tag] = [[e.width, e.height] for e in events.Images(tag)]
        for tag in tags["histograms"]:
            values = [e.histogram_value for e in events.Histograms(tag)]
            found["histograms"][tag] = [[v.min, v.max, v.num, sum(v.bucket)] for v in values]
        try:
            contents = events.PluginTagToContent("hparams")
        except KeyError:
            continue
        for content in contents.values():
            data = plugin_data_pb2.HParamsPluginData.FromString(content)
            for name, value in data.session_start_info.hparams.items():
                found["hparams"][name] = getattr(value, value.WhichOneof("kind"))
    return found


def mlflow(folder):
    """The runs of a folder, or those of a server whose address is given."""
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=str(folder))
    experiment = client.get_experiment_by_name("parity")
    (run,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(run.info.run_id, "loss")
    artifacts = client.list_artifacts(run.info.run_id, "notes")
    return {
        "status": run.info.status,
        "params": run.data.params,
        "loss": [[m.step, m.value] for m in sorted(history, key=lambda m: m.step)],
        "nan": math.isnan(run.data.metrics["odd"]),
        "artifacts": [artifact.path for artifact in artifacts],
        "name": run.data.tags["mlflow.runName"],
    }


def dvclive(folder):
    """What `dvc` shows of parameters, metrics and plots, and what `dvclive` goes on from."""
    import subprocess

    from dvc.repo import Repo

    os.chdir(folder)
    subprocess.run(["git", "init", "--quiet"], check=True)
    Repo.init(str(folder), no_scm=False)
    repo = Repo(str(folder))
    params = repo.params.show()[""]["data"]
    metrics = repo.metrics.show()[""]["data"]
    plots = next(iter(repo.plots.collect()))
    from dvclive import Live

    live = Live(dir="dvclive", resume=True, save_dvc_exp=False, dvcyaml=None)
    return {
        "params": next(iter(params.values()))["data"],
        "metrics": next(iter(metrics.values()))["data"],
        "plots": sorted(plots[""]["sources"]["data"]) if "" in plots else sorted(plots),
        "next_step": live.step,
    }


def wandb(folder):
    """The records of an offline run by `wandb`'s own datastore."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    store = DataStore()
    store.open_for_scan(str(path))
    found = {"kinds": [], "config": {}, "history": [], "summary": {}}
    while data := store.scan_data():
        record = wandb_internal_pb2.Record.FromString(data)
        kind = record.WhichOneof("record_type")
        found["kinds"].append(kind)
        if kind == "run":
            found["project"] = record.run.project
            found["tags"] = list(record.run.tags)
        for item in record.config.update:
            found["config"][item.key] = json.loads(item.value_json)
        if kind == "history":
            row = {"/".join(item.nested_key): item.value_json for item in record.history.item}
            found["history"].append([record.history.step.num, row["loss"]])
        for item in record.summary.update:
            found["summary"]["/".join(item.nested_key)] = item.value_json
    found["summary"] = {name: found["summary"][name] for name in ("loss", "odd")}
    return found


def main():
    reader, folder = sys.argv[1:]
    folder = folder if "://" in folder else Path(folder)
    read = {"tensorboard": tensorboard, "mlflow": mlflow, "dvclive": dvclive, "wandb": wandb}
    print(json.dumps(read[reader](folder)))


if __name__ == "__main__":
    main()

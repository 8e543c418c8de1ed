"""ResNet of torchvision, timm and transformers, and ViT of transformers: first steps from weights by formula.

Every case has one step in training mode (logits, loss, the norm of each gradient, running estimates), and the logits
afterwards in evaluation mode, which use these estimates.
"""

import timm
import torch
import torchvision
from torch.nn.functional import cross_entropy
from torchvision.models.resnet import BasicBlock, Bottleneck
from transformers import (
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)

from .fixture_file import floats, write
from .formula import fill, filled

SEED = 7
NAMES = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2", "resnext50_32x4d"]
RESNET = {
    "model_type": "resnet",
    "num_channels": 3,
    "embedding_size": 8,
    "hidden_sizes": [16, 32],
    "depths": [2, 1],
    "layer_type": "basic",
    "hidden_act": "relu",
    "downsample_in_first_stage": False,
    "downsample_in_bottleneck": False,
    "num_labels": 5,
}
BOTTLENECK = RESNET | {
    "layer_type": "bottleneck",
    "downsample_in_first_stage": True,
    "downsample_in_bottleneck": True,
}
VIT = {
    "model_type": "vit",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "image_size": [24, 16],
    "patch_size": 8,
    "num_channels": 3,
    "qkv_bias": True,
    "num_labels": 5,
}


def record_resnet(out):
    """Writes `resnet.json`."""
    resnet18 = torchvision.models.resnet18(num_classes=10)
    grouped = torchvision.models.ResNet(Bottleneck, [1, 2, 1, 1], num_classes=6, groups=2, width_per_group=32)
    content = {
        "cases": {"resnet18": step(resnet18, (4, 3, 64, 64)), "grouped": step(grouped, (4, 3, 64, 64))},
        "sizes": {name: sizes(name) for name in NAMES},
        "seed": SEED,
        "fresh": {
            "torchvision": fresh(lambda: torchvision.models.ResNet(BasicBlock, [1, 1, 1, 1], num_classes=3)),
            "zero_init_residual": fresh(
                lambda: torchvision.models.ResNet(Bottleneck, [1, 1, 1, 1], num_classes=3, zero_init_residual=True)
            ),
            "transformers": fresh(lambda: ResNetForImageClassification(ResNetConfig(**BOTTLENECK))),
        },
        "transformers": {
            name: {"config": config}
            | step(ResNetForImageClassification(ResNetConfig(**config)), (4, 3, 32, 32), lambda output: output.logits)
            for name, config in [("basic", RESNET), ("bottleneck", BOTTLENECK)]
        },
    }
    write(out / "resnet.json", content)


def record_vit(out):
    """Writes `vit.json`."""
    config = ViTConfig(**VIT, attn_implementation="sdpa")
    model = ViTForImageClassification(config)
    content = {
        "config": VIT,
        "attention": "sdpa",
        "step": step(model, (3, 3, 24, 16), lambda output: output.logits),
        "seed": SEED,
        "fresh": fresh(lambda: ViTForImageClassification(config)),
        "stored_names": stored_names(model),
        "bare": bare(config),
    }
    write(out / "vit.json", content)


def bare(config):
    """The bare model on an image that is larger than those it was made for."""
    config = ViTConfig(**(VIT | {"image_size": 16}), attn_implementation="sdpa")
    model = ViTModel(config).eval()
    fill(model)
    output = model(filled((2, 3, 24, 24), 0), interpolate_pos_encoding=True)
    return {
        "parameters": shapes(model),
        "image_size": 16,
        "hidden_first": floats(output.last_hidden_state[0, :3, :4]),
        "hidden_sum": output.last_hidden_state.double().sum().item(),
        "pooled": floats(output.pooler_output[:, :6]),
    }


def stored_names(model):
    """The names in a file that the original saves, where they differ from those of the model."""
    import tempfile

    from safetensors import safe_open

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with safe_open(f"{folder}/model.safetensors", "pt") as file:
            return sorted(file.keys())


def step(model, shape, logits_of=lambda output: output):
    fill(model)
    model.train()
    images = filled(shape, 0)
    logits = logits_of(model(images))
    labels = torch.tensor([(3 * row + 1) % logits.shape[1] for row in range(len(images))])
    loss = cross_entropy(logits, labels)
    loss.backward()
    model.eval()
    return {
        "shape": list(shape),
        "parameters": shapes(model),
        "losses": [loss.item()],
        "first_logits": floats(logits),
        "first_grad_norms": {name: p.grad.double().norm().item() for name, p in model.named_parameters()},
        "buffer_norms": {name: buffer.double().norm().item() for name, buffer in model.named_buffers()},
        "evaluated_logits": floats(logits_of(model(images))),
    }


def shapes(model):
    return {name: list(parameter.shape) for name, parameter in model.named_parameters()}


def sizes(name):
    """How large a published model is; timm's has the same names and shapes."""
    with torch.device("meta"):
        model = getattr(torchvision.models, name)()
        other = timm.create_model(name)
    ours, theirs = ({key: list(value.shape) for key, value in m.state_dict().items()} for m in (model, other))
    assert ours == theirs, name
    return {"tensors": len(ours), "parameters": sum(p.numel() for p in model.parameters())}


def fresh(make):
    """Of each parameter of a new model: its first value and its norm."""
    torch.manual_seed(SEED)
    return {
        name: [parameter.flatten()[0].item(), parameter.double().norm().item()]
        for name, parameter in make().named_parameters()
    }

"""The models of transformers that plans carry by their config.json, and random batches for them. It needs
transformers 5 and, beside it, stepsim_models.py.

Attention is what transformers takes by itself (PyTorch's fused one), which is what a training has; a plan's
`attention` says how Stepsim prices it.
"""

import importlib.util
import json
import os
import sys

if __package__:  # A module of the package stepsim …
    from . import stepsim_models
else:  # … or a file by itself, with the others beside it.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import stepsim_models

import torch  # noqa: E402

FIRST_TOKEN = 3  # Smaller ones pad, begin and end in most vocabularies.


def check():
    """Raises CannotTrain where transformers is not installed."""
    if importlib.util.find_spec("transformers") is None:
        raise stepsim_models.CannotTrain(
            "the plans' model is one of transformers, which is not installed here: pip install "
            "transformers, or give your own my_model.py"
        )


def configuration(text):
    """Returns what transformers makes of a config.json. Raises CannotTrain."""
    import transformers  # pylint: disable=import-outside-toplevel

    values = json.loads(text)
    try:
        config = transformers.AutoConfig.for_model(values["model_type"]).from_dict(values)
    except (KeyError, TypeError, ValueError) as error:
        raise stepsim_models.CannotTrain(f"transformers {transformers.__version__}: {error}") from error
    if getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = 0  # Without one a decoder classifies no batch.
    return config


def make_model(config, device):
    """Returns the module in its parameters' dtype on `device`. Raises CannotTrain.

    Args:
        config: The "model" of a plan, of the family transformers.
    """
    import transformers  # pylint: disable=import-outside-toplevel

    kind = getattr(transformers, config["architecture"], None)
    if kind is None:
        raise stepsim_models.CannotTrain(
            f"transformers {transformers.__version__} has no {config['architecture']}"
        )
    torch.manual_seed(1)
    with device:
        model = kind(configuration(config["config"]))
    return model.to(device, stepsim_models.DTYPES[config["parameter_dtype"]])


def make_batch(architecture, config, lengths, width, device, dtype=torch.float32):
    """Random inputs for a class of transformers, with labels, drawn on the host and copied. A length is that of
    a sample's tokens; T5's decoder has as many as its encoder, Whisper's encoder sees all its frames, and
    ViT all patches, whatever the lengths.

    Args:
        architecture: The class, "LlamaForCausalLM".
        config: As configuration() returns it.
        lengths: [samples] of tokens, at most `width`.

    Returns the arguments of the model's forward. Padding is hidden by an attention_mask, and of the
    labels of tokens.
    """
    samples = len(lengths)
    classes = torch.randint(0, max(1, getattr(config, "num_labels", 1)), (samples,))
    if architecture.startswith("ViT"):
        side = config.image_size
        batch = {"pixel_values": torch.randn(samples, config.num_channels, side, side).to(dtype), "labels": classes}
        return {name: one.to(device) for name, one in batch.items()}
    vocabulary = config.get_text_config().vocab_size
    tokens = torch.randint(min(FIRST_TOKEN, vocabulary - 1), vocabulary, (samples, width))
    inside = torch.arange(width) < torch.tensor(lengths)[:, None]
    of_tokens = torch.where(inside, tokens, -100)
    if architecture.startswith("Whisper"):
        shape = (samples, config.num_mel_bins, 2 * config.max_source_positions)
        batch = {"input_features": torch.randn(shape).to(dtype), "labels": of_tokens}
        return {name: one.to(device) for name, one in batch.items()}
    batch = {"input_ids": tokens}
    if min(lengths) < width:
        batch = {"input_ids": torch.where(inside, tokens, 0), "attention_mask": inside.long()}
    if "Sequence" in architecture:
        batch["labels"] = classes
    elif "Question" in architecture:
        batch.update(start_positions=torch.zeros_like(classes), end_positions=torch.zeros_like(classes))
    elif "TokenClass" in architecture:
        named = torch.randint(0, config.num_labels, (samples, width))
        batch["labels"] = torch.where(inside, named, -100)
    elif "For" in architecture:
        batch["labels"] = of_tokens
    if "PreTraining" in architecture:
        batch["next_sentence_label"] = torch.zeros_like(classes)
    return {name: one.to(device) for name, one in batch.items()}


def loss(model, batch):
    """The model's own loss; of a model without a head the mean of what it returns last."""
    output = model(**batch)
    value = getattr(output, "loss", None)
    if value is None:
        pooled = getattr(output, "pooler_output", None)
        value = (output[0] if pooled is None else pooled).float().mean()
    return value

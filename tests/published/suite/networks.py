"""Tensor lists of networks that no preset describes, as `--tensors` reads them."""

import pathlib


def written(folder, name, tensors):
    """Arguments that name a file of these (name, shape)."""
    path = pathlib.Path(folder) / f"{name}.csv"
    path.write_text("".join(f"{one},{shape}\n" for one, shape in [("name", "shape"), *tensors]), encoding="utf-8")
    return "--tensors", str(path)


def vgg16(folder):
    """As torchvision registers it: 138,357,544 parameters (Simonyan and Zisserman 2014, configuration D)."""
    tensors, channels = [], 3
    for index, width in enumerate((64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)):
        tensors += [(f"features.{index}.weight", f"{width}x{channels}x3x3"), (f"features.{index}.bias", width)]
        channels = width
    for index, (inputs, outputs) in enumerate(((25088, 4096), (4096, 4096), (4096, 1000))):
        tensors += [(f"classifier.{index}.weight", f"{outputs}x{inputs}"), (f"classifier.{index}.bias", outputs)]
    return written(folder, "vgg16", tensors)


def resnet18(folder):
    """For 32 x 32 images: 11,173,962 parameters (He et al. 2015, with a first kernel of 3 x 3)."""
    kernels, channels = ["64x3x3x3"], 64
    for width in (64, 128, 256, 512):
        for _ in range(2):
            kernels += [f"{width}x{channels}x3x3", f"{width}x{width}x3x3"]
            if channels != width:
                kernels.append(f"{width}x{channels}x1x1")
            channels = width
    tensors = []
    for index, kernel in enumerate(kernels):
        width = kernel.split("x")[0]
        tensors += [(f"layer{index}.weight", kernel), (f"layer{index}.bn.weight", width), (f"layer{index}.bn.bias", width)]
    return written(folder, "resnet18", [*tensors, ("fc.weight", "10x512"), ("fc.bias", 10)])

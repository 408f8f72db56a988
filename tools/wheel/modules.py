"""Modules of PyTorch: written to a file that the program trains, and trained by it."""

import collections
import inspect
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from . import checkpoint, npy

MODEL = "model.pt2"  # in a folder of checkpoints
EXAMPLE_SAMPLES = 3  # torch.export takes batches of 0 and 1 for constants


def export(module, example, path):
    """Writes a module with its weights to a file that `trifold pretrain --model PATH` trains.

    `module(**batch)` returns one of
      - an object with the attribute `loss`, as the models of Hugging Face's transformers do;
      - a loss, a scalar: the mean over a batch;
      - a pair of scalars: the sum of the losses and the number of elements that it is over. The mean then does not
        depend on how a batch is divided.
    `example` is a small batch by name: a dictionary of tensors or arrays, of two samples or more. Dimension 0 of all of
    them is the sample. Dropout is as in training; the module's mode does not change.
    """
    import torch

    # Batches of the program are contiguous, and a graph may depend on that.
    example = {name: torch.as_tensor(array).contiguous() for name, array in example.items()}
    check_example(example)
    device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
    example = {name: array.to(device) for name, array in example.items()}
    wrapped = as_loss(module, list(example))
    modes = [(each, each.training) for each in module.modules()]
    try:
        program = torch.export.export(wrapped.train(), (), kwargs=example, strict=False,
                                      dynamic_shapes={name: {0: torch.export.Dim.AUTO} for name in example})
    finally:
        for each, training in modes:
            each.training = training
    torch.export.save(program, path)


def train(module, data, *, example=None, **options):
    """Trains a module and returns it, with the trained weights.

        trifold.train(model, {"x": x, "labels": y}, micro_batch_size=16, global_batch_size=64, train_iters=1000, lr=1e-3)

    `module` as in `export`. `data` has the whole data set by name: arrays of NumPy, tensors of PyTorch, or paths of .npy
    files, with the sample as first dimension. `example` as in `export`; it is needed only where a path is of another
    kind. Options are those of `trifold pretrain`, with `_` for `-`: True for one without a value, a list for one with
    several. The checkpoints stay in the folder `save` with the exported model.pt2, which other commands need for them;
    without `save` they are removed when the weights are loaded. With `auto_resume`, or `load` without `finetune`, the run
    continues with the model.pt2 in that folder, so the weights of `module` do not matter. Progress goes to standard error.
    RuntimeError, with the program's last message, if it fails.
    """
    import torch

    with tempfile.TemporaryDirectory(prefix="trifold_") as scratch:
        folder = pathlib.Path(scratch)
        save = pathlib.Path(options.pop("save", None) or folder / "checkpoint")
        model = file_of_continued_run(save, options)
        if model is None:
            # A folder with checkpoints keeps the file that they are of; the program rejects the folder.
            model = (folder if checkpoint.exists(save) else save) / MODEL
            model.parent.mkdir(parents=True, exist_ok=True)
            export(module, first_samples(data, torch) if example is None else example, model)
        files = [f"{name}={file_of(name, array, folder)}" for name, array in data.items()]
        run("pretrain", "--model", str(model), "--arrays", *files, "--save", str(save), *as_arguments(options))
        # Tied parameters have several names, of which the checkpoint has one.
        named = {"model." + name: parameter for name, parameter in module.named_parameters(remove_duplicate=False)}
        if not checkpoint.load_weights(checkpoint.newest(save), named):
            raise RuntimeError(f"{checkpoint.newest(save)} has no weight of this module")
    return module


def file_of_continued_run(save, options):
    """The model of the run that the options continue, None if there is none or another program exported it."""
    folders = []
    if options.get("auto_resume") and checkpoint.exists(save):
        folders = [save]
    elif options.get("load") and not options.get("finetune"):
        load = pathlib.Path(options["load"])
        folders = [load, load.parent]  # it may name one checkpoint of the run
    return next((folder / MODEL for folder in folders if (folder / MODEL).exists()), None)


def as_loss(module, names):
    """The module `model` in another, whose forward has arguments of these names and returns the loss."""
    import torch

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = module

        def forward(self, **batch):
            return loss_of(self.model(**batch), torch)

    # torch.export names the inputs of the graph by the signature.
    self_and_names = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ["self", *names]]
    Loss.forward.__signature__ = inspect.Signature(self_and_names)
    return Loss()


def loss_of(output, torch):
    loss = getattr(output, "loss", output)
    values = loss if isinstance(loss, tuple) else (loss,)
    if len(values) > 2 or not all(isinstance(value, torch.Tensor) and value.dim() == 0 for value in values):
        seen = ", ".join(f"a tensor of {value.dim()} dimensions" if isinstance(value, torch.Tensor) else type(value).__name__
                         for value in values)
        raise TypeError(f"the module returns {seen}: it has to return an object with a `loss`, one scalar, or the sum of "
                        "the losses and their number, two scalars")
    return loss


def check_example(example):
    sizes = {name: array.shape[0] if array.dim() else 0 for name, array in example.items()}
    if not sizes or len(set(sizes.values())) > 1 or min(sizes.values()) < 2:
        raise ValueError(f"the arrays of a batch have {sizes} samples: give arrays with one number of samples, 2 or more")


def first_samples(data, torch):
    example = {}
    for name, array in data.items():
        if isinstance(array, (str, os.PathLike)):
            shape, dtype = npy.shape_and_type(array)
            example[name] = torch.zeros((min(EXAMPLE_SAMPLES, *shape[:1]), *shape[1:]), dtype=getattr(torch, dtype))
        else:
            example[name] = array[:EXAMPLE_SAMPLES]
    return example


def file_of(name, array, folder):
    if isinstance(array, (str, os.PathLike)):
        return os.path.abspath(array)
    path = folder / f"{name}.npy"
    npy.save(path, array)
    return path


def as_arguments(options):
    arguments = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        arguments.append("--" + name.replace("_", "-"))
        if isinstance(value, (list, tuple)):
            arguments += map(str, value)
        elif value is not True:
            arguments.append(str(value))
    return arguments


def program():
    """The program of this package, or the installed one if the package is a folder of the sources."""
    own = pathlib.Path(__file__).parent / "bin" / "trifold"
    found = str(own) if own.exists() else shutil.which("trifold")
    if found is None:
        raise FileNotFoundError(f"there is no program {own}, and no trifold in PATH: install the wheel")
    return found


def run(*arguments):
    last = collections.deque(maxlen=5)
    with subprocess.Popen([program(), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace") as process:
        try:
            for line in process.stdout:
                print(line, end="", file=sys.stderr, flush=True)
                last.append(line)
        except BaseException:
            process.terminate()  # the run saves what it has
            process.wait()
            raise
    if process.returncode != 0:
        raise RuntimeError(f"trifold {arguments[0]} ended with status {process.returncode}:\n{''.join(last)}")

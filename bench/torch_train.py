"""The training recipe of a gems job in PyTorch: accuracy and images/s to compare with.

usage: torch_train.py idx|imagefolder TRAIN EVAL MODEL SIZE [--classes K] [--channels C] [--epochs E] [--batch B]
       [--lr LR] [--momentum M] [--nesterov] [--weight-decay W] [--warmup-epochs E] [--augment] [--threads N]
"""
import argparse
import gzip
import json
import math
import os
import time

import numpy as np
import torch
import torch.nn.functional as F

from torch_models import make


def read_idx(prefix):
    def load(path):
        opener, name = (gzip.open, path + ".gz") if os.path.exists(path + ".gz") else (open, path)
        with opener(name, "rb") as file:
            data = file.read()
        dims = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(data[3])]
        return np.frombuffer(data, np.uint8, offset=4 + 4 * len(dims)).reshape(dims)
    return load(prefix + "-images-idx3-ubyte")[:, None], load(prefix + "-labels-idx1-ubyte")


def read_imagefolder(root):
    from PIL import Image
    images, labels = [], []
    for label, name in enumerate(sorted(os.listdir(root))):
        for file in sorted(os.listdir(os.path.join(root, name))):
            with Image.open(os.path.join(root, name, file)) as image:
                images.append(np.asarray(image.convert("RGB")).transpose(2, 0, 1))
            labels.append(label)
    return np.stack(images), np.array(labels)


def augmented(x, generator):
    """Flip left to right and shift by up to an eighth of the side, each image its own."""
    n, _, h, w = x.shape
    flips = torch.rand(n, generator=generator) < 0.5
    x = torch.where(flips[:, None, None, None], x.flip(3), x)
    pad = max(h, w) // 8
    padded = F.pad(x, (pad, pad, pad, pad))
    shifts = torch.randint(0, 2 * pad + 1, (n, 2), generator=generator)
    return torch.stack([padded[i, :, a:a + h, b:b + w] for i, (a, b) in enumerate(shifts.tolist())])


parser = argparse.ArgumentParser()
parser.add_argument("format", choices=("idx", "imagefolder"))
parser.add_argument("train")
parser.add_argument("eval")
parser.add_argument("model")
parser.add_argument("size", type=int)
parser.add_argument("--classes", type=int, default=10)
parser.add_argument("--channels", type=int, default=1)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--nesterov", action="store_true")
parser.add_argument("--weight-decay", type=float, default=0.0)
parser.add_argument("--warmup-epochs", type=float, default=0.0)
parser.add_argument("--augment", action="store_true")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()

torch.set_num_threads(args.threads)
torch.manual_seed(args.seed)
generator = torch.Generator().manual_seed(args.seed)
read = read_idx if args.format == "idx" else read_imagefolder
train_x, train_y = (torch.from_numpy(a.copy()) for a in read(args.train))
eval_x, eval_y = (torch.from_numpy(a.copy()) for a in read(args.eval))
model = make(args.model, args.size, args.classes, args.channels).to(memory_format=torch.channels_last)
decayed = [p for n, p in model.named_parameters() if p.dim() > 1]
others = [p for n, p in model.named_parameters() if p.dim() <= 1]
optimizer = torch.optim.SGD([{"params": decayed, "weight_decay": args.weight_decay}, {"params": others}],
                            lr=args.lr, momentum=args.momentum, nesterov=args.nesterov)
steps_per_epoch = -(-len(train_x) // args.batch)
total, warmup = args.epochs * steps_per_epoch, args.warmup_epochs * steps_per_epoch


def normalised(x):
    return ((x.float() / 255 - 0.5) / 0.25).contiguous(memory_format=torch.channels_last)


started, step = time.perf_counter(), 0
for epoch in range(args.epochs):
    model.train()
    for indexes in torch.randperm(len(train_x), generator=generator).split(args.batch):
        rate = args.lr * (step + 1) / warmup if step < warmup else \
            args.lr * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        x = normalised(train_x[indexes])
        if args.augment:
            x = augmented(x, generator).contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), train_y[indexes].long())
        loss.backward()
        optimizer.step()
        step += 1
    trained = time.perf_counter() - started
    model.eval()
    with torch.no_grad():
        correct = sum((model(normalised(x)).argmax(1) == y).sum().item()
                      for x, y in zip(eval_x.split(256), eval_y.split(256)))
    started += time.perf_counter() - started - trained
    print(json.dumps({"torch": torch.__version__, "epoch": epoch + 1, "loss": loss.item(),
                      "eval_accuracy": correct / len(eval_x), "train_seconds": trained,
                      "images_per_second": (epoch + 1) * len(train_x) / trained}), flush=True)

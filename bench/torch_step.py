"""One PyTorch training step, repeated: images/s (median) and peak resident memory, one JSON line.

usage: torch_step.py MODEL SIZE BATCH [--layout nchw|nhwc] [--threads N] [--steps N] [--channels C] [--classes K]
"""
import argparse
import json
import resource
import statistics
import time

import torch
import torch.nn.functional as F

from torch_models import make

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("size", type=int)
parser.add_argument("batch", type=int)
parser.add_argument("--layout", default="nhwc", choices=("nchw", "nhwc"))
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--channels", type=int, default=3)
parser.add_argument("--classes", type=int, default=10)
args = parser.parse_args()

torch.set_num_threads(args.threads)
torch.manual_seed(0)
memory_format = torch.channels_last if args.layout == "nhwc" else torch.contiguous_format
model = make(args.model, args.size, args.classes, args.channels).to(memory_format=memory_format).train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
x = torch.randn(args.batch, args.channels, args.size, args.size).to(memory_format=memory_format)
y = torch.randint(args.classes, (args.batch,))

seconds = []
for step in range(2 + args.steps):
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    value = loss.item()
    if step >= 2:
        seconds.append(time.perf_counter() - start)
median = statistics.median(seconds)
print(json.dumps({
    "torch": torch.__version__, "model": args.model, "size": args.size, "batch": args.batch, "layout": args.layout,
    "threads": args.threads, "step_seconds": median, "images_per_second": args.batch / median,
    "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "loss": value}), flush=True)

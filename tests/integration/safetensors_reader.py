"""Reads a safetensors file of a ResNet and computes its accuracy on an IDX set.

An independent check of what gems-client fetch writes: own reader, own forward
pass in numpy (float64), nothing of gems. usage: safetensors_reader.py FILE PREFIX
"""
import gzip
import json
import os
import struct
import sys

import numpy as np


def read_safetensors(path):
    with open(path, "rb") as f:
        raw = f.read()
    (n,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + n])
    meta = header.pop("__metadata__", {})
    data = raw[8 + n:]
    tensors, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = entry["data_offsets"]
        assert first == end, f"hole before {name}"
        dtype = {"F32": "<f4", "F64": "<f8"}[entry["dtype"]]
        tensors[name] = np.frombuffer(data[first:last], dtype).reshape(entry["shape"]).astype(np.float64)
        end = last
    assert end == len(data), "bytes behind the last tensor"
    return tensors, meta


def read_idx(path):
    if not os.path.exists(path):
        path += ".gz"
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
        raw = f.read()
    dims = raw[3]
    shape = struct.unpack(f">{dims}i", raw[4:4 + 4 * dims])
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dims).reshape(shape)


class Net:
    def __init__(self, tensors):
        self.t = tensors

    def conv(self, name, x, stride=1):
        w = self.t[name + ".weight"]
        k, c, r, s = w.shape
        p = (r - 1) // 2
        x = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
        view = np.lib.stride_tricks.sliding_window_view(x, (r, s), (2, 3))[:, :, ::stride, ::stride]
        n, _, h, wd = view.shape[:4]
        columns = view.transpose(0, 2, 3, 1, 4, 5).reshape(n * h * wd, c * r * s)
        y = columns @ w.reshape(k, -1).T + self.t[name + ".bias"]
        return y.reshape(n, h, wd, k).transpose(0, 3, 1, 2)

    def bn(self, name, x):
        mean, var = self.t[name + ".running_mean"], self.t[name + ".running_var"]
        scale = self.t[name + ".weight"] / np.sqrt(var + 1e-5)
        shift = self.t[name + ".bias"] - mean * scale
        return x * scale[:, None, None] + shift[:, None, None]

    def block_v1(self, name, x, stride):
        y = np.maximum(self.bn(name + ".bn1", self.conv(name + ".conv1", x, stride)), 0)
        y = self.bn(name + ".bn2", self.conv(name + ".conv2", y))
        if name + ".shortcut.weight" in self.t:
            x = self.conv(name + ".shortcut", x, stride)
        return np.maximum(x + y, 0)

    def block_v2(self, name, x, stride):
        y = x
        for i in (1, 2, 3):
            if f"{name}.bn{i}.weight" in self.t:
                y = np.maximum(self.bn(f"{name}.bn{i}", y), 0)
            y = self.conv(f"{name}.conv{i}", y, stride if i == 1 else 1)
        if name + ".shortcut.weight" in self.t:
            x = self.conv(name + ".shortcut", x, stride)
        return x + y

    def forward(self, x):
        is_v2 = "head.bn.weight" in self.t
        x = np.maximum(self.bn("stem.bn", self.conv("stem.conv", x)), 0)
        for stack in range(3):
            block = 0
            while f"stack{stack}.block{block}.conv1.weight" in self.t:
                stride = 2 if stack > 0 and block == 0 else 1
                name = f"stack{stack}.block{block}"
                x = self.block_v2(name, x, stride) if is_v2 else self.block_v1(name, x, stride)
                block += 1
        if is_v2:
            x = np.maximum(self.bn("head.bn", x), 0)
        n, c, h, w = x.shape
        a, b = min(h, 8), min(w, 8)
        x = x[:, :, :h // a * a, :w // b * b].reshape(n, c, h // a, a, w // b, b).mean((3, 5))
        return x.reshape(n, -1) @ self.t["head.dense.weight"].T + self.t["head.dense.bias"]


def main():
    tensors, meta = read_safetensors(sys.argv[1])
    images = read_idx(sys.argv[2] + "-images-idx3-ubyte")
    labels = read_idx(sys.argv[2] + "-labels-idx1-ubyte")
    net = Net(tensors)
    mean, std = float(meta["gems.mean"]), float(meta["gems.std"])
    correct = 0
    for i in range(0, len(labels), 50):
        x = (images[i:i + 50, None].astype(np.float64) / 255 - mean) / std
        correct += int((net.forward(x).argmax(1) == labels[i:i + 50]).sum())
    for key in ("model", "classes", "step", "weights_hash"):
        print(key, meta["gems." + key])
    print(f"accuracy {correct / len(labels):.6f}")


main()

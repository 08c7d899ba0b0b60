"""Writes a small set of images with four shapes as IDX files: FOLDER/shapes-train
(480 images of 16x16) and FOLDER/shapes-eval (200)."""
import struct
import sys

import numpy as np


def draw(rng, label):
    image = rng.integers(0, 256, (16, 16))
    at = int(rng.integers(3, 12))
    value = int(rng.integers(160, 255))
    if label == 0:
        image[at, :] = value
    elif label == 1:
        image[:, at] = value
    elif label == 2:
        for i in range(16):
            image[i, (i + at) % 16] = value
    else:
        image[at - 3:at + 3, at - 3:at + 3] = value
    return image.astype(np.uint8)


def write(prefix, n, seed):
    rng = np.random.default_rng(seed)
    labels = (np.arange(n) % 4).astype(np.uint8)
    images = np.stack([draw(rng, label) for label in labels])
    with open(prefix + "-images-idx3-ubyte", "wb") as f:
        f.write(struct.pack(">4i", 2051, n, 16, 16) + images.tobytes())
    with open(prefix + "-labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">2i", 2049, n) + labels.tobytes())


write(sys.argv[1] + "/shapes-train", 480, 1)
write(sys.argv[1] + "/shapes-eval", 200, 2)

#!/usr/bin/python3
"""Makes torch_reference.txt: training steps of small networks in PyTorch, float64.

The networks, their initial weights, images and labels are rebuilt here from
their definitions alone (docs/MATH.md; common/rng.h for the random numbers), so
that nothing but the formulas is shared with the C code that is tested with it.

usage: make_torch_reference.py > torch_reference.txt
"""
import math

import torch
import torch.nn.functional as F

STEPS, BATCH, CLASSES, SEED = 5, 8, 10, 7
INIT, SYNTHETIC = 1, 5
MASK, LOW = (1 << 64) - 1, (1 << 32) - 1


def philox(seed, stream, index):
    """Two 64-bit words at a position."""
    c0, c1, c2, c3 = index & LOW, index >> 32, stream & LOW, stream >> 32
    k0, k1 = seed & LOW, seed >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & LOW, (p0 >> 32) ^ c3 ^ k1, p0 & LOW
        k0, k1 = (k0 + 0x9E3779B9) & LOW, (k1 + 0xBB67AE85) & LOW
    return c1 << 32 | c0, c3 << 32 | c2


def unit(bits):
    return (bits >> 11) * 2.0 ** -53


def normal(seed, stream, index):
    a, b = philox(seed, stream, index)
    return math.sqrt(-2.0 * math.log(1.0 - unit(a))) * math.cos(2.0 * math.pi * unit(b))


def init_stream(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return (INIT << 56) ^ (h >> 8)


def images(channels, side):
    n = BATCH * channels * side * side
    values = [2.0 * unit(philox(SEED, SYNTHETIC << 56, i)[0]) - 1.0 for i in range(n)]
    return torch.tensor(values, dtype=torch.float64).reshape(BATCH, channels, side, side)


def labels():
    return torch.tensor([(3 * i + 1) % CLASSES for i in range(BATCH)])


class Net:
    """Tensors by name, made when first used; the forward pass is the definition."""

    def __init__(self):
        self.weights, self.others, self.statistics = {}, {}, {}

    def weight(self, name, *shape):
        name += ".weight"
        if name not in self.weights:
            deviation, stream = math.sqrt(2.0 / math.prod(shape[1:])), init_stream(name)
            values = [deviation * normal(SEED, stream, i) for i in range(math.prod(shape))]
            tensor = torch.tensor(values, dtype=torch.float64).reshape(shape)
            self.weights[name] = tensor.requires_grad_()
        return self.weights[name]

    def other(self, name, n, value):
        if name not in self.others:
            self.others[name] = torch.full((n,), value, dtype=torch.float64, requires_grad=True)
        return self.others[name]

    def statistic(self, name, n, value):
        return self.statistics.setdefault(name, torch.full((n,), value, dtype=torch.float64))

    def conv(self, name, x, k, window, stride=1, pad=None):
        pad = (window - 1) // 2 if pad is None else pad
        w = self.weight(name, k, x.shape[1], window, window)
        return F.conv2d(x, w, self.other(name + ".bias", k, 0.0), stride, pad)

    def conv_bn(self, name, number, x, k, window=(1, 1), stride=1):
        """Convolution without bias and batch-norm without ReLU."""
        w = self.weight(f"{name}.conv{number}", k, x.shape[1], *window)
        x = F.conv2d(x, w, None, stride, ((window[0] - 1) // 2, (window[1] - 1) // 2))
        return self.bn(f"{name}.bn{number}", x, relu=False)

    def dense(self, name, x, k):
        w = self.weight(name, k, x.shape[1])
        return F.linear(x, w, self.other(name + ".bias", k, 0.0))

    def bn(self, name, x, relu=True):
        c = x.shape[1]
        x = F.batch_norm(x, self.statistic(name + ".running_mean", c, 0.0),
                         self.statistic(name + ".running_var", c, 1.0),
                         self.other(name + ".weight", c, 1.0), self.other(name + ".bias", c, 0.0),
                         training=True, momentum=0.1, eps=1e-5)
        return F.relu(x) if relu else x


def resnet_v1(net, x):
    x = net.bn("stem.bn", net.conv("stem.conv", x, 16, 3))
    for s, k in enumerate((16, 32, 64)):
        for b in range(3):
            p = f"stack{s}.block{b}."
            stride = 2 if s and b == 0 else 1
            y = net.bn(p + "bn1", net.conv(p + "conv1", x, k, 3, stride))
            y = net.bn(p + "bn2", net.conv(p + "conv2", y, k, 3), relu=False)
            if stride == 2:
                x = net.conv(p + "shortcut", x, k, 1, 2)
            x = F.relu(x + y)
    x = F.avg_pool2d(x, min(8, x.shape[2]))
    return net.dense("head.dense", x.flatten(1), CLASSES)


def resnet_v2(net, x):
    x = net.bn("stem.bn", net.conv("stem.conv", x, 16, 3))
    for s, (k, out) in enumerate(((16, 64), (64, 128), (128, 256))):
        for b in range(2):
            p = f"stack{s}.block{b}."
            stride = 2 if s and b == 0 else 1
            y = x if s == 0 and b == 0 else net.bn(p + "bn1", x)
            y = net.conv(p + "conv1", y, k, 1, stride)
            y = net.conv(p + "conv2", net.bn(p + "bn2", y), k, 3)
            y = net.conv(p + "conv3", net.bn(p + "bn3", y), out, 1)
            if b == 0:
                x = net.conv(p + "shortcut", x, out, 1, stride)
            x = x + y
    x = net.bn("head.bn", x)
    x = F.avg_pool2d(x, min(8, x.shape[2]))
    return net.dense("head.dense", x.flatten(1), CLASSES)


def lenet(net, x):
    x = F.max_pool2d(F.relu(net.conv("conv1", x, 6, 5, pad=2)), 2)
    x = F.max_pool2d(F.relu(net.conv("conv2", x, 16, 5, pad=0)), 2)
    x = F.relu(net.dense("dense1", x.flatten(1), 120))
    x = F.relu(net.dense("dense2", x, 84))
    return net.dense("dense3", x, CLASSES)


# Operators of the five steps of a cell: (operator, state) twice; then the states joined.
NORMAL = ((("conv1", 1), ("avg", 1)), (("same", 1), ("line", 0)), (("conv1", 0), ("line", 0)),
          (("avg", 2), ("same", 2)), (("avg", 1), ("conv1", 5))), (0, 3, 4, 6)
REDUCTION = ((("max", 0), ("avg", 0)), (("same", 2), ("conv3", 1)), (("line", 2), ("avg", 2)),
             (("same", 3), ("max", 1)), (("avg", 2), ("conv1", 3))), (4, 5, 6)


def cell_operator(net, name, op, x, c, stride):
    if op == "same":
        return x
    if op == "avg":
        return F.avg_pool2d(x, 3, stride, 1, count_include_pad=False)
    if op == "max":
        return F.max_pool2d(x, 2, stride)
    x = F.relu(x)
    if op == "conv1":
        return net.conv_bn(name, "", x, c)
    for i, window in enumerate(((1, 1), (3, 3)) if op == "conv3" else ((1, 1), (1, 7), (7, 1))):
        x = F.relu(net.conv_bn(name, i, x, c // 4, window, stride if window == (3, 3) else 1))
    return net.conv_bn(name, i + 1, x, c)


def cell(net, number, pair, c, genotype, after_reduction):
    steps, joined = genotype
    name, (nearer, farther) = f"cell{number}", pair
    states = [net.conv_bn(name + ".nearer", "", F.relu(nearer), c), farther]
    if after_reduction:
        x = F.relu(farther)
        shifted = F.pad(x[:, :, 1:, 1:], (0, 1, 0, 1))
        halves = [F.conv2d(half, net.weight(f"{name}.farther.conv{i}", c // 2, x.shape[1], 1, 1),
                           None, 2) for i, half in enumerate((x, shifted))]
        states[1] = net.bn(name + ".farther.bn", torch.cat(halves, 1), relu=False)
    elif farther.shape[1] != c:
        states[1] = net.conv_bn(name + ".farther", "", F.relu(farther), c)
    for i, step in enumerate(steps):
        sides = []
        for half, (op, state) in zip("ab", step):
            stride = 2 if genotype is REDUCTION and state < 2 else 1
            sides.append(cell_operator(net, f"{name}.step{i}.{half}", op, states[state], c, stride))
        states.append(sides[0] + sides[1])
    return torch.cat([states[i] for i in joined], 1), nearer


def amoebanet(net, x):
    """3 normal cells, 16 filters."""
    c = 4
    x = net.conv_bn("stem", "", F.relu(x), c, (3, 3), 2)
    pair, before = (x, x), None
    for i, genotype in enumerate((REDUCTION, REDUCTION, NORMAL, REDUCTION, NORMAL, REDUCTION,
                                  NORMAL)):
        c *= 2 if genotype is REDUCTION else 1
        pair = cell(net, i, pair, c, genotype, before is REDUCTION)
        before = genotype
    return net.dense("head.dense", pair[0].mean((2, 3)), CLASSES)


def sgd(nesterov, lr=0.05):
    return lambda weights, others: torch.optim.SGD(
        [dict(params=weights, weight_decay=1e-4), dict(params=others, weight_decay=0.0)], lr=lr,
        momentum=0.9, nesterov=nesterov)


def adam(kind):
    return lambda weights, others: kind(
        [dict(params=weights, weight_decay=1e-2), dict(params=others, weight_decay=0.0)], lr=1e-3,
        betas=(0.9, 0.999), eps=1e-8)


CASES = [
    ("resnet-20-v1", resnet_v1, 3, 16, sgd(True)),
    ("resnet-20-v2", resnet_v2, 3, 16, sgd(False)),
    ("amoebanet-d-3-16", amoebanet, 3, 64, sgd(False, 0.01)),
    ("lenet-adam", lenet, 1, 28, adam(torch.optim.Adam)),
    ("lenet-adamw", lenet, 1, 28, adam(torch.optim.AdamW)),
]


def show(name, tensor):
    """Name, elements, sum, sum of squares, four values spread over the tensor."""
    v = tensor.detach().flatten()
    n = v.numel()
    picks = [v[i * (n - 1) // 3].item() for i in range(4)]
    numbers = [v.sum().item(), (v * v).sum().item(), *picks]
    print("tensor", name, n, *(repr(x) for x in numbers))


def main():
    torch.set_num_threads(1)
    for name, forward, channels, side, optimizer in CASES:
        net, x, y = Net(), images(channels, side), labels()
        forward(net, x)  # makes the tensors; its statistics are thrown away
        net.statistics.clear()
        step = optimizer(list(net.weights.values()), list(net.others.values()))
        print("case", name)
        for _ in range(STEPS):
            step.zero_grad()
            loss = F.cross_entropy(forward(net, x), y)
            loss.backward()
            step.step()
            print("loss", repr(loss.item()))
        for tensors in (net.weights, net.others, net.statistics):
            for key in sorted(tensors):
                show(key, tensors[key])


main()

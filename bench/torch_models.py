"""PyTorch forms of gems' networks, for comparisons only: same shapes, same parameter names, same order.

Parameter names follow gems' own (stem.conv.weight, stack0.block0.conv1.weight, ...), so that an exported safetensors
file loads with load_state_dict.
"""
import torch.nn as nn
import torch.nn.functional as F


def conv(c_in, c_out, kernel, stride=1):
    return nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2)


class Stem(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = conv(channels, 16, 3)
        self.bn = nn.BatchNorm2d(16)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)), inplace=True)


class BlockV1(nn.Module):
    """conv-BN-ReLU, conv-BN, add, ReLU; a 1x1 convolution where the size changes."""

    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(c_in, c_out, 3, stride), nn.BatchNorm2d(c_out)
        self.conv2, self.bn2 = conv(c_out, c_out, 3), nn.BatchNorm2d(c_out)
        self.shortcut = conv(c_in, c_out, 1, stride) if stride != 1 else None

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)), inplace=True)


class BlockV2(nn.Module):
    """Three units BN-ReLU-conv: 1x1, 3x3, 1x1; the first unit of the network has no BN-ReLU."""

    def __init__(self, c_in, filters, c_out, stride, has_shortcut, is_first):
        super().__init__()
        self.bn1 = None if is_first else nn.BatchNorm2d(c_in)
        self.conv1 = conv(c_in, filters, 1, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(filters), conv(filters, filters, 3)
        self.bn3, self.conv3 = nn.BatchNorm2d(filters), conv(filters, c_out, 1)
        self.shortcut = conv(c_in, c_out, 1, stride) if has_shortcut else None

    def forward(self, x):
        y = x if self.bn1 is None else F.relu(self.bn1(x), inplace=True)
        y = F.relu(self.bn2(self.conv1(y)), inplace=True)
        y = F.relu(self.bn3(self.conv2(y)), inplace=True)
        return self.conv3(y) + (x if self.shortcut is None else self.shortcut(x))


class Head(nn.Module):
    def __init__(self, c, side, classes, has_bn):
        super().__init__()
        self.window = min(8, side)
        self.bn = nn.BatchNorm2d(c) if has_bn else None
        self.dense = nn.Linear(c * (side // self.window) ** 2, classes)

    def forward(self, x):
        if self.bn is not None:
            x = F.relu(self.bn(x), inplace=True)
        return self.dense(F.avg_pool2d(x, self.window).flatten(1))


class ResNet(nn.Module):
    def __init__(self, version, depth, size, classes, channels):
        super().__init__()
        n = (depth - 2) // (6 if version == 1 else 9)
        self.stem = Stem(channels)
        self.blocks = nn.Sequential()
        c = 16
        for stack in range(3):
            filters = 16 << stack if version == 1 else (16, 64, 128)[stack]
            c_out = filters if version == 1 else (64, 128, 256)[stack]
            for i in range(n):
                stride = 2 if stack > 0 and i == 0 else 1
                if version == 1:
                    block = BlockV1(c, c_out, stride)
                else:
                    block = BlockV2(c, filters, c_out, stride, i == 0, stack == 0 and i == 0)
                self.blocks.add_module(f"stack{stack}_block{i}", block)
                c = c_out
        side = -(-(-(-size // 2)) // 2)
        self.head = Head(c, side, classes, version == 2)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)))


def make(name, size, classes=10, channels=3):
    """r110v2, r20v1, ... -> module"""
    depth, version = name[1:].split("v")
    return ResNet(int(version), int(depth), size, classes, channels)

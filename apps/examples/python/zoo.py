"""Built-in models of Grapevine as PyTorch modules, with the same names of parameters and buffers.

    net = make_model("lenet", shape=(1, 28, 28), classes=10)
    net.load_state_dict(torch.load("runs/first/model.pt"))

The definitions in C++ are in apps/zoo/models/.
"""
import torch
from torch import nn
from torch.nn import functional as F


class Linear(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.fc = nn.Linear(_size(shape), classes)

    def forward(self, x):
        return self.fc(x.flatten(1))


class Mlp(nn.Module):
    def __init__(self, shape, classes, hidden=128):
        super().__init__()
        self.fc1 = nn.Linear(_size(shape), hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class LeNet(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        channels, height, width = shape
        side = lambda length: (length // 2 - 4) // 2
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * side(height) * side(width), 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class GemCnn(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        channels, height, width = shape
        side = lambda length: ((length - 4) // 2 - 4) // 2
        self.conv1 = nn.Conv2d(channels, 10, 5)
        self.conv2 = nn.Conv2d(10, 20, 5)
        self.fc1 = nn.Linear(20 * side(height) * side(width), 300)
        self.fc2 = nn.Linear(300, 200)
        self.fc3 = nn.Linear(200, classes)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.dropout(self.conv2(x), 0.5, self.training)
        x = F.relu(F.max_pool2d(x, 2)).flatten(1)
        x = F.dropout(F.relu(self.fc1(x)), 0.5, self.training)
        return self.fc3(F.relu(self.fc2(x)))


class Block(nn.Module):
    """Two convolutions beside a shortcut without parameters (He et al. 2016, option A)."""

    def __init__(self, maps_in, maps_out, stride):
        super().__init__()
        self.stride, self.added = stride, maps_out - maps_in
        self.conv1 = nn.Conv2d(maps_in, maps_out, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(maps_out)
        self.conv2 = nn.Conv2d(maps_out, maps_out, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(maps_out)

    def forward(self, x):
        residual = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        sampled = x[:, :, :: self.stride, :: self.stride]
        before = self.added // 2
        return F.relu(residual + F.pad(sampled, (0, 0, 0, 0, before, self.added - before)))


class ResNetCifar(nn.Module):
    def __init__(self, shape, classes, blocks_per_stage):
        super().__init__()
        self.conv = nn.Conv2d(shape[0], 16, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        maps_in, self.names = 16, []
        for maps in (16, 32, 64):
            for _ in range(blocks_per_stage):
                self.names.append(f"block{len(self.names)}")
                self.add_module(self.names[-1], Block(maps_in, maps, 1 if maps == maps_in else 2))
                maps_in = maps
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)))
        for name in self.names:
            x = getattr(self, name)(x)
        return self.fc(x.mean((2, 3)))


def _size(shape):
    size = 1
    for side in shape:
        size *= side
    return size


def make_model(name, shape, classes):
    """The model `name` for samples of `shape` and so many classes or outputs, initialised anew."""
    makers = {
        "linear": Linear,
        "mlp": Mlp,
        "lenet": LeNet,
        "gem-cnn": GemCnn,
        "resnet20": lambda shape, classes: ResNetCifar(shape, classes, 3),
        "resnet32": lambda shape, classes: ResNetCifar(shape, classes, 5),
    }
    return makers[name](tuple(shape), classes)

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


class Normed(nn.Module):
    """A convolution and its batch-norm."""

    def __init__(self, maps_in, maps_out, kernel, stride):
        super().__init__()
        self.conv = nn.Conv2d(maps_in, maps_out, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(maps_out)

    def forward(self, x):
        return self.norm(self.conv(x))


class ResidualBlock(nn.Module):
    """Two or, as a bottleneck, three convolutions beside a shortcut (He et al. 2016, option B)."""

    def __init__(self, maps_in, maps, stride, bottleneck):
        super().__init__()
        maps_out = 4 * maps if bottleneck else maps
        plan = (
            [(maps_in, maps, 1, 1), (maps, maps, 3, stride), (maps, maps_out, 1, 1)]
            if bottleneck
            else [(maps_in, maps, 3, stride), (maps, maps, 3, 1)]
        )
        self.layers = len(plan)
        for i, layer in enumerate(plan):
            self.add_module(f"layer{i}", Normed(*layer))
        self.shortcut = None
        if stride != 1 or maps_in != maps_out:
            self.shortcut = Normed(maps_in, maps_out, 1, stride)

    def forward(self, x):
        residual = self.layer0(x)
        for i in range(1, self.layers):
            residual = getattr(self, f"layer{i}")(F.relu(residual))
        return F.relu(residual + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nn.Module):
    def __init__(self, shape, classes, blocks, bottleneck):
        super().__init__()
        self.large = min(shape[1:]) >= 64
        self.first = Normed(shape[0], 64, 7 if self.large else 3, 2 if self.large else 1)
        maps_in, self.names = 64, []
        for stage, count in enumerate(blocks):
            maps = 64 << stage
            for i in range(count):
                self.names.append(f"block{len(self.names)}")
                stride = 2 if i == 0 and stage > 0 else 1
                self.add_module(self.names[-1], ResidualBlock(maps_in, maps, stride, bottleneck))
                maps_in = 4 * maps if bottleneck else maps
        self.fc = nn.Linear(maps_in, classes)

    def forward(self, x):
        x = F.relu(self.first(x))
        if self.large:
            x = F.max_pool2d(x, 3, 2, 1)
        for name in self.names:
            x = getattr(self, name)(x)
        return self.fc(x.mean((2, 3)))


class Vgg16(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.large = min(shape[1:]) >= 224
        self.stages = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
        maps_in, layer = shape[0], 0
        for maps, convolutions in self.stages:
            for _ in range(convolutions):
                self.add_module(f"conv{layer}", nn.Conv2d(maps_in, maps, 3, padding=1))
                self.add_module(f"norm{layer}", nn.BatchNorm2d(maps))
                maps_in, layer = maps, layer + 1
        if self.large:
            self.fc1 = nn.Linear(512 * 7 * 7, 4096)
            self.fc2 = nn.Linear(4096, 4096)
        self.fc3 = nn.Linear(4096 if self.large else 512, classes)

    def forward(self, x):
        layer = 0
        for _, convolutions in self.stages:
            for _ in range(convolutions):
                x = getattr(self, f"conv{layer}")(x)
                x = F.relu(getattr(self, f"norm{layer}")(x))
                layer += 1
            x = F.max_pool2d(x, 2, 2, ceil_mode=True)
        if not self.large:
            return self.fc3(x.mean((2, 3)))
        x = F.adaptive_avg_pool2d(x, 7).flatten(1)
        x = F.dropout(F.relu(self.fc1(x)), 0.5, self.training)
        x = F.dropout(F.relu(self.fc2(x)), 0.5, self.training)
        return self.fc3(x)


def _at_last_step(output, x):
    """The output [B, T, C] of each sample's last step; the last feature of x marks its steps."""
    last = x[:, :, -1].sum(1).long() - 1
    return output.gather(1, last.view(-1, 1, 1).expand(-1, 1, output.size(2))).squeeze(1)


class Lstm(nn.Module):
    """Of sequences [B, T, features and a mark of the own steps]; with `vocabulary` of tokens."""

    def __init__(self, shape, classes, vocabulary=0):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 128) if vocabulary else None
        inputs = 128 if vocabulary else shape[1] - 1
        self.lstm = nn.LSTM(inputs, 128, num_layers=2, batch_first=True)
        self.fc = nn.Linear(128, classes)

    def forward(self, x):
        if self.embedding is not None:
            return self.fc(self.lstm(self.embedding(x.long()))[0]).transpose(1, 2)
        return self.fc(_at_last_step(self.lstm(x[:, :, :-1])[0], x))


class DecoderLayer(nn.Module):
    """Causal attention with four heads, then two layers of 512 and 128 (Vaswani et al. 2017)."""

    def __init__(self, width=128, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, future):
        x = x + self._attention(self.norm1(x), future)
        return x + self.narrow(F.gelu(self.widen(self.norm2(x))))

    def _attention(self, x, future):
        batch, steps, width = x.shape
        parts = self.attend(x).view(batch, steps, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = query @ key.transpose(2, 3) / (width // self.heads) ** 0.5 + future
        seen = torch.softmax(scores, -1) @ value
        return self.mix(seen.transpose(1, 2).reshape(batch, steps, width))


class Transformer(nn.Module):
    """Of sequences or, with `vocabulary`, of tokens, as Lstm."""

    def __init__(self, shape, classes, vocabulary=0, width=128):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width) if vocabulary else None
        self.project = None if vocabulary else nn.Linear(shape[1] - 1, width)
        self.layer0, self.layer1 = DecoderLayer(width), DecoderLayer(width)
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        if self.embedding is not None:
            return self.fc(self._decode(self.embedding(x.long()))).transpose(1, 2)
        if self.project is not None:
            return self.fc(_at_last_step(self._decode(self.project(x[:, :, :-1])), x))
        return x

    def _decode(self, y):
        y = y + _positions(y.size(1), y.size(2))
        future = torch.full((y.size(1), y.size(1)), float("-inf")).triu(1)
        return self.norm(self.layer1(self.layer0(y, future), future))


def _positions(steps: int, width: int):
    """Sinusoids [steps, width]."""
    pair = torch.arange(0, width, 2, dtype=torch.float32)
    step = torch.arange(steps, dtype=torch.float32).unsqueeze(1)
    angle = step * torch.exp(pair * (-torch.log(torch.tensor(10000.0)) / width))
    return torch.stack((angle.sin(), angle.cos()), 2).flatten(1)


def _size(shape):
    size = 1
    for side in shape:
        size *= side
    return size


def make_model(name, shape, classes, vocabulary=0):
    """The model `name` for samples of `shape` and so many classes or outputs, initialised anew.

    `vocabulary`: of token data, for `lstm` and `transformer`.
    """
    makers = {
        "linear": Linear,
        "mlp": Mlp,
        "lenet": LeNet,
        "gem-cnn": GemCnn,
        "resnet20": lambda shape, classes: ResNetCifar(shape, classes, 3),
        "resnet32": lambda shape, classes: ResNetCifar(shape, classes, 5),
        "resnet18": lambda shape, classes: ResNet(shape, classes, (2, 2, 2, 2), False),
        "resnet50": lambda shape, classes: ResNet(shape, classes, (3, 4, 6, 3), True),
        "vgg16": Vgg16,
        "lstm": lambda shape, classes: Lstm(shape, classes, vocabulary),
        "transformer": lambda shape, classes: Transformer(shape, classes, vocabulary),
    }
    return makers[name](tuple(shape), classes)

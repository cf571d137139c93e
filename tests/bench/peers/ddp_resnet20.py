#!/usr/bin/env python3
"""The training step of PyTorch's DistributedDataParallel over gloo, as one rank of a comparison.

Usage: RANK=R WORLD_SIZE=N MASTER_ADDR=A MASTER_PORT=P ddp_resnet20.py --steps S [--batch-size B]
       [--classes C] [--delay SECONDS] [--interface NAME] [--alone]

The same model as `grapevine train --model resnet20 --data noise:32`: ResNet-20 with shortcuts
without parameters, 1,000 classes. The batch lies in memory all the time, so no step waits for data.
--delay: at step s the rank s mod N sleeps so long before its gradient. --alone: the ranks exchange
nothing, which is the least that any exchange between them can take. Prints the seconds of each
step as JSON.
"""
import argparse
import json
import os
import time

import torch
import torch.distributed
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.first = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.first_norm, self.second_norm = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.stride, self.more = stride, channels - channels_in

    def shortcut(self, x):
        if self.more == 0:
            return x
        x = x[:, :, ::self.stride, ::self.stride]
        return functional.pad(x, (0, 0, 0, 0, self.more // 2, self.more - self.more // 2))

    def forward(self, x):
        y = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(y)) + self.shortcut(x))


def resnet20(classes):
    layers = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    channels = 16
    for width in (16, 32, 64):
        for block in range(3):
            layers.append(Residual(channels, width, 2 if block == 0 and width > 16 else 1))
            channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def train(options, rank, ranks):
    model = resnet20(options.classes)
    if not options.alone:
        # As fast as it goes: the statistics of batch norm are not exchanged here either.
        model = nn.parallel.DistributedDataParallel(model, broadcast_buffers=False,
                                                    gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    images = torch.randn(options.batch_size, 3, 32, 32)
    labels = torch.randint(options.classes, (options.batch_size,))
    seconds = []
    for step in range(options.steps):
        begin = time.perf_counter()
        if options.delay > 0 and step % ranks == rank:
            time.sleep(options.delay)
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - begin)
    parameters = sum(p.numel() for p in model.parameters())
    print(json.dumps({"rank": rank, "parameters": parameters, "seconds": seconds}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--delay", type=float, default=0)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--interface", default="lo")
    options = parser.parse_args()
    os.environ["GLOO_SOCKET_IFNAME"] = options.interface
    torch.set_num_threads(1)
    torch.manual_seed(1)
    torch.distributed.init_process_group("gloo")
    train(options, torch.distributed.get_rank(), torch.distributed.get_world_size())
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

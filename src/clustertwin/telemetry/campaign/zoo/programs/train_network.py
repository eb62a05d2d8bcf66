"""torch: a convolutional network learns random images from a file that is read batch by batch."""

from __future__ import annotations

import sys

import numpy as np


def main(path: str, threads: int, epochs: int = 6) -> None:
    import torch
    from torch import nn

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    images = np.load(path, mmap_mode="r")  # (image, channel, row, column)
    network = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10)),
    )
    optimiser = torch.optim.Adam(network.parameters())
    for _ in range(epochs):
        for start in range(0, len(images), 64):
            batch = torch.from_numpy(np.array(images[start : start + 64]))
            loss = nn.functional.cross_entropy(network(batch), torch.arange(len(batch)) % 10)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        torch.save(network.state_dict(), "network.pt")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

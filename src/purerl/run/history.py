"""The metrics of a run, one transfer from the device for each train step."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from tensordict import TensorDict
from torch import Tensor

from .. import tree


def flat_metrics(metrics: TensorDict) -> dict[str, Tensor]:
    """Return nested metrics under slashed names.

    >>> flat_metrics(TensorDict({"loss": {"policy": torch.tensor([1.0])}}))
    {'loss/policy': tensor([1.])}
    """
    nested = tree.to_dict(metrics)
    names = (path.replace(".", "/") for path in tree.paths(nested))
    return dict(zip(names, tree.leaves(nested), strict=True))


class History:
    """Grows by one row ``[metrics, num_seeds]`` of float64 on the CPU for each train step.

    Counts up to 2⁵³ and every float32 pass through float64 unchanged.
    """

    def __init__(self) -> None:
        self.env_steps: list[int] = []
        self.latest: dict[str, list[float]] = {}
        """The newest row: for each metric a list of one number a seed."""
        self._dtypes: dict[str, torch.dtype] = {}
        self._rows: list[Tensor] = []

    def add(self, env_steps: int, metrics: Mapping[str, Tensor]) -> None:
        """Keep the metrics of one train step, each ``[num_seeds]``."""
        row = torch.stack([value.detach().to(torch.float64) for value in metrics.values()]).cpu()
        self._dtypes = {name: value.dtype for name, value in metrics.items()}
        self._rows.append(row)
        self.env_steps.append(env_steps)
        self.latest = dict(zip(metrics, row.tolist(), strict=True))

    def amend(self, metrics: Mapping[str, Tensor]) -> None:
        """Replace some metrics of the newest row."""
        row, names = self._rows[-1], list(self._dtypes)
        for name, value in metrics.items():
            row[names.index(name)] = value.to(row)
        self.latest = dict(zip(names, row.tolist(), strict=True))

    def stacked(self) -> TensorDict:
        """Return all rows as a nested TensorDict ``[num_updates, num_seeds]``."""
        data = torch.stack(self._rows, dim=1)
        steps = torch.tensor(self.env_steps, dtype=torch.int64)
        stacked = TensorDict({}, batch_size=data.shape[1:])
        stacked["env_steps"] = steps[:, None].expand(data.shape[1:]).clone()
        for values, (name, dtype) in zip(data, self._dtypes.items(), strict=True):
            stacked[tuple(name.split("/"))] = values.to(dtype)
        return stacked

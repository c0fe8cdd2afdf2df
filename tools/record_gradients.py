#!/usr/bin/env python3
"""Records what other people's Muon makes of the same gradients: tests/data/golden/recorded_gradients.safetensors.

    python -m pip install --no-deps --ignore-requires-python --target /tmp/emerging \
        emerging-optimizers==0.3.0 absl-py==2.5.1
    .venv/bin/python tools/record_gradients.py --emerging /tmp/emerging

A net of four odd matrices learns a teacher's outputs for 1,000 steps: with torch.optim.Muon, and with
Emerging-Optimizers' Muon in fp32. The gradients of the latter's first 100 steps are kept, and both optimizers, and the
definition in fp64 (numpy), replay them from the same weights in the settings of CASES. Losses of the 1,000 steps are kept
too. tests/optim/recorded_gradients_test.cpp does the same with ours. The file that is committed was made with
emerging-optimizers 0.3.0, torch 2.13.0+cpu, numpy 2.4.6, Python 3.11, on one thread.

Tensors: data/{x,y}; init/W0..3; grad/W0..3 [100, r, c]; CASE/{emerging,torch}/W0..3 (F32) and CASE/fp64/W0..3 (F64),
weights after CHECKPOINTS steps; losses/{emerging,torch} [1000].
"""
import argparse
import importlib.machinery
import json
import pathlib
import sys
import types
import typing

import numpy as np
import safetensors.torch
import torch

FILE = pathlib.Path(__file__).resolve().parents[1] / "tests/data/golden/recorded_gradients.safetensors"
WIDTHS = [9, 29, 17, 17, 5]  # tall, wide, square, wide
ROWS, BATCH, STEPS, RECORDED = 512, 64, 1000, 100
CHECKPOINTS = [1, 3, 10, 30, 100]
SIMPLE = [(3.4445, -4.7750, 2.0315)]
QUINTIC = [(4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037), (2.8769, -3.1427, 1.2046),
           (2.8366, -3.0525, 1.2012)]

# What each case means, in one vocabulary; who can say it has an entry below.
CASES = {
    "match_rms": dict(lr=0.02, momentum=0.95, nesterov=True, weight_decay=0.1, decay="decoupled", sets=SIMPLE,
                      scale=lambda r, c: 0.2 * max(r, c) ** 0.5),
    "original": dict(lr=0.02, momentum=0.9, nesterov=False, weight_decay=0.0, decay="decoupled", sets=SIMPLE,
                     scale=lambda r, c: max(1, r / c) ** 0.5),
    "quintic": dict(lr=0.01, momentum=0.95, nesterov=False, weight_decay=0.01, decay="independent", sets=QUINTIC,
                    scale=lambda r, c: (r / c) ** 0.5),
}
EMERGING = {
    "match_rms": dict(coefficient_type="simple", scale_mode="spectral", extra_scale_factor=0.2),
    "original": dict(coefficient_type="simple", scale_mode="shape_scaling"),
    "quintic": dict(coefficient_type="quintic", scale_mode="unit_rms_norm"),
}
TORCH = {"match_rms": dict(adjust_lr_fn="match_rms_adamw"), "original": dict(adjust_lr_fn="original")}


def import_emerging(folder):
    """Emerging-Optimizers asks for Python 3.12 and triton; where they are missing, names stand in that no Muon on a CPU
    calls (typing.override, the kernels behind use_syrk)."""
    sys.path.insert(0, folder)
    if not hasattr(typing, "override"):
        from typing_extensions import override
        typing.override = override
    try:
        import triton  # noqa: F401
        stubs = []
    except ImportError:
        class Stub(types.ModuleType):
            def __getattr__(self, name):
                if name.startswith("__"):
                    raise AttributeError(name)
                return lambda *args, **kwargs: (args[0] if len(args) == 1 and callable(args[0]) else
                                                lambda function: function)
        stubs = ["triton", "triton.language"]
        for name in stubs:
            sys.modules[name] = Stub(name)
            sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
        sys.modules["triton"].language = sys.modules["triton.language"]
    from emerging_optimizers.orthogonalized_optimizers.muon import Muon
    for name in stubs:  # torch must not find a triton that is none
        del sys.modules[name]
    return Muon


def make_emerging(muon, name, params):
    case = CASES[name]
    return muon(params, lr=case["lr"], momentum=case["momentum"], nesterov=case["nesterov"],
                weight_decay=case["weight_decay"], weight_decay_method=case["decay"], fp32_matmul_prec="highest",
                num_ns_steps=5, **EMERGING[name])


def make_torch(name, params):
    case = CASES[name]
    return torch.optim.Muon(params, lr=case["lr"], momentum=case["momentum"], nesterov=case["nesterov"],
                            weight_decay=case["weight_decay"], ns_coefficients=SIMPLE[0], eps=1e-7, ns_steps=5,
                            **TORCH[name])


class Exact:
    """The definition, in fp64. NS(U): X = U / max(|U|, 1e-7), wide; X <- aX + (bA + cAA)X, A = XX^T; 5 steps."""

    def __init__(self, name, params):
        self.case, self.params = CASES[name], [p.astype(np.float64) for p in params]
        self.momenta = [np.zeros_like(p) for p in self.params]

    def orthogonalize(self, update):
        x = update / max(np.linalg.norm(update), 1e-7)
        wide = x.T if x.shape[0] > x.shape[1] else x
        for step in range(5):
            a, b, c = self.case["sets"][step % len(self.case["sets"])]
            gram = wide @ wide.T
            wide = a * wide + (b * gram + c * gram @ gram) @ wide
        return wide.T if x.shape[0] > x.shape[1] else wide

    def step(self, grads):
        case = self.case
        rate = case["weight_decay"] * (case["lr"] if case["decay"] == "decoupled" else 1)
        mu = case["momentum"]
        for p, m, grad in zip(self.params, self.momenta, grads):
            g = grad.astype(np.float64)
            p *= 1 - rate
            m += (g - m) * (1 - mu)
            p -= case["lr"] * case["scale"](*p.shape) * self.orthogonalize(g + (m - g) * mu if case["nesterov"] else m)


def data_and_weights():
    draw = torch.Generator().manual_seed(42)
    x = torch.randn(ROWS, WIDTHS[0], generator=draw)
    hidden = torch.tanh(x @ (torch.randn(WIDTHS[0], 16, generator=draw) / WIDTHS[0] ** 0.5 * 2))
    y = hidden @ (torch.randn(16, WIDTHS[-1], generator=draw) / 4) + 0.05 * torch.randn(ROWS, WIDTHS[-1], generator=draw)
    weights = [torch.randn(r, c, generator=draw) / c ** 0.5 for c, r in zip(WIDTHS, WIDTHS[1:])]
    return x, y, weights


def loss_of(weights, x, y):
    for weight in weights[:-1]:
        x = torch.tanh(x @ weight.T)
    return (x @ weights[-1].T - y).square().mean()


def train(make, init, x, y):
    """STEPS steps, the learning rate falling to zero in a line. Returns the losses and the first RECORDED gradients."""
    weights = [w.clone().requires_grad_() for w in init]
    optimizer = make(weights)
    lr, losses, grads = optimizer.param_groups[0]["lr"], [], []
    for step in range(STEPS):
        rows = torch.arange(step * BATCH, (step + 1) * BATCH) % ROWS
        optimizer.param_groups[0]["lr"] = lr * (1 - step / STEPS)
        optimizer.zero_grad()
        loss = loss_of(weights, x[rows], y[rows])
        loss.backward()
        losses.append(loss.item())
        if step < RECORDED:
            grads.append([w.grad.clone() for w in weights])
        optimizer.step()
    return torch.tensor(losses), grads


def replay(make, init, grads):
    """Weights after each of CHECKPOINTS: one tensor per matrix."""
    weights = [w.clone().requires_grad_() for w in init]
    optimizer, kept = make(weights), []
    for step, row in enumerate(grads, 1):
        for weight, grad in zip(weights, row):
            weight.grad = grad.clone()
        optimizer.step()
        if step in CHECKPOINTS:
            kept.append([w.detach().clone() for w in weights])
    return [torch.stack(column) for column in zip(*kept)]


def replay_exact(name, init, grads):
    exact, kept = Exact(name, [w.numpy() for w in init]), []
    for step, row in enumerate(grads, 1):
        exact.step([g.numpy() for g in row])
        if step in CHECKPOINTS:
            kept.append([torch.from_numpy(p.copy()) for p in exact.params])
    return [torch.stack(column) for column in zip(*kept)]


def largest(a, b):
    return max((x.double() - y.double()).abs().max().item() for x, y in zip(a, b))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--emerging", required=True, help="folder where emerging-optimizers 0.3.0 lies")
    parser.add_argument("--out", type=pathlib.Path, default=FILE)
    args = parser.parse_args()
    torch.set_num_threads(1)
    muon = import_emerging(args.emerging)

    x, y, init = data_and_weights()
    tensors = {"data/x": x, "data/y": y}
    losses, grads = train(lambda p: make_emerging(muon, "match_rms", p), init, x, y)
    tensors["losses/emerging"] = losses
    tensors["losses/torch"], _ = train(lambda p: make_torch("match_rms", p), init, x, y)
    for index, weight in enumerate(init):
        tensors[f"init/W{index}"] = weight
        tensors[f"grad/W{index}"] = torch.stack([row[index] for row in grads])
    for name in CASES:
        exact = replay_exact(name, init, grads)
        runs = {"fp64": exact, "emerging": replay(lambda p: make_emerging(muon, name, p), init, grads)}
        if name in TORCH:
            runs["torch"] = replay(lambda p: make_torch(name, p), init, grads)
        for who, weights in runs.items():
            tensors.update({f"{name}/{who}/W{index}": weight for index, weight in enumerate(weights)})
            print(f"{name:10} {who:9} largest difference from fp64 {largest(weights, exact):.2e}")
    about = {"torch": torch.__version__, "numpy": np.__version__, "emerging-optimizers": "0.3.0",
             "checkpoints": CHECKPOINTS}  # one entry: safetensors writes several in any order
    safetensors.torch.save_file({k: v.contiguous() for k, v in tensors.items()}, args.out,
                                {"about": json.dumps(about)})
    for who in ("emerging", "torch"):
        curve = tensors[f"losses/{who}"]
        print(f"losses {who:9} first {curve[0]:.4f}, after 100 {curve[100:110].mean():.4f}, last 50 {curve[-50:].mean():.5f}")
    print(f"{args.out}: {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()

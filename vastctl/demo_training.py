"""A small real training: logistic regression by gradient descent, as a job a user would send.

Copied as `train.py` into the demo's project; needs nothing but Python. It writes a heartbeat,
saves a checkpoint when it is asked to end, resumes from it, and leaves its model and metrics in
`results/`.
"""

import argparse
import json
import math
import os
import random
import signal
import sys
import time
from types import FrameType

FEATURES = 8
TRAINING_ROWS = 1500
TEST_ROWS = 500

Row = tuple[list[float], int]
asked_to_end = False


def on_term(_signal: int, _frame: FrameType | None) -> None:
    """Remember that somebody wants us to end; the loop saves and leaves."""
    global asked_to_end
    asked_to_end = True


def make_data(seed: int) -> tuple[list[Row], list[Row]]:
    """Draw points of two classes that overlap a little, so that there is something to learn."""
    draw = random.Random(seed)
    truth = [draw.uniform(-2.0, 2.0) for _ in range(FEATURES)]
    rows: list[Row] = []
    for _ in range(TRAINING_ROWS + TEST_ROWS):
        x = [draw.gauss(0.0, 1.0) for _ in range(FEATURES)]
        score = sum(w * v for w, v in zip(truth, x, strict=True)) + draw.gauss(0.0, 0.8)
        rows.append((x, 1 if score > 0 else 0))
    return rows[:TRAINING_ROWS], rows[TRAINING_ROWS:]


def predict(weights: list[float], x: list[float]) -> float:
    """Return the probability of class 1; the last weight is the bias."""
    score = weights[-1] + sum(w * v for w, v in zip(weights[:-1], x, strict=True))
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, score))))


def epoch_step(weights: list[float], rows: list[Row], rate: float) -> float:
    """Move the weights once down the gradient; return the mean loss before the move."""
    gradient = [0.0] * len(weights)
    loss = 0.0
    for x, label in rows:
        p = min(max(predict(weights, x), 1e-12), 1 - 1e-12)
        loss -= math.log(p if label else 1 - p)
        error = p - label
        for i, value in enumerate(x):
            gradient[i] += error * value
        gradient[-1] += error
    for i, slope in enumerate(gradient):
        weights[i] -= rate * slope / len(rows)
    return loss / len(rows)


def accuracy(weights: list[float], rows: list[Row]) -> float:
    """Return the share of rows that are classified right."""
    return sum((predict(weights, x) > 0.5) == bool(label) for x, label in rows) / len(rows)


def write_json(path: str, value: object) -> None:
    """Replace `path` in one step: a reader never sees half a file."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
    os.replace(path + ".tmp", path)


def load_checkpoint(path: str) -> tuple[int, list[float]]:
    """Return epoch and weights to start from."""
    try:
        with open(path, encoding="utf-8") as file:
            saved = json.load(file)
        return int(saved["epoch"]), [float(w) for w in saved["weights"]]
    except (OSError, ValueError, KeyError):
        return 0, [0.0] * (FEATURES + 1)


def beat(epoch: int, loss: float) -> None:
    """Tell the watchdog that we live."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    write_json("heartbeat.json", {"epoch": epoch, "step": epoch, "loss": loss, "timestamp": now})


def train(epochs: int, seconds: float, seed: int) -> int:
    """Train, save, and return the exit code: 0 when done, 143 when asked to end."""
    training, test = make_data(seed)
    first, weights = load_checkpoint("checkpoint.json")
    began = time.monotonic()
    loss = math.nan
    for epoch in range(first, epochs):
        loss = epoch_step(weights, training, rate=1.0)
        if epoch % 10 == 0 or epoch == epochs - 1:
            beat(epoch, loss)
            print(
                f"epoch {epoch:3d}  loss {loss:.4f}  test accuracy {accuracy(weights, test):.3f}",
                flush=True,
            )
        if asked_to_end:
            write_json("checkpoint.json", {"epoch": epoch + 1, "weights": weights})
            print("asked to end: checkpoint saved", flush=True)
            return 128 + signal.SIGTERM
        # Spread over `seconds`, so that there is something to watch on a fast machine as well.
        ahead = began + seconds * (epoch + 1 - first) / max(1, epochs - first) - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
    took = time.monotonic() - began
    write_json("results/model.json", {"weights": weights[:-1], "bias": weights[-1]})
    metrics = {
        "epochs": epochs,
        "train_loss": round(loss, 6),
        "test_accuracy": accuracy(weights, test),
        "seconds": round(took, 2),
    }
    write_json("results/metrics.json", metrics)
    print(f"done: {json.dumps(metrics)}", flush=True)
    return 0


def main() -> int:
    """Read the options and train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, on_term)
    return train(args.epochs, args.seconds, args.seed)


if __name__ == "__main__":
    sys.exit(main())

"""The MMPP/Erlang-k/1/L queue: where it is how often, whom it loses, and how long it keeps whom.

One server takes packets in turn. Its work on a packet is k exponential stages of rate k mu; a packet that
arrives while there are n in the system, the one in service counted, is discarded with probability c(n), and
always if n = L. The state is what the arrivals' chain is in, and the number of stages still to be done, 0 to
k L. docs/markov.md derives what is computed here. Nothing here knows the simulator.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bentpipe.errors import UsageError
from bentpipe.models.mmpp import Arrivals, stationary

__all__ = ["ClassResult", "QueueResult", "ramp", "solve"]

Matrix = NDArray[np.float64]

MOST_STAGES, MOST_PLACES = 1000, 100_000
_MOST_NUMBERS = 2**26
"""Numbers that the solver keeps: half a gigabyte."""
_MOST_STEPS = 20_000_000
"""Steps that the solver takes, k² L, about 2 µs each."""
_TOLERANCE = 1e-8
"""A flow that is out of balance by more, as a share of all that flows, is no solution."""
_HUGE = 1e100


@dataclass(frozen=True, slots=True)
class ClassResult:
    """What becomes of one class of packets."""

    name: str
    offered: float
    """Rate of arrivals [packets/s]."""
    loss: float
    """Share of them that is discarded, 0 to 1."""
    packets: float
    """Mean number in the system, the one in service counted."""
    wait: float
    """Mean time from arrival to the begin of service, of those that are accepted [s]."""
    delay: float
    """Mean time in the system, service included, of those that are accepted [s]."""


@dataclass(frozen=True, eq=False, slots=True)
class QueueResult:
    """The stationary queue."""

    states: int
    """States of the arrivals' chain, m."""
    stages: int
    """Stages of a service, k."""
    places: int
    """Packets that the system holds at most, L, the one in service counted."""
    service_rate: float
    """Packets that the server serves while it is busy, mu [packets/s]."""
    distribution: Matrix
    """Probability of n packets in the system, n = 0 to L (L + 1,)."""
    marking: Matrix
    """Probability that a packet is marked, and so discarded, if it finds n in the system (L + 1,)."""
    classes: tuple[ClassResult, ...]
    offered: float
    """Rate of arrivals [packets/s]."""
    loss: float
    """Share of the arrivals that is discarded, 0 to 1: marked, or no room."""
    marked: float
    """Share of the arrivals that is marked, 0 to 1."""
    utilization: float
    """Share of time that the server is busy, 0 to 1."""
    packets: float
    """Mean number in the system."""
    queue_mean: float
    """Mean number that wait, the one in service not counted."""
    queue_std: float
    """Standard deviation of that number over time."""
    wait: float
    """Mean time from arrival to the begin of service, of those that are accepted [s]."""
    delay: float
    """Mean time in the system, of those that are accepted [s]."""
    residual: float
    """Largest net flow into a state, as a share of the largest flow; 0 but for rounding."""
    balance: float
    """Rate of packets accepted less rate of packets served, as a share of the latter; 0 but for rounding."""

    def waiting(self, share: float) -> int:
        """Return the least number of waiting packets that is not exceeded for at least this share of time."""
        below = np.searchsorted(np.cumsum(self.distribution), share * (1 - 1e-15))
        return max(min(int(below), self.places) - 1, 0)


def ramp(places: int, threshold: float, *, of_waiting: bool = False) -> Matrix:
    """Return the threshold control function [R11 5.3] for n = 0 to `places` packets in the system (L + 1,).

    0 up to `threshold` L, from there on a straight line to 1 at L. With `of_waiting` it counts only the
    packets that wait, of which there are L - 1 at most. `UsageError` unless 0 <= `threshold` < 1.
    """
    if not 0 <= threshold < 1:
        raise UsageError(f"threshold is {threshold}, but at least 0 and less than 1 is needed")
    _check_places(places)
    n = np.arange(places + 1, dtype=float)
    filled = np.maximum(n - 1, 0) / max(places - 1, 1) if of_waiting else n / places
    return np.clip((filled - threshold) / (1 - threshold), 0, 1)


def _check_places(places: int) -> None:
    if not 1 <= places <= MOST_PLACES:
        raise UsageError(f"places is {places} packets, but 1 to {MOST_PLACES} are needed")


def solve(
    arrivals: Arrivals, service_rate: float, stages: int, places: int, marking: Matrix | None = None
) -> QueueResult:
    """Return the stationary MMPP/Erlang-k/1/L queue.

    `service_rate` is mu [packets/s], `stages` k, `places` L [packets]; `marking` gives c(n) for n = 0 to L
    (L + 1,), by default zeros: packets are discarded for want of room alone. `UsageError` names the parameter
    that is wrong, or all of them if their equations are not solved.
    """
    if not (math.isfinite(service_rate) and service_rate > 0):
        raise UsageError(f"service_rate is {service_rate} packets/s, but a positive number is needed")
    if not 1 <= stages <= MOST_STAGES:
        raise UsageError(f"stages is {stages}, but 1 to {MOST_STAGES} are needed")
    _check_places(places)
    m = arrivals.states
    numbers, steps = m * m * stages * places, stages * stages * places
    if numbers > _MOST_NUMBERS or steps > _MOST_STEPS:
        raise UsageError(
            f"{m} states, {stages} stages and {places} places take {numbers:.2g} numbers and {steps:.2g}"
            f" steps, but {_MOST_NUMBERS:.2g} and {_MOST_STEPS:.2g} are the most"
        )
    marks = np.zeros(places + 1) if marking is None else np.array(marking, dtype=float)
    if marks.shape != (places + 1,) or not ((marks >= 0) & (marks <= 1)).all():
        raise UsageError(f"marking has {marks.size} numbers, but {places + 1} are needed, each from 0 to 1")
    rate = arrivals.rates.sum(axis=0)
    for name, row in zip(arrivals.names, arrivals.rates, strict=True):
        if not row.max() > 0:
            raise UsageError(f"{name}: nothing arrives, for all its rates are 0 packets/s")
    # A marked packet is discarded on arrival.
    accept = np.append(1 - marks[:-1], 0.0)
    if not accept[0] > 0:
        raise UsageError("marking is 1 for an empty system, so that no packet is ever accepted")
    with np.errstate(all="ignore"):
        found = _levels(arrivals.generator, rate, stages * service_rate, stages, accept)
    return _result(arrivals, service_rate, stages, accept, marks, found)


def _levels(q: Matrix, rate: Matrix, step: float, k: int, accept: Matrix) -> Matrix:
    """Return the probability of each state (k L + 1, m): the stages to be done, and the chain's state.

    Levels, the stages to be done, are eliminated from the top. From level s, with everything above it left
    out, the chain leaves to level s - 1 alone, at rate `step`; down[s] says in which state it gets there,
    from each state at s. What is inverted for it has the row sums `step` and nothing positive off its
    diagonal, and the diagonal is made from these, so that nothing is lost by subtracting.
    """
    m, top = len(rate), k * (len(accept) - 1)
    off = q - np.diag(np.diag(q))
    down = np.empty((top + 1, m, m))
    admitted = rate * accept[(np.arange(top + 1) + k - 1) // k, None]
    for s in range(top, -1, -1):
        into = off
        if admitted[s].any():
            back = down[s + k]
            for level in range(s + k - 1, s, -1):
                back = back @ down[level]
            into = off + admitted[s][:, None] * back
        into = into - np.diag(np.diag(into))
        if s == 0:
            break
        inverse = np.linalg.inv(np.diag(into.sum(axis=1) + step) - into)
        inverse = np.maximum(inverse, 0.0)
        down[s] = inverse / inverse.sum(axis=1)[:, None]
    p = np.zeros((top + 1, m))
    p[0] = stationary(into)
    for s in range(top + 1):
        if s:
            p[s] = p[s] @ down[s] / step
            largest = p[s].max()
            if largest > _HUGE:
                p /= largest
        if admitted[s].any():
            flow = p[s] * admitted[s]
            for level in range(s + k, s, -1):
                p[level] += flow
                flow = flow @ down[level]
    p /= p.sum()
    return p


def _result(arrivals: Arrivals, mu: float, k: int, accept: Matrix, marks: Matrix, p: Matrix) -> QueueResult:
    places, step = len(accept) - 1, k * mu
    left = np.arange(len(p))
    n = (left + k - 1) // k
    rate = arrivals.rates.sum(axis=0)
    admitted = p * rate * accept[n, None]
    # Net flow into each state.
    net = p @ arrivals.generator - admitted
    net[k:] += admitted[:-k]
    net[:-1] += step * p[1:]
    net[1:] -= step * p[1:]
    largest = (p * (np.abs(np.diag(arrivals.generator)) + rate + step)).max()
    residual = float(np.abs(net).max() / largest)
    served = step * float(p[1::k].sum())
    balance = float(admitted.sum()) / served - 1 if served > 0 else math.nan
    if not (residual < _TOLERANCE and abs(balance) < _TOLERANCE and (p >= 0).all()):
        raise UsageError(
            f"the queue's equations are not solved (net flow {residual:g}, balance {balance:g}):"
            f" {arrivals.states} states, rates up to {rate.max():g} packets/s, service_rate {mu:g} packets/s,"
            f" stages {k}, places {places}"
        )
    distribution: Matrix = np.bincount(n, weights=p.sum(axis=1), minlength=places + 1).astype(float)
    found = arrivals.rates @ p.T
    classes = []
    for name, row in zip(arrivals.names, found, strict=True):
        offered, taken = float(row.sum()), row * accept[n]
        accepted = float(taken.sum())
        if accepted <= 0:
            raise UsageError(f"{name}: none of its packets is accepted, so that they have no delay")
        wait = float(taken @ left) / step / accepted
        delay = wait + 1 / mu
        loss = float(row @ (1 - accept[n])) / offered
        classes.append(ClassResult(name, offered, loss, accepted * delay, wait, delay))
    offered = float(found.sum())
    total = found.sum(axis=0)
    taken = total * accept[n]
    wait = float(taken @ left) / step / float(taken.sum())
    number = np.arange(places + 1)
    waiting = np.maximum(number - 1, 0)
    mean = float(distribution @ waiting)
    return QueueResult(
        states=arrivals.states,
        stages=k,
        places=places,
        service_rate=mu,
        distribution=distribution,
        marking=marks,
        classes=tuple(classes),
        offered=offered,
        loss=float(total @ (1 - accept[n])) / offered,
        marked=float(total @ marks[n]) / offered,
        utilization=float(distribution[1:].sum()),
        packets=float(distribution @ number),
        queue_mean=mean,
        queue_std=math.sqrt(max(float(distribution @ (waiting - mean) ** 2), 0.0)),
        wait=wait,
        delay=wait + 1 / mu,
        residual=residual,
        balance=balance,
    )

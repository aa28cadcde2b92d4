"""The MMPP/Erlang-k/1/L queue: occupancy distribution, and loss and delay of each class.

One server serves packets in order of arrival. A service has k exponential stages of rate k mu. A packet that
finds n packets in the system (including the one in service) is discarded with probability c(n), and always
if n = L. The state is the state of the arrivals' chain and the number of remaining stages, 0 to k L.
docs/markov.md has the derivation. This module does not depend on the simulator.
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
"""Limit of the numbers that the solver stores: half a gigabyte."""
_MOST_STEPS = 20_000_000
"""Limit of the solver's steps, k² L, about 2 µs each."""
_TOLERANCE = 1e-8
"""Largest accepted imbalance of flows, as a share of the largest flow."""
_HUGE = 1e100


@dataclass(frozen=True, slots=True)
class ClassResult:
    """Loss and delay of one class of packets."""

    name: str
    offered: float
    """Arrival rate [packets/s]."""
    loss: float
    """Share of arrivals discarded, 0 to 1."""
    packets: float
    """Mean number in the system, including the one in service."""
    wait: float
    """Mean time of accepted packets from arrival to start of service [s]."""
    delay: float
    """Mean time of accepted packets in the system, including service [s]."""


@dataclass(frozen=True, eq=False, slots=True)
class QueueResult:
    """The stationary queue."""

    states: int
    """States of the arrivals' chain, m."""
    stages: int
    """Stages of a service, k."""
    places: int
    """Capacity of the system, L, including the packet in service [packets]."""
    service_rate: float
    """Service rate of the busy server, mu [packets/s]."""
    distribution: Matrix
    """Probability of n packets in the system, n = 0 to L (L + 1,)."""
    marking: Matrix
    """Probability that a packet that finds n in the system is marked, and so discarded (L + 1,)."""
    classes: tuple[ClassResult, ...]
    offered: float
    """Arrival rate [packets/s]."""
    loss: float
    """Share of arrivals discarded, 0 to 1: marked, or the system is full."""
    marked: float
    """Share of arrivals marked, 0 to 1."""
    utilization: float
    """Share of time that the server is busy, 0 to 1."""
    packets: float
    """Mean number in the system."""
    queue_mean: float
    """Mean number of waiting packets, without the one in service."""
    queue_std: float
    """Standard deviation over time of the number of waiting packets."""
    wait: float
    """Mean time of accepted packets from arrival to start of service [s]."""
    delay: float
    """Mean time of accepted packets in the system [s]."""
    residual: float
    """Largest net flow into a state, as a share of the largest flow; zero except for rounding."""
    balance: float
    """Accepted minus served rate, as a share of the served rate; zero except for rounding."""

    def waiting(self, share: float) -> int:
        """Return the quantile `share` of the number of waiting packets over time."""
        below = np.searchsorted(np.cumsum(self.distribution), share * (1 - 1e-15))
        return max(min(int(below), self.places) - 1, 0)


def ramp(places: int, threshold: float, *, of_waiting: bool = False) -> Matrix:
    """Return the threshold control function [R11 5.3] for n = 0 to `places` packets in the system (L + 1,).

    Zero up to `threshold` L, then linear up to 1 at L. With `of_waiting`, only the waiting packets count, at
    most L - 1. `UsageError` unless 0 <= `threshold` < 1.
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
    (L + 1,); the default is zeros, tail drop only. `UsageError` names the invalid parameter, or all of them
    if the equations cannot be solved.
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
            raise UsageError(f"{name}: nothing arrives: all its rates are 0 packets/s")
    # A marked packet is discarded on arrival.
    accept = np.append(1 - marks[:-1], 0.0)
    if not accept[0] > 0:
        raise UsageError("marking is 1 for an empty system, so no packet is ever accepted")
    with np.errstate(all="ignore"):
        found = _levels(arrivals.generator, rate, stages * service_rate, stages, accept)
    return _result(arrivals, service_rate, stages, accept, marks, found)


def _levels(q: Matrix, rate: Matrix, step: float, k: int, accept: Matrix) -> Matrix:
    """Return the probability of each state (k L + 1, m): remaining stages, and the chain's state.

    Levels (remaining stages) are eliminated from the top. With all levels above s eliminated, the chain
    leaves level s only to level s - 1, at rate `step`; row i of down[s] is the distribution of the state in
    which it arrives there from state i. The matrix inverted for it has row sums `step` and no positive
    off-diagonal element, and its diagonal is computed from these, so there is no cancellation.
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
            f"the queue's equations cannot be solved (net flow {residual:g}, balance {balance:g}):"
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
            raise UsageError(f"{name}: all its packets are discarded, so its delay is undefined")
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

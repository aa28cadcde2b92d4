"""RED and AVQRED in front of a gateway's PEP, as the delay between its two queues grows.

`python swing.py` prints the deviation of the queue and the throughput at three delays.
"""

import bentpipe as bp

DELAYS = ["0 ms", "20 ms", "40 ms"]


def main() -> None:
    """Simulate each delay with the same seed and print a line per setting."""
    for delay in DELAYS:
        scenario = bp.load("byun2007-gateway", set={"gateway.pep.delay": delay, "run.duration": "30 s"})
        result = bp.compare(scenario, "RED 4,AVQRED", runs=1, progress=False)
        for setting, metrics in result.values().items():
            queue, throughput = metrics["queue_std"][0], metrics["throughput"][0]
            print(f"{delay}, {setting}: {queue:.0f} packets, {throughput:.1f} Mbit/s")


if __name__ == "__main__":
    main()

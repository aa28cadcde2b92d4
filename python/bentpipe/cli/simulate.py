"""The commands `run` and `compare`."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bentpipe.cli import console
from bentpipe.cli.options import (
    check_counts,
    given_options,
    import_from_current_folder,
    integer_option,
    load_scenario,
    metric_names,
    resumable,
    run_options,
    scenario_names,
    scenario_options,
    settings_option,
    split_names,
)
from bentpipe.errors import UsageError
from bentpipe.format import plural
from bentpipe.runs.capture import PACKETS, Capture, Captures
from bentpipe.runs.experiment import cores, execute
from bentpipe.runs.plan import make_plan, shipped
from bentpipe.runs.qlog import CONNECTIONS, EVENTS, Qlog, Qlogs
from bentpipe.runs.result import Result
from bentpipe.runs.store import MANIFEST, REPORT, Store, made_folder, pairs, run_folder
from bentpipe.stats.caveats import caveats, tail_drop
from bentpipe.stats.differences import INDEPENDENT, NOTHING_SEEN, PAIRED, between, chosen, document, within
from bentpipe.stats.intervals import BOOTSTRAP
from bentpipe.stats.metrics import check_classes
from bentpipe.stats.ranking import BEHIND_PEP
from bentpipe.stats.services import findings, verdict

if TYPE_CHECKING:
    from bentpipe.stats.differences import Comparison
    from bentpipe.stats.metrics import Metric


@click.command
@click.argument("scenario", shell_complete=scenario_names)
@scenario_options
@run_options
@integer_option("--runs", default=1, help="Runs, each with its own seed.")
@click.pass_context
def run(context: click.Context, /, **options: Any) -> None:  # noqa: ANN401
    """Simulate SCENARIO unchanged and write the result and its report.

    SCENARIO is a file, or the name of a shipped scenario (`bentpipe list scenarios`).

    \b
    Examples:
      bentpipe run byun2007-gateway --duration "2 min"
      bentpipe run my-scenario.toml --set gateway.aqm.max_p=0.5 --runs 5 --format json
    """
    _simulate(context, settings=None, **options)


@click.command
@click.argument(
    "operands",
    nargs=-1,
    required=True,
    metavar="SCENARIO | RESULT [RESULT | SETTING]…",
    shell_complete=scenario_names,
)
@scenario_options
@run_options
@click.option(
    "--metric",
    "metrics",
    metavar="NAME",
    multiple=True,
    shell_complete=metric_names,
    callback=split_names,
    help="Compare settings pairwise in this metric; may be repeated. Default for results:"
    " the metrics that rank settings.",
)
@integer_option("--runs", help="Runs per setting; default: the scenario's.")
@settings_option(
    'Settings to compare, for example "RED 4,AVQ,AVQRED", all for every algorithm, or mypkg.MyAqm for an'
    " AQM written in Python; default: the scenario's."
)
@click.pass_context
def compare(
    context: click.Context,
    /,
    operands: tuple[str, ...],
    settings: list[str] | None,
    metrics: list[str] | None,
    **options: Any,  # noqa: ANN401
) -> None:
    """Simulate SCENARIO under several settings, print a comparison and write the report.

    All settings use the same seeds and so the same traffic. SCENARIO is a file, or the name of a shipped
    scenario (`bentpipe list scenarios`).

    RESULT, a folder, is not simulated again: its settings are compared pairwise, or only the named SETTINGs;
    with a second RESULT, settings of the same name are compared. The verdict is "no difference seen" unless
    the p-value, corrected over all comparisons shown, is at most 5 % (docs/statistics.md).

    \b
    Examples:
      bentpipe compare byun2007-gateway
      bentpipe compare byun2007-gateway --settings "RED 4,AVQRED" --runs 5 --out results/red-avqred
      bentpipe compare byun2007-gateway --settings all
      bentpipe compare byun2007-gateway --out results/red-avqred --resume
      bentpipe compare byun2007-gateway --settings AVQRED,mypkg.MyAqm
      bentpipe compare results/red-avqred --metric queue_mean --metric throughput
      bentpipe compare results/before results/after --metric queue_delay_p95
    """
    # A misspelt metric is reported before anything is simulated.
    wanted = chosen(metrics)
    first, *others = operands
    names = settings or []
    if Path(first).is_dir() and (first not in shipped() or (Path(first) / MANIFEST).is_file()):
        foreign = [option for option in given_options(context) if option not in _FOR_RESULTS]
        if foreign:
            raise UsageError(f"{', '.join(foreign)}: has no effect on {first}, which is simulated already")
        _compare_results(Path(first), others, names, wanted, options["form"])
        return
    if others:
        raise UsageError(
            f"{first}: is no folder of a result, to compare with {others[0]};"
            " scenarios are simulated one at a time"
        )
    _simulate(context, scenario=first, settings=names, metrics=wanted if metrics else None, **options)


_FOR_RESULTS = ("--metric", "--settings", "--format", "--quiet")


def _compare_results(
    folder: Path, others: list[str], settings: list[str], metrics: "list[Metric]", form: str
) -> None:
    """Compare the settings of a result with each other, or with those of another result."""
    result = Result(folder)
    names = [*(name.strip() for name in settings), *(name for name in others if name in result.settings)]
    rest = [name for name in others if name not in result.settings]
    if len(rest) > 1:
        raise UsageError(f"{', '.join(rest)}: only two results are compared at a time")
    if rest and not Path(rest[0]).is_dir():
        raise UsageError(
            f"{rest[0]}: is neither a folder nor a setting of {folder};"
            f" there are {', '.join(result.settings)}"
        )
    other = Result(Path(rest[0])) if rest else None
    comparisons = (
        within(result, metrics, names or None)
        if other is None
        else between(result, other, metrics, names or None)
    )
    out = console.stdout() if form == "table" else console.stderr()
    for warning in dict.fromkeys(line for each in (result, other) if each for line in caveats(each)):
        out.print(f"Warning: {warning}")
    _print_comparisons(comparisons, form)


def _print_comparisons(comparisons: "list[Comparison]", form: str) -> None:

    found = document(comparisons)
    if form != "table":
        console.write(found["comparisons"] if form == "csv" else found, form)
        return
    out = console.stdout()
    out.print(console.comparison_table(comparisons))
    how = {
        PAIRED: "Runs with the same seed met the same traffic and are compared in pairs.",
        INDEPENDENT: "Runs without the same seeds and traffic are compared as independent ones (Welch).",
    }
    for kind, text in how.items():
        if any(each.pairing == kind for each in comparisons):
            out.print(text)
    if not found["family"]:
        out.print("One run of a setting cannot tell a difference from chance: simulate more with --runs.")
        return
    comparing = plural(found["family"], "comparison")
    few = ", of two runs both values" if any(each.found.runs == 2 for each in comparisons) else ""
    out.print(f"Differences with 95 % intervals{few}; p-values corrected after Holm over {comparing}.")
    if any(each.verdict == NOTHING_SEEN for each in comparisons):
        out.print("Where no difference is seen there may yet be one, as large as its interval allows.")


def _simulate(
    context: click.Context,
    *,
    scenario: str,
    overrides: tuple[str, ...],
    duration: str | None,
    warmup: str | None,
    settings: list[str] | None,
    metrics: "list[Metric] | None" = None,
    runs: int | None,
    seed: int | None,
    jobs: int | None,
    out: Path | None,
    force: bool,
    resume: bool,
    form: str,
    trace: tuple[str, ...],
    pcap: Path | None,
    pcap_links: tuple[str, ...],
    pcap_packets: int | None,
    pcap_snap: int | None,
    qlog: Path | None,
    qlog_flows: tuple[str, ...],
    qlog_connections: int | None,
    qlog_events: int | None,
) -> None:

    check_counts(runs, jobs, force=force, resume=resume, out=out)
    if pcap is None and (pcap_links or pcap_packets is not None or pcap_snap is not None):
        raise UsageError(
            "--pcap-link, --pcap-packets and --pcap-snap need --pcap DIR, the folder to write to"
        )
    if qlog is None and (qlog_flows or qlog_connections is not None or qlog_events is not None):
        raise UsageError(
            "--qlog-flow, --qlog-connections and --qlog-events need --qlog DIR, the folder to write to"
        )
    if warmup is not None:
        overrides = (*overrides, f"run.warmup={warmup}")
    import_from_current_folder(settings or [])
    loaded = load_scenario(scenario, overrides, duration, settings or ())
    compared = [metric.name for metric in metrics or ()]
    check_classes(compared, loaded.traffic, terminals=bool(loaded.terminals), returns=loaded.has_return)
    # None: the scenario unchanged; no names: the scenario's own list.
    names = loaded.settings if settings == [] else settings
    plan = make_plan(loaded, settings=names, runs=runs, seed=seed, trace=trace)
    if metrics is not None and len(plan.settings) < 2:
        raise UsageError(f"--metric compares settings, but there is only {plan.settings[0].name}")
    captures = None
    if pcap is not None:
        packets = PACKETS if pcap_packets is None else pcap_packets
        captures = Captures(Capture(pcap, pcap_links, packets, pcap_snap), plan)
    qlogs = None
    if qlog is not None:
        connections = CONNECTIONS if qlog_connections is None else qlog_connections
        events = EVENTS if qlog_events is None else qlog_events
        qlogs = Qlogs(Qlog(qlog, qlog_flows, connections, events), plan)
    done = out if resume else None
    missing = [(each, n) for each, n in pairs(plan) if not (done and run_folder(done, each.slug, n).is_dir())]
    with (
        captures.prepared(force=force, missing=missing) if captures else nullcontext(),
        qlogs.prepared(force=force, missing=missing) if qlogs else nullcontext(),
    ):
        folder, store = made_folder(
            out,
            loaded.name,
            lambda folder: Store.resume(folder, plan) if resume else Store.create(folder, plan, force=force),
        )
        console.warn(plan.warnings)
        console.warn(plan.left_out, "left out")
        with resumable(context, store, folder, pcap, qlog) as watcher:
            result = execute(store, jobs or cores(), watcher, captures, qlogs)
            watcher.close()
            result.report()
    console.warn(f"{warning} (--pcap-packets)" for warning in (captures.warnings if captures else ()))
    console.warn(f"{warning} ({option})" for warning, option in (qlogs.warnings if qlogs else ()))
    if form != "table":
        console.warn(caveats(result))
        if metrics is None:
            console.write(result.rows(), form)
        else:
            _print_comparisons(within(result, metrics), form)
        console.stderr().print(f"Result: {folder}")
        return
    out_console = console.stdout()
    for warning in caveats(result):
        out_console.print(f"Warning: {warning}")
    if (table := console.services_table(result)) is not None:
        if sentence := verdict(result):
            out_console.print(sentence)
        out_console.print(table)
        for sentence in findings(result):
            out_console.print(sentence)
    out_console.print(console.metrics_table(result))
    if (table := console.bottlenecks_table(result)) is not None:
        out_console.print(table)
    if behind := [name for name in result.settings if result.setting_info(name).get("behind_pep")]:
        out_console.print(f"* {BEHIND_PEP}: {', '.join(behind)}.")
    for setting in result.manifest["settings"]:
        if tail := tail_drop(setting["effective"], behind_pep=setting["behind_pep"]):
            out_console.print(f"{setting['name']}: {tail}.")
    if len(result.seeds) == 2:
        out_console.print("Values of the two runs of each setting; --runs 3 or more give intervals.")
    elif len(result.seeds) > 2:
        skew = any(row["method"] == BOOTSTRAP for row in result.rows())
        out_console.print(
            f"Mean ± 95 % confidence interval over {len(result.seeds)} runs per setting"
            + ("; in brackets, by the bootstrap, where they are not normal." if skew else "."),
        )
    elif any(row["ci95"] is not None for row in result.rows()):
        out_console.print("Mean ± 95 % confidence interval of one run's mean, from batches of its samples.")
    if metrics is not None:
        _print_comparisons(within(result, metrics), form)
    if loaded.overrides:
        out_console.print(f"Changed from the file: {', '.join(loaded.overrides)}.")
    print(f"Result: {folder}\nReport: {folder / REPORT}")
    if captures is not None:
        print(f"Packets: {plural(len(captures.written), 'file')} in {pcap}")
    if qlogs is not None:
        print(f"Connections: {plural(qlogs.written, 'file')} in {qlog}")

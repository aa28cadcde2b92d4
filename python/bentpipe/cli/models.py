"""The commands about models: `model` and `validate`."""

from pathlib import Path

import click

from bentpipe.cli import console
from bentpipe.cli.options import (
    changes,
    check_counts,
    form_option,
    given_options,
    integer_option,
    jobs_option,
    load_scenario,
    out_option,
    path_option,
    resumable,
    scenario_names,
    scenario_options,
    seed_option,
    set_option,
    settings_option,
)
from bentpipe.errors import ModelError, UsageError
from bentpipe.format import number
from bentpipe.models import markov_result, stability
from bentpipe.models.domain import domain_warnings
from bentpipe.models.engines import with_spread
from bentpipe.models.findings import known_failures, left_out
from bentpipe.models.fluid import QUANTITIES, ModelResult, kind_of, model
from bentpipe.models.series import capture, check_free
from bentpipe.models.validation import discard_if_unstarted, finish, plan_and_solve, same_scenario, start
from bentpipe.runs.experiment import cores, execute
from bentpipe.runs.store import REPORT, default_folder, made_folder


class _WithDefault(click.Group):
    """A group that passes unknown commands to its default command as arguments."""

    default = "solve"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Prepend the default command, unless a command or help is requested."""
        if args and args[0] not in self.commands and args[0] not in {"-h", "--help"}:
            args = [self.default, *args]
        return super().parse_args(ctx, args)


@click.group("model", cls=_WithDefault)
def model_() -> None:
    """Solve a model of a scenario instead of simulating it: `bentpipe model SCENARIO`.

    \b
    Examples:
      bentpipe model byun2007-gateway
      bentpipe model byun2007-gateway --settings "RED 4,AVQRED" --format json
      bentpipe model solve --help
      bentpipe model capture byun2007-gateway
      bentpipe model stability byun2007-gateway --settings "RED 4,avqred" --map
    """


@model_.command("solve", short_help="Solve it; the default.")
@click.argument("scenario", shell_complete=scenario_names)
@scenario_options
@settings_option('Settings to solve it under, for example "RED 4,AVQ,AVQRED"; default: the scenario\'s.')
@integer_option("--seed", help="Seed of random capacity changes.")
@out_option("model-")
@click.option("--force", is_flag=True, help="Replace the model's result in --out.")
@form_option(
    "a list of {setting, quantity, unit, mean, std}, and nothing else; of a Markov model,"
    " {setting, states, quantity, class, unit, value}."
)
def model_solve(
    scenario: str,
    overrides: tuple[str, ...],
    duration: str | None,
    settings: list[str] | None,
    seed: int | None,
    out: Path | None,
    form: str,
    *,
    force: bool,
) -> None:
    """Solve the model of SCENARIO under its settings: mean and deviation of each quantity.

    The key model.kind selects the fluid equations or the Markov model of a queue. The default is the Markov
    model if all traffic is datagrams.

    \b
    Examples:
      bentpipe model byun2007-gateway
      bentpipe model byun2007-gateway --settings "RED 4,AVQRED" --set model.step="0.5 ms"
      bentpipe model mmpp-queue --set model.erlang_stages=2
    """
    loaded = load_scenario(scenario, overrides, duration)
    name = f"{loaded.name}-model"
    if kind_of(loaded) == "markov":
        solved = markov_result.solve(loaded, settings)
        folder, _ = made_folder(out, name, lambda folder: solved.save(folder, force=force))
        _show_markov(solved, folder, form)
        return
    result = model(loaded, settings, seed=seed)
    folder, _ = made_folder(out, name, lambda folder: result.save(folder, force=force))
    output = console.stdout() if form == "table" else console.stderr()
    for warning in known_failures(result.manifest["settings"], result.rows()):
        output.print(f"Warning: {warning}")
    if form != "table":
        console.write(result.rows(), form)
        output.print(f"Result: {folder}")
        return
    cells = {(row["setting"], row["quantity"]): row for row in result.rows()}
    rows = []
    for each in QUANTITIES:
        values = (with_spread(cells[setting, each.name]) for setting in result.settings)
        rows.append([each.label, each.unit, *values])
    console.stdout().print(console.grid(["quantity", "unit", *result.settings], rows, right=2))
    print(f"Mean ± standard deviation over time.\nResult: {folder}\nReport: {folder / REPORT}")


@model_.command("stability", short_help="Compute stability margins.")
@click.argument("scenario", shell_complete=scenario_names)
@scenario_options
@settings_option(
    'Settings to analyse, for example "RED 4,pi,avqred"; default: the scenario\'s; for a map, the'
    " covered ones and pi."
)
@click.option(
    "--vary",
    metavar="KEY=LOW:HIGH:N",
    multiple=True,
    help="N values of connections, round_trip [s] or pep_delay [s]; may be repeated.",
)
@click.option("--map", "mapped", is_flag=True, help="Draw a map over two of these, with simulations.")
@click.option("--no-sim", is_flag=True, help="Draw the map without simulations.")
@click.option(
    "--sim-points",
    type=click.IntRange(2, 20),
    default=5,
    show_default=True,
    metavar="N",
    help="Simulate N by N points of the map under each setting.",
)
@path_option("--out", help="Folder of the map.")
@click.option("--force", is_flag=True, help="Replace the map in --out; its simulations are kept.")
@form_option("a list of points, and nothing else.")
@click.pass_context
def model_stability(
    context: click.Context,
    scenario: str,
    overrides: tuple[str, ...],
    duration: str | None,
    settings: list[str] | None,
    vary: tuple[str, ...],
    out: Path | None,
    form: str,
    sim_points: int,
    *,
    mapped: bool,
    no_sim: bool,
    force: bool,
) -> None:
    """Linearize the fluid equations of SCENARIO and compute their stability margins.

    The margins are those of Nyquist's criterion at the operating point, under each setting: the gain, phase
    and delay that the loop tolerates. A gain margin below 1, or another below 0, means that it oscillates.
    `--set model.feedback=round_trip` delays the marks by a round trip.

    \b
    Examples:
      bentpipe model stability red-dumbbell --settings "RED 60/120,pi,avqred"
      bentpipe model stability byun2007-gateway --settings avqred --vary connections=20:140:7
      bentpipe model stability byun2007-gateway --settings "RED 4,avqred" --map --no-sim
    """
    from bentpipe.report.stability import write_map

    useless = [each for each in given_options(context) if each in _OF_MAPS and not mapped]
    if useless:
        raise UsageError(f"{', '.join(useless)}: found without --map; allowed: with it")
    if no_sim and "--sim-points" in given_options(context):
        raise UsageError(f"--sim-points {sim_points}: found with --no-sim; allowed: one of the two")
    loaded = load_scenario(scenario, overrides, duration)
    varied: dict[str, list[float]] = {}
    for name, values in map(stability.parsed, vary):
        if name in varied:
            raise UsageError(f"--vary {name}: found twice; allowed: each once")
        varied[name] = values
    if not mapped:
        table = stability.margins(loaded, settings, vary=varied)
        rows = table.to_dicts()
        if form != "table":
            console.write(rows, form)
            return
        heads, cells, notes = stability.shown(table, list(varied))
        if notes and table["stable"].is_null().all():
            raise ModelError(f"{loaded.name}: {notes[0]}")
        console.stdout().print(console.grid(heads, cells, right=1))
        for note in notes:
            print(note)
        return
    folder = out if out is not None else default_folder(f"{loaded.name}-stability")
    x, y = stability.axes(loaded, varied)
    if not no_sim:
        stability.check_simulated(loaded, (x[0], y[0]))
    found = stability.stability_map(loaded, x=x, y=y, settings=settings)
    stability.open_folder(folder, force=force)
    if not no_sim:
        found = stability.with_simulations(
            found,
            scenario,
            changes(overrides, duration),
            sim_points,
            folder,
            console.stderr().print if form == "table" else None,
        )
    found.save(folder)
    write_map(found, folder)
    if form != "table":
        console.write(found.table.to_dicts(), form)
        return
    print(f"{len(found.table)} points, {len(found.simulated)} simulations.\nMap: {folder / 'map.html'}")


_OF_MAPS = ("--no-sim", "--sim-points", "--out", "--force")


@model_.command("capture", short_help="Measure the input series of a fluid model.")
@click.argument("scenario", shell_complete=scenario_names)
@set_option()
@integer_option("--points", default=500, help="Points to measure.")
@click.option(
    "--interval", type=float, default=0.1, show_default=True, metavar="SECONDS", help="Time between them."
)
@integer_option("--harmonics", default=8, help="Harmonics to fit.")
@integer_option("--seed", help="Seed of the run; default: the scenario's.")
@click.option("--as-it-is", is_flag=True, help="Keep the AQM and the bottleneck.")
@path_option("--out", metavar="FILE", help="File to write; default: series/SCENARIO.json.")
@click.option("--figure", is_flag=True, help="Draw the series beside the file, as .svg.")
@click.option("--force", is_flag=True, help="Replace the file, and the figure.")
def model_capture(
    scenario: str,
    overrides: tuple[str, ...],
    points: int,
    interval: float,
    harmonics: int,
    seed: int | None,
    out: Path | None,
    *,
    as_it_is: bool,
    figure: bool,
    force: bool,
) -> None:
    """Measure the inputs of a fluid model of SCENARIO: PEP delay, load ratio and new connections.

    They come from a simulation without AQM and bottleneck, after the scenario's warm-up, and are fitted by
    Fourier series. A scenario names the file by its key model.series, as a path relative to its folder.

    \b
    Examples:
      bentpipe model capture byun2007-gateway --figure
      bentpipe model capture my-scenario.toml --points 300 --interval 1 --out series/my-scenario.json
    """
    path = out if out is not None else Path("series") / f"{Path(scenario).stem}.json"
    drawing = path.with_suffix(".svg") if figure and path.name else None
    check_free(path, drawing, force=force)
    captured = capture(
        scenario,
        points=points,
        interval=interval,
        harmonics=harmonics,
        seed=seed,
        set=overrides,
        as_it_is=as_it_is,
    )
    if drawing is None:
        captured.write(path, force=force)
    else:
        from bentpipe.report.comparison import picture
        from bentpipe.report.series import figure as draw

        captured.write(path, (drawing, picture(draw(captured))), force=force)
    rows = [
        [
            name,
            series.unit,
            number(series.mean),
            number(series.rms),
            "–" if series.explained is None else f"{100 * series.explained:.1f} %",
        ]
        for name, series in captured.series.items()
    ]
    console.warn(captured.warnings)
    heads = ["series", "unit", "mean", "left by the fit (rms)", "explained"]
    console.stdout().print(console.grid(heads, rows, right=2))
    noise = 100 * captured.pep_delay.noise
    print(f"For comparison: of white noise, {harmonics} harmonics explain {noise:.1f} %.\nSeries: {path}")
    if drawing is not None:
        print(f"Figure: {drawing}")


def _show_markov(result: markov_result.Solution, folder: Path, form: str) -> None:
    if form != "table":
        console.write(result.rows(), form)
        console.stderr().print(f"Result: {folder}")
        return
    for title, headings, rows in result.tables():
        print(title)
        console.stdout().print(console.grid(headings, rows, right=2))
    for note in result.notes:
        print(f"Note: {note}.")
    print(f"Report: {folder / REPORT}")


@click.command
@click.argument("scenario", shell_complete=scenario_names)
@scenario_options
@settings_option(
    'Settings to compare, for example "RED 4,AVQ,AVQRED", or all that the model covers; default: the'
    " scenario's."
)
@integer_option("--runs", help="Runs per setting; default: the scenario's.")
@seed_option
@jobs_option
@out_option("validate-")
@path_option("--live", help="Also compare a live result of the same scenario (`bentpipe live`).")
@click.option("--force", is_flag=True, help="Replace the validation in --out.")
@click.option("--resume", is_flag=True, help="Continue the interrupted validation in --out.")
@form_option("a list of {setting, quantity, label, unit, printed, simulator, model}, and nothing else.")
@click.pass_context
def validate(
    context: click.Context,
    /,
    scenario: str,
    overrides: tuple[str, ...],
    duration: str | None,
    settings: list[str] | None,
    runs: int | None,
    seed: int | None,
    jobs: int | None,
    out: Path | None,
    live: Path | None,
    form: str,
    *,
    force: bool,
    resume: bool,
) -> None:
    """Simulate SCENARIO and solve its model under the same settings: mean and deviation side by side.

    The model is solved first: if it does not cover a setting, nothing is simulated.

    \b
    Examples:
      bentpipe validate red-dumbbell
      bentpipe validate byun2007-gateway --settings "RED 4,AVQRED" --runs 5 --duration "5 min"
      bentpipe validate live-gateway --live results/live-gateway-live-20260102-150405
    """
    check_counts(runs, jobs, force=force, resume=resume, out=out)
    loaded = load_scenario(scenario, overrides, duration)
    plan, model = plan_and_solve(loaded, settings, runs, seed)
    third = same_scenario(plan, live)
    folder, store = made_folder(
        out,
        f"{loaded.name}-validate",
        lambda folder: start(folder, plan, model, third, force=force, resume=resume),
    )
    console.warn(plan.warnings)
    console.warn(plan.left_out, "left out")
    if isinstance(model, ModelResult):
        equations = model.manifest["settings"]
        console.warn([*domain_warnings(equations), *left_out(equations)])
    with resumable(context, store, folder) as watcher:
        try:
            execute(store, jobs or cores(), watcher)
        finally:
            discard_if_unstarted(folder)
        watcher.close()
        result = finish(folder, plan)
        result.report()
    if form != "table":
        console.write(result.rows(), form)
        console.stderr().print(f"Result: {folder}")
        return
    console.stdout().print(console.validation_table(result))
    print(
        "Mean over the runs ± its 95 % interval (of two runs, both values); std: standard deviation\n"
        "over time. Differences are from the simulator's mean; their intervals follow from its interval."
    )
    if loaded.overrides:
        console.stdout().print(f"Changed from the file: {', '.join(loaded.overrides)}.")
    print(f"Result: {folder}\nReport: {folder / REPORT}")

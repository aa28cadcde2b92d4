"""The command `new`."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from bentpipe import _core, files
from bentpipe.cli import console
from bentpipe.errors import UsageError
from bentpipe.new_scenario import answers as checks
from bentpipe.new_scenario.answers import MIX, Answers
from bentpipe.new_scenario.tables import ORBITS, PROFILES, USES
from bentpipe.new_scenario.writer import write
from bentpipe.pages import unwritable

Value = TypeVar("Value")


@click.command
@click.argument("file", type=click.Path(path_type=Path), default=Path("scenario.toml"))
@click.option("--orbit", metavar="|".join(ORBITS), help="Orbit of the satellite; default: geo.")
@click.option("--down", metavar="RATE", help='Rate to all subscribers together; default: "100 Mbps".')
@click.option("--up", metavar="RATE", help='Rate of the return link; default: "10 Mbps".')
@click.option("--subscribers", metavar="N", help="Number of subscribers; default: 100.")
@click.option("--plan", metavar="RATE", help='Rate limit of each subscriber, or "none"; default: none.')
@click.option(
    "--mix",
    metavar="NAME=N,…",
    help=f"Users at a time, as counts or shares of the subscribers, of {', '.join(USES)}; default: {MIX}.",
)
@click.option("--pep/--no-pep", default=None, help="Split TCP at the gateway; default: --pep.")
@click.option("--rain/--no-rain", default=None, help="Rain fade with ACM; default: --no-rain.")
@click.option(
    "--handover/--no-handover", default=None, help="Handovers between satellites of leo; default: --handover."
)
@click.option("--aqm", metavar="NAME", help="AQM or scheduler; default: drr with a PEP, else fq_codel.")
@click.option(
    "--profile",
    metavar="|".join(PROFILES),
    help=f"Measured load over a day ({', '.join(PROFILES)}), a day in 24 min; default: none, the peak.",
)
@click.option("-y", "--yes", is_flag=True, help="Ask nothing; use the defaults of options not given.")
@click.option("--force", is_flag=True, help="Replace FILE.")
def new(
    file: Path,
    *,
    orbit: str | None,
    down: str | None,
    up: str | None,
    subscribers: str | None,
    plan: str | None,
    mix: str | None,
    pep: bool | None,
    rain: bool | None,
    handover: bool | None,
    aqm: str | None,
    profile: str | None,
    yes: bool,
    force: bool,
) -> None:
    """Write a commented scenario to FILE (default: scenario.toml), ready to run and to change.

    On a terminal, asks for every option not given; Enter takes the default in brackets. Otherwise, and with
    --yes, options not given have their defaults.

    Traffic flows to the subscribers only; docs/return-direction.md describes uploads.

    \b
    Examples:
      bentpipe new
      bentpipe new village.toml --orbit geo --down "40 Mbps" --subscribers 60 --mix "web=50%,voice=10" --yes
      bentpipe new ship.toml --orbit leo --plan "20 Mbps" --no-pep --aqm cake --yes
    """
    if file.exists() and not force:
        raise UsageError(f"{file}: exists already; choose another FILE, or replace it with --force")
    ask = not yes and sys.stdin.isatty()
    if ask:
        print(f"Writing {file}. Enter takes the default in brackets.")
    question = _Question(ask)
    where = question.value(orbit, "Orbit (geo, meo, leo)", "geo", "--orbit", checks.check_orbit)
    # A wrong combination of flags is reported before the questions.
    moving = checks.check_handover(where, handover=bool(handover))
    rate = question.value(down, "Rate to all subscribers", "100 Mbps", "--down", checks.rate_of)
    back = question.value(up, "Rate of the return link", "10 Mbps", "--up", checks.rate_of)
    count = question.value(subscribers, "Subscribers", "100", "--subscribers", checks.check_subscribers)
    limit = question.value(
        plan,
        "Rate limit of a subscriber",
        "none",
        "--plan",
        lambda text, at: checks.check_plan(text, rate, at),
    )
    users = question.value(
        mix,
        "Users at a time, counts or shares",
        MIX,
        "--mix",
        lambda text, at: checks.mix_of(text, count, at),
    )
    splits = question.choice(pep, "PEP that splits TCP", default=True)
    fades = question.choice(rain, "Rain fade", default=False)
    if where.handover_ms:
        moving = question.choice(handover, "Handovers between satellites", default=True)
    queue = question.value(aqm, "AQM or scheduler", checks.default_aqm(pep=splits), "--aqm", checks.check_aqm)
    day = question.value(
        profile, "Load over a day (fixed, cellular)", "none", "--profile", checks.check_profile
    )
    found = Answers(
        orbit=where,
        down=rate,
        up=back,
        subscribers=count,
        plan=limit,
        mix=users,
        pep=splits,
        rain=fades,
        handover=moving,
        aqm=queue,
        profile=day,
    )
    written = write(found)
    scenario = _core.Scenario.parse(written.text, file.stem, [])
    try:
        files.write(file, written.text.encode())
    except OSError as error:
        raise unwritable(file, error) from None
    console.warn([*written.notes, *scenario.warnings])
    name = shlex.quote(str(file))
    print(f"Wrote {file}. {written.load}")
    print("Next:")
    print(f"  bentpipe show {name} --picture   # draw it")
    print(f"  bentpipe run {name}              # simulate it")
    print(f"  bentpipe compare {name}          # compare {', '.join(scenario.settings)}")


class _Question:
    """Takes answers from options, from the terminal, or from the defaults."""

    def __init__(self, ask: bool) -> None:
        self._ask = ask

    def value(
        self, given: str | None, text: str, default: str, option: str, check: Callable[[str, str], Value]
    ) -> Value:
        """Return the checked value of an option; on the terminal, ask until it is valid."""
        if given is not None or not self._ask:
            return check(default if given is None else given, option)

        def checked(answer: str) -> Value:
            try:
                return check(answer, text)
            except UsageError as error:
                raise click.BadParameter(str(error).removeprefix(f"{text}: ")) from None

        found: Value = click.prompt(text, default=default, value_proc=checked)
        return found

    def choice(self, given: bool | None, text: str, *, default: bool) -> bool:
        """Return the value of a flag; on the terminal, ask for yes or no."""
        if given is not None or not self._ask:
            return default if given is None else given
        return click.confirm(text, default=default)

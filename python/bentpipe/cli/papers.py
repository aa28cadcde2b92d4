"""The command `reproduce`."""

from pathlib import Path

import click

from bentpipe.cli import console
from bentpipe.cli.exits import Failed, Interrupted
from bentpipe.cli.options import form_option, how_to_repeat, jobs_option, names_or_file, path_option


def _names() -> list[str]:
    """Return the names of the shipped papers, and `all`."""
    from bentpipe import reproduction

    return [*reproduction.papers(), "all"]


@click.command
@click.argument("papers", nargs=-1, required=True, metavar="PAPER…", shell_complete=names_or_file(_names))
@click.option("--quick", is_flag=True, help="Fewer and shorter runs; outputs are marked.")
@click.option(
    "--only",
    metavar="ID",
    multiple=True,
    help="Only this table, claim or figure: its id, or as printed, 'Figure 4.5'; may be repeated.",
)
@jobs_option
@path_option(
    "--out",
    default=Path("results/reproduce"),
    help="Folder of the runs and reports; runs in it are not repeated.",
)
@form_option("a list with an object for each number, claim and figure, and nothing else.")
@click.pass_context
def reproduce(
    context: click.Context,
    papers: tuple[str, ...],
    only: tuple[str, ...],
    jobs: int | None,
    out: Path,
    form: str,
    *,
    quick: bool,
) -> None:
    """Repeat the simulations of a paper and judge every number, claim and figure of it.

    PAPER is the name of a shipped paper, `all`, or a folder with claims.toml, which also holds the rules of
    the verdicts. An interrupted reproduction continues with the same command.

    \b
    Examples:
      bentpipe reproduce jain2004 --quick
      bentpipe reproduce jain2004 --only table-4 --only phase
      bentpipe reproduce byun2007 --only 'Figure 4.5'
      bentpipe reproduce all --format json
    """
    from bentpipe import reproduction
    from bentpipe.cli import paper_tables

    names = [name for each in papers for name in (reproduction.papers() if each == "all" else [each])]
    bar = console.Rate(console.stderr())
    try:
        made = reproduction.reproduce(
            list(dict.fromkeys(names)), out=out, quick=quick, only=only, jobs=jobs, on_progress=bar.update
        )
    except KeyboardInterrupt:
        bar.close()
        raise Interrupted(how_to_repeat(context, out)) from None
    except OSError as error:
        raise Failed(f"{error.filename or out}: {error.strerror or error}") from None
    finally:
        bar.close()
    if form != "table":
        rows = [row for each in made for row in each.rows()]
        console.write(rows, form)
        for each in made:
            console.stderr().print(f"Report: {each.report}")
        return
    for each in made:
        paper_tables.show(each, console.stdout())

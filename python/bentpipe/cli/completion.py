"""The command `completion`."""

import click
from click.shell_completion import get_completion_class

_WHERE = {
    "bash": 'eval "$(bentpipe completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(bentpipe completion zsh)"    # in ~/.zshrc',
    "fish": "bentpipe completion fish > ~/.config/fish/completions/bentpipe.fish",
}
_LINES = "\n".join(f"      {line}" for line in _WHERE.values())


@click.command
@click.argument("shell", type=click.Choice(list(_WHERE)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, scenarios, settings and metrics in SHELL."""
    made = get_completion_class(shell)
    if made is not None:
        root = context.find_root()
        click.echo(made(root.command, {}, "bentpipe", "_BENTPIPE_COMPLETE").source())


completion.help = f"{completion.help}\n\n\b\nExamples:\n{_LINES}"

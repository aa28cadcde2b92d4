"""The server of the lab: its page, its data and a websocket per page, on loopback.

Only who has the address with its token gets in, once: the token is exchanged for a cookie. Every request must
name this server as its host, and what changes something must come from its own page.
"""

import asyncio
import hmac
import json
import logging
import multiprocessing
import secrets
import signal
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tornado.httpserver
import tornado.ioloop
import tornado.netutil
import tornado.web
import tornado.websocket

from bentpipe.errors import BentpipeError, ScenarioError, UsageError
from bentpipe.files import write
from bentpipe.lab import documents, limits, recorded, stories, worker
from bentpipe.runs.plan import scenario_path, shipped

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

__all__ = ["Lab", "serve"]

_PAGE = Path(__file__).parent / "page"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src"
    " 'self' data: blob:; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
_MESSAGE = 2 * limits.TEXT
"""Longest message of a page [bytes]."""


class Lab:
    """A running lab: its folder, its keys and its playbacks."""

    def __init__(
        self, folder: Path, opened: str | None = None, settings: Sequence[str] | None = None
    ) -> None:
        """Serve `folder`; `opened` is the scenario or result that the page opens first, under `settings`.

        Raises `UsageError` for an unknown name, or too many settings.
        """
        if settings is not None and len(settings) > limits.SETTINGS:
            raise UsageError(
                f"--settings: found {len(settings)}; allowed side by side: at most {limits.SETTINGS}"
            )
        self.settings = settings
        self.folder = folder.resolve()
        self.opened = self._first(opened) if opened is not None else {"scenario": "byun2007-gateway"}
        self.token: str | None = secrets.token_urlsafe(24)
        self.cookie = secrets.token_urlsafe(24)
        self.port = 0
        self.playbacks = 0
        # Results and reports take up to seconds: other pages and their runs do not wait for them.
        self.reader, self.renderer = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self.pages: set[_Socket] = set()
        self._server: tornado.httpserver.HTTPServer | None = None

    def _first(self, given: str) -> dict[str, str]:
        path = Path(given)
        if path.is_dir():
            return {"result": str(self.inside(str(path.resolve())).relative_to(self.folder))}
        found = scenario_path(given)
        if not path.exists():
            return {"scenario": given}
        return {"file": str(self.inside(str(found.resolve())).relative_to(self.folder))}

    @property
    def address(self) -> str:
        """Address of the page, with the token that opens it once."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    @property
    def cookie_name(self) -> str:
        """Name of the cookie; browsers send the cookies of all ports to each."""
        return f"bentpipe-lab-{self.port}"

    @property
    def origins(self) -> set[str]:
        """Origins of the lab's own pages."""
        return {f"http://{host}" for host in self.hosts}

    @property
    def hosts(self) -> set[str]:
        """Names under which the lab may be asked for."""
        return {f"{name}:{self.port}" for name in ("127.0.0.1", "localhost")}

    def inside(self, name: str) -> Path:
        """Return the path of a file or folder of the lab's folder; `UsageError` for any other."""
        path = (self.folder / name).resolve()
        if not path.is_relative_to(self.folder):
            raise UsageError(f"{name}: is outside of {self.folder}, the folder in which the lab was started")
        return path

    def listen(self, port: int = 0) -> None:
        """Listen on loopback; `UsageError` if the port is taken."""
        try:
            sockets = tornado.netutil.bind_sockets(port, "127.0.0.1")
        except OSError as error:
            raise UsageError(
                f"--port {port}: {error.strerror}; choose another, or none for a free one"
            ) from None
        self.port = sockets[0].getsockname()[1]
        application = tornado.web.Application(
            [
                (r"/", _Index, {"lab": self}),
                (r"/ws", _Socket, {"lab": self}),
                (r"/api/(\w+)", _Api, {"lab": self}),
                (r"/report/(.*)", _Report, {"lab": self}),
                (r"/page/(.*)", _Files, {"lab": self, "path": str(_PAGE)}),
            ],
            compress_response=True,
            websocket_max_message_size=_MESSAGE,
            websocket_ping_interval=20,
        )
        self._server = tornado.httpserver.HTTPServer(application, max_body_size=_MESSAGE)
        self._server.add_sockets(sockets)

    def close(self) -> None:
        """Stop listening, and end the processes of the pages."""
        if self._server is not None:
            self._server.stop()
        for page in self.pages:
            page.stop()
        for threads in (self.reader, self.renderer):
            threads.shutdown(wait=False, cancel_futures=True)


def serve(lab: Lab, port: int, ready: Callable[[str], None]) -> None:
    """Run a lab until it is interrupted; `ready` gets its address."""
    # What a page may not ask is told to the page.
    logging.getLogger("tornado.access").setLevel(logging.ERROR)

    async def run() -> None:
        lab.listen(port)
        ready(lab.address)
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        await stopped.wait()
        lab.close()

    asyncio.run(run())


class _Guarded(tornado.web.RequestHandler):
    """A request that must name this server, and come from a page that has its cookie."""

    lab: Lab
    needs_cookie = True

    def initialize(self, lab: Lab) -> None:
        self.lab = lab

    def set_default_headers(self) -> None:
        self.set_header("Content-Security-Policy", _POLICY)
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Cache-Control", "no-store")
        self.clear_header("Server")

    def prepare(self) -> Awaitable[None] | None:
        if self.request.host not in self.lab.hosts:
            raise tornado.web.HTTPError(421, reason="This is not the host that was asked for")
        if self.needs_cookie and not self.has_cookie():
            raise tornado.web.HTTPError(403, reason="Open the address that bentpipe lab printed")
        if self.request.method not in {"GET", "HEAD"}:
            origin = self.request.headers.get("Origin")
            if origin not in self.lab.origins:
                raise tornado.web.HTTPError(403, reason="Another page may not ask this")
        return None

    def has_cookie(self) -> bool:
        """Return True if the request has the lab's cookie."""
        given = self.get_cookie(self.lab.cookie_name) or ""
        return hmac.compare_digest(given.encode(), self.lab.cookie.encode())

    def write_error(self, status_code: int, **kwargs: Any) -> None:  # noqa: ANN401
        del kwargs
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{status_code}: {self._reason}.\n")


class _Index(_Guarded):
    """The page; the token is exchanged for the cookie."""

    needs_cookie = False

    def get(self) -> None:
        token = self.get_query_argument("token", None)
        if token is not None:
            known = self.lab.token
            if known is None or not hmac.compare_digest(token.encode(), known.encode()):
                if not self.has_cookie():
                    raise tornado.web.HTTPError(
                        403, reason="This address was used before; start bentpipe lab again"
                    )
            else:
                self.lab.token = None
                self.set_cookie(
                    self.lab.cookie_name, self.lab.cookie, httponly=True, samesite="Strict", path="/"
                )
            self.redirect("/")
            return
        if not self.has_cookie():
            raise tornado.web.HTTPError(403, reason="Open the address that bentpipe lab printed")
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish((_PAGE / "index.html").read_bytes())


class _Files(tornado.web.StaticFileHandler, _Guarded):
    """Files of the page."""

    def initialize(self, lab: Lab, path: str) -> None:  # type: ignore[override]
        _Guarded.initialize(self, lab)
        tornado.web.StaticFileHandler.initialize(self, path)

    def prepare(self) -> Awaitable[None] | None:
        return _Guarded.prepare(self)

    def set_extra_headers(self, path: str) -> None:
        del path
        self.set_header("Cache-Control", "no-cache")


class _Report(_Guarded):
    """The report of a result, whose scripts have no access to the lab."""

    async def get(self, name: str) -> None:
        try:
            path = self.lab.inside(name)
            content = await asyncio.get_running_loop().run_in_executor(
                self.lab.renderer, recorded.report_of, path
            )
        except (BentpipeError, ValueError) as error:
            self.set_status(404)
            self.set_header("Content-Type", "text/plain; charset=utf-8")
            self.finish(f"404: {error}.\n")
            return
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Security-Policy", "sandbox allow-scripts")
        self.finish(content)


def _asked(ask: Callable[[], dict[str, Any] | bytes] | None) -> dict[str, Any] | bytes:
    """Return an answer, or what prevents it; `HTTPError` without `ask`, or if the request lacks something."""
    if ask is None:
        raise tornado.web.HTTPError(404)
    try:
        return ask()
    except (BentpipeError, ScenarioError) as error:
        return {"error": str(error)}
    except (KeyError, TypeError, ValueError) as error:
        raise tornado.web.HTTPError(400, reason="The request lacks something") from error


class _Api(_Guarded):
    """Answers to the page: JSON, and tables as Arrow streams."""

    async def get(self, name: str) -> None:
        asks: dict[str, Callable[[], dict[str, Any] | bytes]] = {
            "start": self._start,
            "scenario": self._scenario,
            "result": self._result,
            "series": self._series,
            "table": self._table,
        }
        loop = asyncio.get_running_loop()
        self._answer(await loop.run_in_executor(self.lab.reader, _asked, asks.get(name)))

    def post(self, name: str) -> None:
        asks: dict[str, Callable[[], dict[str, Any] | bytes]] = {
            "check": self._check,
            "form": self._form,
            "edit": self._edit,
            "add": self._add,
            "remove": self._remove,
            "save": self._save,
        }
        self._answer(_asked(asks.get(name)))

    def _answer(self, answer: dict[str, Any] | bytes) -> None:
        if isinstance(answer, bytes):
            self.set_header("Content-Type", "application/vnd.apache.arrow.stream")
        else:
            self.set_header("Content-Type", "application/json")
            answer = json.dumps(answer, allow_nan=False, default=str).encode()
        self.finish(answer)

    @property
    def _given(self) -> dict[str, Any]:
        given = json.loads(self.request.body)
        if not isinstance(given, dict):
            raise TypeError
        return given

    def _start(self) -> dict[str, Any]:
        lab = self.lab
        found, older = recorded.results(lab.folder)
        return {
            "folder": str(lab.folder),
            "open": lab.opened,
            "settings": lab.settings,
            "scenarios": list(shipped()),
            "files": recorded.scenario_files(lab.folder),
            "results": found,
            "older_results": older,
            "stories": stories.listed(),
            "limits": {"settings": limits.SETTINGS, "duration": limits.DURATION},
        }

    def _scenario(self) -> dict[str, Any]:
        file, name = self.get_query_argument("file", None), self.get_query_argument("name", None)
        if self.get_query_argument("new", None) is not None:
            return self._checked(documents.NEW, self.lab.folder / "new-scenario.toml")
        if file is not None:
            path = self.lab.inside(file)
        elif name in shipped():
            path = shipped()[str(name)]
        else:
            raise UsageError(f"{name}: is no shipped scenario; allowed: {', '.join(shipped())}")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: cannot be read: {error}") from None
        return self._checked(text, path)

    def _checked(self, text: str, path: Path) -> dict[str, Any]:
        return {"file": str(path), "text": text, **documents.checked(text, str(path), self.lab.folder)}

    def _check(self) -> dict[str, Any]:
        given = self._given
        return documents.checked(str(given["text"]), str(given["file"]), self.lab.folder)

    def _form(self) -> dict[str, Any]:
        given = self._given
        scenario = documents.read(str(given["text"]), str(given["file"]), self.lab.folder)
        if given.get("setting"):
            scenario = scenario.with_setting(str(given["setting"]))
        return {"rows": documents.form(scenario, str(given["part"]))}

    def _edit(self) -> dict[str, Any]:
        given = self._given
        value = given.get("value")
        key = str(given["key"])
        return self._edited(documents.edited(str(given["text"]), key, None if value is None else str(value)))

    def _add(self) -> dict[str, Any]:
        given = self._given
        ends = [str(end) for end in given.get("ends", [])]
        return self._edited(documents.added(str(given["text"]), str(given["kind"]), str(given["name"]), ends))

    def _remove(self) -> dict[str, Any]:
        given = self._given
        return self._edited(documents.removed(str(given["text"]), str(given["part"])))

    def _edited(self, text: str) -> dict[str, Any]:
        return {"text": text, **documents.checked(text, str(self._given["file"]), self.lab.folder)}

    def _save(self) -> dict[str, Any]:
        given = self._given
        path, text = self.lab.inside(str(given["path"])), str(given["text"])
        if path.suffix != ".toml":
            raise UsageError(f'{given["path"]}: found "{path.suffix}"; allowed: a name that ends in .toml')
        try:
            if path.exists() and not given.get("replace"):
                raise UsageError(f"{given['path']}: exists already; choose another name, or replace it")
            write(path, text.encode())
        except OSError as error:
            raise UsageError(f"{given['path']}: cannot be written: {error.strerror}") from None
        return {"file": str(path), "path": str(path.relative_to(self.lab.folder))}

    def _result(self) -> dict[str, Any]:
        return recorded.described(self.lab.inside(self.get_query_argument("path")), self.lab.folder)

    def _series(self) -> bytes:
        return self._stored("series")

    def _table(self) -> bytes:
        return self._stored(self.get_query_argument("name"), self.get_query_argument("terminal", None))

    def _stored(self, name: str, terminal: str | None = None) -> bytes:
        path, setting = self.lab.inside(self.get_query_argument("path")), self.get_query_argument("setting")
        return recorded.table(path, setting, int(self.get_query_argument("seed")), name, terminal)


class _Socket(tornado.websocket.WebSocketHandler):
    """A page, and the process of its playback, which ends with it."""

    def initialize(self, lab: Lab) -> None:
        self.lab = lab
        self.process: SpawnProcess | None = None
        self.connection: Connection | None = None
        # A process that sends a frame reads no message meanwhile: a thread waits for it, not the server.
        self.sender = ThreadPoolExecutor(1)

    def prepare(self) -> None:
        if self.request.host not in self.lab.hosts:
            raise tornado.web.HTTPError(421)
        given = self.get_cookie(self.lab.cookie_name) or ""
        if not hmac.compare_digest(given.encode(), self.lab.cookie.encode()):
            raise tornado.web.HTTPError(403)

    def check_origin(self, origin: str) -> bool:
        return origin in self.lab.origins

    def open(self, *_: str) -> None:
        self.set_nodelay(True)
        self.lab.pages.add(self)
        self._start()

    def _start(self) -> None:
        if self.lab.playbacks >= limits.PLAYBACKS:
            self._tell(
                "crashed",
                f"{self.lab.playbacks} pages of this lab are open; allowed: at most {limits.PLAYBACKS}. Close"
                " one, and load this page again",
            )
            return
        self.lab.playbacks += 1
        here, there = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=worker.main, args=(there, self.lab.folder), daemon=True)
        self.process.start()
        there.close()
        self.connection = here
        tornado.ioloop.IOLoop.current().add_handler(here.fileno(), self._on_frame, tornado.ioloop.IOLoop.READ)

    def _on_frame(self, *_: object) -> None:
        if self.connection is None:
            return
        try:
            frame = self.connection.recv_bytes()
        except (EOFError, OSError):
            self._on_crash()
            return
        with suppress(tornado.websocket.WebSocketClosedError):
            self.write_message(frame, binary=True)

    def _on_crash(self) -> None:
        """Report that the process has ended without being asked to. The next scenario starts another."""
        process = self.process
        if process is not None:
            # A process whose connection has ended is about to end; its exit code says why.
            process.join(1)
        self.stop()
        code = process.exitcode if process is not None else None
        how = f"signal {-code}" if code is not None and code < 0 else f"code {code}"
        self._tell(
            "crashed",
            f"the process of the run ended with {how}; the text is still here: open it again to run it",
        )

    async def on_message(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            return
        try:
            given = json.loads(message)
            if given["type"] == "open":
                documents.read(str(given["text"]), str(given["file"]), self.lab.folder)
        except (BentpipeError, ScenarioError) as error:
            self._tell("error", str(error))
            return
        except (KeyError, TypeError, ValueError):
            self._tell("error", "the lab does not know this message")
            return
        if self.connection is None and given["type"] == "open":
            self._start()
        if self.connection is None:
            if given["type"] not in ("open", "ready"):
                self._tell("error", "no scenario is open")
            return
        # The end of a process is noticed where its frames are read.
        with suppress(OSError):
            sending = asyncio.get_running_loop().run_in_executor
            await sending(self.sender, self.connection.send_bytes, message.encode())

    def _tell(self, kind: str, message: str) -> None:
        with suppress(tornado.websocket.WebSocketClosedError):
            self.write_message(worker.packed({"type": kind, "message": message}), binary=True)

    def on_close(self) -> None:
        self.lab.pages.discard(self)
        self.stop()
        self.sender.shutdown(wait=False)

    def stop(self) -> None:
        """End the process, and forget it."""
        process, connection = self.process, self.connection
        self.process = self.connection = None
        if connection is not None:
            tornado.ioloop.IOLoop.current().remove_handler(connection.fileno())
        if process is not None:
            self.lab.playbacks -= 1
            process.kill()
            process.join()
        if connection is not None:
            # No process reads: a message on its way ends with an error, before the connection is closed.
            self.sender.submit(connection.close)

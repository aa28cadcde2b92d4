// Requests to the lab's server, and the websocket of a page's playback.

export async function get(name, parameters = {}) {
  const answer = await fetch(`/api/${name}?${new URLSearchParams(parameters)}`);
  return read(answer);
}

export async function post(name, body) {
  const answer = await fetch(`/api/${name}`, { method: "POST", body: JSON.stringify(body) });
  return read(answer, name === "check");
}

async function read(answer, isCheck = false) {
  if (!answer.ok) throw new Error(await answer.text());
  if (answer.headers.get("Content-Type").startsWith("application/json")) {
    const found = await answer.json();
    // What is wrong in a text that is checked stands beside the text, if there is one.
    if (found.error && !isCheck && !("text" in found)) throw new Error(found.error);
    return found;
  }
  return fl.tableFromIPC(new Uint8Array(await answer.arrayBuffer()));
}

// A frame is the length of its header (4 bytes), the header in JSON, and the Arrow streams that it lists.
export class Socket {
  constructor(onFrame, onClose) {
    this.onFrame = onFrame;
    this.onClose = onClose;
    this.waiting = [];
    this.connect();
  }

  connect() {
    this.socket = new WebSocket(`ws://${location.host}/ws`);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => this.waiting.splice(0).forEach(text => this.socket.send(text));
    this.socket.onmessage = event => this.onFrame(...unpacked(event.data));
    this.socket.onclose = () => this.onClose();
  }

  send(type, rest = {}) {
    const text = JSON.stringify({ type, ...rest });
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(text);
    else if (this.socket.readyState === WebSocket.CONNECTING) this.waiting.push(text);
  }
}

function unpacked(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const tables = {};
  let place = 4 + length;
  for (const [name, size] of header.tables) {
    // Arrow wants its buffers aligned, which a copy is.
    tables[name] = fl.tableFromIPC(new Uint8Array(buffer.slice(place, place + size)));
    place += size;
  }
  return [header, tables];
}

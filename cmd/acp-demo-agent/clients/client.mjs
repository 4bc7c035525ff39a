// An ACP client on the official TypeScript SDK whose terminals are real
// processes, for tests to steer and to look into:
//
//	node client.mjs '{"agent": ["acp-demo-agent"], "cwd": "/dir", "terminal": true}'
//
// It starts the agent, initializes and opens one session. Then each line of its
// standard input is an order:
//
//	{"prompt": "!date"}   ask; more may be asked before the answer comes
//	{"cancel": true}      session/cancel
//	{"close": true}       session/close
//	{"stalled": true}        read the agent's output no more, and leave its input open
//	{"pause": 1000}       do not read it for so many milliseconds
//	{"method": "session/list", "params": {}}
//	                      a request of any kind; its params are laid over the
//	                      session's id and directory
//	{"notify": "x/y", "times": 600}
//	                      a notification, so often
//
// The end of the input ends the agent's, whose output is read to its end. Each
// line of the standard output is a record:
//
//	{"from": "agent", "message": {…}}  a message, as it crossed the wire
//	{"fault": "…"}                     the agent broke a rule of the protocol
//	{"end": {"code": 0, "signal": null, "releases": {"terminal-1": 1}}}
//	                                   how the agent exited, and how often each
//	                                   terminal was released
//
// Further members of the argument: "display" offers display-only terminals,
// "refuse" is what the user says to every terminal/create, and the rest are habits
// (raw_linux_test.go).
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { Readable, Transform } from "node:stream";
import { StringDecoder } from "node:string_decoder";
import { setTimeout } from "node:timers/promises";
import { client, methods, ndJsonStream, PROTOCOL_VERSION, RequestError } from "@agentclientprotocol/sdk";

const config = JSON.parse(process.argv[2]);

const record = (entry) => process.stdout.write(JSON.stringify(entry) + "\n");
const fault = (text) => record({ fault: text });

// tap records the messages that pass, which takes as long as the link.
const tap = (from) => {
  const times = []; // of those that are on their way
  const enter = new TransformStream(
    {
      transform(message, controller) {
        times.push(Date.now());
        controller.enqueue(message);
      },
    },
    undefined,
    { highWaterMark: Infinity },
  );
  const leave = new TransformStream({
    async transform(message, controller) {
      const left = times.shift() + (config.link ?? 0) - Date.now();
      if (left > 0) await setTimeout(left);
      record({ from, message });
      controller.enqueue(message);
    },
  });
  return { readable: enter.readable.pipeThrough(leave), writable: enter.writable };
};

// A Terminal is one process in a process group of its own.
class Terminal {
  static async create({ command, args = [], env = [], cwd, outputByteLimit }) {
    const variables = Object.fromEntries(env.map(({ name, value }) => [name, value]));
    const child = spawn(command, args, {
      cwd: cwd ?? config.cwd,
      env: { ...process.env, ...variables },
      stdio: [config.openInput ? "pipe" : "ignore", "pipe", "pipe"],
      detached: true,
    });
    await once(child, "spawn"); // or throws what "error" brings
    return new Terminal(child, outputByteLimit ?? Infinity);
  }

  constructor(child, limit) {
    this.child = child;
    this.text = "";
    this.truncated = false;
    for (const stream of [child.stdout, child.stderr]) {
      const decoder = new StringDecoder("utf8"); // a rune may come in two pieces
      stream.on("data", (chunk) => this.keep(decoder.write(chunk), limit));
    }
    this.exit = once(child, "exit").then(([exitCode, signal]) => (this.exitStatus = { exitCode, signal }));
  }

  // "The Client truncates from the beginning of the output to stay within the
  // limit", and "MUST ensure truncation happens at a character boundary".
  keep(text, limit) {
    this.text += text;
    const bytes = Buffer.from(this.text);
    if (bytes.length <= limit) return;
    let start = bytes.length - limit;
    while (!config.cuts && (bytes[start] & 0xc0) === 0x80) start++;
    this.text = bytes.toString("utf8", start);
    this.truncated = true;
  }

  output() {
    const { text: output, truncated, exitStatus } = this;
    if (config.drained) this.text = "";
    return { output, truncated, ...(!config.noExit && { exitStatus }) };
  }

  // kill ends the group, and settles when that is done.
  async kill(signal = config.shellOnly) {
    if (this.exitStatus !== undefined) return;
    if (signal) {
      this.child.kill(signal);
    } else {
      process.kill(-this.child.pid, "SIGKILL");
      await this.exit;
    }
  }
}

const terminals = new Map(); // those not yet released
const releases = {}; // by id

function terminal(method, { terminalId }) {
  const found = terminals.get(terminalId);
  if (!found) {
    fault(`${method} names ${terminalId}, which is ${terminalId in releases ? "released" : "unknown"}`);
    throw RequestError.resourceNotFound(terminalId);
  }
  return found;
}

function newId() {
  let n = Object.keys(releases).length + 1;
  if (config.sameIds) for (n = 1; terminals.has(`terminal-${n}`); n++);
  return config.numberIds ? `${n}` : `terminal-${n}`;
}

// embeds checks the terminals that an update shows, as an editor that has to
// draw them.
function embeds(content) {
  for (const item of Array.isArray(content) ? content : []) {
    if (item.type !== "terminal") continue;
    if (!terminals.has(item.terminalId) && !config.display) fault(`an update embeds ${item.terminalId}, which is no terminal now`);
  }
}

// odd lays what the habits have for a method over a message of it.
const odd = (kind, method, value) => ({ ...value, ...config[kind]?.[method] });

const app = client({ name: "termbridge-test" });
const answer = (method, f) => app.onRequest(method, async (request) => odd("answers", method, await f(request)));
const { create, output, waitForExit, kill, release } = methods.client.terminal;
answer(create, async ({ params }) => {
  if (!config.terminal) {
    fault("terminal/create to a client that has no terminals");
    throw RequestError.methodNotFound(create);
  }
  if (config.refuse) throw new RequestError(-32000, config.refuse);
  const made = await Terminal.create(params).catch((err) => {
    throw RequestError.internalError({ details: err.message });
  });
  const terminalId = newId();
  terminals.set(terminalId, made);
  releases[terminalId] ??= 0;
  return { terminalId: config.numberIds ? Number(terminalId) : terminalId };
});
answer(output, ({ params }) => terminal(output, params).output());
answer(waitForExit, ({ params }) => terminal(waitForExit, params).exit);
answer(kill, async ({ params }) => {
  const found = terminal(kill, params);
  if (config.noKill) throw RequestError.internalError({ details: "this client kills nothing" });
  await found.kill();
  return {};
});
answer(release, async ({ params }) => {
  const found = terminal(release, params);
  terminals.delete(params.terminalId);
  releases[params.terminalId]++;
  await found.kill();
  await setTimeout(config.lag);
  return {};
});
answer(methods.client.session.requestPermission, ({ params }) => {
  const option = params.options.find(({ kind }) => kind === config.permit);
  return { outcome: option ? { outcome: "selected", optionId: option.optionId } : { outcome: "cancelled" } };
});
app.onNotification(methods.client.session.update, ({ params }) => embeds(params.update.content));

const [program, ...args] = config.agent;
const agent = spawn(program, args, { stdio: ["pipe", "pipe", config.unread ? "pipe" : "inherit"] });
const exited = once(agent, "exit");
// Answers to an agent whose input has ended are lost, and no reason to stop
// reading, which they are to the SDK.
let ending = false;
agent.stdin.on("error", () => {}); // the agent may have gone
const lines = new WritableStream({ write: (bytes) => void (ending || agent.stdin.write(bytes)) });
let paused; // resolves when the agent's output is read again
const unpaused = new Transform({ transform: (chunk, _, done) => void Promise.resolve(paused).then(() => done(null, chunk)) });
const wire = ndJsonStream(lines, Readable.toWeb(agent.stdout.pipe(unpaused)));
const outgoing = tap("client");
outgoing.readable.pipeTo(wire.writable);
const connection = app.connect({
  readable: wire.readable.pipeThrough(tap("agent")),
  writable: outgoing.writable,
});
const { initialize, session } = methods.agent;
const ask = (method, params) => connection.agent.request(method, odd("params", method, params));
const tell = (method, params) => connection.agent.notify(method, odd("params", method, params));
for (const { method, params } of config.first ?? []) await ask(method, params).catch(() => {});
await ask(initialize, {
  protocolVersion: PROTOCOL_VERSION,
  clientInfo: { name: "termbridge-test", version: "1.0.0" },
  clientCapabilities: {
    terminal: Boolean(config.terminal),
    ...(config.display && { _meta: { terminal_output: true } }),
  },
});
const { sessionId } = await ask(session.new, { cwd: config.cwd, mcpServers: [] });

let stalled = false;
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  // An error is an answer, too, and is in the records.
  if (order.prompt !== undefined) {
    ask(session.prompt, { sessionId, prompt: [{ type: "text", text: order.prompt }] }).catch(() => {});
  } else if (order.cancel) {
    await tell(session.cancel, { sessionId });
  } else if (order.notify) {
    for (let n = 0; n < order.times; n++) await tell(order.notify, {});
  } else if (order.method) {
    ask(order.method, { sessionId, cwd: config.cwd, ...order.params }).catch(() => {});
  } else if (order.close) {
    await ask(session.close, { sessionId }).catch(() => {});
  } else if (order.pause) {
    paused = setTimeout(order.pause);
  } else if (order.stalled) {
    agent.stdout.destroy();
    stalled = true;
  }
}

if (!stalled) {
  ending = true;
  agent.stdin.end();
}
const [code, signal] = await exited;
// What the agent wrote last is still to be read and done.
for (let n = 0; n < 50 && terminals.size > 0 && !stalled; n++) await setTimeout(100);
record({ end: { code, signal, releases } });
for (const left of terminals.values()) await left.kill("");
process.exit();

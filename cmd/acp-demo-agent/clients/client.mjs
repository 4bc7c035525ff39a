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
//	{"method": "session/list", "params": {}}
//	                      a request of any kind; its params are laid over the
//	                      session's id and directory
//	{"deaf": true}        read the agent's output no more, and leave its input open
//
// The end of the input ends the agent's, whose output is read to its end. Each line of the standard output is a
// record:
//
//	{"from": "agent", "message": {…}}  a message, as it crossed the wire
//	{"fault": "…"}                     the agent broke a rule of the protocol
//	{"end": {"code": 0, "signal": null, "releases": {"terminal-1": 1}}}
//	                                   how the agent exited, and how often each
//	                                   terminal was released
//
// Further members of the argument: "display" offers display-only terminals, and
// "refuse" is what the user says to every terminal/create.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import { setTimeout } from "node:timers/promises";
import { StringDecoder } from "node:string_decoder";
import { client, methods, ndJsonStream, PROTOCOL_VERSION, RequestError } from "@agentclientprotocol/sdk";

const config = JSON.parse(process.argv[2]);

const record = (entry) => process.stdout.write(JSON.stringify(entry) + "\n");
const fault = (text) => record({ fault: text });

// tap records the messages that pass.
const tap = (from) =>
  new TransformStream({
    transform(message, controller) {
      record({ from, message });
      controller.enqueue(message);
    },
  });

// A Terminal is one process in a process group of its own.
class Terminal {
  static async create({ command, args = [], env = [], cwd, outputByteLimit }) {
    const variables = Object.fromEntries(env.map(({ name, value }) => [name, value]));
    const child = spawn(command, args, {
      cwd: cwd ?? config.cwd,
      env: { ...process.env, ...variables },
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
    });
    await once(child, "spawn"); // or throws what "error" brings
    return new Terminal(child, outputByteLimit ?? Infinity);
  }

  constructor(child, limit) {
    this.child = child;
    this.output = "";
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
    this.output += text;
    const bytes = Buffer.from(this.output);
    if (bytes.length <= limit) return;
    let start = bytes.length - limit;
    while ((bytes[start] & 0xc0) === 0x80) start++;
    this.output = bytes.toString("utf8", start);
    this.truncated = true;
  }

  // kill ends the group, and settles when that is done.
  async kill() {
    if (this.exitStatus === undefined) process.kill(-this.child.pid, "SIGKILL");
    await this.exit;
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

// embeds checks the terminals that an update shows, as an editor that has to
// draw them.
function embeds(content) {
  for (const item of Array.isArray(content) ? content : []) {
    if (item.type !== "terminal") continue;
    if (!terminals.has(item.terminalId) && !config.display) fault(`an update embeds ${item.terminalId}, which is no terminal now`);
  }
}

const { create, output, waitForExit, kill, release } = methods.client.terminal;
const app = client({ name: "termbridge-test" })
  .onRequest(create, async ({ params }) => {
    if (!config.terminal) {
      fault("terminal/create to a client that has no terminals");
      throw RequestError.methodNotFound(create);
    }
    if (config.refuse) throw new RequestError(-32000, config.refuse);
    const made = await Terminal.create(params).catch((err) => {
      throw RequestError.internalError({ details: err.message });
    });
    const terminalId = `terminal-${Object.keys(releases).length + 1}`;
    terminals.set(terminalId, made);
    releases[terminalId] = 0;
    return { terminalId };
  })
  .onRequest(output, ({ params }) => {
    const { output: text, truncated, exitStatus } = terminal(output, params);
    return { output: text, truncated, exitStatus };
  })
  .onRequest(waitForExit, ({ params }) => terminal(waitForExit, params).exit)
  .onRequest(kill, async ({ params }) => {
    await terminal(kill, params).kill();
    return {};
  })
  .onRequest(release, async ({ params }) => {
    const found = terminal(release, params);
    terminals.delete(params.terminalId);
    releases[params.terminalId]++;
    await found.kill();
    return {};
  })
  .onNotification(methods.client.session.update, ({ params }) => embeds(params.update.content));

const [program, ...args] = config.agent;
const agent = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
const exited = once(agent, "exit");
// Answers to an agent whose input has ended are lost, and no reason to stop
// reading, which they are to the SDK.
let ending = false;
agent.stdin.on("error", () => {}); // the agent may have gone
const lines = new WritableStream({ write: (bytes) => void (ending || agent.stdin.write(bytes)) });
const wire = ndJsonStream(lines, Readable.toWeb(agent.stdout));
const outgoing = tap("client");
outgoing.readable.pipeTo(wire.writable);
const connection = app.connect({
  readable: wire.readable.pipeThrough(tap("agent")),
  writable: outgoing.writable,
});
const { initialize, session } = methods.agent;
await connection.agent.request(initialize, {
  protocolVersion: PROTOCOL_VERSION,
  clientInfo: { name: "termbridge-test", version: "1.0.0" },
  clientCapabilities: {
    terminal: Boolean(config.terminal),
    ...(config.display && { _meta: { terminal_output: true } }),
  },
});
const { sessionId } = await connection.agent.request(session.new, { cwd: config.cwd, mcpServers: [] });

let deaf = false;
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  // An error is an answer, too, and is in the records.
  if (order.prompt !== undefined) {
    const prompt = [{ type: "text", text: order.prompt }];
    connection.agent.request(session.prompt, { sessionId, prompt }).catch(() => {});
  } else if (order.cancel) {
    await connection.agent.notify(session.cancel, { sessionId });
  } else if (order.method) {
    connection.agent.request(order.method, { sessionId, cwd: config.cwd, ...order.params }).catch(() => {});
  } else if (order.close) {
    await connection.agent.request(session.close, { sessionId }).catch(() => {});
  } else if (order.deaf) {
    agent.stdout.destroy();
    deaf = true;
  }
}

ending = true;
if (!deaf) agent.stdin.end();
const [code, signal] = await exited;
// What the agent wrote last is still to be read and done.
for (let n = 0; n < 50 && terminals.size > 0 && !deaf; n++) await setTimeout(100);
record({ end: { code, signal, releases } });
for (const left of terminals.values()) await left.kill();
process.exit();

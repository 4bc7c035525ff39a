// What measureNode of peers.go asks of node-pty: one line of JSON, and another one
// when the tree has been stopped.
const pty = require("@lydell/node-pty");
const { readFileSync } = require("node:fs");
const [starts, flood, count, idle, token, tree, token2] = process.argv.slice(2);

const start = (program, args, variable = "") => {
  const [name, value] = variable.split("=");
  return pty.spawn(program, args, { cols: 80, rows: 24, env: { ...process.env, ...(name && { [name]: value }) } });
};
const ended = (child) => new Promise((resolve) => child.onExit(resolve));
const seconds = () => Number(process.hrtime.bigint()) / 1e9;
const memory = () => {
  const status = readFileSync("/proc/self/status", "utf8");
  const of = (name) => Number(status.match(new RegExp(`^${name}:\\s*(\\d+)`, "m"))[1]);
  return { kb: of("VmRSS"), threads: of("Threads") };
};

(async () => {
  const took = [];
  for (let n = 0; n < starts; n++) {
    const begun = seconds();
    await ended(start("/bin/true", []));
    took.push(seconds() - begun);
  }
  took.sort((a, b) => a - b);
  const begun = seconds();
  const child = start("/bin/sh", ["-c", flood]);
  child.onData(() => {});
  await ended(child);
  const lasted = seconds() - begun;
  const before = memory();
  for (let n = 0; n < count; n++) start("/bin/sh", ["-c", idle], token).onData(() => {});
  await new Promise((resolve) => setTimeout(resolve, 300));
  const after = memory();
  const last = start("/bin/sh", ["-c", tree], token2);
  process.on("SIGUSR2", async () => {
    const end = ended(last);
    last.kill();
    await end;
    console.log("{}");
  });
  console.log(JSON.stringify({
    Start: took[took.length >> 1], Flood: lasted,
    Idle: (after.kb - before.kb) / count, Thread: after.threads - before.threads,
  }));
})();

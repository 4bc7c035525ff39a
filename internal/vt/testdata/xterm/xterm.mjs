// What xterm.js shows. Each line of stdin is a case,
//   {input: base64, rows, cols, newline, resize: {at, rows, cols} or null},
// and is answered by a line with the screen at its end, and the text of the main
// screen with all that has left it; or with {broken: why}, where xterm.js breaks.
import readline from 'node:readline';
import headless from '@xterm/headless';
import unicode11 from '@xterm/addon-unicode11';

let broken;
process.on('uncaughtException', error => broken(error));
const write = (terminal, data) => new Promise((done, fail) => { broken = fail; terminal.write(data, done); });

function screen(terminal) {
  const buffer = terminal.buffer.active;
  const rows = [];
  for (let y = 0; y < terminal.rows; y++) rows.push(buffer.getLine(buffer.baseY + y).translateToString(true));
  return {
    rows, cols: terminal.cols,
    y: buffer.cursorY, x: Math.min(buffer.cursorX, terminal.cols - 1), pending: buffer.cursorX >= terminal.cols,
    alternate: buffer.type === 'alternate', hidden: terminal._core.coreService.isCursorHidden,
  };
}

function text(terminal) {
  const buffer = terminal.buffer.normal;
  let text = '';
  for (let y = 0; y < buffer.length; y++) {
    const wraps = buffer.getLine(y + 1)?.isWrapped;
    text += buffer.getLine(y).translateToString(!wraps) + (wraps ? '' : '\n');
  }
  return text;
}

async function show({ input, rows, cols, newline, resize }) {
  const data = Buffer.from(input, 'base64');
  const terminal = new headless.Terminal({ rows, cols, allowProposedApi: true, logLevel: 'off', scrollback: 10_000, convertEol: newline });
  terminal.loadAddon(new unicode11.Unicode11Addon());
  terminal.unicode.activeVersion = '11';
  let title = '';
  terminal.onTitleChange(s => { title = s; });
  await write(terminal, data.subarray(0, resize?.at));
  if (resize) {
    terminal.resize(resize.cols, resize.rows);
    await write(terminal, data.subarray(resize.at));
  }
  return { ...screen(terminal), title, text: text(terminal) };
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await show(JSON.parse(line)).catch(error => ({ broken: error.message }))));
}

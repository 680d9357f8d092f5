// Runs the worker of the page in Node.js:
//
//	node node.js DIRECTORY MESSAGES
//
// DIRECTORY is what browser -out has built. Each message of the JSON list MESSAGES is
// sent when the one before is done, or with "during" at the first step of a training;
// what the worker posts is printed, a line each.
"use strict";
const [directory, messages] = process.argv.slice(2);
const todo = JSON.parse(messages);
globalThis.fs = require("fs");
globalThis.path = require("path");
globalThis.crypto ??= require("crypto").webcrypto;
require(path.resolve(directory, "wasm_exec.js"));

let training = false;
function send() {
  const next = todo.shift();
  if (next.ink) next.ink = new Uint8Array(next.ink);
  if (next.type === "train") training = true;
  setTimeout(() => globalThis.onmessage({ data: next }));
}

globalThis.postMessage = (message) => {
  if (message.type === "file") message.bytes = Buffer.from(message.bytes).toString("base64");
  if (message.pixels) message.pixels = Array.from(message.pixels);
  fs.writeSync(1, JSON.stringify(message) + "\n"); // console.log may lose its end at the exit
  if (message.type === "error") process.exit(1);
  if (message.type === "step" && todo[0]?.during) send();
  if (["ready", "done"].includes(message.type) || (!training && ["prediction", "file"].includes(message.type))) {
    training = false;
    if (todo.length === 0) process.exit(0);
    send();
  }
};

const go = new Go();
WebAssembly.instantiate(fs.readFileSync(path.join(directory, "mezzo.wasm")), go.importObject)
  .then(({ instance }) => go.run(instance))
  .catch((e) => {
    console.error(e);
    process.exit(1);
  });

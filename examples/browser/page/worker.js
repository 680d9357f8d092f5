// The worker in which Go runs, so that training does not freeze the page.
importScripts("wasm_exec.js");

async function run() {
  const go = new Go();
  const response = await fetch("mezzo.wasm");
  if (!response.ok) throw new Error(`mezzo.wasm: ${response.status}`);
  const { instance } = await WebAssembly.instantiateStreaming(response, go.importObject);
  await go.run(instance);
  throw new Error("the Go program has ended");
}

run().catch((e) => postMessage({ type: "error", text: e.message }));

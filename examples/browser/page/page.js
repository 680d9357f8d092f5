"use strict";
const $ = (id) => document.getElementById(id);
const color = (name) => getComputedStyle(document.body).getPropertyValue("--" + name);
const worker = new Worker("worker.js");

// The state of the page, which the styles and the tests read.
function enter(state, text) {
  document.body.dataset.state = state;
  const ready = state === "ready" || state === "done";
  $("train").textContent = state === "training" ? "Stop" : "Train";
  $("train").disabled = !(ready || state === "training");
  $("save").disabled = $("sample").disabled = !ready;
  for (const id of ["policy", "epochs", "batch"]) $(id).disabled = !ready;
  $("status").textContent = text;
  $("status").classList.toggle("error", state === "error");
}

// Training.
let steps = []; // {at, loss, accuracy}: at is in epochs
let epochs = []; // {at, loss, accuracy} of the validation
let total = 5;
let times = [];

$("train").onclick = () => {
  if (document.body.dataset.state === "training") {
    worker.postMessage({ type: "stop" });
    return;
  }
  total = Math.min(Math.max(Math.round(+$("epochs").value) || 1, 1), 100);
  steps = [];
  epochs = [];
  times = [];
  $("epochs").value = total;
  $("test").textContent = "–";
  enter("training", "Drawing 14,000 digits to learn from …");
  worker.postMessage({ type: "train", policy: $("policy").value, epochs: total, batch: +$("batch").value });
};

$("save").onclick = () => worker.postMessage({ type: "save" });

const receive = {
  ready() {
    enter("ready", "Ready. The model has random weights: it guesses until it is trained.");
  },
  step(m) {
    if (steps.length === 0) enter("training", `Training 784-64-64-10 under ${$("policy").value} in a Web Worker, on one thread.`);
    steps.push({ at: m.epoch - 1 + m.step / m.steps, loss: m.loss, accuracy: m.accuracy });
    times.push(m.milliseconds);
    $("epoch").textContent = `${m.epoch} / ${total}`;
    const last = steps.slice(-20);
    $("loss").textContent = (last.reduce((s, p) => s + p.loss, 0) / last.length).toFixed(3);
    $("accuracy").textContent = percent(last.reduce((s, p) => s + p.accuracy, 0) / last.length);
    $("time").textContent = `${median(times.slice(-50)).toFixed(1)} ms`;
    redraw();
    classify();
  },
  epoch(m) {
    epochs.push({ at: m.epoch, loss: m.val_loss, accuracy: m.val_accuracy });
    redraw();
  },
  done(m) {
    $("test").textContent = percent(m.accuracy);
    enter("done", `Trained on ${steps.length} batches: ${percent(m.accuracy)} of 2,000 new images are right. Draw a digit.`);
    classify();
  },
  prediction(m) {
    waiting = false;
    show(m);
    if (changed) classify();
  },
  file(m) {
    const a = document.createElement("a");
    a.href = URL.createObjectURL(new Blob([m.bytes]));
    a.download = "digits.keras";
    a.click();
    setTimeout(() => URL.revokeObjectURL(a.href), 10000);
  },
  error(m) {
    enter("error", m.text);
  },
};
worker.onmessage = (e) => receive[e.data.type](e.data);
worker.onerror = (e) => enter("error", e.message);

const percent = (x) => (100 * x).toFixed(1) + " %";
const median = (all) => [...all].sort((a, b) => a - b)[all.length >> 1];

// The curve: at most one frame is drawn for each of the screen.
let frame = 0;
function redraw() {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    drawCurve();
  });
}

function drawCurve() {
  const canvas = $("curve");
  const scale = devicePixelRatio;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const c = canvas.getContext("2d");
  c.scale(scale, scale);
  const left = 38, right = width - 46, top = 12, bottom = height - 26;
  const losses = [...steps, ...epochs].map((p) => p.loss).filter(Number.isFinite);
  const highest = 0.4 * Math.ceil(Math.max(...losses, 2) / 0.4); // a quarter of it has one decimal
  const x = (at) => left + ((right - left) * at) / total;
  const y = { loss: (v) => bottom - ((bottom - top) * v) / highest, accuracy: (v) => bottom - (bottom - top) * v };

  c.font = "11px system-ui, sans-serif";
  c.lineWidth = 1;
  c.strokeStyle = color("line");
  for (let i = 0; i <= 4; i++) {
    const at = bottom - ((bottom - top) * i) / 4;
    c.beginPath();
    c.moveTo(left, at);
    c.lineTo(right, at);
    c.stroke();
    c.textBaseline = "middle";
    c.textAlign = "right";
    c.fillStyle = color("loss");
    c.fillText(((highest * i) / 4).toFixed(1), left - 6, at);
    c.textAlign = "left";
    c.fillStyle = color("accuracy");
    c.fillText(25 * i + " %", right + 6, at);
  }
  c.fillStyle = color("dim");
  c.textAlign = "center";
  c.textBaseline = "top";
  const every = Math.ceil(total / 10);
  for (let e = 0; e <= total; e += every) c.fillText(e === 0 ? "epoch 0" : e, x(e), bottom + 8);

  for (const name of ["loss", "accuracy"]) {
    // Faint: the batches; on top their moving average, which is what one sees.
    for (const [kind, opacity, thick] of [["each", 0.22, 1], ["mean", 1, 2.2]]) {
      c.globalAlpha = opacity;
      c.strokeStyle = color(name);
      c.lineWidth = thick;
      c.lineJoin = "round";
      c.beginPath();
      let mean = 0, weight = 0;
      for (const p of steps) {
        mean = 0.9 * mean + 0.1 * p[name];
        weight = 0.9 * weight + 0.1;
        c.lineTo(x(p.at), y[name](kind === "each" ? p[name] : mean / weight));
      }
      c.stroke();
    }
    c.globalAlpha = 1;
    for (const p of epochs) {
      c.beginPath();
      c.arc(x(p.at), y[name](p[name]), 4.5, 0, 7);
      c.fillStyle = color("card");
      c.fill();
      c.stroke();
    }
  }
  if (epochs.length > 0) {
    c.fillStyle = color("dim");
    c.textAlign = "right";
    c.textBaseline = "middle";
    c.fillText("○ validation", right - 8, (top + bottom) / 2);
  }
}

// Drawing.
const pad = $("pad");
const ink = pad.getContext("2d", { willReadFrequently: true });
ink.lineWidth = 24;
ink.lineCap = ink.lineJoin = "round";
ink.strokeStyle = "#fff";
let last = null; // where the pen is
let drawn = false; // there is a drawing, and not an image of the test set
let changed = false; // since it was sent
let waiting = false; // for a prediction

function clear() {
  ink.clearRect(0, 0, pad.width, pad.height);
  $("seen").getContext("2d").clearRect(0, 0, 28, 28);
  $("hint").hidden = false;
  $("guess").textContent = "?";
  drawn = changed = false;
  bars.forEach((b) => set(b, 0, false));
}

function move(e) {
  const at = [e.offsetX * (pad.width / pad.clientWidth), e.offsetY * (pad.height / pad.clientHeight)];
  ink.beginPath();
  ink.moveTo(...(last || at));
  ink.lineTo(...at);
  ink.stroke();
  last = at;
  drawn = changed = true;
  $("hint").hidden = true;
  classify();
}

pad.onpointerdown = (e) => {
  if (!drawn) clear();
  pad.setPointerCapture(e.pointerId);
  last = null;
  move(e);
};
pad.onpointermove = (e) => last && move(e);
pad.onpointerup = pad.onpointercancel = () => (last = null);
$("clear").onclick = clear;
$("sample").onclick = () => {
  clear();
  $("hint").hidden = true;
  worker.postMessage({ type: "sample" });
};

// classify has the drawing classified, one at a time.
function classify() {
  if (!drawn || waiting || document.body.dataset.state === "loading") return;
  const { data, width, height } = ink.getImageData(0, 0, pad.width, pad.height);
  const alpha = new Uint8Array(width * height);
  for (let i = 0; i < alpha.length; i++) alpha[i] = data[4 * i + 3];
  worker.postMessage({ type: "draw", ink: alpha, width, height });
  waiting = true;
  changed = false;
}

// Probabilities.
const bars = Array.from({ length: 10 }, (_, digit) => {
  const bar = document.createElement("div");
  bar.className = "bar";
  bar.innerHTML = `<span>${digit}</span><i><b></b></i><span></span>`;
  $("bars").append(bar);
  return bar;
});

function set(bar, p, best) {
  bar.querySelector("b").style.width = 100 * p + "%";
  bar.lastChild.textContent = p ? percent(p) : "";
  bar.classList.toggle("best", best);
}

function show(m) {
  if ($("hint").hidden === false) return; // it was cleared meanwhile
  const best = m.probabilities.indexOf(Math.max(...m.probabilities));
  $("guess").textContent = best;
  bars.forEach((b, i) => set(b, m.probabilities[i], i === best));
  const image = new ImageData(28, 28);
  m.pixels.forEach((v, i) => image.data.set([v, v, v, 255], 4 * i));
  $("seen").getContext("2d").putImageData(image, 0, 0);
  if (drawn) return;
  // An image of the test set is shown in the pad, too.
  ink.imageSmoothingEnabled = false;
  ink.drawImage($("seen"), 0, 0, pad.width, pad.height);
}

new ResizeObserver(redraw).observe($("curve"));

//go:build unix

package examples_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/saving"
)

// The tests of WebAssembly compile everything twice more, and TestWasmWASI downloads
// wazero: go test ./examples -run Wasm -wasm, as .ci/wasm does.
var (
	withWasm   = flag.Bool("wasm", false, "run the tests of WebAssembly")
	screenshot = flag.String("screenshot", "", "file that TestWasmBrowser makes a picture of the page in")
)

const wazero = "github.com/tetratelabs/wazero/cmd/wazero@v1.12.0"

// What examples/predict may take for js, linked with -ldflags "-s -w", and what that takes
// in gzip: a program that loads any .keras file and trains nothing.
const (
	predictBudget     = 19_600_000
	predictGzipBudget = 4_600_000
)

func needsWasm(t *testing.T) {
	t.Helper()
	if !*withWasm {
		t.Skip("without -wasm")
	}
}

// compile builds programs of examples into a directory: for this machine, for js, or for
// wasip1 without optimization, which takes two thirds of the time.
func compile(t *testing.T, goos, dir string, names ...string) {
	t.Helper()
	args := []string{"build", "-ldflags=-s -w", "-o", dir + string(filepath.Separator)}
	if goos == "wasip1" {
		args = append(args, "-gcflags=all=-N -l -dwarf=false")
	}
	for _, n := range names {
		args = append(args, "./"+n)
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOAMD64=v1", "CGO_ENABLED=0")
	if goos != "" {
		cmd.Env = append(cmd.Env, "GOOS="+goos, "GOARCH=wasm")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build for %s: %v\n%s", goos, err, out)
	}
}

// output runs a command.
func output(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", filepath.Base(name), args, err, out)
	}
	return string(out)
}

// native is what examples/predict prints on this machine by portable Go.
func native(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	compile(t, "", dir, "predict")
	return output(t, []string{"MEZZO_CPU=portable"}, filepath.Join(dir, "predict"))
}

// fewDigits is a directory with files like MNIST's, of so few images that a program has
// read and learned them in a moment.
func fewDigits(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for seed, name := range []string{"train", "t10k"} {
		images, labels := digits.Raw(200, uint64(seed))
		for file, header := range map[string][]uint32{"-images-idx3-ubyte": {0x803, 200, 28, 28}, "-labels-idx1-ubyte": {0x801, 200}} {
			var b bytes.Buffer
			for _, h := range header {
				b.Write(binary.BigEndian.AppendUint32(nil, h))
			}
			if len(header) == 4 {
				b.Write(images)
			} else {
				b.Write(labels)
			}
			if err := os.WriteFile(filepath.Join(dir, name+file), b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// TestWasmWASI runs examples/predict and examples/vae under wazero, compiled for wasip1:
// the guide would have a download of MNIST compiled, too, and TestWasmJS runs it.
func TestWasmWASI(t *testing.T) {
	needsWasm(t)
	dir := t.TempDir()
	compile(t, "wasip1", dir, "predict", "vae")
	output(t, []string{"GOBIN=" + dir, "CGO_ENABLED=0"}, "go", "install", wazero)
	run := filepath.Join(dir, "wazero")

	// For one prediction compiling the module takes longer than interpreting it. Files
	// are those of directories that the host opens.
	drawing, model := filepath.Join("predict", "drawing.txt"), filepath.Join("predict", "digits.keras")
	got := output(t, nil, run, "run", "-interpreter", "-mount=.:/:ro", filepath.Join(dir, "predict"), "-model", model, drawing)
	if want := native(t); got != want {
		t.Errorf("predict: got\n%s\nwant, as on this machine,\n%s", got, want)
	}
	out := output(t, nil, run, "run", "-workers", "2", filepath.Join(dir, "vae"), "-images", "200", "-epochs", "3", "-batch", "20", "-units", "32")
	if got := last(t, out, "Test loss:"); got > 400 { // 543 before training
		t.Errorf("vae: got test loss %v after 30 steps, want 400 or less\n%s", got, out)
	}
}

// TestWasmJS runs examples/predict and examples/guide in Node.js, compiled for js, and holds
// the first to its size.
func TestWasmJS(t *testing.T) {
	needsWasm(t)
	dir := t.TempDir()
	compile(t, "js", dir, "guide", "predict")
	size, packed := sizes(t, filepath.Join(dir, "predict"))
	t.Logf("examples/predict for js: %d bytes, %d in gzip", size, packed)
	if size > predictBudget || packed > predictGzipBudget {
		t.Errorf("predict: got %d bytes and %d in gzip, want at most %d and %d; what has it come to import?", size, packed, predictBudget, predictGzipBudget)
	}
	holdSizes(t, "`examples/predict`", size, packed)
	size, packed = sizes(t, filepath.Join(dir, "guide"))
	holdSizes(t, "`examples/guide`", size, packed)
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("they build; node is not installed to run them")
	}
	root := strings.TrimSpace(output(t, nil, "go", "env", "GOROOT"))
	loader := filepath.Join(root, "lib", "wasm", "wasm_exec_node.js")
	if got, want := output(t, nil, node, loader, filepath.Join(dir, "predict")), native(t); got != want {
		t.Errorf("predict: got\n%s\nwant, as on this machine,\n%s", got, want)
	}
	out := output(t, nil, node, loader, filepath.Join(dir, "guide"), "-data", fewDigits(t), "-epochs", "2", "-batch", "20")
	if !strings.Contains(out, "portable Go, 1 thread") {
		t.Errorf("guide: got\n%s", out)
	}
	if got := last(t, out, "Test accuracy:"); got < 0.2 {
		t.Errorf("guide: got test accuracy %v after 16 steps, want 0.2 or more", got)
	}
}

// sizes are those of a file, and of it in gzip.
func sizes(t *testing.T, file string) (size, packed int) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var z bytes.Buffer
	w, err := gzip.NewWriterLevel(&z, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return len(b), z.Len()
}

// holdSizes compares sizes with the row of docs/wasm.md that begins with name. They
// change a little with everything, so a twentieth is passed over.
func holdSizes(t *testing.T, name string, size, packed int) {
	t.Helper()
	row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(name) + ` \| ([\d.]+) MB \| ([\d.]+) MB \|$`)
	m := row.FindStringSubmatch(strings.Join(readPage(t, "docs/wasm.md").lines, "\n"))
	if m == nil {
		t.Errorf("docs/wasm.md has no row %q: want | %s | %.1f MB | %.1f MB |", name, name, float64(size)/1e6, float64(packed)/1e6)
		return
	}
	for i, got := range []int{size, packed} {
		if shown, err := strconv.ParseFloat(m[i+1], 64); err != nil || math.Abs(shown*1e6-float64(got)) > 0.05*float64(got) {
			t.Errorf("docs/wasm.md has %s, and it is %.1f MB and %.1f MB in gzip", m[0], float64(size)/1e6, float64(packed)/1e6)
		}
	}
}

// site is the page, built once by the command that users have.
var site = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(programs, "site")
	cmd := exec.Command("go", "run", "./browser", "-out", dir)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go run ./browser -out: %w\n%s", err, out)
	}
	return dir, nil
})

func builtSite(t *testing.T) string {
	t.Helper()
	needsWasm(t)
	dir, err := site()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestWasmNode runs what the page runs, in Node.js: the worker trains, classifies a
// drawing while it trains, and hands out a file that loads on this machine.
func TestWasmNode(t *testing.T) {
	dir := builtSite(t)
	size, packed := sizes(t, filepath.Join(dir, "mezzo.wasm"))
	holdSizes(t, "`examples/browser`", size, packed)
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed")
	}
	ink := make([]int, 56*56)
	for y := 10; y < 46; y++ {
		for x := 24; x < 30; x++ {
			ink[y*56+x] = 255
		}
	}
	messages, err := json.Marshal([]map[string]any{
		{"type": "train", "policy": "mixed_float16", "epochs": 2, "batch": 128},
		{"type": "draw", "ink": ink, "width": 56, "height": 56, "during": true},
		{"type": "draw", "ink": ink, "width": 56, "height": 56},
		{"type": "sample"},
		{"type": "save"},
	})
	if err != nil {
		t.Fatal(err)
	}
	type message struct {
		Type          string
		Loss          float64
		Accuracy      float64
		Milliseconds  float64
		Bytes         []byte
		Pixels        []int
		Probabilities []float64
	}
	all := map[string][]message{}
	order := []string{}
	for l := range strings.Lines(output(t, nil, node, filepath.Join("browser", "testdata", "node.js"), dir, string(messages))) {
		var m message
		if err := json.Unmarshal([]byte(l), &m); err != nil {
			t.Fatalf("%v: %s", err, l)
		}
		all[m.Type] = append(all[m.Type], m)
		order = append(order, m.Type)
	}
	if got := []int{len(all["ready"]), len(all["step"]), len(all["epoch"]), len(all["done"]), len(all["prediction"]), len(all["file"])}; !slices.Equal(got, []int{1, 150, 2, 1, 3, 1}) {
		t.Fatalf("got %v messages", got)
	}
	if during, done := slices.Index(order, "prediction"), slices.Index(order, "done"); during > done {
		t.Error("what is drawn during the training waits for its end")
	}
	steps := all["step"]
	if first, end := steps[0].Loss, steps[len(steps)-1].Loss; first < 1.5 || end > 0.8 {
		t.Errorf("got a loss of %v in the first step and %v in the last", first, end)
	}
	if got := all["done"][0].Accuracy; got < 0.85 {
		t.Errorf("got test accuracy %v, want 0.85 or more", got)
	}
	if p := all["prediction"][1].Probabilities; slices.Index(p, slices.Max(p)) != 1 {
		t.Errorf("got %v for a vertical bar, want a 1", p)
	}
	times := []float64{}
	for _, s := range steps {
		times = append(times, s.Milliseconds)
	}
	slices.Sort(times)
	t.Logf("Node.js, mixed_float16, batches of 128: %.1f ms a step (median)", times[len(times)/2])

	path := filepath.Join(t.TempDir(), "digits.keras")
	if err := os.WriteFile(path, all["file"][0].Bytes, 0o600); err != nil {
		t.Fatal(err)
	}
	model, err := saving.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	sample := all["prediction"][2]
	x := make([]float32, len(sample.Pixels))
	for i, v := range sample.Pixels {
		x[i] = float32(v) / 255
	}
	y, err := model.Predict(t.Context(), keras.NewTensor(x, 1, len(x)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := y.Values()
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range got {
		if math.Abs(float64(v)-sample.Probabilities[i]) > 1e-2 { // products round to float16
			t.Errorf("the file predicts %v, the page %v", got, sample.Probabilities)
			break
		}
	}
}

// TestPredict: the model that is built in classifies the test images.
func TestPredict(t *testing.T) {
	model, err := saving.Load(filepath.Join("predict", "digits.keras"))
	if err != nil {
		t.Fatal(err)
	}
	images, labels := digits.Raw(500, 2)
	x := make([]float32, len(images))
	for i, v := range images {
		x[i] = float32(v) / 255
	}
	y, err := model.Predict(t.Context(), keras.NewTensor(x, len(labels), 784))
	if err != nil {
		t.Fatal(err)
	}
	p, err := y.Values()
	if err != nil {
		t.Fatal(err)
	}
	right := 0
	for i, l := range labels {
		row := p[10*i : 10*i+10]
		if slices.Index(row, slices.Max(row)) == int(l) {
			right++
		}
	}
	if right < 480 {
		t.Errorf("got %d of %d right, want 480 or more", right, len(labels))
	}
	run := build(t, "predict")
	path := filepath.Join(t.TempDir(), "drawing.txt")
	for text, want := range map[string]string{
		"..\n":                    "has 1 lines, want 14",
		strings.Repeat("x\n", 14): `line 1 has 'x'`,
		strings.Repeat("\n", 13) + strings.Repeat("@", 29): "line 14 has 29 characters",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(filepath.Join(programs, "predict"), path).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%q: got %v and %s, want %q", text, err, out, want)
		}
	}
	if got := run(filepath.Join("predict", "drawing.txt")); got != run() {
		t.Errorf("got %s of the file of the drawing that is built in", got)
	}
}

// TestDocsWasm: docs/wasm.md shows what examples/browser prints, and code of the examples.
// What the command prints is compared with its source, as the page takes long to compile.
func TestDocsWasm(t *testing.T) {
	lines := func(file ...string) (all []string) {
		source, err := os.ReadFile(filepath.Join(file...))
		if err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(string(source)) {
			all = append(all, strings.TrimSpace(l))
		}
		return all
	}
	server := strings.Join(lines("browser", "main.go"), "\n")
	code := append(lines("predict", "main.go"), lines("browser", "worker.go")...)
	printed, shown := 0, 0
	for _, f := range readPage(t, "docs/wasm.md").fences {
		text := slices.Clone(f.text)
		for i := range text {
			text[i] = strings.TrimSpace(text[i])
		}
		if f.language == "go" {
			shown++
			if find(text, code, exactly) == nil {
				t.Errorf("%v: this is no code of the examples:\n%s", f, strings.Join(f.text, "\n"))
			}
		}
		if f.previous != nil && slices.Equal(f.previous.text, []string{"go run ./examples/browser"}) {
			printed++
			for _, l := range text {
				if !strings.Contains(server, strings.Replace(l, "127.0.0.1:8080", "%s", 1)) {
					t.Errorf("%v: examples/browser does not print %q", f, l)
				}
			}
		}
	}
	if printed != 1 || shown != 2 {
		t.Errorf("found %d blocks of output and %d of code", printed, shown)
	}
}

// TestWasmBrowser trains in headless Chromium as a user does: it clicks, draws with the
// mouse while the model learns, and reads the page.
func TestWasmBrowser(t *testing.T) {
	dir := builtSite(t)
	b := openBrowser(t)
	b.visit(dir)
	b.wait(`document.body.dataset.state === "ready"`)
	b.run(`document.getElementById("epochs").value = 4`)
	b.click("#train")
	b.wait(`steps.length > 10`)
	if got := b.run(`document.getElementById("train").textContent`); got != "Stop" {
		t.Errorf("got a button %v, want Stop", got)
	}
	// A two, while the model learns: the page answers meanwhile.
	b.draw("#pad", two())
	b.wait(`document.getElementById("guess").textContent !== "?"`)
	if got := b.run(`document.body.dataset.state`); got != "training" {
		t.Errorf("got the state %v after drawing, want training", got)
	}
	b.wait(`document.body.dataset.state === "done"`)
	b.wait(`!waiting`)
	if got := b.run(`document.getElementById("guess").textContent`); got != "2" {
		t.Errorf("the two is a %v", got)
	}
	if got, ok := b.run(`epochs.at(-1).accuracy`).(float64); !ok || got < 0.85 {
		t.Errorf("got validation accuracy %v, want 0.85 or more", got)
	}
	t.Log(b.run(`document.getElementById("status").textContent + " " + document.getElementById("policy").value + ", batches of " + document.getElementById("batch").value + ": " + median(times).toFixed(1) + " ms a step (median)"`))
	if *screenshot != "" {
		b.picture(*screenshot)
	}
	// Stop ends a training early, under each policy, and the page is ready for the next.
	for _, policy := range []string{"float32", "mixed_bfloat16"} {
		b.run(fmt.Sprintf(`document.getElementById("policy").value = %q; document.getElementById("epochs").value = 50`, policy))
		b.click("#train")
		b.wait(`steps.length > 60`)
		t.Log(policy, b.run(`median(times).toFixed(1)`), "ms a step (median)")
		b.click("#train")
		b.wait(`document.body.dataset.state === "done"`)
	}
	b.run(`HTMLAnchorElement.prototype.click = function () { window.saved = this.download; }`)
	b.click("#save")
	b.wait(`window.saved === "digits.keras"`)
	b.click("#sample")
	b.wait(`document.getElementById("guess").textContent !== "?"`)
	b.click("#clear")
	if got := b.run(`document.getElementById("guess").textContent`); got != "?" {
		t.Errorf("got %v after Clear, want ?", got)
	}
	if problems := b.problems(); len(problems) > 0 {
		t.Errorf("the page reports %v", problems)
	}
}

// A chromium is a headless browser, spoken to by the Chrome DevTools protocol: JSON
// texts that end with a zero byte, on two pipes.
type chromium struct {
	t       *testing.T
	to      *os.File
	answers chan map[string]any
	id      int
	session string
	mu      sync.Mutex
	said    []string // exceptions and errors of the console
}

func openBrowser(t *testing.T) *chromium {
	t.Helper()
	name := ""
	for _, n := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(n); err == nil && name == "" {
			name = path
		}
	}
	if name == "" {
		t.Skip("no Chromium is installed")
	}
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--headless=new", "--remote-debugging-pipe", "--user-data-dir=" + t.TempDir(), "--no-first-run", "--disable-gpu",
		"--disable-dev-shm-usage", "about:blank"}
	if os.Getuid() == 0 {
		args = append([]string{"--no-sandbox"}, args...) // root has none
	}
	cmd := exec.Command(name, args...)
	cmd.ExtraFiles = []*os.File{inRead, outWrite} // 3 and 4
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inRead.Close()
	outWrite.Close()
	b := &chromium{t: t, to: inWrite, answers: make(chan map[string]any, 1)}
	t.Cleanup(func() {
		b.session = ""
		b.send("Browser.close", nil)
		late := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
		defer late.Stop()
		cmd.Wait()
		inWrite.Close()
		outRead.Close()
	})
	go b.listen(json.NewDecoder(zeroes{outRead}))
	target := b.send("Target.createTarget", map[string]any{"url": "about:blank"})
	attached := b.send("Target.attachToTarget", map[string]any{"targetId": target["targetId"], "flatten": true})
	b.session = attached["sessionId"].(string)
	b.send("Emulation.setDeviceMetricsOverride", map[string]any{"width": 1240, "height": 770, "deviceScaleFactor": 1, "mobile": false})
	b.send("Runtime.enable", nil)
	b.send("Log.enable", nil)
	return b
}

// zeroes reads zero bytes as spaces, which JSON passes over.
type zeroes struct{ from *os.File }

func (z zeroes) Read(b []byte) (int, error) {
	n, err := z.from.Read(b)
	for i := range b[:n] {
		if b[i] == 0 {
			b[i] = ' '
		}
	}
	return n, err
}

func (b *chromium) listen(d *json.Decoder) {
	defer close(b.answers)
	for {
		var m map[string]any
		if d.Decode(&m) != nil {
			return
		}
		if m["id"] != nil {
			b.answers <- m
			continue
		}
		said, _ := json.Marshal(m["params"])
		kind := fmt.Sprint(m["method"])
		if kind == "Runtime.exceptionThrown" || kind == "Log.entryAdded" && bytes.Contains(said, []byte(`"level":"error"`)) || kind == "Runtime.consoleAPICalled" {
			b.mu.Lock()
			b.said = append(b.said, string(said))
			b.mu.Unlock()
		}
	}
}

func (b *chromium) problems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said
}

// send calls a method and returns its result.
func (b *chromium) send(method string, params map[string]any) map[string]any {
	b.t.Helper()
	b.id++
	m := map[string]any{"id": b.id, "method": method, "params": params}
	if params == nil {
		m["params"] = map[string]any{}
	}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	text, err := json.Marshal(m)
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	if err != nil {
		b.t.Fatal(err)
	}
	select {
	case answer, ok := <-b.answers:
		if method == "Browser.close" {
			return nil
		}
		result, is := answer["result"].(map[string]any)
		if !ok || !is {
			b.t.Fatalf("%s: got %v", method, answer)
		}
		return result
	case <-time.After(time.Minute):
		b.t.Fatalf("%s: no answer", method)
		return nil
	}
}

// run evaluates an expression in the page.
func (b *chromium) run(expression string) any {
	b.t.Helper()
	r := b.send("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true})
	if e := r["exceptionDetails"]; e != nil {
		b.t.Fatalf("%s: %v", expression, e)
	}
	return r["result"].(map[string]any)["value"]
}

// wait waits until an expression is true.
func (b *chromium) wait(expression string) {
	b.t.Helper()
	for end := time.Now().Add(2 * time.Minute); b.run(expression) != true; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%s: not within two minutes; the page says %v, %v", expression, b.run(`document.getElementById("status")?.textContent`), b.problems())
		}
	}
}

// visit opens the page of a directory.
func (b *chromium) visit(dir string) {
	b.t.Helper()
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	b.t.Cleanup(server.Close)
	b.send("Page.navigate", map[string]any{"url": server.URL})
	b.wait(`document.readyState === "complete" && typeof steps !== "undefined"`)
}

// rectangle is that of an element: left, top, width, height.
func (b *chromium) rectangle(selector string) (r [4]float64) {
	b.t.Helper()
	got := b.run(fmt.Sprintf(`(() => { const r = document.querySelector(%q).getBoundingClientRect(); return [r.left, r.top, r.width, r.height]; })()`, selector))
	for i, v := range got.([]any) {
		r[i] = v.(float64)
	}
	return r
}

func (b *chromium) mouse(kind string, x, y float64) {
	b.t.Helper()
	b.send("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": x, "y": y, "button": "left", "buttons": 1, "clickCount": 1})
}

func (b *chromium) click(selector string) {
	b.t.Helper()
	r := b.rectangle(selector)
	b.mouse("mousePressed", r[0]+r[2]/2, r[1]+r[3]/2)
	b.mouse("mouseReleased", r[0]+r[2]/2, r[1]+r[3]/2)
}

// draw draws a line through points, whose coordinates are in widths and heights of an
// element.
func (b *chromium) draw(selector string, points [][2]float64) {
	b.t.Helper()
	r := b.rectangle(selector)
	for i, p := range points {
		x, y := r[0]+r[2]*p[0], r[1]+r[3]*p[1]
		if i == 0 {
			b.mouse("mousePressed", x, y)
		}
		b.mouse("mouseMoved", x, y)
		if i == len(points)-1 {
			b.mouse("mouseReleased", x, y)
		}
	}
}

// two is how a 2 is drawn: an arc, down to the left, and a stroke to the right.
func two() (points [][2]float64) {
	for i := range 17 {
		turn := (1.1 - 1.35*float64(i)/16) * math.Pi
		points = append(points, [2]float64{0.48 + 0.2*math.Cos(turn), 0.36 - 0.18*math.Sin(turn)})
	}
	return append(points, [2]float64{0.52, 0.58}, [2]float64{0.4, 0.7}, [2]float64{0.29, 0.81}, [2]float64{0.45, 0.8}, [2]float64{0.6, 0.8}, [2]float64{0.74, 0.79})
}

// picture keeps a picture of the page with its 256 most frequent colours, which takes a
// fraction of the bytes.
func (b *chromium) picture(file string) {
	b.t.Helper()
	r := b.send("Page.captureScreenshot", map[string]any{"format": "png"})
	full, err := png.Decode(base64.NewDecoder(base64.StdEncoding, strings.NewReader(r["data"].(string))))
	if err != nil {
		b.t.Fatal(err)
	}
	count := map[color.Color]int{}
	bounds := full.Bounds()
	for y := range bounds.Dy() {
		for x := range bounds.Dx() {
			count[full.At(x, y)]++
		}
	}
	palette := slices.SortedFunc(maps.Keys(count), func(c, d color.Color) int { return count[d] - count[c] })
	few := image.NewPaletted(bounds, palette[:min(len(palette), 256)])
	draw.Draw(few, bounds, full, bounds.Min, draw.Src)
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, few); err != nil {
		b.t.Fatal(err)
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join("..", file) // from the root of the repository
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

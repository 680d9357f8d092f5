//go:build unix

package examples_test

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
)

// pageAddress is what docs/serving.md has in place of the free port of a test.
const pageAddress = "127.0.0.1:8501"

// served is a running examples/serve.
type served struct {
	address string
	printed string      // until it listens
	rest    chan string // what it prints after that
	cmd     *exec.Cmd
}

func startServe(t *testing.T, s *shell, args ...string) *served {
	t.Helper()
	bin, _ := buildAt(t, "serve")
	cmd := exec.Command(bin, append([]string{"-addr", "127.0.0.1:0"}, args...)...)
	cmd.Dir, cmd.Env = s.dir, s.env
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	p := &served{cmd: cmd, rest: make(chan string, 1)}
	for r := bufio.NewReader(pipe); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("%v: %v after\n%s%s", args, err, p.printed, line)
		}
		p.printed += line
		if _, address, ok := strings.Cut(line, "listening address="); ok {
			p.address = strings.TrimSpace(address)
			go func() {
				rest, _ := io.ReadAll(r)
				p.rest <- string(rest)
			}()
			return p
		}
	}
}

// stop ends it as a system does, and returns what it has printed meanwhile.
func (p *served) stop(t *testing.T) string {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { p.cmd.Process.Kill() })
	defer late.Stop()
	rest := <-p.rest
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, rest)
	}
	return rest
}

// curl is what curl prints for a command with -d, -H and an address: not every
// machine has it.
func (p *served) curl(t *testing.T, s *shell, command string) (status int, printed string) {
	t.Helper()
	args := strings.Split(strings.TrimSuffix(s.run(t, `curl() { printf '%s\n' "$@"; }; `+command, nil), "\n"), "\n")
	method, body, address := "GET", "", args[len(args)-1]
	headers := http.Header{}
	for i := 0; i+1 < len(args); i += 2 {
		switch args[i] {
		case "-d":
			method, body = "POST", args[i+1]
		case "-H":
			key, value, _ := strings.Cut(args[i+1], ": ")
			headers.Set(key, value)
		default:
			t.Fatalf("%s: this test does not know %s", command, args[i])
		}
	}
	r, err := http.NewRequest(method, strings.Replace(address, pageAddress, p.address, 1), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = headers
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text) + "\n"
}

// TestServe follows docs/serving.md: the server starts, clients ask it.
func TestServe(t *testing.T) {
	page := readPage(t, "docs/serving.md")
	s := newShell(t)
	var server *served
	n := 0
	for _, f := range page.fences {
		if f.comment != "held by TestServe in examples/serve_unix_test.go" {
			continue
		}
		var printed strings.Builder
		for _, command := range commandsOf(f.previous) {
			switch {
			case command == "go run ./examples/serve":
				server = startServe(t, s)
				printed.WriteString(strings.Replace(server.printed, server.address, pageAddress, 1))
			case strings.HasPrefix(command, "curl ") && server != nil:
				_, text := server.curl(t, s, command)
				printed.WriteString(text)
			default:
				t.Fatalf("%v: this test does not know %q", f, command)
			}
			n++
		}
		hold(t, f, printed.String())
	}
	if n < 5 {
		t.Errorf("%d commands are held", n)
	}
	if rest := server.stop(t); !strings.Contains(rest, "shutting down") {
		t.Errorf("it printed\n%s", rest)
	}
	page.write(t)
}

// TestServeDirectory: a watched directory and a bearer token.
func TestServeDirectory(t *testing.T) {
	s := newShell(t)
	file := filepath.Join(s.dir, "models", "1", "model.keras")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	x := keras.Input(2)
	m, err := keras.NewModel(x, keras.Apply(&layers.Activation{Activation: "relu"}, x))
	if err != nil {
		t.Fatal(err)
	}
	if err := saving.Save(file, m); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "token"), []byte("abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := startServe(t, s, "-token-file", "token", "-max-batch", "4", "m=models")
	if !strings.Contains(server.printed, "loaded model=m version=1 path="+filepath.Join("models", "1", "model.keras")) {
		t.Errorf("it printed\n%s", server.printed)
	}
	ask := ` -d '{"instances": [[-1, 2]]}' http://` + pageAddress + `/v1/models/m:predict`
	var got []string
	for _, headers := range []string{"", ` -H 'Authorization: Bearer abd'`, ` -H 'Authorization: Bearer abc'`} {
		status, text := server.curl(t, s, "curl"+headers+ask)
		got = append(got, http.StatusText(status), strings.TrimSpace(text))
	}
	refused := []string{"Unauthorized", `{"error":"not authorized"}`}
	if want := slices.Concat(refused, refused, []string{"OK", `{"predictions":[[0.0,2.0]]}`}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	server.stop(t)
	for _, wrong := range [][]string{{"models"}, {"m=none"}, {"-token-file", "none"}} {
		bin, _ := buildAt(t, "serve")
		cmd := exec.Command(bin, wrong...)
		cmd.Dir, cmd.Env = s.dir, s.env
		if out, err := cmd.CombinedOutput(); err == nil || len(out) == 0 {
			t.Errorf("%v: got %s", wrong, out)
		}
	}
}

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// peer is another library in a Python process that does what it is told, one
// line of JSON for each request and reply. docs/benchmarks/peers/peer.py is
// the other end.
type peer struct {
	name, version string
	cmd           *exec.Cmd
	in            io.WriteCloser
	out           *bufio.Reader
}

// request asks a peer for one thing: to forget what it has and to list the
// settings for a row (Spec), or to do the work Run times in a Setting, or so many Calls
// that are timed one by one.
type request struct {
	Spec    spec   `json:"spec,omitempty"`
	Policy  string `json:"policy,omitempty"`
	Setting string `json:"setting,omitempty"`
	Run     int    `json:"run,omitempty"`
	Calls   int    `json:"calls,omitempty"`
}

type reply struct {
	Version  string    `json:"version"`
	Settings []string  `json:"settings"`
	Wall     float64   `json:"wall"`  // seconds
	Used     float64   `json:"used"`  // seconds of processor time
	Times    []float64 `json:"times"` // seconds, of each call
	Error    string    `json:"error"`
}

// startPeer starts docs/benchmarks/peers/NAME_peer.py.
func startPeer(ctx context.Context, python, dir, name string, threads int) (*peer, error) {
	script := filepath.Join(dir, name+"_peer.py")
	if _, err := os.Stat(script); err != nil {
		return nil, fmt.Errorf("peer %s: %w; run in the repository's root, or give -peerdir", name, err)
	}
	cmd := exec.CommandContext(ctx, python, script, fmt.Sprint(threads))
	// What steers other BLAS libraries on this machine must not slow peers down.
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "OPENBLAS_") && !strings.HasPrefix(v, "MKL_") && !strings.HasPrefix(v, "DNNL_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, fmt.Sprintf("OMP_NUM_THREADS=%d", threads))
	cmd.Stderr = io.Discard
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("peer %s: %w", name, err)
	}
	p := &peer{name: name, cmd: cmd, in: in, out: bufio.NewReader(out)}
	hello, err := p.read()
	if err != nil {
		p.close()
		return nil, err
	}
	p.version = hello.Version
	return p, nil
}

func (p *peer) close() {
	p.in.Close()
	p.cmd.Wait() //nolint:errcheck // what it did was answered already
}

func (p *peer) ask(q request) (reply, error) {
	b, err := json.Marshal(q)
	if err != nil {
		return reply{}, err
	}
	if _, err := p.in.Write(append(b, '\n')); err != nil {
		return reply{}, fmt.Errorf("peer %s: %w", p.name, err)
	}
	return p.read()
}

// errSetting is a setting that does not run on this machine.
var errSetting = errors.New("it does not run")

func (p *peer) read() (reply, error) {
	b, err := p.out.ReadBytes('\n')
	if err != nil {
		return reply{}, fmt.Errorf("peer %s ended: %w; run its script by hand to see why", p.name, err)
	}
	var r reply
	if err := json.Unmarshal(b, &r); err != nil {
		return reply{}, fmt.Errorf("peer %s: %w in %q", p.name, err, b)
	}
	if r.Error != "" {
		return r, fmt.Errorf("peer %s: %w: %s", p.name, errSetting, r.Error)
	}
	return r, nil
}

// setting is work of a peer in one of its settings.
type setting struct {
	peer *peer
	name string
}

func (s setting) repeat(n int) (wall, used time.Duration, err error) {
	r, err := s.peer.ask(request{Setting: s.name, Run: n})
	return duration(r.Wall), duration(r.Used), err
}

func (s setting) each(n int) ([]time.Duration, error) {
	r, err := s.peer.ask(request{Setting: s.name, Calls: n})
	times := make([]time.Duration, len(r.Times))
	for i, x := range r.Times {
		times[i] = duration(x)
	}
	return times, err
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// tries reports whether one of the patterns, or none there, matches a setting.
func tries(patterns, name string) bool {
	return patterns == "" || slices.ContainsFunc(strings.Split(patterns, ","), func(p string) bool {
		match, _ := path.Match(p, name)
		return match
	})
}

// best finds a peer's fastest setting for a row, by the best of three
// repetitions each: of those named, or of all.
func (p *peer) best(s spec, policy string, least time.Duration, names ...string) (*contender, error) {
	r, err := p.ask(request{Spec: s, Policy: policy})
	if err != nil {
		return nil, err
	}
	best, fastest := &contender{label: "–"}, 0.0
	for _, name := range r.Settings {
		if len(names) > 0 && !slices.Contains(names, name) || !tries(*settings, name) {
			continue
		}
		c := &contender{runner: setting{p, name}, label: name}
		seconds, err := c.fastest(least)
		if errors.Is(err, errSetting) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if best.runner == nil || seconds < fastest {
			best, fastest = c, seconds
		}
	}
	return best, nil
}

// fastest is the time of a call in the best of three repetitions.
func (c *contender) fastest(least time.Duration) (float64, error) {
	if err := c.calibrate(least); err != nil {
		return 0, err
	}
	var times []float64
	for range 3 {
		wall, _, err := c.runner.repeat(c.calls)
		if err != nil {
			return 0, err
		}
		times = append(times, wall.Seconds()/float64(c.calls))
	}
	return slices.Min(times), nil
}

// Package scenario tests what users do: whole programs, written with the public
// API, that must compute the same numbers on every instruction set and with
// every cache and pass on or off. docs/testing.md explains the oracle.
//
// All of it is tests. Instruction set and switches are environment variables
// that a process reads once, so this test binary runs itself, once for each
// configuration, and keeps these worker processes: [TestMain] is their main
// function. A worker gets jobs, which are scenarios or random programs, and
// answers with traces.
package scenario

import (
	"bytes"
	"encoding/gob"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/policy"
)

// workerVariable marks a process as a worker.
const workerVariable = "MEZZO_TEST_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" {
		if err := serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	code := m.Run()
	pool.close()
	os.Exit(code)
}

// job is what a worker is asked to do.
type job struct {
	Scenario string   // name of a scenario
	Program  *program // or a random program
	Policy   string   // of a scenario
	Noise    uint64   // other than 0: the seed of a perturbation, see [run.perturb]
	Size     float64  // of the perturbation
	Fault    string   // a fault to commit on purpose, see [run.fault]
	Halves   bool     // accumulate gradients over two halves of each batch
}

// answer is what came of a job.
type answer struct {
	Records []record
	Broken  []string // absolute truths that do not hold
	Err     string   // the error or panic that ended the job
	Time    time.Duration
}

// hello is what a worker says first.
type hello struct{ ISA string }

// serve is the main function of a worker.
func serve(in io.Reader, out io.Writer) error {
	os.Stdout = os.Stderr // what a program prints must not get among the answers
	enc, dec := gob.NewEncoder(out), gob.NewDecoder(in)
	if err := enc.Encode(hello{ISA: keras.Devices()[0].ISA}); err != nil {
		return err
	}
	for {
		var j job
		if err := dec.Decode(&j); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := enc.Encode(j.do()); err != nil {
			return err
		}
	}
}

// do runs a job in this process.
func (j job) do() (a answer) {
	start := time.Now()
	if j.Program != nil {
		j.Policy = j.Program.Policy
	}
	r := &run{policy: j.Policy, fault: j.Fault, halves: j.Halves, noise: newNoise(j.Noise), size: j.Size}
	defer policy.SetGlobal(policy.SetGlobal(j.Policy))
	defer func() {
		if p := recover(); p != nil {
			var f failure
			if err, ok := p.(error); ok && errors.As(err, &f) {
				a.Err = f.Error()
			} else {
				a.Err = fmt.Sprintf("panic: %v\n%s", p, debug.Stack())
			}
		}
		r.close()
		a.Records, a.Broken, a.Time = r.records, r.broken, time.Since(start)
	}()
	if j.Program != nil {
		r.program(*j.Program)
		return a
	}
	i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == j.Scenario })
	if i < 0 {
		return answer{Err: "there is no scenario " + j.Scenario}
	}
	scenarios[i].run(r)
	return a
}

// config is what a worker process computes with.
type config struct {
	Device string   // MEZZO_DEVICE
	Level  string   // MEZZO_CPU
	Bits   string   // MEZZO_BITS
	Skip   []string // MEZZO_SKIP
	Procs  int      // GOMAXPROCS
}

func (c config) String() string {
	s := "MEZZO_CPU=" + c.Level
	if c.Device != "cpu" && c.Device != "" {
		s = "MEZZO_DEVICE=" + c.Device
	}
	if c.Bits != "" {
		s += " MEZZO_BITS=" + c.Bits
	}
	if len(c.Skip) > 0 {
		s += " MEZZO_SKIP=" + strings.Join(c.Skip, ",")
	}
	return s + " GOMAXPROCS=" + strconv.Itoa(c.Procs)
}

// everything skips all caches and passes.
var everything = []string{"all"}

// worker is a process that does jobs, one at a time.
type worker struct {
	config config
	hello  hello
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    io.ReadCloser
	enc    *gob.Encoder
	dec    *gob.Decoder
	said   syncBuffer // on standard error
	dead   bool
}

// patience is how long a job may take.
const patience = 15 * time.Minute

func start(c config) (*worker, error) {
	if _, err := backend.ParseSkips(strings.Join(c.Skip, ",")); err != nil {
		return nil, err
	}
	w := &worker{config: c, cmd: exec.Command(os.Args[0])}
	w.cmd.Env = append(os.Environ(), "GOGC=400", workerVariable+"=1", "MEZZO_DEVICE="+c.Device, "MEZZO_CPU="+c.Level, "MEZZO_BITS="+c.Bits, "MEZZO_SKIP="+strings.Join(c.Skip, ","), "GOMAXPROCS="+strconv.Itoa(c.Procs))
	w.cmd.Stderr = &w.said
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if w.out, err = w.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	w.enc, w.dec = gob.NewEncoder(w.in), gob.NewDecoder(w.out)
	if err := w.dec.Decode(&w.hello); err != nil {
		w.stop()
		return nil, fmt.Errorf("worker %v: %w\n%s", c, err, w.said.String())
	}
	return w, nil
}

// do has the worker do a job. A worker that dies answers with what it said.
func (w *worker) do(j job) answer {
	if w.dead {
		return answer{Err: "the worker is dead"}
	}
	var late atomic.Bool
	timer := time.AfterFunc(patience, func() { late.Store(true); _ = w.cmd.Process.Kill() })
	defer timer.Stop()
	var a answer
	err := w.enc.Encode(j)
	if err == nil {
		err = w.dec.Decode(&a)
	}
	if err != nil {
		w.stop()
		if late.Load() {
			err = fmt.Errorf("stopped after %v", patience)
		}
		a.Err = fmt.Sprintf("the worker died: %v\n%s", err, w.said.String())
	}
	return a
}

func (w *worker) stop() {
	if w.dead {
		return
	}
	w.dead = true
	_ = w.in.Close()
	timer := time.AfterFunc(5*time.Second, func() { _ = w.cmd.Process.Kill() })
	defer timer.Stop()
	_ = w.cmd.Wait()
}

// syncBuffer is a buffer that a command writes to while others read.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.b.Len() > 1<<20 {
		return len(p), nil
	}
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// workers are the processes in use, one for each configuration.
type workers struct {
	mu   sync.Mutex
	list map[string]*worker
}

var pool = workers{list: map[string]*worker{}}

// get returns the worker of a configuration and starts it if there is none.
func (p *workers) get(c config) (*worker, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.list[c.String()]; w != nil && !w.dead {
		return w, nil
	}
	w, err := start(c)
	if err == nil {
		p.list[c.String()] = w
	}
	return w, err
}

func (p *workers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.list {
		w.stop()
	}
	clear(p.list)
}

// task is a job for the worker of a configuration.
type task struct {
	config config
	job    job
}

// doAll does all tasks, as many at a time as there are processors, and each
// configuration's in order.
func (p *workers) doAll(t testing.TB, tasks []task) []answer {
	t.Helper()
	answers := make([]answer, len(tasks))
	queues := map[*worker][]int{}
	var order []*worker
	for i, k := range tasks {
		w, err := p.get(k.config)
		if err != nil {
			t.Fatal(err)
		}
		if queues[w] == nil {
			order = append(order, w)
		}
		queues[w] = append(queues[w], i)
	}
	var group sync.WaitGroup
	slots := make(chan struct{}, runtime.NumCPU())
	for _, w := range order {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			for _, i := range queues[w] {
				answers[i] = w.do(tasks[i].job)
			}
		})
	}
	group.Wait()
	return answers
}

// levels lists the instruction sets of this processor, from the lowest to the
// highest. A word that it does not have chooses the best it has.
var levels = sync.OnceValues(func() ([]string, error) {
	words := []string{"portable", "avx2", "avx512", "avx512bf16", "amx"}
	if runtime.GOARCH == "arm64" {
		words = []string{"portable", "neon", "neonbf16"}
	}
	var found, seen []string
	for _, word := range words {
		w, err := start(config{Level: word, Procs: 1})
		if err != nil {
			return nil, err
		}
		w.stop()
		if !slices.Contains(seen, w.hello.ISA) {
			found, seen = append(found, word), append(seen, w.hello.ISA)
		}
	}
	return found, nil
})

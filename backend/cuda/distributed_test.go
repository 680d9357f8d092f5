//go:build cuda && linux && amd64

package cuda_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/distribution"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// sockets is an engine of processes: a hub gives what each rank sends to all.
type sockets struct {
	rank, size int
	mu         sync.Mutex
	conn       net.Conn
}

// TestMain cannot be told of ranks, so they are tests that a test starts with these
// variables.
const (
	rankSetting, sizeSetting, socketSetting, trainSetting = "MEZZO_TEST_RANK", "MEZZO_TEST_SIZE", "MEZZO_TEST_SOCKET", "MEZZO_TEST_TRAIN"
)

func joinSockets(context.Context) (distribution.Engine, error) {
	rank, err := strconv.Atoi(os.Getenv(rankSetting))
	if err != nil {
		return nil, distribution.ErrUnavailable
	}
	size, err := strconv.Atoi(os.Getenv(sizeSetting))
	if err != nil {
		return nil, err
	}
	conn, err := net.Dial("unix", os.Getenv(socketSetting))
	if err != nil {
		return nil, err
	}
	return &sockets{rank: rank, size: size, conn: conn}, binary.Write(conn, binary.LittleEndian, int64(rank))
}

// hub serves the ranks until one of them is gone.
func hub(l net.Listener, size int) error {
	conns := make([]net.Conn, size)
	for range size {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		defer c.Close()
		var rank int64
		if err := binary.Read(c, binary.LittleEndian, &rank); err != nil {
			return err
		}
		conns[rank] = c
	}
	for {
		var all []byte
		for _, c := range conns {
			b, err := receive(c)
			if err != nil {
				return err
			}
			all = append(binary.LittleEndian.AppendUint64(all, uint64(len(b))), b...)
		}
		for _, c := range conns {
			if err := send(c, all); err != nil {
				return err
			}
		}
	}
}

func send(w io.Writer, b []byte) error {
	_, err := w.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(b))), b...))
	return err
}

func receive(r io.Reader) ([]byte, error) {
	var n uint64
	if err := binary.Read(r, binary.LittleEndian, &n); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

// share returns what each rank has sent.
func (s *sockets) share(b []byte) ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := send(s.conn, b); err != nil {
		return nil, err
	}
	text, err := receive(s.conn)
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for len(text) > 0 {
		n := binary.LittleEndian.Uint64(text)
		all, text = append(all, text[8:8+n]), text[8+n:]
	}
	return all, nil
}

func (s *sockets) Name() string   { return "sockets" }
func (s *sockets) Rank() int      { return s.rank }
func (s *sockets) Size() int      { return s.size }
func (s *sockets) LocalRank() int { return s.rank }
func (s *sockets) LocalSize() int { return s.size }

func (s *sockets) AllToAll(_ context.Context, b, recv []byte) error {
	all, err := s.share(b)
	part := len(b) / s.size
	for i, x := range all {
		copy(recv[i*part:(i+1)*part], x[s.rank*part:])
	}
	return err
}

func (s *sockets) AllGather(_ context.Context, b, recv []byte) error {
	all, err := s.share(b)
	copy(recv, slices.Concat(all...))
	return err
}

func (s *sockets) Broadcast(_ context.Context, b []byte, root int) error {
	all, err := s.share(b)
	if err == nil {
		copy(b, all[root])
	}
	return err
}

func (s *sockets) Barrier(context.Context) error              { _, err := s.share(nil); return err }
func (s *sockets) Abort(code int, _ error)                    { os.Exit(code) }
func (s *sockets) Leave(ctx context.Context) error            { return s.Barrier(ctx) }
func (s *sockets) AllReduce(context.Context, []float32) error { return errors.New("not on the CPU") }

func init() { distribution.Register("sockets", joinSockets) }

// ranks starts so many ranks of TestRank, each on a GPU of the fake driver, and returns
// what they print, with the first error.
func ranks(t *testing.T, size int, train string, env ...string) ([]string, error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ranks") // short: a socket's path is
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- hub(l, size) }()
	out, failed := make([]string, size), make([]error, size)
	var wg sync.WaitGroup
	for rank := range size {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0], "-test.run=^TestRank$")
			cmd.Env = slices.Concat(os.Environ(), []string{"MEZZO_CUDA_TEST=gpu", "MEZZO_DEVICE=cuda", "FAKECUDA_DEVICES=" + strconv.Itoa(size), "TMPDIR=" + dir,
				rankSetting + "=" + strconv.Itoa(rank), sizeSetting + "=" + strconv.Itoa(size), socketSetting + "=" + filepath.Join(dir, "socket"), trainSetting + "=" + train}, env)
			b, err := cmd.CombinedOutput()
			out[rank], failed[rank] = string(b), err
		})
	}
	wg.Wait()
	l.Close()
	<-served
	return out, errors.Join(failed...)
}

// options of a training, by name.
var trainings = map[string]func(d *distribution.DataParallel) (policy string){
	"float32":        func(*distribution.DataParallel) string { return "float32" },
	"mixed_bfloat16": func(*distribution.DataParallel) string { return "mixed_bfloat16" },
	"mixed_float16":  func(*distribution.DataParallel) string { return "mixed_float16" },
	"zero":           func(d *distribution.DataParallel) string { d.ZeroRedundancy = true; return "mixed_float16" },
	"wire":           func(d *distribution.DataParallel) string { d.Wire = dtype.BFloat16; return "mixed_bfloat16" },
	"engine":         func(d *distribution.DataParallel) string { d.Engine, d.Shards = true, 0; return "mixed_bfloat16" },
}

// TestRank is a rank that ranks has started: it trains, and prints the hash of its
// variables.
func TestRank(t *testing.T) {
	if os.Getenv(rankSetting) == "" {
		t.Skip("a rank of another test")
	}
	distribution.Main(func(ctx context.Context, world *distribution.Group) error {
		d := &distribution.DataParallel{Group: world, Shards: 4, BucketBytes: 1 << 10}
		policy := trainings[os.Getenv(trainSetting)](d)
		hash, err := trainRank(ctx, d, policy)
		if err == nil {
			fmt.Println("weights:", hash)
		}
		return err
	})
}

// trainRank trains a small model with batch normalization of the whole batch, dropout
// and short batches. The loss scale overflows in the first steps under mixed_float16.
func trainRank(ctx context.Context, d *distribution.DataParallel, policy string) (string, error) {
	m := keras.Sequential(
		&layers.Dense{Units: 24, DType: policy},
		&layers.BatchNormalization{Synchronized: true, DType: policy},
		&layers.Dropout{Rate: 0.25, DType: policy},
		&layers.Dense{Units: 5, DType: policy},
	)
	if err := m.SetSeed(7); err != nil {
		return "", err
	}
	var optimizer optimizers.Optimizer = &optimizers.Adam{LearningRate: 0.01}
	if policy == "mixed_float16" {
		optimizer = &optimizers.LossScaleOptimizer{Inner: optimizer, InitialScale: 1 << 24}
	}
	err := m.Compile(keras.CompileConfig{Optimizer: optimizer, Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}, Distribution: d})
	if err != nil {
		return "", err
	}
	const rows, width = 70, 13
	x, y := make([]float32, rows*width), make([]int64, rows)
	for i := range x {
		x[i] = float32((i*i+3*i)%17)/8 - 1
	}
	for i := range y {
		y[i] = int64(i % 5)
	}
	data := keras.FromTensors(tensor.New(x, rows, width), tensor.New(y, rows), nil)
	if _, err := m.Fit(ctx, data, keras.FitConfig{BatchSize: 16, Epochs: 3, Output: io.Discard}); err != nil {
		return "", err
	}
	if r, err := m.StepResult(); err != nil || policy == "mixed_float16" && (r.SkippedSteps == 0 || r.AppliedSteps == 0) {
		return "", fmt.Errorf("%d steps skipped, %d applied (%v)", r.SkippedSteps, r.AppliedSteps, err)
	}
	if err := d.Group.Same(m, m.Optimizer()); err != nil {
		return "", err
	}
	device, err := backend.Default()
	if err != nil {
		return "", err
	}
	if want := "cuda" + []string{"", ":1", ":2", ":3"}[d.Group.LocalRank()]; device.Name() != want {
		return "", fmt.Errorf("rank %d computes on %s, want %s", d.Group.Rank(), device.Name(), want)
	}
	h := sha256.New()
	for _, o := range []keras.Stateful{m, m.Optimizer()} {
		for _, v := range o.Variables() {
			if p, _ := v.Partition(); p != nil { // a slot of which this rank has a part
				continue
			}
			b, err := v.Bytes()
			if err != nil {
				return "", err
			}
			h.Write(b)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}

// TestDistributed: Fit on 1 to 4 processes, each with a GPU, ends with the same variables,
// to the bit; with 16-bit messages, or the library's sum, with the same on all.
func TestDistributed(t *testing.T) {
	if os.Getenv("FAKECUDA") == "" {
		t.Skip("uses the GPUs of the fake driver")
	}
	hash := func(t *testing.T, size int, train string) string {
		out, err := ranks(t, size, train)
		if err != nil {
			t.Fatalf("%d ranks: %v\n%s", size, err, strings.Join(out, "\n"))
		}
		_, h, _ := strings.Cut(out[0], "weights: ")
		for rank, s := range out {
			if _, other, ok := strings.Cut(s, "weights: "); !ok || other != h {
				t.Fatalf("%d ranks: rank %d has printed %s, rank 0 %s", size, rank, s, out[0])
			}
		}
		return h
	}
	for train, sizes := range map[string][]int{"float32": {1, 2, 3, 4}, "mixed_bfloat16": {1, 2}, "mixed_float16": {1, 4}, "zero": {2, 3}} {
		t.Run(train, func(t *testing.T) {
			want := ""
			for _, size := range sizes {
				if h := hash(t, size, train); want == "" {
					want = h
				} else if h != want {
					t.Errorf("%d ranks end with the weights %s, fewer with %s", size, h, want)
				}
			}
		})
	}
	for _, train := range []string{"wire", "engine"} {
		t.Run(train, func(t *testing.T) {
			if a, b := hash(t, 3, train), hash(t, 3, train); a != b {
				t.Errorf("weights %s, and %s in a second run", a, b)
			}
		})
	}
}

// TestDistributedFailure: when a rank is killed, the others end with an error that names
// the exchange, without waiting for the timeout.
func TestDistributedFailure(t *testing.T) {
	if os.Getenv("FAKECUDA") == "" {
		t.Skip("uses the GPUs of the fake driver")
	}
	begin := time.Now()
	out, err := ranks(t, 2, "float32", "FAKENCCL_FAULT=1:9")
	if err == nil || !strings.Contains(out[1], "rank 1 of 2: ") || !strings.Contains(out[1], "layer data_parallel") || !strings.Contains(out[1], "an error on request") {
		t.Errorf("got %v, and of rank 1\n%s", err, out[1])
	}
	if took := time.Since(begin); took > 60*time.Second {
		t.Errorf("it took %v", took)
	}
}

//go:build cuda && linux && amd64

package nccl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/api"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/fake"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/nvlib"
)

// TestMain builds the fake driver with its libraries, unless a real one is tested.
func TestMain(m *testing.M) {
	if os.Getenv("MEZZO_NCCL") != "" { // needs no driver
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "fakenccl")
	var driver string
	if err == nil {
		if driver, err = fake.BuildBare(dir); err == nil {
			err = errors.Join(os.Setenv(api.DriverSetting, driver), os.Setenv(nvlib.Setting, filepath.Dir(driver)), os.Setenv("FAKECUDA_DEVICES", "2"), os.Setenv("TMPDIR", dir))
		}
	}
	code := 1
	if err == nil {
		code = m.Run()
	} else {
		println(err.Error())
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// TestReal loads the libraries of NVIDIA that MEZZO_NCCL names, separated by colons; they
// need no GPU for that.
func TestReal(t *testing.T) {
	if os.Getenv("MEZZO_NCCL") == "" {
		t.Skip("MEZZO_NCCL does not name a library libnccl.so.2")
	}
	for _, path := range strings.Split(os.Getenv("MEZZO_NCCL"), ":") {
		l, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		id, err := l.UniqueID()
		if err != nil || len(id) != IDBytes {
			t.Errorf("%s: unique id of %d bytes (%v)", path, len(id), err)
		}
		_, err = l.NewComm(id, 0, 1)
		t.Logf("%s: NCCL %v, %v", path, l, err) // without a GPU an error
	}
}

func TestVersion(t *testing.T) {
	l, err := Open(12040)
	if err != nil || l.String() != "2.27.0" {
		t.Fatalf("NCCL %v (%v), want 2.27.0", l, err)
	}
	t.Setenv("FAKENCCL_VERSION", "20804")
	if _, err := Open(12040); err == nil || !strings.Contains(err.Error(), "libnccl.so.2 (is NCCL 2.8.4, want 2.11 or newer)") {
		t.Errorf("got %v, want an error with the version", err)
	}
	if _, err := l.NewComm(make([]byte, 3), 0, 1); err == nil {
		t.Error("an id of 3 bytes is taken")
	}
}

// onDevices calls f as two ranks with a device each, its context current.
func onDevices(t *testing.T, f func(c *Comm, rank int) error) {
	t.Helper()
	l, err := Open(12040)
	if err != nil {
		t.Fatal(err)
	}
	id, err := l.UniqueID()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for rank := range 2 {
		wg.Go(func() {
			err := func() error {
				d, err := api.Open(rank)
				if err == nil {
					err = d.Enter()
				}
				if err != nil {
					return err
				}
				defer d.Leave()
				c, err := l.NewComm(id, rank, 2)
				if err != nil {
					return err
				}
				return errors.Join(f(c, rank), c.Close())
			}()
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	wg.Wait()
}

// TestSum: a sum is read right by a stream that waits for it, and one that does not gets
// what was there before. So the fake library shows a wait that is missing.
func TestSum(t *testing.T) {
	const n = 1000
	for _, waits := range []bool{true, false} {
		onDevices(t, func(c *Comm, rank int) error {
			x, err := api.Alloc(4 * n)
			if err != nil {
				return err
			}
			y, err := api.Alloc(4 * n)
			if err != nil {
				return err
			}
			main, err := api.NewStream()
			if err != nil {
				return err
			}
			side, err := api.NewStream()
			if err != nil {
				return err
			}
			filled, err := api.NewEvent()
			if err != nil {
				return err
			}
			summed, err := api.NewEvent()
			if err != nil {
				return err
			}
			err = errors.Join(main.FillWords(x, math.Float32bits(float32(rank+1)), n), main.Record(filled), side.After(filled),
				c.AllReduce(side.Handle(), uint64(x), n), side.Record(summed))
			if waits {
				err = errors.Join(err, main.After(summed))
			}
			got, want := make([]byte, 4*n), float32(rank+1)
			if err = errors.Join(err, main.Copy(y, x, 4*n), main.CopyOut(got, y), main.Wait(), side.Wait()); err != nil {
				return err
			}
			if waits {
				want = 3
			}
			for i := range n {
				if v := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])); v != want {
					return fmt.Errorf("waits %v: element %d is %v, want %v", waits, i, v, want)
				}
			}
			return c.Failed()
		})
	}
}

// TestCapture: a stream that takes part in a capture must be joined with the first one
// again, and events of a capture that has ended are no others'.
func TestCapture(t *testing.T) {
	d, err := api.Open(0)
	if err == nil {
		err = d.Enter()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer d.Leave()
	main, err := api.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	side, err := api.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	fork, err := api.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	join, err := api.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	x, err := api.Alloc(4)
	if err != nil {
		t.Fatal(err)
	}
	forked := func() error { return errors.Join(main.Record(fork), side.After(fork), side.FillWords(x, 7, 1)) }
	if _, err := main.Capture(forked); err == nil || !strings.Contains(err.Error(), "(904)") {
		t.Errorf("a stream that is not joined: got %v", err)
	}
	if err := side.After(fork); err == nil || !strings.Contains(err.Error(), "(907)") {
		t.Errorf("an event of a capture that has ended: got %v", err)
	}
	g, err := main.Capture(func() error { return errors.Join(forked(), side.Record(join), main.After(join)) })
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got := make([]byte, 4)
		if err := errors.Join(main.FillWords(x, 0, 1), main.Start(g), main.CopyOut(got, x), main.Wait()); err != nil || got[0] != 7 {
			t.Errorf("got %v (%v), want 7", got, err)
		}
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
}

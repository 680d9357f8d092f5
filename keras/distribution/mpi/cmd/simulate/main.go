// Command simulate estimates how long a training step takes on 8 to 1,024 ranks, from times
// that were measured on one or two: of a step, of packing gradients, and of the network.
//
//	go run ./cmd/simulate -step 500ms -bytes 80000000
//
// The model has a latency α and a bandwidth β for each message:
//
//   - Each rank has its batch, whatever their number. Without an exchange all steps take
//     -step, of which the last -backward is the backward pass.
//   - The backward pass makes gradients at an even rate. They are exchanged in buckets, as
//     DataParallel cuts them: the first of 1 MiB, the others of -bucket.
//   - Buckets are exchanged one after the other, each from when its gradients are there. They
//     are cut into pieces of 2 MiB, or N·256 KiB if that is more. A piece of B bytes on N ranks
//     takes two times (N-1)·α + (N-1)/N·B/β, for the all-to-all and the all-gather, and B/pack
//     to be added up. It is packed while the one before is exchanged, and unpacked while the
//     next is: the first and the last piece of a bucket take B/pack more.
//   - Ranks are on machines of their own and their network has no bottleneck. They take
//     equally long, and what the exchange computes takes no time from the backward pass.
//     Real steps vary, and wait for the slowest rank.
package main

import (
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"text/tabwriter"
	"time"
)

// firstBucket is the size of the first bucket of gradients, as in package tensor.
const firstBucket = 1 << 20

// Bytes of a piece of all ranks, and of the part of one, at least: as in backend/cpu.
const (
	pieceBytes   = 2 << 20
	messageBytes = 256 << 10
)

// network is the latency of a message in seconds, and bytes per second.
type network struct {
	name        string
	alpha, beta float64
}

// networks are common ones: what MPI reaches on them between two machines.
var networks = []network{
	{"25 Gb/s, 30 µs", 30e-6, 2.8e9}, // Ethernet with TCP
	{"100 Gb/s, 5 µs", 5e-6, 11e9},   // RoCE
	{"200 Gb/s, 2 µs", 2e-6, 23e9},   // InfiniBand HDR
}

// workload is what ranks do in a step.
type workload struct {
	step     float64 // seconds, without an exchange
	backward float64 // share of the step
	bytes    float64 // of gradients
	bucket   float64 // bytes
	pack     float64 // bytes per second
}

// buckets returns the bytes of each bucket.
func (w workload) buckets() (all []float64) {
	left, size := w.bytes, min(firstBucket, w.bucket)
	for left > 0 {
		all = append(all, min(size, left))
		left -= size
		size = w.bucket
	}
	return all
}

// exchange is how long a bucket takes on some ranks.
func (n network) exchange(bytes, pack float64, ranks int) float64 {
	if ranks == 1 {
		return 0
	}
	others, pieces := float64(ranks-1), math.Ceil(bytes/float64(max(pieceBytes, ranks*messageBytes)))
	piece := bytes / pieces
	took := pieces*(2*(others*n.alpha+others/float64(ranks)*piece/n.beta)+piece/pack) + 2*piece/pack
	return max(took, (2*bytes+piece)/pack) // of which one thread packs and unpacks
}

// simulate returns how long a step takes, and how long its exchanges take in all.
func (w workload) simulate(n network, ranks int) (step, exchanges float64) {
	done, free := 0.0, w.step*(1-w.backward) // bytes whose gradients are there; when the network is free
	for _, bytes := range w.buckets() {
		done += bytes
		there := w.step*(1-w.backward) + w.step*w.backward*done/w.bytes
		took := n.exchange(bytes, w.pack, ranks)
		free = max(free, there) + took
		exchanges += took
	}
	return max(w.step, free), exchanges
}

// print writes a table.
func (w workload) print(to io.Writer) error {
	t := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprint(t, "ranks")
	for _, n := range networks {
		fmt.Fprintf(t, "\t%s", n.name)
	}
	fmt.Fprintln(t)
	for ranks := 8; ranks <= 1024; ranks *= 2 {
		fmt.Fprint(t, ranks)
		for _, n := range networks {
			step, exchanges := w.simulate(n, ranks)
			fmt.Fprintf(t, "\t%.0f ms, %.0f %% (exchange %.0f ms)", 1e3*step, 100*w.step/step, 1e3*exchanges)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

func run(to io.Writer, args []string) error {
	f := flag.NewFlagSet("simulate", flag.ContinueOnError)
	f.SetOutput(to)
	step := f.Duration("step", time.Second, "time of a step of one rank without an exchange")
	w := workload{}
	f.Float64Var(&w.backward, "backward", 2.0/3, "share of the backward pass in it, from 0 to 1")
	f.Float64Var(&w.bytes, "bytes", 80e6, "bytes of all gradients, in the type of the wire")
	f.Float64Var(&w.bucket, "bucket", 25<<20, "DataParallel.BucketBytes")
	f.Float64Var(&w.pack, "pack", 8e9, "bytes per second that a rank packs, adds up or unpacks")
	if err := f.Parse(args); err != nil {
		return err
	}
	if w.step = step.Seconds(); w.step <= 0 || !(w.backward >= 0 && w.backward <= 1) || !(w.bytes > 0 && w.bucket >= 1 && w.pack > 0) || w.bytes/w.bucket > 1e6 || f.NArg() > 0 {
		return fmt.Errorf("simulate: got %+v and the arguments %q, want positive numbers, -backward from 0 to 1, and at most a million buckets", w, f.Args())
	}
	return w.print(to)
}

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

package mpi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mezzo-ml/mezzo/keras/distribution"
	"github.com/mezzo-ml/mezzo/keras/distribution/mpi/internal/libmpi"
)

const (
	// idle is the time between two looks for questions of other ranks.
	idle = 100 * time.Millisecond
	// patience is how long a rank may take to answer. It answers while it computes, and
	// while it waits in a call.
	patience = 3 * time.Second
)

// watcher tells which rank is missing in a call that has waited for too long. On a
// communicator of its own it asks all ranks where they are; the watcher of each answers,
// whatever else the rank does. As long as no call fails, nothing is sent.
type watcher struct {
	lib        *libmpi.Library
	comm       libmpi.Comm
	rank, size int
	peers      []peer
	ask        chan chan map[int]report
	stopping   chan chan error

	mu   sync.Mutex
	last [64]place // by the number of the call
	now  uint64    // number of calls so far

	// Of the goroutine run:
	received libmpi.Request
	mail     []byte
	sending  []*sent
	answers  map[int]report
	stopped  bool
}

// place is a call of a rank.
type place struct {
	call  uint64 // 1 is the first
	op    operation
	bytes int
}

// report is the answer of a rank.
type report struct {
	now  place // the last call
	then place // the call with the number of the one that the rank that asks is in
}

func (p place) String() string {
	if p.op == none {
		return "no call yet"
	}
	return fmt.Sprintf("%v of %d bytes (call %d)", p.op, p.bytes, p.call)
}

// sent is a message on its way, with its memory.
type sent struct {
	request libmpi.Request
	text    []byte
}

// Kinds of messages.
const (
	question = iota
	answer
	end // to itself
)

const messageSize = 56

// message returns the text of a message. A question has the place of the rank that asks
// as now.
func message(kind, rank int, r report) []byte {
	var b []byte
	for _, x := range []uint64{uint64(kind)<<32 | uint64(rank), r.now.call, uint64(r.now.op), uint64(r.now.bytes), r.then.call, uint64(r.then.op), uint64(r.then.bytes)} {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b
}

func parse(b []byte) (kind, rank int, r report) {
	x := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	at := func(i int) place { return place{x(i), operation(x(i + 1)), int(x(i + 2))} }
	return int(x(0) >> 32), int(uint32(x(0))), report{at(1), at(4)}
}

// newWatcher begins to answer the questions of other ranks.
func newWatcher(lib *libmpi.Library, comm libmpi.Comm, rank int, peers []peer) (*watcher, error) {
	w := &watcher{lib: lib, comm: comm, rank: rank, size: len(peers), peers: peers,
		ask: make(chan chan map[int]report), stopping: make(chan chan error), mail: make([]byte, messageSize)}
	if err := lib.Receive(comm, w.mail, &w.received); err != nil {
		return nil, err
	}
	go w.run()
	return w, nil
}

// enter notes that a call begins.
func (w *watcher) enter(op operation, bytes int) {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.now++
	w.last[w.now%uint64(len(w.last))] = place{w.now, op, bytes}
	w.mu.Unlock()
}

// report returns the last call, and the one with a number: if it is not known, its op is
// none.
func (w *watcher) report(call uint64) report {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := report{now: w.last[w.now%uint64(len(w.last))], then: w.last[call%uint64(len(w.last))]}
	if r.then.call != call {
		r.then = place{}
	}
	return r
}

func (w *watcher) run() {
	ticker := time.NewTicker(idle)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.poll()
		case reply := <-w.ask:
			reply <- w.question()
		case reply := <-w.stopping:
			reply <- w.end()
			return
		}
	}
}

// poll answers the questions that have come, and takes answers.
func (w *watcher) poll() error {
	for i := 0; i < len(w.sending); i++ {
		if done, err := w.lib.Test(&w.sending[i].request); err != nil {
			return err
		} else if done {
			w.sending = append(w.sending[:i], w.sending[i+1:]...)
			i--
		}
	}
	for {
		done, err := w.lib.Test(&w.received)
		if err != nil || !done {
			return err
		}
		kind, rank, r := parse(w.mail)
		if kind == end {
			w.stopped = true
			return nil
		}
		if err := w.lib.Receive(w.comm, w.mail, &w.received); err != nil {
			return err
		}
		if rank < 0 || rank >= w.size {
			continue
		}
		if kind == answer {
			if w.answers != nil {
				w.answers[rank] = r
			}
			continue
		}
		if err := w.send(answer, rank, w.report(r.now.call)); err != nil {
			return err
		}
	}
}

func (w *watcher) send(kind, to int, r report) error {
	s := &sent{text: message(kind, w.rank, r)}
	w.sending = append(w.sending, s)
	return w.lib.Send(w.comm, s.text, to, &s.request)
}

// question returns what the ranks say that answer.
func (w *watcher) question() map[int]report {
	w.answers = map[int]report{}
	own := w.report(0)
	for rank := range w.size {
		if rank != w.rank && w.send(question, rank, own) != nil {
			break
		}
	}
	for until := time.Now().Add(patience); len(w.answers) < w.size-1 && time.Now().Before(until); time.Sleep(idle / 50) {
		if w.poll() != nil {
			break
		}
	}
	return w.answers
}

// end completes all messages: the last one that is received is sent by this rank.
func (w *watcher) end() error {
	if err := w.send(end, w.rank, report{}); err != nil {
		return err
	}
	for until := time.Now().Add(patience); !w.stopped || len(w.sending) > 0; time.Sleep(time.Millisecond / 10) {
		if w.stopped {
			w.sending = nil // Finalize completes what has been sent
			break
		}
		if err := w.poll(); err != nil {
			return err
		}
		if time.Now().After(until) {
			return errors.New("a message of this rank to itself has not come")
		}
	}
	return nil
}

// stop ends the watcher, before MPI_Finalize.
func (w *watcher) stop(ctx context.Context) error {
	if w == nil {
		return nil
	}
	reply := make(chan error, 1)
	select {
	case w.stopping <- reply:
		return <-reply
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// explain returns the error of a call that has waited too long.
func (w *watcher) explain(op operation, waited time.Duration, cause error) error {
	if w == nil {
		return fmt.Errorf("mpi: %v has waited %v; the library does not grant MPI_THREAD_MULTIPLE, so the rank that is missing is not known: %w", op, waited, cause)
	}
	reply := make(chan map[int]report, 1)
	w.ask <- reply
	own := w.report(0).now
	return diagnose(own, own.String(), w.rank, w.peers, <-reply, waited, cause)
}

// Missing implements distribution.Locator: of the ranks that answer, those are behind
// that have made fewer calls.
func (e *engine) Missing(what string, waited time.Duration, cause error) error {
	w := e.watch
	if w == nil {
		return fmt.Errorf("mpi: rank %d has waited %v in %s; the library does not grant MPI_THREAD_MULTIPLE, so the rank that is missing is not known: %w", e.rank, waited, what, cause)
	}
	reply := make(chan map[int]report, 1)
	w.ask <- reply
	return diagnose(w.report(0).now, what, w.rank, w.peers, <-reply, waited, cause)
}

// Err implements distribution.Locator: a launcher ends the ranks of one that has failed.
func (e *engine) Err() error { return nil }

// diagnose returns the error of rank, which has waited at its place, or in what, given what
// the ranks say that have answered.
func diagnose(own place, what string, rank int, peers []peer, answers map[int]report, waited time.Duration, cause error) error {
	var silent, behind, elsewhere []int
	for r := range peers {
		a, answered := answers[r]
		switch {
		case r == rank:
		case !answered:
			silent = append(silent, r)
		case a.now.call < own.call:
			behind = append(behind, r)
		case a.then.op != none && a.then != own:
			elsewhere = append(elsewhere, r)
		}
	}
	describe := func(ranks []int, format string, args ...any) error {
		text := fmt.Sprintf(format, args...)
		if len(ranks) > 1 {
			text += fmt.Sprintf(" (and so ranks %v)", ranks[1:])
		}
		at := peers[ranks[0]]
		return &distribution.RankError{Rank: ranks[0], Err: fmt.Errorf("process %d on %s: %s; rank %d has waited %v in %s: %w", at.PID, at.Host, text, rank, waited, what, cause)}
	}
	switch {
	case len(silent) > 0:
		return describe(silent, "it does not answer")
	case len(behind) > 0:
		return describe(behind, "it has not joined; its last call was %v", answers[behind[0]].now)
	case len(elsewhere) > 0:
		return describe(elsewhere, "it has made another call, %v", answers[elsewhere[0]].then)
	}
	return fmt.Errorf("mpi: rank %d has waited %v in %s, which all ranks have joined: %w", rank, waited, what, cause)
}

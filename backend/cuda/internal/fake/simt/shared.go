package simt

import "fmt"

// layout is where the shared variables of a kernel lie. Between them are gaps, so
// that an index that is too large does not end up in the next variable.
type layout struct {
	bytes   int
	ranges  []extent
	granule int // bytes that are watched together: the smallest access
}

type extent struct{ begin, end int }

// gap is the least distance of shared variables.
const gap = 256

// place finds memory for a variable.
func (s *layout) place(v variable) uint64 {
	at := roundUp(s.bytes, max(v.align, 16))
	s.ranges = append(s.ranges, extent{at, at + v.bytes})
	s.bytes = at + v.bytes + gap
	return uint64(at)
}

// granule is the size of the smallest access of shared memory.
func (b *builder) granule() int {
	n := 16
	for i := range b.code {
		in := &b.code[i]
		switch {
		case in.kind == copies:
			n = min(n, 4)
		case in.space == shared || in.space == generic && (in.kind == loads || in.kind == stores):
			n = min(n, in.bytes)
		}
	}
	return n
}

// mark says of a granule who wrote or read it last: the thread in the lower 16 bits,
// above them the number of bar.warp.sync of its warp since the last bar.sync, and
// above that the number of bar.sync.
type mark uint64

const (
	never   mark = 0              // not written yet
	outside mark = 1 << 63        // of no variable
	flying  mark = 1 << 62        // of cp.async, on its way
	epochs  mark = flying - 1<<32 // the number of barriers
	ordinal mark = 1<<32 - 1<<16  // that of bar.warp.sync
	threads mark = 1<<16 - 1

	severalOfWarp mark = 1 << 15 // with the number of the warp: several threads of it
	several       mark = threads // threads of several warps: of none that there is
)

// now is the mark of a thread.
func now(barriers, converged uint64, thread int) mark {
	return mark(barriers+1)<<32&epochs | mark(converged)<<16&ordinal | mark(thread)
}

// warpOf is the warp of a mark's threads.
func warpOf(m mark) mark {
	if m&severalOfWarp != 0 {
		return m & (severalOfWarp - 1)
	}
	return m & threads / width
}

// both is the mark of readers that have two marks.
func both(m, by mark) mark {
	switch {
	case m&epochs != by&epochs || m&threads == by&threads:
		return by
	case warpOf(m) != warpOf(by):
		return by | several
	}
	return by&^threads | severalOfWarp | warpOf(by)
}

// apart reports whether what m stands for, by another thread, is not ordered before
// what by does: by a barrier since then, or for threads of one warp by a
// bar.warp.sync.
func apart(m, by mark) bool {
	if m&epochs != by&epochs || m&threads == by&threads {
		return false
	}
	return warpOf(m) != warpOf(by) || m&ordinal == by&ordinal
}

// sharedMemory is that of the block that runs.
type sharedMemory struct {
	layout
	data    []byte
	writers []mark
	readers []mark
	shift   uint // of addresses to granules
}

func newShared(l layout, dynamic int) *sharedMemory {
	if dynamic > 0 {
		l.ranges = append(l.ranges[:len(l.ranges):len(l.ranges)], extent{l.bytes, l.bytes + dynamic})
		l.bytes += dynamic
	}
	s := &sharedMemory{layout: l}
	for 1<<s.shift < l.granule {
		s.shift++
	}
	s.data = make([]byte, l.bytes)
	n := l.bytes>>s.shift + 1
	s.writers, s.readers = make([]mark, n), make([]mark, n)
	return s
}

// clear begins a block.
func (s *sharedMemory) clear() {
	for i := range s.writers {
		s.writers[i] = outside
	}
	for _, r := range s.ranges {
		for i := r.begin >> s.shift; i < (r.end+1<<s.shift-1)>>s.shift; i++ {
			s.writers[i] = never
		}
	}
	clear(s.readers)
	for i := range s.data {
		s.data[i] = 0xcb
	}
}

// inside checks the address of an access, and reports what is wrong with it.
func (s *sharedMemory) inside(a uint64, bytes int) error {
	if a%uint64(bytes) != 0 {
		return fmt.Errorf("shared address %#x is not aligned to %d bytes", a, bytes)
	}
	if n := uint64(len(s.data)); a > n || a+uint64(bytes) > n || s.writers[a>>s.shift]&outside != 0 || s.writers[(a+uint64(bytes)-1)>>s.shift]&outside != 0 {
		return fmt.Errorf("shared address %#x of %d bytes is out of bounds: variables lie at %v", a, bytes, s.ranges)
	}
	return nil
}

// read notes that a thread reads, and checks that it may.
func (s *sharedMemory) read(a uint64, bytes int, by mark) error {
	if err := s.inside(a, bytes); err != nil {
		return err
	}
	for g := a >> s.shift; g <= (a+uint64(bytes)-1)>>s.shift; g++ {
		w, r := s.writers[g], s.readers[g]
		if (w^by)&epochs != 0 && w&flying == 0 && w != never && (r == by || (r^by)&epochs != 0) {
			s.readers[g] = by // the frequent case
			continue
		}
		switch {
		case w == never:
			return fmt.Errorf("shared address %#x is read before it is written", a)
		case w&flying != 0:
			return fmt.Errorf("shared address %#x is read while cp.async of thread %d still writes it", a, w&threads)
		case apart(w, by):
			return fmt.Errorf("race: shared address %#x is read by %s and written by thread %d without a barrier between", a, reader(by), w&threads)
		}
		s.readers[g] = both(r, by)
	}
	return nil
}

// write notes that a thread writes, and checks that it may. Threads may write the
// same bytes: changes says that these are not.
func (s *sharedMemory) write(a uint64, bytes int, by mark, changes bool) error {
	if err := s.inside(a, bytes); err != nil {
		return err
	}
	for g := a >> s.shift; g <= (a+uint64(bytes)-1)>>s.shift; g++ {
		w, r := s.writers[g], s.readers[g]
		switch {
		case w&flying != 0:
			return fmt.Errorf("shared address %#x is written while cp.async of thread %d still writes it", a, w&threads)
		case changes && apart(w, by):
			return fmt.Errorf("race: shared address %#x is written by threads %d and %d without a barrier between", a, w&threads, by&threads)
		case changes && r != 0 && apart(r, by):
			return fmt.Errorf("race: shared address %#x is written by thread %d and read by %s without a barrier between", a, by&threads, reader(r))
		}
		s.writers[g] = by
	}
	return nil
}

func reader(r mark) string {
	switch {
	case r&threads == several:
		return "several threads"
	case r&severalOfWarp != 0:
		return fmt.Sprintf("threads of warp %d", warpOf(r))
	}
	return fmt.Sprintf("thread %d", r&threads)
}

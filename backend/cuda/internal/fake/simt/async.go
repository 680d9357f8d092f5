package simt

// flight is a copy by cp.async that its thread has not waited for: the bytes are
// read when it does, so that what comes too early sees what was there before.
type flight struct {
	to    uint64
	from  uint64
	bytes int
	have  int    // bytes that are copied; the others become zeros
	group uint64 // number of the group of the lane
}

// copy begins cp.async.
func (w *warp) copy(in *instruction, mask uint32) error {
	to, from, have := w.row(in.a), w.row(in.b), w.row(in.c)
	s := w.b.shared
	for l := range width {
		if mask>>l&1 == 0 {
			continue
		}
		f := flight{to[l] + in.offset, from[l], in.bytes, int(uint32(have[l])), w.commits[l]}
		if f.have > in.bytes {
			return w.fault(in, l, "%d bytes to copy, want at most %d", f.have, in.bytes)
		}
		if f.have > 0 {
			if f.from%uint64(in.bytes) != 0 {
				return w.fault(in, l, "%w", &alignmentError{"the source of cp.async is not aligned"})
			}
			if w.b.find(f.from, f.have) == nil {
				return w.fault(in, l, "%w", w.b.outOfBounds(f.from, f.have))
			}
		}
		if err := s.write(f.to, in.bytes, w.now(l), true); err != nil {
			return w.fault(in, l, "%w", err)
		}
		s.take(f.to, in.bytes, w.now(l)|flying)
		w.copies[l] = append(w.copies[l], f)
	}
	return nil
}

// take sets the writer of memory.
func (s *sharedMemory) take(a uint64, bytes int, by mark) {
	for g := a >> s.shift; g <= (a+uint64(bytes)-1)>>s.shift; g++ {
		s.writers[g] = by
	}
}

func (w *warp) commit(mask uint32) {
	for l := range width {
		w.commits[l] += uint64(mask >> l & 1)
	}
}

// await makes all copies but those of the last groups.
func (w *warp) await(in *instruction, mask uint32) error {
	s := w.b.shared
	for l := range width {
		if mask>>l&1 == 0 {
			continue
		}
		list, done := w.copies[l], 0
		for _, f := range list {
			if in.how == 0 && f.group+in.offset >= w.commits[l] {
				break
			}
			to := s.data[f.to : f.to+uint64(f.bytes)]
			clear(to)
			if f.have > 0 {
				from := w.b.find(f.from, f.have)
				if from == nil {
					return w.fault(in, l, "%w", w.b.outOfBounds(f.from, f.have))
				}
				copy(to, from[:f.have])
			}
			s.take(f.to, f.bytes, w.now(l))
			done++
		}
		w.copies[l] = append(list[:0], list[done:]...)
	}
	return nil
}

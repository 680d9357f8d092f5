package simt

// width is the number of lanes of a warp.
const width = 32

// full is the mask of a whole warp.
const full = 1<<width - 1

// lanes is a register of a warp. Registers of fewer than 64 bits are in the lower
// ones; the others are zero.
type lanes [width]uint64

// fill sets all lanes.
func (r *lanes) fill(u uint64) {
	for l := range r {
		r[l] = u
	}
}

// merge copies the lanes of a mask.
func (r *lanes) merge(from *lanes, mask uint32) {
	for l := range r {
		if mask>>l&1 != 0 {
			r[l] = from[l]
		}
	}
}

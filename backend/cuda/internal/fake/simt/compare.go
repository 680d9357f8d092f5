package simt

import "strings"

// comparison computes setp for all lanes.
type comparison func(a, b *lanes) uint32

// ordering is setp of a type: less, equal, and for floats less or equal.
type ordering struct {
	less, equal, atMost comparison
}

// order is made of conversions and Go's operators.
func order[T uint16 | int16 | uint32 | int32 | uint64 | int64 | float32 | float64](get func(uint64) T) ordering {
	return ordering{
		less: func(a, b *lanes) (m uint32) {
			for l := range a {
				if get(a[l]) < get(b[l]) {
					m |= 1 << l
				}
			}
			return m
		},
		equal: func(a, b *lanes) (m uint32) {
			for l := range a {
				if get(a[l]) == get(b[l]) {
					m |= 1 << l
				}
			}
			return m
		},
		atMost: func(a, b *lanes) (m uint32) {
			for l := range a {
				if get(a[l]) <= get(b[l]) {
					m |= 1 << l
				}
			}
			return m
		},
	}
}

// The frequent ones without calls and branches: the sign of a difference.

func lessS32(a, b *lanes) (m uint32) {
	for l := range a {
		m |= uint32(uint64(int64(int32(a[l]))-int64(int32(b[l])))>>63) << l
	}
	return m
}

func lessU32(a, b *lanes) (m uint32) {
	for l := range a {
		m |= uint32((a[l]&0xffffffff-b[l]&0xffffffff)>>63) << l
	}
	return m
}

func equal32(a, b *lanes) (m uint32) {
	for l := range a {
		m |= uint32(((a[l]^b[l])&0xffffffff-1)>>63) << l
	}
	return m
}

func lessS64(a, b *lanes) (m uint32) {
	for l := range a {
		if int64(a[l]) < int64(b[l]) {
			m |= 1 << l
		}
	}
	return m
}

func equal64(a, b *lanes) (m uint32) {
	for l := range a {
		if a[l] == b[l] {
			m |= 1 << l
		}
	}
	return m
}

func lessF32(a, b *lanes) (m uint32) {
	for l := range a {
		if getF32(a[l]) < getF32(b[l]) {
			m |= 1 << l
		}
	}
	return m
}

// backwards is a comparison with its operands exchanged, opposite its opposite.
func backwards(c comparison) comparison { return func(a, b *lanes) uint32 { return c(b, a) } }
func opposite(c comparison) comparison  { return func(a, b *lanes) uint32 { return ^c(a, b) } }

// comparisons are the instructions setp.
var comparisons = func() map[string]comparison {
	m := map[string]comparison{}
	for t, o := range map[string]ordering{
		"u16": order(getU16), "s16": order(func(u uint64) int16 { return int16(u) }),
		"u32": {less: lessU32, equal: equal32}, "s32": {less: lessS32, equal: equal32},
		"u64": order(getU64), "s64": {less: lessS64, equal: equal64},
		"f32": order(getF32), "f64": order(getF64),
	} {
		o := o
		if t == "f32" {
			o.less = lessF32
		}
		names := map[string]comparison{"eq": o.equal, "lt": o.less, "gt": backwards(o.less)}
		if strings.HasPrefix(t, "f") {
			names["le"], names["ge"] = o.atMost, backwards(o.atMost)
			number := func(a, b *lanes) uint32 { return o.equal(a, a) & o.equal(b, b) }
			names["ne"] = func(a, b *lanes) uint32 { return number(a, b) &^ o.equal(a, b) }
			names["equ"] = func(a, b *lanes) uint32 { return ^number(a, b) | o.equal(a, b) }
			names["neu"] = opposite(o.equal)
			names["ltu"], names["leu"] = opposite(names["ge"]), opposite(names["gt"])
			names["gtu"], names["geu"] = opposite(names["le"]), opposite(names["lt"])
			names["num"], names["nan"] = number, opposite(number)
		} else {
			names["ne"], names["ge"], names["le"] = opposite(o.equal), opposite(o.less), opposite(names["gt"])
		}
		for how, c := range names {
			m["setp."+how+"."+t] = c
		}
	}
	for _, t := range []string{"16", "32", "64"} {
		m["setp.eq.b"+t], m["setp.ne.b"+t] = m["setp.eq.u"+t], m["setp.ne.u"+t]
	}
	return m
}()

// choose is selp: a where p, else b. size masks the result.
func choose(d, a, b *lanes, p uint32, mask uint64) {
	for l := range d {
		pick := -uint64(p >> l & 1)
		d[l] = (b[l] ^ (a[l]^b[l])&pick) & mask
	}
}

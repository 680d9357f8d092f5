package simt

import (
	"encoding/binary"
	"strconv"
	"strings"
	"testing"
)

const sharedArrays = ".shared .align 16 .b8 s[256];\n.shared .align 16 .b8 after[64];"

// shared64 has %r1 = 4·thread and %r3 = the address of s[thread].
var shared64 = []string{"shl.b32 %r1, %t, 2;", "mov.u32 %r2, s;", "add.s32 %r3, %r2, %r1;"}

func onShared(lines ...string) string {
	return snippet(sharedArrays, append(append([]string{}, shared64...), lines...)...)
}

// reverse has 64 threads exchange numbers through shared memory.
func reverse(barrier string) string {
	return onShared("st.shared.u32 [%r3], %t;", barrier,
		"sub.s32 %r4, 252, %r1;", "add.s32 %r4, %r2, %r4;", "ld.shared.u32 %r5, [%r4];", "st.global.u32 [%o], %r5;")
}

// TestBarrier: what is exchanged between warps needs bar.sync.
func TestBarrier(t *testing.T) {
	out, s, err := execute(t, reverse("bar.sync 0;"), nil, 1, 64)
	if err != nil {
		t.Fatal(err)
	}
	for i, u := range words(out) {
		if u != uint32(63-i) {
			t.Fatalf("thread %d: got %d, want %d", i, u, 63-i)
		}
	}
	if s.Instructions == 0 || s.Instructions > 2*20 {
		t.Errorf("%d instructions of two warps", s.Instructions)
	}
	if f := faultOf(t, reverse(""), 64, "ld.shared.u32", "read before it is written"); f.Thread != 0 {
		t.Errorf("thread %d reads first, want 0", f.Thread)
	}
}

// TestRaces: accesses of two threads without a barrier between are found in whichever
// order they happen, within a warp as well; bar.warp.sync is one for its warp.
func TestRaces(t *testing.T) {
	next := []string{"add.s32 %r4, %r1, 4;", "and.b32 %r4, %r4, 255;", "add.s32 %r4, %r2, %r4;"} // the neighbour's
	lines := func(list ...string) string { return onShared(append(append([]string{}, next...), list...)...) }
	const write, read, other = "st.shared.u32 [%r3], %t;", "ld.shared.u32 %r5, [%r3];", "ld.shared.u32 %r6, [%r4];"
	for _, c := range []struct {
		name, text, at, want string
	}{
		{"read after write", lines(write, "bar.sync 0;", "add.s32 %t, %t, 1;", write, other), other, "race: "},
		{"write after read", lines(write, "bar.sync 0;", other, "add.s32 %t, %t, 1;", write), "st.shared.u32", "read by thread"},
		{"write after reads by all", lines(write, "bar.sync 0;", "ld.shared.u32 %r5, [s];", "add.s32 %t, %t, 7;", write), "st.shared.u32", "read by threads of warp 0"},
		{"write after write", lines("st.shared.u32 [s], %t;"), "st.shared.u32", "written by threads 0 and 1"},
		{"bytes of a word", lines("add.s32 %r3, %r2, %t;", "st.shared.u8 [%r3], %t;", "ld.shared.u8 %r5, [s+1];"), "ld.shared.u8", "race: "},
	} {
		t.Run(c.name, func(t *testing.T) { faultOf(t, c.text, 64, c.at, c.want) })
	}
	for _, text := range []string{
		lines(write, "bar.sync 0;", other, "bar.sync 0;", "add.s32 %t, %t, 1;", write, read),
		lines("st.shared.u32 [s], %c;"), // one number
		lines("add.s32 %r3, %r2, %t;", "st.shared.u8 [%r3], %t;", "ld.shared.u8 %r5, [%r3];"),
	} {
		if _, _, err := execute(t, text, nil, 1, 64); err != nil {
			t.Error(err)
		}
	}
	one := lines(write, "bar.warp.sync -1;", "and.b32 %r4, %r4, 127;", "ld.shared.u32 %r6, [%r4];", "bar.warp.sync -1;", "add.s32 %t, %t, 1;", write)
	if _, _, err := execute(t, one, nil, 1, 32); err != nil {
		t.Error(err)
	}
	faultOf(t, strings.Replace(one, "bar.warp.sync -1;", "", 1), 32, "ld.shared.u32", "race: ")
	faultOf(t, one, 64, "ld.shared.u32", "race: ") // by another warp
}

// TestBounds: accesses beyond what is allocated, or not aligned.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		name, text, at, want string
		code                 int
	}{
		{"shared", onShared("st.shared.u32 [%r3+192], %t;"), "st.shared.u32", "thread 16: shared address 0x100 of 4 bytes is out of bounds", CodeLaunchFailed},
		{"shared, behind all", onShared("st.shared.u32 [after], %c;", "st.shared.u32 [after+70000], %t;"), "70000", "out of bounds", CodeLaunchFailed},
		{"shared, the end of addresses", onShared("mov.u64 %w1, -16;", "ld.shared.u64 %w2, [%w1+8];"), "ld.shared.u64", "out of bounds", CodeLaunchFailed},
		{"shared, not aligned", onShared("add.s32 %r3, %r3, 2;", "ld.shared.u32 %r4, [%r3];"), "ld.shared", "not aligned to 4", CodeLaunchFailed},
		{"shared, generic", onShared("mov.u64 %w1, s;", "cvta.shared.u64 %w1, %w1;", "st.u32 [%w1+256], %t;"), "st.u32", "out of bounds", CodeLaunchFailed},
		{"global, behind", snippet("", "ld.global.u32 %r1, [%i+1024];"), "ld.global.u32", "thread 16: global address 0x100800 of 4 bytes is out of bounds: it is 2048 bytes behind the start of an allocation of 2048 bytes", CodeIllegalAddress},
		{"global, before", snippet("", "st.global.u32 [%o+-4], %t;"), "st.global", "out of bounds", CodeIllegalAddress},
		{"global, the last byte", snippet("", "ld.global.v2.u32 {%r1, %r2}, [%i+60];"), "ld.global", "not aligned to 8", CodeMisaligned},
		{"global, null", snippet("", "mov.u64 %w1, 0;", "ld.global.u32 %r1, [%w1];"), "ld.global", "not allocated", CodeIllegalAddress},
		{"local", snippet(".local .align 4 .b8 depot[12];\n.reg .b64 %SPL;", "mov.u64 %SPL, depot;", "cvta.local.u64 %w1, %SPL;", "st.local.u32 [%SPL+8], %t;", "ld.u32 %r1, [%w1+12];"), "ld.u32", "a thread has 12 bytes", CodeIllegalAddress},
		{"uninitialized", onShared("ld.shared.u32 %r4, [%r3];"), "ld.shared", "read before it is written", CodeLaunchFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			if f := faultOf(t, c.text, 32, c.at, c.want); Code(f) != c.code {
				t.Errorf("code %d, want %d", Code(f), c.code)
			}
		})
	}
}

// TestShuffle: every mode against the manual's pseudocode written out, and lanes that
// are not there.
func TestShuffle(t *testing.T) {
	for _, c := range []struct {
		mode      string
		by, clamp int
		valid     func(l int) bool
		want      func(l int) int
	}{
		{"bfly", 5, 31, func(int) bool { return true }, func(l int) int { return l ^ 5 }},
		{"idx", 7, 31, func(int) bool { return true }, func(int) int { return 7 }},
		{"idx", 9, 24<<8 | 7, func(int) bool { return true }, func(l int) int { return l&24 | 1 }},
		{"up", 3, 0, func(l int) bool { return l >= 3 }, func(l int) int { return max(l-3, l*(1-min(1, l/3))) }},
		{"down", 3, 31, func(l int) bool { return l < 29 }, func(l int) int {
			if l < 29 {
				return l + 3
			}
			return l
		}},
		{"bfly", 8, 24<<8 | 31, func(l int) bool { return l&8 != 0 }, func(l int) int { return l &^ 8 }},
		{"bfly", 16, 15, func(l int) bool { return l >= 16 }, func(l int) int { return l & 15 }},
	} {
		text := snippet("", "mov.u32 %r1, "+strconv.Itoa(c.by)+";", "mov.u32 %r2, "+strconv.Itoa(c.clamp)+";", "add.s32 %r3, %t, 100;",
			"shfl.sync."+c.mode+".b32 %r3|%p1, %r3, %r1, %r2, -1;", "selp.u32 %r4, 1000, 0, %p1;", "add.s32 %r3, %r3, %r4;", "st.global.u32 [%o], %r3;")
		out, _, err := execute(t, text, nil, 1, 64)
		if err != nil {
			t.Error(err)
			continue
		}
		for i, u := range words(out) {
			want := i/32*32 + c.want(i%32) + 100
			if c.valid(i % 32) {
				want += 1000
			}
			if u != uint32(want) {
				t.Errorf("%s by %d, %#x: lane %d: got %d, want %d", c.mode, c.by, c.clamp, i, u, want)
			}
		}
	}
	const shuffle = "shfl.sync.bfly.b32 %r3|%p1, %t, 1, 31, "
	faultOf(t, snippet("", shuffle+"0xfffffffe;"), 32, "shfl", "thread 0: its mask 0xfffffffe is without itself")
	faultOf(t, snippet("", shuffle+"-1;"), 31, "shfl", "thread 30: it reads from lane 31, which does not take part")
	faultOf(t, snippet("", "setp.lt.u32 %p2, %t, 2;", "@%p2 bra $few;", "ret;", "$few:", "setp.eq.u32 %p3, %t, 1;", "@%p3 bra $end;", shuffle+"3;", "$end:"),
		32, "shfl", "thread 0: it reads from lane 1, which does not take part")
	faultOf(t, snippet("", "mov.u32 %r1, -1;", "setp.eq.u32 %p2, %t, 9;", "@%p2 mov.u32 %r1, 0xffff;", "shfl.sync.idx.b32 %r3, %t, 0, 31, %r1;"), 32, "shfl", "thread 9: its mask is 0xffff, that of lane 0 is 0xffffffff")
}

// TestDivergence: lanes that took different paths meet again; where they wait at
// different places for each other, that is a deadlock.
func TestDivergence(t *testing.T) {
	// Each lane loops as often as its number says; the shuffle has all of them.
	loop := []string{"mov.u32 %r1, 0;", "and.b32 %r2, %t, 31;", "$loop:", "setp.ge.u32 %p1, %r1, %r2;", "@%p1 bra $end;", "add.s32 %r1, %r1, 1;", "bra.uni $loop;", "$end:",
		"shfl.sync.bfly.b32 %r3, %r1, 31, 31, -1;", "st.global.u32 [%o], %r3;"}
	out, s, err := execute(t, snippet("", loop...), nil, 2, 32)
	if err != nil {
		t.Fatal(err)
	}
	for i, u := range words(out) {
		if u != uint32(31-i%32) {
			t.Errorf("thread %d: got %d, want %d", i, u, 31-i%32)
		}
	}
	if s.Instructions > 2*(32*5+20) {
		t.Errorf("%d instructions: lanes did not run together", s.Instructions)
	}
	// The code behind the join lies before it: those that come first wait.
	back := []string{"bra.uni $start;", "$join:", "shfl.sync.bfly.b32 %r3, %t, 16, 31, -1;", "st.global.u32 [%o], %r3;", "ret;",
		"$start:", "setp.lt.u32 %p1, %t, 16;", "@%p1 bra $join;", "add.s32 %t, %t, 100;", "bra.uni $join;"}
	if out, _, err = execute(t, snippet("", back...), nil, 1, 32); err != nil {
		t.Fatal(err)
	}
	if w := words(out); w[0] != 116 || w[16] != 0 {
		t.Errorf("got %d and %d, want 116 and 0", w[0], w[16])
	}
	half := []string{"setp.lt.u32 %p1, %t, 16;", "@%p1 bra $first;", "bar.warp.sync -1;", "bra.uni $end;", "$first:", "bar.warp.sync -1;", "$end:"}
	faultOf(t, snippet("", half...), 32, "bar.warp.sync -1;", "deadlock: lanes ffff0000 wait at line")
	faultOf(t, snippet("", "setp.lt.u32 %p1, %t, 16;", "@%p1 bra $first;", "bar.sync 0;", "$first:", "bar.sync 0;"), 32, "bar.sync 0;", "deadlock: ")
	faultOf(t, onShared("setp.lt.u32 %p1, %t, 31;", "@%p1 bra $all;", "ret;", "$all:",
		"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r6, %r7, %r8}, [%r2];"), 32, "ldmatrix", "only lanes 7fffffff of 32 take part")
	// Threads that have ended are not waited for.
	if _, _, err := execute(t, snippet("", "setp.lt.u32 %p1, %t, 40;", "@%p1 ret;", "bar.sync 0;"), nil, 1, 96); err != nil {
		t.Error(err)
	}
}

// TestLock: lanes that spin let the one go on that has the lock; the sum is that of all.
func TestLock(t *testing.T) {
	text := snippet("", "ld.param.u64 %w1, [k_param_1];",
		"$spin:", "atom.global.cas.b32 %r1, [%w1], 0, 1;", "setp.ne.s32 %p1, %r1, 0;", "@%p1 bra $spin;",
		"membar.gl;", "ld.volatile.global.u32 %r2, [%w1+4];", "add.s32 %r2, %r2, %t;", "st.volatile.global.u32 [%w1+4], %r2;", "membar.gl;",
		"atom.global.exch.b32 %r3, [%w1], 0;")
	out, s, err := execute(t, text, nil, 3, 64)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := binary.LittleEndian.Uint32(out[4:]), uint32(191*192/2); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
	if s.Swaps < 192 {
		t.Errorf("%d compare-and-swaps, want 192 or more", s.Swaps)
	}
	m, err := Parse(snippet("", "$loop:", "bra.uni $loop;"))
	if err != nil {
		t.Fatal(err)
	}
	k, err := m.Kernel("k")
	if err != nil {
		t.Fatal(err)
	}
	_, err = k.Run(Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Parameters: []uint64{0, 0, 0}, Steps: 1000})
	if err == nil || !strings.Contains(err.Error(), "has not ended after 1000 instructions") {
		t.Errorf("an endless loop: got error %v", err)
	}
	if _, err := k.Run(Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}}); err == nil {
		t.Error("no parameters: got no error")
	}
	if _, err := k.Run(Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{32, 64, 1}, Parameters: []uint64{0, 0, 0}}); err == nil {
		t.Error("2048 threads: got no error")
	}
}

// TestCopyAsync: what cp.async copies is there when it has been waited for, zeros
// fill up; before that it may not be read, and a group that may be pending is not there.
func TestCopyAsync(t *testing.T) {
	in := make([]byte, 64*32)
	for i := range in {
		in[i] = byte(i * 7)
	}
	program := func(wait string) string {
		return snippet(".shared .align 16 .b8 s[1024];", "shl.b32 %r1, %t, 4;", "mov.u32 %r2, s;", "add.s32 %r3, %r2, %r1;",
			"mov.u32 %r4, 5;", "cp.async.ca.shared.global [%r3], [%i], 8, %r4;", "cp.async.commit_group;",
			"cp.async.ca.shared.global [%r3+8], [%i+0], 8;", "cp.async.commit_group;", wait, "ld.shared.u64 %w1, [%r3];", "st.global.u64 [%o], %w1;", "cp.async.wait_group 0;")
	}
	for _, groups := range []string{"0", "1"} {
		out, _, err := execute(t, program("cp.async.wait_group "+groups+";"), in, 1, 32)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 32 {
			want := binary.LittleEndian.Uint64(in[64*i:]) & (1<<40 - 1)
			if got := binary.LittleEndian.Uint64(out[64*i:]); got != want {
				t.Errorf("thread %d: got %#x, want %#x", i, got, want)
			}
		}
	}
	for _, wait := range []string{"", "cp.async.wait_group 2;"} {
		faultOf(t, program(wait), 32, "ld.shared.u64", "is read while cp.async of thread 0 still writes it")
	}
	faultOf(t, strings.Replace(program(""), "ld.shared.u64 %w1, [%r3];", "st.shared.u64 [%r3+8], %x;", 1), 32, "st.shared.u64", "is written while cp.async")
	faultOf(t, strings.Replace(program("cp.async.wait_group 0;"), "5;", "9;", 1), 32, "cp.async", "9 bytes to copy, want at most 8")
	faultOf(t, strings.Replace(program("cp.async.wait_group 0;"), "[%i+0]", "[%x]", 1), 32, "cp.async", "not allocated")
	// One thread may not overwrite what others still read.
	faultOf(t, onShared("st.shared.u32 [%r3], %t;", "bar.sync 0;", "ld.shared.u32 %r4, [s+12];", "setp.ne.u32 %p1, %t, 0;", "@%p1 bra $end;",
		"cp.async.cg.shared.global [%r2], [%i], 16;", "cp.async.wait_all;", "$end:"), 32, "cp.async.cg", "race: ")
}

// BenchmarkRun is a loop of what inner loops of the kernels have.
func BenchmarkRun(b *testing.B) {
	text := onShared("st.shared.u32 [%r3], %t;", "bar.sync 0;", "mov.u32 %r6, 0;", "mov.f32 %f1, 0f3F800000;", "mov.f32 %f2, 0f3F000000;",
		"$loop:", "fma.rn.f32 %f1, %f1, %f2, %f2;", "fma.rn.f32 %f2, %f1, %f2, %f2;", "ld.shared.f32 %f3, [%r3];", "add.s32 %r7, %r6, %t;", "shl.b32 %r7, %r7, 2;",
		"cvt.u64.u32 %w1, %r7;", "mul.f32 %f4, %f3, %f1;", "ld.global.f32 %f5, [%i];", "add.s32 %r6, %r6, 1;", "setp.lt.s32 %p1, %r6, 1000;", "@%p1 bra $loop;", "st.global.f32 [%o], %f2;")
	m, err := Parse(text)
	if err != nil {
		b.Fatal(err)
	}
	k, err := m.Kernel("k")
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 64*64)
	var n uint64
	for b.Loop() {
		s, err := k.Run(Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{64, 1, 1}, Parameters: []uint64{inBase, outBase, 64}, Memory: []Region{{inBase, data}, {outBase, data}}, Workers: 1})
		if err != nil {
			b.Fatal(err)
		}
		n += s.Instructions
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/instruction")
}

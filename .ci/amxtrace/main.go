//go:build linux && amd64

// Amxtrace runs a program whose AMX instructions are interpreted: it traces the program, and
// what the processor refuses as invalid it computes as Intel's manual says (Software
// Developer's Manual, volume 2: LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TILERELEASE,
// TDPBF16PS, TDPBSSD), then goes on behind it. Everything else runs on the processor. At the end
// it prints how often it did so.
//
//	go build -o amxtrace ./.ci/amxtrace
//	./amxtrace COMMAND [ARGUMENTS]
//
// It exits with the code of the command. Processes that the command starts are traced, too.
package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "amxtrace: want a command")
		os.Exit(2)
	}
	runtime.LockOSThread() // a thread traces what it started
	path, err := exec.LookPath(os.Args[1])
	if err == nil {
		err = run(path, os.Args[1:])
	}
	fmt.Fprintln(os.Stderr, "amxtrace:", err)
	os.Exit(2)
}

// Linux's numbers that package syscall lacks.
const (
	wall            = 0x40000000 // __WALL: threads, too
	pokeUser        = 6
	processVMReadv  = 310
	processVMWritev = 311
	exitKill        = 0x100000
)

func run(path string, args []string) error {
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Ptrace: true}}
	first, err := syscall.ForkExec(path, args, attr)
	if err != nil {
		return err
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(first, &status, wall, nil); err != nil {
		return err
	}
	const options = syscall.PTRACE_O_TRACECLONE | syscall.PTRACE_O_TRACEFORK | syscall.PTRACE_O_TRACEVFORK | syscall.PTRACE_O_TRACEEXEC | exitKill
	if err := syscall.PtraceSetOptions(first, options); err != nil {
		return err
	}
	threads := map[int]*thread{first: {id: first}}
	if err := syscall.PtraceCont(first, 0); err != nil {
		return err
	}
	for {
		id, err := syscall.Wait4(-1, &status, wall, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		t := threads[id]
		switch {
		case status.Exited() || status.Signaled():
			delete(threads, id)
			if id != first {
				continue
			}
			fmt.Fprintf(os.Stderr, "amxtrace: %d instructions interpreted, %d of them products\n", interpreted, products)
			if status.Signaled() {
				os.Exit(128 + int(status.Signal()))
			}
			os.Exit(status.ExitStatus())
		case t == nil: // a new thread stops before it begins
			threads[id] = &thread{id: id}
			syscall.PtraceCont(id, 0)
			continue
		}
		signal := status.StopSignal()
		switch {
		case signal == syscall.SIGTRAP: // it has started a thread or a program
			signal = 0
		case signal == syscall.SIGILL:
			if err := t.interpret(); err == nil {
				signal = 0
			} else {
				fmt.Fprintln(os.Stderr, "amxtrace:", err)
			}
		}
		// A thread that was killed meanwhile is reported by the next wait.
		syscall.PtraceCont(id, int(signal))
	}
}

var interpreted, products int

// tile is a tile register. data has rows of 64 bytes.
type tile struct {
	rows, bytes int
	data        [1024]byte
}

// thread is the AMX state of a thread.
type thread struct {
	id    int
	tiles [8]tile
}

// register returns a register by its number in instructions.
func register(r *syscall.PtraceRegs, i int) uint64 {
	return [16]uint64{r.Rax, r.Rcx, r.Rdx, r.Rbx, r.Rsp, r.Rbp, r.Rsi, r.Rdi, r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15}[i]
}

// interpret executes the AMX instruction that a thread stopped at, and those that follow it.
func (t *thread) interpret() error {
	var r syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(t.id, &r); err != nil {
		return err
	}
	var memory [64 + longest]byte
	code := memory[:t.move(processVMReadv, memory[:], r.Rip, 0, 1, len(memory))]
	for done := false; ; done = true {
		i, err := decode(code)
		if err != nil && done {
			break
		}
		if err != nil {
			return fmt.Errorf("% x at %#x: %w", code[:min(longest, len(code))], r.Rip, err)
		}
		if i.memory {
			i.address = uint64(i.offset)
			if i.base >= 0 {
				i.address += register(&r, i.base)
			}
			if i.index >= 0 {
				i.stride = register(&r, i.index) << i.scale
			}
		}
		if err := t.execute(i); err != nil {
			return fmt.Errorf("% x at %#x: %w", code[:i.size], r.Rip, err)
		}
		interpreted++
		code, r.Rip = code[i.size:], r.Rip+uint64(i.size)
	}
	const instructionPointer = 8 * 16 // in Linux's user_regs_struct
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PTRACE, pokeUser, uintptr(t.id), instructionPointer, uintptr(r.Rip), 0, 0); e != 0 {
		return e
	}
	return nil
}

// longest is the size of the longest instruction: with an index and an offset of 32 bits.
const longest = 10

// move reads or writes rows of n bytes of the program's memory, which lie stride bytes apart,
// and 64 bytes apart in data. It returns the number of bytes.
func (t *thread) move(call uintptr, data []byte, address, stride uint64, rows, n int) int {
	type piece struct {
		base uintptr
		size uintptr
	}
	var here, there [16]piece
	for i := range rows {
		here[i] = piece{uintptr(unsafe.Pointer(&data[64*i])), uintptr(n)}
		there[i] = piece{uintptr(address + uint64(i)*stride), uintptr(n)}
	}
	moved, _, errno := syscall.RawSyscall6(call, uintptr(t.id), uintptr(unsafe.Pointer(&here)), uintptr(rows), uintptr(unsafe.Pointer(&there)), uintptr(rows), 0)
	runtime.KeepAlive(data)
	if errno != 0 {
		return 0
	}
	return int(moved)
}

// instruction is a decoded instruction.
type instruction struct {
	opcode, prefix     byte // the prefix is that of VEX: 0 none, 1 66, 2 F3, 3 F2
	reg, rm, vvvv      int
	memory             bool
	base, index, scale int // registers, or -1
	offset             int64
	size               int
	address, stride    uint64
}

// decode reads an instruction of VEX's map 0F38, with a vector length of 128 bits.
func decode(c []byte) (i instruction, err error) {
	if len(c) < longest || c[0] != 0xc4 || c[1]&0x1f != 2 || c[2]&0x84 != 0 {
		return i, fmt.Errorf("is no instruction of AMX")
	}
	// The bits that extend register numbers are inverted.
	i = instruction{opcode: c[3], prefix: c[2] & 3, vvvv: int(^c[2]>>3) & 15, size: 5, base: -1, index: -1}
	r, x, b := int(^c[1]>>7&1)<<3, int(^c[1]>>6&1)<<3, int(^c[1]>>5&1)<<3
	mode := c[4] >> 6
	i.reg, i.rm, i.memory = int(c[4]>>3&7)|r, int(c[4]&7)|b, mode != 3
	if !i.memory {
		return i, nil
	}
	i.base = i.rm
	if c[4]&7 == 4 {
		i.size++
		i.scale, i.base, i.index = int(c[5]>>6), int(c[5]&7)|b, int(c[5]>>3&7)|x
		if i.index == 4 {
			i.index = -1
		}
	}
	switch {
	case mode == 0 && i.base&7 == 5:
		return i, fmt.Errorf("has an address without a base")
	case mode == 1:
		i.offset = int64(int8(c[i.size]))
		i.size++
	case mode == 2:
		i.offset = int64(int32(binary.LittleEndian.Uint32(c[i.size:])))
		i.size += 4
	}
	return i, nil
}

// The names of prefixes of VEX.
const (
	none = iota
	p66
	pF3
	pF2
)

func (t *thread) execute(i instruction) error {
	switch [2]byte{i.opcode, i.prefix} {
	case [2]byte{0x49, none}:
		t.tiles = [8]tile{} // TILERELEASE
		if i.memory {
			return t.configure(i.address)
		}
		return nil
	case [2]byte{0x49, pF2}: // TILEZERO
		return t.zero(i.reg)
	case [2]byte{0x4b, pF2}, [2]byte{0x4b, p66}: // TILELOADD, TILELOADDT1
		if err := t.zero(i.reg); err != nil {
			return err
		}
		d := &t.tiles[i.reg]
		if t.move(processVMReadv, d.data[:], i.address, i.stride, d.rows, d.bytes) != d.rows*d.bytes {
			return fmt.Errorf("reads %d rows of %d bytes, %d bytes apart, from %#x: there is no memory", d.rows, d.bytes, i.stride, i.address)
		}
		return nil
	case [2]byte{0x4b, pF3}: // TILESTORED
		if err := t.configured(i.reg); err != nil {
			return err
		}
		s := &t.tiles[i.reg]
		if t.move(processVMWritev, s.data[:], i.address, i.stride, s.rows, s.bytes) != s.rows*s.bytes {
			return fmt.Errorf("writes %d rows of %d bytes, %d bytes apart, to %#x: there is no memory", s.rows, s.bytes, i.stride, i.address)
		}
		return nil
	case [2]byte{0x5c, pF3}:
		return t.multiply(i, dotBF16) // TDPBF16PS
	case [2]byte{0x5e, pF2}:
		return t.multiply(i, dotInt8) // TDPBSSD
	}
	return fmt.Errorf("is no instruction of AMX that is interpreted")
}

// configure is LDTILECFG.
func (t *thread) configure(address uint64) error {
	var c [64]byte
	if t.move(processVMReadv, c[:], address, 0, 1, len(c)) != len(c) {
		return fmt.Errorf("reads 64 bytes from %#x: there is no memory", address)
	}
	if c[0] == 0 {
		return nil
	}
	if c[0] != 1 || c[1] != 0 {
		return fmt.Errorf("palette %d, first row %d; want 1 and 0", c[0], c[1])
	}
	for i := range t.tiles {
		x := &t.tiles[i]
		x.bytes, x.rows = int(binary.LittleEndian.Uint16(c[16+2*i:])), int(c[48+i])
		if x.bytes > 64 || x.rows > 16 || (x.bytes == 0) != (x.rows == 0) {
			return fmt.Errorf("tile %d has %d rows of %d bytes; want at most 16 of 64", i, x.rows, x.bytes)
		}
	}
	return nil
}

func (t *thread) configured(i int) error {
	if i > 7 || t.tiles[i].rows == 0 {
		return fmt.Errorf("tile %d is not configured", i)
	}
	return nil
}

// zero is TILEZERO.
func (t *thread) zero(i int) error {
	if err := t.configured(i); err != nil {
		return err
	}
	t.tiles[i].data = [1024]byte{}
	return nil
}

// multiply adds products of two tiles to a third one.
func (t *thread) multiply(i instruction, dot func(d, a, b *tile)) error {
	for _, n := range []int{i.reg, i.rm, i.vvvv} {
		if err := t.configured(n); err != nil {
			return err
		}
	}
	d, a, b := &t.tiles[i.reg], &t.tiles[i.rm], &t.tiles[i.vvvv]
	if d == a || d == b || a == b || d.rows != a.rows || d.bytes != b.bytes || a.bytes != 4*b.rows || a.bytes%4 != 0 || b.bytes%4 != 0 {
		return fmt.Errorf("tiles %d, %d, %d have %d rows of %d bytes, %d of %d, %d of %d", i.reg, i.rm, i.vvvv, d.rows, d.bytes, a.rows, a.bytes, b.rows, b.bytes)
	}
	dot(d, a, b)
	products++
	return nil
}

// dotBF16 is TDPBF16PS: for each element sums of the even and of the odd elements of A's row,
// each product added with one rounding; then the sum of both is added to the element.
// Subnormal numbers are zeros.
func dotBF16(d, a, b *tile) {
	var wide [16][32]float64
	for k := range b.rows {
		for n := range b.bytes / 2 {
			wide[k][n] = bf16(b.data[64*k+2*n:])
		}
	}
	for m := range d.rows {
		var sums [32]float32
		for k := range b.rows {
			even, odd := bf16(a.data[64*m+4*k:]), bf16(a.data[64*m+4*k+2:])
			for n := 0; n < b.bytes/2; n += 2 {
				sums[n] = add(sums[n], even*wide[k][n])
				sums[n+1] = add(sums[n+1], odd*wide[k][n+1])
			}
		}
		for n := range d.bytes / 4 {
			at := d.data[64*m+4*n:]
			sum := add(sums[2*n], float64(sums[2*n+1]))
			sum = add(flush(math.Float32frombits(binary.LittleEndian.Uint32(at))), float64(sum))
			binary.LittleEndian.PutUint32(at, math.Float32bits(sum))
		}
	}
}

// dotInt8 is TDPBSSD.
func dotInt8(d, a, b *tile) {
	for m := range d.rows {
		for n := range d.bytes / 4 {
			at := d.data[64*m+4*n:]
			sum := int32(binary.LittleEndian.Uint32(at))
			for k := range b.rows {
				for i := range 4 {
					sum += int32(int8(a.data[64*m+4*k+i])) * int32(int8(b.data[64*k+4*n+i]))
				}
			}
			binary.LittleEndian.PutUint32(at, uint32(sum))
		}
	}
}

func bf16(at []byte) float64 {
	return float64(flush(math.Float32frombits(uint32(binary.LittleEndian.Uint16(at)) << 16)))
}

// flush returns x, or a zero if it is subnormal.
func flush(x float32) float32 {
	if x > -0x1p-126 && x < 0x1p-126 {
		return float32(math.Copysign(0, float64(x)))
	}
	return x
}

// add returns x+y, rounded once. y is a float32 or the product of two bfloat16: exact.
func add(x float32, y float64) float32 {
	z := float64(x)
	s := z + y
	if math.Float64bits(s)&0x1fffffff == 0x10000000 { // halfway between two float32, perhaps by rounding
		back := s - z
		if rest := (z - (s - back)) + (y - back); rest != 0 {
			s = math.Nextafter(s, math.Copysign(math.Inf(1), rest))
		}
	}
	return flush(float32(s))
}

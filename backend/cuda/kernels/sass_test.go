//go:build cuda && linux

package kernels

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sass is what a kernel's machine code is judged by.
type sass struct {
	kernel       string
	registers    int
	instructions int
	local        int  // accesses of local memory: spilled registers, and arrays with an index
	loop         loop // of the innermost loops that read memory, the one with most products, or the longest
	divisions    int  // integer divisions in innermost loops
}

// loop is an innermost loop: of its instructions, how many multiply on Tensor Cores, and
// how many bytes a thread reads of global and of shared memory.
type loop struct{ instructions, products, global, shared int }

// String is a row of the table.
func (s sass) String() string {
	return fmt.Sprintf("%-44s %4d %6d %4d %6d %4d %5d %5d %4d", s.kernel, s.registers, s.instructions, s.local,
		s.loop.instructions, s.loop.products, s.loop.global, s.loop.shared, s.divisions)
}

const (
	sassFile = "testdata/sass_90.txt"
	sassHead = "kernel, registers, instructions, accesses of local memory; of the innermost loops that read memory the one with most products, or the longest: instructions, " +
		"products on Tensor Cores, bytes of global and of shared memory that a thread reads; integer divisions in innermost loops\n"
)

var (
	sassText   = regexp.MustCompile(`^\.text\.(\w+):`)
	sassLabel  = regexp.MustCompile(`^(\.L_x_\d+|\$?[\w$]+):`)
	sassLine   = regexp.MustCompile(`^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+ )?([\w.]+)(.*);`)
	sassTarget = regexp.MustCompile("`\\(([\\w$.]+)\\)")
)

// instruction is a line of SASS.
type instruction struct {
	name, target string
}

// judge reads the instructions of a kernel, with the positions of its labels.
func judge(kernel string, code []instruction, labels map[string]int) sass {
	s := sass{kernel: kernel, instructions: len(code)}
	type span struct{ from, to int }
	var loops []span
	for i, in := range code {
		if strings.HasPrefix(in.name, "STL") || strings.HasPrefix(in.name, "LDL") {
			s.local++
		}
		if from, ok := labels[in.target]; ok && strings.HasPrefix(in.name, "BRA") && from < i {
			loops = append(loops, span{from, i})
		}
	}
	for _, l := range loops {
		if slices.ContainsFunc(loops, func(o span) bool { return o != l && l.from <= o.from && o.to <= l.to }) {
			continue
		}
		var x loop
		for _, in := range code[l.from : l.to+1] {
			x.instructions++
			switch name, _, _ := strings.Cut(in.name, "."); name {
			case "HMMA", "QMMA", "IMMA":
				x.products++
			case "LDG", "LDGSTS":
				x.global += bytesOf(in.name)
			case "LDS":
				x.shared += bytesOf(in.name)
			case "LDSM":
				x.shared += 4 * max(1, int(in.name[len(in.name)-1]-'0'))
			case "I2F":
				if strings.Contains(in.name, ".RP") {
					s.divisions++
				}
			case "CALL":
				if strings.Contains(in.target, "div_s64") || strings.Contains(in.target, "div_u64") || strings.Contains(in.target, "rem_s64") || strings.Contains(in.target, "rem_u64") {
					s.divisions++
				}
			}
		}
		if x.global+x.shared > 0 && (x.products > s.loop.products || x.products == s.loop.products && x.instructions > s.loop.instructions) {
			s.loop = x
		}
	}
	return s
}

// bytesOf is how many bytes a load has.
func bytesOf(name string) int {
	for _, p := range strings.Split(name, ".")[1:] {
		switch p {
		case "U8", "S8":
			return 1
		case "U16", "S16":
			return 2
		case "64":
			return 8
		case "128":
			return 16
		}
	}
	return 4
}

// disassemble judges the kernels of a cubin.
func disassemble(t *testing.T, tool, cubin string) []sass {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cubin")
	if err := os.WriteFile(file, []byte(cubin), 0o644); err != nil {
		t.Fatal(err)
	}
	text, err := exec.Command(tool, "-c", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	header := []byte(cubin)
	header[elf.EI_VERSION], header[20] = 1, 1 // NVIDIA's own numbers
	f, err := elf.NewFile(bytes.NewReader(header))
	if err != nil {
		t.Fatal(err)
	}
	registers := registersOf(t, f)
	var list []sass
	var kernel string
	var code []instruction
	labels := map[string]int{}
	end := func() {
		if kernel != "" {
			s := judge(kernel, code, labels)
			s.registers = registers[kernel]
			list = append(list, s)
		}
		code, labels = nil, map[string]int{}
	}
	for line := range bytes.Lines(text) {
		if m := sassText.FindSubmatch(line); m != nil {
			end()
			kernel = string(m[1])
		} else if m := sassLabel.FindSubmatch(line); m != nil {
			labels[string(m[1])] = len(code)
		} else if m := sassLine.FindSubmatch(line); m != nil {
			in := instruction{name: string(m[2])}
			if target := sassTarget.FindSubmatch(m[3]); target != nil {
				in.target = string(target[1])
			}
			code = append(code, in)
		}
	}
	end()
	return list
}

// registersOf is how many registers a thread of each kernel has.
func registersOf(t *testing.T, f *elf.File) map[string]int {
	t.Helper()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Section(".nv.info").Data()
	if err != nil {
		t.Fatal(err)
	}
	const sized, registerCount = 4, 0x2f // a form with a size, and EIATTR_REGCOUNT
	m := map[string]int{}
	for len(info) >= 4 {
		size := 0
		if info[0] == sized {
			size = int(binary.LittleEndian.Uint16(info[2:]))
		}
		if data := info[4 : 4+size]; info[0] == sized && info[1] == registerCount {
			m[symbols[binary.LittleEndian.Uint32(data)-1].Name] = int(binary.LittleEndian.Uint32(data[4:]))
		}
		info = info[4+size:]
	}
	return m
}

// divides are the kernels that may divide integers in an inner loop, which is that over a
// thread's elements: those over a box of any rank, those with another path for numbers of
// more than 31 bits, and those of recurrent steps, with an element for each thread.
var divides = regexp.MustCompile(`^(collect|distribute|put_rows|reduce_block|reduce_thread|direct_conv_kernel_grad|attention_forward|rnn)_|^iota$`)

// indexes are those with an array in local memory: the parts of what ranks exchange.
var indexes = regexp.MustCompile(`^tree_sum_`)

// TestSASS: the machine code that GPUs of compute capability 9.x run is what the table in
// testdata says (-generate writes it anew), within budgets: no kernel spills registers or
// has arrays in local memory, and no inner loop divides integers.
//
//	MEZZO_NVDISASM=.../nvdisasm go test -tags cuda ./backend/cuda/kernels -run SASS -v
//
// prints it. nvdisasm is in nvidia-cuda-nvdisasm of PyPI.
func TestSASS(t *testing.T) {
	tool := os.Getenv("MEZZO_NVDISASM")
	if tool == "" {
		t.Skip("MEZZO_NVDISASM does not name the disassembler nvdisasm")
	}
	t.Parallel()
	var all []sass
	for _, unit := range Units() {
		cubin, err := unpack(fmt.Sprintf("%s_%d.cubin.gz", unit, Machines[0]))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, disassemble(t, tool, cubin)...)
	}
	slices.SortFunc(all, func(a, b sass) int { return strings.Compare(a.kernel, b.kernel) })
	table := sassHead
	for _, s := range all {
		table += s.String() + "\n"
		if s.local > 0 && !indexes.MatchString(s.kernel) {
			t.Errorf("%s accesses local memory %d times, want never", s.kernel, s.local)
		}
		if s.divisions > 0 && !divides.MatchString(s.kernel) {
			t.Errorf("%s divides integers %d times in an inner loop, want never", s.kernel, s.divisions)
		}
	}
	t.Log("\n" + table)
	if *generate {
		if err := os.MkdirAll(filepath.Dir(sassFile), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(sassFile, []byte(table), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	kept, err := os.ReadFile(sassFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(kept) != table {
		t.Errorf("%s is not what the cubins are: run the test with -generate", sassFile)
	}
}

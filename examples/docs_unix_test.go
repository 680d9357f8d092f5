//go:build unix

package examples_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// What README.md and docs/*.md show as output is output: TestDocs runs what a
// page says has printed it and compares. A block is output if its fence names
// no language. What has printed it is
//
//   - a block that begins with "$ ": a session; each command is run in turn, in
//     a folder of its own;
//   - the commands of the ```sh block before it;
//   - else what the comment above it names, invisible to readers:
//     <!-- output: MEZZO_DEBUG=plan go run ./examples/guide -epochs 1 -->
//     <!-- output: memoryPlan in examples/snippets_test.go -->
//
// A ```go block between is code of that program or snippet, to the letter but
// for what is done about errors. Two
// more comments say who else answers for a block, or why nobody does:
//
//	<!-- held by TestTutorial in examples/tutorial_unix_test.go -->
//	<!-- illustration: three machines in one list -->
//
// The first also stands before the first heading of a page, for all its blocks.
// Above a block whose programs take seconds, <!-- long --> leaves it to -every.
// Any other block is an error. What takes hours to print is kept in a file,
// with the commands and the day, and blocks and tables are compared with that:
//
//	<!-- output: docs/benchmarks/accuracy.txt -->
//	<!-- table 2 of docs/benchmarks/accuracy.txt -->
//
// A block is an excerpt: it may begin and end anywhere in the output, but shows
// all lines between. "…" alone on a line stands for any lines, and "…" within
// one for anything, such as times and what depends on the machine; nothing else
// is passed over. A line "^C…" says that Ctrl-C is pressed once the line before
// has been printed.
//
// Digits differ between instruction sets: they are those of docsSettings, which
// all x86-64 processors of the last ten years have, unless a command says
// otherwise. Where the processor lacks that level, the words are compared and
// the numbers are not.
//
// go test ./examples -run 'Docs|Tutorial' -update rewrites the blocks, and
// keeps every "…"; with -every, also those that are long.
var update = flag.Bool("update", false, "rewrite what docs/*.md and README.md show as output")

var docsSettings = []string{"MEZZO_CPU=avx2", "GOMAXPROCS=2"}

// A fence is a block between two lines of three backquotes.
type fence struct {
	page     *page
	line     int    // of the opening fence, from 0
	language string // what stands behind the opening fence
	indent   string
	text     []string
	comment  string // directly above it, without its marks
	before   string // the text since the block before
	previous *fence // the one before, in the same section
}

func (f *fence) String() string { return fmt.Sprintf("%s:%d", f.page.name, f.line+1) }

// A page is a Markdown file.
type page struct {
	name    string // from the root of the repository
	lines   []string
	fences  []*fence
	comment string // "held by" before the first heading: of all blocks
	changed map[*fence][]string
	mu      sync.Mutex
}

var (
	tableNote  = regexp.MustCompile(`^<!-- (table \d+ of \S+) -->$`)
	storedNote = regexp.MustCompile(`^docs/\S+\.txt$`)
)

var comments = regexp.MustCompile(`(?s)<!--\s*(.*?)\s*-->\s*$`)

func readPage(t *testing.T, name string) *page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", name))
	if err != nil {
		t.Fatal(err)
	}
	p := &page{name: name, lines: strings.Split(string(text), "\n"), changed: map[*fence][]string{}}
	var open, previous *fence
	begin := 0 // of the text before the next block
	headings := 0
	for i, l := range p.lines {
		trimmed := strings.TrimSpace(l)
		switch {
		case open != nil && trimmed == "```":
			for _, l := range p.lines[open.line+1 : i] {
				open.text = append(open.text, strings.TrimPrefix(l, open.indent))
			}
			p.fences = append(p.fences, open)
			previous, open, begin = open, nil, i+1
		case open == nil && strings.HasPrefix(trimmed, "```"):
			open = &fence{page: p, line: i, language: trimmed[3:], indent: l[:strings.Index(l, "`")], previous: previous}
			open.before = strings.Join(p.lines[begin:i], "\n")
			if m := comments.FindStringSubmatch(open.before); m != nil {
				open.comment = strings.Join(strings.Fields(m[1]), " ")
			}
		case open == nil && tableNote.MatchString(l):
			f := &fence{page: p, line: i, language: "table", comment: tableNote.FindStringSubmatch(l)[1]}
			for _, l := range p.lines[i+1:] {
				if !strings.HasPrefix(l, "|") {
					break
				}
				f.text = append(f.text, l)
			}
			p.fences = append(p.fences, f)
			previous = nil
		case open == nil && strings.HasPrefix(l, "#"):
			if headings++; headings == 1 {
				if m := comments.FindStringSubmatch(strings.Join(p.lines[:i], "\n")); m != nil {
					p.comment = strings.Join(strings.Fields(m[1]), " ")
				}
			}
			previous = nil
		}
	}
	if open != nil {
		t.Fatalf("%v: the block does not end", open)
	}
	return p
}

// write stores the blocks that hold has rewritten.
func (p *page) write(t *testing.T) {
	var lines []string
	from := 0
	for _, f := range p.fences {
		text, ok := p.changed[f]
		if !ok {
			continue
		}
		lines = append(lines, p.lines[from:f.line+1]...)
		for _, l := range text {
			lines = append(lines, strings.TrimRight(f.indent+l, " "))
		}
		from = f.line + 1 + len(f.text)
	}
	if len(p.changed) == 0 {
		return
	}
	text := strings.Join(append(lines, p.lines[from:]...), "\n")
	if err := os.WriteFile(filepath.Join("..", p.name), []byte(text), 0o644); err != nil {
		t.Error(err)
	}
}

const elision = "…"

// tokens are what -update replaces, and what is not compared where numbers
// differ: digests, numbers, and the spaces that align them.
var tokens = regexp.MustCompile(`[0-9a-f]{64}|[+-]?(?:\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?|NaN|Inf)|  +`)

// marks are tokens and elisions: what loosely looks for.
var marks = regexp.MustCompile(elision + "|" + tokens.String())

// exactly matches a line of the block; loosely one that has other numbers.
func exactly(line string) *regexp.Regexp {
	parts := strings.Split(line, elision)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, "(.*)") + "$")
}

func loosely(line string) *regexp.Regexp {
	parts := strings.Split(line, elision)
	for i, part := range parts {
		var b strings.Builder
		from := 0
		for _, m := range tokens.FindAllStringIndex(part, -1) {
			b.WriteString(regexp.QuoteMeta(part[from:m[0]]) + "(" + tokens.String() + "| *)")
			from = m[1]
		}
		parts[i] = b.String() + regexp.QuoteMeta(part[from:])
	}
	return regexp.MustCompile("^" + strings.Join(parts, "(.*)") + "$")
}

// find says where the lines of a block are in the output: for each its index
// there, -1 for an elision, or nil if they are not all there. Of several places
// it is the one whose numbers are nearest.
func find(block, out []string, like func(string) *regexp.Regexp) []int {
	patterns := make([]*regexp.Regexp, len(block))
	for i, l := range block {
		if l = strings.TrimRight(l, " "); strings.TrimSpace(l) != elision {
			patterns[i] = like(l)
		}
	}
	var best []int
	least := math.Inf(1)
	for start := range out {
		at := make([]int, len(block))
		next, gap, ok := start, false, true
		for i, p := range patterns {
			if p == nil {
				at[i], gap = -1, true
				continue
			}
			for gap && next < len(out) && !segment(patterns[i:], out[next:]) {
				next++
			}
			if next == len(out) || !p.MatchString(out[next]) {
				ok = false
				break
			}
			at[i], gap = next, false
			next++
		}
		if !ok {
			continue
		}
		d := 0.0
		for i, j := range at {
			if j >= 0 {
				d += distance(block[i], patterns[i].FindStringSubmatch(out[j])[1:])
			}
		}
		if d < least {
			best, least = at, d
		}
	}
	return best
}

// segment says whether the output begins with the lines before the next
// elision.
func segment(patterns []*regexp.Regexp, out []string) bool {
	for i, p := range patterns {
		if p == nil {
			return true
		}
		if i == len(out) || !p.MatchString(out[i]) {
			return false
		}
	}
	return true
}

// distance is how far the numbers of a line are from those that loosely has
// found in their place.
func distance(line string, found []string) (d float64) {
	shown := marks.FindAllString(strings.TrimRight(line, " "), -1)
	if len(shown) != len(found) {
		return 0 // all is equal
	}
	for i := range shown {
		u, err1 := strconv.ParseFloat(strings.ReplaceAll(shown[i], ",", ""), 64)
		v, err2 := strconv.ParseFloat(strings.ReplaceAll(found[i], ",", ""), 64)
		switch {
		case shown[i] == found[i] || err1 != nil || err2 != nil:
		case math.IsNaN(u+v) || math.IsInf(u+v, 0):
			d++
		default:
			d += math.Abs(u-v) / max(math.Abs(u)+math.Abs(v), 1e-300)
		}
	}
	return d
}

// renew is a block with the numbers of the output, and nil where it is not
// there, even with other numbers. Between lines that are there, others may have
// come or gone.
func renew(block, out []string) []string {
	at := find(block, out, loosely)
	if at == nil {
		if slices.ContainsFunc(block, func(l string) bool { return strings.TrimSpace(l) == elision }) || len(block) < 3 {
			return nil
		}
		ends := find([]string{block[0], elision, block[len(block)-1]}, out, loosely)
		if ends == nil {
			return nil
		}
		return out[ends[0] : ends[2]+1]
	}
	renewed := slices.Clone(block)
	for i, j := range at {
		if j < 0 {
			continue
		}
		if exactly(strings.TrimRight(block[i], " ")).MatchString(out[j]) {
			continue
		}
		groups := loosely(strings.TrimRight(block[i], " ")).FindStringSubmatchIndex(out[j])[2:]
		var b strings.Builder
		from := 0
		for k, mark := range marks.FindAllString(strings.TrimRight(block[i], " "), -1) {
			b.WriteString(out[j][from:groups[2*k]])
			if mark == elision {
				b.WriteString(elision)
			} else {
				b.WriteString(out[j][groups[2*k]:groups[2*k+1]])
			}
			from = groups[2*k+1]
		}
		renewed[i] = b.String() + out[j][from:]
	}
	return renewed
}

// lacks is what a program says of an instruction set that there is not.
var lacks = regexp.MustCompile(`(?m)^MEZZO_CPU: got .*\n`)

// hold compares a block with what was printed, or with -update writes that into
// the page.
func hold(t *testing.T, f *fence, printed string) {
	t.Helper()
	var out []string
	for l := range strings.Lines(lacks.ReplaceAllString(printed, "")) {
		out = append(out, strings.TrimRight(l, " \n"))
	}
	block := slices.Clone(f.text)
	for i, l := range block {
		block[i] = strings.TrimPrefix(l, "^C") // which is the terminal's
	}
	if find(block, out, exactly) != nil {
		return
	}
	if m := lacks.FindString(printed); m != "" {
		t.Logf("%v: the numbers are not compared: %s", f, m)
		for i, l := range block {
			if strings.HasPrefix(l, "cpu: ") { // names the instruction set
				block[i] = "cpu: " + elision
			}
		}
		if find(block, out, loosely) != nil {
			return
		}
	} else if *update {
		if renewed := renew(block, out); renewed != nil {
			for i, l := range f.text {
				if strings.HasPrefix(l, "^C") && i < len(renewed) {
					renewed[i] = "^C" + renewed[i]
				}
			}
			f.page.mu.Lock()
			defer f.page.mu.Unlock()
			f.page.changed[f] = renewed
			return
		}
	}
	t.Errorf("%v: what is shown was not printed. The page has\n%s\nand printed was\n%s\n(-update rewrites it where only numbers differ)",
		f, strings.Join(f.text, "\n"), excerpt(out, 60))
}

func excerpt(out []string, n int) string {
	if len(out) > n {
		out = append(slices.Clone(out[:n]), fmt.Sprintf("… and %d more lines", len(out)-n))
	}
	return strings.Join(out, "\n")
}

// A shell runs commands of pages, in one folder.
type shell struct {
	dir string
	env []string
}

// newShell is one with the settings of docs and none of the tests' own.
func newShell(t *testing.T) *shell {
	s := &shell{dir: t.TempDir()}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MEZZO_") && !strings.HasPrefix(v, "GOMAXPROCS=") {
			s.env = append(s.env, v)
		}
	}
	s.env = append(append(s.env, docsSettings...), "TMPDIR="+t.TempDir())
	return s
}

// example is how a page runs one.
var example = regexp.MustCompile(`go (run|build) \./examples/(\w+)`)

// likeGoRun gives the programs the path that go run would give them.
var likeGoRun = sync.OnceValue(func() error { return os.Symlink(programs, filepath.Join(programs, "go-build")) })

// run is what a command prints. Examples are those that buildAll has built; the
// programs are found under a name that go run would give them, which they
// print. When the line strike has been printed, Ctrl-C is pressed.
func (s *shell) run(t *testing.T, command string, strike *regexp.Regexp) string {
	t.Helper()
	line := command
	if m := example.FindStringSubmatch(command); m != nil {
		buildAt(t, m[2])
		if err := likeGoRun(); err != nil {
			t.Fatal(err)
		}
		bin := filepath.Join(programs, "go-build", m[2])
		if m[1] == "build" {
			line = "ln -s " + bin + " " + m[2]
		} else {
			line = strings.Replace(command, m[0], bin, 1)
		}
	}
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir, cmd.Env = s.dir, s.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for all of a terminal's group
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(5*time.Minute, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer late.Stop()
	var lines []string
	scanner := bufio.NewScanner(pipe)
	scanner.Buffer(nil, 1<<24)
	for scanner.Scan() {
		lines = append(lines, scanner.Text())
		if strike != nil && strike.MatchString(scanner.Text()) {
			strike = nil
			syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		}
	}
	cmd.Wait() // what fails says so
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	killed := status.Signaled() && status.Signal() == syscall.SIGKILL || status.ExitStatus() == 128+int(syscall.SIGKILL)
	if killed && !slices.Contains(lines, "Killed") {
		lines = append(lines, "Killed") // as shells with a terminal say
	}
	if len(lines) == 0 {
		return ""
	}
	if words := strings.Fields(command); words[0] == "ls" {
		return strings.Join(lines, "  ") + "\n" // as on a terminal
	}
	return strings.Join(lines, "\n") + "\n"
}

// strikeOf is the line after which a block says that Ctrl-C is pressed.
func strikeOf(f *fence) *regexp.Regexp {
	i := slices.IndexFunc(f.text, func(l string) bool { return strings.HasPrefix(l, "^C") })
	for i--; i >= 0; i-- {
		if strings.TrimSpace(f.text[i]) != elision {
			return exactly(f.text[i])
		}
	}
	return nil
}

// commandsOf are the lines of a block of commands.
func commandsOf(f *fence) (commands []string) {
	for _, l := range f.text {
		l, _, _ = strings.Cut(l, " #")
		if l = strings.TrimSpace(l); l != "" {
			commands = append(commands, l)
		}
	}
	return commands
}

var snippetNote = regexp.MustCompile(`^((?:\w+=\S+ )*)(\w+) in (examples/snippets_test\.go)$`)

// docPages are the pages that are compared.
func docPages(t *testing.T) []string {
	names := []string{"README.md", "docs/benchmarks/accuracy.md"} // cpu.md there has times
	more, err := filepath.Glob("../docs/*.md")
	if err != nil || len(more) < 10 {
		t.Fatal(more, err)
	}
	for _, m := range more {
		names = append(names, strings.TrimPrefix(filepath.ToSlash(m), "../"))
	}
	return names
}

// TestDocs holds README.md and docs to what programs print.
func TestDocs(t *testing.T) {
	var pages []*page
	t.Run("blocks", func(t *testing.T) {
		for _, name := range docPages(t) {
			p := readPage(t, name)
			pages = append(pages, p)
			for _, f := range p.fences {
				if f.language == "" || f.language == "table" {
					t.Run(f.String(), func(t *testing.T) {
						t.Parallel()
						checkFence(t, f)
					})
				}
			}
		}
	})
	for _, p := range pages {
		p.write(t)
	}
}

// TestDocsTables: every table of a page of figures is from a file.
func TestDocsTables(t *testing.T) {
	p := readPage(t, "docs/benchmarks/accuracy.md")
	for i, l := range p.lines[1:] {
		if above := p.lines[i]; strings.HasPrefix(l, "|") && !strings.HasPrefix(above, "|") && !tableNote.MatchString(above) {
			t.Errorf("%s:%d: what has printed this table? Say so in a comment above it", p.name, i+2)
		}
	}
}

// TestDocsFlags: examples have the flags that pages give them.
func TestDocsFlags(t *testing.T) {
	var (
		run      = regexp.MustCompile(`go run (?:-tags cuda )?\./examples/(\w+)([^` + "`" + `#|]*)`)
		span     = regexp.MustCompile("`(-[a-z][^`]*)`")
		declared = regexp.MustCompile(`flag\.\w+\((?:&?[\w.]+, )?"([\w-]+)"`)
		word     = regexp.MustCompile(`(?:^| )-+([a-z][\w-]*)`)
		flags    = map[string]map[string]bool{}
	)
	of := func(name string) map[string]bool {
		if flags[name] == nil {
			flags[name] = map[string]bool{"h": true}
			files, _ := filepath.Glob(filepath.Join(name, "*.go"))
			for _, f := range append(files, filepath.Join("interrupt", "interrupt.go")) {
				source, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range declared.FindAllSubmatch(source, -1) {
					flags[name][string(m[1])] = true
				}
			}
		}
		return flags[name]
	}
	n := 0
	for _, page := range docPages(t) {
		for i, l := range readPage(t, page).lines {
			for _, m := range run.FindAllStringSubmatch(l, -1) {
				given, _, _ := strings.Cut(m[2], " -- ")
				if strings.HasPrefix(l, "|") { // a row that tells of one program
					for _, s := range span.FindAllStringSubmatch(l, -1) {
						given += " " + s[1]
					}
				}
				for _, w := range word.FindAllStringSubmatch(given, -1) {
					if n++; !of(m[1])[w[1]] {
						t.Errorf("%s:%d: examples/%s has no flag -%s", page, i+1, m[1], w[1])
					}
				}
			}
		}
	}
	if n < 20 {
		t.Errorf("found %d flags", n)
	}
}

func checkFence(t *testing.T, f *fence) {
	if f.comment == "long" {
		if !*every {
			t.Skip("long: without -every")
		}
		f.comment = ""
	}
	kind, what, _ := strings.Cut(f.comment, " ")
	if f.comment == "" && strings.HasPrefix(f.page.comment, "held ") {
		kind, what, _ = strings.Cut(f.page.comment, " ")
	}
	switch {
	case kind == "illustration:":
		if len(strings.Fields(what)) < 3 {
			t.Errorf("%v: an illustration needs a reason", f)
		}
	case kind == "held":
		checkHolder(t, f, strings.TrimPrefix(what, "by "))
	case kind == "output:":
		if m := snippetNote.FindStringSubmatch(what); m != nil {
			checkCode(t, f, m[3])
			hold(t, f, runSnippet(t, m[2], strings.Fields(m[1])))
			return
		}
		if storedNote.MatchString(what) {
			hold(t, f, stored(t, what))
			return
		}
		m := example.FindStringSubmatch(what)
		if m == nil {
			t.Fatalf("%v: %q is neither a command that runs an example nor a snippet", f, what)
		}
		checkCode(t, f, "examples/"+m[2]+"/main.go")
		hold(t, f, newShell(t).run(t, what, strikeOf(f)))
	case kind == "table":
		holdTable(t, f, what)
	case f.comment != "":
		t.Errorf("%v: the comment %q says nothing of the block", f, f.comment)
	case len(f.text) > 0 && strings.HasPrefix(f.text[0], "$ "):
		var out strings.Builder
		s := newShell(t)
		for _, l := range f.text {
			if command, ok := strings.CutPrefix(l, "$ "); ok {
				fmt.Fprintln(&out, l)
				out.WriteString(s.run(t, command, strikeOf(f)))
			}
		}
		hold(t, f, out.String())
	case f.previous != nil && f.previous.language == "sh":
		var out strings.Builder
		s := newShell(t)
		for _, command := range commandsOf(f.previous) {
			if !example.MatchString(command) {
				t.Fatalf("%v: the command %q runs no example; what has printed this?", f, command)
			}
			out.WriteString(s.run(t, command, strikeOf(f)))
		}
		hold(t, f, out.String())
	default:
		t.Errorf("%v: what has printed this? Put it behind its commands, or say so in a comment: see examples/docs_unix_test.go", f)
	}
}

// stored is a file of what programs have printed.
func stored(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// holdTable compares a table with that of a file: "2 of FILE", counted from 1.
func holdTable(t *testing.T, f *fence, what string) {
	number, file, _ := strings.Cut(what, " of ")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	var tables [][]string
	inside := false
	for _, l := range strings.Split(stored(t, file), "\n") {
		row := strings.HasPrefix(l, "|")
		if row && !inside {
			tables = append(tables, nil)
		}
		if inside = row; row {
			tables[len(tables)-1] = append(tables[len(tables)-1], l)
		}
	}
	switch {
	case n < 1 || n > len(tables):
		t.Errorf("%v: %s has %d tables", f, file, len(tables))
	case slices.Equal(f.text, tables[n-1]):
	case *update:
		f.page.mu.Lock()
		defer f.page.mu.Unlock()
		f.page.changed[f] = tables[n-1]
	default:
		t.Errorf("%v: the page has\n%s\nand %s\n%s", f, strings.Join(f.text, "\n"), file, strings.Join(tables[n-1], "\n"))
	}
}

// checkHolder: the test that answers for a block is there, and knows the page
// or the text.
func checkHolder(t *testing.T, f *fence, what string) {
	name, file, ok := strings.Cut(what, " in ")
	source, err := os.ReadFile(filepath.Join("..", file))
	if !ok || err != nil || !bytes.Contains(source, []byte("func "+name+"(t *testing.T)")) {
		t.Errorf("%v: there is no test %s: %v", f, what, err)
		return
	}
	first, _, _ := strings.Cut(f.text[0], elision)
	if !bytes.Contains(source, []byte(filepath.Base(f.page.name))) && !bytes.Contains(source, []byte(first)) {
		t.Errorf("%v: %s mentions neither the page nor %q", f, file, first)
	}
}

// checkCode: code between is that of the program.
func checkCode(t *testing.T, f *fence, file string) {
	t.Helper()
	if f.previous == nil || f.previous.language != "go" || strings.Contains(f.before, "\n|") {
		return // none, or another matter: a table is between
	}
	source, err := os.ReadFile(filepath.Join("..", file))
	if err != nil {
		t.Fatal(err)
	}
	trimmed := func(lines []string) (out []string) {
		for _, l := range lines {
			if l = strings.TrimSpace(l); l != "" {
				out = append(out, strings.Join(strings.Fields(l), " "))
			}
			// Pages leave out what is done about errors.
			if n := len(out); n > 2 && out[n-3] == "if err != nil {" && strings.HasPrefix(out[n-2], "return ") && l == "}" {
				out = out[:n-3]
			}
		}
		return out
	}
	if find(trimmed(f.previous.text), trimmed(strings.Split(string(source), "\n")), exactly) == nil {
		t.Errorf("%v: this code is not in %s:\n%s", f.previous, file, strings.Join(f.previous.text, "\n"))
	}
}

// runSnippet runs a function of snippets_test.go in a process of its own.
func runSnippet(t *testing.T, name string, settings []string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := newShell(t)
	cmd := exec.Command(self)
	cmd.Dir, cmd.Env = s.dir, append(append(s.env, settings...), snippetVariable+"="+name)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("snippet %s: %v\n%s", name, err, out)
	}
	return string(out)
}

// TestFind: what a block may pass over, and what -update makes of one that is
// not printed.
func TestFind(t *testing.T) {
	printed := []string{
		"cpu: X, 2 threads",
		"Epoch 1/2",
		"19/19 - 0s - 3ms/step - loss: 1.70",
		"Epoch 2/2",
		"19/19 - 0s - 2ms/step - loss: NaN",
		"a     12 ns  %32 = Cast float16[512 784]",
		"sum 0f",
		"done in 2 s",
	}
	for _, c := range []struct{ block, renewed string }{
		{"Epoch 1/2\n19/19 - … - loss: 1.70", "="},
		{"…\nEpoch 2/2\n…\ndone in … s", "="},
		{"Epoch 1/2\n…\nsum 0f\n…", "="},
		{"Epoch 1/2\n19/19 - … - loss: 1.75", "Epoch 1/2\n19/19 - … - loss: 1.70"},
		{"19/19 - … - loss: 1.5\na     12 ns …", "19/19 - … - loss: NaN\na     12 ns …"},
		{"19/19 - … - loss: -1e-05\n…\na  123456 ns  %1 = Cast float16[… 784]", "19/19 - … - loss: 1.70\n…\na     12 ns  %32 = Cast float16[… 784]"},
		{"Epoch 2/2\n19/19 - 1s - 2ms/step - loss: 0.1\ndone in 3 s", "Epoch 2/2\n19/19 - 0s - 2ms/step - loss: NaN\na     12 ns  %32 = Cast float16[512 784]\nsum 0f\ndone in 2 s"},
		{"Epoch 1/2\nEpoch 2/2", ""},
		{"cpu: Y, … threads", ""},
		{"sum", ""},
	} {
		block := strings.Split(c.block, "\n")
		if same := find(block, printed, exactly) != nil; same != (c.renewed == "=") {
			t.Errorf("%q: found %v", c.block, same)
		} else if got := strings.Join(renew(block, printed), "\n"); !same && got != c.renewed {
			t.Errorf("%q: got %q, want %q", c.block, got, c.renewed)
		}
	}
}

// Package backend opens devices by name and keeps the programs they compile.
//
// A device registers itself in an init function, as database/sql drivers do;
// importing package keras brings "cpu", building with the tag cuda adds
// "cuda". The rest of Mezzo compiles through [Compile], which optimizes a
// graph and remembers the program by structure, device and options.
package backend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Provider opens the devices of one kind.
type Provider struct {
	// Open opens a device by number; 0 is the first.
	Open func(number int) (driver.Device, error)

	// Search lists the devices of the machine, with the reason for each that does not
	// open, or returns why there are none. It opens none of them. If Search is nil,
	// there is one device.
	Search func() ([]DeviceInfo, error)
}

// DeviceInfo describes a device that was searched for.
type DeviceInfo struct {
	Name     string // "cpu", "cuda:1"
	Hardware string // the model: "NVIDIA H200"; empty where there is none
	ISA      string // "AVX-512", "sm_90"
	Bytes    int64  // memory of the device; 0: the machine's memory
	Err      error  // reason why it cannot be used, and where it was looked for; or nil
}

// String prints a device on one line:
//
//	cuda:1: NVIDIA H200, sm_90, 139.8 GiB
//	cuda: not available: no driver found: tried libcuda.so.1, …
func (f DeviceInfo) String() string {
	s := f.Name + ": "
	if f.Err != nil {
		s += "not available: "
	}
	var parts []string
	for _, p := range []string{f.Hardware, f.ISA} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	if f.Bytes > 0 {
		parts = append(parts, fmt.Sprintf("%.1f GiB", float64(f.Bytes)/(1<<30)))
	}
	s += strings.Join(parts, ", ")
	if f.Err != nil {
		if len(parts) > 0 {
			s += ": "
		}
		s += f.Err.Error()
	}
	return s
}

// opening is a device that was asked for.
type opening struct {
	once   sync.Once
	device driver.Device
	err    error
}

var registry = struct {
	sync.Mutex
	providers map[string]Provider
	devices   map[string]*opening
}{providers: map[string]Provider{}, devices: map[string]*opening{}}

// Register makes a device available under a name. It panics if the name is taken: two
// providers of one device are a build error.
func Register(name string, open func() (driver.Device, error)) {
	RegisterProvider(name, Provider{Open: func(number int) (driver.Device, error) {
		if number > 0 {
			return nil, fmt.Errorf("there is one, got number %d", number)
		}
		return open()
	}})
}

// RegisterProvider makes devices available under a name, which is the first device's,
// and the name with a number: "cuda:1". It panics if the name is taken.
func RegisterProvider(name string, p Provider) {
	registry.Lock()
	defer registry.Unlock()
	if _, dup := registry.providers[name]; dup {
		panic("backend: Register called twice for device " + name)
	}
	registry.providers[name] = p
}

// registered is the sorted names of the kinds of devices.
func registered() []string {
	registry.Lock()
	defer registry.Unlock()
	return slices.Sorted(maps.Keys(registry.providers))
}

// Devices returns the kinds of registered devices whose first device opens on this
// machine, sorted.
func Devices() []string {
	return slices.DeleteFunc(registered(), func(name string) bool {
		_, err := Open(name)
		return err != nil
	})
}

// tags are the kinds of devices that only programs built with a tag have, and
// that tag.
var tags = map[string]string{"cuda": "cuda"}

// builtWithout returns the error of a kind of device that the program was built
// without, or nil for one that no build has. Call it for kinds that are not
// registered.
func builtWithout(kind string) error {
	tag, ok := tags[kind]
	if !ok {
		return nil
	}
	return fmt.Errorf("the program was built without it; build it with: go build -tags %s (see docs/%s.md)", tag, kind)
}

// Search lists all devices, sorted by kind and number, with the reason for those that
// cannot be used. A kind without devices, or that the program was built without, has
// one entry.
func Search() []DeviceInfo {
	var all []DeviceInfo
	have := registered()
	names := slices.Concat(have, slices.Collect(maps.Keys(tags)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if !slices.Contains(have, name) {
			all = append(all, DeviceInfo{Name: name, Err: builtWithout(name)})
			continue
		}
		registry.Lock()
		p := registry.providers[name]
		registry.Unlock()
		if p.Search == nil {
			all = append(all, opened(name))
			continue
		}
		found, err := p.Search()
		if err != nil {
			found = []DeviceInfo{{Name: name, Err: err}}
		}
		all = append(all, found...)
	}
	return all
}

// opened describes the only device of its kind by opening it.
func opened(name string) DeviceInfo {
	f := DeviceInfo{Name: name}
	d, err := Open(name)
	if err != nil {
		f.Err = errors.Unwrap(err)
	} else if d, ok := d.(driver.Describer); ok {
		about := d.Describe()
		f.Hardware, f.ISA = about.Hardware, about.ISA
	}
	return f
}

// Open returns the device of that name, opening it at the first call: "cuda"
// and "cuda:0" are the first of its kind, "cuda:1" the second.
func Open(name string) (driver.Device, error) {
	kind, suffix, numbered := strings.Cut(name, ":")
	number := 0
	if numbered {
		var err error
		if number, err = strconv.Atoi(suffix); err != nil || number < 0 {
			return nil, fmt.Errorf("backend: device %q: got number %q, want 0 or more", name, suffix)
		}
	}
	registry.Lock()
	p, ok := registry.providers[kind]
	key := fmt.Sprint(kind, ":", number)
	o := registry.devices[key]
	if o == nil {
		o = &opening{}
		registry.devices[key] = o
	}
	registry.Unlock()
	if !ok {
		if err := builtWithout(kind); err != nil {
			return nil, fmt.Errorf("backend: device %q does not open: %w", name, err)
		}
		return nil, fmt.Errorf("backend: unknown device %q; have %q", name, registered())
	}
	o.once.Do(func() { o.device, o.err = p.Open(number) })
	if o.err != nil {
		return nil, fmt.Errorf("backend: device %q does not open: %w", name, o.err)
	}
	return o.device, nil
}

// preference is the order in which Default looks for a device.
var preference = []string{"cuda", "cpu"}

// localRank is that of SetLocalRank, rankedNames has the names that ranked has found.
var (
	localRank   atomic.Int64
	rankedNames sync.Map
)

// SetLocalRank has Default open another device of a kind than the first one: of those
// that the process sees, the one with this number; behind the last comes the first. Ranks
// that train together on a machine so have a GPU each. It must be called before tensors
// are made.
func SetLocalRank(rank int) {
	localRank.Store(int64(rank))
	rankedNames.Clear()
}

// ranked returns the name of this process's device of a kind.
func ranked(name string) string {
	rank := int(localRank.Load())
	if rank == 0 || strings.Contains(name, ":") {
		return name
	}
	if full, ok := rankedNames.Load(name); ok {
		return full.(string)
	}
	registry.Lock()
	p := registry.providers[name]
	registry.Unlock()
	full := name
	if p.Search != nil {
		if found, err := p.Search(); err == nil && len(found) > 1 {
			full = fmt.Sprint(name, ":", rank%len(found))
		}
	}
	rankedNames.Store(name, full)
	return full
}

// Default returns the device that tensors live on: the one MEZZO_DEVICE
// names, else the first of cuda and cpu that opens. See SetLocalRank.
func Default() (driver.Device, error) {
	if name := deviceSetting(); name != "" {
		return Open(ranked(name))
	}
	var last error
	for _, name := range preference {
		d, err := Open(ranked(name))
		if err == nil {
			return d, nil
		}
		last = err
	}
	return nil, fmt.Errorf("backend: no device; import package keras or backend/cpu: %w", last)
}

// Fallback tells whether Default is not the device that it looks for first,
// although that is registered: its name and why it does not open, or nil.
func Fallback() (name string, err error) {
	if deviceSetting() != "" {
		return "", nil
	}
	for _, name := range preference {
		if !slices.Contains(registered(), name) {
			continue
		}
		if _, err := Open(name); err != nil {
			return name, err
		}
		break
	}
	return "", nil
}

// UnsupportedError reports that a device has no kernel for an operation, and the
// operation no expansion into supported ones.
type UnsupportedError struct {
	Device string
	Op     op.Code
	DType  dtype.DType
	Path   string // who recorded it
}

func (e *UnsupportedError) Error() string {
	where := ""
	if e.Path != "" {
		where = "layer " + e.Path + ": "
	}
	return fmt.Sprintf("%sdevice %q has no kernel for %v on %v", where, e.Device, e.Op, e.DType)
}

// programs remembers the programs that were asked for last; the bound keeps a
// process that sees ever new shapes from growing without end.
var programs = struct {
	sync.Mutex
	byKey map[string]*entry
	asked uint64 // calls of remembered so far
}{byKey: map[string]*entry{}}

const maxPrograms = 256

// entry is a program. The first goroutine that needs it compiles it.
type entry struct {
	asked    uint64        // the last call that asked for it
	turn     chan struct{} // capacity 1: its holder compiles
	planned  bool          // graph has been optimized, with err
	graph    *ir.Graph
	memory   ir.Memory
	err      error
	compiled bool
	program  driver.Program
}

func newEntry() *entry { return &entry{turn: make(chan struct{}, 1)} }

// Compile optimizes g for a device and compiles it, or returns the program it
// compiled before for a graph of the same structure and paths on the same
// device with the same options. g is used up. The plan that the program runs
// is returned with it and must not be changed. A plan that does not fit into the
// device's memory limit is a *MemoryError. A program of o.Once is made for this call
// alone. When the context ends first, its
// error is returned, and nothing is remembered.
func Compile(ctx context.Context, d driver.Device, g *ir.Graph, o ir.Options) (driver.Program, *ir.Graph, error) {
	debug := DebugFromEnv()
	o.Check = o.Check || debug.Check
	o.Skip = append(slices.Clone(o.Skip), SkippedPasses()...)
	if f, ok := d.(driver.EpilogueFuser); !ok || !f.FusesEpilogue() {
		o.Skip = append(slices.Clone(o.Skip), "epilogue")
	}
	if m, ok := d.(driver.ReshapeMover); !ok || !m.MovesReshapes() {
		o.Skip = append(slices.Clone(o.Skip), "reshapes")
	}
	if w, ok := d.(driver.ResultSplitter); ok {
		o.Packs = func(c op.Code) bool { return !w.SplitsResults(c) }
	} else {
		o.Skip = append(slices.Clone(o.Skip), "split")
	}
	if !d.Supports(op.ExtraOutput, dtype.Float32) {
		o.Skip = append(slices.Clone(o.Skip), "multioutput")
	}
	if debug.Graph {
		fmt.Fprintf(os.Stderr, "graph: %d values\n%v", len(g.Values), g)
	}
	if debug.Passes {
		o.Trace = tracePasses(o.Trace)
	}
	emulate, bits := EmulatesTF32(d), CurrentBits()
	if p, ok := d.(driver.PortableComputer); bits == PortableBits && !(ok && p.ComputesPortably()) {
		return nil, nil, fmt.Errorf("backend: device %q cannot compute with portable bits (policy.SetBits, MEZZO_BITS); the device cpu can: set MEZZO_DEVICE=cpu", d.Name())
	}
	key := g.AppendKey(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d %v %v\x00", d.Name(), o.Key(), skips.Load().key, tf32.Load(), emulate, bits))
	for _, v := range g.Values { // errors of a run name the layer
		key = append(append(key, v.Path...), 0)
	}
	e := newEntry()
	if Keeps(Programs) && !o.Once {
		e = remembered(string(key))
	}
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	defer func() { <-e.turn }()
	if err := e.compile(ctx, d, g, o, emulate); err != nil {
		return nil, nil, err
	}
	return e.program, e.graph, nil
}

// compile does the outstanding part. An error in the graph is permanent; other errors
// may be temporary.
func (e *entry) compile(ctx context.Context, d driver.Device, g *ir.Graph, o ir.Options, emulate bool) error {
	if !e.planned {
		if err := ctx.Err(); err != nil {
			return err
		}
		e.planned, e.graph = true, g
		if e.err = expand(d, g, emulate); e.err == nil {
			e.err = ir.Optimize(g, o)
		}
		if e.err == nil {
			e.memory = g.Memory()
		}
	}
	if e.err != nil {
		return e.err
	}
	if !o.Unbounded {
		if err := fits(d, e.graph, e.memory); err != nil {
			return err
		}
	}
	if e.compiled {
		return nil
	}
	program, err := d.Compile(ctx, e.graph)
	if err != nil {
		return err
	}
	e.program, e.compiled = program, true
	if DebugFromEnv().Plan {
		m := e.memory
		fmt.Fprintf(os.Stderr, "plan: %d values; bytes: %d arena, %d inputs, %d outputs, %d constants\n%v",
			len(e.graph.Values), m.Arena, m.Inputs, m.Outputs, m.Static, e.graph)
		if x, ok := program.(driver.Explainer); ok {
			for i, v := range e.graph.Values {
				if why := x.Explain(i); why != "" {
					fmt.Fprintf(os.Stderr, "kernel of %%%d = %v: %s\n", v.ID, v.Op, why)
				}
			}
		}
	}
	return nil
}

// ForgetPrograms empties the memory of Compile. Programs in use stay with their
// users.
func ForgetPrograms() {
	programs.Lock()
	defer programs.Unlock()
	clear(programs.byKey)
}

// remembered returns the entry of a key, a new one if need be.
func remembered(key string) *entry {
	programs.Lock()
	defer programs.Unlock()
	e, ok := programs.byKey[key]
	if !ok {
		if len(programs.byKey) >= maxPrograms {
			oldest, least := "", uint64(math.MaxUint64)
			for k, e := range programs.byKey {
				if e.asked < least {
					oldest, least = k, e.asked
				}
			}
			// Programs in use stay alive with their users; the cache only
			// forgets them.
			delete(programs.byKey, oldest)
		}
		e = newEntry()
		programs.byKey[key] = e
	}
	programs.asked++
	e.asked = programs.asked
	return e
}

// Expand replaces operations that d has no kernel for by their expansion.
func Expand(d driver.Device, g *ir.Graph) error {
	for i := 0; i < len(g.Values); i++ {
		v := g.Values[i]
		dt := v.Type.DType
		if len(v.Args) > 0 {
			dt = v.Args[0].Type.DType
		}
		if d.Supports(v.Op, dt) {
			continue
		}
		if v.Op.Info().Expand == nil {
			return &UnsupportedError{Device: d.Name(), Op: v.Op, DType: dt, Path: v.Path}
		}
		g.Expand(v)
		i-- // look at the entry that took its place
	}
	return nil
}

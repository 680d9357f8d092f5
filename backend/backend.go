// Package backend opens devices by name and keeps the programs they compile.
//
// A device registers itself in an init function, as database/sql drivers do;
// importing package keras brings "cpu", building with the tag cuda adds
// "cuda". The rest of Mezzo compiles through [Compile], which optimizes a
// graph and remembers the program by structure, device and options.
package backend

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

type registration struct {
	open   func() (driver.Device, error)
	once   sync.Once
	device driver.Device
	err    error
}

var registry = struct {
	sync.Mutex
	devices map[string]*registration
}{devices: map[string]*registration{}}

// Register makes a device available under a name. It panics when the name is
// taken: two providers of one device are a mistake in the build.
func Register(name string, open func() (driver.Device, error)) {
	registry.Lock()
	defer registry.Unlock()
	if _, dup := registry.devices[name]; dup {
		panic("backend: Register called twice for device " + name)
	}
	registry.devices[name] = &registration{open: open}
}

// Devices lists the registered devices that open on this machine, sorted.
func Devices() []string {
	registry.Lock()
	names := slices.Sorted(maps.Keys(registry.devices))
	registry.Unlock()
	return slices.DeleteFunc(names, func(name string) bool {
		_, err := Open(name)
		return err != nil
	})
}

// Open returns the device of that name, opening it at the first call.
func Open(name string) (driver.Device, error) {
	registry.Lock()
	r, ok := registry.devices[name]
	names := slices.Sorted(maps.Keys(registry.devices))
	registry.Unlock()
	if !ok {
		return nil, fmt.Errorf("backend: unknown device %q; have %q", name, names)
	}
	r.once.Do(func() { r.device, r.err = r.open() })
	if r.err != nil {
		return nil, fmt.Errorf("backend: device %q does not open: %w", name, r.err)
	}
	return r.device, nil
}

// preference is the order in which Default looks for a device.
var preference = []string{"cuda", "cpu"}

// Default returns the device that tensors live on: the one KERAS_DEVICE
// names, else the first of cuda and cpu that opens.
func Default() (driver.Device, error) {
	if name := deviceSetting(); name != "" {
		return Open(name)
	}
	var last error
	for _, name := range preference {
		d, err := Open(name)
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
		registry.Lock()
		_, ok := registry.devices[name]
		registry.Unlock()
		if !ok {
			continue
		}
		if _, err := Open(name); err != nil {
			return name, err
		}
		break
	}
	return "", nil
}

// UnsupportedError says that a device has no kernel for an operation, and the
// operation no expansion into ones that it has.
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

// programs remembers compiled programs; the bound keeps a process that sees
// ever new shapes from growing without end.
var programs = struct {
	sync.Mutex
	byKey map[string]*entry
	order []string // oldest first
}{byKey: map[string]*entry{}}

const maxPrograms = 1024

type entry struct {
	once    sync.Once
	program driver.Program
	graph   *ir.Graph
	err     error
}

// Compile optimizes g for a device and compiles it, or returns the program it
// compiled before for a graph of the same structure and paths on the same
// device with the same options. g is used up. The plan that the program runs
// is returned with it and must not be changed.
func Compile(d driver.Device, g *ir.Graph, o ir.Options) (driver.Program, *ir.Graph, error) {
	debug := DebugFromEnv()
	o.Check = o.Check || debug.Check
	if f, ok := d.(driver.EpilogueFuser); !ok || !f.FusesEpilogue() {
		o.Skip = append(slices.Clone(o.Skip), "epilogue")
	}
	if !d.Supports(op.Extra, dtype.Float32) {
		o.Skip = append(slices.Clone(o.Skip), "join")
	}
	if debug.Graph {
		fmt.Fprintf(os.Stderr, "graph: %d values\n%v", len(g.Values), g)
	}
	if debug.Passes {
		o.Trace = tracePasses(o.Trace)
	}
	key := g.AppendKey(append([]byte(d.Name()+"\x00"+o.Key()), 0))
	for _, v := range g.Values { // errors of a run name the layer
		key = append(append(key, v.Path...), 0)
	}
	e := remembered(string(key))
	e.once.Do(func() {
		e.graph = g
		if e.err = Expand(d, g); e.err == nil {
			if e.err = ir.Optimize(g, o); e.err == nil {
				e.program, e.err = d.Compile(g)
			}
		}
		if debug.Plan && e.err == nil {
			m := g.Memory()
			fmt.Fprintf(os.Stderr, "plan: %d values; bytes: %d arena, %d inputs, %d outputs, %d constants\n%v",
				len(g.Values), m.Arena, m.Inputs, m.Outputs, m.Static, g)
		}
	})
	return e.program, e.graph, e.err
}

// remembered returns the entry of a key, a new one if need be.
func remembered(key string) *entry {
	programs.Lock()
	defer programs.Unlock()
	e, ok := programs.byKey[key]
	if !ok {
		if len(programs.order) >= maxPrograms {
			// Programs in use stay alive with their users; the cache only
			// forgets them.
			delete(programs.byKey, programs.order[0])
			programs.order = programs.order[1:]
		}
		e = &entry{}
		programs.byKey[key] = e
		programs.order = append(programs.order, key)
	}
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
		i-- // look at what took its place
	}
	return nil
}

package serving

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/mezzo-ml/mezzo/keras/saving"
)

// LoadEvent tells of a version of a watched directory.
type LoadEvent struct {
	Model   string
	Version int
	Path    string        // of the file
	Took    time.Duration // to load and compile it
	Removed bool          // it is not served any more
	Err     error         // why it is not served; the versions before it are
}

// Watch serves the versions of a directory, and looks each second for new ones
// until ctx ends or the server is closed:
//
//	DIR/1/model.keras
//	DIR/2/model.keras
//
// A model.keras in DIR itself is version 1 (KServe mounts models so). The
// Options.Keep versions with the highest numbers are served. A version is loaded,
// compiled and run, then it takes the requests, and then older ones are removed; no
// request fails. A file that has changed is loaded again. One that does not load
// changes nothing that is served: Loaded is called, and it is tried again when it
// changes. If all files are gone the last versions are kept.
//
// Watch returns when a version is served, or an error if none loads, or if the name
// is watched already. Files should
// appear whole, as saving.Save makes them: rename them into place.
func (s *Server) Watch(ctx context.Context, name, dir string, o Options) error {
	w := &watcher{s: s, name: name, dir: dir, seen: map[int]file{}, served: map[int]bool{}}
	err := checkName(name)
	if err == nil {
		w.o, err = o.complete()
	}
	if err != nil {
		return fmt.Errorf("serving: model %q: %w", name, err)
	}
	if err := w.begin(ctx); err != nil {
		return fmt.Errorf("serving: model %q: %w", name, err)
	}
	return nil
}

// watcher keeps a model as its directory has it.
type watcher struct {
	s         *Server
	name, dir string
	o         Options
	seen      map[int]file // as it was when it was loaded, or did not load
	served    map[int]bool
	lost      bool // that there are no files has been told
}

// file identifies the content of a file, unless somebody sets its times.
type file struct {
	path string
	info fs.FileInfo
	err  error // it did not load
}

func (f file) same(g file) bool {
	return f.info != nil && f.path == g.path && f.info.Size() == g.info.Size() && f.info.ModTime().Equal(g.info.ModTime()) && os.SameFile(f.info, g.info)
}

// begin loads the first versions and starts the goroutine that watches.
func (w *watcher) begin(ctx context.Context) error {
	s := w.s
	s.mu.Lock()
	if s.watched[w.name] {
		s.mu.Unlock()
		return errors.New("another directory of it is watched")
	}
	s.watched[w.name] = true
	s.mu.Unlock()
	err := w.update(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.ctx.Err() != nil {
		err = errors.New("the server is closed")
	}
	if err != nil {
		delete(s.watched, w.name)
		return err
	}
	s.running.Go(func() { w.watch(ctx) })
	return nil
}

// watch looks for changes until ctx ends or the server is closed.
func (w *watcher) watch(ctx context.Context) {
	defer func() {
		w.s.mu.Lock()
		defer w.s.mu.Unlock()
		delete(w.s.watched, w.name)
	}()
	tick := time.NewTicker(w.s.poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.s.ctx.Done():
			return
		case <-tick.C:
		}
		err := w.update(ctx)
		if err != nil && !w.lost {
			w.tell(LoadEvent{Path: w.dir, Err: err})
		}
		w.lost = err != nil
	}
}

func (w *watcher) tell(e LoadEvent) {
	e.Model = w.name
	if w.s.Loaded != nil {
		w.s.Loaded(e)
	}
}

// modelFile is the name of a model's file, as KServe's and Keras's users have it.
const modelFile = "model.keras"

// scan returns the files of all versions.
func (w *watcher) scan() (map[int]file, error) {
	found := map[int]file{}
	add := func(n int, path string) {
		if info, err := os.Stat(path); err == nil {
			found[n] = file{path: path, info: info}
		}
	}
	add(1, filepath.Join(w.dir, modelFile))
	all, err := os.ReadDir(w.dir)
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		// As TensorFlow Serving: names that are no numbers are not for it.
		if n, err := strconv.ParseInt(d.Name(), 10, 32); err == nil && n > 0 && strconv.FormatInt(n, 10) == d.Name() {
			add(int(n), filepath.Join(w.dir, d.Name(), modelFile))
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: there is no %s, and no NUMBER/%s", w.dir, modelFile, modelFile)
	}
	return found, nil
}

// update loads what is new and then removes what is old. It is an error if nothing
// is served after it, or nothing is found.
func (w *watcher) update(ctx context.Context) error {
	found, err := w.scan()
	if err != nil {
		return err
	}
	var numbers []int
	for n := range found {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	slices.Reverse(numbers)
	keep := map[int]bool{}
	var failures []error
	for _, n := range numbers {
		if len(keep) == w.o.Keep {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f := found[n]
		if old := w.seen[n]; !old.same(f) {
			if err := w.load(n, f); err != nil {
				failures = append(failures, err)
			}
		} else if old.err != nil {
			failures = append(failures, old.err)
		}
		if w.served[n] {
			keep[n] = true
		}
	}
	if len(keep) == 0 {
		w.s.setFailed(w.name, w.failed())
		if len(w.served) > 0 {
			return nil // the versions of files that are gone, in place of none
		}
		return errors.Join(failures...)
	}
	for n := range w.served {
		if !keep[n] {
			w.s.Remove(w.name, n)
			w.tell(LoadEvent{Version: n, Path: w.seen[n].path, Removed: true})
			delete(w.served, n)
			delete(w.seen, n)
		}
	}
	maps.DeleteFunc(w.seen, func(n int, _ file) bool { return found[n].info == nil && !w.served[n] })
	w.s.setFailed(w.name, w.failed())
	return nil
}

// load serves version n, or notes why not. A file that went after it was found is
// only not there.
func (w *watcher) load(n int, f file) error {
	begun := time.Now()
	f.err = w.serve(n, f.path)
	if _, err := os.Stat(f.path); f.err != nil && errors.Is(err, fs.ErrNotExist) {
		return f.err
	}
	w.seen[n] = f
	if f.err == nil {
		w.served[n] = true
	}
	w.tell(LoadEvent{Version: n, Path: f.path, Took: time.Since(begun), Err: f.err})
	return f.err
}

func (w *watcher) serve(n int, path string) (err error) {
	defer func() {
		if p := recover(); p != nil { // a layer that the program registered
			err = fmt.Errorf("%s: panic: %v", path, p)
		}
	}()
	m, err := saving.Load(path)
	if err != nil {
		return err
	}
	if err := w.s.Add(w.name, n, m, w.o); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// failed lists the versions that did not load.
func (w *watcher) failed() map[int]error {
	all := map[int]error{}
	for n, f := range w.seen {
		if f.err != nil {
			all[n] = f.err
		}
	}
	return all
}

// setFailed keeps for the status of a model why versions did not load.
func (s *Server) setFailed(name string, failed map[int]error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.models[name]; e != nil {
		e.failed = failed
	}
}

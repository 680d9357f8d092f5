// Package interrupt is what the example programs do about Ctrl-C: what they
// train is saved, and they say how to go on. Programs that import it have the
// flag -dir.
//
//	func main() { interrupt.Main(run) }
//
//	func run(ctx context.Context) error {
//		…
//		model.Fit(ctx, data, keras.FitConfig{Checkpoint: interrupt.Checkpoint("")})
package interrupt

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
)

var dir = flag.String("dir", "", "directory to save the training in, after each epoch, and to go on from (default: saved when interrupted, in a new one)")

// exitCode is what shells give for a program that SIGINT ended.
const exitCode = 130

// Main parses the flags and runs a program until it is done or interrupted. A
// second Ctrl-C ends it at once.
func Main(run func(ctx context.Context) error) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := run(ctx)
	if err == nil {
		return
	}
	if ctx.Err() == nil || !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
	fmt.Println(err)
	if err := keep(); err != nil {
		log.Fatal(err)
	}
	os.Exit(exitCode)
}

// Dir is what -dir gives, "" without it.
func Dir() string { return *dir }

// place is where the training is saved.
func place() string {
	if *dir != "" {
		return *dir
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("mezzo-%s-%d", program(), os.Getpid()))
}

func program() string { return strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") }

// pending are the states that are saved when the program is interrupted.
var pending []*trainingSaver

// trainingSaver keeps the states of a training in the place of that name: with
// -dir at once, without it the last one in memory until it is wanted.
type trainingSaver struct {
	name string
	last *keras.State
}

// Checkpoint saves a training; a program with several names them.
func Checkpoint(name string) keras.Checkpointer {
	s := &trainingSaver{name: name}
	pending = append(pending, s)
	return s
}

func (s *trainingSaver) files() *checkpoint.Directory {
	return &checkpoint.Directory{Path: filepath.Join(place(), s.name)}
}

// Lock implements keras.Locker.
func (s *trainingSaver) Lock() (release func() error, err error) {
	if *dir == "" { // nobody else knows the place
		return func() error { return nil }, nil
	}
	return s.files().Lock()
}

// Load implements keras.Checkpointer.
func (s *trainingSaver) Load(ctx context.Context) (*keras.State, error) {
	if *dir == "" {
		return nil, nil
	}
	return s.files().Load(ctx)
}

// Save implements keras.Checkpointer.
func (s *trainingSaver) Save(ctx context.Context, state *keras.State) error {
	if *dir == "" {
		s.last = state
		return nil
	}
	return s.files().Save(ctx, state)
}

// keep saves what there is and says how to go on.
func keep() error {
	for _, s := range pending {
		if s.last != nil {
			if err := s.files().Save(context.Background(), s.last); err != nil {
				return err
			}
		}
	}
	if _, err := os.Stat(place()); errors.Is(err, fs.ErrNotExist) {
		fmt.Println("Nothing is saved.")
		return nil
	}
	fmt.Println("To go on:", command())
	return nil
}

// command is how to run the program again and go on.
func command() string {
	words := []string{os.Args[0]}
	if strings.Contains(os.Args[0], "go-build") { // where go run puts programs
		words = []string{"go", "run", "./examples/" + program()}
	}
	for _, a := range os.Args[1:] {
		if strings.ContainsAny(a, " \"'$\\") {
			a = strconv.Quote(a)
		}
		words = append(words, a)
	}
	if *dir == "" {
		words = append(words, "-dir", place())
	}
	return strings.Join(words, " ")
}

// loopFile is the file of a loop of one's own.
func loopFile() string { return filepath.Join(place(), "loop.ckpt") }

// SaveLoop saves what a loop of one's own changes, when err says that it was
// interrupted, and returns err.
func SaveLoop(err error, changes ...keras.Stateful) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	if e := os.MkdirAll(place(), 0o755); e != nil {
		return errors.Join(err, e)
	}
	return errors.Join(err, checkpoint.SaveVariables(loopFile(), changes...))
}

// LoadLoop brings a loop back to where SaveLoop has saved it; false when there
// is nothing to go on from. The step must have been recorded: see
// checkpoint.LoadVariables.
func LoadLoop(changes ...keras.Stateful) (bool, error) {
	if *dir == "" {
		return false, nil
	}
	err := checkpoint.LoadVariables(loopFile(), changes...)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

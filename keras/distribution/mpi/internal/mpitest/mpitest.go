//go:build unix

// Package mpitest runs programs with the launchers of this machine, such as mpirun, for
// tests.
package mpitest

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	require = flag.String("require", "", "launchers that must be there, separated by commas: openmpi, mpich. Without them tests are skipped")
	every   = flag.Bool("every", false, "run also what takes long")
	also    = flag.String("also", "", "another launcher, as INTERFACE:MPIEXEC:LIBRARY, with the interface openmpi, mpich or standard, and two paths")
)

// Launcher is a launcher of this machine.
type Launcher struct {
	Name string // of the binary interface of its library
	path string
	args []string
	Env  []string // that it needs, as NAME=value
}

// Every reports whether tests run also what takes long.
func Every() bool { return *every }

// Launchers returns the launchers of this machine, and fails without one that -require
// names.
func Launchers(t testing.TB) []Launcher {
	t.Helper()
	var found []Launcher
	all := []Launcher{{Name: "openmpi", path: "mpirun.openmpi"}, {Name: "mpich", path: "mpiexec.mpich"}}
	if parts := strings.Split(*also, ":"); len(parts) == 3 {
		all = append(all, Launcher{Name: parts[0], path: parts[1], Env: []string{"MEZZO_MPI=" + parts[2]}})
	} else if *also != "" {
		t.Fatalf("-also is %q, want INTERFACE:MPIEXEC:LIBRARY", *also)
	}
	for _, m := range all {
		if m.Name == "openmpi" {
			m.args = []string{"--allow-run-as-root", "--oversubscribe", "--bind-to", "none"}
			m.Env = append(m.Env, "OMPI_MCA_btl_vader_single_copy_mechanism=none", // as in containers without ptrace
				"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
		}
		path, err := exec.LookPath(m.path)
		if err == nil {
			m.path = path
			found = append(found, m)
		} else if strings.Contains(*require, m.Name) || strings.Contains(*also, m.path) {
			t.Fatal(err)
		}
	}
	if len(found) == 0 {
		t.Skip("neither mpirun.openmpi (package openmpi-bin) nor mpiexec.mpich (package mpich) is there")
	}
	return found
}

// Each runs a subtest with each launcher.
func Each(t *testing.T, f func(t *testing.T, m Launcher)) {
	t.Helper()
	for _, m := range Launchers(t) {
		t.Run(m.Name, func(t *testing.T) { f(t, m) })
	}
}

// Outcome is what a launcher has printed, and its exit code.
type Outcome struct {
	Text string
	Code int
}

// limit is how long a launcher may run: the slowest needs a few seconds.
const limit = 2 * time.Minute

// Run starts what args of mpiexec say, such as -n 2 and a program, in a process group of
// its own. env is added to the environment. It fails the test if the launcher has not
// ended after two minutes.
func (m Launcher) Run(t testing.TB, env []string, args ...string) Outcome {
	t.Helper()
	return Run(t, append(m.Env[:len(m.Env):len(m.Env)], env...), m.path, append(m.args[:len(m.args):len(m.args)], args...)...)
}

// RunUntil is Run, but sends the launcher a signal once the output contains a text.
func (m Launcher) RunUntil(t testing.TB, until string, s os.Signal, env []string, args ...string) Outcome {
	t.Helper()
	return runUntil(t, until, s, append(m.Env[:len(m.Env):len(m.Env)], env...), m.path, append(m.args[:len(m.args):len(m.args)], args...)...)
}

// Run runs a program without a launcher.
func Run(t testing.TB, env []string, path string, args ...string) Outcome {
	t.Helper()
	return runUntil(t, "", nil, env, path, args...)
}

// output is what a program has printed. It calls found once, when it contains until.
type output struct {
	text  []byte
	until string
	found func()
}

func (o *output) Write(b []byte) (int, error) {
	o.text = append(o.text, b...)
	if o.found != nil && bytes.Contains(o.text, []byte(o.until)) {
		o.found()
		o.found = nil
	}
	return len(b), nil
}

func runUntil(t testing.TB, until string, s os.Signal, env []string, path string, args ...string) Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	printed := output{until: until}
	if s != nil {
		printed.found = func() { cmd.Process.Signal(s) } // it has started, since it has printed
	}
	cmd.Stdout, cmd.Stderr = &printed, &printed
	err := cmd.Run()
	text := string(printed.text)
	if ctx.Err() != nil {
		t.Fatalf("%v has not ended after %v; it printed\n%s", cmd.Args, limit, text)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, text)
	}
	return Outcome{text, cmd.ProcessState.ExitCode()}
}

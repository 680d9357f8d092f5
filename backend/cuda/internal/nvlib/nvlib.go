// Package nvlib looks for the libraries of NVIDIA that are loaded when there
// are any.
package nvlib

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Setting is the environment variable with the directories, separated by
// colons, in which NVIDIA's libraries are looked for before the usual places.
// "-" has none of them used.
const Setting = "MEZZO_CUDA_LIBS"

// Unfit is the error of a library that is there and cannot be used: the text
// says why.
type Unfit string

func (e Unfit) Error() string { return string(e) }

// Open calls load with each path at which one of several names may be found,
// the names in their order, until it returns no error. The error, which begins
// with what is looked for, says where it was.
func Open(what string, driver int, names []string, load func(path string) error) error {
	setting := os.Getenv(Setting)
	if setting == "-" {
		return fmt.Errorf("%s: %s=- has it not used", what, Setting)
	}
	var tried []string
	for _, path := range Candidates(setting, names) {
		err := load(path)
		if err == nil {
			return nil
		}
		var unfit Unfit
		if errors.As(err, &unfit) {
			path += " (" + string(unfit) + ")"
		}
		tried = append(tried, path)
	}
	return fmt.Errorf("%s: no library found for a driver of CUDA %d: tried %s; %s names the directory of one", what, driver/1000, strings.Join(tried, ", "), Setting)
}

// pythons are the directories above bin and lib of Python 3: that of an environment
// that is active, of each python3 that PATH finds, and usual ones.
func pythons() []string {
	list := []string{os.Getenv("VIRTUAL_ENV")}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if _, err := os.Stat(filepath.Join(dir, "python3")); err == nil {
			list = append(list, filepath.Dir(filepath.Clean(dir)))
		}
	}
	list = append(list, "/usr/local", "/usr", "/opt/*", "/opt/*/*", "/opt/*/.venv")
	if home, err := os.UserHomeDir(); err == nil {
		list = append(list, filepath.Join(home, ".local"))
	}
	return list
}

// Candidates are paths to try: name by name, each in the directories of the
// setting, where the system's loader looks, in CUDA's own directories and in
// those of Python's packages.
func Candidates(setting string, names []string) []string {
	var own, usual []string
	for _, dir := range filepath.SplitList(setting) {
		if dir != "" {
			own = append(own, dir)
		}
	}
	patterns := []string{
		"/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/x86_64-linux/lib",
		os.Getenv("CONDA_PREFIX") + "/lib",
	}
	for _, python := range pythons() {
		patterns = append(patterns, python+"/lib/python3*/*-packages/nvidia/*/lib")
	}
	for _, pattern := range patterns {
		dirs, _ := filepath.Glob(pattern) // the pattern is well formed
		usual = append(usual, dirs...)
	}
	var list []string
	for _, name := range names {
		there := func(dirs []string) {
			for _, dir := range dirs {
				path := filepath.Join(dir, name)
				if _, err := os.Stat(path); err == nil && !slices.Contains(list, path) {
					list = append(list, path)
				}
			}
		}
		there(own)
		list = append(list, name)
		there(usual)
	}
	return list
}

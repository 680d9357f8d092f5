package cpu

import (
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// memoryBounds returns the bounds of the process's memory in bytes; 0 is no bound.
func memoryBounds() []int {
	bounds := []int{int(min(debug.SetMemoryLimit(-1), op.Limit))}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		bounds = append(bounds, op.Times(int(min(uint64(info.Totalram), op.Limit)), int(info.Unit)))
	}
	var space unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_AS, &space) == nil {
		bounds = append(bounds, int(min(space.Cur, op.Limit)))
	}
	groups, _ := os.ReadFile("/proc/self/cgroup")
	return append(bounds, controlGroups(string(groups), os.ReadFile)...)
}

// controlGroups returns the memory limits of the control groups in text, the contents
// of /proc/self/cgroup, and of their ancestors.
func controlGroups(text string, read func(string) ([]byte, error)) (bounds []int) {
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		root, file := "/sys/fs/cgroup", "memory.max" // version 2
		switch {
		case parts[0] == "0" && parts[1] == "":
		case parts[1] == "memory":
			root, file = root+"/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			b, err := read(path.Join(root, dir, file))
			if n, e := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && e == nil {
				bounds = append(bounds, int(min(n, op.Limit)))
			}
			if dir == "/" {
				break
			}
		}
	}
	return bounds
}

package cpu

import (
	"os"
	"testing"
)

// TestControlGroups: the limits of a process's parent groups count too.
func TestControlGroups(t *testing.T) {
	files := map[string]string{
		"/sys/fs/cgroup/a/b/memory.max":                     "max\n",
		"/sys/fs/cgroup/a/memory.max":                       "1073741824\n",
		"/sys/fs/cgroup/memory/d/memory.limit_in_bytes":     "4096\n",
		"/sys/fs/cgroup/memory/memory.limit_in_bytes":       "9223372036854771712\n",
		"/sys/fs/cgroup/memory/d/e/memory.limit_in_bytes":   "what is no number",
		"/sys/fs/cgroup/cpu/d/memory.limit_in_bytes":        "1",
		"/sys/fs/cgroup/memory/other/memory.limit_in_bytes": "2",
	}
	read := func(name string) ([]byte, error) {
		if text, ok := files[name]; ok {
			return []byte(text), nil
		}
		return nil, os.ErrNotExist
	}
	for text, want := range map[string]int{
		"0::/a/b\n": 1 << 30,
		"12:cpu,cpuacct:/d\n5:memory:/d/e\n1:name=systemd:/\n": 4096,
		"0::/\n":          0,
		"":                0,
		"no line of this": 0,
	} {
		least := 0
		for _, n := range controlGroups(text, read) {
			if least == 0 || n < least {
				least = n
			}
		}
		if least != want {
			t.Errorf("%q: the least limit is %d, want %d", text, least, want)
		}
	}
}

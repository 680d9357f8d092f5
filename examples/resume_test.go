package examples_test

import (
	"regexp"
	"testing"
)

func TestResume(t *testing.T) {
	if *every {
		t.Skip("TestDocs runs the same: docs/training.md shows it")
	}
	run := build(t, "resume")
	out := run()
	m := regexp.MustCompile(`(?m)^without a break: ([0-9a-f]{64})\nkilled (\d+) times:  ([0-9a-f]{64})$`).FindStringSubmatch(out)
	if m == nil || m[1] != m[3] || m[2] == "0" {
		t.Errorf("got\n%s\nwant the same sum of weights twice, and kills", out)
	}
}

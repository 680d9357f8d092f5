package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestContinued continues a text with a small checkpoint.
func TestContinued(t *testing.T) {
	dir := t.TempDir()
	for from, to := range map[string]string{
		"testdata/gpt2/config.json": "config.json", "testdata/gpt2/model.safetensors": "model.safetensors", "tokenizer/testdata/gpt2.json": "tokenizer.json",
	} {
		b, err := os.ReadFile(filepath.Join("../../keras/hub", from))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	*weights, *prompt, *tokens = dir, "!?", 6
	defer func() { *weights = "" }()
	if err := run(t.Context()); err != nil {
		t.Error(err)
	}
	*policies = "float17"
	if run(t.Context()) == nil {
		t.Error("-policies float17: got no error")
	}
}

//go:build cuda && linux && amd64

// Command build compiles the fake driver and libraries into the directory it is given,
// which FAKECUDA_BUILT then names.
package main

import (
	"fmt"
	"os"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/fake"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: build DIRECTORY")
		os.Exit(2)
	}
	if _, err := fake.Build(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

//go:build !js

// Command browser trains the guide's model in a web page: Go compiled to WebAssembly
// trains in a worker, the page draws the loss as it falls, and the model classifies
// what is drawn with the mouse, already while it learns.
//
//	browser [-addr HOST:PORT]   builds the page and serves it
//	browser -out DIR            builds the page into a directory for any web server
//
// It runs in the repository, as go build compiles the worker: the same package for
// GOOS=js. See docs/wasm.md.
package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"
)

var (
	address = flag.String("addr", "127.0.0.1:8080", "address to serve the page at")
	out     = flag.String("out", "", "build the page into this directory and serve nothing")
)

//go:embed page
var page embed.FS

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	if *out != "" {
		return build(ctx, *out)
	}
	l, err := net.Listen("tcp", *address)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mezzo-browser")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := build(ctx, dir); err != nil {
		return err
	}
	fmt.Printf("Open http://%s\n", l.Addr())
	server := &http.Server{Handler: http.FileServer(http.Dir(dir)), ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { server.Close() })
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// build makes the files of the page: those of ./page, the worker, and the loader that
// belongs to the Go release that has compiled it.
func build(ctx context.Context, dir string) error {
	fmt.Println("Building the page: the first time takes a minute.")
	files, err := fs.Sub(page, "page")
	if err != nil {
		return err
	}
	if err := os.CopyFS(dir, files); err != nil {
		return err
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	loader, err := os.ReadFile(filepath.Join(string(bytes.TrimSpace(root)), "lib", "wasm", "wasm_exec.js"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "wasm_exec.js"), loader, 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", filepath.Join(dir, "mezzo.wasm"), "github.com/mezzo-ml/mezzo/examples/browser")
	cmd.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build: %w", err)
	}
	return nil
}

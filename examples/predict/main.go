// Command predict classifies a drawn digit with a model from a .keras file. It trains
// nothing and imports only what that takes: examples/predict built for WebAssembly is
// the size that docs/wasm.md tells of.
//
//	predict [-model FILE] [DRAWING]
//
// The model and a drawing are built in. A drawing is a text of 14 lines of 28
// characters, from " " for background to "@" for full ink, as drawing.txt is. A FILE has a
// model from [batch 784], pixels from 0 to 1, to [batch 10], probabilities.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
)

//go:generate go run ./train

//go:embed digits.keras
var builtIn []byte

//go:embed drawing.txt
var drawing string

var modelFile = flag.String("model", "", "file of the model (default: the one that is built in)")

func main() {
	flag.Parse()
	if err := run(context.Background(), flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	model, err := load()
	if err != nil {
		return err
	}
	text := drawing
	if len(args) > 0 {
		b, err := os.ReadFile(args[0])
		if err != nil {
			return err
		}
		text = string(b)
	}
	x, err := pixels(text)
	if err != nil {
		return err
	}
	y, err := model.Predict(ctx, keras.NewTensor(x, 1, rows*columns))
	if err != nil {
		return err
	}
	probabilities, err := y.Values()
	if err != nil {
		return err
	}
	fmt.Print(text)
	for digit, p := range probabilities {
		fmt.Println(strings.TrimSpace(fmt.Sprintf("%d %.4f %s", digit, p, strings.Repeat("█", int(20*p+0.5)))))
	}
	return nil
}

func load() (*keras.Model, error) {
	if *modelFile != "" {
		return saving.Load(*modelFile)
	}
	return saving.Read(bytes.NewReader(builtIn), int64(len(builtIn)))
}

const rows, columns = 28, 28

// pixels reads a drawing. A character is twice as high as wide, so it is two pixels.
func pixels(text string) ([]float32, error) {
	const shades = " .:-=+*#%@"
	x := make([]float32, rows*columns)
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) != rows/2 {
		return nil, fmt.Errorf("the drawing has %d lines, want %d", len(lines), rows/2)
	}
	for i, line := range lines {
		line = strings.TrimSuffix(line, "\r")
		if len(line) > columns {
			return nil, fmt.Errorf("line %d has %d characters, want at most %d", i+1, len(line), columns)
		}
		for j := range len(line) {
			shade := strings.IndexByte(shades, line[j])
			if shade < 0 {
				return nil, fmt.Errorf("line %d has %q, want one of %q", i+1, line[j], shades)
			}
			ink := float32(shade) / float32(len(shades)-1)
			x[2*i*columns+j], x[(2*i+1)*columns+j] = ink, ink
		}
	}
	return x, nil
}

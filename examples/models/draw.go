package models

import (
	"fmt"
	"io"
	"strings"

	"github.com/mezzo-ml/mezzo/keras"
)

// Draw writes pictures to w, side by side, as characters. pictures has the shape
// [n rows·columns] or [n rows columns]; 0 is background and 1 full ink.
func Draw(w io.Writer, pictures *keras.Tensor, rows, columns int) error {
	ink, err := pictures.Values()
	if err != nil {
		return err
	}
	n := len(ink) / (rows * columns)
	if n*rows*columns != len(ink) {
		return fmt.Errorf("Draw: %v has no pictures of %dx%d pixels", pictures.Type(), rows, columns)
	}
	const shades = " .:-=+*#%@"
	for y := 0; y+1 < rows; y += 2 { // a character is twice as high as wide
		var line strings.Builder
		for i := range n {
			for x := range columns {
				at := (i*rows+y)*columns + x
				v := (ink[at] + ink[at+columns]) / 2
				line.WriteByte(shades[min(max(int(v*float32(len(shades))), 0), len(shades)-1)])
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

package keras

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/mezzo-ml/mezzo/keras/exponents"
	"github.com/mezzo-ml/mezzo/keras/internal/console"
)

// Explain runs a training step on b as Exponents does and writes a table to w:
// for each layer the ranges of its weights, activations and gradients as
// powers of 2, and the share of activations and gradients that float16 would
// lose. The last line says by how much the loss scale could grow before
// gradients overflow, or which scale would be possible if there is none.
func (m *Model) Explain(ctx context.Context, b Batch, w io.Writer) error {
	all, err := m.Exponents(ctx, b)
	if err != nil {
		return err
	}
	var out strings.Builder
	var rows [][]string
	var gradients exponents.Histogram
	for i := range all {
		e := &all[i]
		gradients.Merge(&e.Gradients)
		rows = append(rows, []string{e.Layer, e.DType.String(), rangeText(&e.Weights), rangeText(&e.Activations), lostText(&e.Activations),
			rangeText(&e.Gradients), lostText(&e.Gradients)})
	}
	fmt.Fprintf(&out, "Model: %q\n", m.name)
	table(&out, []string{"Layer", "Compute", "Weights", "Activations", "Lost in float16", "Gradients", "Lost in float16"}, rows, console.Of(w).Width())
	scale := 1.0
	if s := m.training.scaler; s != nil {
		r, err := s.Result()
		if err != nil {
			return err
		}
		scale = r.LossScale
	}
	explainScale(&out, &gradients, scale, m.training.scaler != nil)
	_, err = io.WriteString(w, out.String())
	return err
}

// explainScale writes the effect of a loss scale on the gradients, which include it.
func explainScale(w io.Writer, h *exponents.Histogram, scale float64, scaled bool) {
	_, last, ok := h.Range()
	if !ok {
		fmt.Fprintln(w, " Gradients: none that are finite and not 0")
		return
	}
	half := exponents.LimitsOf(Float16)
	room := half.Overflow - 1 - last // binades up to the largest
	at := int(math.Round(math.Log2(scale)))
	var lost int64 // without a scale: below half of the least number
	for e := exponents.Lowest; e < half.Subnormal-1+at; e++ {
		lost += h.Binade(e)
	}
	share := exponents.Percent(lost, h.Count)
	switch {
	case h.NonFinite > 0:
		fmt.Fprintf(w, " Loss scale %v: %s of the gradients are not finite; a step like this one is skipped\n", scale, exponents.Percent(h.NonFinite, h.Count))
	case scaled:
		fmt.Fprintf(w, " Loss scale %v: the largest gradients are near 2^%d, and fit float16 up to a scale of 2^%d; unscaled, %s of all would be 0\n", scale, last, at+room, share)
	default:
		fmt.Fprintf(w, " No loss scale: the largest gradients are near 2^%d; in float16 %s of all would be 0, and a scale of up to 2^%d would fit\n", last, share, room)
	}
}

// rangeText is the range of a histogram: "2^-12 … 2^3".
func rangeText(h *exponents.Histogram) string {
	first, last, ok := h.Range()
	switch {
	case h.Count == 0:
		return "-"
	case !ok && h.NonFinite == 0:
		return "0"
	case !ok:
		return "not finite"
	}
	return fmt.Sprintf("2^%d … 2^%d", first, last)
}

func lostText(h *exponents.Histogram) string {
	if h.Count == 0 {
		return "-"
	}
	return exponents.Percent(h.Float16Zeros+h.Float16Infinities, h.Count)
}

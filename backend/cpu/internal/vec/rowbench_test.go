package vec

import (
	"fmt"
	"testing"

	"golang.org/x/sys/cpu"
)

// BenchmarkRows times the loops over a row of 1024 elements in L1.
func BenchmarkRows(b *testing.B) {
	const n = 1024
	for name, s := range sets() {
		for _, c := range []struct {
			name string
			rows *Rows
			size int
		}{
			{"float32", &s.RowsF32, 4}, {"float16", &s.RowsF16, 2}, {"bfloat16", &s.RowsBF16, 2}, {"converted", &s.RowsConvertBF16, 2},
		} {
			if c.name == "converted" && (s.Lanes != 16 || !cpu.X86.HasAVX512BF16) {
				continue
			}
			dst, x, g := make([]byte, 4*n), make([]byte, c.size*n), make([]byte, c.size*n)
			e, gain, shift, gained, t := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, 16)
			for what, f := range map[string]func(){
				"Exp2Sum": func() { c.rows.Exp2Sum(e, x, t, x) },
				"Deviations": func() {
					if c.rows.KeepDeviations != nil {
						c.rows.KeepDeviations(e, x, t)
					} else {
						c.rows.Deviations(e, t)
					}
				},
				"Products":       func() { c.rows.Products(x, g, t, x) },
				"ScaleRow":       func() { c.rows.ScaleRow(dst[:c.size*n], gain, t) },
				"NormalizeRow":   func() { c.rows.NormalizeRow(dst[:c.size*n], e, gain, shift, t, x) },
				"GradRowSums":    func() { c.rows.GradRowSums(gain, shift, gained, e, g, e, t, x) },
				"GradRow":        func() { c.rows.GradRow(dst[:c.size*n], e, gained, t, x) },
				"SoftmaxGradRow": func() { c.rows.SoftmaxGradRow(dst[:c.size*n], x, g, t, x) },
			} {
				b.Run(fmt.Sprintf("%s/%s/%s", what, name, c.name), func(b *testing.B) {
					for b.Loop() {
						f()
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(n/16), "ns/16")
				})
			}
		}
		x, h := make([]float32, n), make([]uint16, n)
		for what, f := range map[string]func(){
			"Max/float32": func() { s.Max(x) }, "Max/float16": func() { s.F16.Max(h) }, "Max/bfloat16": func() { s.BF16.Max(h) },
		} {
			b.Run(fmt.Sprintf("%s/%s", what, name), func(b *testing.B) {
				for b.Loop() {
					f()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(n/16), "ns/16")
			})
		}
	}
}

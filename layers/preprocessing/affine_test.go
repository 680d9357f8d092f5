package preprocessing

import (
	"encoding/json"
	"math"
	"testing"

	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
)

// TestAffine compares affine maps of images, given by their coefficients and as
// the random layers make them, with Keras.
func TestAffine(t *testing.T) {
	perImage := func(a tensortest.Array, at, of int) *tensor.Tensor {
		var v []float64
		for i := at; i < len(a.Data); i += of {
			v = append(v, a.Data[i])
		}
		return tensor.New(v, len(v), 1, 1).Cast(dtype.Float32)
	}
	ran := 0
	for _, c := range tensortest.Load(t, "../../keras/testdata/golden/images.json").Cases {
		s := sampler{fill: "reflect", bilinear: true}
		x := c.Inputs["x"].Tensor()
		var m affineMap
		switch c.Class() {
		case "affine":
			var config struct {
				Fill string  `json:"fill_mode"`
				How  string  `json:"interpolation"`
				At   float64 `json:"fill_value"`
			}
			raw, err := json.Marshal(c.Config)
			if err == nil {
				err = json.Unmarshal(raw, &config)
			}
			if err == nil {
				s, err = newSampler(config.Fill, config.How, config.At)
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				m.a[i], m.b[i] = perImage(c.Inputs["transform"], i, 8), perImage(c.Inputs["transform"], 3+i, 8)
			}
		case "rotation":
			m = rotation(perImage(c.Inputs["angle"], 0, 1).MulScalar(math.Pi/180), x.Dim(1), x.Dim(2))
		case "zoom":
			m = zoom(perImage(c.Inputs["zoom"], 0, 2), perImage(c.Inputs["zoom"], 1, 2), x.Dim(1), x.Dim(2))
		case "translation":
			m = translation(perImage(c.Inputs["shift"], 0, 2), perImage(c.Inputs["shift"], 1, 2), x.Dim(1), x.Dim(2))
		default:
			continue
		}
		ran++
		t.Run(c.Name, func(t *testing.T) {
			// A place is off by a few float32 epsilons of up to 20 pixels, and
			// pixels differ by up to 5: 20·5 roundings.
			tensortest.Close(t, "y", s.affine(x, m), c.Outputs["y"], 100)
			for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
				rounded := c.Inputs["x"].As(d)
				// What 16 bits hold is blended in float32 and rounded once.
				want, err := s.affine(rounded.As(dtype.Float32).Tensor(), m).Float64s()
				if err != nil {
					t.Fatal(err)
				}
				tensortest.Close(t, d.String(), s.affine(rounded.Tensor(), m), tensortest.Of(dtype.Float64, want, x.Shape()...), 1)
			}
		})
	}
	if ran != 11 {
		t.Errorf("ran %d cases, want 11", ran)
	}
}

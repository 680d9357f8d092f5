package preprocessing_test

import (
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

// TestMaxNumBoundingBoxes: Keras's example, and one with more boxes.
func TestMaxNumBoundingBoxes(t *testing.T) {
	boxes := []float32{10, 20, 100, 150, 50, 60, 200, 250}
	for n, want := range map[int][]float32{
		1: {10, 20, 100, 150},
		3: {10, 20, 100, 150, 50, 60, 200, 250, -1, -1, -1, -1},
	} {
		y := layers.Apply(&preprocessing.MaxNumBoundingBoxes{MaxNumber: n}, layers.Pass{},
			tensor.Tuple(tensor.New(boxes, 1, 2, 4), tensor.New([]int32{7, 9}, 1, 2))).Unpack()
		if got, err := y[0].Values(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d boxes: got %v, %v, want %v", n, got, err, want)
		}
		if got, err := y[1].Int64s(); err != nil || !slices.Equal(got, []int64{7, 9, -1}[:n]) {
			t.Errorf("labels of %d boxes: got %v, %v", n, got, err)
		}
	}
	layertest.BadField(t, &preprocessing.MaxNumBoundingBoxes{MaxNumber: 2},
		"layer max_num_bounding_boxes: Build: labels are [? 5], want one for each of the boxes [? 4 4]", f32(-1, 4, 4), f32(-1, 5))
	layertest.BadField(t, &preprocessing.MaxNumBoundingBoxes{MaxNumber: 2},
		"layer max_num_bounding_boxes: Build: boxes are [? ? 4], want [batch n 4] with a number n that is known", f32(-1, -1, 4), f32(-1, 5))
}

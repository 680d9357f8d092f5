// Command unet segments landscapes: it says for each pixel whether it is sky,
// tree, grass, earth, mountain, plant, water, sea or river. The loss is a
// cross-entropy of each pixel in which rare classes weigh more, the result is
// the mean over the classes of intersection over union (IoU).
//
// The small model is done in about a minute on a CPU; the big one has 7,703,497
// weights.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/examples/cost"
	"github.com/mezzo-ml/mezzo/examples/interrupt"
	"github.com/mezzo-ml/mezzo/examples/models"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

var (
	policyName = flag.String("policy", "mixed_float16", "policy: mixed_float16, mixed_bfloat16 or float32")
	modelName  = flag.String("model", "small", "model: small (52x52 pixels, 8 filters) or big (164x164 pixels, 64 filters)")
	batch      = flag.Int("batch", 8, "images per step")
	epochs     = flag.Int("epochs", 8, "epochs")
	steps      = flag.Int("steps", 0, "steps per epoch (default: all images)")
	seed       = flag.Uint64("seed", 0, "seed of first weights, shuffling and dropout")
	images     = flag.Int("images", 250, "landscapes to draw, a tenth of them to validate on")
	data       = flag.String("data", "", "directory with images and labels, folders of PNG or JPEG files whose names sort alike (default: drawn)")
)

var sizes = map[string]models.UNet{
	"small": {Size: 92, Filters: 8, Depth: 2, Classes: len(classes)},
	"big":   models.BobRoss,
}

func main() { interrupt.Main(run) }

// pixelLoss is a cross-entropy from logits with a weight for each class.
type pixelLoss struct{ weights []float32 }

// Call implements losses.Loss: yTrue [batch rows columns], class numbers, and
// yPred [batch rows columns classes], logits.
func (l *pixelLoss) Call(yTrue, yPred *keras.Tensor) *keras.Tensor {
	table := keras.NewTensor(l.weights, len(l.weights), 1)
	weights := table.Gather(yTrue).Squeeze(-1)
	each := losses.SparseCategoricalCrossentropy{FromLogits: true, Reduction: "mean_with_sample_weight"}
	return each.CallWeighted(yTrue, yPred, weights)
}

// balance weights classes by one over the root of their share of the pixels,
// at most five; 1 is the weight of a class with an equal share.
func balance(scenes []scene) []float32 {
	counts, all := make([]float64, len(classes)), 0.0
	for _, s := range scenes {
		for _, c := range s.labels {
			counts[c]++
			all++
		}
	}
	weights := make([]float32, len(classes))
	for i, n := range counts {
		weights[i] = float32(min(5, math.Sqrt(all/float64(len(classes))/max(n, 1))))
	}
	return weights
}

func run(ctx context.Context) error {
	network, ok := sizes[*modelName]
	if !ok {
		return fmt.Errorf("-model is %q, want small or big", *modelName)
	}
	if _, err := policy.Parse(*policyName); err != nil {
		return err
	}
	policy.SetGlobal(*policyName)
	model, err := network.Model()
	if err != nil {
		return err
	}
	fmt.Println("Parameters:", model.CountParams())
	if err := model.SetSeed(*seed); err != nil {
		return err
	}
	size, err := network.OutputSize()
	if err != nil {
		return err
	}
	var scenes []scene
	if *data == "" {
		scenes = draw(*images, size)
	} else if scenes, err = load(*data, size); err != nil {
		return err
	}
	if len(scenes) < 2 {
		return fmt.Errorf("there are %d images, want at least 2: some to train on, some to validate", len(scenes))
	}
	k := len(scenes) - max(1, len(scenes)/10)
	train, test := flipped(scenes[:k], network.Size), plain(scenes[k:], network.Size)
	err = model.Compile(keras.CompileConfig{
		Optimizer: &optimizers.Adam{LearningRate: 1e-3},
		Loss:      &pixelLoss{balance(scenes[:k])},
		Metrics:   []metrics.Metric{&metrics.MeanIoU{NumClasses: len(classes), SparseYPred: new(false), Name: "iou"}},
	})
	if err != nil {
		return err
	}
	if _, err := model.Fit(ctx, train.Batch(*batch), keras.FitConfig{Epochs: *epochs, StepsPerEpoch: *steps, Seed: *seed, Callbacks: []keras.Callback{cost.Callback()}, Checkpoint: interrupt.Checkpoint("")}); err != nil {
		return err
	}
	scores, err := model.Evaluate(ctx, test.Batch(*batch))
	if err != nil {
		return err
	}
	fmt.Println("Test loss:", scores.Get("loss"))
	fmt.Println("Test IoU:", scores.Get("iou"))
	return nil
}

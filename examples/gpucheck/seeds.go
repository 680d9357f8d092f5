package main

import (
	"context"
	"fmt"
	"io"

	"github.com/mezzo-ml/mezzo/examples/models"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/losses"
)

// published is what the seed models' authors found for mixed precision, as shares of
// their float32: of the time, and of the memory reserved, on a V100 and a T4
// (the guides to mixed precision and to gradient checkpointing of spell.ml, 2020, PyTorch
// 1.6; nothing for the CNN). BERT with Remat is their checkpointing, beside BERT
// without it, in float32.
type published struct{ time, memory [2]float64 }

// seedNetworks are the published models at their published sizes, and what was
// published of each, by name.
func seedNetworks() ([]network, map[string]published) {
	cnns, tokens, batch, rows, bert := []int{590, 1000}, 128, 64, 512, models.BERTBase
	if *small {
		cnns, tokens, batch, rows = []int{2, 3}, 8, 2, 4
		bert = models.BERT{Vocabulary: 50, Positions: 8, Types: 2, Hidden: 8, Layers: 2, Heads: 2, Intermediate: 16, Dropout: 0.1}
	}
	unet, filters := unetNetwork(), [2]int{420, 1000}
	if *small {
		filters = [2]int{1, 2}
	}
	list := []network{cnnNetwork(cnns[0], filters), cnnNetwork(cnns[1], filters), rossmannNetwork(rows), unet}
	remat := bert
	remat.Remat = true
	list = append(list, bertNetwork("bert", bert, tokens, batch), bertNetwork("bert-remat", remat, tokens, batch))
	return list, map[string]published{
		"rossmann":   {[2]float64{655. / 610, 519. / 523}, [2]float64{1, 0.936 / 0.932}},
		"unet":       {[2]float64{478. / 505, 554. / 787}, [2]float64{3.71 / 4.33, 2.67 / 4.26}},
		"bert":       {[2]float64{490. / 1058, 1227. / 3317}, [2]float64{8.76 / 9.62, 8.49 / 9.35}},
		"bert-remat": {[2]float64{1428. / 1131, 3634. / 2850}, [2]float64{3.71 / 9.42, 3.71 / 9.42}},
	}
}

// rossmannNetwork predicts sales from 22 categories and 16 numbers.
func rossmannNetwork(batch int) network {
	return network{
		name: "rossmann", loss: &losses.MeanSquaredError{},
		model: func() (*keras.Model, error) {
			return models.Rossmann(models.RossmannCategories, len(models.RossmannNumbers))
		},
		x: func() *keras.Tensor {
			var in []*keras.Tensor
			for _, c := range models.RossmannCategories {
				in = append(in, indices(0, c.Cardinality, batch))
			}
			return keras.Tuple(append(in, floats(batch, len(models.RossmannNumbers)))...)
		},
		y: func() *keras.Tensor { return floats(batch, 1) },
	}
}

// variants are the columns of arithmetic: policies, float32 without and with
// TensorFloat-32.
var variants = []struct{ name, policy, tf32 string }{
	{"float32", "float32", "0"}, {"float32, TF32", "float32", "1"}, {"mixed_float16", "mixed_float16", "1"}, {"mixed_bfloat16", "mixed_bfloat16", "1"},
}

// seeds prints the published table of the seed models: time and memory of a step under
// each policy, and as shares of float32's without TensorFloat-32, beside what was
// published.
func seeds(ctx context.Context, w io.Writer) error {
	fmt.Fprint(w, "## Seed models\n\nA training step with Adam. Shares are of float32's without TensorFloat-32; those of bert-remat in float32 are of bert's. "+
		"Published: PyTorch's automatic mixed precision on a V100 and a T4; bert-remat is its gradient checkpointing.\n\n")
	head(w, "model", "arithmetic", "ms", "share", "published", "plan MiB", "GPU MiB", "share", "published")
	all, known := seedNetworks()
	base := map[string]timing{} // of float32 without TensorFloat-32
	for _, n := range all {
		if !named(n.name) {
			continue
		}
		for _, v := range variants {
			var r timing
			if err := spawn(ctx, *device, task{Kind: "seed", Name: n.name, Policy: v.policy}, &r, "MEZZO_TF32="+v.tf32); err != nil {
				row(w, n.name, v.name, err.Error(), "", "", "", "", "", "")
				continue
			}
			plain, mixed := v.name == "float32", v.policy != "float32"
			if plain {
				base[n.name] = r
			}
			b, p := base[n.name], published{}
			if mixed && n.name != "bert-remat" {
				p = known[n.name]
			} else if plain && n.name == "bert-remat" {
				b, p = base["bert"], known[n.name]
			}
			memory := r.Taken
			if memory == 0 {
				memory, b.Taken = r.Bytes, b.Bytes
			}
			row(w, n.name, v.name, fmt.Sprintf("%.3f", r.MS), ratio(r.MS, b.MS), theirs(p.time),
				mebibytes(r.Bytes), mebibytes(r.Taken), ratio(float64(memory), float64(b.Taken)), theirs(p.memory))
		}
	}
	return nil
}

// timeSeed is the task of seeds.
func timeSeed(ctx context.Context, t task) (any, error) {
	all, _ := seedNetworks()
	return timed(ctx, all, t)
}

func ratio(a, b float64) string {
	if b == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", a/b)
}

func theirs(p [2]float64) string {
	if p == [2]float64{} {
		return "–"
	}
	return fmt.Sprintf("%.2f, %.2f", p[0], p[1])
}

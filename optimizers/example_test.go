package optimizers_test

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/optimizers"
)

func Example() {
	o := &optimizers.AdamW{
		WeightDecay:    new(0.01),
		GlobalClipNorm: 1,
		Schedule:       &optimizers.CosineDecay{InitialLearningRate: 0.25, DecaySteps: 1000},
	}
	rate, err := optimizers.CurrentLearningRate(o)
	fmt.Println(rate, err)
	config, err := optimizers.MarshalConfig(o)
	fmt.Println(string(config), err)
	// Output:
	// 0.25 <nil>
	// {"class_name":"AdamW","config":{"global_clipnorm":1,"learning_rate":{"class_name":"CosineDecay","config":{"decay_steps":1000,"initial_learning_rate":0.25}},"weight_decay":0.01}} <nil>
}

func ExampleSetLearningRate() {
	o := &optimizers.SGD{LearningRate: 0.5}
	fmt.Println(optimizers.SetLearningRate(o, 0.25))
	fmt.Println(optimizers.CurrentLearningRate(o))
	// Output:
	// <nil>
	// 0.25 <nil>
}

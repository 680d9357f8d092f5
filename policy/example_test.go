package policy_test

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/policy"
)

func ExampleSetGlobal() {
	defer policy.SetGlobal(policy.SetGlobal(policy.MixedFloat16))
	p := policy.Global()
	fmt.Println(p, p.Compute, p.Variable)
	// Output: <DTypePolicy "mixed_float16"> float16 float32
}

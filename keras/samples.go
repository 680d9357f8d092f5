package keras

import (
	"context"
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// SamplesOf returns which samples are in the batch that Fit reads at a place of a dataset
// with these arguments: their numbers among the rows that were given to FromTensors, from 0
// on. It reads no sample. It is an error for other datasets than Pipelines of tensors, whose
// samples have no numbers.
func SamplesOf(ctx context.Context, d Dataset, c FitConfig, at Position) (numbers []int64, err error) {
	defer tensor.Catch(&err)
	if err := needs(ctx, "SamplesOf"); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	p, ok := d.(*Pipeline)
	if ok && c.ValidationSplit > 0 {
		if p, _, err = p.split(c.ValidationSplit); err != nil {
			return nil, fmt.Errorf("SamplesOf: %w", err)
		}
	}
	if ok {
		p = p.numbered()
	}
	if p == nil {
		return nil, fmt.Errorf("SamplesOf: the samples of a %T are not tensors in memory and have no numbers", d)
	}
	if at.Epoch < 0 || at.Batch < 0 {
		return nil, fmt.Errorf("SamplesOf: got batch %d of epoch %d, want 0 or more", at.Batch, at.Epoch)
	}
	all, close, err := batched(ctx, nil, p, c, c.Shuffle == nil || *c.Shuffle)
	defer close()
	if err != nil {
		return nil, fmt.Errorf("SamplesOf: %w", err)
	}
	if n := all.(*Pipeline).n; n >= 0 && at.Batch >= n {
		return nil, fmt.Errorf("SamplesOf: an epoch has %d batches; there is no batch %d, counted from 0", n, at.Batch)
	}
	for b, err := range epochsOf(ctx, all, c).open(at.Epoch, at.Batch) {
		if err != nil {
			return nil, fmt.Errorf("SamplesOf: %w", err)
		}
		return b.X.Int64s()
	}
	return nil, fmt.Errorf("SamplesOf: the epoch has no batch %d, counted from 0", at.Batch)
}

// numbered returns a Pipeline of the numbers of samples in place of the samples, in the
// same order and in the same batches; nil where samples have none.
func (p *Pipeline) numbered() *Pipeline {
	switch {
	case p.samples != nil:
		return p.samples()
	case p.arrays == nil:
		return nil
	}
	numbers := make([]int32, p.arrays.n)
	for i := range numbers {
		numbers[i] = int32(p.arrays.lo + i)
	}
	q := FromTensors(NewTensor(numbers, len(numbers)), nil, nil)
	q.shuffle = p.shuffle
	return q
}

// follow makes the numbers of p's samples, put through f, those of q's.
func (q *Pipeline) follow(p *Pipeline, f func(*Pipeline) *Pipeline) {
	q.samples = func() *Pipeline {
		if n := p.numbered(); n != nil {
			return f(n)
		}
		return nil
	}
}

// Command generate continues a text with GPT-2, or measures how fast it does.
//
//	go run ./examples/generate -weights gpt2 -prompt "Once upon a time"
//	go run ./examples/generate -peer python3
//
// Without -weights the network has the size of GPT-2 small and random weights, and
// the program prints tokens per second, with -peer beside those of transformers.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/mezzo-ml/mezzo/examples/interrupt"
	"github.com/mezzo-ml/mezzo/keras/hub"
	"github.com/mezzo-ml/mezzo/keras/hub/tokenizer"
	"github.com/mezzo-ml/mezzo/policy"
)

var (
	weights     = flag.String("weights", "", "directory with a GPT-2 in Hugging Face's layout (default: random weights, to measure)")
	prompt      = flag.String("prompt", "Hello, I'm a language model,", "text to continue, with -weights")
	tokens      = flag.Int("tokens", 64, "tokens to generate")
	temperature = flag.Float64("temperature", 0, "divides the logits; 0: always the most probable token")
	topK        = flag.Int("topk", 0, "choose among so many most probable tokens; 0: all")
	topP        = flag.Float64("topp", 0, "choose among the fewest tokens with this probability together; 0: all")
	seed        = flag.Uint64("seed", 0, "seed of the choices")
	policies    = flag.String("policies", "float32,mixed_bfloat16", "policies, with commas; the first one with -weights")
	layers      = flag.Int("layers", 12, "layers of the network with random weights")
	peer        = flag.String("peer", "", "a Python with transformers, to measure too")
)

//go:embed peer.py
var peerProgram string

func main() { interrupt.Main(run) }

func run(ctx context.Context) error {
	names := strings.Split(*policies, ",")
	for _, p := range names {
		if _, err := policy.Parse(p); err != nil {
			return err
		}
	}
	if *tokens < 1 {
		return fmt.Errorf("-tokens is %d, want at least 1", *tokens)
	}
	o := hub.GenerateOptions{MaxNewTokens: *tokens, Temperature: *temperature, TopK: *topK, TopP: *topP, Seed: *seed}
	if *weights != "" {
		policy.SetGlobal(names[0])
		return continued(ctx, o)
	}
	for _, p := range names {
		policy.SetGlobal(p)
		rate, err := measure(ctx, o)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s: %.1f tokens/s", p, rate)
		if *peer != "" {
			theirs, err := measurePeer(ctx, p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(", transformers %.1f: %.2f times as fast", theirs, rate/theirs)
		}
		fmt.Println(line)
	}
	return nil
}

// continued prints the prompt and what follows, token by token.
func continued(ctx context.Context, o hub.GenerateOptions) error {
	t, err := tokenizer.Read(*weights)
	if err != nil {
		return err
	}
	m, err := hub.GPT2(*weights)
	if err != nil {
		return err
	}
	fmt.Println(m.Report)
	ids := t.Encode(*prompt).IDs
	g, err := m.Generator(1, 0)
	if err != nil {
		return err
	}
	if end, ok := t.ID("<|endoftext|>"); ok {
		o.EndToken = &end
	}
	texts, err := g.Generate(ctx, [][]int32{ids}, o)
	if err != nil {
		return err
	}
	fmt.Println(t.Decode(texts[0], true))
	return nil
}

// promptLength is how many tokens come before those that are measured.
const promptLength = 16

// measure returns tokens per second, prompts not counted, of the best of three.
func measure(ctx context.Context, o hub.GenerateOptions) (float64, error) {
	m, err := hub.NewGPT2LM(hub.GPT2Backbone{VocabularySize: 50257, NumLayers: *layers, NumHeads: 12, HiddenDim: 768, IntermediateDim: 3072})
	if err != nil {
		return 0, err
	}
	g, err := m.Generator(1, promptLength+*tokens)
	if err != nil {
		return 0, err
	}
	text := make([]int32, promptLength)
	for i := range text {
		text[i] = int32(1000 + 37*i)
	}
	best := 0.0
	for range 3 {
		var start time.Time
		n := -1 // the first one takes the prompt in, and compiles
		for _, err := range g.Tokens(ctx, [][]int32{text}, o) {
			if err != nil {
				return 0, err
			}
			if n++; n == 0 {
				start = time.Now()
			}
		}
		best = max(best, float64(n)/time.Since(start).Seconds())
	}
	return best, nil
}

// measurePeer is measure of transformers.
func measurePeer(ctx context.Context, policy string) (float64, error) {
	dtype := strings.TrimPrefix(policy, "mixed_")
	cmd := exec.CommandContext(ctx, *peer, "-", strconv.Itoa(*tokens), strconv.Itoa(*layers), dtype, strconv.Itoa(promptLength))
	cmd.Stdin, cmd.Stderr = strings.NewReader(peerProgram), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("-peer: %w", err)
	}
	return strconv.ParseFloat(string(bytes.TrimSpace(out)), 64)
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"
)

// program is an example whose output is measured. Each row is a label in its
// output, the name of the row, and how the number behind the label is printed. All have
// the rows of costs, too.
type program struct {
	name, text string
	rows       []row
}

type row struct {
	label, name, format string
	times               float64
}

var programs = []program{
	{"mnistcnn", "8 and 16 filters, 3 epochs", []row{
		{"Test accuracy:", "test accuracy", "%.2f %%", 100},
		{"Test loss:", "test loss", "%.4f", 1},
	}},
	{"unet", "52x52 pixels, 8 filters, 8 epochs", []row{
		{"Test IoU:", "IoU of drawn landscapes", "%.3f", 1},
		{"Test loss:", "test loss", "%.4f", 1},
	}},
	{"rossmann", "22 embeddings, 20 epochs", []row{
		{"Root mean squared error of a day's sales:", "root mean squared error of a day's sales", "%.0f", 1},
		{"Test loss:", "test loss; published for the real data: 6.86e6", "%.3g", 1},
		{"skipped:", "skipped steps", "%.0f", 1},
	}},
	{"bert", "2 layers of 64 features, 6 epochs", []row{
		{"Test answers found exactly:", "answers found exactly", "%.1f %%", 100},
		{"Test loss:", "test loss", "%.3f", 1},
	}},
}

const peakLabel = "Peak memory of the process in MiB:"

// costs are rows of package cost, and of what the program's process used at most.
var costs = []row{
	{"Time of a step in ms:", "time of a step, ms", "%.3g", 1},
	{"Planned memory of a step in MiB:", "planned memory of a step, MiB", "%.4g", 1},
	{peakLabel, "peak memory of the process, MiB", "%.4g", 1},
}

// runPrograms builds the examples, runs each under each policy, from each seed
// and with more arguments, and prints the table of what they measured.
func runPrograms(ctx context.Context, more []string) error {
	if _, err := os.Stat(filepath.Join("examples", programs[0].name, "main.go")); err != nil {
		return errors.New("the example programs are not here; run this one in the repository's root, or with -programs=false")
	}
	dir, err := os.MkdirTemp("", "accuracy")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Printf("\nThe example programs%s", strings.TrimSuffix(" with "+strings.Join(more, " "), " with "))
	if *seeds > 1 {
		fmt.Printf(": mean and spread of %d seeds", *seeds)
	}
	fmt.Print("\n\n")
	fmt.Printf("| program | measured | %s |\n|---|---|%s\n", strings.Join(policies, " | "), strings.Repeat("---|", len(policies)))
	for _, p := range programs {
		if *only != "" && p.name != *only {
			continue
		}
		bin := filepath.Join(dir, p.name)
		if _, err := output(ctx, "go", "build", "-o", bin, "./examples/"+p.name); err != nil {
			return err
		}
		outs := make([][]string, len(policies)) // by seed
		for i, name := range policies {
			for seed := range *seeds {
				out, err := output(ctx, bin, append([]string{"-policy", name, "-seed", strconv.Itoa(seed)}, more...)...)
				if err != nil {
					return err
				}
				outs[i] = append(outs[i], out)
			}
		}
		for i, r := range append(slices.Clone(p.rows), costs...) {
			cells := []string{"", r.name}
			if i == 0 {
				cells[0] = fmt.Sprintf("`examples/%s` (%s)", p.name, p.text)
			}
			for _, bySeed := range outs {
				var all []float64
				for _, out := range bySeed {
					x, err := number(out, r.label)
					if err != nil {
						return fmt.Errorf("%s: %w", p.name, err)
					}
					all = append(all, x*r.times)
				}
				mean, spread := stat.PopMeanStdDev(all, nil)
				cell := fmt.Sprintf(r.format, mean)
				if len(all) > 1 {
					cell += " ± " + strings.TrimSuffix(fmt.Sprintf(r.format, spread), " %")
				}
				cells = append(cells, cell)
			}
			fmt.Printf("| %s |\n", strings.Join(cells, " | "))
		}
	}
	return nil
}

// output runs a program; the error of one that fails has what it wrote.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return fmt.Sprintf("%s\n%s %.1f\n", out, peakLabel, peak(cmd.ProcessState)), nil
}

// number is the one behind the last label in the output of a program.
func number(out, label string) (float64, error) {
	all := regexp.MustCompile(regexp.QuoteMeta(label)+` (NaN|[+-]Inf|[0-9.eE+-]+)`).FindAllStringSubmatch(out, -1)
	if all == nil {
		return 0, fmt.Errorf("there is no %q in its output:\n%s", label, out)
	}
	return strconv.ParseFloat(all[len(all)-1][1], 64)
}

package keras_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/callbacks"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/activations"
	"github.com/mezzo-ml/mezzo/layers/callspec"
	"github.com/mezzo-ml/mezzo/layers/constraints"
	"github.com/mezzo-ml/mezzo/layers/initializers"
	_ "github.com/mezzo-ml/mezzo/layers/preprocessing" // registers its classes
	"github.com/mezzo-ml/mezzo/layers/regularizers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

//go:generate go test . -run TestNames -generate

var generate = flag.Bool("generate", false, "write the list of Keras's names into docs/layers.md instead of comparing it")

// kind is one of the modules of Keras.
type kind struct {
	name string
	have []string // what Mezzo knows, as Keras's name of the class or in snake_case

	instead map[string]string // what Mezzo has under another name
	missing []missing
}

// missing are names that Mezzo does not have, and why.
type missing struct{ why, names string }

func kinds() []kind {
	return []kind{
		{"layers", layers.Classes(), map[string]string{
			"Input":              "`keras.Input`",
			"InputLayer":         "`keras.Input`",
			"Lambda":             "[a layer of one's own](add-an-op.md#a-layer)",
			"JaxLayer":           "a layer of one's own",
			"FlaxLayer":          "a layer of one's own",
			"TFSMLayer":          "a layer of one's own",
			"TorchModuleWrapper": "a layer of one's own",
		}, nil},
		{"losses", losses.Names(), nil, nil},
		{"metrics", metrics.Classes(), map[string]string{"Mean": "`metrics.Mean`, fed with values", "Sum": "`metrics.Sum`, fed with values"}, nil},
		{"optimizers", optimizers.Names(), nil, nil},
		{"schedules", optimizers.ScheduleNames(), nil, nil},
		{"initializers", initializers.Names(), nil, nil},
		{"activations", activations.Names(), nil, nil},
		{"regularizers", regularizers.Names(), nil, nil},
		{"constraints", constraints.Names(), nil, nil},
		{"callbacks", typeNames(
			callbacks.BackupAndRestore{}, callbacks.CSVLogger{}, callbacks.EarlyStopping{}, callbacks.LearningRateScheduler{},
			callbacks.ModelCheckpoint{}, callbacks.ReduceLROnPlateau{}, callbacks.SwapEMAWeights{}, callbacks.TensorBoard{}, callbacks.TerminateOnNaN{},
			keras.History{},
		), map[string]string{
			"LambdaCallback": "`keras.Callback`",
			"ProgbarLogger":  "`FitOptions.Verbose`",
		}, []missing{
			{"posts to a server; a `keras.Callback` with net/http does", "RemoteMonitor"},
			{"a format of JAX", "OrbaxCheckpoint"},
		}},
	}
}

func typeNames(values ...any) []string {
	var names []string
	for _, v := range values {
		names = append(names, reflect.TypeOf(v).Name())
	}
	return names
}

// list is the section of docs/layers.md. Each name that Keras exports is
// either known to Mezzo's registries or named with a reason, never both.
func (k kind) list(t *testing.T, exported map[string]string) string {
	why := map[string]string{}
	for _, m := range k.missing {
		for _, n := range strings.Fields(m.names) {
			why[n] = m.why
		}
	}
	var have []string
	known := func(name string) bool {
		return slices.Contains(k.have, name) || slices.Contains(k.have, callspec.SnakeCase(name))
	}
	all := 0
	for _, n := range slices.Sorted(maps.Keys(exported)) {
		own := exported[n]
		if own != n && exported[own] == own {
			continue // an alias
		}
		all++
		instead, other := k.instead[n]
		_, without := why[n]
		switch {
		case known(n) || known(own):
			if other || without {
				t.Errorf("keras.%s.%s is there, and in the list of what is not", k.name, n)
			}
			have = append(have, "`"+n+"`")
		case other:
			have = append(have, fmt.Sprintf("`%s` (%s)", n, instead))
		case !without:
			t.Errorf("keras.%s.%s is neither there nor in the list of what is not, with a reason", k.name, n)
		}
		delete(why, n)
	}
	for n := range why {
		t.Errorf("keras.%s has no %s", k.name, n)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "**%s%s**, %d of %d: %s.\n", strings.ToUpper(k.name[:1]), k.name[1:], len(have), all, strings.Join(have, ", "))
	if len(k.missing) > 0 {
		b.WriteString("\n| without | because |\n|---|---|\n")
		for _, m := range k.missing {
			fmt.Fprintf(&b, "| `%s` | %s |\n", strings.Join(strings.Fields(m.names), "`, `"), m.why)
		}
	}
	return b.String()
}

// TestNames compares the list of docs/layers.md with what Keras 3 exports and
// Mezzo's registries know.
func TestNames(t *testing.T) {
	data, err := os.ReadFile("testdata/golden/names.json")
	if err != nil {
		t.Fatal(err)
	}
	var exported map[string]json.RawMessage
	if err := json.Unmarshal(data, &exported); err != nil {
		t.Fatal(err)
	}
	var list strings.Builder
	for _, k := range kinds() {
		var names map[string]string
		if err := json.Unmarshal(exported[k.name], &names); err != nil {
			t.Fatal(k.name, err)
		}
		list.WriteString("\n" + k.list(t, names))
	}
	const file, begin, end = "../docs/layers.md", "<!-- names -->\n", "<!-- end of names -->\n"
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(doc), begin)
	old, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no lines %q and %q", file, begin, end)
	}
	if old == list.String() {
		return
	}
	if !*generate {
		t.Fatalf("%s is not what go test ./keras -run TestNames -generate writes", file)
	}
	if err := os.WriteFile(file, []byte(head+begin+list.String()+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

package keras

import (
	"math"
	"strings"
)

// Log is one named number of Logs: the loss, a metric, the loss scale.
type Log struct {
	Name  string
	Value float64
}

// Logs are the loss, the metrics and other numbers of an epoch or a batch in
// the order in which they are printed: metrics by name, then those of the
// validation.
type Logs []Log

// Get returns the value of the log of that name, NaN if there is none.
// "accuracy" and "val_accuracy" also find the only accuracy of another name,
// such as sparse_categorical_accuracy.
func (l Logs) Get(name string) float64 {
	found, value := 0, math.NaN()
	prefix, isAccuracy := strings.CutSuffix(name, "accuracy")
	for _, x := range l {
		if x.Name == name {
			return x.Value
		}
		if isAccuracy && strings.HasPrefix(x.Name, prefix) && strings.HasSuffix(x.Name, "_accuracy") &&
			strings.HasPrefix(x.Name, "val_") == (prefix == "val_") {
			found, value = found+1, x.Value
		}
	}
	if found != 1 {
		return math.NaN()
	}
	return value
}

// Has reports whether there is a log of exactly that name.
func (l Logs) Has(name string) bool {
	for _, x := range l {
		if x.Name == name {
			return true
		}
	}
	return false
}

// Set changes the log of that name, or appends one.
func (l *Logs) Set(name string, value float64) {
	for i := range *l {
		if (*l)[i].Name == name {
			(*l)[i].Value = value
			return
		}
	}
	*l = append(*l, Log{name, value})
}

// History is the result of Fit: the logs of each epoch.
type History struct {
	Epochs []int  // 0-based numbers of the epochs that finished
	Logs   []Logs // of those epochs
}

// Get returns the values of one log over the epochs (Keras:
// History.history[name]).
func (h *History) Get(name string) []float64 {
	out := make([]float64, len(h.Logs))
	for i, l := range h.Logs {
		out[i] = l.Get(name)
	}
	return out
}

// Names returns the names of the logs of the last epoch.
func (h *History) Names() []string {
	if len(h.Logs) == 0 {
		return nil
	}
	var out []string
	for _, l := range h.Logs[len(h.Logs)-1] {
		out = append(out, l.Name)
	}
	return out
}

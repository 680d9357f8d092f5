package metrics

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/suggest"
)

// Better is the direction in which a metric improves.
type Better int8

// The ways.
const (
	BetterDown    Better = iota - 1 // less is better: losses and errors
	BetterUnknown                   // it depends: counts, means
	BetterUp                        // more is better: accuracies, scores, correlations
)

// String returns Keras's word: "up", "down" or "unknown".
func (b Better) String() string { return [...]string{"down", "unknown", "up"}[b-BetterDown] }

// entry is what is known about a class.
type entry struct {
	make  func() Metric
	names string // of the class, in snake_case, aliases
	way   Better
	needs string // fields without a default, "" for none
}

var (
	byName = map[string]*entry{}
	ways   = map[reflect.Type]Better{reflect.TypeFor[*AutoAccuracy](): BetterUp}
)

func init() {
	for _, e := range []entry{
		{func() Metric { return &Accuracy{} }, "Accuracy accuracy", BetterUp, ""},
		{func() Metric { return &BinaryAccuracy{} }, "BinaryAccuracy binary_accuracy", BetterUp, ""},
		{func() Metric { return &CategoricalAccuracy{} }, "CategoricalAccuracy categorical_accuracy", BetterUp, ""},
		{func() Metric { return &SparseCategoricalAccuracy{} }, "SparseCategoricalAccuracy sparse_categorical_accuracy", BetterUp, ""},
		{func() Metric { return &TopKCategoricalAccuracy{} }, "TopKCategoricalAccuracy top_k_categorical_accuracy", BetterUp, ""},
		{func() Metric { return &SparseTopKCategoricalAccuracy{} }, "SparseTopKCategoricalAccuracy sparse_top_k_categorical_accuracy", BetterUp, ""},
		{func() Metric { return &MeanSquaredError{} }, "MeanSquaredError mean_squared_error mse MSE", BetterDown, ""},
		{func() Metric { return &RootMeanSquaredError{} }, "RootMeanSquaredError root_mean_squared_error", BetterDown, ""},
		{func() Metric { return &MeanAbsoluteError{} }, "MeanAbsoluteError mean_absolute_error mae MAE", BetterDown, ""},
		{func() Metric { return &MeanAbsolutePercentageError{} }, "MeanAbsolutePercentageError mean_absolute_percentage_error mape MAPE", BetterDown, ""},
		{func() Metric { return &MeanSquaredLogarithmicError{} }, "MeanSquaredLogarithmicError mean_squared_logarithmic_error msle MSLE", BetterDown, ""},
		{func() Metric { return &LogCoshError{} }, "LogCoshError log_cosh_error logcosh", BetterDown, ""},
		{func() Metric { return &CosineSimilarity{} }, "CosineSimilarity cosine_similarity", BetterUp, ""},
		{func() Metric { return &R2Score{} }, "R2Score r2_score", BetterUp, ""},
		{func() Metric { return &PearsonCorrelation{} }, "PearsonCorrelation pearson_correlation", BetterUp, ""},
		{func() Metric { return &ConcordanceCorrelation{} }, "ConcordanceCorrelation concordance_correlation", BetterUp, ""},
		{func() Metric { return &BinaryCrossentropy{} }, "BinaryCrossentropy binary_crossentropy bce BCE", BetterDown, ""},
		{func() Metric { return &CategoricalCrossentropy{} }, "CategoricalCrossentropy categorical_crossentropy", BetterDown, ""},
		{func() Metric { return &SparseCategoricalCrossentropy{} }, "SparseCategoricalCrossentropy sparse_categorical_crossentropy", BetterDown, ""},
		{func() Metric { return &KLDivergence{} }, "KLDivergence kl_divergence kld KLD", BetterDown, ""},
		{func() Metric { return &Poisson{} }, "Poisson poisson", BetterDown, ""},
		{func() Metric { return &Hinge{} }, "Hinge hinge", BetterDown, ""},
		{func() Metric { return &SquaredHinge{} }, "SquaredHinge squared_hinge", BetterDown, ""},
		{func() Metric { return &CategoricalHinge{} }, "CategoricalHinge categorical_hinge", BetterDown, ""},
		{func() Metric { return &TruePositives{} }, "TruePositives true_positives", BetterUnknown, ""},
		{func() Metric { return &TrueNegatives{} }, "TrueNegatives true_negatives", BetterUnknown, ""},
		{func() Metric { return &FalsePositives{} }, "FalsePositives false_positives", BetterUnknown, ""},
		{func() Metric { return &FalseNegatives{} }, "FalseNegatives false_negatives", BetterUnknown, ""},
		{func() Metric { return &Precision{} }, "Precision precision", BetterUp, ""},
		{func() Metric { return &Recall{} }, "Recall recall", BetterUp, ""},
		{func() Metric { return &AUC{} }, "AUC auc", BetterUp, ""},
		{func() Metric { return &FBetaScore{} }, "FBetaScore f_beta_score fbeta_score", BetterUp, ""},
		{func() Metric { return &F1Score{} }, "F1Score f1_score", BetterUp, ""},
		{func() Metric { return &SensitivityAtSpecificity{} }, "SensitivityAtSpecificity sensitivity_at_specificity", BetterUp, "Specificity"},
		{func() Metric { return &SpecificityAtSensitivity{} }, "SpecificityAtSensitivity specificity_at_sensitivity", BetterUp, "Sensitivity"},
		{func() Metric { return &PrecisionAtRecall{} }, "PrecisionAtRecall precision_at_recall", BetterUp, "Recall"},
		{func() Metric { return &RecallAtPrecision{} }, "RecallAtPrecision recall_at_precision", BetterUp, "Precision"},
		{func() Metric { return &BinaryIoU{} }, "BinaryIoU binary_io_u", BetterUp, ""},
		{func() Metric { return &IoU{} }, "IoU io_u", BetterUp, "NumClasses"},
		{func() Metric { return &MeanIoU{} }, "MeanIoU mean_io_u", BetterUp, "NumClasses"},
		{func() Metric { return &OneHotIoU{} }, "OneHotIoU one_hot_io_u", BetterUp, "NumClasses"},
		{func() Metric { return &OneHotMeanIoU{} }, "OneHotMeanIoU one_hot_mean_io_u", BetterUp, "NumClasses"},
	} {
		for _, n := range strings.Fields(e.names) {
			byName[n] = &e
		}
		ways[reflect.TypeOf(e.make())] = e.way
	}
}

// Names returns the names that Get accepts: class names, snake_case names and
// Keras's aliases, except those of classes with required fields.
func Names() []string {
	var all []string
	for n, e := range byName {
		if e.needs == "" {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all
}

// Classes returns the classes of metrics, sorted. Get accepts those without
// required fields.
func Classes() []string {
	var all []string
	for t := range ways {
		all = append(all, t.Elem().Name())
	}
	slices.Sort(all)
	return all
}

// Get returns a metric with its defaults by one of Names. "accuracy" is the
// class Accuracy; for the meaning of that name in Keras's compile see
// ResolveAccuracy.
func Get(name string) (Metric, error) {
	e := byName[name]
	switch {
	case e == nil:
		return nil, fmt.Errorf("metrics: %w", suggest.Unknown("metric", name, Names()))
	case e.needs != "":
		class, _, _ := strings.Cut(e.names, " ")
		return nil, fmt.Errorf("metrics: got %q, which has no default for %s; want &metrics.%s{…} with that", name, e.needs, class)
	}
	return e.make(), nil
}

// DirectionOf returns the direction in which a metric improves, by its class:
// BetterUnknown for Mean, Sum, counts, and metrics of other packages.
func DirectionOf(m Accumulator) Better { return ways[reflect.TypeOf(m)] }

// Direction returns the direction in which a log improves, by its name: one of
// Names, or loss, optionally with val_, weighted_ or the name of an output
// before it, and a number after it, as in val_digits_accuracy_1. For other
// names it returns BetterUnknown; for metrics with a Name use DirectionOf.
func Direction(name string) Better {
	if i := strings.LastIndexByte(name, '_'); i > 0 && i+1 < len(name) && strings.Trim(name[i+1:], "0123456789") == "" {
		name = name[:i]
	}
	for {
		switch e := byName[name]; {
		case name == "loss":
			return BetterDown
		case name == "acc": // Keras's abbreviation
			return BetterUp
		case e != nil:
			return e.way
		}
		_, rest, more := strings.Cut(name, "_")
		if !more {
			return BetterUnknown
		}
		name = rest
	}
}

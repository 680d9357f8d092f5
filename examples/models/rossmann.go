package models

import (
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// Category is a column of classes, each of which is learned as a vector.
type Category struct {
	Name        string
	Cardinality int // classes
	Size        int // of the vectors
}

// RossmannCategories are the categorical columns of the Rossmann store sales,
// prepared as fast.ai's course did, and RossmannNumbers the others.
var (
	RossmannCategories = []Category{
		{"Store", 1115, 80}, {"DayOfWeek", 7, 4}, {"Year", 3, 3}, {"Month", 12, 6}, {"Day", 31, 10}, {"StateHoliday", 2, 2},
		{"CompetitionMonthsOpen", 25, 10}, {"Promo2Weeks", 26, 10}, {"StoreType", 4, 3}, {"Assortment", 3, 3}, {"PromoInterval", 4, 3},
		{"CompetitionOpenSinceYear", 23, 9}, {"Promo2SinceYear", 8, 4}, {"State", 12, 6}, {"Week", 52, 15}, {"Events", 22, 9},
		{"Promo_fw", 6, 4}, {"Promo_bw", 6, 4}, {"StateHoliday_fw", 3, 3}, {"StateHoliday_bw", 3, 3},
		{"SchoolHoliday_fw", 8, 4}, {"SchoolHoliday_bw", 8, 4},
	}
	RossmannNumbers = []string{
		"CompetitionDistance", "Max_TemperatureC", "Mean_TemperatureC", "Min_TemperatureC", "Max_Humidity", "Mean_Humidity", "Min_Humidity",
		"Max_Wind_SpeedKm_h", "Mean_Wind_SpeedKm_h", "CloudCover", "trend", "trend_DE", "AfterStateHoliday", "BeforeStateHoliday",
		"Promo", "SchoolHoliday",
	}
)

// Rossmann predicts sales from categories and numbers: each category is
// embedded, numbers are normalized, and two Dense layers see all of it. With
// RossmannCategories and 16 numbers it has 811,618 trainable weights.
//
// Shapes: (int32 [batch] for each category, [batch numbers]) → [batch 1].
func Rossmann(categories []Category, numbers int) (*keras.Model, error) {
	normalize := func(x *keras.Tensor) *keras.Tensor {
		return keras.Apply(&layers.BatchNormalization{Momentum: new(0.9), Epsilon: new(1e-5)}, x)
	}
	var inputs, embedded []*keras.Tensor
	for _, c := range categories {
		in := keras.InputOf(keras.Int32)
		inputs = append(inputs, in)
		embedded = append(embedded, keras.Apply(&layers.Embedding{InputDim: c.Cardinality, OutputDim: c.Size, EmbeddingsInitializer: "random_normal(stddev=1)", Name: c.Name}, in))
	}
	in := keras.Input(numbers)
	inputs = append(inputs, in)
	x := keras.Apply(&layers.Dropout{Rate: 0.04}, keras.Apply(&layers.Concatenate{}, embedded...))
	x = keras.Apply(&layers.Concatenate{}, x, normalize(in))
	for _, l := range []struct {
		units   int
		dropout float64
	}{{1000, 0.001}, {500, 0.01}} {
		x = normalize(keras.Apply(&layers.Dense{Units: l.units, Activation: "relu"}, x))
		x = keras.Apply(&layers.Dropout{Rate: l.dropout}, x)
	}
	return keras.NewModel(keras.Tuple(inputs...), keras.Apply(&layers.Dense{Units: 1}, x))
}

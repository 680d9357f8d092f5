package serving

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/keras"
)

// datatypes has a type's names in the Open Inference Protocol and in
// TensorFlow's DataType.
var datatypes = map[keras.DType]struct{ oip, tf string }{
	dtype.Bool:     {"BOOL", "DT_BOOL"},
	dtype.Uint8:    {"UINT8", "DT_UINT8"},
	dtype.Int8:     {"INT8", "DT_INT8"},
	dtype.Int32:    {"INT32", "DT_INT32"},
	dtype.Int64:    {"INT64", "DT_INT64"},
	dtype.Float16:  {"FP16", "DT_HALF"},
	dtype.BFloat16: {"BF16", "DT_BFLOAT16"},
	dtype.Float32:  {"FP32", "DT_FLOAT"},
	dtype.Float64:  {"FP64", "DT_DOUBLE"},
}

// Datatype returns the name of a type in the Open Inference Protocol: BOOL,
// UINT8, INT8, INT32, INT64, FP16, BF16, FP32 or FP64, and "" for an invalid one.
func Datatype(d keras.DType) string { return datatypes[d].oip }

// ParseDatatype returns the type with a name of the Open Inference Protocol, or
// dtype.Invalid.
func ParseDatatype(name string) keras.DType {
	for d, names := range datatypes {
		if names.oip == name {
			return d
		}
	}
	return dtype.Invalid
}

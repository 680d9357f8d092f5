package op

// RoundTF32 records x, which is float32, rounded to the 10 bits of fraction of
// TensorFloat-32, to a nearest one: Veltkamp's splitting (Dekker 1971, A
// Floating-Point Technique for Extending the Available Precision), whose operations
// every device has. Of two that are as near it may be either, as on GPUs. NaN,
// infinity and numbers from 2¹⁰⁰ on stay as they are.
func RoundTF32(r Recorder, x Ref) Ref {
	d := r.TypeOf(x).DType
	constant := func(v float64) Ref { return r.Record(Const, Attr{DType: d, Dims: Shape{}, Value: v}) }
	c := r.Record(Mul, Attr{}, x, constant(1<<13+1))
	rounded := r.Record(Sub, Attr{}, c, r.Record(Sub, Attr{}, c, x))
	fits := r.Record(Less, Attr{}, r.Record(Abs, Attr{}, x), constant(0x1p100))
	return r.Record(Where, Attr{}, fits, rounded, x)
}

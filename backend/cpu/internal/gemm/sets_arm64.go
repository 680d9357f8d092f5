package gemm

// NEON needs Advanced SIMD, which every arm64 processor has.
var NEON = func() *Set {
	s := portable
	s.Name = "NEON"
	s.F32 = &Tiles{MR: 8, NR: 12, Unit: 1, Step: 1, Deep: 1, Rows: f32NEONRows12, Inner: f32NEONInner12}
	return &s
}()

package gemm

// BytesOf returns the kernels on 8-bit integers for products of m rows.
func BytesOf(int) *Bytes { return PortableBytes }

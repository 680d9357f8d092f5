module github.com/mezzo-ml/mezzo/keras/distribution/mpi

go 1.26.0

// Both modules are developed together. A release requires a version of mezzo that
// exists, since go get reads the go.mod of what is required and no replace.
replace github.com/mezzo-ml/mezzo => ../../..

require (
	github.com/ebitengine/purego v0.11.3
	github.com/mezzo-ml/mezzo v0.0.0-00010101000000-000000000000
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/mitchellh/colorstring v0.0.0-20190213212951-d06e56a500db // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	github.com/schollz/progressbar/v3 v3.19.1 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/term v0.47.0 // indirect
	gonum.org/v1/gonum v0.17.0 // indirect
	gorgonia.org/cu v0.9.6 // indirect
)

module github.com/mezzo-ml/mezzo/keras/distribution/mpi

go 1.26.0

// Both modules are developed together. A release requires a version of mezzo that
// exists, since go get reads the go.mod of what is required and no replace.
replace github.com/mezzo-ml/mezzo => ../../..

require (
	github.com/ebitengine/purego v0.11.3
	github.com/mezzo-ml/mezzo v0.0.0-00010101000000-000000000000
)

require github.com/x448/float16 v0.8.4 // indirect

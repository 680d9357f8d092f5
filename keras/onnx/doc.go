// Package onnx writes models as ONNX files, and reads such files as models that can be
// trained.
//
//	err := onnx.Export("model.onnx", model, onnx.ExportOptions{})
//	model, err := onnx.Import("model.onnx", onnx.ImportOptions{})
//
// [Export] records the model in inference for two sizes of the batch, before any pass of
// the compiler, and writes each operation as nodes of operator set 17. So layers need no
// code of their own, and the size of the batch stays open. [Import] makes a model of one
// layer, a [Graph], that records the nodes of operator sets 7 to 23 as Mezzo's operations.
// Their initializers are its weights. A model that was exported predicts the same bits
// when it is imported; recurrent layers with a mask are the exception.
//
// Main types: [ExportOptions], [ImportOptions], [Graph], [UnsupportedError].
//
// Rules: files are not trusted. Sizes are checked before memory is taken, external data
// are read from the file's directory alone, and no content makes a function panic.
// docs/onnx.md lists the operations.
package onnx

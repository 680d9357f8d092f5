// Package onnx writes models as ONNX files and reads such files as models.
package onnx

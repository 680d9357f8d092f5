// Package serving answers inference requests over HTTP with the models of a
// process: TensorFlow Serving's REST API and the Open Inference Protocol
// version 2 (KServe, Triton), with Triton's binary tensor data. Concurrent
// requests are computed together.
//
//	s := serving.New()
//	defer s.Close()
//	if err := s.Watch(ctx, "digits", "models/digits", serving.Options{}); err != nil {
//		return err
//	}
//	return http.ListenAndServe(":8501", s.Handler(serving.HandlerOptions{}))
//
// The main types are [Server], a registry of models and their versions, and
// [Options], how a version is batched. [Server.Infer] is what the protocols have
// in common; programs may call it without HTTP. gRPC and Prometheus metrics are in the
// module github.com/mezzo-ml/mezzo/keras/serving/grpc.
//
// # Batching
//
// Each version has one goroutine that computes. It takes the waiting requests in
// their order, as many as fit into MaxBatch rows, and runs Predict once. While it
// runs, the next ones wait; with the default MaxDelay of 0 a request waits for
// nothing else. A batch is padded to a power of two (or MaxBatch) by repeating its
// last row; the rows of the padding are never sent. All these sizes are compiled
// and run once before a version is ready. If the input has axes of unknown size
// beside the batch, only requests of one shape are computed together, and each
// shape is compiled when it is first seen.
//
// If a batch fails, its requests are computed one by one, so that an index out of
// range is an error only for the client that sent it.
//
// The last bits of an answer may depend on the number of rows that were computed
// together. With MaxBatch 1 an answer has the bits that Predict gives for
// that row alone. Rows must not
// depend on each other: layers that keep a state between calls, or compute across
// the batch axis, are not for serving.
//
// # Wire formats
//
// TensorFlow Serving:
//
//	GET  /v1/models/M[/versions/V|/labels/L]            state of the versions
//	GET  /v1/models/M[/versions/V|/labels/L]/metadata   signature serving_default
//	POST /v1/models/M[/versions/V|/labels/L]:predict    {"instances": rows} -> {"predictions": rows}
//	                                                    {"inputs": columns} -> {"outputs": columns}
//
// A row is a value, or an object of values by input if there are several; columns
// are one batch, or an object of batches by input. The names of inputs may be left
// out if there is one, and those of outputs are. NaN, Infinity and -Infinity are
// bare tokens, in requests and answers. classify and regress are not served.
//
// Open Inference Protocol:
//
//	GET  /v2, /v2/health/live, /v2/health/ready
//	GET  /v2/models/M[/versions/V], /v2/models/M[/versions/V]/ready
//	POST /v2/models/M[/versions/V]/infer    {"inputs": [{"name", "shape", "datatype", "data"}]}
//
// Data is nested lists, or one flat list in row-major order. With the header
// Inference-Header-Content-Length the elements of inputs with the parameter
// binary_data_size follow the JSON, little-endian; outputs are so if their
// parameter binary_data or the request's binary_data_output is true. NaN and
// infinities have no form in this protocol's JSON: an answer with them is an error
// that says so; use binary data.
//
// In both, Mezzo's types are those with the names in [Datatype]. Nothing is
// converted: the type of an input must be the model's. JSON numbers are read as
// that type; an integer has no fraction and a number out of range is an error.
// float16 and bfloat16 have no JSON form: use binary data. An error is
// {"error": "text"} with status 400 (the request), 401 (HandlerOptions.Auth), 404 (no
// such model, version or path), 413 (body), 415 (compressed body), 429 (full queue),
// 500 (the model failed), 503 (no memory, or closed) or 504 (the context's deadline).
//
// # Limits
//
// A body has at most HandlerOptions.MaxBody bytes, a request at most MaxBatch rows,
// and at most MaxQueue requests wait for a version. Shapes are compared with the
// model and with the number of bytes before memory is allocated; the elements
// read from JSON take up to four times its bytes. Lists in JSON nest at most 16
// deep. Requests that are being read are not counted: bound connections and their
// time with http.Server, as examples/serve does. TLS, rate limits and
// authorization are for middleware.
package serving
